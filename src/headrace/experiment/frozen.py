"""A design as frozen in ``design.json`` before the first trial: typed, and checked when read.

``experiment.design`` and the kinds of experiment build it from a plan; everything else only reads it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from headrace.base.errors import PlanError, StoreError
from headrace.base.model import Treatment, TrialSpec, Value
from headrace.experiment.boot import Boot
from headrace.experiment.plan import (
    MachineTable,
    ServerTable,
    Settings,
    SweepTable,
    TargetTable,
    TuneTable,
    VolumeTable,
    WorkloadTable,
    describe,
)

if TYPE_CHECKING:
    from typing import Self

#: The list of machines may change during an experiment, because each block runs on one.
_OF_MACHINES = ("addresses", "equal", "allow_shared")

#: Keys that older designs lack; ``minutes`` may also change during an experiment.
_LATER = (
    "until_decided",
    "minutes",
    "asked",
    "extended",
    "blocks_per_start",
    "washout_s",
    "blocks_per_session",
)


@dataclass(frozen=True)
class Skipped:
    """A treatment that was left out."""

    treatment: str
    reason: str


@dataclass(frozen=True)
class Design:
    """The trials to run, in order, their target, and the parameters of the analysis.

    ``experiment`` is the kind of experiment, which decides what runs next and how it is analysed (see
    ``experiment.kinds``); ``kind`` says how its treatments were chosen. ``baselines`` maps each condition to its
    baseline treatment's name. ``trials`` is the maximum if results decide which trials run.
    """

    name: str
    kind: str
    seed: int
    blocks: int
    alpha: float
    equivalence: float
    workload: WorkloadTable
    baselines: Mapping[str, str]
    treatments: tuple[Treatment, ...]
    trials: tuple[TrialSpec, ...]
    experiment: str = "fixed"
    #: How many trials run concurrently.
    at_once: int = 1
    #: Whether results decide which trials follow, so that slow treatments have fewer trials.
    adaptive: bool = False
    description: str = ""
    #: Of a race: its response, throughput or a percentile.
    response: str = "throughput"
    #: Blocks follow until every comparison has a verdict, at most for these minutes of a run; ``blocks`` is then
    #: the first look.
    until_decided: bool = False
    minutes: float | None = None
    #: Treatments whose comparisons must have a verdict; all, if empty.
    asked: tuple[str, ...] = ()
    #: How many blocks there were each time when a fixed number of them was extended.
    extended: tuple[int, ...] = ()
    #: Of a switchback: the blocks after one start of the server, and the seconds after each change that do not
    #: count.
    blocks_per_start: int = 0
    washout_s: int = 0
    #: The blocks that share one loading of the data; 0: all do.
    blocks_per_session: int = 0
    #: How treatments were chosen and ordered, for the analysis; empty if irrelevant.
    resolution: str | None = None
    runs: int | None = None
    interactions: Sequence[tuple[str, str]] = ()
    hard: Sequence[str] = ()
    volume: VolumeTable = field(default_factory=VolumeTable)
    server: ServerTable = field(default_factory=ServerTable)
    target: TargetTable = field(default_factory=TargetTable)
    machine: MachineTable | None = None
    sweep: SweepTable | None = None
    tune: TuneTable | None = None
    base: Mapping[str, Value] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    hash: str = field(default="", compare=False)

    #: An unknown key was written by another version: refuse it rather than ignore it.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    @classmethod
    def from_json(cls, content: Mapping[str, Any], place: str) -> Design:
        """The design of the content of a ``design.json``. Raises StoreError with ``place`` and the key."""
        try:
            return _adapter().validate_python(dict(content))
        except ValidationError as error:
            raise StoreError(
                f"the design is damaged: {describe(error)}",
                place=place,
                hint="copy it again from the machine where the experiment ran",
            ) from error

    def to_json(self) -> dict[str, Any]:
        """The content of ``design.json``; ``store`` adds the format's number."""
        return {
            "name": self.name,
            "description": self.description,
            "hash": self.hash,
            "experiment": self.experiment,
            "at_once": self.at_once,
            "adaptive": self.adaptive,
            "kind": self.kind,
            "seed": self.seed,
            "blocks": self.blocks,
            "alpha": self.alpha,
            "equivalence": self.equivalence,
            "response": self.response,
            "until_decided": self.until_decided,
            "minutes": self.minutes,
            "asked": list(self.asked),
            "extended": list(self.extended),
            "blocks_per_start": self.blocks_per_start,
            "washout_s": self.washout_s,
            "blocks_per_session": self.blocks_per_session,
            "resolution": self.resolution,
            "runs": self.runs,
            "interactions": [list(pair) for pair in self.interactions],
            "hard": list(self.hard),
            "workload": self.workload.model_dump(mode="json"),
            "volume": self.volume.model_dump(mode="json"),
            "server": self.server.model_dump(mode="json"),
            "target": self.target.model_dump(mode="json"),
            "machine": self.machine.makes() if self.machine else None,
            # Its validator checks which keys the plan's author wrote.
            "sweep": self.sweep.model_dump(mode="json", exclude_unset=True) if self.sweep else None,
            "tune": self.tune.model_dump(mode="json") if self.tune else None,
            "base": dict(self.base),
            "baselines": dict(self.baselines),
            "treatments": [asdict(t) for t in self.treatments],
            "trials": [asdict(t) for t in self.trials],
            "skipped": [asdict(s) for s in self.skipped],
            "notes": list(self.notes),
        }

    def frozen(self, changes: Mapping[str, Any] | None = None) -> Self:
        """The design with its hash. ``changes`` replace fields that may differ between runs of one experiment."""
        content = {**self.to_json(), "hash": "", **(changes or {})}
        for key in _LATER:
            # Absent from folders of before.
            if not content[key] or key == "minutes":
                del content[key]
        content["target"] = {k: v for k, v in content["target"].items() if k not in _OF_MACHINES}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return replace(self, hash=digest)

    def treatment(self, name: str) -> Treatment:
        return next(t for t in self.treatments if t.name == name)

    @property
    def by_name(self) -> dict[str, Treatment]:
        return {treatment.name: treatment for treatment in self.treatments}

    @property
    def conditions(self) -> dict[str, list[Treatment]]:
        """Condition -> its treatments, both in the design's order."""
        found: dict[str, list[Treatment]] = {}
        for treatment in self.treatments:
            found.setdefault(treatment.condition, []).append(treatment)
        return found

    @property
    def reference(self) -> Treatment:
        """The representative treatment: the first baseline, or the first treatment."""
        return self.treatment(next(iter(self.baselines.values()), self.treatments[0].name))

    def start_of(self, block: int) -> int:
        """Of a switchback: the first of the blocks that share a start of the server with this one.

        Blocks that were added later have starts of their own: those of before are measured already.
        """
        first = max((blocks for blocks in self.extended if blocks < block), default=0)
        return block - (block - first - 1) % self.blocks_per_start

    def session_of(self, block: int) -> int:
        """The session of a block, from 1; blocks that are added later begin new ones."""
        return (block - 1) // self.blocks_per_session + 1 if self.blocks_per_session else 1

    @property
    def share_of_one_machine(self) -> float:
        """The share of all trials that the busiest machine runs; 1 for one machine."""
        addresses, count = self.target.addresses, len({trial.block for trial in self.trials})
        return math.ceil(count / len(addresses)) / count if addresses and count else 1.0

    def boot_of(self, treatment: Treatment) -> Boot | None:
        """What a treatment boots, as in the plan; None: it takes what runs."""
        return boot_of(self.machine, treatment)

    def options_of(self, treatment: Treatment) -> Settings:
        """The workload's options under this treatment."""
        return options_of(self.workload, treatment)

    @property
    def cuts_power(self) -> bool:
        """Whether it is about what power cuts take: then its throughput decides nothing."""
        return self.workload.kind == "power-cut"

    @property
    def is_open_loop(self) -> bool:
        """Whether operations start independently of the server in every treatment (an open loop)."""
        options = [self.options_of(treatment) for treatment in self.treatments]
        return all(each.get("rate") or each.get("profile") for each in options)


def boot_of(machine: MachineTable | None, treatment: Treatment) -> Boot | None:
    """See ``Design.boot_of``. Raises PlanError for arguments of a kernel that is not named."""
    kernel = treatment.settings.get("machine.kernel", machine.kernel if machine else None)
    arguments = str(treatment.settings.get("machine.arguments", machine.arguments if machine else ""))
    if kernel is not None:
        return Boot(str(kernel), " ".join(arguments.split()))
    if arguments.strip():
        raise PlanError(
            f"machine.arguments in {treatment.name}: it names no kernel that takes them",
            hint='[machine] kernel = "6.12"',
        )
    return None


def options_of(workload: WorkloadTable, treatment: Treatment) -> Settings:
    """See ``Design.options_of``."""
    prefix = "workload."
    own = {k.removeprefix(prefix): v for k, v in treatment.settings.items() if k.startswith(prefix)}
    return {**workload.options, **own}


@cache
def _adapter() -> TypeAdapter[Design]:
    # Building it takes a few milliseconds.
    return TypeAdapter(Design)
