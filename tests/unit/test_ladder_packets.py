"""Packets per second: limits over rounds, the model, the page, and what `headrace size` takes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.base.errors import StoreError
from headrace.base.intervals import Interval
from headrace.capacity import capacity
from headrace.capacity.model import Resource
from headrace.hunt.ladder.packets import Limit, Size, errors, fit, limits, steps_of
from headrace.hunt.ladder.report.packets import page_of
from headrace.show import jsonform, terminal

SIZES: tuple[Size, ...] = ((64, 100), (64, 1000), (100, 300))


def counters(t_s: float, packets: int, softirq: int, idle: int, lost: int = 0) -> dict[str, Any]:
    return {
        "t_ns": int(t_s * 1e9),
        "own_cpu_ns": int(t_s * 0.4e9),
        "interface": "hrp1",
        "cpu": {
            "user": {"cpu0": 0, "cpu1": 0},
            "softirq": {"cpu0": softirq, "cpu1": 0},
            "idle": {"cpu0": 0, "cpu1": idle},
        },
        "softnet": {"dropped": {"cpu0": lost}, "time_squeeze": {"cpu1": 2 * lost}},
        "network": {"rx_packets": {"hrp1": packets}, "tx_packets": {"hrp1": packets}},
        "snmp": {"Udp.RcvbufErrors": {"": 3 * lost}},
    }


def row(size: Size, share: float | None, offered_s: float | None, answered: int) -> dict[str, Any]:
    return {
        "kind": "step", "request_bytes": size[0], "reply_bytes": size[1], "share": share, "offered_s": offered_s,
        "seconds": 1.0, "sent": answered, "answered": answered, "latency": {"buckets": [[1000, 98], [1100, 2]]},
        "server": [counters(1, 0, 0, 0), counters(2, answered, 100, 100, 5)],
        "client": [counters(1, 0, 0, 0), counters(2, answered, 100, 100, 5)],
    }  # fmt: skip


def a_round(size: Size, most: int) -> list[dict[str, Any]]:
    rates = [row(size, share, share * most, int(min(share, 0.95) * most)) for share in (0.5, 0.9, 1.0)]
    return [{"kind": "start"}, row(size, None, None, most), *rates, {"kind": "end"}]


def test_a_step_has_its_core_and_its_losses() -> None:
    step = steps_of(a_round((64, 100), 1000), 0, "")[0]
    assert step.packets_s == 2000
    assert [(core.name, core.softirq, core.busy) for core in step.cores] == [("cpu0", 1, 1), ("cpu1", 0, 0)]
    assert (step.dropped, step.squeezed, step.socket_full) == (5, 10, 15)
    assert step.own == pytest.approx(0.8)
    assert step.p50_ns is not None
    assert step.p99_ns is not None
    assert step.p50_ns < step.p99_ns


def test_the_round_is_the_unit_and_the_knee_held_in_all() -> None:
    steps = [
        s for n, most in enumerate((1000, 1100, 1200)) for s in steps_of(a_round((64, 100), most), n, "")
    ]
    (limit,) = limits(steps)
    assert limit.rounds == 3
    assert limit.packets_s.estimate == pytest.approx(2 * (1000 * 1100 * 1200) ** (1 / 3))
    assert limit.packets_s.low is not None
    assert limit.packets_s.low < 2000
    assert limit.knee == 0.9
    (alone,) = limits(steps[:4])
    assert alone.packets_s.low is None


@pytest.mark.parametrize("rows", [[], [{"kind": "start"}], [{"kind": "step"}, {"kind": "end"}], [{}]])
def test_half_a_round_is_refused(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(StoreError):
        steps_of(rows, 0, "")


def of(packet_s: float, byte_s: float) -> list[Limit]:
    exact = [(size, 2 / (2 * packet_s + byte_s * sum(size))) for size in SIZES]
    return [Limit("", size, Interval(rate, rate, rate), None, 5) for size, rate in exact]


def test_costs_per_packet_and_byte_predict_a_size_that_was_left_out() -> None:
    model = fit(of(4e-6, 1e-9))
    assert model.packet_s == pytest.approx(4e-6)
    assert model.byte_s == pytest.approx(1e-9)
    left_out, single = errors(of(4e-6, 1e-9))
    assert max(map(abs, left_out.values())) < 1e-6
    # One size knows nothing of bytes: its error is what the other's bytes cost more, or less.
    assert single[(64, 100), (64, 1000)] == pytest.approx((8e-6 + 1064e-9) / (8e-6 + 164e-9) - 1)


def test_larger_packets_are_never_cheaper() -> None:
    assert fit(of(4e-6, -1e-9)).byte_s == 0


def test_size_takes_the_lowest_limit_as_the_host_is_set() -> None:
    steps = [s for size, most in zip(SIZES, (1000, 900, 950), strict=True)
             for s in steps_of(a_round(size, most), 0, "")]  # fmt: skip
    steps += steps_of(a_round((64, 1000), 500), 0, "2")
    page = page_of("local", steps)
    content = json.loads(json.dumps(jsonform.render(page), allow_nan=False))
    terminal.render(page)
    known = capacity.known("db1", {Resource.CPU: 2.0}, ladder=content)
    assert known.capacity.limit[Resource.PACKETS].estimate == pytest.approx(1800)
    assert "64/1000 B" in known.limit_from[Resource.PACKETS]
    assert Resource.PACKETS not in capacity.known("db1", {}, ladder={"rungs": []}).capacity.limit
    with pytest.raises(StoreError, match="packets are damaged"):
        capacity.known("db1", {}, ladder={"rungs": [], "packets": [{"rps": ""}]})
