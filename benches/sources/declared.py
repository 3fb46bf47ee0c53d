"""What a source cannot have the same as the server, each with its reason and its number.

A rule says how many more (or fewer, below 0) events a source has than the server counted, from what the server
counted and from what the case did: never from the recording. A difference is declared if the rules that apply add
up to exactly it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .lab import OF_CONNECTIONS, OF_EXECUTE, Counts, Pass

#: Of the protocol, all but the login.
COMMANDS = (
    "Quit", "Init DB", "Ping", "Statistics", "Prepare", "Close stmt", "Reset stmt", "Long Data", "Fetch",
    "Change user", "Reset connection", "Field List", "Set option", "Kill", "Processlist",
)  # fmt: skip
WIRE = ("capture", "interface", "proxy", "proxy, TLS")


@dataclass(frozen=True)
class Rule:
    """``more`` is given what the server counted of the kind, the case, and all that it counted. No kinds, or
    no cases, are all of them."""

    reason: str
    sources: tuple[str, ...]
    kinds: tuple[str, ...]
    more: Callable[[int, str, Counts], int]
    cases: tuple[str, ...] = ()

    def applies(self, source: str, case: str, kind: str) -> bool:
        is_kind = not self.kinds or kind in self.kinds
        return source in self.sources and is_kind and (not self.cases or case in self.cases)


def all_of_it(count: int, case: str, counts: Counts) -> int:
    return -count


def one(count: int, case: str, counts: Counts) -> int:
    """Where the case ran at all."""
    return int(any(number for (name, _), number in counts.items() if name == case))


def two_wrong(count: int, case: str, counts: Counts) -> int:
    """The last two statements of the case cannot be prepared."""
    return -2 if count else 0


def cursors_opened(count: int, case: str, counts: Counts) -> int:
    """Every execution of the case opens one."""
    return -counts[case, OF_EXECUTE]


def without_quit(count: int, case: str, counts: Counts) -> int:
    return counts[case, OF_CONNECTIONS] - count


def closed_unknown(count: int, case: str, counts: Counts) -> int:
    """Closes beyond the statements that could be prepared."""
    return -max(0, count - (counts[case, "Prepare"] - 2))


RULES: tuple[Rule, ...] = (
    Rule("under TLS: a capture cannot read it", ("capture", "interface"), (), all_of_it, ("tls",)),
    Rule(
        "sent behind a statement that failed, in one request: never executed",
        ("general log", *WIRE),
        ("statement",),
        one,
        ("multi",),
    ),
    Rule("the server does not log it", ("general log",), ("Ping", "Reset connection", "Fetch"), all_of_it),
    Rule(
        "the server does not log a PREPARE that failed",
        ("general log",),
        ("Prepare",),
        two_wrong,
        ("prepared",),
    ),
    Rule(
        "the server does not log the close of what it does not know",
        ("general log",),
        ("Close stmt",),
        closed_unknown,
        ("prepared",),
    ),
    Rule("sent ahead of an execution: part of that event", WIRE, ("Long Data",), all_of_it),
    Rule("the server logs statements only", ("slow log",), COMMANDS, all_of_it),
    Rule("not logged where it opens a cursor", ("slow log",), ("statement",), cursors_opened, ("cursors",)),
    Rule("ended without COM_QUIT, as when killed: the end counts", WIRE, ("Quit",), without_quit, ("kill",)),
)


@dataclass(frozen=True)
class Difference:
    """Of one kind of event in one case and source."""

    client: str
    source: str
    case: str
    kind: str
    counted: int
    found: int
    #: Reason -> how many more. Empty if nothing explains the difference exactly.
    reasons: dict[str, int]

    @property
    def more(self) -> int:
        return self.found - self.counted


def differences(client: str, run: Pass, source: str, found: Counts) -> list[Difference]:
    result = []
    for case, kind in sorted({*run.executed, *found}):
        if not case or kind in ("Connect", OF_EXECUTE, OF_CONNECTIONS):
            continue
        counted = run.executed[case, kind]
        more = found[case, kind] - counted
        rules = [rule for rule in RULES if rule.applies(source, case, kind)]
        reasons = {rule.reason: rule.more(counted, case, run.executed) for rule in rules}
        reasons = {reason: number for reason, number in reasons.items() if number}
        if more or reasons:
            exact = reasons if sum(reasons.values()) == more else {}
            result.append(Difference(client, source, case, kind, counted, found[case, kind], exact))
    return result
