"""More blocks for an experiment whose folder exists: the same seed's next ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headrace.base.errors import PlanError
from headrace.experiment import kinds
from headrace.experiment.plan import PlanFile
from headrace.experiment.runner import exclusive
from headrace.experiment.store import ExperimentFolder


def extend(file: PlanFile, path: Path, more: int) -> None:
    """Add blocks to the design in a folder, which the next run measures. Raises PlanError if it cannot be."""
    with exclusive(ExperimentFolder.open(path).path):
        # Again: before the lock was taken, another process may have added some.
        folder = ExperimentFolder.open(path)
        old = folder.design
        kind = kinds.of_design(old)
        if not kind.extends:
            raise PlanError(
                f"--blocks: not for a {old.experiment}, which decides itself how many trials it needs or plans "
                "them as a whole",
                place=str(path),
            )
        if why := kind.why_no_longer(folder):
            raise PlanError(f"--blocks: {why}, so more would change nothing", place=str(path))
        if old.target.addresses:
            raise PlanError("--blocks: an experiment on several machines has a fixed length", place=str(path))
        table = file.plan.design.model_copy(update={"blocks": old.blocks + more})
        plan = file.plan.model_copy(update={"design": table})
        for is_root in (True, False):
            longer = kind.build(plan, place=file.place, is_root=is_root)
            is_same = kinds.build(file.plan, place=file.place, is_root=is_root).hash == old.hash
            if is_same and longer.trials[: len(old.trials)] == old.trials:
                break
        else:
            raise PlanError(
                "--blocks: this directory belongs to another plan",
                place=file.place,
                hint=f"headrace run {path}/plan.toml -o {path} --blocks +{more}",
            )
        folder.renew(replace(longer, hash=old.hash, extended=(*old.extended, old.blocks)))
