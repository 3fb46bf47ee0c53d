"""The result of a replay, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.base.counted import counted
from headrace.show.parts import Column, Sentence, Table
from headrace.show.terminal import show
from headrace.show.text import clean, count, milliseconds
from headrace.traffic.replayed import SHOWN, Replayed
from headrace.traffic.report.words import clock, position_in_words

#: Classes in the table of response time.
CLASSES = 10
#: Lines about classes of which each statement failed, and about errors.
MOST_FAILED = 3
MOST_ERRORS = 5
#: The agent's name for what is no statement but a login.
CONNECT = "connect"
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
    statements, errors = counted(replayed.statements, "statement"), counted(replayed.errors, "error")
    return f"{replayed.at_s:,.0f} s: {statements}, {errors}"


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


def first_lines(replayed: Replayed) -> list[Text]:
    """What a reader must know before any number: why nothing can be concluded, in the server's own words."""
    end = replayed.end
    lines = []
    if end.get("refused"):
        lines.append(Text(clean(end["invalid"][0]), "bold red"))
    connect = [error for error in end.get("errors", ()) if error["operation"] == CONNECT]
    if connect and not end.get("refused"):
        error = max(connect, key=lambda each: each["count"])
        times = counted(sum(each["count"] for each in connect), "time")
        lines.append(Text(f"sessions could not connect, {times}: {_server_error(error)}", "bold red"))
    return lines + [Text(words, "bold red") for words in _all_failed(replayed)]


def _all_failed(replayed: Replayed) -> list[str]:
    """Classes of which each statement failed with one error, the most statements first; classes with one error
    together.
    """
    failed: dict[int, list[Mapping[str, Any]]] = {}
    for line in replayed.classes:
        worst = next(iter(line.get("failures") or ()), None)
        if worst and worst["count"] >= line["count"]:
            failed.setdefault(worst["code"], []).append(line)
    ran = sum(line["count"] for line in replayed.classes)
    lines = []
    for lines_of_one in sorted(failed.values(), key=_failures_of, reverse=True)[:MOST_FAILED]:
        number = _failures_of(lines_of_one)
        error = max((line["failures"][0] for line in lines_of_one), key=lambda each: each["count"])
        if len(failed) == 1 and number >= ran:
            who = _all(number)
        elif len(lines_of_one) == 1:
            who = f"{_all(number)} of {clean(lines_of_one[0]['fingerprint'][:60])}"
        else:
            who = f"{_all(number)} of {len(lines_of_one)} classes"
        others = len({line["failures"][0]["message"] for line in lines_of_one}) - 1
        more = f" (and {counted(others, 'message')} like it)" if others else ""
        hint = f"; {error['hint']}" if error.get("hint") else ""
        lines.append(f"{who} failed: {_server_error(error)}{more}{hint}")
    return lines


def _all(number: int) -> str:
    return "the only statement" if number == 1 else f"all {counted(number, 'statement')}"


def _failures_of(lines: list[Mapping[str, Any]]) -> int:
    return sum(line["failures"][0]["count"] for line in lines)


def _server_error(error: Mapping[str, Any]) -> str:
    return f"{error['code']} {clean(error['message'])}".rstrip()


def both(first: Replayed, second: Replayed) -> RenderableType:
    """Two servers, one after the other: the figures of each, and how the second's answers differ from the
    first's.
    """
    return Group(
        Text("the first server", "bold"),
        *first_lines(first),
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
        *first_lines(replayed),
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
        f"{counted(replayed.statements, 'statement')} in {length_s:,.1f} s: {count(rate)}/s, "
        f"{counted(replayed.errors, 'error')} that {reference.whole} does not have"
    )
    return Text(words), _lag(replayed.end)


def _verdict(replayed: Replayed) -> list[Text]:
    end = replayed.end
    # The first line has said why a server ended it.
    reasons = end.get("invalid", [])[1 if end.get("refused") else 0 :]
    parts = [Text.assemble(("invalid: ", "bold red"), clean(reason)) for reason in reasons]
    errors = sorted(end.get("errors", ()), key=lambda error: error["count"], reverse=True)
    for error in errors[:MOST_ERRORS]:
        times = counted(error["count"], "time")
        parts.append(Text(f"error {_server_error(error)}: {times} in {clean(error['operation'])}"))
    if len(errors) > MOST_ERRORS:
        parts.append(Text(f"and {counted(len(errors) - MOST_ERRORS, 'other error')}: --json lists them"))
    return parts + [Text.assemble(("! ", "bold yellow"), clean(reason)) for reason in end.get("warnings", [])]


def _lag(end: Mapping[str, Any]) -> Text:
    lag, own = end.get("lag", {}), end.get("lateness", {})
    behind = ", ".join(f"{name} {milliseconds(lag.get(f'{name}_ns'))} ms" for name in SHOWN)
    return Text(
        f"behind the schedule: {behind}; caused by headrace: p99 {milliseconds(own.get('p99_ns'))} ms"
    )


#: What a narrow terminal drops of the times of an operation, the highest first.
_KEPT = {
    ("response", "p99"): 0, ("response", "p50"): 1, ("service", "p99"): 2, ("response", "max"): 3,
    ("service", "p50"): 4, ("service", "max"): 5,
}  # fmt: skip


def _operations(replayed: Replayed) -> RenderableType:
    columns = [Column("operation"), Column("count", "n"), Column("errors", "n")]
    times = [(kind, name) for kind in ("response", "service") for name in SHOWN]
    columns += [Column(f"{kind}\n{name} ms", "n", _KEPT[kind, name]) for kind, name in times]
    rows = [
        [
            operation,
            count(found["count"]),
            count(found["errors"]),
            *(milliseconds(found[f"{kind}_ns"][name]) for kind, name in times),
        ]
        for operation, found in sorted(replayed.operations().items(), key=lambda item: -item[1]["count"])
    ]
    return show([Table(columns, rows)])


def _classes(replayed: Replayed, reference: Reference) -> RenderableType:
    """Those with the most service time; the statement gets the room that is left."""
    recorded, now = ("recorded", reference.short), ("service", "now")
    times = [(*side, name) for side in (recorded, now) for name in ("p50", "p99")]
    columns = [Column("class", keep=3), Column("count", "n")]
    for side, title, name in times:
        keep = 2 if name == "p50" else 1 if side == "recorded" else 0
        columns.append(Column(f"{title} {name}", "n", keep))
    rows = [
        [
            line["class"],
            count(line["count"]),
            *(milliseconds(line[side][f"{name}_ns"]) for side, _, name in times),
            line["fingerprint"],
        ]
        for line in sorted(replayed.classes, key=_time_of, reverse=True)[:CLASSES]
    ]
    if not rows:
        return Group()
    heading = Sentence("service times of classes, in ms", "aside")
    return show([heading, Table([*columns, Column("statement")], rows, is_cut=True)])


def _time_of(line: Mapping[str, Any]) -> float:
    return float(line["count"] * (line["service"]["p50_ns"] or 0))


def _differences(replayed: Replayed, reference: Reference) -> list[RenderableType]:
    comparison = replayed.end.get("comparison")
    if not comparison:
        return []
    compared, different = comparison["compared"], comparison["different"]
    apart = _set_apart(replayed, comparison.get("set_apart", 0))
    if not compared:
        why = f"{reference.whole} has no answers to the statements of this replay"
        if not replayed.statements:
            why = "no statement was sent"
        return [Text(), Text(f"nothing was compared: {why}", "bold yellow"), *apart]
    if not different:
        others = " others" if apart else ""
        return [
            Text(),
            Text(
                f"compared {counted(compared, 'answer')}: all{others} equal those of {reference.whole}",
                "green",
            ),
            *apart,
        ]
    parts: list[RenderableType] = [
        Text(),
        *apart,
        Text.assemble(
            (f"{count(different)} of {counted(compared, 'answer differs', 'answers differ')}", "bold red"),
            f" from those of {reference.whole}, in {counted(comparison['classes_different'], 'class', 'classes')}",
        ),
        *_as_of(comparison, reference),
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


def _as_of(comparison: Mapping[str, Any], reference: Reference) -> list[RenderableType]:
    """Which data answer as the recorded ones did; nothing where two servers were compared."""
    began_ns, position = comparison.get("began_ns"), comparison.get("position")
    if reference is not RECORDED or not began_ns:
        return []
    at = f", {position_in_words(position)}" if position and not position["problem"] else ""
    what = "Rows that changed since the recording began answer differently: restore the data as of"
    note = "" if at else " headrace record --interface NAME --mysql-* notes the position in the binary log."
    return [Text(clean(f"{what} {clock(began_ns)} UTC{at}.{note}"))]


def _set_apart(replayed: Replayed, number: int) -> list[RenderableType]:
    """Differences that any two runs have, each kind with its number."""
    comparison = replayed.end.get("comparison", {})
    killed, own = comparison.get("interrupted", 0), comparison.get("own_number", 0)
    kinds = [
        (
            number - killed - own,
            "of statements that depend on the time, on randomness or on the server itself",
            "moment",
        ),
        (own, "of statements that ask for their connection id", "connection"),
        (killed, "a KILL interrupted a statement here or in the recording, but not in both", ""),
    ]
    return [
        Text(
            f"set apart: {counted(found, 'answer that differs', 'answers that differ')} because {why}"
            f"{_named(replayed, varies_by)}"
        )
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
    """What was not sent. Statements without a password or text, or too long for the server, are a warning."""
    words = {
        "writes": ("statement that does more than read", "statements that do more than read"),
        "without_text": ("statement with incomplete text", "statements with incomplete text"),
        "unsupported": (
            "command that cannot be replayed (a fetch from a cursor, or administration)",
            "commands that cannot be replayed (fetches from cursors, administration)",
        ),
        "refused_logins": ("login that was refused when recorded", "logins that were refused when recorded"),
    }
    skipped = replay.get("skipped", {})
    left_out = [f"left out: {counted(skipped[key], *of)}" for key, of in words.items() if skipped.get(key)]
    return [*_kills(replay), *left_out]


def _kills(replay: Mapping[str, Any]) -> list[str]:
    """What became of KILL statements. Those that could not be mapped are a warning."""
    kills = replay.get("kills")
    if not kills:
        return []
    words = {
        "over": "whose target had already finished here",
        "not_connected": "whose target had no connection here",
        "failed": "that failed when recorded",
    }
    lines = [
        f"left out: {counted(kills['reasons'][key], 'KILL statement')} {text}"
        for key, text in words.items()
        if kills["reasons"][key]
    ]
    if kills["servers"]:
        of = ("SHUTDOWN or RESTART statement", "SHUTDOWN and RESTART statements")
        lines.append(f"left out: {counted(kills['servers'], *of)}")
    if kills["sent"]:
        sent, ended = counted(kills["sent"], "KILL statement"), replay.get("sessions_killed", 0)
        lines.insert(0, f"mapped: {sent}, which closed {counted(ended, 'connection')} of this replay")
    return lines
