"""Hosts that are there for memcached in a rollout: their plan, and what a probe of them says, without any host."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.errors import Refused
from headrace.change import apply
from headrace.fleet.host import Host
from headrace.host.target import TargetSpec
from headrace.rollout import hands, rules
from headrace.rollout.book import Book
from headrace.rollout.caches import CacheFollower, CacheSite, probing
from headrace.rollout.guards import Limits, tripped, window_of
from headrace.rollout.look import NO_LOGIN
from headrace.rollout.pairs import carrier_of, site_of
from headrace.rollout.plan import Plan, Role, Seen, make
from headrace.rollout.report.rollout import _method
from headrace.rollout.rules import JudgeRule, Timing
from headrace.rollout.watch import CountersReset, Restarted
from tests.unit.test_staged import seen

SETTINGS = {"host.rps_cpus@eth0": "ff"}


def cache(number: int, gets_per_s: float = 10.0, per_s: float = 10_000.0) -> Seen:
    name = f"cache{number}"
    host = Host(name, TargetSpec("ssh", host=name, user="root"), memcached=f"{name}:11211")
    return Seen(host, Role.CACHE, name, (), per_s, {"host.rps_cpus@eth0": "00"}, gets_per_s=gets_per_s)


def plan_of(*caches: Seen, block_s: float = 120.0, **judge: Any) -> Plan:
    own = rules.load(None).model_copy(update={"timing": Timing(block_s=block_s), "judge": JudgeRule(**judge)})
    return make(SETTINGS, caches, own, 1)


def test_caches_are_changed_in_stages_without_an_approval() -> None:
    plan = plan_of(*(cache(number) for number in range(1, 9)))
    assert {stage.name: len(stage.hosts) for stage in plan.stages} == {"one": 1, "10%": 1, "caches": 6}
    assert not any(stage.needs_approval for stage in plan.stages)
    assert all(stage.is_judged for stage in plan.stages)
    # None of them waits for another one's turn.
    assert len({member.group for member in plan.members.values()}) == 8
    assert site_of(plan) is CacheSite


def test_the_plan_is_the_same_when_it_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plan = plan_of(cache(1), cache(2), response="p90", gets_per_s=20.0)
    again = Book.open(Book.make(plan).plan.id)
    assert again.plan == plan
    assert again.plan.members["cache1"].host.memcached == "cache1:11211"
    assert isinstance(carrier_of(again, print).site, type)


def test_a_plan_without_caches_is_what_it_was() -> None:
    text = json.dumps(
        make({"server.innodb_io_capacity": "2000"}, [seen("db1")], rules.load(None), 1).to_json()
    )
    for word in ("memcached", "gets_per_s", "response"):
        assert word not in text


@pytest.mark.parametrize(
    ("gets_per_s", "block_s", "percentile"),
    [(10.0, 120.0, "p99"), (5.0, 120.0, "p90"), (1.0, 30.0, "p50"), (10.0, 12.0, "p90")],
)
def test_the_highest_percentile_that_each_block_shows_is_judged(
    gets_per_s: float, block_s: float, percentile: str
) -> None:
    plan = plan_of(cache(1, 100.0), cache(2, gets_per_s), block_s=block_s)
    assert plan.percentile == percentile
    assert plan.question().response == f"{percentile} of the probe's gets"


def test_blocks_without_enough_gets_are_refused_with_the_length_that_has_them() -> None:
    with pytest.raises(
        Refused, match="1 gets/s of the probe are too few in a block of 10 s for p50"
    ) as caught:
        plan_of(cache(1, 1.0), block_s=10.0)
    assert caught.value.hint == "block_s = 23 in [timing], or gets_per_s in [judge]"
    assert plan_of(cache(1, 1.0), block_s=23.0).percentile == "p50"
    with pytest.raises(Refused, match="for p99"):
        plan_of(cache(1, 5.0), response="p99")


def test_one_plan_is_not_for_caches_and_databases() -> None:
    with pytest.raises(Refused, match="cache1 is there for memcached, and db1 is not"):
        make(SETTINGS, [cache(1), seen("db1")], rules.load(None), 1)


def test_the_plan_says_what_the_probe_costs_and_what_is_guarded() -> None:
    text = " ".join(_method(plan_of(cache(1))))
    assert "when p99 of the probe's gets is proven to rise by less than 5% and nothing else" in text
    assert "hit rate by no more than 1 point;" in text
    assert "cache1 10 gets/s (0.10% of its requests)" in text


def follower(
    seconds: int = 20, *, took_ns: int = 200_000, hits: float = 0.9, failed: int = 0, **counters: float
) -> CacheFollower:
    """Fed with a probe of so many seconds; the counters are of the second half."""
    found = CacheFollower(percentile="p90")
    stats = {"pid": 1.0, "uptime": 100.0, "cmd_get": 5000.0, "get_hits": 4000.0, "cmd_set": 0.0}
    for second in range(seconds):
        steady = {"t_ns": 10**18, "steady_ns": (1000 + second) * 10**9}
        changed = counters if second == seconds // 2 else {}
        stats |= {
            "uptime": stats["uptime"] + 1,
            "cmd_get": stats["cmd_get"] + 1010,
            "get_hits": stats["get_hits"] + 1000 * hits,
            **changed,
        }
        found.hear(json.dumps({**steady, "stats": stats, "asked": 10 * second}))
        gets = {"gets": [took_ns] * (10 - failed), "failed": [10**9] * failed}
        found.hear(json.dumps({**steady, "steady_ns": steady["steady_ns"] + 400_000_000, **gets}))
    return found


def test_a_stretch_is_what_clients_asked_and_the_probe_waited() -> None:
    window = follower().since(1005 * 10**9)
    assert window.seconds == 14
    assert window.queries == pytest.approx(14 * 1000)
    # A second of gets that began before the stretch is not in it.
    assert window.gets == 140
    assert window.time_s == pytest.approx(0.0002, rel=0.01)
    assert window.watched == {"hit rate": 90, "evictions": 0, "refused connections": 0, "failed gets": 0}
    assert window.block.watched["hit rate"] == -90
    assert window_of(json.loads(json.dumps(asdict(window)))) == window


def test_too_few_gets_are_no_time_and_say_so() -> None:
    window = follower(seconds=6).since(0)
    assert window.time_s is None
    assert window.why_unmeasured == "50 gets of the probe, too few for p90: longer blocks (block_s) help"
    assert window.median_s


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"took_ns": 900_000}, "0.9 ms in the middle of the probe's gets, 4.5 times the slowest"),
        ({"hits": 0.7}, "the hit rate is 70% instead of 90% or more"),
        ({"failed": 1}, "100 of 1,000 gets of the probe failed (limit 1)"),
        ({}, ""),
        ({"hits": 0.85}, ""),
    ],
)
def test_limits_stop_at_once(now: dict[str, Any], said: str) -> None:
    usual = [follower().since(0)]
    why = tripped(follower(**now).since(0), usual, Limits())
    assert why.startswith(said)
    assert bool(why) is bool(said)


def test_a_restart_is_no_stretch_and_a_reset_only_for_limits() -> None:
    with pytest.raises(Restarted):
        follower(uptime=1.0).since(0)
    with pytest.raises(Restarted):
        follower(uptime=1.0).since(0, through_resets=True)
    with pytest.raises(CountersReset, match="stats reset"):
        follower(cmd_get=0.0).since(0)
    window = follower(cmd_get=0.0).since(0, through_resets=True)
    assert window.watched == {"failed gets": 0}


def test_a_server_that_does_not_answer_twice_is_refused_and_one_that_is_read_again_is_not() -> None:
    found = follower()
    found.hear(json.dumps({"t_ns": 1, "stats": None, "why": "Connection refused"}))
    assert not found.is_refused
    found.hear(json.dumps({"t_ns": 1, "stats": None, "why": "Connection refused"}))
    assert found.is_refused
    assert found.problem == "Connection refused"
    found.hear("what is this")
    assert "cannot be read" in found.problem
    found.hear(
        json.dumps({"t_ns": 1, "steady_ns": 2 * 10**12, "stats": {"pid": 1, "uptime": 200}, "asked": 1})
    )
    assert not found.is_refused


def test_a_setting_that_somebody_has_changed_since_the_plan_is_not_overruled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    book = Book.make(plan_of(cache(1)))
    now = "00"

    async def prepare(*_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(steps=[SimpleNamespace(name="host.rps_cpus@eth0", before=now)])

    monkeypatch.setattr(apply, "prepare", prepare)
    agent: Any = None
    site = CacheSite(book, book.plan.members["cache1"], agent, NO_LOGIN, CacheFollower())
    asyncio.run(site.host_must_fit())
    now = "03"
    with pytest.raises(hands.Moved, match=r"changed host\.rps_cpus@eth0: it is 03, and was 00"):
        asyncio.run(site.host_must_fit())


def test_a_probe_that_cannot_begin_says_why() -> None:
    own = cache(1)
    plan = plan_of(replace(own, host=replace(own.host, memcached="127.0.0.1:1")))

    async def try_it() -> str:
        async with probing(plan, plan.members["cache1"]) as follower:
            for _ in range(3000):
                await asyncio.sleep(0.01)
                if follower.has_ended:
                    break
            return follower.problem

    assert asyncio.run(try_it()) == "the probe ended: Connection refused"
