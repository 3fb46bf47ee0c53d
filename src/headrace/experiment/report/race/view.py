"""The result of a race: the remaining treatments, when the others were eliminated, and what it saved."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import NamedTuple

from headrace.base.counted import counted
from headrace.experiment.kinds import race as races
from headrace.experiment.report import settle
from headrace.experiment.stats.race import Race, blocks_needed
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.experiment.store import ExperimentFolder
from headrace.show import text


class More(NamedTuple):
    """Blocks that may decide the race; ``is_enough``: that probably do. ``seconds`` is how long they take."""

    blocks: int
    is_enough: bool
    seconds: float
    command: str


class View:
    """One race's folder, judged once. Raises StoreError when its tables cannot be read."""

    def __init__(self, folder: ExperimentFolder) -> None:
        self.records = folder.trials()
        self.progress = races.progress_of(folder)
        self.folder = races.with_trials(folder, self.progress)
        self.response = folder.design.response
        everyone = len(folder.design.treatments)
        #: Trials of all treatments in all blocks of the plan, and in the blocks that the race ran.
        self.full_trials = everyone * folder.design.blocks
        self.same_trials = everyone * len(self.progress.runners)

    def headline(self, condition: str, race: Race) -> str:
        """One sentence: the winner, the remaining treatments, or what is undecided."""
        margin = f"{100 * self.folder.design.equivalence:g}%"
        where = f" at {condition}" if condition else ""
        if not race.survivors:
            return f"No treatment could be measured{where}."
        if len(race.survivors) == 1:
            return f"{race.leader} wins{where}: every other treatment is worse or failed."
        count = len(race.survivors) - 1
        others = f"{count} other{'s' if count > 1 else ''} remain{'' if count > 1 else 's'}"
        if race.is_decided:
            said = remaining(race, self.folder.design.equivalence, self.response == THROUGHPUT)
            return f"{race.leader} is within {margin} of the best{where}; {others}. {said}"
        if self.progress.is_over:
            return f"Not decided{where} in {counted(race.blocks, 'block')}: {race.leader} leads, {others}."
        return f"After {counted(race.blocks, 'block')}{where} {race.leader} leads; {others}."

    @property
    def more(self) -> More | None:
        """What to run if the race ended undecided: the blocks that it needs, or as many again."""
        design = self.folder.design
        left = [race for race in self.progress.races.values() if race.survivors and not race.is_decided]
        if not self.progress.is_over or not left or design.target.addresses:
            return None
        needed = [blocks_needed(race, design.equivalence) for race in left]
        most = max((n for n in needed if n is not None), default=0) - design.blocks
        is_enough = None not in needed and 0 < most <= settle.MOST_MORE
        blocks = most if is_enough else design.blocks
        alive = {name for race in left for name in race.survivors}
        seconds = blocks * self._seconds_of(alive)
        return More(blocks, is_enough, seconds, settle.longer(self.folder.path, blocks))

    def saved(self) -> str:
        """What the race ran, compared with full studies of all treatments."""
        ran = len(self.records)
        part = f"{100 * ran / self.full_trials:.0f}%" if self.full_trials else "–"
        took, full, same = (
            f" ({text.seconds(seconds)})" if self.seconds else ""
            for seconds in (self.seconds, self.full_seconds, self.same_seconds)
        )
        said = f"{counted(ran, 'trial')}{took}: {part} of the full study's {self.full_trials}{full}."
        if self.same_trials < self.full_trials:
            said += f" Without eliminations: {self.same_trials}{same}."
        again = sum(len(r.earlier) for r in self.records)
        if again:
            said += f" {again} more {'was' if again == 1 else 'were'} disturbed and measured again."
        return said

    @property
    def seconds(self) -> float:
        """How long the trials took, including set-up."""
        return sum(r.duration_s or 0.0 for r in self.records)

    @property
    def full_seconds(self) -> float:
        """How long all treatments in all blocks of the plan would have taken."""
        return self._block_seconds * self.folder.design.blocks

    @property
    def same_seconds(self) -> float:
        """How long all treatments would have taken in as many blocks as the race ran."""
        return self._block_seconds * len(self.progress.runners)

    @property
    def _block_seconds(self) -> float:
        """Duration of a block of all treatments."""
        return self._seconds_of({t.name for t in self.folder.design.treatments})

    def _seconds_of(self, treatments: Set[str]) -> float:
        """Duration of a block of these treatments, from their mean times."""
        own: dict[str, list[float]] = {}
        for r in self.records:
            if r.duration_s is not None and r.treatment in treatments:
                own.setdefault(r.treatment, []).append(r.duration_s)
        return sum(sum(times) / len(times) for times in own.values())


def remaining(race: Race, margin: float, is_higher_better: bool) -> str:
    """Which of those that remain in a decided race are as good. Not proven worse is not the same."""
    equal, left = len(race.interchangeable), len(race.survivors)
    take = f"within {100 * margin:g}% of the best: take the simplest of them."
    if equal == left:
        return f"All that remain are {take}"
    found = [s.to_leader for s in race.standings if s.treatment in race.survivors and s.to_leader]
    if is_higher_better:
        worst = max(1 - (interval.low or 0.0) for interval in found)
    else:
        worst = max((interval.high or math.inf) - 1 for interval in found)
    rest = f"{left - equal} {'is' if left - equal == 1 else 'are'} not proven worse, but may be up to "
    rest += f"{100 * worst:.0f}% worse."
    return rest if equal == 1 else f"{equal} that remain are {take} {rest}"
