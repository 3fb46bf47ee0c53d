"""The kinds of experiment, each with its design and its loop: the one place that tells them apart."""

from __future__ import annotations

from pathlib import Path

from headrace import plan as plans
from headrace.design import Design
from headrace.errors import PlanError
from headrace.experiment import design as designs
from headrace.experiment import duet, pool, race, sweep
from headrace.experiment.runner import Listener, Note, run_experiment
from headrace.store import ExperimentFolder

#: Who works with several machines, unless somebody else is named.
HERE = "here"


def build(plan: plans.Plan, *, place: str, is_root: bool = True) -> Design:
    """The design of a plan of any kind. Raises PlanError with ``place`` and the key."""
    if plan.sweep is not None:
        return sweep.build(plan, place=place, is_root=is_root)
    found = designs.build(plan, place=place, is_root=is_root)
    if plan.design.duet:
        return duet.as_duet(found, place)
    return race.as_race(found, place) if plan.design.kind == race.KIND else found


async def run(
    plan_path: Path, folder_path: Path | None, listen: Listener, *, retry: bool = False, on: str = HERE
) -> ExperimentFolder:
    """Run or continue the plan of any kind: see ``runner.run_experiment``.

    ``on`` says who works with the machines of a plan that lists several: this process, or a Ray cluster (``ray``,
    ``ray://HOST:PORT``).
    """
    plan, _ = plans.load(plan_path)
    if plan.target.addresses:
        return await pool.run_pool(
            plan_path, folder_path, listen, retry=retry, controllers=_controllers(on, listen)
        )
    if on != HERE:
        raise PlanError(
            f"--on {on}: it spreads blocks over several machines, and this plan names one",
            place=str(plan_path),
            hint='[target] addresses = ["root@a", "root@b"]',
        )
    if plan.sweep is not None:
        return await sweep.run_sweep(plan_path, folder_path, listen, retry=retry)
    loop = race.run_race_plan if plan.design.kind == race.KIND else run_experiment
    loop = duet.run_duet if plan.design.duet else loop
    return await loop(plan_path, folder_path, listen, retry=retry)


def _controllers(on: str, listen: Listener) -> pool.Controllers:
    if on == HERE:
        return pool.Here()
    # Ray takes a second to import, and few have it.
    from headrace.experiment.cluster import RayControllers

    return RayControllers(on, lambda text: listen(Note(text)))


def as_decided(folder: ExperimentFolder) -> ExperimentFolder:
    """The folder with the trials that are left to run in its design, where that is decided on the way."""
    return race.as_decided(sweep.as_decided(folder))
