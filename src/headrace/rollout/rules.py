"""What a stages file may say. Everything has a default; a file that says something else is an error."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from headrace.base import toml
from headrace.base.errors import PlanError
from headrace.rollout.guards import Limits
from headrace.rollout.paired import LEAST_BEFORE

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: A window that begins at 25:00 would never hold, and nobody would notice.
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_WEEKLY = re.compile(
    rf"(?:(?P<first>{'|'.join(DAYS)})(?:-(?P<last>{'|'.join(DAYS)}))?\s*)?"
    rf"(?:(?P<start>{_CLOCK})-(?P<end>{_CLOCK}|24:00))?"
)
_DATES = re.compile(r"(?P<first>\d{4}-\d\d-\d\d)(?:\.\.(?P<last>\d{4}-\d\d-\d\d))?")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StageRule(_Table):
    """``take``: ``idle``, ``one``, a share as ``10%``, ``replicas``, ``caches``, ``sources``; or ``hosts``."""

    name: str = Field(min_length=1, max_length=40, pattern=r"^[\w .%-]+$")
    take: str = Field(default="", pattern=r"^(idle|one|replicas|caches|sources|[1-9][0-9]?%)?$")
    hosts: str = ""
    approval: bool = False


class Timing(_Table):
    """Seconds. ``lease_s``: the host takes the change back unless it hears from us for so long; ``soak_s``: how
    long a host is watched with the change before it is kept.
    """

    block_s: float = Field(default=120.0, ge=1, le=7200)
    wash_s: float = Field(default=20.0, ge=0, le=3600)
    soak_s: float = Field(default=300.0, ge=1, le=86_400)
    lease_s: float = Field(default=60.0, ge=5, le=3600)
    sample_s: float = Field(default=1.0, ge=0.1, le=60)
    approval_s: float = Field(default=4 * 3600.0, ge=60, le=7 * 86_400)


class JudgeRule(_Table):
    """``looks``: numbers of pairs of blocks at which promotion is looked at; shares, not percent."""

    looks: tuple[int, ...] = (6, 12, 18, 24)
    alpha: float = Field(default=0.05, gt=0, le=0.5)
    margin: float = Field(default=0.05, gt=0, le=1)
    harm: float = Field(default=0.0, ge=0, le=1)
    #: A server with fewer queries a second is idle: its stage is only watched, because it has no times to judge.
    idle_per_s: float = Field(default=20.0, ge=0)
    #: Of memcached: the percentile of the probe's gets; empty for the highest that each block has gets for.
    response: Literal["", "p50", "p90", "p99"] = ""
    #: Gets a second of that probe; None for a share of the server's requests.
    gets_per_s: float | None = Field(default=None, ge=1, le=1000)

    @field_validator("looks")
    @classmethod
    def _ascend(cls, looks: tuple[int, ...]) -> tuple[int, ...]:
        if not looks or looks[0] < 2 or looks[-1] > 1000 or list(looks) != sorted(set(looks)):
            raise ValueError("must ascend, from 2 to 1000")
        return looks


class RestartRule(_Table):
    """How a server is taken out of service, restarted and returned to service: commands of the user's, which may
    be run again. ``at``: where drain and return run; the restart is always on the host.

    ``within_s`` limits a drain or a return, ``start_s`` a restart until the server answers, ``warm_s`` the
    warm-up, which ends once the buffer pool is ``warm`` times as warm as before. ``before``: blocks of a pair
    before one of it is changed. ``equal``: sets of hosts that serve the same traffic. ``alone``: hosts without an
    equal partner are changed, too, and only watched. ``host_restarts``: a host that hears nothing for the
    lease runs these commands itself.
    """

    drain: str = Field(min_length=1, max_length=2000)
    put_back: str = Field(min_length=1, max_length=2000, alias="return")
    command: str = Field(default="", max_length=2000)
    unit: str = Field(default="", pattern=r"^([A-Za-z0-9:_.@-]+)?$")
    at: Literal["host", "controller"] = "host"
    within_s: float = Field(default=300.0, ge=1, le=7200)
    start_s: float = Field(default=600.0, ge=1, le=86_400)
    warm: float = Field(default=0.9, gt=0, le=1)
    warm_s: float = Field(default=3600.0, ge=1, le=86_400)
    block_s: float = Field(default=600.0, ge=0.5, le=7200)
    before: int = Field(default=12, ge=LEAST_BEFORE, le=1000)
    equal: tuple[str, ...] = ()
    alone: bool = False
    host_restarts: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> RestartRule:
        if self.host_restarts and self.at != "host":
            raise ValueError('host_restarts needs commands that run on the host: at = "host"')
        if bool(self.command) == bool(self.unit):
            raise ValueError("needs one of command and unit")
        return self

    @property
    def restart(self) -> str:
        return self.command or f"systemctl restart -- {self.unit}"


class Rules(_Table):
    stage: tuple[StageRule, ...] = ()
    timing: Timing = Timing()
    judge: JudgeRule = JudgeRule()
    limits: Limits = Limits()
    restart: RestartRule | None = None
    freeze: tuple[str, ...] = ()

    @field_validator("freeze")
    @classmethod
    def _windows(cls, windows: tuple[str, ...]) -> tuple[str, ...]:
        for text in windows:
            frozen(text, datetime.now(UTC))
        return windows


STAGES = (
    StageRule(name="idle", take="idle"),
    StageRule(name="one", take="one"),
    StageRule(name="10%", take="10%"),
    StageRule(name="replicas", take="replicas"),
    StageRule(name="caches", take="caches"),
    StageRule(name="sources", take="sources", approval=True),
)


def load(path: Path | None) -> Rules:
    """The rules of a TOML file, or the defaults. Raises PlanError."""
    if path is None:
        return Rules(stage=STAGES)
    try:
        content: dict[str, Any] = toml.parse(toml.read(path))
        rules = Rules(**content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise PlanError(f"{key}: {first['msg'].lower()}", place=str(path)) from error
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except ValueError as error:
        raise PlanError(f"not TOML: {error}", place=str(path)) from error
    names = [stage.name for stage in rules.stage]
    if len(set(names)) < len(names):
        raise PlanError("two stages have one name", place=str(path))
    for stage in rules.stage:
        if bool(stage.take) == bool(stage.hosts):
            raise PlanError("needs one of take and hosts", place=f"{path}: stage {stage.name}")
    return rules if rules.stage else rules.model_copy(update={"stage": STAGES})


def frozen(window: str, now: datetime) -> bool:
    """Whether a freeze window holds at this time (UTC): ``Fri-Sun``, ``Mon-Fri 08:00-18:00``, ``22:00-06:00``,
    ``2026-12-20..2027-01-03``. Raises ValueError for anything else.
    """
    dates = _DATES.fullmatch(window.strip())
    if dates:
        first = date.fromisoformat(dates["first"])
        last = date.fromisoformat(dates["last"] or dates["first"])
        if last < first:
            raise ValueError(f"{window!r} ends before it begins")
        return first <= now.date() <= last
    weekly = _WEEKLY.fullmatch(window.strip())
    if not weekly or not window.strip():
        raise ValueError(f"{window!r}: write Fri-Sun, Mon-Fri 08:00-18:00 or 2026-12-20..2027-01-03")
    start, end = weekly["start"] or "00:00", weekly["end"] or "24:00"
    clock = f"{now:%H:%M}"
    is_over_midnight = end <= start
    # What began yesterday evening belongs to yesterday.
    day = (now.weekday() - (1 if is_over_midnight and clock < end else 0)) % 7
    within = clock >= start or clock < end if is_over_midnight else start <= clock < end
    return within and _is_day(day, weekly["first"], weekly["last"])


def _is_day(day: int, first: str | None, last: str | None) -> bool:
    if first is None:
        return True
    begin = DAYS.index(first)
    end = DAYS.index(last) if last else begin
    return (day - begin) % 7 <= (end - begin) % 7
