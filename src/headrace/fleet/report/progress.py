"""Progress of a run over many hosts, on a terminal only: how many are done, running, lost, and the time left."""

from __future__ import annotations

from rich.console import Console

from headrace.experiment.report.progress import Live, duration
from headrace.fleet.runner import Progress, State


class Watcher(Live):
    """Shows how far a run over many hosts is."""

    def __init__(self, console: Console, total: int) -> None:
        super().__init__(console, "hosts", total)

    def listen(self, progress: Progress) -> None:
        lost = [f"{n} {state}" for state, n in progress.counts.items() if n and state is not State.OK]
        words = ", ".join([f"asking {progress.running}", *lost])
        left = "" if progress.left_s is None else f"{duration(progress.left_s)} left"
        self._progress.update(self._task, completed=progress.done, description=words, left=left)
