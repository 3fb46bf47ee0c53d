"""A digest's report: what comes first, what fits, what hostile text does to it, and how the page looks."""

from __future__ import annotations

import io
import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headrace.show import html, terminal
from headrace.show.parts import Part
from headrace.traffic import figures as traffic
from headrace.traffic.digests.classes import Digest, open_digest
from headrace.traffic.digests.history import Review
from headrace.traffic.digests.lines import read_lines
from headrace.traffic.report import compare as digest_compare
from headrace.traffic.report import history as digest_history
from headrace.traffic.report import words as views
from headrace.traffic.report.jsonform import to_json
from headrace.traffic.report.page import page_of
from headrace.traffic.report.words import View
from tests import browser, digests
from tests.digests import SECOND_NS, START_NS, Event, Shape
from tests.folders import TESTS

MS = 1_000_000
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202eevil\x00'\"&<!--{{ 7*7 }}</pre>\x9b2J"
NEEDS_BROWSER = pytest.mark.needs("chromium")


def digest(events: list[Event], shape: Shape | None = None) -> Digest:
    return open_digest(read_lines(digests.lines(events, shape), "test"))


def printed(content: Iterable[Part], width: int = 120, *, colours: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colours, no_color=not colours)
    console.print(terminal.show(content))
    return out.getvalue()


def test_folding_is_suggested_where_most_classes_differ_in_nothing_else() -> None:
    lines = [json.loads(line) for line in digests.lines([Event(START_NS, klass) for klass in range(5)])]
    classes = [line for line in lines if line["type"] == "class"]
    for count, is_suggested in ((0, False), (2, False), (3, True), (5, True)):
        for line in classes[:count]:
            line["folded_id"] = "f" * 16
        found = open_digest(read_lines(map(json.dumps, lines), "test"))
        assert found.alike_but_for_names == (count, 5)
        assert ("--fold-names" in printed(brief(found, View()))) == is_suggested
        assert ("--fold-names" in rendered(found, View())) == is_suggested
        assert to_json(found, View())["classes_alike_but_for_names"] == count


def brief(found: Digest, view: View) -> list[Part]:
    return [part for section in page_of(found, view).sections for part in section.brief]


def rendered(found: Digest, view: View) -> str:
    return html.render(page_of(found, view))


def test_much_time_beyond_the_limit_of_classes_is_said_first() -> None:
    said = [
        json.loads(line) for line in digests.lines([Event(START_NS, 0, 90 * MS), Event(START_NS, 1, 10 * MS)])
    ]
    last = len(said) - 2
    said[last] |= {"id": None, "key": None, "fingerprint": None, "is_others": True, "sample": None}
    said[0]["unlisted_most_ns"] = 4 * MS
    for whole_ms, expected in (
        (
            100,
            "10.0% of the response time (1 call) is of statements beyond the limit of this digest's; no class of",
        ),
        (300, ""),
    ):
        said[1]["response_sum_ns"] = whole_ms * MS
        found = open_digest(read_lines(map(json.dumps, said), "test"))
        first = printed(brief(found, View()), 300).lstrip().splitlines()[0]
        assert ("beyond the limit of" in first) == bool(expected)
        assert first.startswith(expected)
        assert ("beyond the limit of this" in rendered(found, View())) == bool(expected)


def hostile() -> Digest:
    shape = Shape(
        inputs=[HOSTILE], host=HOSTILE, fingerprint=HOSTILE + " {0}".replace("{0}", ""),
        coverage={"damaged": 1, "places": [{"input": HOSTILE, "offset": 1, "item": 2, "reason": HOSTILE}]},
    )  # fmt: skip
    shape.fingerprint = shape.fingerprint.replace("{", "{{").replace("}", "}}")
    events = [
        Event(START_NS + n * SECOND_NS, n % 3, MS * (n + 1), HOSTILE, HOSTILE, HOSTILE, 1062, text=HOSTILE)
        for n in range(40)
    ]
    return digest(events, shape)


def lossy() -> Digest:
    coverage = {
        "sessions": 50, "tls_sessions": 10, "midstream_sessions": 5, "packets": 9_000, "dropped_packets": 3,
        "gaps": 2, "gap_bytes": 1_234, "skipped_bytes": 5_000, "damaged": 30, "unknown_statements": 4,
        "unanswered": 2, "lost_events": 125, "sampled_events": 400, "represented_events": 4_000,
        "throttled_events": 39, "throttled_ns": 913_010_000_000, "unread_times": 2,
        "unread_accounts": 3, "unknown_databases": 7, "repeated_events": 1,
        "places": [{"input": "a.pcap", "offset": 7, "item": n, "reason": "cut"} for n in range(20)],
    }  # fmt: skip
    return digest(digests.traffic(1, 500), Shape(inputs=["a.pcap"], coverage=coverage))


def test_coverage_comes_first_and_says_what_was_lost() -> None:
    lines = printed(brief(lossy(), View())).splitlines()
    assert lines[0].startswith("a.pcap (db1) · strict fingerprints")
    assert lines[1].startswith("decoded: 500 events in 50 kB; 5 kB (10.0%) could not be")
    assert lines[2].startswith("throttled: 39 statements, 913 s, are not in this log")
    told = "\n".join(lines[:23])
    for said in (
        "sessions: 50, readable 80.0%; 10 encrypted (TLS)", "5 began before the capture",
        "3 lost by the kernel",
        "2 lines with # Time: could not be read", "3 lines with # User@Host: could not be read",
        "databases: 7 events are of an unknown one", "repeated: 1 event is there twice",
        "2 gaps in streams, 1.23 kB in gaps", "4 executions of statements prepared before", "damaged: 30",
        "at least 125 events (20.0%)", "400 events are of a log with log_slow_rate_limit",
        "a.pcap, item 0, byte 7: cut", "and 25 more",
    ):  # fmt: skip
        assert said in told
    assert next(n for n, line in enumerate(lines) if "500 calls in" in line) < next(
        n for n, line in enumerate(lines) if line.strip().startswith("#")
    )


def test_tunnels_balancers_and_other_protocols_are_named() -> None:
    coverage = {
        "sessions": 10, "packets": 90, "other_packets": 12, "one_sided_sessions": 1,
        "foreign_sessions": {"HTTP": 1, "MySQL's X protocol": 2}, "proxied_sessions": {"PROXY v2": 4},
        "tunnels": {"VXLAN (VNI 7)": 22}, "other_kinds": {"ESP": 10, "ARP": 2},
    }  # fmt: skip
    told = printed(brief(digest(digests.traffic(1, 500), Shape(coverage=coverage)), View()))
    for said in (
        "sessions: 10, readable 60.0%; not the classic MySQL protocol: 2 MySQL's X protocol, 1 HTTP",
        "of 1 only one direction was captured", "announced by a balancer: 4 PROXY v2",
        "in tunnels: 22 VXLAN (VNI 7)", "not of the servers: 10 ESP, 2 ARP",
    ):  # fmt: skip
        assert said in " ".join(told.split())


def test_an_empty_result_says_why_in_the_first_line() -> None:
    for shape, why in (
        (Shape(coverage={"sessions": 7, "tls_sessions": 7}), "All 7 sessions are encrypted (TLS)"),
        (Shape(coverage={"events": 500}, filtered=500), "Nothing matches"),
        (Shape(coverage={"packets": 9, "other_packets": 9}), "None of the 9 packets"),
        (
            Shape(coverage={"packets": 9, "other_packets": 9, "other_kinds": {"ARP": 2, "ESP": 7}}),
            "None of the 9 packets is one of a server on the ports that were read: 7 ESP, 2 ARP",
        ),
        (
            Shape(coverage={"packets": 9, "sessions": 2, "foreign_sessions": {"HTTP": 2}}),
            "No session of the classic MySQL protocol could be read; others: 2 HTTP",
        ),
        (Shape(), "No event was found"),
    ):
        empty = digest([], shape)
        assert printed(brief(empty, View())).strip().startswith(why)
        assert why in rendered(empty, View())


def test_a_note_on_a_whole_input_has_no_position() -> None:
    assert views.place_text({"input": "a.pcap", "offset": 0, "item": 0, "reason": "why"}) == "a.pcap: why"


def test_the_deviation_is_that_of_the_events() -> None:
    events = digests.traffic(3, 400)
    times = [event.response_ns for event in events if event.response_ns is not None]
    found = traffic.deviation(digest(events).all)
    assert found == pytest.approx(statistics.pstdev(times))
    assert to_json(digest(events), View())["all"]["response_ns"]["stddev"] == found


def test_attributes_are_those_of_the_events_and_of_any_parts_of_them() -> None:
    events = [replace(event, rows_examined=n * n % 977) for n, event in enumerate(digests.traffic(3, 400))]
    values = sorted(event.rows_examined or 0 for event in events)
    lines = [*digests.lines(events[:150]), *digests.lines(events[150:])]
    for found in (digest(events), open_digest(read_lines(lines, "test"))):
        shown = to_json(found, View())["all"]["rows_examined"]
        assert (shown["sum"], shown["least"], shown["most"]) == (sum(values), values[0], values[-1])
        assert shown["stddev"] == pytest.approx(statistics.pstdev(values))
        assert shown["p95"] == pytest.approx(values[-(-400 * 95 // 100) - 1], rel=0.032)
        for said in (printed(brief(found, View())), rendered(found, View())):
            assert all(word in said for word in ("rows examined", "stddev", "95%"))


def test_a_digest_of_an_earlier_agent_has_what_it_counted() -> None:
    def older(line: str) -> str:
        told = json.loads(line)
        for known in told.values():
            if isinstance(known, dict) and "known" in known:
                for name in ("sum_squares", "min", "buckets"):
                    known.pop(name)
        return json.dumps(told)

    events = digests.traffic(3, 400)
    found = open_digest(read_lines(map(older, digests.lines(events)), "test"))
    shown = to_json(found, View())["all"]["rows_examined"]
    assert (shown["p95"], shown["stddev"], shown["least"]) == (None, None, None)
    assert shown["sum"] == sum(event.rows_examined or 0 for event in events)
    assert "rows examined" in printed(brief(found, View()))
    assert "rows examined" in rendered(found, View())


def test_a_source_that_does_not_report_errors_has_no_share_of_failed_calls() -> None:
    unjudged = digest([replace(event, is_judged=False, error=None) for event in digests.traffic(1, 100)])
    assert unjudged.all.failed is None
    assert "does not report it" in rendered(unjudged, View())
    assert all(each["failed"] is None for each in to_json(unjudged, View())["classes"])
    assert "failed" not in views.overall(unjudged, View())


def test_a_whole_source_has_no_warning() -> None:
    assert [is_loss for _, is_loss in views.coverage_lines(digest(digests.traffic(1, 100)))] == [False]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_the_ranking_fits_any_terminal(width: int) -> None:
    found = digest(
        digests.traffic(2, 5_000, 40), Shape(fingerprint="select a, b, c from t{0} where " + "x = ? and " * 9)
    )
    text = printed(brief(found, View(limit=30, objective_ns=MS)), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    ranking = text[text.index("#") :]
    for rank in range(1, 11):
        assert re.search(rf"^ *{rank} +\d", ranking, re.MULTILINE)


def test_wide_terminals_show_every_figure() -> None:
    text = printed(brief(digest(digests.traffic(2, 5_000)), View(objective_ns=10 * MS, details=1)), 160)
    for said in (
        "p50",
        "p95",
        "p99",
        "max",
        "V/M",
        "sent",
        "exam",
        "err",
        "/s",
        "apdex",
        "≥ 1 ms",
        "over time",
        "slowest call",
    ):
        assert said in text


def test_colours_are_left_out_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    content = brief(lossy(), View())
    assert "\x1b[" in printed(content, colours=True)
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    Console(file=out, width=100, force_terminal=True).print(terminal.show(content))
    assert "\x1b[3" not in out.getvalue()  # bold and dim are no colours


def test_hostile_text_reaches_no_terminal() -> None:
    found = hostile()
    compared = traffic.compare(found, found)
    days = {"2026-03-01": found}
    review = Review(HOSTILE, HOSTILE, HOSTILE)
    seen = traffic.seen(days)
    for content in (
        brief(found, View(plans={found.classes[0].name: HOSTILE})),
        digest_compare.compared(found, found, compared, 5),
        digest_compare.beside(found, found, traffic.sides(found, found), 5),
        digest_history.overview(days, seen, {found.classes[0].name: review}, 5),
        digest_history.one_class(found.classes[0].name, days, review),
    ):
        text = printed(content, 200)
        assert "evil" in text
        for character in "\x1b\x00\x9b\u202e":
            assert character not in text


def test_a_source_without_times_is_shown_without_them() -> None:
    events = [Event(START_NS, n % 2, None, rows_sent=None, rows_examined=None) for n in range(10)]
    text = printed(brief(digest(events), View(objective_ns=MS)))
    assert "10 calls in 2 classes" in text
    assert "nan" not in text
    page = rendered(digest(events), View(objective_ns=MS))
    assert "<script>" not in page
    assert "nan" not in page.lower().split("<main>")[1]


def test_nothing_at_all_is_a_report_too() -> None:
    empty = digest([])
    assert "0 calls in 0 classes" in printed(brief(empty, View(objective_ns=MS)))
    assert "0 calls in 0 classes" in rendered(empty, View())
    json.dumps(to_json(empty, View()))


def test_json_has_what_the_terminal_has() -> None:
    found = digest(digests.traffic(3, 3_000))
    told = json.loads(json.dumps(to_json(found, View(limit=3, objective_ns=MS))))
    assert told["all"]["calls"] == 3_000
    assert told["class_count"] == len(found.classes)
    assert len(told["classes"]) == 3
    first = told["classes"][0]
    assert first["response_ns"]["p99"] <= first["response_ns"]["max"]
    assert sum(count for _, count in first["buckets"]) == first["calls"]
    assert first["sample"]["text"].startswith("SELECT")
    assert first["users"][0]["calls"] > 0


def test_a_comparison_claims_no_significance() -> None:
    before, after = digest(digests.traffic(1)), digest(digests.traffic(1, slower=2.0))
    text = printed(digest_compare.compared(before, after, traffic.compare(before, after), 10))
    assert "no significance is claimed" in " ".join(text.split())
    assert "2.00" in text
    json.dumps(digest_compare.compared_json(before, after, traffic.compare(before, after)))


def test_client_and_server_say_that_percentiles_do_not_subtract() -> None:
    server = digest(digests.traffic(1, 20_000))
    client = digest(
        [Event(e.start_ns, e.klass, (e.response_ns or 0) + 9 * MS) for e in digests.traffic(1, 20_000)]
    )
    found = traffic.sides(client, server)
    text = " ".join(printed(digest_compare.beside(client, server, found, 5), 160).split())
    assert "is not the percentile of the differences" in text
    assert re.search(r"mean \d+\.\d% .* p90 \d+%, p99 \d+%", text)
    assert "counted different calls" not in text
    json.dumps(digest_compare.beside_json(client, server, found))


# -- The time that rates refer to -------------------------------------------------------------------------------


def filtered(events: list[Event], since_ns: int | None, until_ns: int | None) -> list[str]:
    """The digest's lines with these bounds of ``--since`` and ``--until``."""
    head, *rest = digests.lines(events)
    bounds: dict[str, object] = {"since_ns": since_ns, "until_ns": until_ns, "filters": []}
    return [json.dumps({**json.loads(head), "filter": bounds}), *rest]


def whole_seconds(n: int, stamp_s: int = 5) -> list[Event]:
    """Calls of a few ms that all ended in one second, as a log without fractions has them."""
    end_ns = START_NS + stamp_s * SECOND_NS
    return [Event(end_ns - MS * (1 + i % 20), i % 3, MS * (1 + i % 20)) for i in range(n)]


def test_one_session_is_never_more_than_one_call_at_once() -> None:
    two = [
        Event(START_NS + 18 * SECOND_NS, 0, 2 * SECOND_NS),
        Event(START_NS + 22 * SECOND_NS, 0, 3 * SECOND_NS),
    ]
    found = digest(two)
    assert found.span_s == 7
    assert "2 calls in 1 class over 7 s; 0.286/s; 0.714 concurrent on average" in views.overall(found, View())
    told = to_json(found, View())
    assert (told["span_s"], told["all"]["calls_a_second"]) == (7, 2 / 7)
    assert "00:00:18 to 2026-03-01 00:00:25 UTC" in page_of(found, View()).lead


@pytest.mark.parametrize("has_samples", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_span_ends_with_the_last_call_whatever_it_was_merged_from(seed: int, has_samples: bool) -> None:
    def kept(line: str) -> str:
        told = json.loads(line)
        return json.dumps({**told, "sample": None}) if "sample" in told and not has_samples else line

    # Calls of up to seconds, so that the last to start is seldom the last to end.
    events = digests.traffic(seed, 400, 5, 20, slower=800)
    parts = [map(kept, digests.lines(some, Shape(slice_s=width))) for some, width in
             ((events[:150], 1), (events[150:], 2))]  # fmt: skip
    whole = open_digest(read_lines(map(kept, digests.lines(events, Shape(slice_s=2))), "test"))
    merged = open_digest(read_lines([line for part in parts for line in part], "test"))
    start_ns = min(event.start_ns for event in events)
    end_ns = max(event.start_ns + (event.response_ns or 0) for event in events)
    assert merged.span_ns == whole.span_ns
    assert merged.span_ns is not None
    assert merged.span_ns[0] == start_ns
    assert end_ns <= merged.span_ns[1] <= end_ns + 2 * SECOND_NS


def test_the_last_and_the_slowest_call_are_known_to_the_nanosecond() -> None:
    slow = Event(START_NS + 3, 0, 60 * SECOND_NS)
    last = Event(START_NS + 10 * SECOND_NS + 7, 0, SECOND_NS)
    for events, end in (([slow, last], slow), ([replace(slow, response_ns=MS), last], last)):
        assert digest(events).span_ns == (slow.start_ns, end.start_ns + (end.response_ns or 0))


def test_since_and_until_are_the_span() -> None:
    def over(since_s: int | None, until_s: int | None, events: list[Event]) -> float:
        since, until = (None if s is None else START_NS + s * SECOND_NS for s in (since_s, until_s))
        return open_digest(read_lines(filtered(events, since, until), "test")).span_s

    # The last of them runs past the end.
    some = [Event(START_NS + 7 * SECOND_NS + 5, 0, 9 * SECOND_NS), Event(START_NS + 3 * SECOND_NS + 1, 0, MS)]
    assert over(0, 10, some) == 10
    assert over(0, None, some) == over(None, 10, some) == digest(some).span_s
    # What another part has outside is not left out.
    later = [Event(START_NS + 60 * SECOND_NS + 3, 0, 2 * SECOND_NS)]
    lines = [*filtered(some, START_NS, START_NS + 10 * SECOND_NS), *digests.lines(later)]
    assert open_digest(read_lines(lines, "test")).span_ns == (START_NS, START_NS + 62 * SECOND_NS + 3)


def test_whole_seconds_are_said_and_rounded_outwards() -> None:
    found = digest(whole_seconds(440))
    assert found.span_ns == (START_NS + 4 * SECOND_NS, START_NS + 5 * SECOND_NS)
    assert "over 1 s; 440/s" in views.overall(found, View())
    words = "times: whole seconds only"
    assert words in printed(brief(found, View()))
    assert words in rendered(found, View())
    finer = digest([*whole_seconds(440), Event(START_NS + 5 * SECOND_NS + 1, 9, MS)])
    assert words not in printed(brief(finer, View()))
    # A general log has no response times; all of its calls may be in one second.
    general = digest([Event(START_NS, n % 2, None) for n in range(10)])
    assert (general.has_whole_seconds, general.span_s) == (True, 1)


def test_a_comparison_has_the_same_span() -> None:
    before = digest([Event(START_NS + n * SECOND_NS + n, 0, SECOND_NS) for n in range(10)])
    after = digest([Event(START_NS + n * SECOND_NS + n, 0, SECOND_NS) for n in range(0, 10, 2)])
    text = printed(digest_compare.compared(before, after, traffic.compare(before, after), 10), 200)
    assert "response time per second of traffic 1 s → 556 ms (0.556×)" in text
    assert "10 calls, 2026-03-01 00:00:00 to 2026-03-01 00:00:10 UTC" in text
    assert digest_compare.compared_json(before, after, [])["after"]["span_s"] == pytest.approx(9)


# -- Words ------------------------------------------------------------------------------------------------------


def test_one_of_anything_is_singular() -> None:
    one = Shape(coverage={
        "damaged": 1, "lost_events": 1, "gaps": 1, "unknown_statements": 1, "unanswered": 1, "packets": 9,
        "sampled_events": 1, "represented_events": 5, "throttled_events": 1, "unterminated_events": 1,
        "touched_lines": 1, "other_lines": 1,
    })  # fmt: skip
    events = [Event(START_NS + n * 9 * SECOND_NS + n, n // 2, MS) for n in range(3)]
    text = printed(brief(digest([events[0]], one), View()), 200) + printed(brief(digest(events), View()), 200)
    for said in (
        "1 call in 1 class", "decoded: 1 event in", "1 line, packet or frame was skipped", "1 gap in streams",
        "at least 1 event (", "1 execution of a statement prepared", "1 request without", "1 event is of a log",
        "at most 1 call in", "1 statement is not in this log", "1 statement without its ;", "1 header line in",
        "1 line of another log",
    ):  # fmt: skip
        assert said in text
    assert not re.search(r"\b1 (calls|classes|events|gaps|lines|requests|executions)\b", text)


def test_new_and_gone_classes_have_calls_where_others_have_a_ratio() -> None:
    before = digest([Event(START_NS + n * SECOND_NS + n, 0, MS) for n in range(5)])
    after = digest([Event(START_NS + n * SECOND_NS + n, n // 4, MS) for n in range(5)])
    text = printed(digest_compare.compared(before, after, traffic.compare(before, after), 10), 200)
    assert "1 new class, 0 gone, 1 in both" in text
    _, _, new = text.partition("\nNew\n")
    head, line, below = new.splitlines()[:3]
    assert head.split() == ["load/s", "calls", "mean", "ms"]
    assert line.split()[2] == "1"
    assert "×" not in line
    assert below.strip().startswith("select")


def test_a_comparison_shows_texts_in_full_and_leaves_monitors_out() -> None:
    def named(number: int, text: str) -> str:
        told = [
            json.loads(line) for line in digests.lines([Event(START_NS + n, n % 2, MS) for n in range(9)])
        ]
        [each for each in told if each["type"] == "class"][number] |= {"fingerprint": text, "tables": []}
        found = open_digest(read_lines(map(json.dumps, told), "test"))
        return printed(digest_compare.compared(found, found, traffic.compare(found, found), 10), 80)

    long = "select " + ", ".join(f"column_{n}" for n in range(30)) + " from orders"
    assert long in " ".join(named(0, long).split())
    assert "Not listed: 1 class that only asks the server" in " ".join(named(1, "show global status").split())


def test_a_log_of_slow_calls_beside_one_of_all_calls_is_told() -> None:
    def calls(shortest: int) -> Digest:
        return digest([Event(START_NS + n * SECOND_NS + n, 0, shortest + n) for n in range(200)])

    def said(before: Digest, after: Digest) -> str:
        return " ".join(
            printed(digest_compare.compared(before, after, traffic.compare(before, after), 9)).split()
        )

    assert "Before may lack fast calls: 95% of its calls took 49.9 ms" in said(
        calls(50 * MS), calls(MS // 10)
    )
    assert "After may lack fast calls" in said(calls(MS // 10), calls(50 * MS))
    for same in (said(calls(50 * MS), calls(40 * MS)), said(calls(MS), calls(MS // 100))):
        assert "may lack" not in same


def test_a_call_without_a_time_was_not_in_1970() -> None:
    lines = []
    for line in digests.lines([Event(START_NS, 0, 5 * MS)]):
        told = json.loads(line)
        if told["type"] in ("class", "totals", "digest"):
            told |= {"first_ns": None, "last_ns": None}
        if told["type"] == "heat":
            told["slices"] = []
        if told["type"] == "class":
            told |= {"slices": [], "sample": {**told["sample"], "start_ns": 0}}
        lines.append(json.dumps(told))
    found = open_digest(read_lines(lines, "test"))
    text = printed(brief(found, View()), 200)
    assert "1970" not in text + rendered(found, View())
    assert "slowest call: 5.00 ms, app@10.0.0.1" in text
    assert re.search(r"seen +without a time", text)
    assert found.span_s == 0


@pytest.mark.parametrize(
    ("of", "said"),
    [
        # A recording of which nothing could be read, and a proxy.
        ({"bytes": 0, "skipped_bytes": 4_760}, "decoded: 0 events; 4.76 kB (100%) could not be"),
        ({"bytes": 0, "skipped_bytes": 0}, "decoded: 0 events"),
        # A log's size includes what was skipped.
        ({"bytes": 1_000, "skipped_bytes": 750}, "decoded: 0 events in 1 kB; 750 B (75.0%) could not be"),
    ],
)
def test_the_share_that_could_not_be_decoded(of: dict[str, int], said: str) -> None:
    assert views.coverage_lines(digest([], Shape(coverage=of)))[0] == (said, of["skipped_bytes"] > 0)


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_narrow_terminals_drop_columns_of_a_call_whole(width: int) -> None:
    lines = printed(brief(digest(digests.traffic(2, 5_000)), View(details=0)), width).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("per call"))
    names = lines[at].removeprefix("per call").split()
    assert set(names) <= set(views.ATTRIBUTE_COLUMNS)
    assert "mean" in names
    assert lines[at + 1].startswith("rows examined")
    assert lines[at + 2].startswith("rows sent")
    assert max(map(len, lines[at : at + 3])) <= width


# -- The page ---------------------------------------------------------------------------------------------------


def test_ten_thousand_classes_make_a_page_of_bounded_size() -> None:
    many = digest([Event(START_NS + n * MS, n, MS + n) for n in range(10_000)])
    few = digest([Event(START_NS + n * MS, n, MS + n) for n in range(200)])
    large, small = (rendered(found, View()) for found in (many, few))
    assert len(large) - len(small) < 100_000
    assert "9,800 more classes" in large


def test_hostile_text_is_text_on_the_page() -> None:
    page = rendered(hostile(), View(plans={hostile().classes[0].name: HOSTILE}))
    assert "<script>alert" not in page
    assert "{{ 7*7 }}" in page  # shown, not computed
    for character in "\x1b\x00\x9b\u202e":
        assert character not in page


GOLDEN = TESTS / "data" / "digest-page.txt"


def test_a_small_page_is_as_it_was() -> None:
    """All of its text; a change here is wanted or a mistake. The file is renewed by deleting it."""
    page = rendered(digest(digests.traffic(11, 300, 3, 30)), View(objective_ns=MS))
    body = page.split("<body>")[1].split('<script type="application/json"')[0]
    text = (
        re.sub(r"\s*\n\s*", "\n", re.sub(r"<svg.*?</svg>|<[^>]*>", "\n", body, flags=re.DOTALL)).strip()
        + "\n"
    )
    if not GOLDEN.exists():
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
        pytest.fail(f"{GOLDEN} was written anew: look at it")
    assert text == GOLDEN.read_text()


@NEEDS_BROWSER
def test_the_page_draws_everything_and_fits(tmp_path: Path) -> None:
    fingerprint = (
        "select c.id, sum(o.total) from customers c join t{0} o on o.customer_id = c.id where c.region = ?"
    )
    found = digest(digests.traffic(4, 20_000, 34, 600), Shape(slice_s=2, fingerprint=fingerprint))
    bad = hostile()
    with browser.page() as page:
        for name, each in (("good", found), ("bad", bad)):
            path = tmp_path / f"{name}.html"
            path.write_text(rendered(each, View(objective_ns=MS)))
            for width, dark in ((1280, False), (1280, True), (400, False), (400, True)):
                page.look(width, 900, dark=dark)
                page.open(path)
                page.scroll_through()
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert page.evaluate("document.querySelectorAll('.plot[data-drawn]').length") == 3
                assert page.evaluate("document.querySelectorAll('.plot image').length") >= 1
                assert page.evaluate("[...document.querySelectorAll('article.class')].length") == min(
                    20, len(each.classes)
                )
                assert page.evaluate("document.querySelectorAll('script').length") == 5
                inside = page.evaluate(
                    "[...document.querySelectorAll('article.class, .ranking td, .verdict')]"
                    ".every(e => e.scrollWidth <= e.clientWidth + 1 || e.clientWidth === 0)"
                )
                assert inside, (name, width)
        assert page.seen.errors == []
        assert page.seen.network == []
