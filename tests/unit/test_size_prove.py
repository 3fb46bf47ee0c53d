"""Predictions of databases together: the sums, the queue, what is kept, and the order of the plays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.base.errors import NothingMeasured, PlanError, StoreError, WorkloadFailed
from headrace.base.intervals import Interval
from headrace.base.model import Facts, ServerLogin
from headrace.capacity import measure, predictions, prove
from headrace.capacity.foresee import (
    ENOUGH,
    HOST,
    P99,
    THROUGHPUT,
    TIME_ERROR,
    Allowances,
    Alone,
    Busy,
    Prediction,
    foresee,
    is_inside,
)
from headrace.capacity.model import Resource
from headrace.capacity.prove import Asked, Played, Player
from headrace.capacity.report.measure import page_of as measured_page
from headrace.capacity.report.prove import calibration_page, page_of
from headrace.capacity.used import Part
from headrace.cli.shell import app
from headrace.host.agent import Agent
from headrace.show.parts import Table
from headrace.show.terminal import render
from headrace.traffic import traffic
from headrace.traffic.digests.classes import Number, QueryClass

CPU = Resource.CPU


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_DISTURBED", raising=False)


def block(idle: float = 0.1, a: float = 0.6, b: float = 0.9, p99_s: float = 0.002) -> Alone:
    used: dict[str, dict[str, float]] = {"a": {CPU: a}, "b": {CPU: b}}
    return Alone({CPU: idle}, used, {"a": p99_s, "b": p99_s}, {"a": 1000.0, "b": 100.0})


def of(found: list[Prediction], what: str, quantity: str) -> Prediction:
    (one,) = [each for each in found if (each.what, each.quantity) == (what, quantity)]
    return one


def test_the_idle_host_counts_once() -> None:
    cpu = of(foresee([block(), block()], 1, 4), HOST, CPU)
    assert cpu.interval.estimate == pytest.approx(1.4)
    assert cpu.naive == pytest.approx(1.5)
    assert of(foresee([block()], 2, 4), HOST, CPU).interval.estimate == pytest.approx(2.7)


def test_a_response_time_grows_with_the_queue() -> None:
    found = foresee([block(), block()], 1, 2)
    a, b = of(found, "a", P99), of(found, "b", P99)
    # M/M/2 by Sakasegawa: 0.7 busy together, 0.3 and 0.45 alone.
    waits = {rho: rho ** (math.sqrt(6) - 1) / (2 * (1 - rho)) for rho in (0.7, 0.3, 0.45)}
    assert a.interval.estimate == pytest.approx(0.002 * (1 + waits[0.7]) / (1 + waits[0.3]))
    assert b.interval.estimate == pytest.approx(0.002 * (1 + waits[0.7]) / (1 + waits[0.45]))
    assert a.interval.low is not None
    assert a.interval.high is not None
    assert a.interval.low < a.interval.estimate < a.interval.high
    assert a.naive == 0.002


def test_what_does_not_fit_is_served_late_and_its_time_has_no_bound() -> None:
    found = foresee([block(), block()], 2, 2)
    cpu, a = of(found, HOST, CPU), of(found, "a", THROUGHPUT)
    assert cpu.interval.estimate == cpu.interval.high == 2
    assert a.interval.estimate == pytest.approx(2000 * 0.97 * 2 / 2.7)
    p99 = of(found, "a", P99).interval
    assert (math.isinf(p99.estimate), p99.high) == (True, None)
    assert not is_inside(p99, 0.001)
    assert is_inside(p99, 1000)


def test_what_a_statement_costs_and_takes_on_a_host_as_busy_counts() -> None:
    """a and b use 0.5 and 0.8 cores above the idle 0.1; on a host that is 70% busy a costs a fifth more, and its
    p99 is 5 ms."""
    blocks = [block(), block()]
    found = foresee(blocks, 1, 2, busy={"a": Busy(0.0006, 0.7, 0.005)})
    assert of(found, HOST, CPU).interval.estimate == pytest.approx(0.1 + 0.6 + 0.8)
    # 1.5 of 2 cores are 75%, and a was seen at 70%: what is left of the way is a queue's.
    p99_s = of(found, "a", P99).interval
    assert 0.005 < p99_s.estimate < 1.2 * 0.005
    assert p99_s.low is not None
    assert p99_s.high is not None
    assert p99_s.low < p99_s.estimate < p99_s.high
    # Nothing was seen of b.
    plain = foresee(blocks, 1, 2)
    assert of(found, "b", P99).interval.estimate > of(plain, "b", P99).interval.estimate
    assert of(found, "b", P99).interval.estimate < 0.005
    # These do not count: too few statements, a full host, and one less busy than with a alone.
    for there in (Busy(0.0006, 0.7), Busy(0.0006, 0.98, 0.005), Busy(0.0006, 0.2, 0.005)):
        assert of(foresee(blocks, 1, 2, busy={"a": there}), "a", P99).interval.estimate < 0.0045


def test_a_lower_cost_counts_only_on_a_full_host() -> None:
    """A faster play makes calls cheaper just because they arrive faster."""
    cheap = {"a": Busy(0.0003, 0.7, 0.005)}
    found, plain = (foresee([block(), block()], 1, 2, busy=busy) for busy in (cheap, {}))
    assert of(found, HOST, CPU) == of(plain, HOST, CPU)
    assert of(found, "a", P99).interval.estimate > 0.005


def test_costs_on_a_busy_host_may_fill_it() -> None:
    """The plain sum is 1.4 of two cores, and what they cost at 70% is 2.1."""
    found = foresee([block(), block()], 1, 2, busy={"a": Busy(0.0012, 0.7, 0.005)})
    assert of(found, HOST, CPU).interval.estimate == 2
    assert of(found, "a", THROUGHPUT).interval.estimate == pytest.approx(1000 * 0.97 * 2 / 2.1)
    assert math.isinf(of(found, "a", P99).interval.estimate)


def test_what_a_statement_costs_on_a_full_host_counts_where_they_fill_it() -> None:
    """Alone they use 0.3 and 0.45 of two cores; on a full host a's statements cost half."""
    busy = {"a": Busy(0.00025, 1.0)}
    # 0.1 idle, 0.25 and 0.8 a copy: 2.2 of two cores, not 2.7.
    full = foresee([block(), block()], 2, 2, busy=busy)
    assert of(full, "a", THROUGHPUT).interval.estimate == pytest.approx(2000 * 0.97 * 2 / 2.2)
    assert of(full, HOST, CPU).interval.estimate == 2
    # What just fits is served, by a host that stays full; how long its queue is nobody knows.
    fits = foresee([block(), block()], 2, 2, busy={**busy, "b": Busy(0.002, 1.0)})
    assert of(fits, "a", THROUGHPUT).interval.estimate == pytest.approx(2000)
    assert of(fits, "a", THROUGHPUT).interval.low == pytest.approx(2000 * math.exp(-0.2))
    assert of(fits, HOST, CPU).interval.estimate == pytest.approx(0.97 * 2)
    assert math.isinf(of(fits, "a", P99).interval.estimate)


@pytest.mark.parametrize("cpu_s", [0.0, 0.0001, 0.002])
def test_a_cost_that_was_not_seen_on_a_busier_host_is_not_used(cpu_s: float) -> None:
    alike = foresee([block(), block()], 2, 2)
    assert foresee([block(), block()], 2, 2, busy={"a": Busy(cpu_s, 0.3), "b": Busy(cpu_s, 0.45)}) == alike


def test_what_nobody_plans_with_and_what_was_not_sampled_is_left_out() -> None:
    quiet: dict[str, float] = {CPU: 0.1, Resource.PACKETS: 1.0, Resource.WRITES: 3.0}
    one = Alone(quiet, {"a": {**quiet, Resource.READS: 900.0}}, {"a": 0.1}, {"a": 5.0})
    assert {each.quantity for each in foresee([one], 1, 2)} == {CPU, P99, THROUGHPUT}


def test_too_few_statements_have_no_p99() -> None:
    full = block()
    found = foresee([full, Alone(full.idle, full.used, {"a": 0.002}, full.per_s)], 1, 2)
    assert [each.what for each in found if each.quantity == P99] == ["a"]
    assert [each.what for each in found if each.quantity == THROUGHPUT] == ["a", "b"]


def test_blocks_that_differ_widen_the_interval() -> None:
    def width(*blocks: Alone) -> float:
        found = of(foresee(blocks, 1, 8), HOST, CPU).interval
        assert found.low is not None
        assert found.high is not None
        return math.log(found.high / found.low)

    alike = [block(), block(), block()]
    assert width(*alike) == pytest.approx(2 * 0.2)
    assert width(block(a=0.3), block(a=0.9), block()) > 2 * width(*alike)


def test_past_errors_say_how_much_to_allow_for() -> None:
    """After enough outcomes the intervals hold 95% of what comes, whatever the error of the model is."""
    dice = random.Random(2)
    assert Allowances({P99: [0.1] * (ENOUGH - 1)}).of(P99) == TIME_ERROR
    inside = 0
    for _ in range(2000):
        known = Allowances({P99: [dice.gauss(0, 0.15) for _ in range(ENOUGH)]})
        inside += abs(dice.gauss(0, 0.15)) <= known.of(P99)
    assert 0.93 <= inside / 2000 <= 0.97


def prediction(what: str = "a", quantity: str = P99, estimate: float = 2.0) -> Prediction:
    return Prediction(what, quantity, Interval(estimate, 1.0, 4.0), 1.5)


def test_what_is_kept_is_read_again_with_its_outcome() -> None:
    endless = Prediction("b", P99, Interval(math.inf, 1.0, None), 1.0)
    predictions.keep("1", 5.0, "db1", ["1 x a"], [prediction(), endless, prediction("", CPU)])
    predictions.came_true("1", [(prediction(), 3.0), (endless, 0.5), (prediction("", CPU), math.nan)])
    kept = predictions.every()
    assert [(each.prediction, each.measured, each.is_inside) for each in kept] == [
        (prediction(), 3.0, True),
        (endless, 0.5, False),
        (prediction("", CPU), None, None),
    ]
    p99, cpu = predictions.calibration(kept)
    assert (p99.made, p99.tried, p99.inside, p99.error, p99.naive_error) == (2, 1, 1, 0.5, 1.0)
    # A bound that nearly anything satisfies is no interval that held; that it failed is told.
    assert (p99.bounds, p99.bounds_held) == (1, 0)
    assert (cpu.made, cpu.tried, cpu.error) == (1, 0, None)
    assert predictions.allowances(kept).errors[P99] == [math.log(1.5)]
    page = calibration_page(predictions.calibration(kept), "here")
    assert page.verdicts == ["1 of 1 prediction lay in their 95% interval (2.5% – 100.0%)."]


@pytest.mark.parametrize(("inside", "tried", "said"), [(9, 10, ""), (30, 40, "narrow"), (200, 200, "wide")])
def test_intervals_are_called_wrong_only_when_enough_outcomes_say_so(
    inside: int, tried: int, said: str
) -> None:
    for number in range(tried):
        predictions.keep(f"{number}", 5.0, "db1", [], [prediction()])
        predictions.came_true(f"{number}", [(prediction(), 3.0 if number < inside else 9.0)])
    [found] = predictions.calibration(predictions.every())
    assert (found.is_too_narrow, found.is_too_wide) == (said == "narrow", said == "wide")


def test_half_a_line_of_a_killed_command_joins_no_other() -> None:
    predictions.keep("1", 5.0, "db1", [], [prediction()])
    whole = predictions.path().read_bytes()
    for cut in range(1, len(whole)):
        predictions.path().write_bytes(whole + whole[:cut])
        assert len(predictions.every()) == 1
        predictions.keep("2", 6.0, "db1", [], [prediction()])
        assert [each.id for each in predictions.every()] == ["1", "2"]


#: An end that is no number.
LOW_TEXT = (
    '{"id": "1", "at": 5, "host": "h", "plan": [], "prediction": {"what": "a", "quantity": "p99", '
    '"interval": {"estimate": 1, "low": "a", "high": 2}, "naive": 1}}\n'
)


@pytest.mark.parametrize(
    "text", ["{\n", '{"id": "1"}\n', '{"prediction": 3, "id": "1"}\n', "[]\n",
     '{"id": "1", "what": "a", "quantity": "p99", "measured": -1}\n', LOW_TEXT],
)  # fmt: skip
def test_a_damaged_file_is_an_error_and_not_an_empty_one(text: str) -> None:
    predictions.keep("1", 5.0, "db1", [], [prediction()])
    with predictions.path().open("a") as file:
        file.write(text)
    with pytest.raises(StoreError):
        predictions.every()


# -- The order of plays -----------------------------------------------------------------------------------------

INFO = {
    "events": 10,
    "segments": [{"with_literals": True}],
    "databases": {"names": [{"name": "shop"}]},
    "first_start_ns": 0,
    "last_end_ns": 30 * 10**9,
}


class FakeAgent:
    async def facts(self, login: ServerLogin) -> Facts:
        return Facts("1", {"cpu": {"online_count": 4}})


class Plays:
    """Of a modelled host, which plays what it is asked to. ``log``: what, and how many predictions were kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, infos: dict[str, dict[str, Any]]) -> None:
        self.infos = infos
        self.log: list[tuple[tuple[str, ...], int]] = []
        self.spoiled: dict[tuple[str, ...], list[dict[str, str]]] = {}
        self.fails = False
        #: Speed and length of those that were played faster.
        self.fast: list[tuple[float, float]] = []
        self.copies_of_fast: list[int] = []
        self.p99_s: float | None = 0.003

        async def install(target: Any) -> FakeAgent:
            return FakeAgent()

        async def recording(target: Any, words: list[str]) -> dict[str, Any]:
            return infos[words[1]]

        async def play(player: Player, names: list[str], copies: int) -> Played:
            self.log.append((tuple(names), len(predictions.every())))
            if self.fails and len(names) == 2:
                raise WorkloadFailed("the server is gone")
            answers = self.spoiled.get(tuple(names)) or [{}]
            spoiled = answers.pop(0)
            costs = {"a": 0.5, "b": 0.9}
            cpu, per_s = 0.1 + sum(costs[name] for name in names) * copies, 100.0 * copies
            p99_s = self.p99_s
            if (speed := player.asked.speed) > 1:
                self.fast.append((speed, player.seconds))
                self.copies_of_fast.append(copies)
                cpu, per_s = 0.1 + costs[names[0]] * copies * speed, per_s * speed
                p99_s = p99_s and 3 * p99_s
                if cpu > 4:
                    # Too fast for the host, on which a statement costs half.
                    cpu, per_s = 4.0, 3.9 / (costs[names[0]] / 100 / 2)
            return Played(
                {CPU: cpu},
                {} if p99_s is None else dict.fromkeys(names, p99_s),
                dict.fromkeys(names, per_s),
                dict.fromkeys(names, 0),
                {name: why for name, why in spoiled.items() if not why.startswith(prove.OWN_DELAY)},
                {name: why for name, why in spoiled.items() if why.startswith(prove.OWN_DELAY)},
            )

        monkeypatch.setattr(Agent, "install", install)
        monkeypatch.setattr(traffic, "recording", recording)
        monkeypatch.setattr(Player, "play", play)

    def run(self, **options: Any) -> prove.Proof:
        target: Any = type("Target", (), {"name": "db1"})()
        asked = Asked(("a", "b"), **options)
        return asyncio.run(prove.prove(target, asked, ServerLogin(), lambda what, left_s: None))


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Plays:
    blog = {**INFO, "databases": {"names": [{"name": "blog"}]}}
    return Plays(monkeypatch, {"a": dict(INFO), "b": blog})


def test_predictions_are_written_before_the_first_joint_play(plays: Plays) -> None:
    proof = plays.run(blocks=3)
    alone, faster, together = plays.log[:9], plays.log[9:11], plays.log[11:]
    assert sorted(names for names, _ in alone) == sorted([(), ("a",), ("b",)] * 3)
    assert [names for names, _ in faster] == [("a",), ("b",)]
    assert {number for _, number in (*alone, *faster)} == {0}
    assert [names for names, _ in together] == [("a", "b")] * 3
    assert {number for _, number in together} == {5}
    assert proof.holds
    assert all(each.measured is not None for each in predictions.every())
    cpu = next(each for each in proof.outcomes if each.prediction.quantity == CPU)
    assert cpu.measured.estimate == pytest.approx(cpu.prediction.interval.estimate) == pytest.approx(1.5)
    page = page_of(proof)
    assert page.verdicts[0] == "They fit: all statements in time; 1.50 of 4 cores busy."
    json.dumps(page.data["headline"])
    assert render(page)


def test_what_a_statement_costs_on_a_full_host_is_measured_if_they_fill_it(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    for info in plays.infos.values():
        monkeypatch.setitem(info, "last_end_ns", 50 * 10**9)
    proof = plays.run(copies=3, options=("--read-only",), seconds=20.0)
    # 50 s are over in 12.5 where three copies are played 4 times as fast, of which 5 are the warm-up.
    assert [speed for speed, _ in plays.fast] == pytest.approx([1.5 * 4 / (3 * 0.5), 1.5 * 4 / (3 * 0.9)])
    assert [seconds for _, seconds in plays.fast] == [7.0, 17.0]
    assert plays.copies_of_fast == [3, 3]
    assert [names for names, _ in plays.log].count(("a",)) == 4
    cpu = next(each for each in proof.outcomes if each.prediction.quantity == CPU)
    # 4.3 of 4 cores by their sum, 2.2 at half the cost.
    assert cpu.prediction.interval.estimate == pytest.approx(0.97 * 4)
    assert proof.busy["a"].cpu_s == pytest.approx(0.5 / 100 / 2)
    page = page_of(proof)
    shown = render(page)
    assert page.data["busy"] == proof.busy
    assert json.dumps(page.data["headline"])
    (busy,) = [section for section in page.sections if section.id == "busy"]
    assert isinstance(busy.parts, list)
    (table,) = busy.parts
    assert isinstance(table, Table)
    assert table.rows[0] == ["a", "15%", "100%", "5,000 us", "2,500 us", "3.00 ms", "9.00 ms"]
    assert shown
    # An endless load, such as the driver's, is played for as long as alone.
    plays.fast.clear()
    nothing: Any = None
    endless = Player(nothing, nothing, ServerLogin(), Asked(("a",)), 20.0, lambda what, left_s: None)
    found, too_short_s = asyncio.run(endless.busy([block(a=2.5)], 2))
    assert (list(found), too_short_s) == (["a"], {})
    assert [seconds for _, seconds in plays.fast] == [20.0]


def test_each_is_played_alone_so_fast_that_the_host_is_as_busy_as_with_all(plays: Plays) -> None:
    """Together they use 1.5 of 4 cores: the idle host 0.1, a 0.5 and b 0.9."""
    proof = plays.run(seconds=5.0, warmup_s=1.0)
    assert [speed for speed, _ in plays.fast] == pytest.approx([1.4 / 0.5, 1.4 / 0.9])
    assert [seconds for _, seconds in plays.fast] == [5.0, 5.0]
    p99 = next(each.prediction for each in proof.outcomes if each.prediction.quantity == P99)
    # Three times as long on a host as busy; nothing is left for the queue to add.
    assert p99.interval.estimate == pytest.approx(0.009)


def test_nearly_all_of_the_load_alone_is_as_busy(plays: Plays) -> None:
    nothing: Any = None
    player = Player(nothing, nothing, ServerLogin(), Asked(("a", "b")), 20.0, lambda what, left_s: None)
    found, too_short_s = asyncio.run(player.busy([block(a=1.2, b=0.15)], 4))
    assert (list(found), too_short_s) == (["b"], {})


def test_a_late_fast_play_tells_costs_but_no_times(plays: Plays) -> None:
    plays.spoiled = {("a",): [{}, {}, {}, {"a": "sent too late"}]}
    proof = plays.run(seconds=5.0, warmup_s=1.0)
    p99_s = {each.prediction.what: each.prediction.interval.estimate for each in proof.outcomes
             if each.prediction.quantity == P99}  # fmt: skip
    assert p99_s["a"] < 0.004
    assert p99_s["b"] == pytest.approx(0.009)


def test_a_recording_that_is_too_short_to_fill_the_host_is_named_with_the_length_it_needs(
    plays: Plays,
) -> None:
    proof = plays.run(copies=3, options=("--read-only",), seconds=20.0)
    # Of 30 s four times as fast 7.5 are left, of which 5 are the warm-up; b's 2.2 times as fast leave 8.5.
    assert [speed for speed, _ in plays.fast] == pytest.approx([1.5 * 4 / (3 * 0.9)])
    (said,) = [note for note in proof.notes if "too short" in note]
    assert said.startswith("a: ")
    assert "which needs about 40 s" in said
    # The same on a host that is not full: at 2.8 times the speed, a's 30 s last 10.7.
    proof = plays.run(seconds=20.0, warmup_s=8.0)
    (said,) = [note for note in proof.notes if "too short" in note]
    assert said.startswith("a: ")


def test_copies_that_fill_the_host_by_themselves_are_not_played_faster(plays: Plays) -> None:
    proof = plays.run(copies=15, options=("--read-only",), seconds=20.0)
    assert plays.fast == []
    # Three blocks alone, and once with all copies.
    assert [names for names, _ in plays.log].count(("a",)) == 4
    assert not any("too short" in note for note in proof.notes)


def test_a_fast_play_that_measured_nothing_costs_only_itself(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plays.infos["a"], "last_end_ns", 50 * 10**9)
    monkeypatch.setitem(plays.infos["b"], "last_end_ns", 50 * 10**9)
    play = Player.play

    async def short(player: Player, names: list[str], copies: int) -> Played:
        if player.asked.speed > 1 and names == ["a"]:
            raise NothingMeasured("the recordings were played together for only 1.0 s")
        return await play(player, names, copies)

    monkeypatch.setattr(Player, "play", short)
    proof = plays.run(copies=3, options=("--read-only",), seconds=20.0)
    assert list(proof.busy) == ["b"]
    assert [note[:2] for note in proof.notes if "too short" in note] == ["a:"]


def test_what_was_predicted_stays_if_the_joint_play_never_ends(plays: Plays) -> None:
    plays.fails = True
    with pytest.raises(WorkloadFailed):
        plays.run()
    kept = predictions.every()
    assert (len(kept), {each.measured for each in kept}) == (5, {None})


def test_a_play_that_other_work_spoiled_is_repeated_and_one_that_stays_so_is_said(plays: Plays) -> None:
    late = {"a": f"{prove.OWN_DELAY}: p99 3.1 ms"}
    plays.spoiled = {("a",): [late, {}], ("a", "b"): [late] * 6}
    proof = plays.run(blocks=3)
    # Three alone, one of them twice, and one faster.
    assert [names for names, _ in plays.log].count(("a",)) == 5
    assert [names for names, _ in plays.log].count(("a", "b")) == 6
    assert proof.holds
    assert "its p99 includes that" in proof.notes[0]


def test_a_late_driver_is_no_reason_to_play_again_where_disturbed_trials_are_kept(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DISTURBED", "keep")
    late, behind = {"a": f"{prove.OWN_DELAY}: p99 3.1 ms"}, {"b": "sent too late"}
    plays.spoiled = {("a",): [late] * 3, ("b",): [behind, {}, {}, {}], ("a", "b"): [late] * 3}
    proof = plays.run(blocks=3)
    counts = [[names for names, _ in plays.log].count(names) for names in (("a",), ("b",), ("a", "b"))]
    # With one faster.
    assert counts == [3 + 1, 4 + 1, 3]
    assert "in 6 plays: its p99 includes that" in proof.notes[0]


def test_no_play_goes_on_where_one_has_failed() -> None:
    ended = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("endless")

    async def failing() -> None:
        raise WorkloadFailed("gone")

    async def both() -> None:
        with pytest.raises(WorkloadFailed):
            await prove._all_of([endless(), failing()])
        assert ended == ["endless"]

    asyncio.run(both())


def test_statements_that_cannot_be_served_in_time_do_not_fit(plays: Plays) -> None:
    behind = {"b": "statements were sent p99 4000 ms after their time"}
    plays.spoiled = {("a", "b"): [behind] * 9}
    proof = plays.run()
    assert not proof.holds
    assert "b cannot keep up" in page_of(proof).verdicts[0]
    slow = plays.run(objective_s=0.002)
    assert "They do not fit" in page_of(slow).verdicts[0]
    plays.spoiled, plays.p99_s = {}, None
    unknown = plays.run(objective_s=0.002)
    assert not unknown.holds
    assert page_of(unknown).verdicts[0].startswith("Not shown to fit: a, b has too few")
    plays.p99_s = 0.003
    plays.spoiled = {("b",): [behind] * 9}
    with pytest.raises(WorkloadFailed, match="even alone"):
        plays.run()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"events": 0}, "with literals"),
        ({"segments": [{"with_literals": False}]}, "with literals"),
        ({}, "also in a"),
        ({"databases": {"names": []}, "last_end_ns": 9 * 10**9}, "too short"),
    ],
)
def test_recordings_that_cannot_be_played_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], words: str
) -> None:
    plays = Plays(monkeypatch, {"a": INFO, "b": {**INFO, **change}})
    with pytest.raises(PlanError, match=words):
        plays.run()
    assert plays.log == []


def test_what_cannot_be_kept_or_played_is_said_before_anything_is_played(plays: Plays) -> None:
    with pytest.raises(PlanError, match="same rows"):
        plays.run(copies=2)
    predictions.path().mkdir(parents=True)
    with pytest.raises(StoreError, match="Is a directory"):
        plays.run()
    assert plays.log == []


def test_what_only_reads_may_share_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Plays(monkeypatch, {"a": INFO, "b": INFO}).run(options=("--read-only",)).holds


def query_class(name: str, total_ns: int) -> QueryClass:
    return QueryClass(name, {"response_ns": Number(1, total_ns)}, {"fingerprint": f"select {name}"})


def test_a_class_costs_what_it_adds_to_the_idle_host(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    """Played by its path: the modelled host knows it by the number of the part."""
    known = [query_class("aa", 300), query_class("ab", 100)]

    async def digest(target: Any, sources: Any, options: Any) -> None:
        return None

    async def recording(target: Any, words: list[str]) -> dict[str, Any]:
        return INFO

    async def play(player: Player, names: list[str], copies: int) -> Played:
        used: dict[str, float] = {Part.SERVER: 0.1, Resource.WRITES: 5.0}
        for name in names:
            used = {Part.SERVER: 0.3 if name.endswith("0.rec") else 0.05, Resource.WRITES: 25.0}
        rates = dict.fromkeys(names, 100.0)
        return Played(used, {}, rates, dict.fromkeys(names, 0), {}, {})

    @contextlib.asynccontextmanager
    async def leased_folder(target: Any, parent: str) -> AsyncIterator[str]:
        yield "/scratch"

    monkeypatch.setattr(traffic, "digest", digest)
    monkeypatch.setattr(traffic, "recording", recording)
    monkeypatch.setattr(Player, "play", play)
    monkeypatch.setattr(measure, "open_digest", lambda table: type("Digest", (), {"classes": known}))
    monkeypatch.setattr(measure, "leased_folder", leased_folder)

    def run(*wanted: str) -> measure.Measured:
        target: Any = type("Target", (), {"name": "db1"})()
        work = measure.measure(target, Asked(("a",)), ServerLogin(), wanted, 5, lambda what, left_s: None)
        return asyncio.run(work)

    found = run()
    assert [(each.name, each.share) for each in found.classes] == [("aa", 0.75), ("ab", 0.25)]
    first, second = (each.costs for each in found.classes)
    assert first[Part.SERVER].estimate == pytest.approx(0.002)
    assert first[Resource.WRITES].estimate == pytest.approx(0.2)
    # Less than the idle host used is noise, and no cost.
    assert (second[Part.SERVER].estimate, second[Part.SERVER].low) == (0.0, 0.0)
    assert Resource.READS not in first
    page = measured_page(found)
    assert page.verdicts == ["A call of select aa costs most CPU: 2 ms."]
    assert render(page)
    assert [each.name for each in run("ab").classes] == ["ab"]
    for wrong in ("a", "x"):
        with pytest.raises(PlanError, match="with this id"):
            run(wrong)


@pytest.mark.parametrize(
    "words", [["a", "a"], ["a", "--sessions", "2"], ["a", "--p99", "5"], ["a", "--blocks", "2"]]
)
def test_bad_words_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(app, ["size", "prove", *words]).exit_code != 0
