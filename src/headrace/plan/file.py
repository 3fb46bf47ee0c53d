"""A plan file: TOML, checked so that every error names file, key, value and fix."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from headrace import toml
from headrace.errors import PlanError
from headrace.plan.sweep import SweepTable
from headrace.plan.tables import (
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
from headrace.plan.tune import TuneTable


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
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot be read: {error}", place=str(path)) from error
    return PlanFile(parse(text, str(path)), text, str(path))


def parse(text: str, place: str) -> Plan:
    """Check a plan's text. ``place`` is the file's name for errors."""
    try:
        content = toml.parse(text)
    except ValueError as error:  # also of thousands of digits
        raise PlanError(f"not valid TOML: {error}", place=place) from error
    own = [table for table in ("sweep", "tune") if table in content]
    if own:
        for table in ("design", "factors", "bundles", *(["sweep"] if "tune" in own else [])):
            if table in content:
                raise PlanError(f"{table}: a {own[-1]} ([{own[-1]}]) has its own design", place=place)
        content["design"] = {"kind": "factorial", "baseline": {}}
    try:
        plan = Plan.model_validate(content)
    except ValidationError as error:
        guide = f"`headrace docs {own[-1] if own else 'plans'}`"
        raise PlanError(describe(error), place=place, hint=f"{guide} describes every key") from error
    designed = plan.sweep or plan.tune
    return plan if designed is None else plan.model_copy(update=designed.tables())


def describe(error: ValidationError) -> str:
    """The problems, one line per key."""
    lines = []
    for problem in error.errors(include_url=False):
        # Unions repeat a problem for each member, with the member's type in the location: drop those parts.
        key = ".".join(str(part) for part in problem["loc"] if not _is_type_name(str(part)))
        value = problem["input"]
        shown = "" if isinstance(value, dict) or problem["type"] == "missing" else f" = {value!r}"
        lines.append(f"{key}{shown}: {_reason(problem)}")
    return "\n".join(dict.fromkeys(lines))


def _is_type_name(part: str) -> bool:
    return bool(re.fullmatch(r"(str|int|float|bool|list|dict)(\[.*\])?|tagged-union.*|function-.*", part))


def _reason(problem: Any) -> str:
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return "no such key"
    if problem["type"] == "missing":
        given = problem["input"] if isinstance(problem["input"], dict) else {}
        near = difflib.get_close_matches(str(problem["loc"][-1]), [str(key) for key in given], n=1)
        return f"this key is required: is it {near[0]!r} that was meant?" if near else "this key is required"
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return f"must be {message}"
