"""How to measure a plan of kind ``auto``: measure the noise first, then take the way that decides soonest.

ways_of     the plan in each way that its settings allow, and why not in the others
measure     the ways with their noise and hours, from a minute of the baseline alone
resolved    the plan as the way that was chosen; the choice is frozen in its design
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.counted import counted
from headrace.base.errors import NothingMeasured, NotReady, PlanError
from headrace.base.model import Role, TrialSpec, TrialState
from headrace.base.whole import make_folder
from headrace.experiment import kinds, labs
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.duet import Duet
from headrace.experiment.kinds.fixed import Fixed
from headrace.experiment.kinds.kind import Kind
from headrace.experiment.plan import AUTO, SWITCHBACK_BLOCKS, Plan, PlanFile
from headrace.experiment.runner import OVERHEAD_WITH_SERVER_S, Listener, Note, Run, opened
from headrace.experiment.stats import ways
from headrace.experiment.stats.disturbance import per_second
from headrace.experiment.stats.ways import DUET, RESTART, SWITCHBACK, Way
from headrace.experiment.store import ExperimentFolder, TrialRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Series = NDArray[np.float64]

#: Each of the baseline's trials; four of them are the minute.
PILOT_S = 15

#: The longest turn of a switchback that was chosen, if the plan's trials are longer.
TURN_S = 3

#: The change that is to be found, if nobody says.
EFFECT = 0.05

#: How the note of a choice begins in a design.
CHOSEN = "chosen by a minute of noise"

#: A way -> the plan's design, or why it cannot be measured so.
Possible = Mapping[str, Design | str]


@dataclass(frozen=True)
class Choice:
    ways: tuple[Way, ...]
    effect: float

    @property
    def best(self) -> Way:
        """Restarts are always possible."""
        return ways.soonest(self.ways) or next(way for way in self.ways if way.name == RESTART)

    @property
    def text(self) -> str:
        told = [
            f"{way.name} {way.hours:.2g} h ({counted(way.blocks or 0, 'block')})"
            if way.hours is not None
            else f"{way.name} not: {way.why_not or 'too noisy'}"
            for way in self.ways
        ]
        return (
            f"{CHOSEN}: {self.best.name}. Until a change of {100 * self.effect:g}% is found four times out of "
            f"five: {'; '.join(told)}"
        )


def as_way(plan: Plan, way: str, chosen: str = "") -> Plan:
    """The plan, measured this way."""
    table, workload = plan.design, plan.workload
    kind = "cumulative" if table.rungs else "factorial"
    changes: dict[str, object] = {"kind": kind, "chosen": chosen, "duet": way == DUET}
    if way == SWITCHBACK:
        changes |= {"kind": SWITCHBACK, "blocks": max(table.blocks, SWITCHBACK_BLOCKS)}
        turn_s = float(max(2, min(int(workload.seconds), TURN_S)))
        workload = workload.model_copy(update={"seconds": turn_s})
    else:
        changes |= {"blocks_per_start": None, "washout_s": None}
    return plan.model_copy(update={"design": table.model_copy(update=changes), "workload": workload})


def ways_of(plan: Plan, place: str, *, is_root: bool = True) -> Possible:
    """Raises PlanError if not even restarts are possible."""
    found: dict[str, Design | str] = {
        RESTART: kinds.build(as_way(plan, RESTART), place=place, is_root=is_root)
    }
    for way in (DUET, SWITCHBACK):
        try:
            found[way] = kinds.build(as_way(plan, way), place=place, is_root=is_root)
        except PlanError as error:
            found[way] = error.message
    return found


async def measure(file: PlanFile, folder: Path, listen: Listener, effect: float = EFFECT) -> Choice:
    """Measure the baseline's noise in this folder, or read it there. Raises NothingMeasured without any."""
    possible = ways_of(file.plan, file.place, is_root=await labs.is_root(file.plan))
    restart = possible[RESTART]
    assert isinstance(restart, Design)  # ``ways_of`` raised otherwise
    listen(Note("measuring the noise first: the baseline against itself"))
    records, series = await _run(Fixed, file, _pilot(restart, "noise", 1), folder / "restart", listen)
    if len(series) < 2:
        raise NothingMeasured("no two trials of the baseline show the noise", place=str(folder))
    spent = [(r.duration_s or 0.0) - PILOT_S - restart.workload.warmup_s for r in records]
    overhead_s = max(sum(spent) / len(spent), OVERHEAD_WITH_SERVER_S / 2)
    pair: Sequence[Series] = ()
    if isinstance(possible[DUET], Design):
        try:
            _, pair = await _run(Duet, file, _pilot(restart, "noise-duet", 2), folder / "duet", listen)
        except (NotReady, NothingMeasured) as error:
            possible = {**possible, DUET: error.message}
    comparisons = max(len(restart.treatments) - len(restart.baselines), 1)
    found = [_way(name, design, series, pair, overhead_s) for name, design in possible.items()]
    return Choice(tuple(ways.decided(way, effect, comparisons, restart.alpha) for way in found), effect)


def _pilot(design: Design, name: str, at_once: int) -> Design:
    """The baseline alone, twice in each of two blocks; once beside itself in a duet."""
    baseline = design.reference
    roles = [(block, role) for block in (1, 2) for role in (Role.BASELINE, Role.REPEAT)][: 4 // at_once]
    specs = [
        TrialSpec(number, block, 1 if role is Role.BASELINE else 2, baseline.name, role)
        for number, (block, role) in enumerate(roles, start=1)
    ]
    return replace(
        design,
        name=f"{design.name}-{name}",
        experiment=Duet.name if at_once > 1 else Fixed.name,
        at_once=at_once,
        blocks=specs[-1].block,
        workload=design.workload.model_copy(update={"seconds": float(PILOT_S)}),
        baselines={baseline.condition: baseline.name},
        treatments=(baseline,),
        trials=tuple(specs),
    ).frozen()


async def _run(
    kind: type[Kind], file: PlanFile, design: Design, path: Path, listen: Listener
) -> tuple[list[TrialRecord], list[Series]]:
    make_folder(path.parent)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(opened(file, design, path, listen))
        lab = labs.open_laboratory(design, folder, lambda text: listen(Note(text)))
        lab = await stack.enter_async_context(lab)
        await lab.begin()
        await Run(kind(folder), lab, listen).all_trials()
    # Disturbed trials show the noise that is asked for.
    records = [r for r in folder.trials() if r.state is not TrialState.FAILED and r.window_end_ns]
    return records, [found for r in records if (found := _seconds(folder, r)) is not None]


def _seconds(folder: ExperimentFolder, record: TrialRecord) -> Series | None:
    import pyarrow.parquet as pq

    from headrace.experiment.trial_tables import table_file

    with table_file("intervals", folder.trial_path(record.number) / "intervals.parquet") as path:
        return per_second(pq.read_table(path), float(PILOT_S))


def _way(
    name: str, design: Design | str, series: Sequence[Series], pair: Sequence[Series], overhead_s: float
) -> Way:
    if isinstance(design, str):
        return Way(name, why_not=design)
    table = design.workload
    trial_s = overhead_s + table.warmup_s + table.seconds
    # A treatment beside the mean of the baseline's two.
    beside = 1.5**0.5
    turns = len(design.treatments) + len(design.baselines)
    if name == SWITCHBACK:
        sd = ways.of_turn(series, round(table.seconds), design.washout_s)
        if sd is None:
            return Way(name, why_not="its turns are longer than what was measured")
        each_s = (table.seconds + design.washout_s) * turns
        return Way(name, beside * sd, each_s, overhead_s + table.warmup_s, design.blocks_per_start)
    if name == RESTART:
        return Way(name, beside * ways.of_trial(series, table.seconds), trial_s * turns)
    if len(pair) < 2:
        return Way(name, why_not="its pair could not be measured")
    # A pair of each treatment, and one of the baseline with itself.
    return Way(name, ways.of_pair(pair[0], pair[1], table.seconds), trial_s * len(design.treatments))


async def resolved(file: PlanFile, folder: Path, listen: Listener) -> PlanFile:
    """The file with its plan as the way that decides soonest; itself for any other kind.

    An experiment that was begun keeps its way, whatever the noise is now.
    """
    if file.plan.design.kind != AUTO:
        return file
    if (folder / "design.json").exists():
        design = ExperimentFolder.open(folder).design
        way = design.experiment if design.experiment in (DUET, SWITCHBACK) else RESTART
        chosen = next((note for note in design.notes if note.startswith(CHOSEN)), "")
    else:
        choice = await measure(file, folder.with_name(f"{folder.name}-noise"), listen)
        way, chosen = choice.best.name, choice.text
        listen(Note(chosen))
    return replace(file, plan=as_way(file.plan, way, chosen))
