"""Each recording replayed on a fresh copy of the data, and what the comparison of its answers says, by class."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.replays import Played, play
from tests.servers import Server

from .lab import HOST, QUIET, prepare
from .libraries import Library

KINDS = ("error", "rows", "checksum", "affected", "warnings")


@dataclass(frozen=True)
class Reason:
    """Why answers must differ: of classes whose fingerprint has ``text``, in these kinds."""

    words: str
    text: str
    kinds: tuple[str, ...] = KINDS
    sources: tuple[str, ...] = ()


MUST_DIFFER: tuple[Reason, ...] = (
    Reason("LOAD DATA LOCAL fails: the file is not in a recording", "load data local"),
    Reason(
        "when a KILL came is not known to the second: it comes late", "select sleep", ("rows",), ("slow log",)
    ),
    Reason(
        "what another session wrote in the same second comes later", "from types", ("rows",), ("slow log",)
    ),
    Reason("reads what LOAD DATA LOCAL had loaded", "from loaded"),
)


@dataclass
class Replayed:
    compared: int = 0
    different: int = 0
    #: Reason -> answers.
    declared: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    #: What was left out, and what the replay itself says against its validity.
    skipped: dict[str, int] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)


def replay(copy: Server, library: Library, source: str, recording: Path) -> Replayed:
    prepare(copy, library.name)
    copy.sql(*QUIET, "CREATE USER IF NOT EXISTS app IDENTIFIED BY ''", "GRANT ALL ON *.* TO app")
    login = ["--mysql-host", HOST, "--mysql-port", str(copy.port), "--mysql-user", "app"]
    options = ["--check", "--speed", "max", "--memory", "1000MB", "--mysql-tls", "disabled"]
    if library.counts_found_rows:
        options.append("--found-rows")
    return judged(play(login, recording, *options), source)


def judged(played: Played, source: str) -> Replayed:
    comparison = played.end["comparison"]
    result = Replayed(comparison["compared"], comparison["different"])
    for words, key in (
        ("interrupted by a KILL, there or here", "interrupted"),
        ("CONNECTION_ID() and the like", "own_number"),
    ):
        result.declared[words] += comparison[key]
    moment = comparison["set_apart"] - comparison["interrupted"] - comparison["own_number"]
    result.declared["NOW() and the like, variables, status"] += moment
    for line in played.classes:
        if not line["different"]:
            continue
        kinds = tuple(kind for kind in KINDS if line[f"different_{kind}"])
        reason = next((r for r in MUST_DIFFER if explains(r, line["fingerprint"], kinds, source)), None)
        if reason:
            result.declared[reason.words] += line["different"]
        else:
            counts = ", ".join(f"{kind} {line[f'different_{kind}']}" for kind in kinds)
            result.unexplained.append(
                f"{line['fingerprint'][:100]}: {counts}; {str(line['examples'][:1])[:500]}"
            )
    result.declared = +result.declared
    told = played.end["replay"]
    result.skipped = {name: number for name, number in told["skipped"].items() if number}
    result.invalid, result.errors = played.end["invalid"], played.end["errors"]
    return result


def explains(reason: Reason, fingerprint: str, kinds: tuple[str, ...], source: str) -> bool:
    is_source = not reason.sources or source in reason.sources
    return is_source and reason.text in fingerprint.lower() and set(kinds) <= set(reason.kinds)
