"""The page of `headrace size prove`: what was predicted of the databases together, and what was measured.

``--json``: format, headline, id, host, cores, seconds, holds, late {recording: why}, slow[], unknown[],
outcomes[] (prediction with what, quantity, interval, naive; measured), alone[] (block: {recording or "": used,
p99_s, per_s, errors}), busy{recording: cpu_s, share, p99_s}, together[].

The page of `headrace size predictions`: how many predictions came true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePosixPath
from statistics import fmean

from headrace.base.counted import counted
from headrace.base.intervals import Interval
from headrace.capacity.foresee import HOST, P99, THROUGHPUT, is_inside
from headrace.capacity.model import Resource
from headrace.capacity.predictions import Calibration, share_of
from headrace.capacity.prove import Outcome, Proof
from headrace.capacity.report.words import amount, name
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Page, Part, Section, Table, method


def page_of(proof: Proof) -> Page:
    tried = [came_true for each in proof.outcomes if (came_true := _came_true(each)) is not None]
    return Page(
        eyebrow="headrace size prove",
        title="Together on one host",
        verdicts=[_verdict(proof), f"{sum(tried)} of {counted(len(tried), 'prediction')} came true."],
        lead=f"{_plan(proof)} on {proof.host}, "
        f"{counted(len(proof.together), 'play')} of {proof.seconds:g} s each.",
        cautions=proof.notes,
        sections=[
            Section(
                "predicted", "Predicted and measured", "What was predicted, and what was measured?",
                [_table(proof)],
                "Predicted from the plays alone, and written down before the first joint play. An interval holds "
                "95% if the model's own error is allowed for; the measured one is over the joint plays.",
                brief=[_table(proof)],
            ),
            Section("alone", "Alone", "What did each do alone?", [_alone(proof)]),
            _as_busy(proof),
            _method(),
        ],
        footer="headrace size predictions shows how many came true so far",
        data={
            "format": 1,
            "headline": _verdict(proof),
            "id": proof.id,
            "host": proof.host,
            "cores": proof.cores,
            "seconds": proof.seconds,
            "holds": proof.holds,
            "late": proof.late,
            "slow": proof.slow,
            "unknown": proof.unknown,
            "outcomes": proof.outcomes,
            "alone": proof.alone,
            "busy": proof.busy,
            "together": proof.together,
        },
    )  # fmt: skip


def calibration_page(found: Sequence[Calibration], where: str) -> Page:
    tried = sum(each.tried for each in found)
    inside = sum(each.inside for each in found)
    verdict = "Nothing predicted yet."
    if tried and (share := share_of(inside, tried)) is not None:
        of = counted(tried, "prediction")
        verdict = f"{inside} of {of} lay in their 95% interval ({text.between(share, _share)})."
    elif any(each.bounds for each in found):
        verdict = "Only lower bounds were predicted so far."
    rows: list[Cells] = [
        [
            _quantity(each.quantity), f"{each.made}", f"{each.tried}",
            Cell(f"{each.inside}", chip="worse" if each.is_too_narrow else ""),
            "–" if each.share is None else text.between(each.share, _share),
            "too narrow" if each.is_too_narrow else "too wide" if each.is_too_wide else "",
            f"{each.bounds_held} of {each.bounds}" if each.bounds else "",
            _share(each.error), _share(each.naive_error),
        ]
        for each in found
    ]  # fmt: skip
    columns = [
        Column("quantity", "wrap"), Column("predicted", "n", 3), Column("measured", "n"),
        Column("in the interval", "n"), Column("share that holds, 95%", "n", 1), Column("intervals", "", 1),
        Column("only lower bounds", "n", 3, small="that held"), Column("median error", "n"),
        Column("of the plain sum", "n", 2),
    ]  # fmt: skip
    table = Table(columns, rows)
    parts = [table] if rows else []
    return Page(
        eyebrow="headrace size predictions",
        title="Which predictions came true",
        verdicts=[verdict],
        lead=f"Kept in {where}.",
        sections=[Section("calibration", "Calibration", "How good were they?", parts, brief=parts)],
        footer="headrace size prove adds to them",
        data={"format": 1, "headline": verdict, "calibration": list(found)},
    )


def _plan(proof: Proof) -> str:
    copies = proof.asked.copies
    shown = " and ".join(_names(proof.asked.recordings).values())
    return shown if copies == 1 else f"{shown}, {copies} times each"


def _names(recordings: Sequence[str]) -> dict[str, str]:
    """Without their directories, unless two would be called alike."""
    short = [PurePosixPath(each).name for each in recordings]
    is_clear = len(set(short)) == len(short)
    return {
        each: text.short(name if is_clear else each, 40) for each, name in zip(recordings, short, strict=True)
    }


def _verdict(proof: Proof) -> str:
    named = _names(proof.asked.recordings)
    cpu = next((each for each in proof.outcomes if each.prediction.quantity == Resource.CPU), None)
    used = f"{cpu.measured.estimate:.2f} of {proof.cores:g} cores busy" if cpu else "CPU was not sampled"
    if proof.late:
        which, why = next(iter(proof.late.items()))
        return f"They do not fit: {named[which]} cannot keep up ({text.clean(why)}); {used}."
    if proof.slow:
        shown = ", ".join(named[each] for each in proof.slow)
        assert proof.asked.objective_s is not None
        return f"They do not fit: p99 of {shown} is above {proof.asked.objective_s * 1e3:g} ms; {used}."
    if proof.unknown:
        shown = ", ".join(named[each] for each in proof.unknown)
        return f"Not shown to fit: {shown} has too few statements in a play for a p99; {used}."
    objective = proof.asked.objective_s
    kept = f" and p99 within {objective * 1e3:g} ms" if objective is not None else ""
    return f"They fit: all statements in time{kept}; {used}."


def _came_true(outcome: Outcome) -> bool | None:
    """None if nothing was measured, or only a lower bound was predicted, which nearly always holds."""
    if not outcome.prediction.is_interval or not math.isfinite(outcome.measured.estimate):
        return None
    return is_inside(outcome.prediction.interval, outcome.measured.estimate)


def _table(proof: Proof) -> Table:
    rows: list[Cells] = []
    named = _names(proof.asked.recordings)
    for each in proof.outcomes:
        found, quantity = each.prediction, each.prediction.quantity
        rows.append(
            [
                named[found.what] if found.what != HOST else "host",
                _quantity(quantity),
                _amount(quantity, found.interval.estimate),
                _ends(quantity, found.interval),
                Cell(
                    _amount(quantity, each.measured.estimate),
                    chip="worse" if _came_true(each) is False else "",
                ),
                _ends(quantity, each.measured),
                _off(each.measured.estimate, found.interval.estimate),
                _off(each.measured.estimate, found.naive),
            ]
        )
    columns = [
        Column("of", "wrap"), Column("what", "wrap"), Column("predicted", "n"), Column("95%", "n", 1),
        Column("measured", "n"), Column("95%", "n", 3), Column("off by", "n", 2),
        Column("plain sum off by", "n", 4),
    ]  # fmt: skip
    return Table(columns, rows)


def _alone(proof: Proof) -> Table:
    rows: list[Cells] = []
    named = _names(proof.asked.recordings)
    for number, block in enumerate(proof.alone, start=1):
        for which, play in block.items():
            is_host = which == HOST
            rows.append(
                [
                    f"{number}",
                    "idle host" if is_host else named[which],
                    _amount(Resource.CPU, play.used.get(Resource.CPU, math.nan)),
                    "" if is_host else text.count(play.per_s[which]),
                    "" if is_host else _amount(P99, play.p99_s.get(which)),
                    "" if is_host else f"{play.errors[which]}",
                ]
            )
    columns = [
        Column("block", "n"), Column("what", "wrap"), Column("CPU", "n"), Column("statements/s", "n"),
        Column("p99", "n"), Column("errors", "n"),
    ]  # fmt: skip
    return Table(columns, rows)


def _as_busy(proof: Proof) -> Section:
    rows: list[Cells] = []
    named = _names(proof.asked.recordings)
    idle = fmean(block[HOST].used[Resource.CPU] for block in proof.alone)
    for which, there in proof.busy.items():
        plays = [block[which] for block in proof.alone]
        used = fmean(play.used[Resource.CPU] for play in plays)
        per_s = fmean(play.per_s[which] for play in plays)
        p99_s = [play.p99_s[which] for play in plays if which in play.p99_s]
        rows.append(
            [
                named[which],
                f"{used / proof.cores:.0%}",
                f"{there.share:.0%}",
                _per_statement(max(used - idle, 0.0) / per_s if per_s else None),
                _per_statement(there.cpu_s),
                _amount(P99, fmean(p99_s) if p99_s else None),
                _amount(P99, there.p99_s),
            ]
        )
    columns = [
        Column("what", "wrap"), Column("CPUs in use", "n"), Column("faster", "n"),
        Column("CPU time a statement", "n"), Column("faster", "n"), Column("p99", "n"), Column("faster", "n"),
    ]  # fmt: skip
    return Section(
        "busy", "As busy", "What does each do alone on a host as busy as with all?",
        [Table(columns, rows)] if rows else [],
        "Each was played faster, once. A p99 with late statements, or with too few of them, does not count.",
    )  # fmt: skip


def _per_statement(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e6:,.0f} us"


def _quantity(quantity: str) -> str:
    return {P99: "p99", THROUGHPUT: "statements/s"}.get(quantity) or name(quantity)


def _amount(quantity: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "not predictable"
    if quantity == P99:
        return f"{text.milliseconds(value * 1e9)} ms"
    return f"{value:,.0f}" if quantity == THROUGHPUT else amount(Resource(quantity), value)


def _ends(quantity: str, interval: Interval) -> str:
    if interval.low is None and interval.high is None:
        return "–"
    if interval.high is None:
        return f"at least {_amount(quantity, interval.low)}"
    return f"{_amount(quantity, interval.low)} – {_amount(quantity, interval.high)}"


def _off(measured: float, predicted: float) -> str:
    if not predicted or not math.isfinite(predicted) or not math.isfinite(measured):
        return "–"
    return f"{measured / predicted - 1:+.0%}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _method() -> Section:
    lines: list[tuple[str, str]] = [
        ("Blocks", "Each plays every recording alone and leaves the host idle once, in random order."),
        ("Use", "What each adds to the idle host is added up. CPU time is that of the faster play, where that is "
                "more or they fill the host. The plain sum counts the idle host each time."),
        ("p99", "Of the faster play, times how much longer a request takes at the joint use of the CPU than at "
                "that one's (M/M/c, Sakasegawa 1977). Without a faster play: of the plays alone."),
        ("Interval", "t over blocks, and the error of the model: after ten outcomes the past one."),
        ("Driver", "The replay runs on the host and uses its CPU alone and together alike."),
    ]  # fmt: skip
    parts: list[Part] = [method(lines)]
    return Section("method", "Method", "How this was computed", parts)
