"""The page of a change in production: each percentile before and after, the fleet and its worst host."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from headrace.base.counted import counted
from headrace.base.effect import Verdict
from headrace.change.panel import MISS_RATE, RESPONSES, THROUGHPUT
from headrace.change.verify import Band, Change, Verified
from headrace.host.ranges import fold
from headrace.show import text
from headrace.show.charts import HOVER, hint, numbers
from headrace.show.notice import Conclusion, Notice, Told
from headrace.show.parts import (
    Cell,
    Cells,
    Chart,
    Column,
    Figure,
    Key,
    Page,
    Part,
    Section,
    Sentences,
    Table,
    method,
)

HEIGHT_PX = 300
#: For a change that ``headrace apply`` made; which change it was is not known here.
UNDO = "headrace rollback --last    # on each changed host, if headrace apply made the change\n"


def page_of(found: Verified, notes: Sequence[str], *, alpha: float, margin: float, undo: str = "") -> Page:
    """``notes``: what the sources could not read or had to assume. ``undo``: lines that undo the change, if they
    are known.
    """
    cautions = [*found.notes, *notes]
    return Page(
        eyebrow="headrace verify",
        title=f"Before and after {when(found.window.at_s)}",
        verdicts=[headline(found)],
        lead=_who(found),
        keys=list(_keys(found)),
        cautions=cautions,
        sections=[
            Section(
                "fleet", "Fleet", "Did it hold in production?", [_table(found.fleet, "")],
                "Ratios are after relative to before, with the mix of query classes of before"
                + (", relative to that ratio of the control hosts." if found.control else "."),
                brief=[_table(found.fleet, "", in_units=True), *_missing(found)],
            ),
            Section("time", "Over time", "Average and worst host", lambda: _charts(found)),
            Section(
                "hosts", "Hosts", "Which host is worst?", lambda: _hosts(found),
                brief=[_worst(found)] if len(found.treated) > 1 and found.worst else [],
            ),
            Section("classes", "Query classes", "Which queries changed?", lambda: _classes(found)),
            Section("notes", "", "What limits this", brief=[Sentences(cautions)] if cautions else []),
            _method(alpha, margin, found.claims),
        ],
        footer="headrace verify --json prints the numbers",
        data={
            "format": 1,
            "headline": headline(found),
            "at": when(found.window.at_s),
            "treated": found.treated,
            "control": found.control,
            "fleet": found.fleet,
            "worst": found.worst,
            "hosts": found.hosts,
            "classes": found.classes,
            "notes": cautions,
        },
        notice=_notice(found, undo),
    )  # fmt: skip


def _notice(found: Verified, undo: str) -> Notice:
    """The fleet's effects, and hosts that are worse: they make the verdict worse, too."""
    worse = [
        each
        for changes in found.hosts.values()
        for each in changes
        if each.verdict is Verdict.WORSE and len(found.treated) > 1
    ]
    told = [Told(each.name, each.response, each.ratio, each.verdict, each.missing) for each in found.fleet]
    told += [Told(each.name, each.response, each.ratio, each.verdict) for each in worse]
    # Calls without control hosts, and percentiles without buckets, can have no verdict: they keep nothing open.
    asked = [each.verdict for each in found.fleet if each.response in found.open_to]
    conclusion = Conclusion.WORSE if found.is_worse else Conclusion.worst(asked)
    return Notice(
        kind="verify",
        subject=fold(found.treated),
        conclusion=conclusion,
        headline=headline(found),
        effects=tuple(told),
        next=undo or (UNDO if found.is_worse else ""),
        at_s=found.window.at_s,
        counts={"hosts": len(found.treated), "hosts worse": len({each.name for each in worse})},
    )


def when(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def headline(found: Verified) -> str:
    """One sentence: each response with its verdict; those without one together."""
    decided = [each for each in found.fleet if each.verdict is not Verdict.NOT_ENOUGH_DATA]
    said = [f"{each.response} is {each.verdict}: {_ratio(each)}" for each in decided]
    hosts = {
        each.name
        for changes in found.hosts.values()
        for each in changes
        if each.verdict is Verdict.WORSE and len(found.treated) > 1
    }
    if hosts:
        said.append(f"worse on {', '.join(sorted(hosts))}")
    open_ = [each.response for each in found.fleet if each.verdict is Verdict.NOT_ENOUGH_DATA]
    if open_:
        said.append(f"not enough data for {', '.join(open_)}")
        why, whose = max(_lacking(found).items(), key=lambda each: len(each[1]), default=("", []))
        if len(whose) > 1:
            said[-1] += f": {why}" if whose == open_ else f" ({', '.join(whose)}: {why})"
    return f"{'; '.join(said)}."


def _who(found: Verified) -> str:
    control = counted(len(found.control), "control host") if found.control else "no control hosts"
    if found.weeks:
        control = f"the same hours of {counted(found.weeks, 'earlier week')} as controls"
    return f"{len(found.treated)} changed host{'s' if len(found.treated) > 1 else ''}, {control}."


def _ratio(change: Change) -> str:
    return f"{text.ratio(change.ratio.estimate)}x ({text.between(change.ratio)})"


def _keys(found: Verified) -> Iterator[Key]:
    for each in found.fleet:
        if each.response in ("p50", "p99", "p99.9", THROUGHPUT, MISS_RATE):
            value = f"{text.ratio(each.ratio.estimate)} ×"
            yield Key(
                each.response, value, f"{text.between(each.ratio)} · {each.verdict}", text.CHIP[each.verdict]
            )


def _value(change: Change, value: float) -> str:
    if change.response == MISS_RATE:
        return f"{text.count(100 * value)}%" if math.isfinite(value) else text.count(None)
    return text.count(value) if change.response == THROUGHPUT else text.milliseconds(value)


#: Behind the name of a response where the title of a column has no room for its unit; a share has its own.
_UNITS = {THROUGHPUT: "/s", MISS_RATE: ""}
_COLUMNS = (
    Column("before", "n", small="ms, calls/s or %"),
    Column("after", "n"),
    Column("controls", "n", 1),
    Column("ratio", "n"),
    Column("interval", "n"),
    Column("verdict"),
    Column("blocks", "n", 2),
    Column("of min", "n", 3),
    Column("over", "", 3),
)


def _cells(change: Change) -> Cells:
    before, after = change.blocks
    return [
        _value(change, change.before),
        _value(change, change.after),
        text.ratio(change.controls),
        text.ratio(change.ratio.estimate),
        text.between(change.ratio),
        Cell(str(change.verdict), text.CHIP[change.verdict], note=change.missing),
        f"{before} + {after}",
        f"{change.block_s / 60:.3g}",
        change.over or "–",
    ]


def _table(changes: Sequence[Change], title: str, name: str = "response", *, in_units: bool = False) -> Table:
    """``in_units``: with the unit behind each name, as a terminal shows none below a column's title."""
    rows: list[Cells] = []
    for each in changes:
        first = each.response if name == "response" else each.name
        if in_units:
            first += _UNITS.get(each.response, " ms")
        rows.append([first, *_cells(each)])
    return Table((Column(name), *_COLUMNS), rows, title)


def _lacking(verified: Verified) -> dict[str, list[str]]:
    """Why responses have no verdict, each reason once."""
    lacking: dict[str, list[str]] = {}
    for each in verified.fleet:
        if each.missing:
            lacking.setdefault(each.missing, []).append(each.response)
    return lacking


def _missing(found: Verified) -> list[Part]:
    """The reasons that the headline has not said."""
    said = headline(found)
    lines = [f"{', '.join(whose)}: {why}" for why, whose in _lacking(found).items() if why not in said]
    return [Sentences(lines)] if lines else []


def _worst(found: Verified) -> Table:
    rows: list[Cells] = [[each.response, each.name, *_cells(each)] for each in found.worst.values()]
    return Table(
        (Column("response"), Column("worst host"), *_COLUMNS), rows, "The worst host of each response"
    )


def _hosts(found: Verified) -> Iterator[Part]:
    if len(found.treated) < 2:
        return
    yield _worst(found)
    for response in RESPONSES:
        if changes := found.hosts.get(response):
            order = sorted(
                changes,
                key=lambda each: each.ratio.estimate if math.isfinite(each.ratio.estimate) else -1.0,
                reverse=response != THROUGHPUT,
            )
            yield Table(
                (Column("host"), *_COLUMNS),
                [[each.name, *_cells(each)] for each in order],
                response,
                is_folded=True,
            )


def _classes(found: Verified) -> Iterator[Part]:
    for name, changes in found.classes.items():
        yield _table(changes, text.short(name, 120))


def _charts(found: Verified) -> Iterator[Part]:
    for response in RESPONSES:
        band = found.bands.get(response)
        if band is None or not np.isfinite(band.treated).any():
            continue
        chip = next((text.CHIP[each.verdict] for each in found.fleet if each.response == response), "unsure")
        legend = [
            ("mean of the changed hosts", "@{accent}", ""),
            ("worst host", "@{worse}", ""),
            ("all changed hosts", "@{accent}", "area"),
            ("the change", f"@{{{chip}}}", "dash"),
        ]
        if len(band.control):
            legend.append(("mean of the controls", "@{muted}", "dot"))
        unit = {THROUGHPUT: "calls/s", MISS_RATE: "%"}.get(response, "ms")
        yield Chart(
            _figure(band, response, unit, found.window.at_s, chip), f"{response} [{unit}]", legend=legend
        )


def _figure(band: Band, response: str, unit: str, at_s: float, chip: str) -> Figure:
    scale = {"calls/s": 1.0, "%": 100.0}.get(unit, 1e-6)
    x = [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" for at in band.start_s + band.block_s / 2]
    low, high, mean = _over(band.treated, scale)
    worst = low if response == THROUGHPUT else high
    data = [
        _line(x, low, "@{accent/0.01}", 0.5),
        {**_line(x, high, "@{accent/0.01}", 0.5), "fill": "tonexty", "fillcolor": "@{accent/0.18}"},
        {**_line(x, worst, "@{worse}", 1.2), "hoverinfo": None, **_hover(x, worst, "worst", unit)},
        {**_line(x, mean, "@{accent}", 2.2), "hoverinfo": None, **_hover(x, mean, "mean", unit)},
    ]
    if len(band.control):
        data.append(_line(x, _over(band.control, scale)[2], "@{muted}", 1.6, "dot"))
    at = f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"
    return {
        "data": data,
        "layout": {
            "height": HEIGHT_PX,
            "margin": {"l": 10, "r": 24, "t": 20, "b": 40},
            "showlegend": False,
            "xaxis": {"type": "date", "automargin": True, "fixedrange": True},
            "yaxis": {
                "title": {"text": unit}, "automargin": True, "fixedrange": True,
                "type": "linear", "rangemode": "tozero",
            },
            "shapes": [
                {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
                 "line": {"color": f"@{{{chip}}}", "width": 1.6, "dash": "dash"}}
            ],
        },
    }  # fmt: skip


_Lines = tuple[list[float | None], list[float | None], list[float | None]]


def _over(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], scale: float) -> _Lines:
    """The lowest, highest and geometric mean over hosts in each block; None for a gap."""
    known = np.isfinite(values)
    some = known.any(axis=0)
    low = np.where(some, np.where(known, values, np.inf).min(axis=0), np.nan)
    high = np.where(some, np.where(known, values, -np.inf).max(axis=0), np.nan)
    logs = np.where(known, np.log(np.where(known, values, 1.0)), 0.0).sum(axis=0)
    mean = np.where(some, np.exp(logs / np.maximum(known.sum(axis=0), 1)), np.nan)
    return numbers(scale * low), numbers(scale * high), numbers(scale * mean)


def _line(
    x: Sequence[str], y: Sequence[float | None], colour: str, width: float, dash: str = "solid"
) -> dict[str, object]:
    return {
        "type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "connectgaps": False,
        "line": {"color": colour, "width": width, "dash": dash}, "hoverinfo": "skip",
    }  # fmt: skip


def _hover(x: Sequence[str], y: Sequence[float | None], name: str, unit: str) -> dict[str, object]:
    said = [hint(at, f"{name} {text.count(value)} {unit}") for at, value in zip(x, y, strict=True)]
    return {"customdata": said, "hovertemplate": HOVER}


def _method(alpha: float, margin: float, claims: int) -> Section:
    lines = (
        (
            "The mix is fixed:",
            "each query class counts with its share of the host's calls before the change, on both sides. A "
            "shift to cheaper queries does not count as a gain.",
        ),
        (
            "Control hosts",
            "remove what affected all hosts: the ratio of the changed hosts is divided by the ratio of the "
            "controls.",
        ),
        (
            "The interval",
            f"holds with {100 * (1 - alpha):g}% together with those of the other responses: {claims} of them can "
            f"have a verdict, so each is made at {100 * (1 - alpha / claims):g}%. "
            "Its unit is a host in a block of time, never a query. It is over "
            "hosts (Student's t) or over blocks (corrected for what carries over from block to block), whichever "
            "is wider. For a single host it is over blocks, or over what the control hosts changed by themselves "
            "(a prediction for one more host), whichever is wider; with fewer than two controls it is over blocks "
            "only, and what else happened on this host is part of its ratio. Single hosts share alpha, too.",
        ),
        (
            "Resolution:",
            "a percentile may be anywhere in its bucket. Half a bucket per side is part of each interval, so that "
            "nothing is claimed that the source cannot show.",
        ),
        ("Equivalent", f"means certainly smaller than {100 * margin:g}%."),
        (
            "Before and after",
            "are of all hosts merged. The ratio is over hosts and blocks, and need not be their quotient.",
        ),
        (
            "The worst host",
            "is the worst of all blocks of one line in the charts, and the worst ratio in the tables.",
        ),
    )
    return Section("method", "Method", "How to read it", [method(lines)])
