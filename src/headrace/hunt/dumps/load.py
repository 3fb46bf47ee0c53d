"""A dump as a snapshot: opened, read piece by piece, put on one clock, and what is missing named."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.base.counted import counted
from headrace.base.encode import json_text
from headrace.base.errors import StoreError
from headrace.base.model import Facts
from headrace.base.temporary import temporary_folder
from headrace.host.activity import Activity, Looks
from headrace.host.agent import Agent
from headrace.host.samples import Samples
from headrace.host.shape import shaped, told
from headrace.host.snapshot import Origin, Snapshot
from headrace.host.target.local import LocalTarget
from headrace.host.window import Window
from headrace.hunt.dumps import hosts
from headrace.hunt.dumps.clock import CALENDAR_S, Clock, on_one_clock
from headrace.hunt.dumps.collections import latest
from headrace.hunt.dumps.files import Opened, opened
from headrace.hunt.dumps.kinds import KINDS
from headrace.hunt.dumps.kinds.named import what_is
from headrace.hunt.dumps.piece import (
    About,
    Channels,
    Kernel,
    Numbered,
    Piece,
    Rates,
    Said,
    Stacks,
    Status,
    Threads,
    Unread,
    Variables,
)
from headrace.hunt.dumps.series import Row, rows_of_numbers, rows_of_rates, rows_of_status
from headrace.hunt.dumps.server import placed, settings_of
from headrace.hunt.dumps.threads import lines_of, numbers_of

#: Pieces of a kind: a dump of more is thinned out by its reader's caller, evenly.
MOST_PIECES = 4_000
#: Names in one sentence.
MOST_NAMED = 6
#: No tool prints a longer line except as JSON: of one with a large statement in it the start is read.
MOST_OF_LINE = 64 << 10
WHAT_IS_READ = (
    "SHOW GLOBAL STATUS, SHOW GLOBAL VARIABLES, SHOW ENGINE INNODB STATUS, SHOW REPLICA STATUS, process lists, "
    "directories of pt-stalk or headrace collect, pt-summary, sosreports, directories with proc/ and sys/, "
    "vmstat, iostat -x, mpstat, sar, sadf -j, top -b, atop -P, collectl -P, free -h, "
    "netstat -s with times, perf script, memcached's stats of headrace collect, and pages of node_exporter and "
    "mysqld_exporter"
)


@dataclass
class _Read:
    """The pieces of a dump by kind, each with its file."""

    pieces: list[Piece] = field(default_factory=list)
    places: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    refusal: str = ""
    #: Whose programs were watched: names as they print them.
    hosts: set[str] = field(default_factory=set)

    def of(self, kind: type[Any]) -> list[Any]:
        found = [piece for piece in self.pieces if isinstance(piece, kind)]
        if len(found) <= MOST_PIECES:
            return found
        step = (len(found) - 1) / (MOST_PIECES - 1)
        return [found[round(number * step)] for number in range(MOST_PIECES)]


def load(path: Path) -> Snapshot:
    """A dump as a snapshot. Raises StoreError if nothing in it is known, and NotReady without an agent."""
    with temporary_folder() as scratch:
        content = opened(path, scratch)
        return asyncio.run(_snapshot(path, content, scratch))


def _read(content: Opened) -> _Read:
    found = _Read(unread=dict(content.skipped))
    unknown = []
    for name, text in content.texts.items():
        start = len(found.pieces)
        before = len(found.pieces) + len(found.unread)
        short, cut = _with_short_lines(text)
        for kind in KINDS:
            for piece in kind.read(short):
                if isinstance(piece, Unread):
                    found.unread[name] = piece.why
                    found.refusal = found.refusal or piece.refusal
                    continue
                found.pieces.append(piece)
                if isinstance(piece, Said):
                    continue
                place = found.places.setdefault(_what(piece), [])
                if name not in place:
                    place.append(name)
        own = found.pieces[start:]
        if cut and own:
            lines = f"{counted(cut, 'line')} of {name}"
            found.pieces.append(Said(f"{lines} longer than {MOST_OF_LINE >> 10} KiB: only the start is read"))
        # Of what begins with a banner the host is known by that, and nothing else is read.
        is_unread = all(isinstance(piece, About) for piece in own) and name not in found.unread
        if is_unread and (what := what_is(text)) is not None:
            found.unread[name] = what
        elif text.strip() and len(found.pieces) + len(found.unread) == before:
            unknown.append(name)
        if any(isinstance(piece, Rates) for piece in own):
            found.hosts |= {
                str(host).partition(".")[0].lower()
                for piece in own
                if isinstance(piece, About) and (host := piece.facts.get(("hostname",)))
            } - {"localhost", "(none)"}
    if unknown and found.pieces:
        found.unread[_named(unknown)] = "of no kind that is read"
    return found


def _with_short_lines(text: str) -> tuple[str, int]:
    """A hundred patterns look at each line. The text, and how many of its lines were cut; of JSON none is."""
    if len(text) <= MOST_OF_LINE or text.lstrip()[:1] in ("{", "["):
        return text, 0
    lines = text.split("\n")
    cut = sum(len(line) > MOST_OF_LINE for line in lines)
    return ("\n".join(line[:MOST_OF_LINE] for line in lines), cut) if cut else (text, 0)


def _what(piece: Piece) -> str:
    """The kind of a piece, as people call it."""
    match piece:
        case Status(source=source) | Rates(source=source):
            return source
        case Numbered(source=source) if source:
            return source
        case Variables():
            return "variables"
        case Numbered(sampler="allowance"):
            return "ethtool -S"
        case Numbered(sampler=sampler):
            return (
                "SHOW ENGINE INNODB STATUS" if sampler == "innodb_status" else f"{sampler} of node_exporter"
            )
        case Threads():
            return "process list"
        case Kernel(path=path):
            return f"/{path}"
        case Stacks():
            return "perf script"
    return "host"


async def _snapshot(path: Path, content: Opened, scratch: Path) -> Snapshot:
    content.texts, left = latest(content.texts)
    read = _read(content)
    cautions = [*left, *dict.fromkeys(said.text for said in read.of(Said))]
    _check_one_host(path, content.trees, read)
    readings, untimed = _readings(content.trees, read.of(Kernel), _end_s(read, content.newest_s))
    readings = hosts.with_groups(on_one_clock(readings, read.pieces), content.trees)
    if all(isinstance(piece, Said) for piece in read.pieces) and not content.trees:
        raise _nothing(path, read)
    clock = Clock.of(read.of(Status), readings, read.pieces, content.newest_s)
    facts = await _facts(content.trees, read, scratch)
    rows: list[Row] = []
    records = list(await hosts.samples_of(readings, scratch)) if readings else []
    groups = hosts.groups_of(content.trees)
    if any(record["sampler"] == "cgroup" for record in records):
        groups = []
    elif throttling := hosts.throttling_of(content.trees):
        cautions.append(throttling)
    if len(readings) == 1:
        # A single reading adds nothing where a program watched the counters.
        watched = {piece.sampler for piece in read.of(Rates) if any(piece.per_second.values())}
        records = [record for record in records if record["sampler"] not in watched]
    sampled = {str(record["sampler"]) for record in records}
    sampled |= {piece.sampler for piece in read.of(Numbered)}
    rows += rows_of_numbers([*read.of(Numbered), *groups], clock)
    rates, doubled = rows_of_rates(read.of(Rates), clock, sampled)
    rows += rates
    cautions += doubled
    is_watched = len(readings) > 1 or bool(rates) or len(read.of(Numbered)) > 1
    status, said = rows_of_status(read.of(Status), clock, is_watched)
    rows += status
    cautions += said
    rows += rows_of_numbers(
        [Numbered("processlist", numbers_of(each.rows), each.at_s) for each in read.of(Threads)], clock
    )
    samples = Samples.of([*rows, *_rows_of_records(records)])
    settings, why = settings_of(read.of(Variables), read.of(Status), read.of(Channels))
    facts["server_settings"] = settings
    if _is_of_server_alone(read, content.trees):
        facts["only_sql"] = "the dump has nothing of its host"
    elif settings is not None:
        placed(settings, facts)
    errors = {"mysql_status" if read.refusal else "server": read.refusal or why} if settings is None else {}
    missing = _missing(read, samples, settings, untimed)
    window = Window(samples)
    origin = Origin(
        tuple(
            (what, _named(places)) for what, places in _with_trees(read.places, content.trees, path).items()
        ),
        tuple(missing),
        tuple(cautions),
        tuple(f"{name}: {why}" for name, why in list(read.unread.items()) if why != "no text"),
    )
    facts, wrong = shaped(facts)
    if wrong:
        errors["facts"] = told(wrong)
    errors |= {
        sampler: "the dump does not have it"
        for sampler in ("psi", "process", "threads", "cgroup")
        if sampler not in window.samplers()
    }
    digest = hashlib.sha256(json_text(facts, sort_keys=True).encode()).hexdigest()[:16]
    started = datetime.fromtimestamp(max(window.start_s, 0.0), UTC).isoformat(timespec="seconds")
    return Snapshot(
        path.name,
        started,
        window.seconds,
        Facts(digest, facts),
        samples,
        errors,
        stacks="".join(piece.folded for piece in read.of(Stacks)),
        headrace_version=__version__,
        activity=await _activity(read.of(Threads)),
        origin=origin,
    )


def _check_one_host(path: Path, trees: Sequence[Path], read: _Read) -> None:
    """Raises StoreError for a dump of several hosts."""
    for named in (hosts.names_of(trees), read.hosts):
        if len(named) > 1:
            raise StoreError(
                f"{len(named)} hosts: {_named(sorted(named))}", place=str(path), hint="give one at a time"
            )


def _end_s(read: _Read, newest_s: float) -> float:
    """The end of what programs printed: a file was written when it was unpacked, or later."""
    times = [float(getattr(piece, "at_s", None) or 0.0) for piece in read.pieces]
    return max((at_s for at_s in times if at_s >= CALENDAR_S), default=newest_s)


def _is_of_server_alone(read: _Read, trees: Sequence[Path]) -> bool:
    """Whether there are lists of sessions or of transactions, and no word of the host."""
    has_server = bool(read.of(Threads) or read.of(Status))
    own = ("innodb_status", "mysql_status", "replication")
    has_server = has_server or any(piece.sampler in own for piece in read.of(Numbered))
    of_host = any(piece.sampler not in own for piece in read.of(Numbered))
    return has_server and not (of_host or trees or read.of(Rates) or read.of(Kernel) or read.of(About))


def _nothing(path: Path, read: _Read) -> StoreError:
    known = [f"{name}: {why}" for name, why in read.unread.items()]
    known += dict.fromkeys(said.text for said in read.of(Said))
    more = f" ({'; '.join(known[:MOST_NAMED])})" if known else ""
    return StoreError(f"nothing that a hunt can use{more}", place=str(path), hint=f"it reads {WHAT_IS_READ}")


def _readings(
    trees: Sequence[Path], pieces: Sequence[Kernel], newest_s: float
) -> tuple[dict[float, dict[str, str]], int]:
    """Time -> files of /proc at that time, and how many readings have no time."""
    found: dict[float, dict[str, str]] = {}
    untimed: list[dict[str, str]] = []
    for tree, at_s in zip(trees, hosts.times_of(trees), strict=True):
        reading = hosts.reading_of(tree)
        if not set(reading) - {"proc/uptime"}:
            continue
        if at_s is None:
            untimed.append(reading)
        else:
            found.setdefault(at_s, {}).update(reading)
    loose: dict[str, str] = {}
    for piece in pieces:
        if piece.path == "proc/cpuinfo":
            continue
        if piece.at_s is None:
            loose[piece.path] = piece.text
        else:
            found.setdefault(piece.at_s, {})[piece.path] = piece.text
    if not found and (untimed or loose):
        # One reading has gauges, and that is all that it says.
        found[newest_s] = {**(untimed[0] if untimed else {}), **loose}
        return found, max(len(untimed) - 1, 0)
    return found, len(untimed)


async def _facts(trees: Sequence[Path], read: _Read, scratch: Path) -> dict[str, Any]:
    empty = scratch / "empty"
    (empty / "proc").mkdir(parents=True)
    facts = await hosts.facts_of(trees[0] if trees else empty)
    own = hosts.reading_of(trees[0]) if trees else {}
    texts = {piece.path: piece.text for piece in read.of(Kernel)}
    for name in ("proc/cpuinfo", "proc/version"):
        if trees and (text := hosts.text_of(trees[0], name)) is not None:
            texts[name] = text
    hosts.completed(facts, {**texts, **own})
    for piece in read.of(About):
        _add(facts, piece.facts)
    return facts


def _add(facts: dict[str, Any], about: Mapping[tuple[str, ...], Any]) -> None:
    """Adds facts where the saved host has none; the first who says something is believed."""
    for path, value in about.items():
        table = facts
        for name in path[:-1]:
            if not isinstance(table.get(name), dict):
                table[name] = {}
            table = table[name]
        if table.get(path[-1]) is None:
            table[path[-1]] = value


def _rows_of_records(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    for record in records:
        t_ns, sampler = int(record["t_ns"]), str(record["sampler"])
        for metric, by_label in record["values"].items():
            rows += [(t_ns, sampler, metric, label, float(value)) for label, value in by_label.items()]
    return rows


async def _activity(lists: Sequence[Threads]) -> Activity | None:
    """What the process lists show, as classes without values; None without one."""
    if not lists:
        return None
    agent = await Agent.install(LocalTarget())
    looks = Looks()
    for line in await lines_of(lists, agent):
        looks.add(line)
    return looks.activity()


def _missing(read: _Read, samples: Samples, settings: Mapping[str, Any] | None, untimed: int) -> list[str]:
    """What the dump lacks, and what would give it."""
    has = {sampler for sampler, _, _ in samples.names}
    several = {
        name[0]
        for name, start, end in zip(samples.names, samples.starts, samples.ends, strict=True)
        if end - start > 1
    }
    found = []
    if not read.of(Status):
        found.append("the server's counters: SHOW GLOBAL STATUS, twice, some seconds apart")
    if settings is None or not read.of(Variables):
        found.append("the server's version and settings: SHOW GLOBAL VARIABLES")
    if "innodb_status" not in has:
        found.append("transactions and the redo log: SHOW ENGINE INNODB STATUS")
    if not read.of(Threads):
        found.append("what the server executes: SHOW FULL PROCESSLIST, several times")
    for sampler, what in (
        ("cpu", "the CPUs: /proc/stat twice, or mpstat -P ALL 1 10"),
        ("disk", "the disks: /proc/diskstats twice, or iostat -x 1 10"),
        ("network", "the network: /proc/net/dev twice"),
    ):
        if sampler not in several:
            found.append(what)
    if "memory" not in has:
        found.append("the memory: /proc/meminfo")
    if untimed:
        found.append(
            f"the time of {untimed} more readings of /proc: name their directories by seconds since 1970"
        )
    return found


def _with_trees(
    places: Mapping[str, Sequence[str]], trees: Sequence[Path], top: Path
) -> dict[str, list[str]]:
    found = {what: list(names) for what, names in places.items()}
    if trees:
        found["/proc and /sys"] = [tree.name if tree != top else "." for tree in trees]
    return found


def _named(places: Sequence[str]) -> str:
    more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
    return f"{', '.join(places[:MOST_NAMED])}{more}"
