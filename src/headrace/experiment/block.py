"""A whole block on one machine: the task given to a controller.

It is the runner itself, over an experiment of only these trials in its own folder; the task's owner moves each
trial out of that folder when it hears that it has ended. So a block on one of many machines, started by this
process or by Ray, is the same work as an experiment on one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.base.errors import NothingMeasured, Refused
from headrace.base.model import Facts
from headrace.base.whole import remove_tree
from headrace.experiment import kinds, labs, lease
from headrace.experiment import plan as plans
from headrace.experiment.boot import boot_id
from headrace.experiment.frozen import Design
from headrace.experiment.machine import target_spec
from headrace.experiment.runner import Event, Note, Run
from headrace.experiment.store import ExperimentFolder
from headrace.host.agent import Agent
from headrace.host.target import Target, open_target

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Seen:
    """A machine's state before the first trial."""

    facts: Facts
    is_root: bool
    boot_id: str


@dataclass(frozen=True)
class Task:
    """The remaining trials of a block, for one machine.

    ``place`` is the plan file's name, for errors. ``apart``: the controller must not run on the machine itself.
    """

    plan_text: str
    place: str
    design_hash: str
    is_root: bool
    address: str
    numbers: tuple[int, ...]
    apart: bool = False
    #: How many disturbed trials may be repeated.
    most_repeats: int = 0


#: How long a lost connection is retried unless the plan sets it; after that another machine may take the block.
RECONNECT_S = 60.0


def at(table: plans.TargetTable, address: str) -> plans.TargetTable:
    """The plan as if this were its only machine."""
    own: dict[str, object] = {"address": address, "addresses": []}
    if "reconnect_s" not in table.model_fields_set:
        own["reconnect_s"] = RECONNECT_S
    return table.model_copy(update=own)


async def look(plan: plans.Plan, address: str, *, apart: bool = False) -> Seen:
    """Reach a machine and read its facts.

    Raises TargetError if it is unreachable, Refused if it must not be used. ``apart``: the controller must not run
    on the machine itself.
    """
    target = open_target(target_spec(at(plan.target, address)))
    try:
        await target.connect()
        boot = await boot_id(target)
        await _refuse_controllers(plan, target, boot, apart)
        facts = await (await Agent.install(target)).facts()
        return Seen(facts, target.is_root, boot)
    finally:
        await target.close()


async def _refuse_controllers(plan: plans.Plan, target: Target, boot: str, apart: bool) -> None:
    """Ray uses CPU even when idle, so it must not run on a host under test."""
    ray = await target.run(["pgrep", "-x", "raylet"], check=False)
    if ray.exit_code == 0:
        raise Refused(
            "Ray runs on this host and would affect the measurement",
            place=target.name,
            hint="`ray stop` there; controllers reach hosts over SSH and run on none of them",
        )
    if apart and not plan.target.allow_shared and boot == BOOT_ID.read_text().strip():
        raise Refused(
            "this host is the controller's own machine: the controller would affect the measurement",
            place=target.name,
            hint="run Ray on other machines; for a test without valid results: [target] allow_shared = true",
        )


def design_of(task: Task) -> Design:
    """The whole design that the task belongs to."""
    plan = plans.parse(task.plan_text, task.place)
    return kinds.build(plan, place=task.place, is_root=task.is_root)


async def run_block(task: Task, folder: Path, listen: Callable[[Event], None]) -> None:
    """Run the trials of a task in order; ``folder`` holds the finished ones, as an experiment's does.

    Waits while another process holds the machine. Raises TargetError when the machine is lost, and what the runner
    raises; when cancelled, the machine is restored first.
    """
    whole = design_of(task)
    if whole.hash != task.design_hash:
        raise Refused(
            "this controller runs a different headrace version and would build a different design",
            place=task.address,
            hint="install the same version on every controller",
        )
    wanted = set(task.numbers)
    design = replace(
        whole,
        target=at(whole.target, task.address),
        trials=tuple(trial for trial in whole.trials if trial.number in wanted),
    )
    if task.apart:
        await look(plans.parse(task.plan_text, task.place), task.address, apart=True)
    remove_tree(folder)
    own = ExperimentFolder.create(folder, task.plan_text, design)

    def tell(text: str) -> None:
        listen(Note(text))

    async with labs.open_laboratory(design, own, tell) as lab:
        await lease.queued(lab.begin, tell)
        try:
            kind = kinds.of_design(design)(own)
            await Run(kind, lab, listen, most_repeats=task.most_repeats).all_trials()
        except NothingMeasured:
            # These are only some of the trials; the caller decides whether the experiment has failed.
            return
