"""The plan file: what a person writes in TOML, checked so that every error names file, key, value and remedy."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from headrace.errors import PlanError
from headrace.model import Value, Vendor

Settings = dict[str, Value]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetTable(_Table):
    """Where the trials run: ``local``, ``user@host[:port]`` or a folder with a saved host."""

    address: str = "local"
    scratch: str = "/var/tmp/headrace"
    identity_file: str | None = None
    known_hosts: str | None = None

    @field_validator("scratch")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/") or ".." in Path(value).parts or len(Path(value).parts) < 3:
            raise ValueError("an absolute path at least two folders deep, without '..'")
        return value


class DesignTable(_Table):
    kind: Literal["factorial", "ladder"]
    baseline: str | dict[str, str]
    blocks: Annotated[int, Field(ge=1, le=1000)] = 5
    seed: int = 1
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    equivalence: Annotated[float, Field(gt=0, lt=1)] = 0.03
    allow_weaker_durability: list[str] = []
    rungs: dict[str, list[str]] = {}
    exclude: list[dict[str, str]] = []


class WorkloadTable(BaseModel):
    """``kind``, ``seconds`` and ``warmup_s``; every other key is an option of that workload."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str
    seconds: Annotated[float, Field(gt=0, le=7 * 86400)]
    warmup_s: Annotated[float, Field(ge=0, le=86400)] = 0.0

    @property
    def options(self) -> Settings:
        return dict(self.__pydantic_extra__ or {})


class VolumeTable(_Table):
    """The device under test. ``devices`` lists, by stable id, the only real devices a plan may destroy."""

    device: str = "directory"
    size: str = "4G"
    devices: list[str] = []


class ServerTable(_Table):
    vendor: Vendor = Vendor.MARIADB
    binary: str | None = None
    port: Annotated[int, Field(ge=0, le=65535)] = 0


class FactorTable(_Table):
    """Either ``knob`` with a list of values, or ``levels`` that name settings or bundles."""

    knob: str | None = None
    levels: list[Value] | dict[str, Settings | str | list[str]]

    @model_validator(mode="after")
    def _one_form(self) -> FactorTable:
        if (self.knob is None) == isinstance(self.levels, list):
            raise ValueError(
                'either knob = "..." with levels = [value, ...], or levels.NAME = { "knob" = value } without knob'
            )
        if not self.levels:
            raise ValueError("at least one level")
        return self


class Plan(_Table):
    """A whole plan file, valid by itself; knobs and workload options are checked by ``design.build``."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    description: str = ""
    target: TargetTable = TargetTable()
    design: DesignTable
    workload: WorkloadTable
    volume: VolumeTable = VolumeTable()
    server: ServerTable = ServerTable()
    base: Settings = {}
    bundles: dict[str, Settings] = {}
    factors: dict[str, FactorTable] = {}


def load(path: Path) -> tuple[Plan, str]:
    """Read and check a plan file; the plan and its text. Raises PlanError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PlanError(
            "no such file", place=str(path), hint="the examples are listed by `headrace plan list`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot be read: {error}", place=str(path)) from error
    return parse(text, str(path)), text


def parse(text: str, place: str) -> Plan:
    """Check a plan's text. ``place`` is the file's name for errors."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"not valid TOML: {error}", place=place) from error
    try:
        return Plan.model_validate(content)
    except ValidationError as error:
        raise PlanError(_describe(error), place=place, hint="docs/plans.md describes every key") from error


def _describe(error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        # Unions repeat a problem once a member, with the member's type in the location: leave those parts out.
        key = ".".join(str(part) for part in problem["loc"] if not _is_type_name(str(part)))
        value = problem["input"]
        shown = "" if isinstance(value, dict) or problem["type"] == "missing" else f" = {value!r}"
        lines.append(f"{key}{shown}: {_reason(problem)}")
    return "\n".join(dict.fromkeys(lines))


def _is_type_name(part: str) -> bool:
    return bool(re.fullmatch(r"(str|int|float|bool|list|dict)(\[.*\])?|tagged-union.*|function-.*", part))


def _reason(problem: Any) -> str:
    if problem["type"] == "extra_forbidden":
        return "no such key"
    if problem["type"] == "missing":
        return "this key is required"
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return f"must be {message}"


def size_in_bytes(text: str) -> int:
    """``4G`` -> bytes; powers of 1024. Raises PlanError."""
    match = re.fullmatch(r"(\d+)([KMGT]?)i?B?", text.strip(), flags=re.IGNORECASE)
    if not match:
        raise PlanError(f"volume.size = {text!r}: must be a number with K, M, G or T, such as 4G")
    return int(match[1]) * int(1024 ** " KMGT".index(match[2].upper() or " "))
