"""A laboratory that measures nothing: it stands behind the real interface and answers with synthetic trials.

A trial can fail, be disturbed, lose its machine, or be killed under the loop, as its ``fates`` say; the loop, its
folder, the analysis and the report around it are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.base.errors import TargetError
from headrace.base.model import Facts, Treatment, TrialSpec, TrialState
from headrace.experiment.boot import Boot, Tell
from headrace.experiment.frozen import Design
from headrace.experiment.laboratory import Measured
from headrace.experiment.store import ExperimentFolder, TrialDraft, TrialRecord
from headrace.host.arrow import TrialData, empty_data
from tests import synthetic

DISTURBED = "another program, backup, used 1.00 cores (limit 0.5)"
BROKEN = "the server did not start: unknown variable"


class Killed(BaseException):
    """As ``kill -9``: nobody cleans up after it."""


@dataclass
class FakeHost:
    """The machine behind the laboratories of one test: it outlives them, as a real one does.

    ``speeds`` are a treatment's operations/s. ``fates`` maps a trial's number to what becomes of its attempts, in
    order (``disturb``, ``fail``, ``die``, ``kill``); ``broken`` treatments never start.
    """

    speeds: Callable[[Treatment], float]
    fates: dict[int, list[str]] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    noise: float = 0.01
    is_root: bool = True
    measured: list[int] = field(default_factory=list)
    #: The lengths of the turns after each start of a switchback.
    lengths: list[float] = field(default_factory=list)
    #: How long a treatment still shows in the turn after its own.
    lasts_s: float = 0.0
    opened: int = 0
    facts: Facts = field(default_factory=lambda: Facts("f" * 64, synthetic.facts_of(synthetic.Shape())))

    def open(self, design: Design, folder: ExperimentFolder, tell: Tell) -> FakeLab:
        self.opened += 1
        return FakeLab(self, folder, tell)

    def left_over(self, design: Design, before: str, now: str) -> float:
        """How many times as fast a turn begins, because of the one before."""
        speeds = [self.speeds(design.treatment(name)) for name in (before, now)]
        return speeds[0] / speeds[1] if self.lasts_s else 0.0

    def fate(self, number: int) -> str:
        left = self.fates.get(number)
        return left.pop(0) if left else ""


class FakeLab:
    """See ``laboratory.Laboratory``."""

    def __init__(self, host: FakeHost, folder: ExperimentFolder, tell: Tell) -> None:
        self._host = host
        self._folder = folder
        self._tell = tell

    async def __aenter__(self) -> FakeLab:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing was changed."""

    async def begin(self) -> None:
        self._folder.save_facts(self._host.facts)
        if lost := self._folder.discard_drafts():
            self._tell(f"{lost} unfinished trial was discarded and will be repeated")

    async def prepare(self, boot: Boot | None) -> None:
        assert boot is None

    async def measure(self, design: Design, spec: TrialSpec, draft: TrialDraft, tell: Tell) -> Measured:
        tell("measuring")
        self._host.measured.append(spec.number)
        (draft.raw / "stdout.txt").write_text("begun\n")
        fate = self._host.fate(spec.number)
        if fate == "die":
            raise TargetError("connection lost", place="fake")
        if fate == "kill":
            raise Killed
        treatment = design.treatment(spec.treatment)
        state, reason = TrialState.COMPLETE, ""
        if fate == "fail" or treatment.name in self._host.broken:
            state, reason = TrialState.FAILED, BROKEN
        elif fate == "disturb":
            state, reason = TrialState.INVALID, DISTURBED
        return self._answer(design, spec, treatment, state, reason)

    async def halves(self) -> tuple[str, str]:
        return "0,1", "2,3"

    async def measure_pair(
        self, design: Design, pair: Sequence[TrialSpec], drafts: Sequence[TrialDraft], tell: Tell
    ) -> list[Measured]:
        return [await self.measure(design, s, d, tell) for s, d in zip(pair, drafts, strict=True)]

    async def measure_turns(
        self, design: Design, turns: Sequence[TrialSpec], drafts: Sequence[TrialDraft], tell: Tell
    ) -> list[Measured]:
        self._host.lengths.append(design.workload.seconds)
        found: list[Measured] = []
        for place, (spec, draft) in enumerate(zip(turns, drafts, strict=True)):
            record, data = await self.measure(design, spec, draft, tell)
            before = turns[place - 1].treatment if place else spec.treatment
            if left := self._host.left_over(design, before, spec.treatment):
                data = replace(data, intervals=_with_rest(data.intervals, left, self._host.lasts_s))
            found.append((record, data))
        return found

    async def lost(self, error: BaseException) -> str:
        if not isinstance(error, TargetError):
            raise error
        return error.message

    def _answer(
        self, design: Design, spec: TrialSpec, treatment: Treatment, state: TrialState, reason: str
    ) -> Measured:
        seconds, warmup_s = round(design.workload.seconds), round(design.workload.warmup_s)
        # Two trials of a pair share their moment.
        moment = spec.block if design.at_once > 1 else spec.number
        start_ns = synthetic.START_NS + moment * (warmup_s + seconds + 6) * 1_000_000_000
        failed = state is TrialState.FAILED
        record = replace(
            TrialRecord.of(spec, state, reason),
            window_start_ns=0 if failed else start_ns,
            window_end_ns=0 if failed else start_ns + seconds * 1_000_000_000,
            times_ns={"started": start_ns - 10**9, "finished": start_ns + (seconds + 2) * 10**9},
            facts_hash=self._host.facts.hash,
            versions={"headrace": "0.1.0", "mariadbd": "10.11.14-MariaDB"},
            cpus=4,
            machine="fake",
        )
        return record, empty_data() if failed else self._data(design, spec, treatment, start_ns)

    def _data(self, design: Design, spec: TrialSpec, treatment: Treatment, start_ns: int) -> TrialData:
        shape = synthetic.Shape(
            effects={treatment.configuration: 1.0},
            conditions=(treatment.condition,),
            seconds=round(design.workload.seconds),
            warmup_s=round(design.workload.warmup_s),
            base_ops_s=self._host.speeds(treatment),
            noise=self._host.noise,
            seed=design.seed,
            sampled=False,
        )
        return synthetic.trial_data(shape, spec, start_ns)


def _with_rest(intervals: pa.Table, times: float, lasts_s: float) -> pa.Table:
    """The rows of the first seconds with this many times their operations."""
    counts = [
        round(count * times) if 0 <= t_s < lasts_s else count
        for t_s, count in zip(intervals["t_s"].to_pylist(), intervals["count"].to_pylist(), strict=True)
    ]
    place = intervals.schema.get_field_index("count")
    return intervals.set_column(place, "count", pa.array(counts, pa.int64()))


def by_name(**speeds: float) -> Callable[[Treatment], float]:
    """Speeds by the treatment's configuration; ``_`` is that of all others."""
    return lambda treatment: speeds.get(treatment.configuration, speeds.get("_", 1000.0))


def scaling(knob: str, top: float) -> Callable[[Treatment], float]:
    """Throughput that grows with the load and levels off at ``top`` operations/s."""

    def speed(treatment: Treatment) -> float:
        load: Any = treatment.settings[knob]
        return float(min(100.0 * float(load), top) * np.exp(-0.001 * float(load)))

    return speed
