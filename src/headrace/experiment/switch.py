"""The turns of a switchback: one server and one load, whose settings change at fixed times.

Changes to the host go through its journal, so that a killed run is undone like any other; those to the private
server end with it. Each turn begins with the change, then the seconds that do not count, then its window;
afterwards the load's tables are cut by these.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.base.errors import PlanError, Refused
from headrace.base.model import Treatment, TrialSpec, TrialState
from headrace.experiment.laboratory import Measured
from headrace.experiment.store import TrialDraft, TrialRecord
from headrace.experiment.trial import FACTS_FILE, Lab, restore, run_trial
from headrace.host.agent import Journal
from headrace.host.facts import HostFacts
from headrace.host.target import to_the_end
from headrace.knobs import catalogue as knobs
from headrace.knobs.change import Change, changes, text_of
from headrace.lab.server import PrivateServer
from headrace.lab.volumes import Volume

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.host.arrow import TrialData

Tell = Callable[[str], None]

#: A sample just after a window's end still belongs to it.
SLACK_NS = 1_500_000_000

NS = 1_000_000_000


@dataclass
class Turn:
    """One turn as it went: ``knobs`` are its settings, ``late_s`` is how late its change was complete."""

    spec: TrialSpec
    knobs: dict[str, dict[str, Any]]
    late_s: float = 0.0
    failed: str = ""


async def measure_turns(
    lab: Lab, specs: Sequence[TrialSpec], drafts: Sequence[TrialDraft], tell: Tell
) -> list[Measured]:
    """Measure all turns after one start of the server; the host is restored when this returns or raises."""
    course = Switches(lab, specs, tell)
    record, data = await run_trial(lab, specs[0], drafts[0], tell, course)
    facts = drafts[0].raw / FACTS_FILE
    for draft in drafts[1:]:
        if facts.exists():
            os.link(facts, draft.raw / FACTS_FILE)
    return [
        _turn(record, data, course, turn, place * course.length_s) for place, turn in enumerate(course.turns)
    ]


class Switches:
    """See ``trial.Course``. ``turns`` is complete when the load has ended."""

    def __init__(self, lab: Lab, specs: Sequence[TrialSpec], tell: Tell) -> None:
        design = lab.design
        self._lab, self._tell = lab, tell
        self._journal: Journal = lab.journal.part("switch")
        self._treatments = design.by_name
        settings = [treatment.settings for treatment in design.treatments]
        common = {k: v for k, v in settings[0].items() if all(s.get(k, ...) == v for s in settings)}
        self.start = Treatment("start", {}, common)
        self._warmup_s = design.workload.warmup_s
        self.washout_s = design.washout_s
        self.length_s = round(design.workload.seconds) + design.washout_s
        self.seconds = float(self.length_s * len(specs))
        self.turns = [Turn(spec, {}) for spec in specs]
        self._began = asyncio.get_running_loop().create_future()
        #: Of each setting that was changed: its value before the first change, and its current one.
        self._first: dict[str, str] = {}
        self._now: dict[str, str] = {}

    async def agree(self, at_ns: int) -> int:
        """The load starts then, by the controller's clock."""
        self._began.set_result(time.monotonic() + (at_ns - time.time_ns()) / NS)
        return at_ns

    @contextlib.asynccontextmanager
    async def beside(self, volume: Volume, server: PrivateServer | None) -> AsyncIterator[None]:
        task = asyncio.create_task(self._all(volume, server))
        try:
            yield
            await task
        finally:
            task.cancel()
            await asyncio.wait([task])
            await to_the_end(restore(self._journal, everyone=False))

    async def _all(self, volume: Volume, server: PrivateServer | None) -> None:
        facts = HostFacts(self._lab.facts)
        due = await self._began + self._warmup_s
        for place, turn in enumerate(self.turns):
            await asyncio.sleep(due + place * self.length_s - time.monotonic())
            treatment = self._treatments[turn.spec.treatment]
            self._tell(f"turn {place + 1} of {len(self.turns)}: {treatment.name}")
            try:
                await self._to(self._wanted(treatment, volume, facts), server)
            except (Refused, PlanError) as error:
                turn.failed = error.message
            turn.knobs = {
                key: {"before": before, "after": self._now[key]} for key, before in self._first.items()
            }
            turn.late_s = time.monotonic() - due - place * self.length_s

    def _wanted(self, treatment: Treatment, volume: Volume, facts: HostFacts) -> dict[str, Change]:
        """The changes of a treatment beyond the common settings, by what they change."""
        found: list[Change] = []
        for name, value in treatment.settings.items():
            if name in self.start.settings:
                continue
            base, _, instance = name.partition("@")
            knob = knobs.find(base)
            if base.startswith("volume."):
                device = (volume.device or "").removeprefix("/dev/")
                found.append({"path": knob.path(device), "value": text_of(knob, value)})
            elif base.startswith("server."):
                found.append({"variable": base.removeprefix("server."), "value": text_of(knob, value)})
            else:
                found += changes(knob, instance, value, facts)
        return {_key(change): change for change in found}

    async def _to(self, wanted: Mapping[str, Change], server: PrivateServer | None) -> None:
        """Make these changes, and give all others that were made the value they had at first."""
        back = {
            key: {("path" if key.startswith("/") else "variable"): key, "value": value}
            for key, value in self._first.items()
            if key not in wanted
        }
        asked = {
            key: change
            for key, change in {**back, **wanted}.items()
            if key not in self._now or self._now[key] != change["value"]
        }
        on_host = {key: change for key, change in asked.items() if "path" in change}
        applied = await self._journal.change(list(on_host.values()))
        for (key, change), done in zip(on_host.items(), applied, strict=True):
            self._note(key, done.before, change["value"])
        variables = {key: change["value"] for key, change in asked.items() if "variable" in change}
        # One after the other, so that what was set before a refusal is known.
        for key, value in variables.items():
            assert server is not None  # ``kinds.switchback`` wants one
            found = await server.set_variables({key: value})
            self._note(key, found[key].before or "", value)

    def _note(self, key: str, before: str, value: str) -> None:
        self._first.setdefault(key, before)
        self._now[key] = value


def _key(change: Change) -> str:
    return change.get("path") or change["variable"]


def _turn(record: TrialRecord, data: TrialData, course: Switches, turn: Turn, at_s: int) -> Measured:
    """The record and the tables of one turn, whose change was due ``at_s`` into the load's window."""
    from headrace.host.arrow import empty_data

    spec = turn.spec
    own = replace(
        record,
        number=spec.number,
        block=spec.block,
        position=spec.position,
        treatment=spec.treatment,
        role=spec.role,
        knobs={**record.knobs, **turn.knobs},
    )
    if record.window_end_ns == 0:
        return own, empty_data()
    begin_ns = record.window_start_ns + at_s * NS
    start_ns = begin_ns + course.washout_s * NS
    end_ns = begin_ns + course.length_s * NS
    own = replace(
        own,
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        times_ns={"started": begin_ns, "workload": begin_ns, "finished": end_ns},
    )
    if turn.failed:
        own = replace(own, state=TrialState.FAILED, reason=turn.failed, window_start_ns=0, window_end_ns=0)
        return own, empty_data()
    if turn.late_s > course.washout_s:
        late = f"the change was made {turn.late_s:.1f} s after its time, within the seconds that count"
        own = replace(own, state=TrialState.INVALID, reason="; ".join(filter(None, [own.reason, late])))
    return own, cut(
        data, at_s + course.washout_s, course.length_s - course.washout_s, course.washout_s, start_ns
    )


def cut(data: TrialData, from_s: float, seconds: float, before_s: float, start_ns: int) -> TrialData:
    """The tables of a part of a load's window, with ``before_s`` seconds before it as its warm-up."""
    from headrace.host.arrow import TrialData

    return TrialData(
        _rows(data.intervals, from_s, -before_s, seconds),
        _rows(data.latency, from_s, 0.0, seconds),
        _samples(data.samples, start_ns - round(before_s * NS), start_ns + round(seconds * NS) + SLACK_NS),
    )


def _rows(table: pa.Table, from_s: float, begin_s: float, end_s: float) -> pa.Table:
    import pyarrow.compute as pc

    shifted = pc.subtract(table["t_s"], from_s)
    # A row's beginning decides; half a microsecond is rounding.
    inside = pc.and_(pc.greater_equal(shifted, begin_s - 5e-7), pc.less(shifted, end_s - 5e-7))
    place = table.schema.get_field_index("t_s")
    rounded = pc.round(shifted, 6)
    return table.set_column(place, "t_s", rounded).filter(pc.fill_null(inside, False))


def _samples(table: pa.Table, begin_ns: int, end_ns: int) -> pa.Table:
    import pyarrow.compute as pc

    return table.filter(
        pc.and_(pc.greater_equal(table["t_ns"], begin_ns), pc.less_equal(table["t_ns"], end_ns))
    )
