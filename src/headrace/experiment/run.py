"""Run a plan of any kind, on one machine or on several."""

from __future__ import annotations

from pathlib import Path

from headrace.base import extras
from headrace.base.errors import PlanError
from headrace.experiment import kinds, pool, runner
from headrace.experiment.plan import PlanFile
from headrace.experiment.runner import Listener, Note
from headrace.experiment.store import ExperimentFolder

#: Default executor for several machines.
HERE = "here"


async def run(
    file: PlanFile, folder_path: Path | None, listen: Listener, *, retry: bool = False, on: str = HERE
) -> ExperimentFolder:
    """Run or continue a plan: see ``runner.run_here``.

    ``on`` is the executor of a plan with several machines: this process, or a Ray cluster (``ray``,
    ``ray://HOST:PORT``).
    """
    # Check before a host is touched: an experiment must be stored and analysed.
    extras.require_all("analysis")
    if file.plan.target.addresses:
        controllers = _controllers(on, listen)
        return await pool.run_pool(file, folder_path, listen, retry=retry, controllers=controllers)
    if on != HERE:
        raise PlanError(
            f"--executor {on}: it distributes blocks over several machines, but this plan has one",
            place=file.place,
            hint='[target] addresses = ["root@a", "root@b"]',
        )
    return await runner.run_here(kinds.of_plan(file.plan), file, folder_path, listen, retry=retry)


def _controllers(on: str, listen: Listener) -> pool.Controllers:
    if on == HERE:
        return pool.Here()
    # Ray takes a second to import and is optional.
    from headrace.experiment.cluster import RayControllers

    return RayControllers(on, lambda text: listen(Note(text)))
