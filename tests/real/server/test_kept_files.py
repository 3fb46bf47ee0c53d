"""What is kept where, with which mode: the table of docs/explanation/security.md, and what real commands leave."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.folders import ROOT
from tests.programs import agent_path
from tests.servers import Server, free_port, mariadb
from tests.waiting import until

#: Of each row the mode that it states, and the files of that mode: of a file the first that fits. No umask takes
#: anything away here.
KEPT = {
    "journal, history of changes, lock": (
        "directory 0700, files 0600",
        (("var/headrace", 0o700), ("var/headrace/.*", 0o600)),
    ),
    "experiments": ("your umask", ()),
    "the last hunt": ("your umask", (("state/last[.]hunt", 0o666),)),
    "the last attempt of `apply` on each server": ("0600", (("state/attempts[.]json", 0o600),)),
    "the last answers of a fleet, rollouts": (
        "directory 0700, files 0600",
        (("state/(fleet|rollouts)(/[^/]*)?", 0o700), ("state/(fleet|rollouts)/.*", 0o600)),
    ),
    "users of `headrace serve`": ("0600", (("state/history/users", 0o600),)),
    "sessions of `headrace serve`": ("0600", (("state/history/secret", 0o600),)),
    "audit log of `headrace serve`": ("0600", (("state/history/audit[.]log", 0o600),)),
    "history of `headrace serve`": (
        "directory 0700 if headrace makes it, those below: your umask; files 0640, examples, reviews and its "
        "clock 0600",
        (
            ("state/history", 0o700),
            ("state/history/elapsed[.]json", 0o600),
            ("state/history/(examples/.*[.]parquet|reviews.*)", 0o600),
            ("state/history/(lock|.*[.]parquet)", 0o640),
            (r"state/history/\w+(/day=[^/]*(/host=[^/]*)?)?", 0o777),
        ),
    ),
    "recordings, captured answers": ("0600", (("made/a[.]rec", 0o600),)),
    "digests and their HTML reports": (
        "0600 with samples, else your umask",
        (("made/digest[.](parquet|html)", 0o600),),
    ),
}  # fmt: skip
#: What no command here makes.
ELSEWHERE = {"the agent", "keys and disks of virtual machines"}
TABLE = "## What is kept, where, with which mode"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    log = ["--slow-query-log=ON", "--long-query-time=0", f"--slow-query-log-file={folder}/m/slow.log"]
    with mariadb(folder / "m", *log) as running:
        running.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT)", "SELECT a FROM shop.t WHERE a = 7")
        yield running


class Home:
    """One user's folders; its commands run with umask 0."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
            "HOME": str(folder),
            "HEADRACE_STATE": str(folder / "var/headrace"),
            "HEADRACE_AGENT": agent_path(),
        }
        (folder / "made").mkdir()
        (folder / "fleet.txt").write_text("local\n")

    def start(self, *words: str, asks: bool = True) -> subprocess.Popen[str]:
        login = ["--mysql-socket", self.server.socket, "--mysql-user", "root"] if asks else []
        argv = ["sh", "-c", 'umask 0; exec "$@"', "sh", sys.executable, "-m", "headrace", *words, *login]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, env=self.env, cwd=self.folder, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )

    def done(self, *words: str, asks: bool = True, typed: str = "") -> None:
        with self.start(*words, asks=asks) as process:
            said, _ = process.communicate(typed)
        assert process.returncode == 0, (words, said)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """``serve`` until the first minute is kept, after the block. Somebody was refused meanwhile."""
        history = self.folder / ".local/state/headrace/history"
        at = f"127.0.0.1:{free_port()}"
        with self.start("serve", "--listen", at) as process:
            try:
                yield
                until(lambda: next(history.rglob("*.parquet"), None), process, pause_s=0.2)
                foreign = {"Origin": "https://elsewhere.example"}
                login = urllib.request.Request(f"http://{at}/login", data=b"name=ann", headers=foreign)
                with contextlib.suppress(urllib.error.HTTPError):
                    urllib.request.urlopen(login).close()
                until((history / "audit.log").exists, process)
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate()

    def kept(self) -> dict[str, int]:
        """Everything that was made, below where headrace keeps things, and its mode."""
        places = {".local/state/headrace": "state", "made": "made", "var/headrace": "var/headrace"}
        found = {}
        for at, name in places.items():
            top = self.folder / at
            for path in (top, *top.rglob("*")):
                named = f"{name}/{path.relative_to(top)}".removesuffix("/.")
                found[named] = stat.S_IMODE(path.stat().st_mode)
        return {path: mode for path, mode in found.items() if path not in ("state", "made")}


def run_each(home: Home, log: str) -> None:
    """Every command that keeps something, but `serve`."""
    home.done("apply", "server.max_connections=321")
    home.done("rollback", "--last", asks=False)
    home.done("hunt", "--duration", "2s")
    home.done("fleet", "facts", "-f", "fleet.txt")
    home.done("rollout", "plan", "server.max_connections=300", "-f", "fleet.txt")
    home.done("record", log, "--output", "made/a.rec", asks=False)
    home.done("digest", log, "--save", "made/digest.parquet", "--html", "made/digest.html", asks=False)


def test_the_modes_are_those_of_the_table(server: Server, tmp_path: Path) -> None:
    home = Home(tmp_path, server)
    log = f"{server.folder}/slow.log"
    password = "a long password\n"
    home.done("serve", "user", "add", "ann", "--role", "viewer", asks=False, typed=2 * password)
    with home.serving():
        run_each(home, log)
    rules = [rule for _, rules in KEPT.values() for rule in rules]
    used = set()
    for path, mode in home.kept().items():
        [rule, *_] = [*(rule for rule in rules if re.fullmatch(rule[0], path)), ("in no row", -1)]
        used.add(rule)
        assert oct(mode) == oct(rule[1]), (path, rule)
    seldom = ("state/history/(examples/.*[.]parquet|reviews.*)", 0o600)
    assert used >= set(rules) - {seldom}, "each row was seen"


def test_the_table_has_these_rows() -> None:
    text = (ROOT / "docs/explanation/security.md").read_text().split(TABLE)[1].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    assert {row[0] for row in rows} == KEPT.keys() | ELSEWHERE
    stated = {row[0]: row[2] for row in rows if row[0] not in ELSEWHERE}
    assert stated == {name: mode for name, (mode, _) in KEPT.items()}
