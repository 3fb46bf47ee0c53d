"""Switchbacks: cutting a load into turns, what is left over from the one before, and false verdicts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from headrace.base.errors import PlanError
from headrace.base.model import Vendor
from headrace.experiment import kinds
from headrace.experiment import plan as plans
from headrace.experiment.stats import carryover, turns
from headrace.experiment.stats.carryover import Turn
from headrace.experiment.switch import cut
from headrace.host.arrow import INTERVALS, LATENCY, SAMPLES, TrialData
from headrace.knobs import catalogue as knobs
from headrace.knobs import switching
from headrace.knobs.catalogue import Cost
from headrace.knobs.knob import PER_CONNECTION
from headrace.knobs.servers import lists

NS = 1_000_000_000


def loaded(seconds: int) -> TrialData:
    """A load of a second of warm-up and so many more, each with its own count and bucket."""
    times = [float(t) for t in range(-1, seconds)]
    rows = {"t_s": times, "duration_s": [1.0] * len(times), "operation": ["x"] * len(times)}
    rows["count"] = [int(t) + 100 for t in times]
    intervals = pa.table({n: rows.get(n, [None] * len(times)) for n in INTERVALS.names}, schema=INTERVALS)
    inside = times[1:]
    latency = pa.table(
        {
            "t_s": inside,
            "operation": ["x"] * len(inside),
            "kind": ["service"] * len(inside),
            "bucket": [int(t) for t in inside],
            "count": [1] * len(inside),
        },
        schema=LATENCY,
    )
    samples = pa.table(
        {
            "t_ns": [int(t * NS) for t in inside],
            "sampler": ["cpu"] * len(inside),
            "metric": ["user"] * len(inside),
            "label": ["all"] * len(inside),
            "value": inside,
        },
        schema=SAMPLES,
    )
    return TrialData(intervals, latency, samples)


def test_a_turn_has_its_own_seconds_and_no_others() -> None:
    part = cut(loaded(12), 6.0, 3.0, 2.0, 6 * NS)
    assert part.intervals["t_s"].to_pylist() == [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert part.intervals["count"].to_pylist() == [104, 105, 106, 107, 108]
    assert part.latency["t_s"].to_pylist() == [0.0, 1.0, 2.0]
    assert part.latency["bucket"].to_pylist() == [6, 7, 8]
    # The samples of the wash-out and of the window, and the one that ends it.
    assert part.samples["value"].to_pylist() == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]


def followed(effect: float, left: float, seed: int = 1, count: int = 60) -> list[Turn]:
    """Turns of two treatments; the first half is drawn by ``left`` towards the speed of the one before."""
    rng = np.random.default_rng(seed)
    names = [str(name) for name in rng.integers(0, 2, count + 1)]
    found = []
    for before, own in itertools.pairwise(names):
        level = effect * int(own)
        first = level + left * effect * (int(before) - int(own)) + rng.normal(0, 0.05)
        found.append(Turn(own, before, math.exp(first), math.exp(level + rng.normal(0, 0.05))))
    return found


def test_what_is_left_over_is_seen() -> None:
    found = carryover.find(followed(0.5, 0.4))
    assert found is not None
    assert found.shows
    assert found.size == pytest.approx(0.2, abs=0.06)


def test_a_treatment_that_starts_slowly_leaves_nothing_over() -> None:
    slow = [t._replace(first=t.first * (0.7 if t.treatment == "1" else 1.0)) for t in followed(0.5, 0.0)]
    found = carryover.find(slow)
    assert found is not None
    assert not found.shows


@pytest.mark.parametrize("rows", [[], followed(0.5, 0.4)[:4], [Turn("a", "a", 1.0, 1.0)] * 20])
def test_too_few_turns_show_nothing(rows: list[Turn]) -> None:
    assert carryover.find(rows) is None


@pytest.mark.parametrize("name", turns.MODELS)
def test_neighbouring_turns_that_are_alike_raise_no_alarms(name: str) -> None:
    found = turns.judge(np.random.default_rng(2), name, 400, 0.05)
    # Three standard errors of the binomial.
    assert found.alarms <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)
    assert found.carried <= 400 * carryover.LEVEL + 3 * math.sqrt(400 * carryover.LEVEL)


PLAN = """
name = "s"
[design]
kind = "switchback"
baseline = "200"
[workload]
kind = "oltp"
seconds = 3
[factors.io]
knob = "server.innodb_io_capacity"
levels = [200, 2000]
"""


@pytest.mark.parametrize(
    ("old", "new", "said", "instead"),
    [
        ('"oltp"', '"sysbench-oltp"', "workload.kind = 'sysbench-oltp'", "oltp, sql or tpcc"),
        ('"oltp"', '"fio"', "workload.kind = 'fio'", 'kind = "factorial"'),
        ('"oltp"', '"observe"\nmysql_socket = "/s"', "observe watches a live one", "without a restart"),
        ("seconds = 3", "seconds = 0.5", "workload.seconds = 0.5: a turn is a whole number", ""),
    ],
)
def test_a_load_that_cannot_be_cut_into_turns_is_refused_before_anything_runs(
    old: str, new: str, said: str, instead: str
) -> None:
    with pytest.raises(PlanError) as caught:
        kinds.build(plans.parse(PLAN.replace(old, new), "s.toml"), place="s.toml")
    assert said in caught.value.message
    assert instead in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ('"switchback"', "not with a switchback: .* --blocks \\+10` adds a start"),
        ('"auto"', "not with kind auto, which chooses the way to measure"),
        ('"race"', "not with a race: it ends when the best is known"),
        ('"factorial"\nduet = true', "not with a duet: `blocks` is its length"),
    ],
)
def test_until_decided_is_refused_with_what_to_do_instead(kind: str, said: str) -> None:
    assert kinds.build(plans.parse(PLAN, "s.toml"), place="s.toml").trials
    with pytest.raises(PlanError, match=said):
        plans.parse(PLAN.replace('"switchback"', f"{kind}\nuntil_decided = true"), "s.toml")


def test_what_can_be_switched() -> None:
    def why_not(name: str) -> str | None:
        return switching.why_not(knobs.find(name), Vendor.MARIADB)

    assert why_not("server.innodb_flush_log_at_trx_commit") is None
    assert why_not("host.vm.swappiness") is None
    assert why_not("volume.scheduler") is None
    assert why_not("server.sort_buffer_size") == "only new connections have it"
    assert why_not("host.net.ipv4.tcp_congestion_control") == "only new connections have it"
    assert "memory" in (why_not("host.thp") or "")
    for name in ("server.back_log", "volume.filesystem", "machine.kernel", "server.no_such_variable"):
        assert why_not(name), name


def test_variables_of_connections_are_dynamic_ones_of_the_catalogue() -> None:
    known = {k.name.removeprefix("server."): k for k in knobs.CATALOGUE.values()}
    assert known.keys() >= PER_CONNECTION
    assert all(known[name].cost is Cost.DYNAMIC for name in PER_CONNECTION)


def test_what_a_connection_copies_is_what_the_vendors_servers_say() -> None:
    def is_of_sessions(name: str, vendor: Vendor, version: str) -> bool:
        return knobs.find(f"server.{name}").is_of_sessions(vendor, version)

    for own in lists():
        for name, each in own.variables.items():
            if each.is_variable and each.is_of_sessions:
                # Another series has no list: it is taken to be as those that have one.
                assert is_of_sessions(name, own.vendor, own.version), name
                assert is_of_sessions(name, own.vendor, "1.2.3"), name
    assert not is_of_sessions("slow_query_log", Vendor.MYSQL, "8.0.31")
    assert is_of_sessions("slow_query_log", Vendor.MARIADB, "10.6.12")
    assert not is_of_sessions("innodb_io_capacity", Vendor.MARIADB, "10.6.12")
    # Also those that the catalogue lacks: connections keep the old value, so turns would not differ.
    for name in ("server.sql_mode", "server.optimizer_prune_level", "server.query_prealloc_size"):
        assert switching.why_not(knobs.find(name), Vendor.MARIADB) == "only new connections have it"
