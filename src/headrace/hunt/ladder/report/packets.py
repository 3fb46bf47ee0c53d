"""The page of `headrace latencies --packets`.

``--json``: format, rungs (none), packets[] (rps, size, packets_s, knee, rounds), steering[] (rps, size, core,
softirq, interrupt_ns, without, predicted, measured, is_inside, why_not, cores[], beside[]), model, errors,
steps[].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

from headrace.base.counted import counted
from headrace.base.intervals import Interval
from headrace.hunt.ladder.packets import Limit, Size, Step, errors, fit, limits
from headrace.hunt.ladder.published import duration
from headrace.hunt.ladder.steering import OURS, Steered, ours_of, steered
from headrace.show import charts, text
from headrace.show.parts import (
    Cell,
    Cells,
    Chart,
    Column,
    Figure,
    Page,
    Part,
    Section,
    Sentence,
    Sentences,
    Table,
    method,
)

_AS_IT_IS = "as it is"


def page_of(host: str, steps: Sequence[Step]) -> Page:
    found, moved = limits(steps), steered(steps)
    plain = [each for each in found if not each.rps]
    model, (left_out, single) = fit(plain), errors(plain)
    cautions = _cautions(steps, moved)
    most, load, rps = _limits(found, left_out), _curve(steps), _steering(moved)
    curves = [*_latency(steps), replace(load, is_folded=True)]
    worst = max(map(abs, single.values()), default=0.0)
    least = min(each.packets_s.estimate for each in plain)
    verdict = f"One core carries {text.count(least)} packets/s, both ends included."
    return Page(
        eyebrow="headrace latencies --packets",
        title="Packets per second",
        verdicts=[verdict, *_steering_verdicts(moved)],
        lead=f"Between two network namespaces of {host}, both ends on one core; UDP.",
        cautions=cautions,
        sections=[
            Section("limits", "Limits", "How many packets per second?", [_bars(found), most], brief=[most]),
            Section("rps", "RPS", "Does RPS move the limit?", rps, brief=rps),
            Section("load", "Load", "What load does to latency", curves, brief=[load]),
            Section("notes", "", "What limits this", brief=[Sentences(cautions)] if cautions else []),
            Section("method", "Method", "How this was computed", [method(_method(worst, moved))]),
        ],
        footer="headrace latencies --packets --json prints the numbers",
        data={
            "format": 1,
            "headline": verdict,
            "rungs": [],
            "packets": [asdict(each) for each in found],
            "steering": [{**asdict(each), "is_inside": each.is_inside} for each in moved],
            "model": asdict(model),
            "errors": {
                "from_the_others": [{"size": size, "error": error} for size, error in left_out.items()],
                "from_one": [
                    {"from": one, "size": size, "error": error} for (one, size), error in single.items()
                ],
            },
            "steps": [asdict(step) for step in steps],
        },
    )  # fmt: skip


def _name(size: Size) -> str:
    return f"{size[0]}/{size[1]} B"


def _at(rps: str) -> str:
    return rps or _AS_IT_IS


def _steering_verdicts(moved: Sequence[Steered]) -> list[str]:
    """Of each mask, the size that gained least."""
    said = []
    for rps in dict.fromkeys(each.rps for each in moved):
        own = [each for each in moved if each.rps == rps and each.predicted is not None]
        if not own:
            continue
        each = min(own, key=lambda each: each.measured.estimate / each.without.estimate)
        held = sum(bool(one.is_inside) for one in own)
        said.append(
            f"With RPS {rps}, {_name(each.size)}: {text.count(each.predicted.estimate)} packets/s predicted "  # type: ignore[union-attr]
            f"({_between(each.predicted)}), {text.count(each.measured.estimate)} measured, "
            f"{each.measured.estimate / each.without.estimate:.2f}x the limit without. "
            f"{held} of {counted(len(own), 'prediction')} held."
        )
    return said


def _cautions(steps: Sequence[Step], moved: Sequence[Steered]) -> list[str]:
    most = [step for step in steps if step.share is None and not step.rps]
    ours = ours_of(most)
    said = (
        [f"Other work ran on the core: both ends used {ours:.0%} of it. Limits are too low."]
        if ours < OURS
        else []
    )
    said += [
        f"{_name(each.size)} with RPS {each.rps}: no prediction, {each.why_not}."
        for each in moved
        if each.why_not
    ]
    beside = sorted({name for each in moved for name in each.beside})
    if beside:
        said.append(
            f"{', '.join(beside)} had other work before RPS: the measurements with RPS may be too low, and "
            "no prediction accounts for that."
        )
    return said


def _between(found: Interval | None) -> str:
    if found is None:
        return "–"
    if found.low is None and found.high is not None:
        return f"at most {text.count(found.high)}"
    return text.between(found, text.count)


def _limits(found: Sequence[Limit], left_out: dict[Size, float]) -> Table:
    rows: list[Cells] = []
    for each in found:
        error = left_out.get(each.size) if not each.rps else None
        rows.append([
            _name(each.size), _at(each.rps), text.count(each.packets_s.estimate), _between(each.packets_s),
            "–" if each.knee is None else f"{each.knee:.0%}", "–" if error is None else f"{error:+.0%}",
        ])  # fmt: skip
    columns = [Column("request/reply"), Column("RPS"), Column("packets/s", "n"), Column("95%", "n"),
               Column("answered up to", "n"), Column("error of the model", "n")]  # fmt: skip
    return Table(columns, rows)


def _bars(found: Sequence[Limit]) -> Chart:
    rows = [
        charts.Row(
            _name(each.size) + (f", RPS {each.rps}" if each.rps else ""), each.packets_s,
            "@{line2}" if each.rps else "@{accent}",
            hint=charts.hint(_name(each.size), text.count(each.packets_s.estimate), _between(each.packets_s)),
        )
        for each in sorted(found, key=lambda each: (each.size, each.rps))
    ]  # fmt: skip
    top = max((each.packets_s.high or each.packets_s.estimate for each in found), default=1.0)
    return Chart(charts.ladder(rows, "packets/s", top))


def _steering(moved: Sequence[Steered]) -> list[Part]:
    if not moved:
        return []
    rows: list[Cells] = []
    for each in moved:
        held = {
            None: Cell("not predicted", "unsure"),
            True: Cell("held", "better"),
            False: Cell("missed", "worse"),
        }
        rows.append([
            _name(each.size), each.rps, f"{each.core} {each.softirq:.0%}", text.count(each.without.estimate),
            "–" if each.predicted is None else text.count(each.predicted.estimate), _between(each.predicted),
            text.count(each.measured.estimate), _between(each.measured), held[each.is_inside],
        ])  # fmt: skip
    columns = [
        Column("request/reply"), Column("RPS", keep=2), Column("of which softirq", "n", 1, over="without RPS"),
        Column("packets/s", "n", over="without RPS"), Column("predicted", "n", over="with RPS"),
        Column("95%", "n", over="with RPS"), Column("measured", "n", over="with RPS"),
        Column("95%", "n", 2, over="with RPS"), Column("prediction"),
    ]  # fmt: skip
    known = next((each.interrupt_ns for each in moved if each.interrupt_ns), None)
    cost = f" ({duration(round(known))} here)" if known else ", which could not be measured here"
    see = (
        "Predicted only from the steps without RPS: what does not move fills the core next. The interval runs "
        f"from one interrupt per moved packet{cost} to none."
    )
    return [Table(columns, rows), Sentence(see), _cores(moved)]


def _cores(moved: Sequence[Steered]) -> Table:
    rows: list[Cells] = [
        [
            _name(each.size), each.rps, use.name, f"{use.busy:.0%}", f"{use.softirq:.0%}",
            f"{use.steered_busy:.0%}", f"{use.steered_softirq:.0%}",
        ]
        for each in moved
        for use in each.cores
        if use.name == each.core or use.steered_softirq - use.softirq > 0.02
    ]  # fmt: skip
    columns = [
        Column("request/reply"), Column("RPS", keep=1), Column("core"), Column("busy", "n", over="without RPS"),
        Column("softirq", "n", over="without RPS"), Column("busy", "n", over="with RPS"),
        Column("softirq", "n", over="with RPS"),
    ]  # fmt: skip
    return Table(columns, rows, title="Cores at the limit")


def _latency(steps: Sequence[Step]) -> list[Part]:
    """p99 against packets/s: one line per size, dashed with RPS; each point is a mean over rounds."""
    sizes = list(dict.fromkeys(step.size for step in steps))
    data: list[Figure] = []
    legend: list[tuple[str, str, str]] = []
    values: list[float] = []
    for rps, size in dict.fromkeys((step.rps, step.size) for step in steps):
        points = sorted(_points([s for s in steps if (s.rps, s.size) == (rps, size) and s.share is not None]))
        if not points:
            continue
        colour = charts.LINE_COLOURS[sizes.index(size) % len(charts.LINE_COLOURS)]
        dash = "dash" if rps else "solid"
        data.append({
            "type": "scatter", "mode": "lines+markers",
            "x": charts.numbers(x for x, _ in points), "y": charts.numbers(y for _, y in points),
            "line": {"color": colour, "width": 1.6, "dash": dash}, "marker": {"color": colour, "size": 6},
            "customdata": [
                charts.hint(f"{_name(size)}, {_at(rps)}", f"{text.count(x)} packets/s", f"p99 {y:.3g} ms")
                for x, y in points
            ],
            "hovertemplate": charts.HOVER,
        })  # fmt: skip
        legend.append((f"{_name(size)}, RPS {rps}" if rps else _name(size), colour, "dash" if rps else ""))
        values += [y for _, y in points]
    if not data:
        return []
    return [
        Chart(
            _layout(data, values),
            "p99 from the intended start",
            legend=legend,
        )
    ]


def _points(steps: Sequence[Step]) -> list[tuple[float, float]]:
    found = []
    for share in dict.fromkeys(step.share for step in steps):
        own = [step for step in steps if step.share == share and step.p99_ns]
        if own:
            p99_ms = math.exp(sum(math.log(step.p99_ns or 1.0) for step in own) / len(own)) / 1e6
            found.append((sum(step.packets_s for step in own) / len(own), p99_ms))
    return found


def _layout(data: list[Figure], values: Sequence[float]) -> Figure:
    low, high = min(values) * 0.75, max(values) * 1.35
    return {"data": data, "layout": {
        "height": 340, "showlegend": False, "hovermode": "closest", "margin": {"l": 58, "r": 14, "t": 10, "b": 46},
        "xaxis": {"title": {"text": "packets/s"}, "rangemode": "tozero", "fixedrange": True, "tickformat": "~s",
                  "nticks": 6, "zeroline": False},
        "yaxis": {"title": {"text": "p99 [ms], log scale"}, "type": "log", "fixedrange": True, "zeroline": False,
                  "range": [math.log10(low), math.log10(high)], **charts.ticks_ms(low, high, most=9)},
    }}  # fmt: skip


def _curve(steps: Sequence[Step]) -> Table:
    rows: list[Cells] = []
    first = min((step.round for step in steps), default=0)
    for step in (each for each in steps if each.round == first):
        core = max(step.cores, key=lambda core: core.softirq, default=None)
        times = [duration(ns) if ns is not None else "–" for ns in (step.p50_ns, step.p99_ns)]
        rows.append([
            _name(step.size), _at(step.rps), "no limit" if step.share is None else f"{step.share:.0%}",
            text.count(step.packets_s), *times,
            f"{core.name} {core.softirq:.0%} of {core.busy:.0%}" if core else "–",
            f"{step.dropped} / {step.socket_full} / {step.squeezed}",
        ])  # fmt: skip
    columns = [Column("request/reply"), Column("RPS", keep=2), Column("offered", "n"), Column("packets/s", "n"),
               Column("p50", "n", 1), Column("p99", "n"), Column("softirq of busy", "n", 1),
               Column("dropped / socket full / squeezed", "n", 3)]  # fmt: skip
    return Table(columns, rows, title="The first round")


def _method(worst: float, moved: Sequence[Steered]) -> list[tuple[str, str]]:
    said = [
        ("Limit", "What is answered if the client sends the next request when a reply comes, two packets per "
                  "request. A round is the unit; the interval is over rounds."),
        ("Error of the model", "Each size from a cost per packet and per byte fitted to the others, relative to "
                               f"what was measured. From one other size, the largest error is {worst:.0%}."),
        ("Namespaces", "There is no card, and the receive work of a packet runs where it was sent, unless RPS "
                       "moves it. Steering interrupts another core, which may cost more than it brings."),
    ]  # fmt: skip
    if moved:
        said.append((
            "RPS",
            "A full core spends its softirq share on receiving. Moved, it takes as long on the other cores, which "
            "share it evenly; the limit is where either side is full. Assumed: cores do not slow each other down "
            "(two threads of one core do), and nothing else runs there. An interrupt of another core and its "
            "answer bounds what moving a packet costs each of the two. For the estimate, packets need none while "
            "one is on its way or the other core is still receiving; half of its time is the way, half the cost "
            "of sending it. The interval includes the spread between rounds, of prediction and measurement.",
        ))  # fmt: skip
    return said
