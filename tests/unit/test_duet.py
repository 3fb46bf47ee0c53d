"""Duets without a server: which trials they have, what they refuse, what pairs tell, the level of their verdicts.

The simulations have a truth: noise that hits both sides of a pair at once, noise of each trial alone, and a half
of the machine that is better than the other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.base.effect import Effect, Verdict
from headrace.base.errors import NotReady, PlanError
from headrace.base.model import Role, TrialSpec, TrialState
from headrace.experiment import kinds, pair
from headrace.experiment import plan as plans
from headrace.experiment.retries import LEAST, MAX_EACH, Retries, replacing
from headrace.experiment.stats.compare import noise_floor
from headrace.experiment.stats.duet import sides
from headrace.experiment.stats.trials import TrialResponse
from headrace.experiment.store import TrialRecord
from headrace.experiment.trial import LeftAlone
from tests.compared import paired_effect

BASELINE, REPEAT, CANDIDATE = Role.BASELINE, Role.REPEAT, Role.CANDIDATE

PLAN = """
name = "d"
[design]
kind = "factorial"
duet = true
baseline = "128M"
blocks = 6
{design}
[workload]
kind = "oltp"
seconds = 1
{workload}
{more}
[factors.pool]
knob = "server.innodb_buffer_pool_size"
levels = ["128M", "256M", "512M"]
"""


def built(design: str = "", workload: str = "", more: str = "", text: str = PLAN) -> Any:
    for name, lines in (("design", design), ("workload", workload), ("more", more)):
        text = text.replace(f"{{{name}}}", lines)
    plan = plans.parse(text, "duet.toml")
    return kinds.build(plan, place="duet.toml")


def pairs_of(trials: Sequence[TrialSpec]) -> list[tuple[TrialSpec, TrialSpec]]:
    return list(zip(trials[::2], trials[1::2], strict=True))


def test_every_pair_has_the_baseline_and_every_block_an_a_a_pair() -> None:
    found = built()
    assert found.experiment == "duet"
    pairs = pairs_of(found.trials)
    assert len(pairs) == 6 * 3
    for first, second in pairs:
        assert {first.position, second.position} == {1, 2}
        assert BASELINE in (first.role, second.role)
        assert "128M" in (first.treatment, second.treatment)
    assert sum({a.role, b.role} == {BASELINE, REPEAT} for a, b in pairs) == 6
    assert [t.number for t in found.trials] == list(range(1, 37))


def test_every_treatment_has_each_half_equally_often() -> None:
    for seed in range(20):
        trials = built(f"seed = {seed}").trials
        for name in ("256M", "512M"):
            own = [t.position for t in trials if t.treatment == name]
            assert own.count(1) == own.count(2) == 3
        again = [t.position for t in trials if t.role is REPEAT]
        assert again.count(1) == again.count(2) == 3
    firsts = {
        tuple(t.position for t in built(f"seed = {s}").trials if t.treatment == "256M") for s in range(9)
    }
    assert len(firsts) > 1, "drawn, not fixed"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"more": '[factors.swap]\nknob = "host.vm.swappiness"\nlevels = [1, 60]'}, "shared by both sides"),
        ({"more": "[server]\nport = 3399"}, "its own server over its own socket"),
        ({"workload": 'clients = ["u@h"]\nserver_address = "h"'}, "its own server over its own socket"),
        ({"more": '[volume]\ndevice = "/dev/sdz"\ndevices = ["/dev/sdz"]'}, "two equal volumes"),
        ({"design": 'hard = ["pool"]'}, "runs concurrently with its baseline"),
    ],
)
def test_what_two_sides_cannot_have_is_refused_with_the_reason(changed: dict[str, str], said: str) -> None:
    text = PLAN
    if "host.vm" in str(changed):
        text = PLAN.replace('baseline = "128M"', 'baseline = { pool = "128M", swap = "60" }')
    with pytest.raises(PlanError) as error:
        built(**changed, text=text)
    assert said in error.value.message


def test_a_treatment_with_another_load_is_refused() -> None:
    levels = """
        [factors.pool.levels]
        a = { "server.innodb_io_capacity" = 800 }
        b = { "workload.connections" = 9, "server.innodb_io_capacity" = 900 }
    """
    text = PLAN[: PLAN.index("[factors.pool]")].replace('"128M"', '"a"') + levels
    with pytest.raises(PlanError, match="two different questions"):
        built(text=text)


def test_conditions_are_pairs_of_their_own() -> None:
    more = '[factors.load]\nknob = "workload.connections"\nlevels = [1, 8]'
    found = built(more=more)
    conditions = {t.name: t.condition for t in found.treatments}
    for first, second in pairs_of(found.trials):
        assert conditions[first.treatment] == conditions[second.treatment]


def test_a_duet_is_no_race() -> None:
    with pytest.raises(PlanError, match="not with a race"):
        built(text=PLAN.replace('"factorial"', '"race"'))


# The halves of a machine.


def topology(sockets: int, cores: int, threads: int) -> dict[str, Any]:
    """Numbered as Linux does: all first threads, then all second ones."""
    rows = [
        {"cpu": t * sockets * cores + s * cores + c, "socket": s, "core": c}
        for t in range(threads)
        for s in range(sockets)
        for c in range(cores)
    ]
    return {"topology": rows}


def test_threads_of_a_core_stay_together() -> None:
    assert pair.halves(topology(1, 4, 2), range(8)) == ([0, 4, 1, 5], [2, 6, 3, 7])
    assert pair.halves(topology(2, 2, 1), range(4)) == ([0, 1], [2, 3])


def test_an_odd_core_is_left_out() -> None:
    assert pair.halves(topology(1, 3, 1), range(3)) == ([0], [1])


def test_only_what_we_may_use_is_shared_out() -> None:
    assert pair.halves(topology(1, 8, 1), [2, 5]) == ([2], [5])
    assert pair.halves({}, [0, 1]) == ([0], [1])


def test_one_cpu_is_too_few() -> None:
    with pytest.raises(NotReady, match="two CPUs"):
        pair.halves(topology(1, 1, 1), [0])
    assert pair.halves(topology(1, 1, 2), [0, 1]) == ([0], [1]), (
        "two threads of one core: better than nothing"
    )


# Meeting.


def test_both_begin_at_the_later_instant() -> None:
    async def work() -> tuple[int, int]:
        meeting = pair.Meeting()
        await asyncio.gather(meeting.meet(), meeting.meet())
        first, second = await asyncio.gather(meeting.agree(5), meeting.agree(7))
        return first, second

    assert asyncio.run(work()) == (7, 7)


def test_who_is_left_alone_hears_of_it() -> None:
    async def work() -> None:
        meeting = pair.Meeting()
        waiting = asyncio.create_task(meeting.meet())
        await asyncio.sleep(0)
        await meeting.leave()
        await waiting

    with pytest.raises(LeftAlone):
        asyncio.run(work())


def record(number: int, state: TrialState = TrialState.COMPLETE, **more: Any) -> TrialRecord:
    return TrialRecord(
        number, 1, number, f"t{number}", BASELINE, state, window_start_ns=0, window_end_ns=10**10, **more
    )


def test_one_side_alone_is_no_measurement() -> None:
    failed = record(2, TrialState.FAILED, reason="did not start")
    first, second = pair.as_pair([record(1), failed])
    assert first.state is TrialState.INVALID
    assert "t2" in first.reason
    assert "did not start" in first.reason
    assert second.state is TrialState.FAILED


def test_windows_that_hardly_overlap_are_no_pair() -> None:
    late = replace(record(2), window_start_ns=10**9, window_end_ns=11 * 10**9)
    found = pair.as_pair([record(1), late])
    assert {r.state for r in found} == {TrialState.INVALID}
    assert "share only 90%" in found[0].reason


# Measured again.


def test_a_disturbed_trial_is_measured_again_a_bounded_number_of_times() -> None:
    said: list[str] = []
    retries = Retries([], 100, said.append)
    disturbed = record(1, TrialState.INVALID, reason="another program")
    for attempt in range(MAX_EACH):
        assert retries.wants(disturbed)
        retries.begin(disturbed)
        disturbed = replace(disturbed, earlier=replacing(record(1), disturbed))
        assert len(disturbed.earlier) == attempt + 1
    assert not retries.wants(disturbed)
    assert disturbed.earlier == ["invalid: another program"] * MAX_EACH
    assert len(said) == MAX_EACH
    assert "another program" in said[0]


def test_a_machine_that_is_always_disturbed_ends_the_repeating() -> None:
    retries = Retries([], 5, lambda _: None)
    spent = 0
    for number in range(1, 30):
        disturbed = record(number, TrialState.INVALID)
        while retries.wants(disturbed):
            retries.begin(disturbed)
            disturbed = replace(disturbed, earlier=replacing(record(number), disturbed))
            spent += 1
    assert spent == LEAST
    # What was spent before a kill counts afterwards, too.
    assert not Retries([record(1, earlier=["x"] * LEAST)], 5, lambda _: None).wants(
        record(2, TrialState.INVALID)
    )


def test_what_failed_or_saturated_its_driver_is_not_measured_again() -> None:
    retries = Retries([], 100, lambda _: None)
    assert not retries.wants(record(1, TrialState.FAILED))
    assert not retries.wants(record(1))
    from headrace.experiment.stats.sweep import SATURATED

    assert not retries.wants(record(1, TrialState.INVALID, reason=f"{SATURATED}: 100%"))


# What pairs tell.


def response(number: int, block: int, name: str, role: Role, ops_s: float) -> TrialResponse:
    return TrialResponse(number, block, name, role, ops_s, operations=1000)


def simulated(
    rng: np.random.Generator,
    *,
    blocks: int,
    effect: float = 0.0,
    common: float = 0.1,
    own: float = 0.01,
    bias: float = 0.0,
) -> tuple[list[TrialResponse], dict[int, int]]:
    """One duet of one candidate: two pairs a block. ``effect``, ``common``, ``own`` and ``bias`` are logs."""
    trials, positions = [], {}
    pair = number = 0
    swapped = {"t": False, "b": False}
    for block in range(blocks):
        for name, role in (("t", CANDIDATE), ("b", REPEAT)):
            pair += 1
            shared = common * rng.standard_normal()
            swapped[name] = bool(rng.random() < 0.5) if block % 2 == 0 else not swapped[name]
            for half, (who, part) in enumerate(
                [("b", BASELINE), (name, role)][:: -1 if swapped[name] else 1], start=1
            ):
                number += 1
                value = shared + own * rng.standard_normal() + (effect if part is CANDIDATE else 0.0)
                value += bias * (half - 1.5)
                trials.append(response(number, pair, who, part, 1000 * math.exp(value)))
                positions[number] = half
    return trials, positions


def effect_of(trials: Sequence[TrialResponse]) -> Effect:
    found = paired_effect(
        "throughput", [t for t in trials if t.treatment == "t"], [t for t in trials if t.treatment == "b"]
    )
    assert found is not None
    return found


def width(effect: Effect) -> float:
    assert effect.ratio.low is not None
    assert effect.ratio.high is not None
    return math.log(effect.ratio.high / effect.ratio.low)


def test_the_pair_is_the_block() -> None:
    trials, positions = simulated(np.random.default_rng(1), blocks=4, effect=0.2, common=0.5, own=0.001)
    found = effect_of(trials)
    assert found.blocks == 4, "an A/A pair is no comparison with the treatment"
    assert math.isclose(found.ratio.estimate, math.exp(0.2), rel_tol=0.01)
    floor = noise_floor("throughput", [t for t in trials if t.treatment == "b"])
    assert floor is not None
    assert floor.blocks == 4, "only the A/A pairs are"
    told = sides(trials, positions)
    assert told is not None
    assert told.pairs == 8
    assert told.alone is not None
    assert told.alone > 0.2
    assert told.together is not None
    assert told.together < 0.01
    assert told.gain is not None
    assert told.gain > 20


def test_the_bias_of_the_halves_is_found_and_decides_nothing() -> None:
    rng = np.random.default_rng(2)
    trials, positions = simulated(rng, blocks=8, effect=0.3, own=0.005, bias=0.1)
    told = sides(trials, positions)
    assert told is not None
    assert told.bias is not None
    assert told.bias.low is not None
    assert told.bias.high is not None
    assert told.bias.low < math.exp(0.1) < told.bias.high
    assert told.bias.low > 1.05
    assert math.isclose(effect_of(trials).ratio.estimate, math.exp(0.3), rel_tol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.0, 0.05])
def test_false_alarms_of_a_duet_are_at_most_alpha(bias: float) -> None:
    rng = np.random.default_rng(3)
    studies, alarms, odd, misled = 1500, 0, 0, 0
    for _ in range(studies):
        trials, positions = simulated(rng, blocks=6, bias=bias)
        alarms += effect_of(trials).verdict in (Verdict.BETTER, Verdict.WORSE)
        floor = noise_floor("throughput", [t for t in trials if t.treatment == "b"])
        assert floor is not None
        assert floor.ratio.low is not None
        assert floor.ratio.high is not None
        odd += not floor.ratio.low <= 1 <= floor.ratio.high
        told = sides(trials, positions)
        assert told is not None
        assert told.bias is not None
        assert told.bias.low is not None
        assert told.bias.high is not None
        misled += not told.bias.low <= math.exp(bias) <= told.bias.high
    allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert alarms / studies <= allowed
    assert odd / studies <= allowed
    assert misled / studies <= allowed


def test_common_noise_cancels_and_own_noise_does_not() -> None:
    """Beside the ordinary design in as much time: three trials a block, where a duet has two pairs."""
    rng = np.random.default_rng(4)
    duets, plain = [], []
    for _ in range(200):
        trials, _ = simulated(rng, blocks=6, effect=0.05, common=0.1, own=0.01)
        duets.append(width(effect_of(trials)))
        alone = []
        for block in range(4):
            for n, (name, role) in enumerate((("b", BASELINE), ("b", REPEAT), ("t", CANDIDATE))):
                value = math.hypot(0.1, 0.01) * rng.standard_normal() + (0.05 if name == "t" else 0.0)
                alone.append(response(3 * block + n, block, name, role, 1000 * math.exp(value)))
        plain.append(width(effect_of(alone)))
    assert np.median(plain) > 5 * np.median(duets)
    # Nothing in common: a duet is no better than any pair of trials.
    lonely = [width(effect_of(simulated(rng, blocks=6, common=0.0, own=0.1)[0])) for _ in range(200)]
    assert np.median(lonely) > 5 * np.median(duets)
