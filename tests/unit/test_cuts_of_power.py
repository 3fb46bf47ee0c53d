"""Power cuts: what the client saw, what a boot showed, what a treatment lost, and what a plan must have."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from headrace.base.errors import NotAsAsked, PlanError
from headrace.base.model import Role, Treatment, TrialState
from headrace.experiment import design
from headrace.experiment.plan import file
from headrace.experiment.stats import cuts
from headrace.experiment.store import TrialRecord
from headrace.experiment.workloads import Cut
from headrace.experiment.workloads.power_cut import Look, count_of, cut_of, looks_of

SAW = """look 1000000000 10

look 2000000000 20
8\t4
9\t3
look 3000000000 35
8\t9
9\t10
look 4000000000 50
8\t1"""
LOOKS = [
    Look(1_000_000_000, 10, {}),
    Look(2_000_000_000, 20, {8: 4, 9: 3}),
    Look(3_000_000_000, 35, {8: 9, 9: 10}),
]
BOOT = "up 250000000\n{there}\nlast\t8\t{last}\nlast\t9\t{last}\nheadrace.power_cuts\tcheck\tstatus\tOK\n"


def test_a_look_that_was_cut_off_is_left_out() -> None:
    assert looks_of(SAW) == LOOKS
    assert looks_of("") == []


def test_rows_before_the_last_visible_one_were_acknowledged() -> None:
    assert count_of(LOOKS[1]).endswith(
        "WHERE CASE connection WHEN 8 THEN id < 4 WHEN 9 THEN id < 3 ELSE 0 END"
    )


def test_what_is_missing_is_lost_since_the_last_look_of_which_all_is_there() -> None:
    whole = cut_of(0, BOOT.format(there=8, last=11), "", LOOKS[2], LOOKS, 8)
    assert whole == Cut(8, 0, 0.0, 0.25)
    partly = cut_of(0, BOOT.format(there=5, last=5), "", LOOKS[2], LOOKS, 8)
    assert partly == Cut(8, 3, 1.0, 0.25)
    nothing = cut_of(0, "up 250000000\n0\nheadrace.power_cuts\tcheck\tstatus\tOK\n", "", LOOKS[2], LOOKS, 8)
    assert nothing == Cut(8, 8, 2.0, 0.25)


@pytest.mark.parametrize(
    ("exit_code", "output", "errors", "state"),
    [
        (10, "mount: wrong fs type", "", "the file system does not mount"),
        (12, "InnoDB: Corruption", "", "the server does not start"),
        (13, "", "", "the server did not answer within 180 s"),
        (1, "up 250000000\n", "ERROR 1146 (42S02): no table", "damaged: ERROR 1146 (42S02): no table"),
        (0, "up 250000000\n8\nh.power_cuts\tcheck\tstatus\tCorrupt\n", "", "damaged: Corrupt"),
        (0, "up 250000000\n8\n", "", "damaged: CHECK TABLE said nothing"),
    ],
)
def test_a_server_that_does_not_come_up_whole_is_said(
    exit_code: int, output: str, errors: str, state: str
) -> None:
    assert cut_of(exit_code, output, errors, LOOKS[2], LOOKS, 8).state == state


def test_an_end_from_outside_says_nothing_of_the_disk() -> None:
    with pytest.raises(NotAsAsked, match="the server ended with 137, without saying why"):
        cut_of(1, "", "the server ended with 137, without saying why", LOOKS[2], LOOKS, 8)


def record(treatment: str, number: int, *lost: int, state: TrialState = TrialState.COMPLETE) -> TrialRecord:
    own = [asdict(Cut(1000, each, each / 100, 0.2)) for each in lost]
    return TrialRecord(number, 1, number, treatment, Role.CANDIDATE, state, cuts=own)


TREATMENTS = {name: Treatment(name, {}, {}) for name in ("safe", "fast", "fastest")}


def test_the_trial_is_the_unit_and_the_worst_is_first() -> None:
    records = [
        record("safe", 1, 0, 0),
        record("fast", 2, 10, 0),
        record("fastest", 3, 30, 110),
        record("safe", 4, 0, 0),
        record("fast", 5, 0, 0),
        record("fastest", 6, 120, 140),
        record("safe", 7, 999, state=TrialState.INVALID),
        record("unknown", 8, 999),
    ]
    taken = {each.treatment: each for each in cuts.lost(records, TREATMENTS, 0.05)}
    assert set(taken) == set(TREATMENTS)
    fast, safe = taken["fast"], taken["safe"]
    assert (fast.trials, fast.trials_that_lost, fast.cuts, fast.cuts_that_lost) == (2, 1, 4, 1)
    # Of two trials that lost 5 and 0 a cut: t with one degree of freedom is 12.7.
    assert fast.per_cut.estimate == 2.5
    assert fast.per_cut.low == 0
    assert fast.per_cut.high == pytest.approx(2.5 + 12.706 * 2.5, rel=1e-3)
    assert safe.at_most == pytest.approx(1 - 0.05**0.5)
    said = cuts.sentence(list(taken.values()), TREATMENTS, 0.05)
    assert said == (
        "With fastest a power cut takes 100 acknowledged transactions on average (95% interval 0 to 481; some in "
        "4 of 4 cuts), 140 at most and 1.4 s of work. Some are lost with fast (2), too. None was lost with safe "
        "(4 cuts of 2 trials: at 95%, fewer than 78% of such trials lose any)."
    )
    assert safe.per_cut.high is None, "two trials without a loss are no proof of none"
    assert cuts.sentence([], TREATMENTS, 0.05) == ""


def plan(volume: str = 'device = "logged"', more: str = "") -> str:
    return f"""
name = "cuts"
[design]
kind = "factorial"
baseline = "1"
blocks = 2
allow_weaker_durability = ["server.innodb_flush_log_at_trx_commit"]
[workload]
kind = "power-cut"
seconds = 5
[volume]
{volume}
[base]
"server.innodb_buffer_pool_size" = "64M"
{more}
[factors.flush]
knob = "server.innodb_flush_log_at_trx_commit"
levels = ["1", "2"]
"""


def built(text: str) -> None:
    design.build(file.parse(text, "plan.toml"), place="plan.toml")


def test_a_plan_of_power_cuts_needs_a_volume_whose_writes_are_logged() -> None:
    built(plan())
    with pytest.raises(PlanError, match="power cuts need a volume whose writes are logged") as refused:
        built(plan('device = "loop"'))
    assert refused.value.hint == '[volume] device = "logged"'
    with pytest.raises(PlanError, match="the kernel cannot mount what a power cut leaves"):
        built(plan(more='"volume.filesystem" = "btrfs"'))
