"""Two digests compared: before and after a change, or the client's side and the server's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.base.counted import counted
from headrace.host.monitors import looks_at_server
from headrace.show import text
from headrace.show.parts import Cell, Column, Gap, Part, Sentence, Table
from headrace.traffic import figures as traffic
from headrace.traffic.report.coverage import lines
from headrace.traffic.report.words import clock, duration, percent, short_number

if TYPE_CHECKING:
    from headrace.traffic.digests.classes import Digest, QueryClass
    from headrace.traffic.figures import Change, Sides

#: A ratio this close to 1 is not coloured.
QUIET = 1.1
#: A source may lack the fast calls if nearly all of its calls took longer than this, and than the other's so many
#: times; of fewer calls nothing is said.
LIMIT_NS, LIMITED, FEWEST_CALLS = 5_000_000, 10, 100
#: Printed below every comparison: what the ratios do not prove.
NO_TRIAL = (
    "Two captures are only two observations, regardless of how many calls they hold: calls in one capture "
    "share load, caches and locks, so no significance is claimed. `slices` is the share of pairs of time "
    "slices in which after is slower: 0.5 means no difference, 1.0 means more than either capture varies "
    "internally. For a proof, compare configurations in blocks: headrace run, headrace prove."
)
NO_DIFFERENCE = (
    "Means can be subtracted, percentiles cannot: the slowest call at the client need not be the slowest at "
    "the server, so a difference of percentiles is not the percentile of the differences."
)


def compared(before: Digest, after: Digest, changes: Sequence[Change], limit: int) -> Iterator[Part]:
    """New, gone and changed classes, the largest change of load first."""
    for name, digest in (("before", before), ("after", after)):
        yield Sentence(f"{name}: {_span(digest)}", "strong")
        yield from lines(digest)
    states = [change.state for change in changes]
    loads = [digest.all.total_ns / digest.span_s if digest.span_s else None for digest in (before, after)]
    new = counted(states.count("new"), "new class", "new classes")
    told = f"{new}, {states.count('gone')} gone, {states.count('both')} in both"
    if loads[0] and loads[1] is not None:
        told += f"; response time per second of traffic {duration(loads[0])} → {duration(loads[1])}"
        told += f" ({text.ratio(loads[1] / loads[0])}×)"
    yield Gap()
    yield Sentence(told, "strong")
    if limited := _limited(before, after):
        yield Sentence(limited, "attention")
    own = [
        each for each in changes if looks_at_server(each.either.fingerprint, ", ".join(each.either.tables))
    ]
    rest = [each for each in changes if each not in own]
    for state, title in (("both", "In both: after relative to before"), ("new", "New"), ("gone", "Gone")):
        found = [each for each in rest if each.state == state]
        if not found:
            continue
        yield Gap()
        yield Sentence(title, "strong")
        yield _changes(found[:limit])
        if len(found) > limit:
            yield Sentence(f"and {len(found) - limit:,} more: --top", "aside")
    yield Gap()
    if own:
        classes = counted(len(own), "class that only asks", "classes that only ask")
        yield Sentence(f"Not listed: {classes} the server about itself, as monitors do.", "aside")
    yield Sentence(NO_TRIAL, "aside")


def _limited(before: Digest, after: Digest) -> str:
    """That one of them seems to lack the fast calls, as a log with a higher long_query_time; empty if not."""
    if min(before.all.count, after.all.count) < FEWEST_CALLS:
        return ""
    fast = [traffic.fast_ns(digest.all) or 0.0 for digest in (before, after)]
    most, least = max(fast), min(fast)
    if not least or most < LIMIT_NS or least * LIMITED > most:
        return ""
    slow, quick = ("before", "after") if fast[0] > fast[1] else ("after", "before")
    return (
        f"{slow.capitalize()} may lack fast calls: 95% of its calls took {text.milliseconds(most)} ms or more, "
        f"of {quick} {text.milliseconds(least)} ms. If it is a slow log with a higher long_query_time, a class "
        "may be new, gone, rarer or slower for that alone: compare logs with the same long_query_time."
    )


def _span(digest: Digest) -> str:
    calls = counted(digest.all.count, "call")
    return (
        f"{calls}, {' to '.join(map(clock, digest.span_ns))} UTC" if digest.span_ns else f"{calls}, no times"
    )


def _changes(changes: Sequence[Change]) -> Table:
    """Classes of one kind. In only one of the two a class has no ratio: then the numbers themselves."""
    columns = [Column(name, "n") for name in ("load/s", "calls/s", "mean", "p50", "p95", "p99", "slices")]
    if changes[0].state != "both":
        columns = [Column(name, "n") for name in ("load/s", "calls", "mean ms")]
    rows: list[list[Cell]] = []
    for each in changes:
        cells = [Cell(load_change(each.load_change))]
        if each.state == "both":
            cells += [_times(ratio) for ratio in (each.rate, each.mean, *each.percentiles.values())]
            cells.append(Cell("–" if each.slower_slices is None else f"{each.slower_slices:.2f}"))
        else:
            cells += [
                Cell(short_number(each.either.count)),
                Cell(text.milliseconds(traffic.mean_ns(each.either))),
            ]
        rows.append([*cells, Cell(each.either.fingerprint, style=_STYLES[each.state])])
    return Table([*columns, Column("class")], rows, is_below=True)


_STYLES = {"new": "bold yellow", "gone": "bold blue", "both": ""}


def load_change(change_ns: float) -> str:
    """Signed change of response time per second of traffic, from ns."""
    return f"{'+' if change_ns >= 0 else '−'}{duration(abs(change_ns))}"


def _times(ratio: float | None) -> Cell:
    if ratio is None:
        return Cell("–", style="dim")
    return Cell(
        f"{text.ratio(ratio)}×", style="red" if ratio > QUIET else "green" if ratio < 1 / QUIET else ""
    )


def compared_json(before: Digest, after: Digest, changes: Sequence[Change]) -> dict[str, Any]:
    """Everything, for programs. Ratios are after relative to before."""
    return {
        "before": _whole(before),
        "after": _whole(after),
        "note": NO_TRIAL,
        "classes": [
            {
                "class": each.either.key or {"class": each.name},
                "fingerprint": each.either.fingerprint,
                "state": each.state,
                "load_change_ns_a_second": each.load_change,
                "before": _figures(each.before),
                "after": _figures(each.after),
                "ratios": {"calls_a_second": each.rate, "mean": each.mean, **each.percentiles},
                "slower_slices": each.slower_slices,
                "slices": each.slices,
            }
            for each in changes
        ],
    }


def _whole(digest: Digest) -> dict[str, Any]:
    return {
        "first_ns": digest.first_ns,
        "last_ns": digest.last_ns,
        "span_s": digest.span_s,
        "coverage": dict(digest.coverage),
        **(_figures(digest.all) or {}),
    }


def _figures(each: QueryClass | None) -> dict[str, Any] | None:
    if each is None:
        return None
    timed = each.number("response_ns")
    return {
        "calls": each.count,
        "failed": each.failed,
        "response_sum_ns": timed.sum,
        "mean_ns": traffic.mean_ns(each),
        **{f"{name}_ns": traffic.percentile_ns(each, name) for name in traffic.PERCENTILES},
        "max_ns": timed.most,
    }


# -- Client and server ------------------------------------------------------------------------------------------

_SHOWN = ("p90", "p99", "p99.9")


def beside(
    client: Digest,
    server: Digest,
    found: tuple[Sequence[Sides], Sequence[QueryClass], Sequence[QueryClass]],
    limit: int,
) -> Iterator[Part]:
    """Each class at the client and at the server, with the time that the server does not account for."""
    both, only_client, only_server = found
    for name, digest in (("client", client), ("server", server)):
        yield Sentence(f"{name}: {_span(digest)}", "strong")
        yield from lines(digest)
    rows = []
    for each in both[:limit]:
        share = percent(each.mean_share) if each.mean_share is not None else "–"
        mark = "" if each.is_same_calls else " ?"
        rows.append([*map(Cell, _side(each, 0)), Cell(f"mean {share}{mark}"), Cell(each.client.fingerprint)])
        quiet = [*_side(each, 1), _gaps(each)]
        rows.append([*(Cell(cell, style="dim") for cell in quiet), Cell("")])
    columns = [Column(name, "n") for name in ("calls", "mean ms", *_SHOWN, "network + client")]
    yield Gap()
    yield Table([*columns, Column("class")], rows, is_cut=True)
    if any(not each.is_same_calls for each in both):
        note = "? the two sides counted different calls, so even their means are not comparable"
        yield Sentence(note, "attention")
    for side, only in (("client", only_client), ("server", only_server)):
        if only:
            calls = sum(each.count for each in only)
            names = "; ".join(text.short(each.fingerprint, 60) for each in only[:3])
            seen = f"{counted(len(only), 'class', 'classes')} ({counted(calls, 'call')})"
            yield Sentence(f"only the {side} saw {seen}: {names}", "attention")
    said = (
        "For each class: the client's line, the server's line, and the relative difference of their "
        "percentiles."
    )
    yield Gap()
    yield Sentence(f"{said} {NO_DIFFERENCE}", "aside")


def _side(each: Sides, side: int) -> list[str]:
    seen = (each.client, each.server)[side]
    mean = each.mean_ns[side] if each.mean_ns else None
    cells = [f"{seen.count:,}", text.milliseconds(mean)]
    for name in _SHOWN:
        pair = each.percentiles_ns.get(name)
        cells.append(text.milliseconds(pair[side]) if pair else "–")
    return cells


def _gaps(each: Sides) -> str:
    pairs = {name: pair for name in _SHOWN if (pair := each.percentiles_ns.get(name)) and pair[0]}
    return ", ".join(f"{name} {1 - pair[1] / pair[0]:.0%}" for name, pair in pairs.items())


def beside_json(
    client: Digest,
    server: Digest,
    found: tuple[Sequence[Sides], Sequence[QueryClass], Sequence[QueryClass]],
) -> dict[str, Any]:
    both, only_client, only_server = found
    return {
        "client": _whole(client),
        "server": _whole(server),
        "note": NO_DIFFERENCE,
        "classes": [
            {
                "class": each.client.key or {"class": each.name},
                "fingerprint": each.client.fingerprint,
                "client": _figures(each.client),
                "server": _figures(each.server),
                "network_and_client_share_of_mean": each.mean_share,
                "is_same_calls": each.is_same_calls,
                "percentiles_apart_ns": {name: a - b for name, (a, b) in each.percentiles_ns.items()},
            }
            for each in both
        ],
        "only_client": [each.fingerprint for each in only_client],
        "only_server": [each.fingerprint for each in only_server],
    }
