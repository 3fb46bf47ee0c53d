"""A server's own summary in a digest, and the habits of pt-query-digest's users."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headrace.base.errors import PlanError
from headrace.show import terminal
from headrace.traffic import figures as traffic
from headrace.traffic.commands.habits import HINTS, Limit
from headrace.traffic.digests.classes import Digest, open_digest
from headrace.traffic.digests.lines import read_lines
from headrace.traffic.digests.merge import merge
from headrace.traffic.report.jsonform import to_json
from headrace.traffic.report.page import page_of
from headrace.traffic.report.words import View, coverage_lines, rest_lines
from tests import digests
from tests.digests import START_NS, Event

MS = 1_000_000


def events(n: int, response_ns: int) -> list[str]:
    return digests.lines([Event(START_NS + each * MS, response_ns=response_ns) for each in range(n)])


def summed_up(lines: list[str], *, rows: int = 1, p95_ns: int | None = None, rest: int = 0) -> list[str]:
    """The same lines as the agent writes them of a server's summary: only sums and extremes."""
    found: list[dict[str, Any]] = []
    for line in map(json.loads, lines):
        if line["type"] in ("totals", "class"):
            line |= {"buckets": [], "slices": [], "sample": None, "response_sum_squares": "0"}
            line["summarised"] = {
                "calls": line["count"], "rows": rows, "p95_ns": p95_ns, "p99_ns": None, "p999_ns": None
            }  # fmt: skip
            line["rows_sent"] = {"known": line["count"], "summed": line["count"], "sum": 40, "max": None}
        elif line["type"] == "heat":
            line["slices"] = []
        elif line["type"] == "digest":
            line["coverage"]["summarised_events"] = line["events"]
        elif line["type"] == "end" and rest:
            other: dict[str, Any] = {
                **found[-1],
                "is_others": True,
                "id": None,
                "key": None,
                "fingerprint": None,
            }
            found.append(other | {"response_sum_ns": rest})
            line["classes"] += 1
        found.append(line)
    return [json.dumps(line) for line in found]


def opened(*parts: list[str]) -> Digest:
    return open_digest(merge([read_lines(part, "test") for part in parts]))


def test_a_summary_has_sums_and_only_the_percentiles_that_it_states() -> None:
    found = opened(summed_up(events(4, 10 * MS), p95_ns=12 * MS))
    [each] = found.classes
    assert (each.count, each.total_ns, traffic.mean_ns(each)) == (4, 40 * MS, 10 * MS)
    assert {name: traffic.percentile_ns(each, name) for name in ("p50", "p95", "p99")} == {
        "p50": None, "p95": 12 * MS, "p99": None
    }  # fmt: skip
    assert traffic.dispersion_s(each) is None
    assert traffic.deviation(each) is None
    assert traffic.satisfaction(each, 1.0) is None
    rows = traffic.attribute(each, "rows_sent")
    assert (rows.total, rows.mean, rows.least, rows.p95, rows.most, rows.deviation) == (
        40,
        10,
        None,
        None,
        None,
        None,
    )
    assert "summarised" not in " ".join(each.measures)
    told = to_json(found, View())["classes"][0]
    assert (told["summarised_calls"], told["response_ns"]["p50"], told["response_ns"]["p95"]) == (
        4,
        None,
        12 * MS,
    )
    assert any(line.startswith("summary: 4 calls") for line, _ in coverage_lines(found))
    page = page_of(found, View())
    assert terminal.render(page)


def test_percentiles_of_parts_say_nothing_of_the_whole() -> None:
    one = summed_up(events(4, 10 * MS), p95_ns=12 * MS)
    for other in (one, events(100, 10 * MS)):
        found = opened(one, other)
        [each] = found.classes
        assert each.is_summarised
        assert all(traffic.percentile_ns(each, name) is None for name in traffic.PERCENTILES)
        assert traffic.dispersion_s(each) is None
        assert not each.response.total


def test_what_found_no_room_is_said_first_if_it_is_much() -> None:
    lines = summed_up(events(4, 10 * MS), rest=10 * MS)
    found = opened(lines)
    assert rest_lines(found) == [
        "25.0% of the response time (4 calls) is of statements beyond the limit of the server's own table"
    ]
    assert rest_lines(opened(summed_up(events(4, 10 * MS), rest=MS))) == []


@pytest.mark.parametrize(
    ("text", "most", "share"),
    [("10", 10, None), ("95%:20", 20, 0.95), ("95%", 1_000_000, 0.95), (":5", 5, None), ("0", 0, None)],
)
def test_limits(text: str, most: int, share: float | None) -> None:
    assert Limit.parse(text) == Limit(most, share)


@pytest.mark.parametrize("text", ["", "x", "-1", "0%:5", "101%", "95%:x", "95:10%", "nan%", "1.5"])
def test_limits_that_are_none(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="95%:10"):
        Limit.parse(text)


def test_a_share_is_of_what_the_classes_are_ordered_by() -> None:
    found = open_digest(
        read_lines(
            digests.lines([Event(START_NS + number, number, 10 ** (4 - number) * MS) for number in range(4)]),
            "test",
        )
    )
    counts = {share: Limit(10, share).of(found, "sum") for share in (0.5, 0.95, 0.999, 1.0)}
    assert counts == {0.5: 1, 0.95: 2, 0.999: 3, 1.0: 4}
    assert Limit(2, 1.0).of(found, "sum") == 2
    assert Limit(3).of(found, "p99") == 3
    with pytest.raises(PlanError, match="add up"):
        Limit(3, 0.5).of(found, "p99")


@pytest.mark.parametrize("words", [["--limit", "95%:x"], ["--limit=95%:x"]])
def test_a_limit_is_taken_for_what_it_is_here(words: list[str]) -> None:
    from headrace.cli.shell import app
    from headrace.traffic.commands import digest as _digest  # noqa: F401

    answer = CliRunner().invoke(app, ["digest", "x.log", *words])
    assert answer.exit_code == 2
    assert "--limit is pt-query-digest's name for --top" in answer.output
    assert "--top '95%:x'" in answer.output


def test_options_of_pt_query_digest_are_answered() -> None:
    from headrace.cli.shell import app
    from headrace.traffic.commands import digest as _digest  # noqa: F401

    for option in ("--review", "--order-by", "--group-by"):
        answer = CliRunner().invoke(app, ["digest", "x.log", f"{option}=y"])
        assert answer.exit_code == 2
        assert HINTS[option].split(",")[0] in " ".join(answer.output.split())
