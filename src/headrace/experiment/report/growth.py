"""What grew over a long trial: throughput, p99, memory, open files, room on the file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.errors import StoreError
from headrace.base.model import TrialState
from headrace.experiment.report.view import View
from headrace.experiment.stats import growth
from headrace.experiment.stats.growth import Trend
from headrace.experiment.stats.trials import window_seconds
from headrace.experiment.store import TrialRecord
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Section, Sentence, Table

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Batches = NDArray[np.float64]

#: Trials with a trend each; a study of more is no soak.
MOST_TRIALS = 12
#: Labels of one counter: more are told by the largest change only.
MOST_LABELS = 4

SEE = (
    "A line through the means of 24 equal parts of each trial's window; the interval allows for parts that "
    "resemble the one before. It is about this run: another start of the server is another observation."
)


@dataclass(frozen=True)
class _Measure:
    """``fills``: what falls is a reserve, so that it is told when it would be used up."""

    name: str
    form: Callable[[float], str]
    fills: bool = False


def _size(value_bytes: float) -> str:
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if abs(value_bytes) >= 1024**power:
            shown = value_bytes / 1024**power
            return f"{shown:.0f} {unit}" if shown >= 100 else f"{shown:.3g} {unit}"
    return f"{value_bytes:.0f} B"


_OF_LOAD = (_Measure("operations/s", text.count), _Measure("p99 [ms]", text.milliseconds))

#: Sampler and metric of a gauge -> what it is.
_GAUGES: Mapping[tuple[str, str], _Measure] = {
    ("process", "rss_bytes"): _Measure("memory of", _size),
    ("server_process", "open_files"): _Measure("open files of", text.count),
    ("memory", "MemAvailable"): _Measure("memory available", _size, fills=True),
    ("file_systems", "available_bytes"): _Measure("room on", _size, fills=True),
}

_GAUGES_SQL = """
    SELECT sampler, metric, label, (t_ns - $start) / 1e9 AS t_s, value FROM samples
    WHERE trial = $trial AND t_ns >= $start AND t_ns < $end AND (
        (sampler = 'process' AND metric = 'rss_bytes' AND regexp_matches(label, '/(mariadbd|mysqld)$'))
        OR (sampler = 'server_process' AND metric = 'open_files')
        OR (sampler = 'memory' AND metric = 'MemAvailable')
        OR (sampler = 'file_systems' AND metric = 'available_bytes'))
"""


@dataclass(frozen=True)
class Grown:
    """One measure of one trial. ``name`` is the measure's with its label."""

    record: TrialRecord
    name: str
    measure: _Measure
    trend: Trend
    last: float

    @property
    def left(self) -> str:
        """When a reserve would be used up at this pace."""
        if not self.measure.fills:
            return ""
        left = self.trend.left_s(self.last, window_seconds(self.record))
        if left is None or left.low is None or left.high is None:
            return ""
        return f"used up in {text.seconds(left.low)} to {text.seconds(left.high)} at this pace"

    @property
    def words(self) -> str:
        """What it does, with the interval of its change."""
        change, form = self.trend.change, self.measure.form
        does = "grows" if change.estimate > 0 else "falls"
        ends = sorted(abs(end or 0.0) for end in (change.low, change.high))
        until = f", {self.left}" if self.left else ""
        return f"{does} by {form(abs(change.estimate))} ({form(ends[0])} to {form(ends[1])}){until}"


def section(view: View) -> Section:
    """Without parts if no trial is long enough."""
    return section_of(rows_of(view))


def section_of(rows: list[Grown]) -> Section:
    if not rows:
        return Section("growth", "Growth", "Did anything grow while it ran?", data={"growth": []})
    said = [Sentence(_sentence(rows))]
    return Section(
        "growth",
        "Growth",
        "Did anything grow while it ran?",
        lambda: [*said, _table(rows)],
        SEE,
        brief=said if any(row.trend.shows for row in rows) else (),
        data={"growth": [_json(row) for row in rows]},
    )


def headline(rows: list[Grown]) -> str:
    """The first sentence about a soak."""
    if not rows:
        return "No trial of ten minutes or more is complete, so nothing is known about growth."
    lasted = text.seconds(max(window_seconds(row.record) for row in rows))
    shown = [row for row in rows if row.trend.shows]
    if not shown:
        return f"Nothing is shown to grow or fall over {lasted}."
    several = len({row.record.number for row in rows}) > 1
    said = [
        f"{row.name}{f' (trial {row.record.number})' if several else ''} {row.words}"
        for row in shown[:MOST_LABELS]
    ]
    more = f"; {len(shown) - MOST_LABELS} more change" if len(shown) > MOST_LABELS else ""
    return f"Over {lasted}: {'; '.join(said)}{more}."


def rows_of(view: View) -> list[Grown]:
    return [row for record in long_trials(view) for row in _of_trial(view, record)]


def long_trials(view: View) -> list[TrialRecord]:
    complete = [r for r in view.records if r.state is TrialState.COMPLETE]
    return [r for r in complete if window_seconds(r) >= growth.LEAST_S][:MOST_TRIALS]


def _table(rows: list[Grown]) -> Table:
    columns = (
        Column("measure"), Column("trial", "n"), Column("configuration", keep=1), Column("mean", "n"),
        Column("change over the window", "n"), Column("interval", "n"), Column("shown", "wrap"),
    )  # fmt: skip
    return Table(columns, [_cells(row) for row in rows], is_stacked=True)


def _json(row: Grown) -> dict[str, object]:
    trend = row.trend
    return {
        "trial": row.record.number,
        "treatment": row.record.treatment,
        "measure": row.name,
        "mean": trend.mean,
        "change": asdict(trend.change),
        "shows": trend.shows,
    }


def _sentence(rows: list[Grown]) -> str:
    shown = [row for row in rows if row.trend.shows]
    if not shown:
        return "Nothing is shown to have grown or fallen; the intervals say what is excluded."
    named = "; ".join(f"{row.name} (trial {row.record.number})" for row in shown[:MOST_LABELS])
    more = f" and {len(shown) - MOST_LABELS} more" if len(shown) > MOST_LABELS else ""
    return f"Shown to have changed while the load ran: {named}{more}."


def _cells(row: Grown) -> Cells:
    change, form = row.trend.change, row.measure.form
    low, high = change.low or 0.0, change.high or 0.0
    shown = ("grows" if change.estimate > 0 else "falls") if row.trend.shows else "no trend shown"
    words = f"{shown}: {row.left}" if row.left else shown
    return [
        row.name,
        str(row.record.number),
        row.record.treatment,
        form(row.trend.mean),
        _signed(change.estimate, form),
        f"{_signed(low, form)} – {_signed(high, form)}",
        Cell(words, chip="" if not row.trend.shows else "unsure"),
    ]


def _signed(value: float, form: Callable[[float], str]) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{form(abs(value))}"


def _of_trial(view: View, record: TrialRecord) -> list[Grown]:
    seconds = window_seconds(record)
    found = [*_of_load(view, record, seconds), *_of_samples(view, record, seconds)]
    # Together, the intervals of a trial miss with the plan's alpha at most.
    alpha = view.analysis.alpha / max(len(found), 1)
    rows = []
    for name, measure, batches in found:
        fitted = growth.trend(batches, alpha)
        if fitted is not None:
            rows.append(Grown(record, name, measure, fitted, float(batches[-1])))
    return rows


def _of_load(view: View, record: TrialRecord, seconds: float) -> Iterator[tuple[str, _Measure, Batches]]:
    pace = view.evidence.paces.get(record.number)
    if pace is None:
        return
    centers_s = view.evidence.pace_grid.centers_s()
    for measure, values in zip(_OF_LOAD, (pace.mean, pace.p99_ns), strict=True):
        yield measure.name, measure, growth.batch_means(centers_s, values, seconds)


def _of_samples(view: View, record: TrialRecord, seconds: float) -> Iterator[tuple[str, _Measure, Batches]]:
    import duckdb

    where = {"trial": record.number, "start": record.window_start_ns, "end": record.window_end_ns}
    try:
        with view.folder.database() as connection:
            rows = _by_gauge(connection.execute(_GAUGES_SQL, where))
    except duckdb.Error as error:
        raise StoreError(f"a table cannot be read: {error}", place=str(view.folder.path)) from error
    for key, measure in _GAUGES.items():
        labels = {label: own for (gauge, label), own in rows.items() if gauge == key}
        batches = {label: growth.batch_means(t_s, values, seconds) for label, (t_s, values) in labels.items()}
        most = sorted(batches, key=lambda label: -abs(batches[label][-1] - batches[label][0]))[:MOST_LABELS]
        for label in sorted(most):
            yield f"{measure.name} {label}".strip(), measure, batches[label]


def _by_gauge(
    answer: duckdb.DuckDBPyConnection,
) -> dict[tuple[tuple[str, str], str], tuple[Batches, Batches]]:
    columns = answer.fetchnumpy()
    keys = list(zip(columns["sampler"], columns["metric"], columns["label"], strict=True))
    members: dict[tuple[tuple[str, str], str], list[int]] = {}
    for row, (sampler, metric, label) in enumerate(keys):
        members.setdefault(((sampler, metric), str(label or "")), []).append(row)
    return {key: (columns["t_s"][own], columns["value"][own]) for key, own in members.items()}
