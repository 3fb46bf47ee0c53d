"""Attacks of what others send, write and plant, row by row: each must cost what it is, and nothing else.

    python benches/trust.py [ROW ...]

At least ten forms of each. Those that need a server, a connection or hours are in other lines of `make torture`.
The exit code is 1 if one was not held.
"""

from __future__ import annotations

import asyncio
import copy
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace.base import received
from headrace.base.errors import HeadraceError
from headrace.fleet.host import Host
from headrace.history.archive.files import DAY_S, HOUR_S, Archive
from headrace.history.archive.tables import TABLES
from headrace.host import snapshot
from headrace.host.target import TargetSpec

Attack = tuple[str, Callable[[Path], object]]
SECRET = "root:$6$salt$hash:1:0:9:::"
NOBODY = 65534
HUGE = 2**63 - 1
HOSTILE = (
    "\x1b[2J", "\x1b]0;x\x07", "\x9b31m", "\u202egpj", "\u2066x", "a\rb", "\x00", "\x7f", "\x08\x08", "\ud800",
    "\u2028", "\u200b", "<script>alert(1)</script>", "[link=https://evil]x[/link]", "<!channel>", "=cmd()",
    "x" * 100_000,
)  # fmt: skip


class NotHeld(Exception):
    """What the attack reached."""


def held(is_held: bool, what: str) -> None:
    if not is_held:
        raise NotHeld(what)


def agent() -> str:
    from headrace.host.agent.program import find_binary

    return str(find_binary())


# -- 1, 5, 13: a file that is none ------------------------------------------------------------------------------


def files() -> Iterator[Attack]:
    """In a folder of the server's account, under the name of a file that root reads."""

    def plant(make: Callable[[Path], object], name: str = "zz-headrace.cnf") -> Callable[[Path], None]:
        def attack(folder: Path) -> None:
            (folder / "secret").write_text(SECRET)
            (folder / "secret").chmod(0o600)
            conf = folder / "conf.d"
            conf.mkdir()
            os.chown(conf, NOBODY, NOBODY)
            make(conf / "zz-headrace.cnf")
            # Of what is mounted there the account would be given the file itself; root's link stays root's.
            if make not in (bound, second):
                os.chown(conf / "zz-headrace.cnf", NOBODY, NOBODY, follow_symlinks=False)
            done = subprocess.run(
                [agent(), "file", str(conf / name)], capture_output=True, text=True, check=False, timeout=60
            )
            subprocess.run(["umount", "-l", conf / name], check=False, capture_output=True)
            held("$6$" not in done.stdout + done.stderr, "shown")
            held(done.returncode == 5, f"exit code {done.returncode}")

        return attack

    def bound(at: Path) -> None:
        at.touch()
        subprocess.run(["mount", "--bind", at.parent.parent / "secret", at], check=True, capture_output=True)

    def chain(at: Path) -> None:
        for n in range(50):
            (at.parent / f"l{n}").symlink_to(f"l{n + 1}")
        at.symlink_to("l0")

    def socket(at: Path) -> None:
        import socket as sockets

        with sockets.socket(sockets.AF_UNIX) as one:
            here = os.getcwd()
            os.chdir(at.parent)
            one.bind(at.name)
            os.chdir(here)

    def inner(at: Path) -> None:
        at.mkdir()
        (at / "x").symlink_to("../../secret")
        os.chown(at / "x", NOBODY, NOBODY, follow_symlinks=False)

    def sparse(at: Path) -> None:
        with at.open("wb") as file:
            file.truncate(1 << 40)

    def second(at: Path) -> None:
        """Of root's own link, which leads to its file."""
        (link := at.parent.parent / "link").symlink_to(at.parent.parent / "secret")
        os.link(link, at, follow_symlinks=False)

    up = "../secret"
    yield "link up", plant(lambda at: at.symlink_to(up))
    yield "absolute link", plant(lambda at: at.symlink_to(at.parent.parent / "secret"))
    yield "link to /dev/zero", plant(lambda at: at.symlink_to("/dev/zero"))
    yield "link to /proc/self/environ", plant(lambda at: at.symlink_to("/proc/self/environ"))
    yield "link to /proc/1/root", plant(lambda at: at.symlink_to("/proc/1/root/etc/shadow"))
    yield "link to /proc/self/fd/0", plant(lambda at: at.symlink_to("/proc/self/fd/0"))
    yield "link to itself", plant(lambda at: at.symlink_to(at))
    yield "chain of links", plant(chain)
    yield "pipe", plant(os.mkfifo)
    yield "socket", plant(socket)
    yield "/dev/zero", plant(lambda at: os.mknod(at, 0o20600, os.makedev(1, 5)))
    yield "block device", plant(lambda at: os.mknod(at, 0o60600, os.makedev(7, 0)))
    yield "second name of a link", plant(second)
    yield "hard link", plant(lambda at: os.link(at.parent.parent / "secret", at))
    yield "terabyte", plant(sparse)
    yield "folder of links", plant(inner, "zz-headrace.cnf/x")
    yield "folder that is a link", plant(lambda at: at.symlink_to(".."), "zz-headrace.cnf/secret")
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0:
        yield "bind mount", plant(bound)


# -- 2: numbers that cannot be ----------------------------------------------------------------------------------


def numbers() -> Iterator[Attack]:
    from headrace.history.collect import slow_log
    from headrace.history.collect.collector import Collector

    good: dict[str, Any] = {
        "type": "class", "id": "good", "databases": [["shop", 1]], "count": 5, "timed": 5, "response_sum_ns": 1e6,
        "lock_ns": {"sum": 1, "known": 1}, "failed": 0, "rows_examined": {"sum": 1, "known": 1},
        "rows_sent": {"sum": 1, "known": 1}, "response_max_ns": 1000, "buckets": [[1, 5]],
        "fingerprint": "select 1", "tables": ["t"],
    }  # fmt: skip
    odd: list[Any] = [
        HUGE,
        2**64,
        -1,
        1.5,
        float("nan"),
        float("inf"),
        1e308,
        10**400,
        "5",
        None,
        [],
        {},
        True,
    ]
    places = (
        "count",
        "response_sum_ns",
        "lock_ns",
        "buckets",
        "databases",
        "response_max_ns",
        "id",
        "tables",
    )

    def attack(wrong: dict[str, Any]) -> Callable[[Path], None]:
        def run(folder: Path) -> None:
            archive = Archive(folder / "history")
            archive.create()
            found = Collector(archive, [Host(name, TargetSpec("local")) for name in ("evil", "good")])
            now = int(time.time()) // HOUR_S * HOUR_S - 3 * HOUR_S
            slow_log.take({**good, "id": "bad", **wrong}, found.hosts["evil"].pending)
            slow_log.take(good, found.hosts["good"].pending)
            asyncio.run(found.write(now))
            held(found.problem == "", found.problem)
            found._keep_house(now + 3 * HOUR_S)
            held(found.house_problem == "", found.house_problem)
            left = [file for file in archive.files("classes", "good") if file.kind == "m"]
            held(not left, "the other host is not rolled up")

        return run

    for place in places:
        for value in odd if place == "count" else odd[::4]:
            yield f"{place} = {value!r:.20}", attack({place: value})


# -- 3, 8: small on the way, large in memory --------------------------------------------------------------------


def bombs() -> Iterator[Attack]:
    def peak_kib() -> int:
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

    def refused(content: bytes, bound: received.Bound) -> Callable[[Path], None]:
        def run(_: Path) -> None:
            Path("/proc/self/clear_refs").write_text("5")
            before = peak_kib()
            try:
                received.parsed(content, bound)
                raise NotHeld("taken")
            except received.BadContent:
                pass
            grown = peak_kib() - before
            held(grown < 10 * (len(content) >> 10) + (64 << 10), f"{grown >> 10} MiB")

        return run

    shapes = {
        "lists": b"[" + b"[]," * (8 << 20) + b"[]]",
        "objects": b"[" + b"{}," * (8 << 20) + b"{}]",
        "numbers": b"[" + b"1," * (8 << 20) + b"1]",
        "floats": b"[" + b"1e1," * (6 << 20) + b"1]",
        "words": b"[" + b'"a",' * (6 << 20) + b'"a"]',
        "keys": b"{" + b",".join(b'"%d":1' % n for n in range(1 << 20)) + b"}",
        "nulls": b"[" + b"null," * (5 << 20) + b"1]",
        "depth": b"[" * (8 << 20),
        "depth of objects": b'{"a":' * (2 << 20),
        "escapes": b'"' + b"\\u0000" * (4 << 20) + b'"',
        "quotes": b'["' + b'\\"[' * (8 << 20) + b'"]',
        "one number": b"9" * (24 << 20),
        "spaces": b" " * (24 << 20) + b"1",
        "open word": b'["' + b"[" * (24 << 20),
    }
    for verb in ("facts", "sample"):
        for name, content in shapes.items():
            yield f"{verb}: {name}", refused(content, received.OF_VERBS[verb])

    def hunt(name: str, content: bytes) -> Callable[[Path], None]:
        def run(folder: Path) -> None:
            saved = snapshot.Snapshot("db", "2026", 1.0, snapshot.Facts("", {"a": 1}), snapshot.NO_SAMPLES)
            snapshot.save(saved, folder / "a.hunt")
            with (
                zipfile.ZipFile(folder / "a.hunt") as old,
                zipfile.ZipFile(folder / "b.hunt", "w", zipfile.ZIP_DEFLATED) as new,
            ):
                for part in old.namelist():
                    new.writestr(part, content if part == name else old.read(part))
            Path("/proc/self/clear_refs").write_text("5")
            before = peak_kib()
            try:
                snapshot.load(folder / "b.hunt")
                raise NotHeld("taken")
            except HeadraceError:
                pass
            held(peak_kib() - before < 200 << 10, f"{(peak_kib() - before) >> 10} MiB")

        return run

    for name, content in shapes.items():
        yield f"hunt: {name}", hunt("facts.json", content)


# -- 9: one host, one failure -----------------------------------------------------------------------------------


def facts() -> Iterator[Attack]:
    from headrace.fleet.report import facts as report
    from headrace.fleet.runner import Outcome, State
    from headrace.show import text

    said = subprocess.run([agent(), "facts"], capture_output=True, check=True).stdout
    honest = json.loads(said)

    def attack(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
        def run(_: Path) -> None:
            from headrace.cli.screen import Screen

            evil = copy.deepcopy(honest)
            change(evil)
            out = io.StringIO()
            outcomes = [Outcome("evil", State.OK, answer=evil), Outcome("good", State.OK, answer=honest)]
            Screen(file=out, width=5000).print(report.terminal(outcomes, {"evil": 1, "good": 1}))
            # With its own name, or with that of both where they are the same.
            for key_, shown in report._digest(honest):
                held(text.clean(shown) in out.getvalue(), f"{key_} of the other host is not shown")
            wrong = [c for c in out.getvalue() if not (c.isprintable() or c == "\n")]
            held(not wrong, f"{wrong[:3]!r} on the terminal")

        return run

    for key in honest:
        yield f"without {key}", attack(lambda evil, key=key: evil.pop(key))
        for value in (None, [], {}, "x", -1, [None], HOSTILE[0]):
            yield f"{key} = {value!r}", attack(lambda evil, key=key, value=value: evil.update({key: value}))
    for word in HOSTILE:
        yield f"text {word!r:.20}", attack(lambda evil, word=word: texts(evil, word))


def texts(value: Any, text: str) -> None:
    """Every text in a document is this one."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, str):
            value[key] = text
        elif isinstance(each, dict | list):
            texts(each, text)


# -- 7, 10: text on its way out ---------------------------------------------------------------------------------


def ways_out() -> Iterator[Attack]:
    from headrace.cli.log import CleanLines
    from headrace.cli.screen import Screen
    from headrace.mcp.untrusted import sealed
    from headrace.show.notice import Conclusion, Notice
    from headrace.show.parts import Heading, Lines, Page, Section, Sentence
    from headrace.show.parts import Table as Rows
    from headrace.tell import markdown, words
    from headrace.web.listing import Column, Listing

    def clean(text: str) -> None:
        held(all(c.isprintable() or c in "\r\n" for c in text), f"{text[:60]!r}")

    def run(text: str) -> Callable[[Path], None]:
        def attack(_: Path) -> None:
            from headrace.show import html, terminal

            parts = [Sentence(text), Heading(text), Lines(text), Rows([(text, "")], [[text]], title=text)]
            page = Page(text, text, [text], [Section("a", text, text, parts, text, brief=parts)], text)
            out = io.StringIO()
            Screen(file=out, width=100).print(terminal.render(page))
            clean(out.getvalue())
            drawn = html.render(page)
            held("<script>alert" not in drawn and "\x1b" not in drawn and "\u202e" not in drawn, "on a page")
            notice = Notice(text, text, Conclusion.WORSE, text, next=text, link=text, id=text)
            summary = markdown.content(notice)
            clean(summary)
            # What is indented is code, which calls nobody.
            shown = [line for line in summary.splitlines() if not line.startswith("    ")]
            for told in (words.plain(notice), words.title(notice), "\n".join(shown)):
                clean(told)
                held("<!channel>" not in told, "a call")
            cells = Listing([Column("a", "a"), Column(text, text)], [{"a": text, text: text}]).to_csv()
            clean(cells)
            held(not any(cell.startswith("=") for cell in cells.replace("\r\n", ",").split(",")), "a formula")
            answer = json.dumps(sealed({"a": text, "b": [text]}))
            clean("".join(each["untrusted"] for each in (json.loads(answer)["a"], *json.loads(answer)["b"])))
            import logging

            clean(CleanLines().format(logging.makeLogRecord({"msg": "%s", "args": (text,)})))

        return attack

    for text in HOSTILE:
        yield f"{text!r:.24}", run(text)


# -- 11, 12: clocks ---------------------------------------------------------------------------------------------


def clocks() -> Iterator[Attack]:
    from headrace.base.clocks import Clocks
    from headrace.history.archive.elapsed import Elapsed
    from headrace.history.archive.rollup import Keep, trim
    from headrace.history.collect import minute
    from headrace.history.collect.collector import SHARE

    def left(folder: Path, steps: list[float]) -> int:
        archive = Archive(folder)
        archive.create()
        start = Clocks(float(int(time.time()) // HOUR_S * HOUR_S), 1000.0, "boot")
        for number in range(30):
            t_s = int(start.wall_s) - 30 * DAY_S + number * DAY_S
            rows = [{**minute.lost_row(""), "state": "ok", "sampled_s": 60.0}]
            archive.write(TABLES["states"], "h", "d", t_s, minute.table_of(TABLES["states"], rows, t_s))
        elapsed, boot_s = Elapsed(archive.root, start.wall_s, start), start.boot_s
        for off in steps:
            for _ in range(5):
                boot_s += 600
                now = Clocks(start.wall_s + boot_s - start.boot_s + off, boot_s, "boot")
                # All are a little younger than they are kept.
                trim(archive, elapsed.now_s(now), Keep(31 * DAY_S), SHARE)
        return len(archive.files("states"))

    def attack(steps: list[float]) -> Callable[[Path], None]:
        def run(folder: Path) -> None:
            right, wrong = left(folder / "right", [0.0] * len(steps)), left(folder / "wrong", steps)
            held(right == wrong == 30, f"{wrong} are left, {right} with the right clock")

        return run

    year = 365 * DAY_S
    steps: dict[str, list[float]] = {
        "+1 h": [HOUR_S], "-1 h": [-HOUR_S], "+1 h and back": [HOUR_S, 0], "+10 years": [10 * year],
        "-10 years": [-10 * year], "+10 years and back": [10 * year, 0], "often": [10 * year, 0] * 5,
        "+100 years": [100 * year], "1970": [-float(int(time.time()))], "2038": [12 * year], "+1 day": [DAY_S],
        "by steps": [n * 30 * DAY_S for n in range(20)], "+40 days": [40 * DAY_S, 0, 40 * DAY_S],
    }  # fmt: skip
    for name, each in steps.items():
        yield name, attack(each)


ROWS: dict[str, Callable[[], Iterator[Attack]]] = {
    "1, 5, 13: files of others": files,
    "2: numbers that cannot be": numbers,
    "3, 8: bombs": bombs,
    "7, 10: text on its way out": ways_out,
    "9: facts of one host": facts,
    "11, 12: clocks": clocks,
}


def main() -> int:
    wanted = sys.argv[1:]
    failed = 0
    for row, attacks in ROWS.items():
        if wanted and not any(row.startswith(each) or f" {each}" in f" {row}" for each in wanted):
            continue
        count, began, wrong = 0, time.monotonic(), []
        for name, attack in attacks():
            count += 1
            with tempfile.TemporaryDirectory() as folder:
                Path(folder).chmod(0o755)
                try:
                    attack(Path(folder))
                except Exception as error:
                    wrong.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        failed += len(wrong)
        print(f"{row}: {count - len(wrong)} of {count} held, {time.monotonic() - began:.0f} s", flush=True)
        for line in wrong:
            print(f"  NOT HELD {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
