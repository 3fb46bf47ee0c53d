"""A plan file: TOML, checked so that every error names file, key, value and fix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from headrace.base import toml
from headrace.base.errors import PlanError
from headrace.experiment.plan import problems, syntax, where
from headrace.experiment.plan.sweep import SweepTable
from headrace.experiment.plan.tables import (
    DesignTable,
    FactorTable,
    MachineTable,
    ServerTable,
    Settings,
    Table,
    TargetTable,
    VolumeTable,
    WorkloadTable,
)
from headrace.experiment.plan.tune import TuneTable


class Plan(Table):
    """A whole plan file, with valid structure; ``design.build`` checks knobs and workload options."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    description: str = ""
    target: TargetTable = Field(default_factory=TargetTable)
    machine: MachineTable | None = None
    design: DesignTable
    workload: WorkloadTable
    volume: VolumeTable = VolumeTable()
    server: ServerTable = ServerTable()
    base: Settings = Field(default_factory=dict)
    bundles: dict[str, Settings] = Field(default_factory=dict)
    factors: dict[str, FactorTable] = Field(default_factory=dict)
    sweep: SweepTable | None = None
    tune: TuneTable | None = None


@dataclass(frozen=True)
class PlanFile:
    """A plan that was read. ``place`` is the file's name, for errors."""

    plan: Plan
    text: str
    place: str


def load(path: Path) -> PlanFile:
    """Read and check a plan file. Raises PlanError."""
    try:
        text = toml.read(path)
    except FileNotFoundError as error:
        raise PlanError(
            "no such file", place=str(path), hint="the examples are listed by `headrace plan list`"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(
            f"is not UTF-8, from byte {error.start} on",
            place=str(path),
            hint="save it as plain text in UTF-8",
        ) from error
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot be read: {error}", place=str(path)) from error
    return PlanFile(parse(text, str(path)), text, str(path))


def parse(text: str, place: str) -> Plan:
    """Check a plan's text. ``place`` is the file's name for errors."""
    try:
        content = toml.parse(text)
    except ValueError as error:  # also of thousands of digits
        raise syntax.error_of(text, error, place) from error
    own = [table for table in ("sweep", "tune") if table in content]
    if own:
        for table in ("design", "factors", "bundles", *(["sweep"] if "tune" in own else [])):
            if table in content:
                raise where.located(
                    PlanError(
                        f"{table}: a {own[-1]} ([{own[-1]}]) has its own design", hint=f"delete [{table}]"
                    ),
                    place,
                    text,
                )
        content["design"] = {"kind": "factorial", "baseline": {}}
    try:
        plan = Plan.model_validate(content)
    except ValidationError as error:
        guide = f"`headrace docs {own[-1] if own else 'plans'}` describes every key"
        raise _error(problems.found(error, content, TABLES), text, place, guide) from error
    designed = plan.sweep or plan.tune
    return plan if designed is None else plan.model_copy(update=designed.tables())


#: The tables of a plan whose keys are fixed, for keys that are in the wrong one.
TABLES: dict[str, type[BaseModel]] = {
    "design": DesignTable,
    "workload": WorkloadTable,
    "volume": VolumeTable,
    "server": ServerTable,
    "target": TargetTable,
    "machine": MachineTable,
    "sweep": SweepTable,
    "tune": TuneTable,
}


def _error(all_of_them: list[problems.Problem], text: str, place: str, guide: str) -> PlanError:
    """One error with every problem, a line each; its place and its fix are those of the first."""
    places = [where.line_of(text, problem.key) for problem in all_of_them]
    first, *rest = zip(all_of_them, places, strict=True)
    lines = [str(first[0]), *(f"line {line}: {problem}" if line else str(problem) for problem, line in rest)]
    message = "\n".join(dict.fromkeys(lines))
    return PlanError(message, place=f"{place}:{first[1]}" if first[1] else place, hint=first[0].fix or guide)
