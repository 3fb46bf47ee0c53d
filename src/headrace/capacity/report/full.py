"""The page of `headrace size full`: how full each host is at its peak, of what, and until when.

``--json``: format, headline, hosts[] (name, end_s, outlooks[] with resource, peak, mean, full_at, limit,
state, seen {days, highest, on_s, beyond, last_s, recent}, day {estimate, low, high} from end_s on, growth,
watched, limit_from, knee_from; unknown[], bought[]
(resource, what, before, after, next, gain {estimate, low, high}), in_vain[], ops_s, objective, notes[]),
together[] (resource, hosts, mean, peak, sum_of_peaks, full_at, without_largest, at_s, watched, end_s,
is_at_least, outlook as of a host, or null), left_out[] (files without samples).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from headrace.base.counted import counted
from headrace.base.intervals import Interval
from headrace.capacity.buy import IN_VAIN
from headrace.capacity.capacity import AT_LEAST
from headrace.capacity.full import LEAST_DAYS, Host, Together
from headrace.capacity.model import Resource
from headrace.capacity.outlook import RECENT_DAYS, Outlook, State
from headrace.capacity.report.words import amount, beyond, dates, name, notes_of, on, times, when
from headrace.capacity.table import named
from headrace.show import text
from headrace.show.charts import HOVER, hint
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

#: Above this share of the knee a bar is marked.
NEAR = 0.8
ROW_PX = 26


def page_of(hosts: Sequence[Host], together: Sequence[Together], left_out: Sequence[str] = ()) -> Page:
    order = by_urgency(hosts)
    verdicts = list(_verdicts(order, together))
    notes = [*left_out, *notes_of([(host.name, host.notes) for host in order])]
    return Page(
        eyebrow="headrace size",
        title="How full hosts are, and when they fill up",
        verdicts=verdicts,
        lead=f"{len(hosts)} host{'s' * (len(hosts) != 1)}; peaks, not averages, against the knee of each "
             f"resource.",
        keys=list(_keys(order)),
        cautions=notes[:20],
        sections=[
            Section(
                "peak", "At peak", "How full is each host at its peak?", lambda: _bars(order),
                brief=[_table(order), *_knees(order)],
            ),
            Section("until", "Until when", "When is each resource full?", lambda: _until(order)),
            Section(
                "buy", "One more", "What would one more unit of a resource bring?", list(_buy(order)),
                "The load that then fits, relative to now, if all calls grow by the same factor. A balanced "
                "host has "
                "the same room in everything.",
                brief=list(_buy(order)) if len(order) <= 5 else [],
            ),
            Section(
                "together", "All hosts", "Do the peaks coincide?", list(_together(together)),
                "The use of all hosts at the same time, against the sum of each one's own peak. A step of an hour "
                "counts with its mean, so peaks of minutes are higher, and reach the knees earlier.",
                brief=list(_together(together)),
            ),
            Section("notes", "", "What limits this", brief=[Sentences(notes[:12])] if notes else []),
            _method(),
        ],
        footer="headrace size full --json prints the numbers",
        data={
            "format": 1,
            "headline": " ".join(verdicts),
            "hosts": order,
            "together": list(together),
            "left_out": list(left_out),
        },
    )  # fmt: skip


def by_urgency(hosts: Sequence[Host]) -> list[Host]:
    """Those that are full first, then by the date."""
    return sorted(hosts, key=_urgency)


def _urgency(host: Host) -> tuple[int, float]:
    first = host.first_full
    if first is None:
        return 4, 0.0
    if first.state is State.NOW:
        return 0, first.room
    if first.state is State.DATED and first.day is not None and not first.is_at_least:
        return 1, first.day.estimate
    return 2 if any(each.state is State.MAYBE for each in host.outlooks) else 3, first.room


def _verdicts(hosts: Sequence[Host], together: Sequence[Together]) -> Iterator[str]:
    for host in hosts[:3]:
        yield _verdict(host)
    if len(hosts) > 3:
        full = sum(any(each.state is State.NOW for each in host.outlooks) for host in hosts)
        yield f"{full} of {len(hosts)} hosts are full at their peak now."
        before = [host.name for host in hosts[3:] if any(_was_beyond(each) for each in host.outlooks)]
        if before:
            yield f"Above a knee earlier, not recently: {named(before)}."
    if together and not together[0].is_at_least:
        yield _all(together[0])


def _all(found: Together) -> str:
    what = name(found.resource)
    said = (
        f"All {counted(found.hosts, 'host')} together are fullest in {what}: {found.peak / found.full_at:.0%} of "
        f"their knees at the peak, {found.mean / found.full_at:.0%} on average"
    )
    own = found.outlook
    if own is not None and own.seen.beyond:
        said += f", beyond them {beyond(own)}"
    if own is None or own.state in (State.NOW, State.NO_DATE):
        return f"{said}."
    if own.state is State.NEVER:
        return f"{said}; that does not grow."
    if own.state is State.LATER:
        return f"{said}; they are full {when(found.end_s, own)}."
    return f"{said}; they run out of {what} on {when(found.end_s, own)} ({dates(found.end_s, own)})."


def _verdict(host: Host) -> str:
    first = host.first_full
    if first is None:
        return f"{host.name}: nothing can be concluded, because no resource has a known limit."
    others = [each for each in host.outlooks if each.resource is not first.resource]
    parts = [_first(host, first)]
    second = next((each for each in others if not each.is_stock and not each.is_at_least), None)
    if second is not None and math.isfinite(second.room):
        parts.append(f"the next bottleneck is {name(second.resource)}, at {times(second.room)} its peak")
    maybe = [name(each.resource) for each in others if each.state is State.MAYBE]
    if maybe:
        parts.append(f"it may be out of {' and '.join(maybe)} as well, of which only a lower bound is known")
    also = [each for each in others if each.seen.beyond and not each.is_at_least]
    parts += [f"beyond the knee of {name(each.resource)} as well, {beyond(each)}" for each in also]
    return f"{'; '.join(parts)}."


def _was_beyond(each: Outlook) -> bool:
    """Once, and not now."""
    return each.seen.beyond > 0 and not each.is_at_least and each.state is not State.NOW


def _first(host: Host, each: Outlook) -> str:
    what, now = name(each.resource), amount(each.resource, each.now)
    at = "at its peak" if each.growth is not None else "at the highest peak that was seen"
    past = f"; beyond the knee {beyond(each)}" if each.seen.beyond and not each.is_at_least else ""
    uses = f"{at} it uses {now} of {what}"
    if each.state in (State.NOW, State.MAYBE) and each.peak < each.full_at.estimate:
        lately = "on the last day" if each.is_stock else f"in the last {RECENT_DAYS} days"
        uses = f"{lately} it used up to {now} of {what}"
    if each.state is State.NOW:
        knee = amount(each.resource, each.full_at.estimate)
        return f"{host.name} is full now: {uses}, and the knee is at {knee}{past}"
    if each.state is State.MAYBE:
        knee = f"{amount(each.resource, each.full_at.estimate)} or higher (its limit is a lower bound)"
        return f"{host.name} may be full now: {uses}, and the knee is at {knee}"
    if each.state is State.DATED:
        said = f"{host.name} runs out of {what} on {when(host.end_s, each)}"
        return (
            f"{said}: its limit is a lower bound"
            if each.is_at_least
            else f"{said} ({dates(host.end_s, each)}){past}"
        )
    return f"{host.name} is at {_share(each)} of the knee of {what} {at}, {each.state}{past}"


def _share(each: Outlook) -> str:
    """Of the knee, at peak or lately."""
    return f"{'at most ' if each.is_at_least else ''}{1 / each.room:.0%}"


def _keys(hosts: Sequence[Host]) -> Iterator[Key]:
    for host in hosts[:4]:
        first = host.first_full
        if first is not None:
            kind = "worse" if first.state is State.NOW else "attention" if 1 / first.room > NEAR else ""
            yield Key(host.name, _share(first), f"{name(first.resource)} · {when(host.end_s, first)}", kind)


_COLUMNS = (
    Column("host"),
    Column("resource"),
    Column("peak", "n"),
    Column("highest", "n", 2),
    Column("mean", "n", 3),
    Column("knee", "n", 2),
    Column("of the knee", "n"),
    Column("growth", "n", 1),
    Column("full", ""),
    Column("95%", "", 1),
)


def _table(hosts: Sequence[Host]) -> Table:
    rows: list[Cells] = []
    marked = set()
    for host in hosts:
        for number, each in enumerate(host.outlooks):
            if each.state is State.NOW:
                marked.add(len(rows))
            rows.append([host.name if not number else Cell(""), *_cells(host, each)])
    return Table(_COLUMNS, rows, marked=frozenset(marked), named=1)


def _cells(host: Host, each: Outlook) -> Cells:
    chip = "worse" if each.state is State.NOW else ""
    return [
        name(each.resource),
        amount(each.resource, each.peak),
        Cell(amount(each.resource, each.seen.highest), note=on(each.seen.on_s)),
        amount(each.resource, each.mean),
        f"{'at least ' if each.is_at_least else ''}{amount(each.resource, each.full_at.estimate)}",
        _share(each),
        _growth(each),
        Cell(when(host.end_s, each), chip),
        dates(host.end_s, each),
    ]


def _knees(hosts: Sequence[Host]) -> list[Table]:
    """How knees and limits are known: the same words for most hosts, so once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for host in hosts:
        for each in host.outlooks:
            found.setdefault((name(each.resource), each.knee_from, each.limit_from), []).append(host.name)
    rows: list[Cells] = [
        [resource, knee, limit or "–", "all" if len(own) == len(hosts) > 1 else named(own)]
        for (resource, knee, limit), own in found.items()
    ]
    columns = (
        Column("resource"), Column("its knee", "wrap"), Column("its limit", "wrap", 1), Column("hosts", "wrap", 2)
    )  # fmt: skip
    return [Table(columns, rows, title="How knees and limits are known")] if rows else []


def _growth(each: Outlook) -> str | Cell:
    if each.growth is None:
        return "–"
    found = each.growth.a_month
    # "z": what is rounded to nothing has no sign of its own.
    return Cell(f"{found.estimate:+z.1%} a month", note=f"{found.low or 0:+z.1%} – {found.high or 0:+z.1%}")


def _bars(hosts: Sequence[Host]) -> Iterator[Part]:
    with_any = [host for host in hosts if host.outlooks]
    if with_any:
        yield Chart(
            _figure(with_any[:60]),
            see="Each bar is the peak (of the last days, if that is higher) as a share of the knee; the dark tick "
            "is the mean, which hides it.",
            legend=[
                ("peak", "@{accent}", "area"),
                ("full", "@{worse}", "area"),
                ("mean", "@{ink}", "|"),
                ("the knee", "@{worse}", "dash"),
            ],
        )
    yield _table(hosts)
    yield from _knees(hosts)


def _figure(hosts: Sequence[Host]) -> Figure:
    pairs = [(host, each) for host in hosts for each in host.outlooks if math.isfinite(each.room)][::-1]
    labels = [f"{host.name} · {name(each.resource)}" for host, each in pairs]
    shares = [100 / each.room for _, each in pairs]
    means = [100 * each.mean / each.full_at.estimate for _, each in pairs]
    hovers = [
        hint(
            label,
            f"peak {amount(each.resource, each.now)}, {_share(each)} of the knee",
            f"mean {amount(each.resource, each.mean)}",
        )
        for (_, each), label in zip(pairs, labels, strict=True)
    ]
    top = max(115.0, 1.05 * max(shares, default=0.0))
    colours = [
        "@{worse/0.75}"
        if each.state is State.NOW
        else f"@{{accent/{0.85 if 1 / each.room >= NEAR else 0.5}}}"
        for _, each in pairs
    ]
    return {
        "data": [
            {"type": "bar", "orientation": "h", "y": labels, "x": shares, "marker": {"color": colours},
             "hovertext": hovers, "hovertemplate": HOVER},
            {"type": "scatter", "mode": "markers", "y": labels, "x": means, "hoverinfo": "skip",
             "marker": {"symbol": "line-ns-open", "size": 14, "color": "@{ink}", "line": {"width": 2}}},
        ],
        "layout": {
            "height": 90 + ROW_PX * len(pairs),
            "margin": {"l": 10, "r": 24, "t": 10, "b": 50},
            "showlegend": False,
            "bargap": 0.35,
            "xaxis": {"title": {"text": "% of the knee"}, "range": [0, top], "fixedrange": True},
            # By itself it leaves room for the marks of more rows than there are.
            "yaxis": {
                "automargin": True, "fixedrange": True, "type": "category", "range": [-0.6, len(pairs) - 0.4]
            },
            "shapes": [
                {"type": "line", "x0": 100, "x1": 100, "y0": 0, "y1": 1, "yref": "paper",
                 "line": {"color": "@{worse}", "width": 1.6, "dash": "dash"}}
            ],
        },
    }  # fmt: skip


def _until(hosts: Sequence[Host]) -> Iterator[Part]:
    dated = [
        (host, each) for host in hosts for each in host.outlooks if each.state is State.DATED and each.day
    ]
    dated.sort(key=lambda pair: pair[1].day.estimate if pair[1].day else math.inf)
    if dated:
        yield Chart(
            _timeline(dated[:60]),
            see="The point is the date by the trend; the line is its 95% interval. An open end reaches the edge.",
            legend=[("full on", "@{accent}", "●"), ("95% interval", "@{accent}", "thick")],
        )
    short = [host for host in hosts if any(each.state is State.NO_DATE for each in host.outlooks)]
    if short:
        yield Sentences(
            [f"{host.name}: fewer than {LEAST_DAYS} whole days, so no date: growth cannot be distinguished "
            "from the weekly pattern. Its peak is the highest that was seen."
             for host in short[:12]]
        )  # fmt: skip


def _timeline(dated: Sequence[tuple[Host, Outlook]]) -> Figure:
    longest = max(each.day.estimate for _, each in dated if each.day) * 1.6 + 30
    labels, middle, left, right, hovers = [], [], [], [], []
    for host, each in dated[::-1]:
        assert each.day is not None
        assert each.day.low is not None
        assert each.day.high is not None
        labels.append(f"{host.name} · {name(each.resource)}")
        middle.append(_date(host, each.day.estimate))
        left.append(_date(host, each.day.low))
        right.append(_date(host, min(each.day.high, longest)))
        hovers.append(hint(labels[-1], f"full on {when(host.end_s, each)}", dates(host.end_s, each)))
    lines = [
        {"type": "scatter", "mode": "lines", "x": [a, b], "y": [label, label], "hoverinfo": "skip",
         "line": {"color": "@{accent/0.45}", "width": 7}}
        for label, a, b in zip(labels, left, right, strict=True)
    ]  # fmt: skip
    points = {
        "type": "scatter", "mode": "markers", "x": middle, "y": labels, "hovertext": hovers,
        "hovertemplate": HOVER, "marker": {"size": 11, "color": "@{accent}"},
    }  # fmt: skip
    return {
        "data": [*lines, points],
        "layout": {
            "height": 90 + ROW_PX * len(labels),
            "margin": {"l": 10, "r": 24, "t": 10, "b": 40},
            "showlegend": False,
            "xaxis": {"type": "date", "fixedrange": True, "automargin": True},
            "yaxis": {"automargin": True, "fixedrange": True, "type": "category"},
        },
    }


def _date(host: Host, days: float) -> str:
    return f"{datetime.fromtimestamp(host.end_s, UTC) + timedelta(days=days):%Y-%m-%d}"


def _buy(hosts: Sequence[Host]) -> Iterator[Part]:
    rows: list[Cells] = []
    for host in hosts:
        for each in host.bought:
            gain = each.gain.estimate - 1
            rows.append(
                [
                    host.name, name(each.resource), each.what, times(each.before), times(each.after),
                    Cell(f"{gain:+.0%}", "better" if gain > 0.005 else "equivalent"), _ends(each.gain),
                    name(each.next), _calls(host, each.gain),
                ]
            )  # fmt: skip
    if rows:
        yield Table(
            (
                Column("host"), Column("resource"), Column("more"), Column("load that fits", "n", 2),
                Column("then", "n", 2), Column("gain"), Column("95%", "", 1), Column("limited by then", "", 1),
                Column("calls/s then", "n", 2),
            ),
            rows,
        )  # fmt: skip
    kept = [
        f"{host.name}: the sweep measured up to {host.ops_s.estimate:,.0f} calls/s ({host.objective})."
        for host in hosts
        if host.ops_s is not None
    ]
    vain = [
        f"{host.name}: {', '.join(name(r) for r in host.in_vain)} "
        f"{'has' if len(host.in_vain) == 1 else 'have'} at least {IN_VAIN:g} times the room of the first "
        "bottleneck: more of it would not help."
        for host in hosts
        if host.in_vain
    ]
    unknown = [
        f"{host.name}: no limit is known of {', '.join(name(r) for r in host.unknown)}."
        for host in hosts
        if host.unknown
    ]
    bounds = [_bound(host, each) for host in hosts for each in host.outlooks if each.is_at_least]
    if kept or vain or unknown or bounds:
        yield Sentences([*kept, *vain, *unknown, *bounds][:24])


def _bound(host: Host, each: Outlook) -> str:
    said = (
        f"{host.name}: the limit of {name(each.resource)} is at least "
        f"{amount(each.resource, each.limit.estimate)}, {each.limit_from.removeprefix(AT_LEAST)}"
    )
    if each.state not in (State.MAYBE, State.DATED):
        return f"{said}."
    tells = f"--limit {host.name}={each.resource}=N would tell"
    if each.resource is Resource.READS:
        tells = f"headrace latencies --file DIR --json measures 32 at a time, and would tell; so {tells}"
    return f"{said}, so it is not known to be full. {tells[0].upper()}{tells[1:]}."


def _ends(gain: Interval) -> str:
    if gain.low is None or gain.high is None:
        return "–"
    low, high = gain.low - 1, gain.high - 1
    return f"{low:+.0%}" if f"{low:+.0%}" == f"{high:+.0%}" else f"{low:+.0%} – {high:+.0%}"


def _calls(host: Host, gain: Interval) -> str:
    """What the sweep measured, scaled; the mix stays as it was there."""
    if host.ops_s is None:
        return "–"
    found, ends = host.ops_s, []
    for end, factor in ((found.low, gain.low), (found.high, gain.high)):
        ends.append(None if end is None or factor is None else end * factor)
    then = Interval(found.estimate * gain.estimate, *ends)
    between = f" ({text.between(then, text.count)})" if then.low is not None else ""
    return f"{text.count(then.estimate)}{between}"


def _together(found: Sequence[Together]) -> Iterator[Part]:
    if not found:
        return
    rows: list[Cells] = [
        [
            name(each.resource), f"{each.hosts}", amount(each.resource, each.mean),
            amount(each.resource, each.peak), amount(each.resource, each.sum_of_peaks),
            f"{each.coincide:.0%}", _of_knees(each, each.full_at), _of_knees(each, each.without_largest),
            *_until_all(each),
            f"{datetime.fromtimestamp(each.at_s, UTC):%a %Y-%m-%d %H:%M}",
        ]
        for each in found
    ]  # fmt: skip
    yield Table(
        (
            Column("resource"), Column("hosts", "n", 3), Column("mean", "n", 1), Column("peak together", "n"),
            Column("sum of peaks", "n", 2), Column("coincide", "n"), Column("of the knees", "n"),
            Column("without the largest host", "n", 2), Column("growth", "n", 2), Column("full", ""),
            Column("95%", "", 1), Column("peak at (UTC)", "", 1),
        ),
        rows,
    )  # fmt: skip


def _of_knees(each: Together, full_at: float) -> str:
    if full_at <= 0:
        return "–"
    return f"{'at most ' if each.is_at_least else ''}{each.peak / full_at:.0%}"


def _until_all(each: Together) -> Cells:
    """Growth, the date, its interval."""
    own = each.outlook
    if own is None:
        return ["–", Cell("no date", note="of a host no limit is known, or only a lower bound"), "–"]
    chip = "worse" if own.state is State.NOW else ""
    return [_growth(own), Cell(when(each.end_s, own), chip), dates(each.end_s, own)]


def _method() -> Section:
    return Section(
        "method", "Method", "How this was computed",
        [
            method(
                [
                    ("Peak", "The highest minute of each day (of the busiest weekday, by the trend), not the "
                             f"mean of an hour; of fewer than {LEAST_DAYS} whole days, the highest of all. If "
                             f"the last {RECENT_DAYS} days had a higher one, it counts: no trend excuses what "
                             "happened."),
                    ("Knee", "Of the resource that a sweep filled, the share of its limit up to which the "
                             "objective held; of all others the share at which a queue of as many servers waits "
                             "as long as it serves. The table says which."),
                    ("Growth", "A robust line through the daily peaks with an effect of each weekday, by the "
                               "same amount or by "
                     "the same share a day; both, if the history cannot tell them apart."),
                    ("Date", f"From {LEAST_DAYS} whole days on. The 95% interval holds the errors of level, "
                             f"slope and knee, and "
                     "assumes that growth continues as it was."),
                    ("One more", "All calls grow by the same factor until the first resource is at its "
                                 "knee. A larger buffer pool saves reads, by a curve through the sampled sizes."),
                ]
            )
        ],
    )  # fmt: skip
