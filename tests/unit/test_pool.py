"""Many machines: blocks are given, lost and given again; at the end every trial stands once, of whole blocks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import Busy, HostBusy, NothingMeasured, PlanError, Refused, TargetError
from headrace.base.model import Facts, TrialState
from headrace.experiment import design as designs
from headrace.experiment import kinds
from headrace.experiment import plan as plans
from headrace.experiment.block import Seen, Task
from headrace.experiment.lease import queued
from headrace.experiment.ledger import MOST_LOSSES, Assignment, Ledger
from headrace.experiment.pool import ControllerLost, On, Patience, reached_all, run_pool
from headrace.experiment.retries import LEAST, MAX_SHARE
from headrace.experiment.runner import Event, Listener, Note, TrialEnded, TrialStarted
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.host.arrow import empty_data
from headrace.host.facts import differences

MACHINES = ["root@a", "root@b", "root@c"]

PLAN = """
name = "spread"
[target]
addresses = ["root@a", "root@b", "root@c"]
[design]
kind = "factorial"
baseline = "none"
blocks = 6
[workload]
kind = "fio"
seconds = 1
[volume]
device = "loop"
[factors.scheduler]
knob = "volume.scheduler"
levels = ["none", "mq-deadline"]
"""

SWIFT = Patience(retry_s=0.001, all_away_s=0.05, failures=10_000, yield_s=0)


class Simulation:
    """A ledger with machines that work and die, and the trials that would be on disk."""

    def __init__(self, blocks: dict[int, list[int]], done: dict[int, str]) -> None:
        self.blocks = blocks
        self.disk = dict(done)
        self.ledger = Ledger(blocks, done)
        self.running: dict[str, list[int]] = {}
        self.present: set[str] = set()

    def come(self, machine: str) -> None:
        self.ledger.back(machine)
        self.present.add(machine)

    def begin(self, machine: str) -> bool:
        assignment = self.ledger.take(machine)
        if assignment is None:
            return False
        for number in assignment.aside:
            del self.disk[number]
        numbers = self.blocks[assignment.block]
        assert not set(assignment.numbers) & set(assignment.hopeless)
        assert {self.disk[n] for n in numbers if n in self.disk} <= {machine}, "a block of two machines"
        assert all(n not in self.disk for n in assignment.numbers), "a trial that is there is run again"
        for number in assignment.hopeless:
            self.disk[number] = machine
            self.ledger.measured(machine, number)
        if assignment.numbers:
            self.running[machine] = list(assignment.numbers)
        else:
            self.ledger.ended(machine)
        return True

    def measure(self, machine: str) -> None:
        number = self.running[machine].pop(0)
        assert number not in self.disk
        self.disk[number] = machine
        self.ledger.measured(machine, number)
        if not self.running[machine]:
            del self.running[machine]
            self.ledger.ended(machine)

    def die(self, machine: str, *, in_the_trial: bool) -> None:
        number = self.running.pop(machine)[0]
        self.present.discard(machine)
        self.ledger.lost(machine, number if in_the_trial else None, "it died")

    def pass_time(self) -> None:
        """Somebody works, or gets work: else nothing would ever happen again."""
        if self.running:
            self.measure(next(iter(self.running)))
        else:
            assert any(self.begin(machine) for machine in sorted(self.present)), "nobody gets what is left"


@settings(max_examples=300)
@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=120),
    st.data(),
)
def test_whatever_dies_every_trial_is_measured_once_in_blocks_of_one_machine(
    count: int, size: int, machines: int, events: list[tuple[int, int]], data: st.DataObject
) -> None:
    blocks = {b + 1: list(range(b * size + 1, (b + 1) * size + 1)) for b in range(count)}
    names = MACHINES[:machines]
    every = range(1, count * size + 1)
    done = data.draw(st.dictionaries(st.sampled_from(every), st.sampled_from([*names, "gone"])))
    lab = Simulation(blocks, done)
    lab.come(names[0])
    for which, what in events:
        machine = names[which % machines]
        if lab.ledger.is_over:
            break
        if machine not in lab.present:
            lab.come(machine)
        elif machine not in lab.running:
            lab.begin(machine)
        elif what < 3:
            lab.measure(machine)
        else:
            lab.die(machine, in_the_trial=what == 3)
    while not lab.ledger.is_over:
        lab.come(names[0]) if not lab.present else lab.pass_time()
    assert sorted(lab.disk) == list(every)
    assert all(len({lab.disk[n] for n in numbers}) == 1 for numbers in blocks.values())


def test_a_machine_that_returns_goes_on_with_its_own_block() -> None:
    ledger = Ledger({1: [1, 2], 2: [3, 4]}, {})
    ledger.back("a")
    assert ledger.take("a") == Assignment(1, (1, 2))
    ledger.measured("a", 1)
    ledger.lost("a", 2, "cut")
    ledger.back("b")
    assert ledger.take("b") == Assignment(2, (3, 4))
    ledger.back("a")
    assert ledger.take("a") == Assignment(1, (2,))


def test_what_a_machine_began_is_its_own_as_long_as_it_is_there() -> None:
    ledger = Ledger({1: [1, 2]}, {1: "a"})
    ledger.back("a")
    ledger.back("b")
    assert ledger.take("b") is None
    assert ledger.take("a") == Assignment(1, (2,))


def test_what_a_lost_machine_began_is_run_anew_when_nothing_else_is_left() -> None:
    ledger = Ledger({1: [1, 2], 2: [3, 4]}, {1: "a", 3: "b"})
    ledger.back("b")
    assert ledger.take("b") == Assignment(2, (4,))
    ledger.measured("b", 4)
    ledger.ended("b")
    assert ledger.take("b") == Assignment(1, (1, 2), aside=(1,))


def test_a_trial_in_which_two_machines_were_lost_is_not_tried_on_a_third() -> None:
    ledger = Ledger({1: [1, 2]}, {})
    for name in ("a", "b")[:MOST_LOSSES]:
        ledger.back(name)
        ledger.take(name)
        ledger.lost(name, 1, "panic")
    ledger.back("c")
    assert ledger.take("c") == Assignment(1, (2,), hopeless={1: ("a: panic", "b: panic")})


def test_a_machine_measures_only_what_it_was_given() -> None:
    ledger = Ledger({1: [1], 2: [2]}, {})
    ledger.back("a")
    ledger.take("a")
    with pytest.raises(ValueError, match="is not running"):
        ledger.measured("a", 2)


def facts_of(machine: str, **cpu: object) -> Facts:
    data = {
        "hostname": machine,
        "kernel": {"release": "6.1.0", "version": "#1"},
        "cpu": {"model": "X", "online_count": 4, **cpu},
        "memory": {"total_bytes": 2**34},
        "block_devices": [{"name": "sda", "kind": "disk", "model": "S", "size_bytes": 2**40}],
    }
    return Facts(f"{machine.replace('@', '-')}", data)


@dataclass
class Fakes:
    """Machines that measure nothing, and die where ``death`` says so: called before and after each trial."""

    death: random.Random | None = None
    share: float = 0.0
    most: int = 60
    deaths: int = 0
    cpus: dict[str, dict[str, object]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    boots: dict[str, str] = field(default_factory=dict)
    kills: set[str] = field(default_factory=set)
    ran: list[tuple[str, int]] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    disturbed: bool = False
    repeated: int = 0

    async def look(self, plan: plans.Plan, address: str) -> Seen:
        await asyncio.sleep(0)
        self._maybe(address)
        if address in self.missing:
            raise TargetError("no answer", place=address)
        facts = facts_of(address, **self.cpus.get(address, {}))
        return Seen(facts, True, self.boots.get(address, address))

    def _maybe(self, address: str) -> None:
        if self.death and self.deaths < self.most and self.death.random() < self.share:
            self.deaths += 1
            error = ControllerLost if self.death.random() < 0.3 else TargetError
            raise error("it died", place=address)

    async def run_block(self, task: Task, folder: Path, listen: Listener) -> None:
        assert task.address not in self.busy, "two trials at once on one machine"
        self.busy.add(task.address)
        try:
            await self._run(task, folder, listen)
        finally:
            self.busy.discard(task.address)

    async def _run(self, task: Task, folder: Path, listen: Listener) -> None:
        plan = plans.parse(task.plan_text, task.place)
        design = designs.build(plan, place=task.place, is_root=task.is_root)
        assert design.hash == task.design_hash
        self._maybe(task.address)
        own = ExperimentFolder(folder, design)
        if not folder.exists():
            own = ExperimentFolder.create(folder, task.plan_text, design)
        own.save_facts(facts_of(task.address))
        for number in task.numbers:
            spec = next(t for t in design.trials if t.number == number)
            listen(TrialStarted(spec, 0, 0, 0.0))
            await asyncio.sleep(0)
            self._maybe(task.address)
            if spec.treatment in self.kills:
                raise TargetError("it panicked", place=task.address)
            record = replace(
                TrialRecord.of(spec, TrialState.COMPLETE), facts_hash=facts_of(task.address).hash
            )
            own.begin_trial(number).commit(record, empty_data())
            self._maybe(task.address)
            self.ran.append((task.address, number))
            listen(TrialEnded(record, 1.0, 0, 0, 0.0))
            self._maybe(task.address)
        for number in task.numbers[: task.most_repeats] if self.disturbed else ():
            await asyncio.sleep(0)
            self.repeated += 1
            spec = next(t for t in design.trials if t.number == number)
            record = TrialRecord.of(spec, TrialState.COMPLETE)
            own.remove_trial(number)
            own.begin_trial(number).commit(record, empty_data())
            listen(TrialStarted(spec, 0, 0, 0.0))
            listen(TrialEnded(record, 1.0, 0, 0, 0.0))

    async def close(self) -> None:
        pass


def run(
    folder: Path, fakes: Fakes, text: str = PLAN, patience: Patience = SWIFT, retry: bool = False
) -> tuple[ExperimentFolder, list[Event]]:
    plan = folder / "plan.toml"
    plan.write_text(text)
    heard: list[Event] = []
    work = run_pool(
        plans.load(plan), folder / "out", heard.append, retry=retry, controllers=fakes, patience=patience
    )
    return asyncio.run(work), heard


def notes(events: Sequence[Event]) -> str:
    inner = [event.event if isinstance(event, On) else event for event in events]
    return "\n".join(event.text for event in inner if isinstance(event, Note))


def machines_of(folder: ExperimentFolder) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for record in folder.trials():
        found.setdefault(record.block, set()).add(record.machine)
    return found


def test_blocks_are_spread_and_each_is_of_one_machine(tmp_path: Path) -> None:
    fakes = Fakes()
    folder, heard = run(tmp_path, fakes)
    assert [r.number for r in folder.trials()] == list(range(1, 19))
    assert all(len(machines) == 1 for machines in machines_of(folder).values())
    assert {r.machine for r in folder.trials()} == set(MACHINES)
    assert sorted(n for _, n in fakes.ran) == list(range(1, 19))
    last = [e.event for e in heard if isinstance(e, On) and isinstance(e.event, TrialEnded)][-1]
    assert (last.done, last.total) == (18, 18)
    assert not (folder.path / ".work").exists()
    assert {f.stem for f in (folder.path / "facts").iterdir()} == {m.replace("@", "-") for m in MACHINES}


@pytest.mark.parametrize("seed", range(16))
def test_random_deaths_lose_no_trial_and_double_none(seed: int, tmp_path: Path) -> None:
    fakes = Fakes(random.Random(seed), share=0.02 + 0.012 * seed, most=30)
    patience = Patience(retry_s=0.0005, all_away_s=60.0, failures=10_000, yield_s=0)
    folder: ExperimentFolder | None = None
    for _ in range(50):
        try:
            folder, _ = run(tmp_path, fakes, patience=patience)
            break
        except TargetError:  # none was there to begin with
            continue
    assert folder is not None
    records = folder.trials()
    assert [r.number for r in records] == list(range(1, 19))
    assert all(len(machines) == 1 for machines in machines_of(folder).values())
    assert not list((folder.path / "trials").glob(".*"))
    aside = folder.set_aside_count()
    complete = sum(r.state is TrialState.COMPLETE for r in records)
    # Whatever was reported stands in the folder: as a trial, or set aside.
    assert len(fakes.ran) == complete + aside - _given_up_aside(folder)
    for record in records:
        if record.state is TrialState.INVALID:
            assert "ended without a result 2 times" in record.reason


def _given_up_aside(folder: ExperimentFolder) -> int:
    texts = [p.read_text() for p in (folder.path / "set-aside").glob("*/trial.json")]
    return sum('"state": "invalid"' in text for text in texts)


def test_a_treatment_that_kills_machines_does_not_end_the_lab(tmp_path: Path) -> None:
    fakes = Fakes(kills={"mq-deadline"})
    folder, heard = run(tmp_path, fakes)
    states = {r.treatment: r.state for r in folder.trials()}
    assert states == {"none": TrialState.COMPLETE, "mq-deadline": TrialState.INVALID}
    assert "it panicked" in next(r.reason for r in folder.trials() if r.state is TrialState.INVALID)
    assert "is not repeated" in notes(heard)


def test_all_blocks_together_repeat_as_many_trials_as_one_machine_would(tmp_path: Path) -> None:
    """Each block had the repeats of a short experiment: six blocks, 24 repeats of 18 trials."""
    fakes = Fakes(disturbed=True)
    folder, _ = run(tmp_path, fakes)
    assert len(folder.trials()) == 18
    assert fakes.repeated == LEAST
    # Of a long one it is a share of its trials.
    (tmp_path / "long").mkdir()
    fakes = Fakes(disturbed=True)
    run(tmp_path / "long", fakes, PLAN.replace("blocks = 6", "blocks = 20"))
    assert fakes.repeated == 20 * 3 // MAX_SHARE


def test_a_trial_that_is_measured_again_in_a_later_run_says_why(tmp_path: Path) -> None:
    class Cut(Fakes):
        """Machines that lose power after two trials."""

        async def _run(self, task: Task, folder: Path, listen: Listener) -> None:
            if self.ran:
                raise TargetError("the power is cut", place=task.address)
            await super()._run(replace(task, numbers=task.numbers[:2]), folder, listen)

    with pytest.raises(TargetError):
        run(tmp_path, Cut(), patience=Patience(0.001, 0.01, 2, 0))
    folder = ExperimentFolder.open(tmp_path / "out")
    second = folder.trials()[1]
    bad = replace(
        second, state=TrialState.INVALID, reason="a backup ran", earlier=["invalid: a compiler ran"]
    )
    folder.remove_trial(bad.number)
    folder.begin_trial(bad.number).commit(bad, empty_data())
    folder, _ = run(tmp_path, Fakes())
    good = folder.trial(bad.number)
    assert good is not None
    assert good.state is TrialState.COMPLETE
    assert good.earlier == ["invalid: a compiler ran", "invalid: a backup ran"]
    assert good.warnings == [f"repeated; before: {reason}" for reason in good.earlier]
    assert [r.number for r in folder.trials() if r.earlier] == [bad.number]


def test_an_experiment_goes_on_with_other_machines(tmp_path: Path) -> None:
    class Stop(Fakes):
        async def _run(self, task: Task, folder: Path, listen: Listener) -> None:
            if len(self.ran) >= 7:
                raise TargetError("the power is cut", place=task.address)
            await super()._run(task, folder, listen)

    with pytest.raises(TargetError, match=r"all machines are lost|power is cut"):
        run(tmp_path, Stop(), patience=Patience(0.001, 0.01, 2, 0))
    before = ExperimentFolder.open(tmp_path / "out").trials()
    assert 0 < len(before) < 18
    other = PLAN.replace('["root@a", "root@b", "root@c"]', '["root@x", "root@y"]')
    folder, _ = run(tmp_path, Fakes(), other)
    assert [r.number for r in folder.trials()] == list(range(1, 19))
    assert all(len(machines) == 1 for machines in machines_of(folder).values())
    assert ExperimentFolder.open(folder.path).design.target.addresses == ["root@x", "root@y"]


def test_a_machine_that_is_away_is_told_and_done_without(tmp_path: Path) -> None:
    folder, heard = run(tmp_path, Fakes(missing={"root@b"}))
    assert "unreachable: no answer" in notes(heard)
    assert {r.machine for r in folder.trials()} == {"root@a", "root@c"}


def test_when_no_machine_is_there_the_first_says_why(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no answer"):
        run(tmp_path, Fakes(missing=set(MACHINES)))


def test_differences_are_said_and_refused_where_the_plan_wants_equal_machines(tmp_path: Path) -> None:
    fakes = Fakes(cpus={"root@c": {"model": "Y", "online_count": 8}})
    _, heard = run(tmp_path, fakes)
    assert "root@a and root@c differ: CPU: X / Y; CPUs online: 4 / 8" in notes(heard)
    strict = PLAN.replace("[design]", "equal = true\n[design]", 1)
    other = tmp_path / "strict"
    other.mkdir()
    with pytest.raises(Refused, match="CPU: X / Y"):
        run(other, fakes, strict)


def test_one_machine_under_two_names_is_refused(tmp_path: Path) -> None:
    fakes = Fakes(boots={"root@a": "one", "root@c": "one"})
    with pytest.raises(Refused, match="root@a and root@c are the same machine"):
        run(tmp_path, fakes)
    run(tmp_path, fakes, PLAN.replace("[design]", "allow_shared = true\n[design]", 1))


def test_equal_machines_may_differ_by_what_the_kernel_keeps_of_their_memory() -> None:
    one, other = facts_of("a"), facts_of("b")
    assert differences(one, other) == []
    near = Facts("n", {**other.data, "memory": {"total_bytes": 2**34 - 2**22}})
    assert differences(one, near) == []
    far = Facts("f", {**other.data, "memory": {"total_bytes": 2**33}})
    assert differences(one, far) == ["memory: 16.0 GiB / 8.0 GiB"]
    disk = Facts("d", {**other.data, "block_devices": []})
    assert differences(one, disk) == ["disks: S 1024.0 GiB / none"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("addresses = [", 'address = "local"\naddresses = ['), "either address, or addresses"),
        (('"root@b"', '"root@a"'), "each machine once"),
        (('addresses = ["root@a", "root@b", "root@c"]', "equal = true"), "only with several machines"),
        (('kind = "factorial"', 'kind = "race"'), "a race runs on one machine"),
        (('kind = "factorial"', 'kind = "factorial"\nduet = true'), "a duet runs on one machine"),
    ],
)
def test_a_plan_of_machines_that_cannot_be(change: tuple[str, str], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        kinds.build(plans.parse(PLAN.replace(*change, 1), "plan.toml"), place="plan.toml")


def test_machines_that_experiments_share_are_not_rebooted() -> None:
    factor = '[factors.kernel]\nknob = "machine.kernel"\nlevels = ["6.1", "6.12"]\n'
    baseline = PLAN.replace('baseline = "none"', 'baseline = { scheduler = "none", kernel = "6.1" }')
    with pytest.raises(PlanError, match="are not rebooted"):
        designs.build(plans.parse(baseline + factor, "p"), place="p")


def test_a_design_of_many_machines_does_not_depend_on_which() -> None:
    def hash_of(text: str) -> str:
        return designs.build(plans.parse(text, "p"), place="p").hash

    assert hash_of(PLAN) == hash_of(PLAN.replace("root@b", "root@z"))
    one = PLAN.replace('addresses = ["root@a", "root@b", "root@c"]', "")
    target = designs.build(plans.parse(one, "p"), place="p").to_json()["target"]
    assert "address" in target
    assert "addresses" not in target


def test_how_long_it_takes_and_where_the_machines_are(tmp_path: Path) -> None:
    folder, _ = run(tmp_path, Fakes())
    assert folder.design.share_of_one_machine == pytest.approx(2 / 6)
    assert [(spec.user, spec.host) for spec in reached_all(folder)] == [("root", n[-1]) for n in MACHINES]
    one = replace(folder.design, target=plans.TargetTable())
    assert one.share_of_one_machine == 1
    assert reached_all(ExperimentFolder(tmp_path, one)) == []


def test_a_baseline_that_fails_in_the_first_block_ends_it_all(tmp_path: Path) -> None:
    class Failing(Fakes):
        async def _run(self, task: Task, folder: Path, listen: Listener) -> None:
            def failed(event: Event) -> None:
                if isinstance(event, TrialEnded) and event.record.block == 1:
                    path = folder / "trials" / f"{event.record.number:04d}" / "trial.json"
                    path.write_text(path.read_text().replace('"complete"', '"failed"'))
                listen(event)

            await super()._run(task, folder, failed)

    with pytest.raises(NothingMeasured, match="the baseline none failed"):
        run(tmp_path, Failing())


async def test_who_comes_later_waits_and_is_told_once_who_is_in_the_way() -> None:
    asked: list[int] = []
    told: list[str] = []

    async def take() -> str:
        asked.append(1)
        if len(asked) < 4:
            raise HostBusy("process 7 holds this host for headrace-x")
        return "held"

    assert await queued(take, told.append, poll_s=0) == "held"
    assert told == ["waiting: process 7 holds this host for headrace-x"]

    async def taken() -> None:
        raise Busy("port 3306 is in use")

    with pytest.raises(Busy):
        await queued(taken, told.append, poll_s=0)
