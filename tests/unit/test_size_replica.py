"""How fast a replica applies, by the course of its lag: what is known, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from headrace.capacity.replica import IS_NOT_BEHIND, Channel, channels
from headrace.capacity.report.replica import sentence, to_json
from headrace.host.samples import Samples
from headrace.host.window import Window

SECONDS = 60
Of = Callable[[int], float]
Lag = Callable[[int], float | None]


def of(lag: Lag, more: Mapping[str, Of] = MappingProxyType({}), seconds: int = SECONDS) -> Channel:
    """A channel whose applier runs; ``more`` are metrics of it."""

    def values(t: int) -> Mapping[str, Any]:
        known = {name: {"": how(t)} for name, how in {"sql_running": lambda t: 1.0, **more}.items()}
        return known if lag(t) is None else {**known, "lag_s": {"": lag(t)}}

    records = [
        {"t_ns": t * 10**9, "sampler": "replication", "ok": True, "cost_ns": 0, "values": values(t)}
        for t in range(seconds + 1)
    ]
    (found,) = channels(Window(Samples.of_records(records)))
    return found


@pytest.mark.parametrize(("pace", "wobble"), [(1.25, 0), (2.0, 0), (1.5, 4), (0.5, 0)])
def test_the_interval_holds_the_pace_and_the_time_to_catch_up(pace: float, wobble: int) -> None:
    lag_s = 400

    def lag(t: int) -> float:
        return float(round(lag_s - (pace - 1) * t + wobble * (t * 7919 % 13 - 6) / 6))

    found = of(lag)
    assert found.pace is not None
    assert found.pace.low is not None
    assert found.pace.high is not None
    assert found.pace.low <= pace <= found.pace.high
    end, true_s = found.caught_up_s, (lag_s - (pace - 1) * SECONDS) / (pace - 1)
    if pace < 1:
        assert end is None
        assert "falls further behind" in sentence(found)
    else:
        assert end is not None
        assert end.low is not None
        assert end.low <= true_s
        assert end.high is None or true_s <= end.high


def test_one_that_is_not_behind_keeps_up_and_no_more_is_said() -> None:
    found = of(lambda t: float(max(20 - t, 0)))
    assert (found.pace, found.keeps_up, found.why) == (None, True, IS_NOT_BEHIND)
    assert "STOP REPLICA SQL_THREAD" in sentence(found)
    assert to_json([found], {})["channels"][0]["pace"] is None


def test_what_is_not_known_is_never_a_pace() -> None:
    assert of(lambda t: None).why.startswith("the server does not know its lag")
    stopped = of(lambda t: 100.0, {"sql_running": lambda t: float(t > 30)})
    assert stopped.pace is None
    assert "did not run" in stopped.why
    short = of(lambda t: 100.0 - t, seconds=10)
    assert short.pace is None
    assert "less than 30 s" in short.why


def test_a_lag_that_stands_still_may_never_end() -> None:
    found = of(lambda t: 100.0 + t % 2)
    assert found.pace is not None
    assert found.pace.low is not None
    assert found.pace.low < 1
    end = found.caught_up_s
    assert end is None or end.high is None
    assert "catch up" in sentence(found) or "not certain" in sentence(found)


def test_bytes_are_not_compared_across_files() -> None:
    metrics: dict[str, Of] = {
        "read_position_bytes": lambda t: 2e6 * t, "exec_position_bytes": lambda t: 3e6 * t,
        "read_file": lambda t: 7.0, "exec_file": lambda t: 6.0,
    }  # fmt: skip
    same = of(lambda t: 100.0, metrics)
    assert (same.fetched_bytes_s, same.applied_bytes_s) == (2e6, 3e6)
    moved = of(lambda t: 100.0, {**metrics, "read_file": lambda t: 7.0 + (t > 9)})
    assert (moved.fetched_bytes_s, moved.applied_bytes_s) == (None, 3e6)
