"""The plan file: user-written TOML, checked so that every error names file, key, value and fix."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from headrace.errors import PlanError
from headrace.model import Value, Vendor

Settings = dict[str, Value]

#: Name of the current settings in experiments designed by headrace.
AS_IS = "AS-IS"

#: Names of all bundles together and of none, in a leave-one-out experiment.
ALL, NONE = "ALL", "NONE"

#: The kind of a design that measured noise chooses.
AUTO = "auto"

#: The address of a virtual machine created by headrace.
VM = "vm"

#: Possible responses of an experiment.
RESPONSE_NAMES = ("throughput", "p50", "p90", "p95", "p99", "p99.9")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


#: What happens to a trial that lost CPU time to other processes: it is excluded, or analysed with wider intervals.
Disturbed = Literal["invalid", "keep"]


def _disturbed() -> Any:
    """This machine's default, if a plan does not set it."""
    value = os.environ.get("HEADRACE_DISTURBED") or "invalid"
    if value not in get_args(Disturbed):
        raise PlanError(f"{value!r}: either invalid or keep", place="HEADRACE_DISTURBED")
    return value


#: Keys of ``[target]`` for connecting to a machine.
LOGIN = ("identity_file", "known_hosts", "sudo", "jump", "forward_agent", "reconnect_s")


class TargetTable(_Table):
    """Where the trials run: ``local``, ``user@host[:port]``, ``vm`` or a folder with a saved host."""

    address: str = "local"
    scratch: str = "/var/tmp/headrace"
    #: Defaults to HEADRACE_DISTURBED, because it depends on the machine.
    disturbed: Disturbed = Field(default_factory=_disturbed)
    identity_file: str | None = None
    known_hosts: str | None = None
    #: SSH: root by sudo, jump hosts, agent forwarding, how long a lost connection is retried.
    sudo: bool = False
    jump: str = ""
    forward_agent: bool = False
    reconnect_s: Annotated[float, Field(ge=0, le=86400)] = 600.0
    #: Instead of ``address``: equal machines, over which the blocks are distributed. See
    #: docs/howto/many-machines.md.
    addresses: list[str] = []
    equal: bool = False
    allow_shared: bool = False

    @model_validator(mode="after")
    def _one_or_many(self) -> TargetTable:
        if self.addresses and "address" in self.model_fields_set:
            raise ValueError("either address, or addresses for several equal machines")
        if len(set(self.addresses)) != len(self.addresses):
            raise ValueError(f"addresses = {self.addresses!r}: each machine once")
        if not self.addresses and (self.equal or self.allow_shared):
            raise ValueError("equal and allow_shared: only with several machines (addresses)")
        return self

    @model_serializer(mode="wrap")
    def _without_patience(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """One machine or several, as written. Connection timeouts are not part of a design."""
        left = {"address"} if self.addresses else {"addresses", "equal", "allow_shared"}
        return {key: value for key, value in dump(self).items() if key not in left | {"reconnect_s"}}

    @property
    def login(self) -> dict[str, Any]:
        """The connection options of its machines and clients, as TargetSpec.parse takes them."""
        return {name: getattr(self, name) for name in LOGIN}

    @property
    def machines(self) -> list[str]:
        """Every address at which a trial may run."""
        return self.addresses or [self.address]

    @field_validator("scratch")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/") or ".." in Path(value).parts or len(Path(value).parts) < 3:
            raise ValueError("an absolute path at least two folders deep, without '..'")
        return value


#: No machine of an experiment has more memory, or more room for a file under test.
MOST_TERABYTES = 64


def _of_some_machine(size: str) -> str:
    if size_in_bytes(size) > MOST_TERABYTES * 1024**4:
        raise ValueError(f"at most {MOST_TERABYTES}T: no machine has that")
    return size


class MachineTable(_Table):
    """The machine under test, if headrace may boot it: see docs/howto/kernels.md.

    With ``[target] address = "vm"`` it consists of these: ``disks`` data disks of ``disk_size`` each, with
    ``disk_queues`` queues (0: one per CPU), throttled to ``disk_iops`` (0: unlimited), and a network card with
    ``nic_queues``. ``keep`` leaves it running when the experiment ends. A host over SSH is booted only with
    ``allow_reboot`` and if ``hosts`` lists it; ``boot_timeout_s`` is how long its boot may take.
    """

    kernel: Annotated[str, Field(min_length=1)] | None = None
    cpus: Annotated[int, Field(ge=1, le=1024)] = 2
    memory: str = "2G"
    disks: Annotated[int, Field(ge=0, le=24)] = 1
    disk_size: str = "1G"
    disk_queues: Annotated[int, Field(ge=0, le=1024)] = 0
    disk_iops: Annotated[int, Field(ge=0)] = 0
    nic_queues: Annotated[int, Field(ge=1, le=256)] = 1
    keep: bool = False
    allow_reboot: bool = False
    hosts: list[str] = []
    boot_timeout_s: Annotated[float, Field(ge=10, le=86400)] = 900.0

    @field_validator("memory", "disk_size")
    @classmethod
    def _is_size(cls, value: str) -> str:
        if not re.fullmatch(r"[1-9]\d*[KMGT]", value):
            raise ValueError("a number with K, M, G or T, such as 2G")
        return _of_some_machine(value)

    def makes(self) -> dict[str, Any]:
        """The definition of a virtual machine, without ``keep`` and the hosts that may reboot."""
        return self.model_dump(mode="json", exclude={"keep", "allow_reboot", "hosts", "boot_timeout_s"})


#: Keys of ``[design]`` that only one kind reads.
_KIND_OF_KEY = {
    "resolution": "screening",
    "runs": "optimal",
    "interactions": "optimal",
    "include": "optimal",
    "leave_out": "leave-one-out",
    "rungs": "cumulative",
    "blocks_per_start": "switchback",
    "washout_s": "switchback",
}


#: Kinds without until_decided, and what to do instead.
_OWN_END = {
    "race": "a race: it ends when the best is known",
    "switchback": "a switchback: `blocks` is its length; `headrace run PLAN -o FOLDER --blocks +10` adds a start",
    "duet": "a duet: `blocks` is its length",
    AUTO: "kind auto, which chooses the way to measure: name that kind",
}

#: Defaults of a switchback: blocks in all, blocks of each start of the server, and seconds after a change that do
#: not count.
SWITCHBACK_BLOCKS, BLOCKS_PER_START, WASHOUT_S = 20, 10, 2


class DesignTable(_Table):
    """``resolution`` is for a screening (default: Plackett-Burman).

    ``runs``, ``interactions`` and ``include`` belong to ``optimal``; ``leave_out`` names the bundles of
    ``leave-one-out`` (default: all of them). Factors named by ``hard`` change as rarely as a block allows, the
    first one least. With ``duet`` each treatment is measured concurrently with its baseline, each on half of the
    machine. With ``until_decided`` blocks are added until every comparison has a verdict (or those of the
    treatments in ``asked``), or ``minutes`` have passed. A ``switchback`` changes settings under one running
    load: ``blocks_per_start`` blocks after each start of the server, and ``washout_s`` after each change do not
    count.
    """

    kind: Literal[
        "factorial", "cumulative", "race", "leave-one-out", "screening", "optimal", "switchback", "auto"
    ]
    baseline: str | dict[str, str]
    blocks: Annotated[int, Field(ge=1, le=1000)] = 5
    seed: int = 1
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    equivalence: Annotated[float, Field(gt=0, lt=1)] = 0.03
    allow_weaker_durability: list[str] = []
    rungs: dict[str, list[str]] = {}
    exclude: list[dict[str, str]] = []
    response: Literal["throughput", "p50", "p90", "p95", "p99", "p99.9"] = "throughput"
    resolution: Literal["III", "IV", "V"] | None = None
    runs: Annotated[int, Field(ge=2, le=10_000)] | None = None
    interactions: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = []
    include: list[dict[str, str]] = []
    leave_out: list[str] = []
    hard: list[str] = []
    duet: bool = False
    until_decided: bool = False
    asked: list[str] = []
    minutes: Annotated[float, Field(gt=0)] | None = None
    blocks_per_start: Annotated[int, Field(ge=2, le=1000)] | None = None
    washout_s: Annotated[int, Field(ge=1, le=3600)] | None = None
    #: Why ``auto`` became this kind; not for plans.
    chosen: Annotated[str, Field(max_length=2000)] = ""

    @model_validator(mode="before")
    @classmethod
    def _of_this_kind(cls, values: Any) -> Any:
        """In a leave-one-out, ALL is the baseline unless the plan sets another. A switchback has more blocks."""
        if isinstance(values, dict) and values.get("kind") == "leave-one-out":
            return {"baseline": ALL, **values}
        if isinstance(values, dict) and values.get("kind") == "switchback":
            return {"blocks": SWITCHBACK_BLOCKS, **values}
        return values

    @model_validator(mode="after")
    def _keys_of_this_kind(self) -> DesignTable:
        for key, kind in _KIND_OF_KEY.items():
            value = getattr(self, key)
            # ``experiment.design`` checks rungs, because it knows the bundles.
            belongs = kind == self.kind or (kind == "switchback" and self.kind == AUTO)
            if value and not belongs and key != "rungs":
                raise ValueError(f'{key} = {value!r}: only for a design of kind = "{kind}"')
        if self.kind == "optimal" and self.runs is None:
            raise ValueError("runs: how many treatments an optimal design picks")
        if self.hard and self.kind == "race":
            raise ValueError(f"hard = {self.hard!r}: a race has no blocks with a fixed order")
        if self.duet and (self.kind == "race" or self.hard):
            what = "a race" if self.kind == "race" else "an order by hard factors"
            raise ValueError(
                f"duet = true: not with {what}: each treatment runs concurrently with its baseline"
            )
        if self.kind in ("switchback", AUTO) and (self.duet or self.hard):
            raise ValueError(f'kind = "{self.kind}": without duet and hard: treatments may share one server')
        if self.until_decided and (self.kind in _OWN_END or self.duet):
            raise ValueError(f"until_decided = true: not with {_OWN_END['duet' if self.duet else self.kind]}")
        for key in ("minutes", "asked"):
            if getattr(self, key) and not self.until_decided:
                raise ValueError(f"{key}: only with until_decided = true; `blocks` is the length otherwise")
        if len(set(self.hard)) != len(self.hard):
            raise ValueError(f"hard = {self.hard!r}: each factor once")
        return self

    @model_validator(mode="after")
    def _response_decides(self) -> DesignTable:
        if self.response != "throughput" and self.kind != "race":
            raise ValueError('response: only a race (kind = "race") is about one response')
        return self


class WorkloadTable(BaseModel):
    """``kind``, ``seconds`` and ``warmup_s``; every other key is an option of that workload.

    With ``steady_within_s`` the load runs before ``warmup_s`` until its throughput no longer grows, at most for so
    long.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str
    seconds: Annotated[float, Field(gt=0, le=7 * 86400)]
    warmup_s: Annotated[float, Field(ge=0, le=86400)] = 0.0
    steady_within_s: Annotated[float, Field(ge=0, le=86400)] = 0.0

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Designs of before do not have the later key."""
        return {k: v for k, v in dump(self).items() if v or k != "steady_within_s"}

    @property
    def options(self) -> Settings:
        return dict(self.__pydantic_extra__ or {})


class VolumeTable(_Table):
    """The device under test.

    ``devices`` lists, by stable id, the only real devices that a plan may destroy. ``raid_over`` is what arrays
    are built from: the listed devices, or loop devices of ``size`` each.
    """

    device: str = "directory"
    size: Annotated[str, AfterValidator(_of_some_machine)] = "4G"
    devices: list[str] = []
    raid_over: Literal["block", "loop"] = "block"


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
        if len(self.levels) < 2:
            raise ValueError(
                "at least two levels; a setting of all treatments belongs to [base] or [workload]"
            )
        return self


#: Knob of a sweep -> unit of its levels. A rate is offered regardless of the server: an open loop.
SWEEP_KNOBS = {
    "workload.connections": "connections",
    "workload.threads": "threads",
    "workload.iodepth": "requests in flight",
    "workload.numjobs": "jobs",
    "workload.rate": "operations/s",
}

#: The steps of a sweep are at least this many times the gain that counts as growth, so that a perfectly scaling
#: server is recognised.
STEP_TO_GAIN = 2.0

MAX_LEVELS = 200


class SweepTable(_Table):
    """Load raised level by level, instead of ``[design]`` and factors: see docs/explanation/sweeps.md.

    Either ``levels``, or ``start`` growing by ``factor`` (or ``step``) up to ``max``: then a search decides up to
    which level to repeat.
    """

    knob: Literal[
        "workload.connections", "workload.threads", "workload.iodepth", "workload.numjobs", "workload.rate"
    ] = "workload.connections"
    levels: list[Annotated[int, Field(ge=1)]] | None = None
    start: Annotated[int, Field(ge=1)] = 1
    factor: Annotated[float, Field(ge=1.02, le=100)] = 2.0
    step: Annotated[int, Field(ge=1)] | None = None
    max: Annotated[int, Field(ge=1)] | None = None
    gain: Annotated[float, Field(gt=0, lt=1)] = 0.05
    patience: Annotated[int, Field(ge=1, le=20)] = 2
    passes: Annotated[int, Field(ge=1, le=1000)] = 3
    objective: list[str] = []
    seed: int = 1
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    allow_weaker_durability: list[str] = []

    @field_validator("levels")
    @classmethod
    def _ascending(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and (len(value) < 2 or sorted(set(value)) != value):
            raise ValueError("at least two levels in ascending order, each once")
        return value

    @model_validator(mode="after")
    def _grows(self) -> SweepTable:
        growth = self.model_fields_set & {"start", "factor", "step", "max"}
        if (self.levels is None) == (self.max is None) or (self.levels and growth):
            raise ValueError("either levels = [...], or start, factor (or step) and max")
        if {"factor", "step"} <= growth:
            raise ValueError("a factor or a step, not both")
        loads = self.loads()
        if not 2 <= len(loads) <= MAX_LEVELS:
            raise ValueError(f"2 to {MAX_LEVELS} levels")
        below, above = min(itertools.pairwise(loads), key=lambda pair: pair[1] / pair[0])
        if above / below - 1 < STEP_TO_GAIN * self.gain:
            raise ValueError(
                f"steps of at least {STEP_TO_GAIN:g} times the gain ({self.gain:g}): from {below} to {above} even "
                f"perfect scaling brings only {above / below - 1:.1%} more"
            )
        return self

    @property
    def has_search(self) -> bool:
        return self.levels is None

    @property
    def is_open(self) -> bool:
        """Whether load is offered regardless of the server (an open loop)."""
        return self.knob == "workload.rate"

    @property
    def unit(self) -> str:
        """The unit of its levels."""
        return SWEEP_KNOBS[self.knob]

    def loads(self) -> list[int]:
        """Every level that may be measured, ascending; rounded to whole numbers."""
        if self.levels is not None:
            return list(self.levels)
        top = self.max
        assert top is not None  # the table's own check
        if self.step is not None:
            return list(range(self.start, top + 1, self.step)[: MAX_LEVELS + 1])
        powers = (round(self.start * self.factor**k) for k in itertools.count())
        return list(dict.fromkeys(itertools.takewhile(lambda load: load <= top, powers)))[: MAX_LEVELS + 1]

    def tables(self) -> dict[str, Any]:
        """The sweep as a design with one factor, so that every check of a plan applies to it."""
        levels: list[Value] = [*self.loads()]
        design = DesignTable(
            kind="factorial",
            baseline={},
            blocks=self.passes,
            seed=self.seed,
            alpha=self.alpha,
            allow_weaker_durability=self.allow_weaker_durability,
        )
        factor = FactorTable(knob=self.knob, levels=levels)
        return {"design": design, "factors": {self.knob.removeprefix("workload."): factor}}


class KnobRange(_Table):
    """A knob that a tuning searches: from ``low`` to ``high``, or ``levels``.

    ``start`` is its value if a starting point does not set it, and should be the current value.
    """

    knob: str
    low: int | float | str | None = None
    high: int | float | str | None = None
    levels: list[Value] | None = None
    start: Value | None = None

    @model_validator(mode="after")
    def _one_form(self) -> KnobRange:
        if (self.levels is None) == (self.low is None or self.high is None):
            raise ValueError("either low and high, or levels")
        if self.levels is not None:
            if len(self.levels) < 2 or len({repr(v) for v in self.levels}) != len(self.levels):
                raise ValueError("at least two levels, each once")
        elif not 0 <= self.number(self.low) < self.number(self.high):
            raise ValueError("low must be 0 or more, and below high")
        return self

    @property
    def is_size(self) -> bool:
        return isinstance(self.low, str) or isinstance(self.high, str)

    @property
    def is_whole(self) -> bool:
        return self.is_size or (isinstance(self.low, int) and isinstance(self.high, int))

    def ends(self) -> list[Value]:
        """The ends of the range; all values for levels."""
        if self.levels is not None:
            return list(self.levels)
        assert self.low is not None  # the table's own check
        assert self.high is not None
        return [self.low, self.high]

    def number(self, value: Any) -> float:
        """A value of a range as a number; sizes in KiB."""
        if not self.is_size:
            return float(value)
        match = re.fullmatch(r"(\d+)([KMGTP]?)", str(value), flags=re.IGNORECASE)
        if not match:
            raise ValueError(f"{value!r} is not a size, such as 128M")
        return int(match[1]) * 1024.0 ** (" KMGTP".index(match[2].upper() or " ") - 1)

    def parameter(self, value: Value) -> str | int | float | bool:
        """A value in the search's form."""
        if self.levels is not None:
            return ",".join(value) if isinstance(value, list) else value
        return round(self.number(value)) if self.is_whole else self.number(value)

    def value(self, parameter: Any) -> Value:
        """A value from the search's form."""
        if self.levels is not None:
            return next(v for v in self.levels if self.parameter(v) == parameter)
        if self.is_size:
            # In whole MiB if that is precise enough: servers round sizes, and it is easier to read.
            kib = int(parameter)
            return f"{round(kib / 1024)}M" if kib >= 64 * 1024 or kib % 1024 == 0 else f"{kib}K"
        return int(parameter) if self.is_whole else float(parameter)


class TuneTable(_Table):
    """Many knobs searched together, instead of ``[design]`` and factors: see docs/howto/tune.md.

    The search ends after ``trials`` or ``minutes``, whichever comes first; then the best are confirmed against the
    base in ``blocks``. ``objective`` is throughput or a percentile, or two of these; ``constraints`` are limits
    such as ``p99=10ms`` and ``memory=2G``. ``start`` lists settings to try first.
    """

    knobs: Annotated[dict[str, KnobRange], Field(min_length=1, max_length=100)]
    trials: Annotated[int, Field(ge=1, le=10_000)] = 60
    minutes: Annotated[float, Field(gt=0)] | None = None
    objective: str | list[str] = "throughput"
    constraints: list[str] = []
    start: list[Settings] = []
    sampler: Literal["auto", "tpe", "gp", "random"] = "auto"
    confirm: Annotated[int, Field(ge=1, le=10)] = 2
    blocks: Annotated[int, Field(ge=2, le=1000)] = 5
    seed: int = 1
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    equivalence: Annotated[float, Field(gt=0, lt=1)] = 0.03
    allow_weaker_durability: list[str] = []

    @property
    def objectives(self) -> list[str]:
        return [self.objective] if isinstance(self.objective, str) else list(self.objective)

    @field_validator("objective")
    @classmethod
    def _known(cls, value: str | list[str]) -> str | list[str]:
        names = [value] if isinstance(value, str) else value
        if not 1 <= len(names) <= 2 or len(set(names)) != len(names):
            raise ValueError("one objective, or two different ones")
        for name in names:
            if name not in RESPONSE_NAMES:
                raise ValueError(f"one of {', '.join(RESPONSE_NAMES)}")
        return value

    def tables(self) -> dict[str, Any]:
        """The confirmation as a cumulative design, with rungs that are known after the search."""
        design = DesignTable(
            kind="cumulative",
            baseline=AS_IS,
            rungs={AS_IS: []},
            blocks=self.blocks,
            seed=self.seed,
            alpha=self.alpha,
            equivalence=self.equivalence,
            allow_weaker_durability=self.allow_weaker_durability,
        )
        return {"design": design}


class Plan(_Table):
    """A whole plan file, with valid structure; ``design.build`` checks knobs and workload options."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    description: str = ""
    target: TargetTable = Field(default_factory=TargetTable)
    machine: MachineTable | None = None
    design: DesignTable
    workload: WorkloadTable
    volume: VolumeTable = VolumeTable()
    server: ServerTable = ServerTable()
    base: Settings = {}
    bundles: dict[str, Settings] = {}
    factors: dict[str, FactorTable] = {}
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
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PlanError(
            "no such file", place=str(path), hint="the examples are listed by `headrace plan list`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot be read: {error}", place=str(path)) from error
    return PlanFile(parse(text, str(path)), text, str(path))


def parse(text: str, place: str) -> Plan:
    """Check a plan's text. ``place`` is the file's name for errors."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
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


def size_in_bytes(text: str) -> int:
    """``4G`` -> bytes; powers of 1024. Raises PlanError."""
    match = re.fullmatch(r"(\d+)([KMGT]?)i?B?", text.strip(), flags=re.IGNORECASE)
    if not match:
        raise PlanError(f"volume.size = {text!r}: must be a number with K, M, G or T, such as 4G")
    return int(match[1]) * int(1024 ** " KMGT".index(match[2].upper() or " "))
