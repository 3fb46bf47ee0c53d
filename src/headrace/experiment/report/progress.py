"""Progress of a running experiment on standard error: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.text import Text

from headrace.base.model import TrialState
from headrace.experiment.pool import On
from headrace.experiment.runner import Event, Note, Step, TrialEnded, TrialStarted
from headrace.experiment.store import TrialRecord
from headrace.show.text import clean, clean_lines

_COLOURS = {TrialState.COMPLETE: "green", TrialState.INVALID: "yellow", TrialState.FAILED: "red"}


def duration(seconds: float) -> str:
    """``95`` -> ``1m35s``; ``7260`` -> ``2h01m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class Live:
    """A line on a terminal: what, a bar, how many of how many, the time left.

    A context manager, so that the terminal is always restored.
    """

    def __init__(self, console: Console, what: str, total: int | None, *first: ProgressColumn) -> None:
        self._progress = Progress(
            *first,
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(what, total=total, left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class Watcher(Live):
    """Shows the runner's events."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "starting", None, SpinnerColumn())
        self._console = console
        self._current = ""
        #: Current trial of each of several machines.
        self._on: dict[str, str] = {}

    def listen(self, event: Event) -> None:
        match event:
            case Note(text):
                self._console.print(clean_lines(text), markup=False, highlight=False)
            case Step(text):
                self._progress.update(self._task, description=clean(f"{self._current}: {text}"))
            case TrialStarted(spec, done, total, left_s):
                self._current = f"block {spec.block}  {spec.treatment}"
                self._progress.update(
                    self._task, completed=done, total=total, left=f"{duration(left_s)} left"
                )
            case TrialEnded(record, throughput_ops_s, done, total, left_s):
                self._progress.update(self._task, completed=done, left=f"{duration(left_s)} left")
                self._console.print(_line(record, throughput_ops_s, done, total, left_s))
            case On(machine, inner):
                self._listen_on(machine, inner)

    def _listen_on(self, machine: str, event: Event) -> None:
        """As above, prefixed with the machine; the live line names all machines."""
        match event:
            case Note(text):
                self._console.print(clean_lines(f"{machine}: {text}"), markup=False, highlight=False)
            case Step(text):
                self._update(machine, f"{self._on.get(machine, '').partition(': ')[0]}: {text}")
            case TrialStarted(spec, done, total, left_s):
                self._update(machine, f"block {spec.block}  {spec.treatment}")
                left = f"{duration(left_s)} left"
                self._progress.update(self._task, completed=done, total=total, left=left)
            case TrialEnded(record, throughput_ops_s, done, total, left_s):
                self._on.pop(machine, None)
                self._progress.update(self._task, completed=done, left=f"{duration(left_s)} left")
                self._console.print(_line(record, throughput_ops_s, done, total, left_s, machine))

    def _update(self, machine: str, text: str) -> None:
        self._on[machine] = text
        shown = " | ".join(f"{name} {what}" for name, what in sorted(self._on.items()))
        self._progress.update(self._task, description=clean(shown))


def _line(
    record: TrialRecord, throughput_ops_s: float, done: int, total: int, left_s: float, machine: str = ""
) -> Text:
    colour = _COLOURS[record.state]
    on = f"{machine}  " if machine else ""
    what = f"[{done:>{len(str(total))}}/{total}] {on}block {record.block}  {record.treatment:<24}"
    if record.state is TrialState.COMPLETE:
        result = f"{throughput_ops_s:>12,.0f} ops/s"
    else:
        result = f"{record.state}: {record.reason}"
    left = (f"  {duration(left_s)} left", "dim")
    return Text.assemble(clean(what), " ", (clean(result), colour), left)
