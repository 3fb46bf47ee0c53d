"""A digest in words and numbers: what was seen, the whole, and one class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.base.counted import counted
from headrace.show import text
from headrace.show.text import count
from headrace.traffic import figures as traffic
from headrace.traffic.digests.table import OTHERS

if TYPE_CHECKING:
    from headrace.traffic.digests.classes import Digest, QueryClass

#: The share of the time that may be in no row of the ranking without a word about it.
MOST_REST = 0.05
#: Maximum names of each kind in a class's detail.
MOST_NAMES = 4
#: Maximum tunnels, protocols or other kinds in a line of the coverage.
MOST_LISTED = 6


@dataclass(frozen=True)
class View:
    """What to show. ``objective_ns`` None: no Apdex. ``plans``: class -> its plan, or why it has none."""

    order: str = "sum"
    limit: int = 10
    details: int = 3
    objective_ns: float | None = None
    plans: Mapping[str, str] = field(default_factory=dict)


def position_in_words(position: Mapping[str, Any]) -> str:
    """Where a server's binary log stood: ``binlog.000012:4567, GTID 0-1-42``, or why that is not known."""
    if position["problem"]:
        return f"unknown: {position['problem']}"
    gtid = f", GTID {position['gtid']}" if position["gtid"] else ""
    return f"{position['log']}:{position['offset']}{gtid}"


# -- What was seen ----------------------------------------------------------------------------------------------


def place_text(place: Mapping[str, object]) -> str:
    item, offset = place.get("item", "?"), place.get("offset", "?")
    # What concerns a whole input has no position.
    at = f", item {item}, byte {offset}" if item or offset else ""
    return f"{place.get('input', '')}{at}: {place.get('reason', '')}"


def nothing_lines(digest: Digest) -> list[str]:
    """Why there is nothing to rank, if so: an empty result must not look like an idle server."""
    of = digest.coverage
    said = []
    if of.get("sessions") and of.get("tls_sessions", 0) >= of["sessions"]:
        which = "The only session is" if of["sessions"] == 1 else f"All {of['sessions']:,} sessions are"
        said.append(f"{which} encrypted (TLS), so no statement could be read: use the slow log, or the proxy")
    elif not digest.all.count and of.get("filtered"):
        said.append(f"Nothing matches: --since, --until or --filter left out all events ({of['filtered']:,})")
    elif of.get("sessions") and (foreign := by_name(of, "foreign_sessions")) and not digest.all.count:
        said.append(f"No session of the classic MySQL protocol could be read; others: {listed(foreign)}")
    elif not digest.all.count and of.get("packets") and of.get("other_packets", 0) >= of["packets"]:
        packets = (
            "The only packet is none"
            if of["packets"] == 1
            else f"None of the {of['packets']:,} packets is one"
        )
        kinds = listed(by_name(of, "other_kinds"))
        said.append(f"{packets} of a server on the ports that were read" + (f": {kinds}" if kinds else ""))
    elif not digest.all.count:
        said.append("No event was found")
    return said


def rest_lines(digest: Digest) -> list[str]:
    """What no row of the ranking shows, if it takes so much of the time that the ranking misleads without it."""
    rest, whole = digest.by_name.get(OTHERS), digest.all
    if rest is None:
        return []
    part, all_of_it = (rest.total_ns, whole.total_ns) if whole.total_ns else (rest.count, whole.count)
    if part <= MOST_REST * all_of_it:
        return []
    limit = "the server's own table" if rest.is_summarised else "this digest's"
    of_what = f"response time ({counted(rest.count, 'call')})" if whole.total_ns else "calls"
    said = f"{percent(part / all_of_it)} of the {of_what} is of statements beyond the limit of {limit}"
    most_ns = digest.coverage.get("unlisted_most_ns", 0)
    if most_ns and len(digest.sources) > 1:
        # What one part lists may be beyond the limit of another.
        return [f"{said}; no class has more than {duration(most_ns)} of its time there"]
    return [f"{said}; no class of them has more than {duration(most_ns)}" if most_ns else said]


def coverage_lines(digest: Digest) -> list[tuple[str, bool]]:
    """(what was read or missed, whether something was missed)."""
    of = {name: digest.coverage.get(name, 0) for name in COVERAGE}
    said = [_decoded(of), *_of_logs(of)]
    if digest.has_whole_seconds:
        said.append(("times: whole seconds only, so the time covered is rounded up to them", True))
    said += _sessions(digest.coverage, of)
    if of["packets"]:
        lost = [counted(of[key], *what) for key, what in _LOST if of[key]]
        if of["gap_bytes"]:
            lost.append(f"{size(of['gap_bytes'])} in gaps")
        line = f"packets: {of['packets']:,}; {', '.join(lost) or 'none lost'}"
        if tunnels := by_name(digest.coverage, "tunnels"):
            line += f"; in tunnels: {listed(tunnels)}"
        if kinds := by_name(digest.coverage, "other_kinds"):
            line += f"; not of the servers: {listed(kinds)}"
        said.append((line, bool(lost)))
    unanswered = [counted(of[key], *what) for key, what in _PARTLY if of[key]]
    if unanswered:
        said.append((f"incomplete: {', '.join(unanswered)}", True))
    said += _not_single(of)
    left = [f"{of[key]:,} {what}" for key, what in _LEFT_OUT if of[key]]
    if left:
        said.append((f"events: {', '.join(left)}", False))
    if of["damaged"]:
        skipped_places = counted(
            of["damaged"], "line, packet or frame was skipped", "lines, packets or frames were skipped"
        )
        said.append((f"damaged: {skipped_places}", True))
    if lost_events := of["lost_events"]:
        share = percent(lost_events / (lost_events + of["read_events"]))
        lost_words = f"lost: at least {counted(lost_events, 'event')} ({share}) that damage or holes made"
        said.append((f"{lost_words} unreadable", True))
    return said


def names_line(digest: Digest) -> str:
    """The option that counts classes with generated names together; empty if most are not alike."""
    alike, fingerprints = digest.alike_but_for_names
    if 2 * alike <= fingerprints:
        return ""
    return (
        f"generated names: {alike:,} of {fingerprints:,} classes differ from another only in digits or hashes of "
        "table names; --fold-names counts them together"
    )


def by_name(coverage: Mapping[str, int], counter: str) -> dict[str, int]:
    """Counts by name, the largest first: ``{"VXLAN (VNI 7)": 22}`` of ``tunnels``."""
    start = f"{counter}."
    found = {name.removeprefix(start): n for name, n in coverage.items() if name.startswith(start) and n}
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def listed(counts: Mapping[str, int]) -> str:
    """``22 ESP, 3 ARP``."""
    shown = [f"{number:,} {name}" for name, number in list(counts.items())[:MOST_LISTED]]
    rest = sum(list(counts.values())[MOST_LISTED:])
    return ", ".join(shown) + (f", {counted(rest, 'other')}" if rest else "")


def _sessions(coverage: Mapping[str, int], of: Mapping[str, int]) -> list[tuple[str, bool]]:
    if not of["sessions"]:
        return []
    foreign = by_name(coverage, "foreign_sessions")
    missing = of["tls_sessions"] + sum(foreign.values()) + of["one_sided_sessions"]
    line = f"sessions: {of['sessions']:,}, readable {percent((of['sessions'] - missing) / of['sessions'])}"
    if of["tls_sessions"]:
        line += f"; {of['tls_sessions']:,} encrypted (TLS), so their statements are missing"
    if foreign:
        line += f"; not the classic MySQL protocol: {listed(foreign)}"
    if of["one_sided_sessions"]:
        line += (
            f"; of {of['one_sided_sessions']:,} only one direction was captured, so nothing of them counts"
        )
    if of["midstream_sessions"]:
        line += f"; {of['midstream_sessions']:,} began before the capture: user and database unknown"
    if of["joined_sessions"]:
        line += f"; {of['joined_sessions']:,} began before the capture, and the server named them"
    if proxied := by_name(coverage, "proxied_sessions"):
        line += f"; announced by a balancer: {listed(proxied)}"
    return [(line, missing + of["midstream_sessions"] > 0)]


def _of_logs(of: Mapping[str, int]) -> Iterator[tuple[str, bool]]:
    """What servers leave out of their logs, and what people and programs changed in them since."""
    if of["throttled_events"]:
        left_out = counted(of["throttled_events"], "statement")
        took_s = of["throttled_ns"] / 1e9
        took = f", {took_s:,.0f} s," if took_s >= 100 else f", {took_s:.3g} s," if took_s else ""
        verb = "is" if of["throttled_events"] == 1 else "are"
        why = "the server left them out (log_throttle_queries_not_using_indexes)"
        yield f"throttled: {left_out}{took} {verb} not in this log: {why}", True
    if of["unread_times"]:
        yield (
            f"times: {counted(of['unread_times'], 'line with # Time:', 'lines with # Time:')} could not be read",
            True,
        )
    if of["unread_accounts"]:
        accounts = counted(of["unread_accounts"], "line with # User@Host:", "lines with # User@Host:")
        yield f"accounts: {accounts} could not be read", True
    if of["unknown_databases"]:
        events = counted(of["unknown_databases"], "event is", "events are")
        why = "older than what the log says of its database before: sorted, or pieces in another order"
        yield f"databases: {events} of an unknown one, {why}", True
    if of["repeated_events"]:
        events = counted(of["repeated_events"], "event is", "events are")
        yield f"repeated: {events} there twice, in one file or in several, and count twice", True
    changed = [counted(of[key], *what) for key, what in _CHANGED if of[key]]
    if changed:
        yield f"changed since the server wrote it: {', '.join(changed)}", False


def _not_single(of: Mapping[str, int]) -> list[tuple[str, bool]]:
    """Of events that stand for others, and of calls that only sums are known of."""
    said = []
    if of["sampled_events"]:
        of_log = counted(
            of["sampled_events"], "event is of a log with log_slow_rate_limit, and stands for",
            "events are of a log with log_slow_rate_limit, and stand for",
        )  # fmt: skip
        about = f"about {of['represented_events']:,}; counts and sums are those of the log"
        said.append((f"sampled: {of_log} {about}", True))
    if of["summarised_events"]:
        calls = counted(of["summarised_events"], "call is", "calls are")
        said.append((f"summary: {calls} known by the server's own sums only, no single one", True))
    return said


def _decoded(of: Mapping[str, int]) -> tuple[str, bool]:
    said = f"decoded: {counted(of['read_events'], 'event')}"
    # Proxies and recordings that cannot be read do not know the size of their source.
    said += f" in {size(of['bytes'])}" if of["bytes"] else ""
    if not of["skipped_bytes"]:
        return said, False
    # The size of a log or capture includes what was skipped of it.
    skipped = of["skipped_bytes"] / max(of["bytes"], of["skipped_bytes"])
    return f"{said}; {size(of['skipped_bytes'])} ({percent(skipped)}) could not be", True


COVERAGE = (
    "read_events", "events", "bytes", "skipped_bytes", "damaged", "lost_events", "sampled_events",
    "represented_events", "summarised_events", "throttled_events", "throttled_ns", "touched_lines",
    "unterminated_events", "unread_times", "unread_accounts", "unknown_databases", "other_lines",
    "repeated_events", "sessions",
    "tls_sessions", "midstream_sessions", "joined_sessions", "one_sided_sessions",
    "unknown_statements", "unbound_executions", "unanswered", "packets", "dropped_packets", "cut_packets",
    "retransmitted_packets",
    "gaps", "gap_bytes", "other_packets", "filtered", "undated", "others",
)  # fmt: skip
#: Coverage -> what it is, of one and of several.
_CHANGED = (
    ("touched_lines", ("header line in another form", "header lines in another form")),
    ("unterminated_events", ("statement without its ;", "statements without their ;")),
    ("other_lines", ("line of another log, left out", "lines of other logs, left out")),
)
_LOST = (
    ("dropped_packets", ("lost by the kernel", "lost by the kernel")),
    ("cut_packets", ("cut by the snap length", "cut by the snap length")),
    ("gaps", ("gap in streams", "gaps in streams")),
)
_PARTLY = (
    ("unknown_statements", ("execution of a statement prepared before the capture",
                            "executions of statements prepared before the capture")),
    ("unanswered", ("request without a complete answer", "requests without a complete answer")),
)  # fmt: skip
_LEFT_OUT = (
    ("filtered", "left out by --since, --until or --filter"), ("undated", "without a time"),
    ("others", "of classes beyond the limit"),
)  # fmt: skip


def overall(digest: Digest, view: View) -> str:
    """All classes together, in one sentence."""
    every = digest.all
    one = "change" if digest.is_binary_log else "call"
    parts = [f"{counted(every.count, one)} in {counted(len(digest.classes), 'class', 'classes')}"]
    if digest.span_s > 0:
        parts[0] += f" over {text.seconds(digest.span_s)}"
        parts.append(f"{count(every.count / digest.span_s)}/s")
        if every.total_ns:
            # Little's law: total response time divided by elapsed time.
            parts.append(f"{count(every.total_ns / 1e9 / digest.span_s)} concurrent on average")
    if every.total_ns:
        shown = [f"{name} {ms(every, name)}" for name in ("p50", "p95", "p99")]
        known = "percentiles are not in the source" if every.is_summarised else ", ".join(shown)
        parts.append(f"mean {text.milliseconds(traffic.mean_ns(every))} ms, {known}, max {most_ms(every)} ms")
    if every.failed:
        share = every.failed_share
        parts.append(f"{every.failed:,} failed" + (f" ({percent(share)})" if share is not None else ""))
    if apdex := apdex_text(every, view.objective_ns):
        parts.append(apdex)
    return "; ".join(parts)


def apdex_text(each: QueryClass, objective_ns: float | None) -> str:
    """``apdex 0.94 at 10 ms (90% within, 8% within 4x, 2% beyond)``; empty without an objective or times."""
    found = traffic.satisfaction(each, objective_ns) if objective_ns else None
    if found is None or objective_ns is None:
        return ""
    shares = (
        f"{percent(found.satisfied)} within, {percent(found.tolerated)} within {traffic.TOLERATED}x, "
        f"{percent(found.frustrated)} beyond"
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


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    if share >= 0.9995 or share == 0:
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def ms(each: QueryClass, name: str) -> str:
    return text.milliseconds(traffic.percentile_ns(each, name))


def most_ms(each: QueryClass) -> str:
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


# -- One class --------------------------------------------------------------------------------------------------


def class_lines(digest: Digest, each: QueryClass, view: View) -> list[tuple[str, str]]:
    """(label, text) about one class; not cleaned."""
    dated = each.number("start_ns")
    when = f"{clock(dated.least)} to {clock(dated.most, '%H:%M:%S')} UTC" if dated.least else "without a time"
    part = percent(each.count / digest.all.count) if digest.all.count else "–"
    calls = f"{counted(each.count, 'call')} ({part})"
    share = traffic.share(each, digest.all)
    if share is not None:
        calls += f", {percent(share)} of the response time ({duration(each.total_ns)})"
    rows = [("class", f"{each.texts.get('id') or '–'}  {calls}"), ("seen", when)]
    for label, name in (("tables", "table"), ("users", "user"), ("hosts", "host"), ("databases", "database")):
        told = ", ".join(each.tables) if name == "table" else _names(each, name)
        if told:
            rows.append((label, told))
    spread = traffic.dispersion_s(each)
    if spread is not None:
        known = [f"{name} {ms(each, name)}" for name in traffic.PERCENTILES]
        least = text.milliseconds(each.number("response_ns").least)
        mean, deviation = traffic.mean_ns(each), traffic.deviation(each)
        shape = f"mean {text.milliseconds(mean)}, stddev {text.milliseconds(deviation)}"
        rows.append(
            ("ms", f"min {least}, {', '.join(known)}, max {most_ms(each)}; {shape}, V/M {spread:.3g} s")
        )
    elif each.is_summarised:
        stated = [(name, traffic.percentile_ns(each, name)) for name in traffic.PERCENTILES]
        known = [f"{name} {text.milliseconds(ns)}" for name, ns in stated if ns is not None]
        least = text.milliseconds(each.number("response_ns").least)
        known = [f"min {least}", *known, f"max {most_ms(each)}"]
        rows.append(("ms", f"{', '.join(known)}; mean {text.milliseconds(traffic.mean_ns(each))}"))
    if each.first_byte.total:
        first = each.number("first_byte_ns")
        bounds = (each.first_byte, "p99", first.least, first.most)
        top = text.milliseconds(traffic.value_at(*bounds))
        rows.append(("first byte", f"mean {text.milliseconds(first.sum / first.count)} ms, p99 {top}"))
    rows += [_measure(each, name) for name, number in each.measures.items() if number.sum]
    if each.failed is not None and (each.failed or each.number("unanswered").count):
        numbers = ", ".join(f"{label.text} ×{label.count:,}" for label in each.labels.get("error", ())[:8])
        told = f"{each.failed:,} failed" + (f" (error {numbers})" if numbers else "")
        lost = each.number("unanswered").count
        rows.append(("errors", told + (f", {lost:,} unanswered" if lost else "")))
    if apdex := apdex_text(each, view.objective_ns):
        rows.append(("apdex", apdex.removeprefix("apdex ")))
    return rows


def _names(each: QueryClass, kind: str) -> str:
    found = each.labels.get(kind, ())
    shown = [f"{label.text} {percent(label.count / each.count)}" for label in found[:MOST_NAMES]]
    more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    return ", ".join(shown) + more


#: The columns of a table of attributes, after their names.
ATTRIBUTE_COLUMNS = ("total", "min", "mean", "95%", "max", "stddev")


def _measure(each: QueryClass, name: str) -> tuple[str, str]:
    """(label, text)."""
    if name.startswith("is_"):
        number = each.number(name)
        return name.removeprefix("is_").replace("_", " "), f"{percent(number.sum / number.count)} of calls"
    label, (total, *cells) = attribute(each, name)
    known = [f"{of} {cell}" for of, cell in zip(ATTRIBUTE_COLUMNS[1:], cells, strict=True) if cell != "–"]
    return label, f"{', '.join(known)}; {total} in all"


def attribute(each: QueryClass, name: str) -> tuple[str, list[str]]:
    """A measure's label, and its cells under ATTRIBUTE_COLUMNS; the name of a measure includes its unit."""
    form: Callable[[float], str] = short_number
    for suffix, of_unit in (("_ns", duration), ("_bytes", size)):
        if name.endswith(suffix):
            form = of_unit
    # A response in bytes is no response time.
    label = name.removesuffix("_ns")
    found = traffic.attribute(each, name)
    values = (found.total, found.least, found.mean, found.p95, found.most, found.deviation)
    return label.replace("_", " "), [form(value) if value is not None else "–" for value in values]


def attributes(each: QueryClass) -> list[tuple[str, list[str]]]:
    """All that are more than a share of the calls and not always 0."""
    known = [name for name, number in each.measures.items() if number.sum and not name.startswith("is_")]
    return [attribute(each, name) for name in known]


def slowest(each: QueryClass) -> list[str]:
    """When the slowest call ran (if that is known), how long it took, and its client."""
    sample, took = each.sample, each.sample.get("response_ns")
    who = "@".join(str(sample[key]) for key in ("user", "host") if sample.get(key))
    # A call without a time starts at 0.
    when = clock(sample["start_ns"]) if sample.get("start_ns") else ""
    found = [when, f"{text.milliseconds(took)} ms" if took is not None else "", who]
    return [part for part in found if part]


def sample_text(each: QueryClass, most: int) -> str:
    """The slowest call's text, cut to ``most`` characters."""
    told = str(each.sample.get("text") or "")
    is_cut = int(each.sample.get("text_bytes") or 0) > len(told.encode()) or len(told) > most
    return told[:most] + (" ..." if is_cut else "")
