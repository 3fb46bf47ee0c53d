"""What clients ask of memcached: by command and pattern of key, from captured packets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.base.counted import counted
from headrace.show.parts import Column, Gap, Key, Keys, Page, Part, Section, Sentence, Table, method
from headrace.traffic.report.words import clock, duration, listed, percent, place_text, short_number, size

#: Hot keys and damaged places on a terminal.
MOST_KEYS, MOST_PLACES = 5, 3
#: How a key of a request fared otherwise than found or missed; in the order of the sentence.
_OTHERWISE = (
    ("failed", "answered with an error"),
    ("refused", "not stored, as asked (add, replace, cas)"),
    ("silent", "without an answer to expect (noreply, q)"),
    ("unanswered", "without an answer"),
)
_METHOD = (
    (
        "A pattern",
        "is what keys have in common. Digits, hashes, UUIDs, mail addresses and other text are replaced: <n>, "
        "<hex>, <uuid>, <mail>, <text>, <id>, and <word> for words that are not common. No value is kept.",
    ),
    (
        "Latency",
        "runs from the first byte of a request to the last byte of its answer, where the packets were captured. "
        "The time of a request with many keys is divided among them equally.",
    ),
    (
        "Hits",
        "are keys that were there, of those that were looked up: of get, gets, gat, gats, mg, and of delete, "
        "incr, decr, touch, md, ma.",
    ),
    (
        "Hot keys",
        "are those of at least 1% of all keys asked for. A hash has a salt of its own in each run. A count is at "
        "most 0.1% of all keys too low; the range is shown.",
    ),
)


def page_of(read: Mapping[str, Any], top: int) -> Page:
    span_s = _span_s(read)
    when = "no request"
    if span_s is not None:
        when = f"{clock(read['first_ns'])} to {clock(read['last_ns'])} UTC"
    classes = read["classes"]
    brief = [*_seen(read), Gap(), *_table(classes, top), Gap(), *_hot(read["hot_keys"])]
    parts = [*_seen(read), Keys(_keys(read)), *_table(classes, len(classes)), *_hot(read["hot_keys"])]
    return Page(
        eyebrow="headrace digest memcached",
        title=", ".join(read["sources"]),
        lead=when,
        verdicts=[],
        sections=[
            Section("memcached", "memcached", "What clients ask of memcached", parts, brief=brief),
            Section("method", "What the numbers mean", "What the numbers mean", [method(_METHOD)]),
        ],
        footer="no value and, unless asked for, no key is shown",
        data={**read, "span_s": span_s},
    )


def _span_s(read: Mapping[str, Any]) -> float | None:
    return None if read["first_ns"] is None else (read["last_ns"] - read["first_ns"]) / 1e9


def _keys(read: Mapping[str, Any]) -> list[Key]:
    span_s, latency, clients = _span_s(read), read["latency_ns"], read["clients"]
    rate = f"{short_number(read['requests'] / span_s)}/s over {duration(span_s * 1e9)}" if span_s else ""
    more = " or more" if clients["has_more"] else ""
    return [
        Key("Requests", f"{read['requests']:,}", rate),
        Key("Keys", f"{read['keys']:,}"),
        Key(
            "p99 latency", _time(latency["p99"]), f"p50 {_time(latency['p50'])}, max {_time(latency['max'])}"
        ),
        Key(
            "Connections",
            f"{read['coverage']['sessions']:,}",
            f"of {counted(clients['count'], 'client')}{more}",
        ),
    ]


def _seen(read: Mapping[str, Any]) -> Iterator[Part]:
    """What was read, and what was not: first, so that half of the traffic is not taken for all of it."""
    of = read["coverage"]
    if read["unreadable"]:
        yield Sentence(f"Nothing could be read: {read['unreadable']}", "attention")
    if read["ended"]:
        yield Sentence(read["ended"], "attention")
    if not (read["requests"] or read["unreadable"]):
        ports = ", ".join(map(str, read["ports"]))
        packets = counted(of["server_packets"], "packet")
        yield Sentence(
            f"No request was seen: {packets} of {of['packets']:,} on port {ports} (--port)", "attention"
        )
    requests, _, latency, connections = _keys(read)
    yield Sentence(
        f"{counted(read['requests'], 'request')} of {counted(read['keys'], 'key')}, {requests.note}; "
        f"latency p99 {latency.value}, {latency.note}; {counted(of['sessions'], 'connection')} {connections.note}"
    )
    lost = [counted(of[name], *what) for name, what in _LOST if of[name]]
    lost += [f"{size(of['skipped_bytes'])} not read"] * bool(of["skipped_bytes"])
    lost += [f"other protocols: {listed(of['foreign_sessions'])}"] * bool(of["foreign_sessions"])
    if lost:
        yield Sentence(f"not read or incomplete: {'; '.join(lost)}", "attention")
    otherwise = [
        f"{count:,} {what}"
        for name, what in _OTHERWISE
        if (count := sum(each[name] for each in read["classes"]))
    ]
    if otherwise:
        yield Sentence(f"keys {', '.join(otherwise)}", "aside")
    for place in of["places"][:MOST_PLACES]:
        yield Sentence(f"    {place_text({**place, 'item': 0})}", "aside")
    if hidden := read["keys_with_hidden_words"]:
        yield Sentence(
            f"{percent(hidden / read['keys'])} of the keys have a word that is hidden (<word>): --key-words NAME "
            "shows one of yours, --key-words all shows all",
            "aside",
        )


_LOST = (
    ("tls_sessions", ("connection with TLS", "connections with TLS")),
    ("one_sided_sessions", ("connection of which one direction was captured",
                            "connections of which one direction was captured")),
    ("midstream_sessions", ("connection that began before the capture, read from its next request on",
                            "connections that began before the capture, read from their next request on")),
    ("damaged", ("place of damage, missing bytes or an answer that fits no request",
                 "places of damage, missing bytes or answers that fit no request")),
    ("unanswered", ("request without an answer", "requests without an answer")),
    ("dropped_packets", ("packet lost by the kernel", "packets lost by the kernel")),
    ("cut_packets", ("packet cut by the snap length", "packets cut by the snap length")),
    ("gaps", ("gap in streams", "gaps in streams")),
)  # fmt: skip


def _table(classes: Sequence[Mapping[str, Any]], top: int) -> Iterator[Part]:
    if not classes:
        return
    columns = (
        Column("command"), Column("keys"), Column("requests", "n"), Column("of keys", "n", 4), Column("hits", "n"),
        Column("p50", "n", 2, "value"), Column("p99", "n", 1, "value"), Column("max", "n", 3, "value"),
        Column("p50", "n", 2, "latency"), Column("p99", "n", 0, "latency"), Column("max", "n", 1, "latency"),
        Column("time", "n"),
    )  # fmt: skip
    yield Table(columns, [_row(each) for each in classes[:top]])
    if rest := classes[top:]:
        share = sum(each["share_of_time"] or 0 for each in rest)
        yield Sentence(f"and {len(rest):,} more, with {percent(share)} of the time (--top N)", "aside")


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    sizes, times = each["value_bytes"], each["latency_ns"]
    values = ("-" if sizes[name] is None else size(sizes[name]) for name in ("p50", "p99", "max"))
    hits, share = each["hit_rate"], each["share_of_time"]
    return (
        each["command"],
        each["pattern"] or "-",
        f"{each['requests']:,}",
        f"{each['keys']:,}",
        "-" if hits is None else percent(hits),
        *values,
        *(_time(times[name]) for name in ("p50", "p99", "max")),
        "-" if share is None else percent(share),
    )


def _time(value_ns: float | None) -> str:
    return "-" if value_ns is None else duration(value_ns)


def _hot(hot: Mapping[str, Any]) -> Iterator[Part]:
    if not hot["keys"]:
        yield Sentence(f"hot keys: none has {percent(hot['share_from'])} of all keys asked for", "aside")
        return
    columns = (Column("hot key"), Column("pattern"), Column("requests", "n"), Column("share", "n"))
    rows = [
        (
            each["key"] or each["hash"],
            each["pattern"],
            _range(f"{each['requests_least']:,}", f"{each['requests_most']:,}"),
            _range(percent(each["share_least"]), percent(each["share_most"])),
        )
        for each in hot["keys"][:MOST_KEYS]
    ]
    yield Table(columns, rows)
    if more := len(hot["keys"]) - len(rows) + hot["more"]:
        yield Sentence(f"and {more:,} more (--json has 20)", "aside")


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
