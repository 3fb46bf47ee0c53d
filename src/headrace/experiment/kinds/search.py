"""The search of a tuning: one trial per point, each point proposed from all earlier ones.

A point is written to ``points.json`` before its trial starts, so that a killed search continues with the same
points. Its trials are not a comparison: the best of many noisy values is optimistically biased, and drift during
the search is part of every value. They only select what is worth confirming.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.base.errors import NothingMeasured, PlanError, StoreError
from headrace.base.model import Role, Treatment, TrialSpec, TrialState, Value
from headrace.base.received import OF_SNAPSHOT, an_object
from headrace.base.whole import read_plain
from headrace.experiment import design as designs
from headrace.experiment import space
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind, missing, never_quiet
from headrace.experiment.plan import AS_IS, RESPONSE_NAMES, Plan, Settings, TuneTable
from headrace.experiment.stats.sweep import SEARCH
from headrace.experiment.stats.trials import THROUGHPUT, TrialResponse, trial_responses
from headrace.experiment.store import ExperimentFolder, TrialRecord

POINTS = "points.json"

#: Unit of a constraint's limit -> factor: latencies in ns, memory in bytes.
_UNITS = {
    "us": 1e3, "ms": 1e6, "s": 1e9, "K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4,
}  # fmt: skip


@dataclass(frozen=True)
class Constraint:
    """``p99=10ms`` or ``memory=2G``: an upper limit, in ns or bytes."""

    text: str
    name: str
    limit: float

    @classmethod
    def parse(cls, text: str, place: str) -> Constraint:
        name, _, limit = text.partition("=")
        number = limit.rstrip("usmKMGT")
        unit = limit[len(number) :]
        allowed = ("us", "ms", "s") if name in RESPONSE_NAMES[1:] else ("K", "M", "G", "T")
        known = name in (*RESPONSE_NAMES[1:], "memory")
        try:
            value = float(number) * _UNITS[unit] if known and unit in allowed else math.nan
        except (ValueError, KeyError):
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise PlanError(
                f"tune.constraints = {text!r}: must be such as p99=10ms or memory=2G", place=place
            )
        return cls(text, name, value)

    def excess(self, response: TrialResponse, memory_bytes: float | None) -> float:
        """By how much the trial exceeds it, in log units; 1 if the trial has no value."""
        found = memory_bytes if self.name == "memory" else response.value(self.name)
        return math.log(found / self.limit) if found else 1.0


@dataclass(frozen=True)
class Found:
    """One trial of the search: its point's name, settings and responses. ``state`` as in the record."""

    number: int
    settings: Mapping[str, Value]
    state: TrialState
    reason: str
    response: TrialResponse | None
    seen: space.Seen | None


#: Keys that may change when a search continues.
_LATER = {"trials", "minutes", "confirm", "blocks"}


def table_of(plan: Plan | Design, place: str) -> TuneTable:
    if plan.tune is None:
        raise PlanError("the plan has no [tune]", place=place, hint="`headrace docs tune`")
    return plan.tune


def name_of(number: int) -> str:
    return f"P{number:03d}"


def points_of(folder: ExperimentFolder) -> dict[int, Settings]:
    """Trial's number -> settings of the points proposed so far; AS_IS sets nothing."""
    path = folder.path / POINTS
    if not path.exists():
        return {}
    try:
        return {int(n): dict(s) for n, s in an_object(read_plain(path), OF_SNAPSHOT).items()}
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"cannot be read: {error}", place=str(path)) from error


def found_in(
    folder: ExperimentFolder, table: TuneTable, records: Collection[TrialRecord] | None = None
) -> list[Found]:
    """The search's observations from these trials (those on disk), in order."""
    records = sorted(folder.trials() if records is None else records, key=lambda r: r.number)
    points = points_of(folder)
    sound = [r for r in records if r.state is TrialState.COMPLETE]
    responses = {r.number: r for r in trial_responses(folder, sound)}
    constraints = [Constraint.parse(text, str(folder.path)) for text in table.constraints]
    return [_found(folder, table, constraints, r, points.get(r.number, {}), responses) for r in records]


def _found(
    folder: ExperimentFolder,
    table: TuneTable,
    constraints: Sequence[Constraint],
    record: TrialRecord,
    settings: Settings,
    responses: Mapping[int, TrialResponse],
) -> Found:
    response = responses.get(record.number)
    point = space.point_of(table.knobs, settings)
    seen: space.Seen | None = None
    if record.state is TrialState.FAILED:
        seen = space.Seen(point, None, {})
    elif response is not None:
        values = [response.value(name) for name in table.objectives]
        if all(values):
            memory = _memory(folder, record) if any(c.name == "memory" for c in constraints) else None
            logs = tuple(
                math.log(value or 1.0) * (1 if name == THROUGHPUT else -1)
                for name, value in zip(table.objectives, values, strict=True)
            )
            seen = space.Seen(point, logs, {c.text: c.excess(response, memory) for c in constraints})
    return Found(record.number, settings, record.state, record.reason, response, seen)


def broken_in(folder: ExperimentFolder, table: TuneTable) -> dict[str, tuple[str, ...]]:
    """Treatment -> the constraints that its complete trials break, on average (of logs)."""
    constraints = [Constraint.parse(text, str(folder.path)) for text in table.constraints]
    if not constraints:
        return {}
    records = {r.number: r for r in folder.trials() if r.state is TrialState.COMPLETE}
    has_memory = any(each.name == "memory" for each in constraints)
    found: dict[str, dict[str, list[float]]] = {}
    for response in trial_responses(folder, list(records.values())):
        memory = _memory(folder, records[response.number]) if has_memory else None
        own = found.setdefault(response.treatment, {})
        for each in constraints:
            own.setdefault(each.text, []).append(each.excess(response, memory))
    return {
        name: tuple(text for text, logs in own.items() if math.fsum(logs) > 0) for name, own in found.items()
    }


def _memory(folder: ExperimentFolder, record: TrialRecord) -> float | None:
    """The server's peak resident memory in the trial, in bytes."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from headrace.experiment.trial_tables import table_file

    path = folder.trial_path(record.number) / "samples.parquet"
    with table_file("samples", path) as own:
        table = pq.read_table(
            own,
            columns=["label", "value"],
            filters=[("sampler", "=", "process"), ("metric", "=", "rss_bytes")],
        )
    is_server = pc.match_substring_regex(table["label"], r"/(mysqld|mariadbd)$")
    largest = pc.max(table.filter(is_server)["value"]).as_py()
    return float(largest) if largest is not None else None


class Search(Kind):
    """One point after the other, each proposed from all before it; a disturbed one is repeated immediately."""

    name = "search"

    def __init__(self, folder: ExperimentFolder) -> None:
        super().__init__(folder)
        self._table = table_of(self.design, str(folder.path))
        minutes = self._table.minutes
        self._until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self._told = 0

    @classmethod
    def is_of(cls, plan: Plan) -> bool:
        return plan.tune is not None

    @classmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        """Only the base is known; the points follow during the run."""
        table = table_of(plan, place)
        try:
            space.check(table.knobs, table.allow_weaker_durability)
            for settings in table.start:
                space.point_of(table.knobs, settings)
        except PlanError as error:
            raise PlanError(error.message, place=place, hint=error.hint) from error
        for text in table.constraints:
            Constraint.parse(text, place)
        base = designs.build(plan, place=place, is_root=is_root)
        # Every point must pass the plan's checks, so check the ends of the ranges as treatments.
        for name, found in table.knobs.items():
            for value in found.ends():
                designs.check(plan, Treatment(f"{name} = {value}", {}, {**plan.base, found.knob: value}))
        trials = tuple(_trial(number) for number in range(1, table.trials + 1))
        # All treatments except the base are in POINTS.
        design = replace(base, experiment=cls.name, kind=cls.name, adaptive=True, trials=trials, tune=table)
        # The length of the search, and what follows it, changes none of its points.
        later = {"trials": [], "blocks": 0, "tune": table.model_dump(mode="json", exclude=_LATER)}
        return design.frozen(later)

    def next(self, records: Sequence[TrialRecord]) -> Ask:
        total = self._table.trials
        left = missing([_trial(number) for number in range(1, total + 1)], records)
        if not left:
            return Ask([], total)
        number = left[0].number
        found = found_in(self.folder, self._table, records)
        if time.monotonic() > self._until and number > 1:
            over = f"{self._table.minutes:g} minutes have passed: the search ends with {len(found)} points"
            return Ask([], total, [over])
        points = points_of(self.folder)
        if number not in points:
            points[number] = self._propose(number, found)
            self.folder.write_output(POINTS, json.dumps(points, indent=1) + "\n")
        settings = points[number]
        treatments = (Treatment(name_of(number), {}, {**self.design.base, **settings}),) if number > 1 else ()
        said = ", ".join(f"{k.removeprefix('server.')}={v}" for k, v in settings.items())
        notes = [f"{name_of(number)}: {said}"] if number > 1 and number != self._told else []
        self._told = number
        return Ask([(left[0],)], total, notes, treatments, self._until)

    def _propose(self, number: int, found: Sequence[Found]) -> Settings:
        """The current settings first, then the starting points, then the model's proposals."""
        table = self._table
        if number == 1:
            return {}
        if number - 2 < len(table.start):
            return dict(table.start[number - 2])
        point = space.propose(
            table.knobs,
            [f.seen for f in found if f.seen is not None],
            table.seed,
            number,
            sampler=table.sampler,
            constraints=table.constraints,
            objectives=len(table.objectives),
        )
        return space.settings_of(table.knobs, point)

    def check(self, records: Collection[TrialRecord]) -> None:
        found = found_in(self.folder, self._table, records)
        if not any(f.seen and f.seen.values for f in found):
            reasons = {f.reason for f in found}
            raise NothingMeasured(
                "no point could be measured:\n" + "\n".join(sorted(reasons)), hint=never_quiet(records)
            )


def _trial(number: int) -> TrialSpec:
    return TrialSpec(number, SEARCH, number, AS_IS if number == 1 else name_of(number), Role.CANDIDATE)
