"""A digest as people read it on a terminal: what was seen, the whole, the ranking, the first classes in detail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.analysis import traffic
from headrace.report import text
from headrace.report.text import clean, count

if TYPE_CHECKING:
    from headrace.digests.classes import Buckets, Digest, Number, QueryClass

#: Names of a kind that a class' detail shows; lines of its sample and of its plan.
MOST_NAMES = 4
MOST_SAMPLE = 600
MOST_PLAN_LINES = 30
MOST_PLACES = 5
BAR_WIDTH = 40
#: A fingerprint column narrower than this says nothing.
MIN_FINGERPRINT = 24
_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class View:
    """What to show. ``objective_ns`` of None: no apdex. ``plans``: class -> its plan, or why there is none."""

    order: str = "sum"
    limit: int = 10
    details: int = 3
    objective_ns: float | None = None
    plans: Mapping[str, str] = field(default_factory=dict)


def terminal(digest: Digest, view: View) -> RenderableType:
    """The whole report."""
    shown = traffic.ranked(digest, view.order)[: view.limit]
    parts: list[RenderableType] = [*coverage(digest), "", Text(overall(digest, view), style="bold"), ""]
    if shown:
        parts += [Ranking(digest, shown, view)]
    rest = len(digest.classes) - len(shown)
    if rest > 0:
        others = sum(each.total_ns for each in digest.classes) - sum(each.total_ns for each in shown)
        whole = (
            f", {_percent(others / digest.all.total_ns)} of the response time" if digest.all.total_ns else ""
        )
        parts.append(Text(f"and {rest:,} more class{'es' if rest > 1 else ''}{whole}", style="dim"))
    for rank, each in enumerate(shown[: view.details], 1):
        parts += ["", *_detail(digest, each, rank, view)]
    return Group(*parts)


# -- What was seen ----------------------------------------------------------------------------------------------


def coverage(digest: Digest) -> list[RenderableType]:
    """What stands first in every report: nobody should trust a ranking of half the traffic unknowingly."""
    parts: list[RenderableType] = []
    sources = [f"{name} ({host})" if host else name for name, host in digest.sources]
    most = 3
    more = f" and {len(sources) - most} more" if len(sources) > most else ""
    group = "" if digest.group == ("class",) else f", by {', '.join(digest.group)}"
    mode = f" · {digest.mode} fingerprints{group}"
    parts.append(Text(clean("; ".join(sources[:most]) + more + mode), style="dim"))
    parts += [Text(line, style="yellow" if is_loss else "dim") for line, is_loss in coverage_lines(digest)]
    for place in digest.places[:MOST_PLACES]:
        parts.append(Text(f"    {place_text(place)}", style="yellow"))
    damaged = digest.coverage.get("damaged", 0)
    if digest.places and damaged > min(len(digest.places), MOST_PLACES):
        parts.append(Text(f"    and {damaged - min(len(digest.places), MOST_PLACES):,} more", style="yellow"))
    return parts


def place_text(place: Mapping[str, object]) -> str:
    where = f"{place.get('input', '')}, item {place.get('item', '?')}, byte {place.get('offset', '?')}"
    return clean(f"{where}: {place.get('reason', '')}")


def coverage_lines(digest: Digest) -> list[tuple[str, bool]]:
    """(what was read or missed, whether something was missed)."""
    of = {name: digest.coverage.get(name, 0) for name in COVERAGE}
    said: list[tuple[str, bool]] = []
    skipped = of["skipped_bytes"] / of["bytes"] if of["bytes"] else 0.0
    read = f"decoded: {of['read_events']:,} events in {size(of['bytes'])}"
    said.append((f"{read}; {size(of['skipped_bytes'])} ({_percent(skipped)}) of it could not be", skipped > 0)
                if of["skipped_bytes"] else (read, False))  # fmt: skip
    if of["sessions"]:
        clear = of["sessions"] - of["tls_sessions"]
        line = f"sessions: {of['sessions']:,}, readable {_percent(clear / of['sessions'])}"
        if of["tls_sessions"]:
            line += f"; {of['tls_sessions']:,} encrypted (TLS): nothing of what they said is here"
        if of["midstream_sessions"]:
            line += f"; {of['midstream_sessions']:,} began before the capture did: user and database unknown"
        said.append((line, of["tls_sessions"] + of["midstream_sessions"] > 0))
    if of["packets"]:
        lost = [f"{of[key]:,} {what}" for key, what in _LOST if of[key]]
        if of["gap_bytes"]:
            lost.append(f"{size(of['gap_bytes'])} in holes")
        said.append((f"packets: {of['packets']:,}; {', '.join(lost) or 'none lost'}", bool(lost)))
    unanswered = [f"{of[key]:,} {what}" for key, what in _PARTLY if of[key]]
    if unanswered:
        said.append((f"not whole: {', '.join(unanswered)}", True))
    left = [f"{of[key]:,} {what}" for key, what in _LEFT_OUT if of[key]]
    if left:
        said.append((f"events: {', '.join(left)}", False))
    if of["damaged"]:
        said.append((f"damaged: {of['damaged']:,} lines, packets or frames were skipped", True))
    return said


COVERAGE = (
    "read_events", "events", "bytes", "skipped_bytes", "damaged", "sessions", "tls_sessions", "midstream_sessions",
    "unknown_statements", "unanswered", "packets", "dropped_packets", "cut_packets", "retransmitted_packets",
    "gaps", "gap_bytes", "other_packets", "filtered", "undated", "others",
)  # fmt: skip
_LOST = (
    ("dropped_packets", "lost by the kernel"), ("cut_packets", "cut by the snap length"),
    ("gaps", "holes in streams"),
)  # fmt: skip
_PARTLY = (
    ("unknown_statements", "executions of statements prepared before the capture"),
    ("unanswered", "requests without a whole answer"),
)  # fmt: skip
_LEFT_OUT = (
    ("filtered", "left out by --since, --until or --filter"), ("undated", "without a time"),
    ("others", "of classes that found no room"),
)  # fmt: skip


def overall(digest: Digest, view: View) -> str:
    """All classes together, in one sentence."""
    every = digest.all
    classes = f"{len(digest.classes):,} class{'' if len(digest.classes) == 1 else 'es'}"
    parts = [f"{every.count:,} calls in {classes}"]
    if digest.span_s > 0:
        parts[0] += f" over {text.seconds(digest.span_s)}"
        parts.append(f"{count(every.count / digest.span_s)}/s")
        if every.total_ns:
            # Little's law: the time calls took, by the time there was.
            parts.append(f"{count(every.total_ns / 1e9 / digest.span_s)} at once on average")
    if every.total_ns:
        shown = [f"{name} {_ms(every, name)}" for name in ("p50", "p95", "p99")]
        parts.append(
            f"mean {text.milliseconds(traffic.mean_ns(every))} ms, {', '.join(shown)}, max {_most(every)} ms"
        )
    if every.failed:
        parts.append(f"{every.failed:,} failed ({_percent(every.failed / every.count)})")
    if apdex := apdex_text(every, view.objective_ns):
        parts.append(apdex)
    return "; ".join(parts)


def apdex_text(each: QueryClass, objective_ns: float | None) -> str:
    """``apdex 0.94 at 10 ms (90% within, 8% within 4x, 2% beyond)``; empty without an objective or times."""
    found = traffic.satisfaction(each, objective_ns) if objective_ns else None
    if found is None or objective_ns is None:
        return ""
    shares = (
        f"{_percent(found.satisfied)} within, {_percent(found.tolerated)} within {traffic.TOLERATED}x, "
        f"{_percent(found.frustrated)} beyond"
    )
    return f"apdex {found.score:.3f} at {duration(objective_ns)} ({shares})"


# -- Figures ----------------------------------------------------------------------------------------------------


def size(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}" if unit != "B" else f"{value:,.0f} B"
        value /= 1000
    return f"{value:,.3g} TB"


def duration(value_ns: float) -> str:
    """``120 ns``, ``1.5 µs``, ``30 ms``, ``2 s``."""
    for unit, step in (("ns", 1e3), ("µs", 1e3), ("ms", 1e3)):
        if value_ns < 999.5:
            return f"{value_ns:.3g} {unit}"
        value_ns /= step
    return f"{value_ns:,.3g} s" if value_ns < 999.5 else f"{value_ns:,.0f} s"


def clock(value_ns: int | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(value_ns / 1e9, UTC).strftime(form) if value_ns is not None else "–"


def _percent(share: float | None) -> str:
    if share is None:
        return "–"
    if share >= 0.9995 or share == 0:
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


percent = _percent


def _ms(each: QueryClass, name: str) -> str:
    return text.milliseconds(traffic.percentile_ns(each, name))


def _most(each: QueryClass) -> str:
    return text.milliseconds(each.number("response_ns").most)


def short_number(value: float | None) -> str:
    """Four characters' worth: ``950``, ``12.3k``, ``4.1M``."""
    if value is None:
        return "–"
    if 0 < value < 0.01:
        return "<.01"
    for unit in ("", "k", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.3g}{unit}" if abs(value) < 100 or unit else f"{value:.0f}"
        value /= 1000
    return f"{value:.3g}T"


# -- The ranking ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """``keep`` orders what goes first when the terminal is narrow: 0 always stays."""

    title: str
    keep: int
    cell: Callable[[Digest, QueryClass], Text]


def _percentile_cell(name: str) -> Callable[[Digest, QueryClass], Text]:
    def cell(digest: Digest, each: QueryClass) -> Text:
        # Of few calls a high percentile is the luck of the slowest: shown, but quietly.
        style = "dim" if traffic.is_thin(each.response, name) else ""
        return Text(_ms(each, name), style=style)

    return cell


def _per_call(name: str) -> Callable[[Digest, QueryClass], Text]:
    def cell(digest: Digest, each: QueryClass) -> Text:
        told = each.number(name)
        return Text(short_number(told.sum / told.count) if told.count else "–")

    return cell


def _rate(digest: Digest, each: QueryClass) -> Text:
    return Text(short_number(each.count / digest.span_s) if digest.span_s else "–")


def _errors(digest: Digest, each: QueryClass) -> Text:
    return Text(short_number(each.failed), style="red" if each.failed else "dim")


def _dispersion(digest: Digest, each: QueryClass) -> Text:
    found = traffic.dispersion_s(each)
    return Text("–" if found is None else f"{found:.2f}" if found >= 0.005 else "0.00")


_COLUMNS = (
    _Column("time", 0, lambda d, e: Text(_percent(traffic.share(e, d.all)), style="bold")),
    _Column("calls", 0, lambda d, e: Text(short_number(e.count))),
    _Column("/s", 4, _rate),
    _Column("mean ms", 1, lambda d, e: Text(text.milliseconds(traffic.mean_ns(e)))),
    _Column("p50", 6, _percentile_cell("p50")),
    _Column("p95", 5, _percentile_cell("p95")),
    _Column("p99", 2, _percentile_cell("p99")),
    _Column("max", 3, lambda d, e: Text(_most(e))),
    _Column("V/M", 9, _dispersion),
    _Column("sent", 8, _per_call("rows_sent")),
    _Column("exam", 7, _per_call("rows_examined")),
    _Column("err", 4, _errors),
)


class Ranking:
    """The table of classes. Columns go, least important first, until a fingerprint has room."""

    def __init__(self, digest: Digest, shown: Sequence[QueryClass], view: View) -> None:
        self._digest, self._shown, self._view = digest, shown, view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        ranks = [Text(str(rank), style="dim") for rank in range(1, len(self._shown) + 1)]
        names = [Text(clean(each.fingerprint)) for each in self._shown]
        for keep in range(max(column.keep for column in _COLUMNS), -1, -1):
            columns = [column for column in _COLUMNS if column.keep <= keep]
            cells = [[column.cell(self._digest, each) for column in columns] for each in self._shown]
            rows = [[rank, *row, name] for rank, row, name in zip(ranks, cells, names, strict=True)]
            titles = ("#", *(column.title for column in columns), " + ".join(self._digest.group))
            table = Fitted(titles, rows)
            if table.room(options.max_width) >= MIN_FINGERPRINT or keep == 0:
                yield table
                return


class Fitted:
    """A table whose last column, a text of any length, gets what room the others leave; those are never cut."""

    def __init__(
        self, titles: Sequence[str], rows: Sequence[Sequence[Text]], left: Sequence[str] = ()
    ) -> None:
        self._titles, self._rows, self._left = titles, rows, left
        self._widths = [
            max(len(title), *(row[at].cell_len for row in rows), 0) for at, title in enumerate(titles[:-1])
        ]

    def room(self, width: int) -> int:
        return width - sum(self._widths) - 2 * len(self._widths)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(self.room(options.max_width), 8)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for title, width in zip(self._titles[:-1], self._widths, strict=True):
            justify: Literal["left", "right"] = "left" if title in self._left else "right"
            table.add_column(title, justify=justify, no_wrap=True, min_width=width)
        table.add_column(self._titles[-1], no_wrap=True)
        for row in self._rows:
            last = row[-1].copy()
            last.truncate(room, overflow="ellipsis")
            table.add_row(*row[:-1], last)
        yield table


# -- One class --------------------------------------------------------------------------------------------------


def _detail(digest: Digest, each: QueryClass, rank: int, view: View) -> list[RenderableType]:
    title = Text.assemble((f"{rank:>2}  ", "dim"), (clean(each.fingerprint), "bold"))
    body = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    body.add_column(style="dim", no_wrap=True)
    body.add_column(overflow="fold")
    for label, said in class_lines(digest, each, view):
        body.add_row(label, Text(clean(said)))
    if len(each.slices.count) > 1:
        body.add_row("over time", Text(_sparkline(digest, each)))
    parts: list[RenderableType] = [title, Padding(body, (0, 0, 0, 4))]
    if each.response.total:
        parts.append(Padding(_bars(each.response), (0, 0, 0, 4)))
    if each.sample:
        parts.append(Padding(_sample(each), (0, 0, 0, 4)))
    if plan := view.plans.get(each.name):
        lines = [clean(line) for line in plan.splitlines()]
        more = [f"... {len(lines) - MOST_PLAN_LINES} more lines"] if len(lines) > MOST_PLAN_LINES else []
        shown = Text("\n".join([*lines[:MOST_PLAN_LINES], *more]))
        parts.append(Padding(Group(Text("plan", style="dim"), shown), (0, 0, 0, 4)))
    return parts


def class_lines(digest: Digest, each: QueryClass, view: View) -> list[tuple[str, str]]:
    """(label, text) about one class; not cleaned."""
    when = f"{clock(each.number('start_ns').least)} to {clock(each.number('start_ns').most, '%H:%M:%S')} UTC"
    calls = f"{each.count:,} calls ({_percent(each.count / digest.all.count) if digest.all.count else '–'})"
    share = traffic.share(each, digest.all)
    if share is not None:
        calls += f", {_percent(share)} of the response time ({duration(each.total_ns)})"
    rows = [("class", f"{each.texts.get('id') or '–'}  {calls}"), ("seen", when)]
    for label, name in (("tables", "table"), ("users", "user"), ("hosts", "host"), ("databases", "database")):
        told = ", ".join(each.tables) if name == "table" else _names(each, name)
        if told:
            rows.append((label, told))
    spread = traffic.dispersion_s(each)
    if spread is not None:
        known = [f"{name} {_ms(each, name)}" for name in traffic.PERCENTILES]
        least = text.milliseconds(each.number("response_ns").least)
        rows.append(("ms", f"min {least}, {', '.join(known)}, max {_most(each)}; V/M {spread:.3g} s"))
    if each.first_byte.total:
        first = each.number("first_byte_ns")
        bounds = (each.first_byte, "p99", first.least, first.most)
        top = text.milliseconds(traffic.value_at(*bounds))
        rows.append(("first byte", f"mean {text.milliseconds(first.sum / first.count)} ms, p99 {top}"))
    rows += [_measure(name, number) for name, number in each.measures.items() if number.sum]
    if each.failed or each.number("unanswered").count:
        numbers = ", ".join(f"{label.text} ×{label.count:,}" for label in each.labels.get("error", ())[:8])
        told = f"{each.failed:,} failed" + (f" (error {numbers})" if numbers else "")
        lost = each.number("unanswered").count
        rows.append(("errors", told + (f", {lost:,} unanswered" if lost else "")))
    if apdex := apdex_text(each, view.objective_ns):
        rows.append(("apdex", apdex.removeprefix("apdex ")))
    return rows


def _names(each: QueryClass, kind: str) -> str:
    found = each.labels.get(kind, ())
    shown = [f"{label.text} {_percent(label.count / each.count)}" for label in found[:MOST_NAMES]]
    more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    return ", ".join(shown) + more


def _measure(name: str, number: Number) -> tuple[str, str]:
    """(label, text): a measure's name says its unit."""
    mean = number.sum / number.count
    if name.startswith("is_"):
        return name.removeprefix("is_").replace("_", " "), f"{_percent(mean)} of calls"
    label = name
    form: Callable[[float], str] = count
    for suffix, of_unit in (("_ns", duration), ("_bytes", size)):
        if name.endswith(suffix):
            label, form = name.removesuffix(suffix), of_unit
    most = f", most {form(number.most)}" if number.most is not None else ""
    return label.replace("_", " "), f"{form(mean)} per call{most}"


def _sparkline(digest: Digest, each: QueryClass, most: int = 60) -> str:
    assert digest.first_ns is not None
    assert digest.last_ns is not None
    found = traffic.course(each, digest.first_ns, digest.last_ns, digest.slice_ns, most)
    top = max(int(found.count.max()), 1)
    line = "".join(" " if not n else _SPARKS[min(int(n * 8 / top), 7)] for n in found.count.tolist())
    return f"{line}  at most {top:,} calls in {text.seconds(found.width_ns / 1e9)}"


def _bars(found: Buckets) -> Table:
    """Calls by response time: bars of a linear scale, in ranges of half a decade."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    bars = traffic.distribution(found, 2)
    top = max(bar.count for bar in bars)
    for bar in bars:
        eighths = round(bar.count * BAR_WIDTH * 8 / top)
        eighths = max(eighths, 1) if bar.count else 0
        drawn = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        table.add_row(f"≥ {duration(bar.low_ns)}", Text(drawn, style="cyan"), f"{bar.count:,}")
    return table


def _sample(each: QueryClass) -> RenderableType:
    sample = each.sample
    told = str(sample.get("text") or "")
    took = sample.get("response_ns")
    about = f"slowest call at {clock(sample.get('start_ns'))}"
    about += f", {text.milliseconds(took)} ms" if took is not None else ""
    who = "@".join(str(sample[key]) for key in ("user", "host") if sample.get(key))
    about += f", {who}" if who else ""
    cut = int(sample.get("text_bytes") or 0) > len(told.encode()) or len(told) > MOST_SAMPLE
    body = clean(told[:MOST_SAMPLE]) + (" ..." if cut else "")
    return Group(Text(clean(about), style="dim"), Text(body))
