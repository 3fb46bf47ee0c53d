"""The tables that plans of every kind share, and those of a design."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from headrace.base.errors import PlanError
from headrace.base.model import Value, Vendor

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


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


#: What happens to a trial that lost CPU time to other processes: it is excluded, or analysed with wider intervals.
Disturbed = Literal["invalid", "keep"]


def disturbed_here() -> Any:
    """This machine's default, if a plan does not set it."""
    value = os.environ.get("HEADRACE_DISTURBED") or "invalid"
    if value not in get_args(Disturbed):
        raise PlanError(f"{value!r}: either invalid or keep", place="HEADRACE_DISTURBED")
    return value


#: Keys of ``[target]`` for connecting to a machine.
LOGIN = ("identity_file", "known_hosts", "sudo", "jump", "forward_agent", "reconnect_s")


class TargetTable(Table):
    """Where the trials run: ``local``, ``user@host[:port]``, ``vm`` or a folder with a saved host."""

    address: str = "local"
    scratch: str = "/var/tmp/headrace"
    #: Defaults to HEADRACE_DISTURBED, because it depends on the machine.
    disturbed: Disturbed = Field(default_factory=disturbed_here)
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
            raise ValueError("an absolute path at least two directories deep, without '..'")
        return value


#: No machine of an experiment has more memory, or more room for a file under test.
MOST_TERABYTES = 64


def _of_some_machine(size: str) -> str:
    if size_in_bytes(size) > MOST_TERABYTES * 1024**4:
        raise ValueError(f"at most {MOST_TERABYTES}T: no machine has that")
    return size


class MachineTable(Table):
    """The machine under test, if headrace may boot it: see docs/howto/kernels.md.

    With ``[target] address = "vm"`` it consists of these: ``arguments`` of the kernel's command line, ``disks``
    data disks of ``disk_size`` each, with ``disk_queues`` queues (0: one per CPU), throttled to ``disk_iops`` (0:
    unlimited), and a network card with ``nic_queues``. ``keep`` leaves it running when the experiment ends. A
    host over SSH is booted only with ``allow_reboot`` and if ``hosts`` lists it; ``boot_timeout_s`` is how long
    its boot may take.
    """

    kernel: Annotated[str, Field(min_length=1)] | None = None
    arguments: str = ""
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


class DesignTable(Table):
    """``resolution`` is for a screening (default: Plackett-Burman).

    ``runs``, ``interactions`` and ``include`` belong to ``optimal``; ``leave_out`` names the bundles of
    ``leave-one-out`` (default: all of them). Factors named by ``hard`` change as rarely as a block allows, the
    first one least. With ``duet`` each treatment is measured concurrently with its baseline, each on half of the
    machine. With ``until_decided`` blocks are added until every comparison has a verdict (or those of the
    treatments in ``asked``), or ``minutes`` have passed. A ``switchback`` changes settings under one running
    load: ``blocks_per_start`` blocks after each start of the server, and ``washout_s`` after each change do not
    count. ``sessions`` divide the blocks: each loads its data anew, and is one observation.
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
    sessions: Annotated[int, Field(ge=1, le=100)] = 1
    #: ``headrace run --soak``: the baseline alone, once.
    soak: bool = False
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

    def _sessions_fit(self) -> None:
        if self.kind in ("race", "switchback", AUTO) or self.duet or self.until_decided:
            what = (
                self.kind
                if self.kind in ("race", "switchback", AUTO)
                else "duet"
                if self.duet
                else "until_decided"
            )
            raise ValueError(
                f"sessions = {self.sessions}: only for a fixed number of blocks, not with {what}"
            )
        if self.blocks % self.sessions:
            more = -(-self.blocks // self.sessions) * self.sessions
            raise ValueError(
                f"blocks = {self.blocks}: {self.sessions} sessions have equal numbers of blocks: try {more}"
            )

    @model_validator(mode="after")
    def _keys_of_this_kind(self) -> DesignTable:
        for key, kind in _KIND_OF_KEY.items():
            value = getattr(self, key)
            # ``experiment.design`` checks rungs, because it knows the bundles.
            belongs = kind == self.kind or (kind == "switchback" and self.kind == AUTO)
            if value and not belongs and key != "rungs":
                raise ValueError(f'{key} = {value!r}: only for a design of kind = "{kind}"')
        if self.sessions > 1:
            self._sessions_fit()
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


class VolumeTable(Table):
    """The device under test.

    ``devices`` lists, by stable id, the only real devices that a plan may destroy. ``raid_over`` is what arrays
    are built from: the listed devices, or loop devices of ``size`` each.
    """

    device: str = "directory"
    size: Annotated[str, AfterValidator(_of_some_machine)] = "4G"
    devices: list[str] = []
    raid_over: Literal["block", "loop"] = "block"


class ServerTable(Table):
    vendor: Vendor = Vendor.MARIADB
    binary: str | None = None
    port: Annotated[int, Field(ge=0, le=65535)] = 0


class FactorTable(Table):
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


def size_in_bytes(text: str) -> int:
    """``4G`` -> bytes; powers of 1024. Raises PlanError."""
    match = re.fullmatch(r"(\d+)([KMGT]?)i?B?", text.strip(), flags=re.IGNORECASE)
    if not match:
        raise PlanError(f"volume.size = {text!r}: must be a number with K, M, G or T, such as 4G")
    return int(match[1]) * int(1024 ** " KMGT".index(match[2].upper() or " "))
