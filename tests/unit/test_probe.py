"""A probe of a memcached: its cost, what its lines become, what is refused, and what a change must not cost."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.base.effect import Effect, Verdict
from headrace.base.errors import NotReady, Refused, WorkloadFailed
from headrace.base.intervals import Interval
from headrace.base.percentiles import Histogram, percentile_ns
from headrace.base.watched import EVICTIONS, HITS
from headrace.experiment.live import probing
from headrace.experiment.plan import AS_IS
from headrace.experiment.prove import REMEDY, Compared, Proof, Step, judge_settings
from headrace.experiment.report import proof as shown
from headrace.experiment.stats.guards import Block, Holds, guard
from headrace.experiment.workloads import Context
from headrace.experiment.workloads.probe import LINES, guarded, lines_of, measured
from headrace.host.memcached import probe as probes
from headrace.host.memcached.probed import Gets, Reading, between, parsed
from tests import commands
from tests.caches import FakeCache

SECOND = 10**9
MS = 10**6


def line(at_s: float, **content: Any) -> str:
    return json.dumps({"t_ns": round((1000 + at_s) * SECOND), **content})


def stats(requests: int, *, hits: int = 0, evictions: int = 0, refused: int = 0, uptime: int = 500) -> Any:
    return {
        "cmd_get": requests, "cmd_set": 0, "get_hits": hits, "evictions": evictions, "pid": 7, "uptime": uptime,
        "listen_disabled_num": refused, "rejected_connections": refused,
    }  # fmt: skip


def written(folder: Path, lines: Sequence[str]) -> Path:
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "raw" / LINES).write_text("".join(f"{each}\n" for each in lines))
    return folder


def context(folder: Path, seconds: float = 3, warmup_s: float = 1) -> Context:
    return Context(None, "o", "f", None, seconds, warmup_s, folder)  # type: ignore[arg-type]


def run_of(seconds: int, per_s: int = 1000, *, took_ms: Sequence[float] = (1.0,), **more: int) -> list[str]:
    """A probe of 10 gets a second, all of them in ``cmd_get``; more counters by how much they grow a second."""
    found = [line(0, stats=stats(0), asked=0)]
    for at in range(1, seconds + 1):
        took = [round(took_ms[n % len(took_ms)] * MS) for n in range(10)]
        found.append(line(at, gets=took, failed=[]))
        grown = {name: count * at for name, count in more.items()}
        found.append(line(at + 0.001, stats=stats((per_s + 10) * at, **grown), asked=10 * at))
    return found


def test_lines_become_the_load_of_the_clients_and_the_latency_of_the_probe(tmp_path: Path) -> None:
    folder = written(tmp_path, run_of(5, took_ms=(1, 1, 1, 1, 9)))
    found = measured(list(lines_of(folder / "raw" / LINES)), context(tmp_path))
    assert found.window_end_ns - found.window_start_ns == 3 * SECOND
    assert found.window_start_ns == 1001 * SECOND
    rows = [row for row in found.intervals.to_pylist() if row["t_s"] >= 0]
    clients = [row["count"] for row in rows if row["operation"] == "clients"]
    assert clients[:3] == [1000, 1000, 1000]
    assert [row["count"] for row in rows if row["operation"] == "probe"] == [10, 10, 10]
    latency = found.latency.to_pylist()
    assert sum(row["count"] for row in latency) == 30
    assert {row["operation"] for row in latency} == {"probe"}
    import numpy as np

    buckets = np.array([row["bucket"] for row in latency], dtype=np.int32)
    merged = Histogram.of(buckets, np.array([row["count"] for row in latency]))
    assert percentile_ns(merged, "p50") == pytest.approx(1 * MS, rel=0.01)
    assert not found.invalid


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (run_of(5, per_s=19), "its clients asked for 19.0 keys/s"),
        (
            [*run_of(3), line(4, gets=[1], failed=[]), line(4.1, stats=stats(5, uptime=1), asked=40)],
            "restarted",
        ),
    ],
)
def test_a_trial_that_says_nothing_about_the_setting_is_invalid(
    lines: Sequence[str], why: str, tmp_path: Path
) -> None:
    folder = written(tmp_path, lines)
    [said] = measured(list(lines_of(folder / "raw" / LINES)), context(tmp_path, seconds=2)).invalid
    assert why in said


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([line(1, gets=[5], failed=[])], "stopped before"),
        ([], "stopped before"),
        ([*run_of(1), *(line(at, gets=[], failed=[9]) for at in range(2, 6))], "no get of the probe was answered"),
        ([line(at, gets=[5], failed=[]) for at in range(1, 6)], "counters were not read"),
    ],
)  # fmt: skip
def test_a_trial_without_numbers_fails(lines: Sequence[str], why: str, tmp_path: Path) -> None:
    folder = written(tmp_path, lines)
    with pytest.raises(WorkloadFailed, match=why):
        measured(list(lines_of(folder / "raw" / LINES)), context(tmp_path))


def test_what_no_probe_writes_is_an_error(tmp_path: Path) -> None:
    folder = written(tmp_path, ['{"t_ns": 1, "gets": ["x"], "failed": []}'])
    with pytest.raises(WorkloadFailed, match="a line of the probe"):
        list(lines_of(folder / "raw" / LINES))


def test_guards_are_those_of_the_clients_after_the_warm_up(tmp_path: Path) -> None:
    folder = written(tmp_path, run_of(5, hits=900, evictions=50, refused=2))
    values = guarded(folder, 1)
    assert values[HITS.name] == pytest.approx(90)
    assert values[EVICTIONS.name] == pytest.approx(50)
    assert values["refused connections"] == pytest.approx(2)
    assert values["failed gets"] == 0


def block(treatment: float | None, *baseline: float | None) -> Block:
    return Block([{HITS.name: treatment}], [{HITS.name: each} for each in baseline])


@pytest.mark.parametrize(
    ("blocks", "holds", "difference"),
    [
        ([block(90, 90, 90), block(91, 91, 91)], Holds.YES, 0),
        ([block(90.1, 90, 90), block(91, 91.1, 91.1), block(90, 90, 90)], Holds.YES, 0),
        ([block(80, 90, 90), block(81, 91, 91), block(80, 90.2, 90)], Holds.NO, -10.03),
        # More is never too much of what should be high.
        ([block(99, 90, 90), block(99, 91, 91), block(99, 90, 90)], Holds.YES, 8.67),
        ([block(80, 90, 90), block(95, 91, 91), block(90, 90, 90)], Holds.UNKNOWN, -2),
        ([block(90, 90, 90)], Holds.UNKNOWN, 0),
        ([block(None, 90), block(None, 90)], Holds.UNKNOWN, None),
    ],
)
def test_a_guard_holds_only_if_its_interval_does(
    blocks: Sequence[Block], holds: Holds, difference: float | None
) -> None:
    found = guard(HITS, blocks, 0.05)
    assert found.holds is holds
    estimate = found.difference.estimate if found.difference else None
    assert estimate == (None if difference is None else pytest.approx(difference, abs=0.01))


def test_a_broken_guard_is_shown_with_its_interval() -> None:
    found = guard(HITS, [block(80, 90, 90), block(81, 91, 91), block(80, 90.2, 90)], 0.05)
    step = Step("", "x", {}, None, kept=False, reason="r", folder=Path("f"), guards=(found,))
    [row] = shown.to_json(_proof(step), "p99")["steps"][0]["guards"]
    assert (row["name"], row["holds"], row["limit"], row["blocks"]) == ("hit rate", "broken", -1, 3)
    assert row["low"] < row["difference"] < row["high"] < -1


async def test_what_is_better_is_not_kept_while_a_guard_is_broken(tmp_path: Path) -> None:
    better = Effect("p99", REMEDY, AS_IS, "", Interval(0.5, 0.4, 0.6), Verdict.BETTER, 3, None, 1)
    rows = [block(80, 90, 90), block(81, 91, 91), block(80, 90.2, 90)]
    broken, held = guard(HITS, rows, 0.05), guard(HITS, [block(90, 90), block(91, 91)], 0.05)
    kept = {}
    for name, own in (("broken", broken), ("held", held)):
        bench = FakeBench(Compared(cast(Any, FakeFolder()), {REMEDY: better}, {}, {REMEDY: (own,)}))
        proof = await judge_settings(bench, {"host.rps_cpus@eth0": "3"})  # type: ignore[arg-type]
        kept[name] = (proof.steps[0].kept, proof.steps[0].reason)
    assert kept == {"broken": (False, "not proven within its limit: hit rate"), "held": (True, "")}


def _proof(step: Step) -> Any:
    return Proof((step,), {}, None, None, ())


def test_the_cost_is_a_thousandth_of_the_requests() -> None:
    assert probes.fair_per_s(50_000) == 50
    assert probes.fair_per_s(10_000_000) == 100
    assert probes.fair_per_s(3) == 1


@contextlib.contextmanager
def fake(**behaviour: Any) -> Iterator[FakeCache]:
    with FakeCache(**behaviour) as found:
        yield found


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LOOK_S", 0.2)
    monkeypatch.setattr(probes.look, "__defaults__", (0.2,))


@pytest.mark.parametrize(
    ("behaviour", "error", "why"),
    [
        ({"says": b"CLIENT_ERROR unauthenticated\r\n"}, NotReady, "unauthenticated"),
        ({"hangs_up": True}, NotReady, "hangs up without an answer .TLS, SASL"),
        ({"says": b"ERROR Too many open connections\r\n"}, NotReady, "refuses connections"),
        ({"says": b"-ERR unknown command\r\nEND\r\n"}, NotReady, "does not answer as memcached"),
        ({"per_s": 10}, Refused, "it is idle"),
        ({"per_s": 50_000, "spare": 20}, Refused, "only 20 more connections"),
        ({"per_s": 900}, Refused, "1 gets/s make 10 in a turn"),
    ],
)
def test_what_cannot_be_probed_says_why(
    behaviour: Mapping[str, Any], error: type[Exception], why: str
) -> None:
    with fake(**behaviour) as server, pytest.raises(error, match=why):
        probing(server.address, 10)


def test_nobody_there_says_so() -> None:
    with fake() as server:
        address = server.address
    with pytest.raises(NotReady, match="refused"):
        probing(address, 10)


@pytest.mark.parametrize(("seconds", "response"), [(30, "p99"), (4, "p90"), (1, "p50")])
def test_the_percentile_is_one_that_a_turn_has_data_for(seconds: float, response: str) -> None:
    with fake(per_s=50_000) as server:
        found = probing(server.address, seconds)
    assert found.response == response
    assert "0.10% of its" in found.said
    assert found.watch.gets_per_s == pytest.approx(50, rel=0.2)


class FakeFolder:
    """An experiment without trials that failed."""

    path = Path("f")

    def trials(self) -> list[Any]:
        return []


class FakeBench:
    """Every comparison ends as it was said."""

    folder = Path("f")

    def __init__(self, compared: Any) -> None:
        self._compared = compared

    async def compare(self, *_: Any, **__: Any) -> Any:
        return self._compared


@pytest.mark.parametrize(
    ("wanted", "seconds", "judged_by"),
    [("p50", 30, "the p50 of their response times"), ("throughput", 1, "judged by throughput")],
)
def test_what_was_asked_for_decides(wanted: str, seconds: float, judged_by: str) -> None:
    with fake(per_s=50_000) as server:
        found = probing(server.address, seconds, response=wanted)
    assert found.response == wanted
    assert judged_by in found.said


def test_a_percentile_without_data_names_the_turn_that_has_it() -> None:
    with fake(per_s=50_000) as server, pytest.raises(Refused, match="too few for p99") as raised:
        probing(server.address, 10, 50, "p99")
    assert raised.value.hint == "--duration 22s, or more gets: --gets"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["apply", "host.rps_cpus@eth0=1", "--memcached", "x:1"], "--judge"),
        (["apply", "--judge", "host.rps_cpus@eth0=1", "--gets", "9"], "--memcached"),
        (["prove", "NET01", "--plan", "x.toml", "--memcached", "x:1"], "--live"),
        (["prove", "--live", "a.b=1", "--memcached", "x:1", "--response", "p42"], "p42"),
        (["prove", "--live", "a.b=1", "--memcached", "x:1", "--budget", "9m"], "--blocks"),
    ],
)
def test_options_that_nothing_would_read_are_refused(words: Sequence[str], why: str) -> None:
    done = commands.headrace(*words)
    assert done.returncode == 2
    assert why in done.stderr


class Kept(probes.Printed):
    """Lines in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Any] = []

    def line(self, **content: object) -> None:
        self.lines.append(parsed(json.dumps({"t_ns": time.time_ns(), **content})))


def test_each_get_of_the_probe_is_counted_and_none_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "EVERY_S", 0.1)
    kept, stop = Kept(), threading.Event()
    with fake(per_s=1000) as server:
        probe = probes.Probe(server.address)
        probe.open_all()
        reading = threading.Thread(target=probes.read_on, args=(probe, kept, stop))
        reading.start()
        probes.ask_on(probe, 100, kept, time.monotonic() + 0.5)
        stop.set()
        reading.join()
        probe.close()
        assert server.stored == 0
        assert server.asked == probe.asked
    gets = [each for each in kept.lines if isinstance(each, Gets)]
    assert sum(len(each.answered_ns) for each in gets) == probe.asked == pytest.approx(50, abs=2)
    readings = [each for each in kept.lines if isinstance(each, Reading)]
    rate = between(readings)
    assert rate.requests / rate.seconds == pytest.approx(1000, rel=0.2)


def test_what_was_due_in_an_outage_has_failed_and_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "GET_LIMIT_S", 0.2)
    kept = Kept()
    with fake() as server:
        probe = probes.Probe(server.address)
        probe.open_all()
        server.is_silent = True
        probes.ask_on(probe, 50, kept, time.monotonic() + 0.5)
        probe.close()
    failed = [each for one in kept.lines for each in one.failed_ns]
    assert len(failed) == pytest.approx(25, abs=3)
    # At most two or three of them were sent: each took the whole limit.
    assert probe.asked <= 4
    assert max(failed) >= 0.2 * SECOND
