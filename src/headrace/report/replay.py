"""The result of a replay, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.replayed import SHOWN, Replayed
from headrace.report.text import clean, count, milliseconds

#: Classes in the table of response time.
CLASSES = 10
#: Classes named whose differences are set apart.
MOST_SET_APART = 3
_DIFFERENT = {
    "different_error": "error",
    "different_rows": "number of rows",
    "different_checksum": "content of the rows",
    "different_affected": "rows affected",
    "different_warnings": "warnings",
}


@dataclass(frozen=True)
class Reference:
    """The reference of a replay's answers and times: its name in a table and in a sentence."""

    short: str
    whole: str


RECORDED = Reference("recorded", "the recording")
FIRST_SERVER = Reference("first", "the first server")


def progress(replayed: Replayed) -> str:
    return f"{replayed.at_s:,.0f} s: {count(replayed.statements)} statements, {count(replayed.errors)} errors"


def to_json(replayed: Replayed) -> dict[str, Any]:
    """Everything: operations, classes with their differences, lag, what was left out, and why it is invalid."""
    length_s = replayed.length_s
    return {
        "seconds": length_s,
        "statements": replayed.statements,
        "throughput_ops_s": replayed.statements / length_s if length_s else None,
        "operations": replayed.operations(),
        "classes": replayed.classes,
        "needs": dict(replayed.needs) or None,
        "doubts": replayed.doubts,
        "end": dict(replayed.end),
    }


def both(first: Replayed, second: Replayed) -> RenderableType:
    """Two servers, one after the other: the figures of each, and how the second's answers differ from the
    first's.
    """
    return Group(
        Text("the first server", "bold"),
        *_summary(first, RECORDED),
        Text(),
        _operations(first),
        *_verdict(first),
        Text(),
        Text("the second server", "bold"),
        terminal(second, FIRST_SERVER),
    )


def terminal(replayed: Replayed, reference: Reference = RECORDED) -> RenderableType:
    """Throughput, times by operation and class, lag, differences, and what was left out."""
    return Group(
        *_summary(replayed, reference),
        Text(),
        _operations(replayed),
        Text(),
        _classes(replayed, reference),
        *_differences(replayed, reference),
        *_verdict(replayed),
        *(Text(words, "dim") for words in _left_out(replayed.end.get("replay", {}))),
    )


def _summary(replayed: Replayed, reference: Reference) -> tuple[Text, Text]:
    length_s = replayed.length_s
    rate = replayed.statements / length_s if length_s else 0
    words = (
        f"{count(replayed.statements)} statements in {length_s:,.1f} s: {count(rate)}/s, "
        f"{count(replayed.errors)} errors that {reference.whole} does not have"
    )
    return Text(words), _lag(replayed.end)


def _verdict(replayed: Replayed) -> list[Text]:
    end = replayed.end
    parts = [Text.assemble(("invalid: ", "bold red"), clean(reason)) for reason in end.get("invalid", [])]
    return parts + [Text.assemble(("! ", "bold yellow"), clean(reason)) for reason in end.get("warnings", [])]


def _lag(end: Mapping[str, Any]) -> Text:
    lag, own = end.get("lag", {}), end.get("lateness", {})
    behind = ", ".join(f"{name} {milliseconds(lag.get(f'{name}_ns'))} ms" for name in SHOWN)
    return Text(
        f"behind the schedule: {behind}; caused by headrace: p99 {milliseconds(own.get('p99_ns'))} ms"
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True, overflow="ellipsis")
    return table


def _operations(replayed: Replayed) -> Table:
    table = _table(
        "operation", "count", "errors", "response p50", "p99", "max ms", "service p50", "p99", "max ms"
    )
    for operation, found in sorted(replayed.operations().items(), key=lambda item: -item[1]["count"]):
        times = [milliseconds(found[kind][name]) for kind in ("response_ns", "service_ns") for name in SHOWN]
        table.add_row(operation, count(found["count"]), count(found["errors"]), *times)
    return table


def _classes(replayed: Replayed, reference: Reference) -> Table:
    table = _table("class", "count", f"{reference.short} p50", "p99", "now p50", "p99 ms")
    table.add_column("statement", no_wrap=True, overflow="ellipsis")
    for line in sorted(replayed.classes, key=_time_of, reverse=True)[:CLASSES]:
        times = [
            milliseconds(line[when][name])
            for when in ("recorded", "service")
            for name in ("p50_ns", "p99_ns")
        ]
        table.add_row(clean(line["class"]), count(line["count"]), *times, clean(line["fingerprint"][:100]))
    return table


def _time_of(line: Mapping[str, Any]) -> float:
    return float(line["count"] * (line["service"]["p50_ns"] or 0))


def _differences(replayed: Replayed, reference: Reference) -> list[RenderableType]:
    comparison = replayed.end.get("comparison")
    if not comparison:
        return []
    compared, different = comparison["compared"], comparison["different"]
    apart = _set_apart(replayed, comparison.get("set_apart", 0))
    if not different:
        others = " others" if apart else ""
        return [
            Text(),
            Text(
                f"compared {count(compared)} answers: all{others} equal those of {reference.whole}", "green"
            ),
            *apart,
        ]
    parts: list[RenderableType] = [
        Text(),
        *apart,
        Text.assemble(
            (f"{count(different)} of {count(compared)} answers differ", "bold red"),
            f" from those of {reference.whole}, in {count(comparison['classes_different'])} classes",
        ),
    ]
    for line in replayed.classes:
        if not line.get("different"):
            continue
        kinds = [f"{words} {count(line[key])}" for key, words in _DIFFERENT.items() if line[key]]
        parts.append(
            Text.assemble(
                (clean(line["class"]), "bold"), f" {clean(line['fingerprint'][:100])}: {', '.join(kinds)}"
            )
        )
        for example in line["examples"]:
            parts.append(Text(f"    {clean(example['statement'][:160])}"))
            parts.append(
                Text(
                    f"        {reference.short} {_answer(example['recorded'])}; now "
                    f"{_answer(example['replayed'])}",
                    "dim",
                )
            )
    return parts


def _set_apart(replayed: Replayed, number: int) -> list[RenderableType]:
    """Differences that any two runs have, each kind with its number."""
    comparison = replayed.end.get("comparison", {})
    killed, own = comparison.get("interrupted", 0), comparison.get("own_number", 0)
    kinds = [
        (
            number - killed - own,
            "their statements depend on the time, on randomness or on the server itself",
            "moment",
        ),
        (own, "their statements ask for their connection id", "connection"),
        (killed, "a KILL interrupted them here or in the recording, but not in both", ""),
    ]
    return [
        Text(f"set apart: {count(found)} answers that differ because {why}{_named(replayed, varies_by)}")
        for found, why, varies_by in kinds
        if found
    ]


def _named(replayed: Replayed, varies_by: str) -> str:
    """The classes whose differences were set apart for this reason; none named for KILL."""
    lines = [line for line in replayed.classes if line.get("set_apart") and varies_by]
    classes = [
        clean(line["fingerprint"][:60]) for line in lines if line.get("varies_by", varies_by) == varies_by
    ]
    more = f" and {len(classes) - MOST_SET_APART} more" if len(classes) > MOST_SET_APART else ""
    return f" ({'; '.join(classes[:MOST_SET_APART])}{more})" if classes else ""


def _answer(answer: Mapping[str, Any]) -> str:
    if answer["error"]:
        return f"error {answer['error']}"
    return ", ".join(f"{name} {value}" for name, value in answer.items() if value is not None) or "unknown"


def _left_out(replay: Mapping[str, Any]) -> list[str]:
    words = {
        "writes": "statements that do more than read",
        "without_text": "statements with incomplete text",
        "unsupported": "commands that cannot be replayed (fetches from cursors, administration)",
        "too_long": "statements longer than this server's max_allowed_packet",
        "refused_logins": "logins that were refused when recorded",
        "unknown_statements": "executions of unknown statements",
    }
    skipped = replay.get("skipped", {})
    left_out = [f"left out: {count(skipped[key])} {text}" for key, text in words.items() if skipped.get(key)]
    return [*_kills(replay), *left_out]


def _kills(replay: Mapping[str, Any]) -> list[str]:
    """What became of KILL statements. Those that could not be mapped are a warning."""
    kills = replay.get("kills")
    if not kills:
        return []
    words = {
        "over": "KILL statements whose target had already finished here",
        "not_connected": "KILL statements whose target had no connection here",
        "failed": "KILL statements that failed when recorded",
    }
    lines = [
        f"left out: {count(kills['reasons'][key])} {text}"
        for key, text in words.items()
        if kills["reasons"][key]
    ]
    if kills["servers"]:
        lines.append(f"left out: {count(kills['servers'])} SHUTDOWN and RESTART statements")
    if kills["sent"]:
        ended = count(replay.get("sessions_killed", 0))
        lines.insert(
            0,
            f"mapped: {count(kills['sent'])} KILL statements, which closed {ended} connections of this replay",
        )
    return lines
