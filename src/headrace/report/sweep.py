"""What a saturation sweep says to people and programs: a page, a terminal table, and JSON.

``report.json`` of a sweep:

    format                1; a change that could break a reader raises it
    headrace              the version that wrote it
    experiment            name, description, kind ("sweep"), seed, alpha, workload, target, hash
    headline              the conclusions in plain sentences
    sweep                 knob, unit, is_open (a rate: latency is response time), gain, passes, latency_kind,
                          search_end (why the search ended, "" while it has not)
    levels[]              treatment, load, throughput_ops_s, step (the ratio to the best smaller level, paired by
                          pass), latency_ns {p50 ... max}, trials[], operations, errors, failed_share (of the
                          operations, those that ended badly), search_ops_s, law_residual (measured by the law,
                          less 1), is_driver_saturated (so not the server), missing (why there are no
                          numbers, or "")
    knee                  load, low, high (levels), ops_s, is_top, may_be_top; null without a trial
    objectives[]          percentile, limit_ns, holds, fails, open_levels[], estimate, why
    law                   lambda_ops_s, sigma, kappa, peak_load, peak_is_bounded (whether an interval bounds it
                          from above), peak_ops_s, p_value, doubt; null where law_refusal says why
    law_refusal           why there is no law, or ""
    trials[]              number, block (0 is the search), position, treatment, state, reason, excluded (why it is
                          not analysed, or null), throughput_ops_s, p99_ns, started_ns, finished_ns, facts_hash,
                          warnings[]
    cautions[]            what makes pairing by pass doubtful: trials of a pass far apart, or on a changed host
    planned_trials        how many there are to be, as far as the search has decided
    versions              program -> every version that trials ran

An estimate is ``{"estimate", "low", "high"}``; ``low`` and ``high`` are null where no interval is possible.
Numbers that do not exist, or are infinite, are null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace import __version__
from headrace.analysis.result import Interval
from headrace.analysis.sweep import SEARCH, Answer, Level, Sweep, analyse_sweep, some
from headrace.analysis.trials import TrialResponse, trial_responses
from headrace.analysis.usl import Law
from headrace.experiment import sweep as sweeps
from headrace.model import TrialState
from headrace.report import tables, text
from headrace.report.sweep_text import DRIVER_SATURATED, between, gain, latency_words, passes
from headrace.store import ExperimentFolder, TrialRecord

FORMAT_VERSION = 1

#: Cells of the bar that draws throughput beside the table.
BAR_WIDTH = 16

#: More warnings than this would push the table off the screen.
MAX_WARNINGS = 5

#: Rank (0 always stays), title, and what stands in a level's row.
_Column = tuple[int, str, Callable[[Level], Text]]


def is_sweep(folder: ExperimentFolder) -> bool:
    return folder.design.experiment == sweeps.KIND


class SweepReport:
    """One sweep's folder, analysed once, for the page, the terminal and JSON.

    Raises StoreError when the folder's tables cannot be read.
    """

    def __init__(self, folder: ExperimentFolder) -> None:
        self.records = folder.trials()
        self._passes = [r for r in self.records if r.block != SEARCH]
        self.search = sweeps.search(folder, self.records)
        self.folder = sweeps.as_decided(folder, self.records)
        self.sweep = analyse_sweep(self.folder)

    def write(self) -> Path:
        """Write ``report.json`` and ``report.html`` into the folder; the path of the page."""
        # Lazy: JSON for a program need not wait for a page's libraries.
        import json

        from headrace.report import evidence, sweep_html

        found = evidence.gather(self.folder, self.sweep.as_analysis())
        content = self.to_json(found.responses)
        self.folder.write_output("report.json", json.dumps(content, indent=2, allow_nan=False) + "\n")
        page = sweep_html.render(self.folder, self.sweep, self.search.end, found)
        return self.folder.write_output("report.html", page)

    def to_json(self, responses: Mapping[int, TrialResponse] | None = None) -> dict[str, Any]:
        """The content of ``report.json``. ``responses`` are read from the folder unless the caller has them."""
        if responses is None:
            ran = [r for r in self.records if r.state is not TrialState.FAILED]
            responses = {r.number: r for r in trial_responses(self.folder, ran)}
        sweep, design = self.sweep, self.folder.design.to_json()
        kept = ("name", "description", "kind", "seed", "alpha", "workload", "target", "hash")
        return {
            "format": FORMAT_VERSION,
            "headrace": __version__,
            "experiment": {key: design[key] for key in kept},
            "headline": sweep.headline,
            "sweep": {
                "knob": sweep.knob,
                "unit": sweep.unit,
                "is_open": sweep.is_open,
                "gain": sweep.gain,
                "passes": sweep.passes,
                "latency_kind": sweep.latency_kind,
                "search_end": self.search.end,
            },
            "levels": [_level(level, sweep.law) for level in sweep.levels],
            "knee": _knee(sweep),
            "objectives": [_answer(answer) for answer in sweep.answers],
            "law": _law(sweep.law) if sweep.law else None,
            "law_refusal": sweep.law_refusal,
            "trials": [_trial(r, sweep, responses.get(r.number)) for r in self.records],
            "cautions": tables.cautions(self._passes),
            "planned_trials": len(design["trials"]),
            "versions": tables.versions(self.records),
        }

    def terminal(self) -> RenderableType:
        """The conclusions, the table of levels with a bar for throughput, and what to know before believing it."""
        sweep = self.sweep
        parts: list[RenderableType] = [Text(text.clean(sweep.headline), style="bold"), "", _Levels(sweep), ""]
        parts.append(Text(f"Latency in ms is {latency_words(sweep)}."))
        parts.append(Text(f"Intervals are over passes, {1 - sweep.alpha:.0%}. Inverse: the knee."))
        if not sweep.is_open:
            parts.append(
                Text("A closed loop asks nothing while the server stalls: users would see a worse p99.")
            )
        parts += [Text(line, style="yellow") for line in self._cautions()]
        return Group(*parts)

    def _cautions(self) -> list[str]:
        found = []
        if self.sweep.driver_saturated:
            found.append(DRIVER_SATURATED)
        excluded = _alike((why, [number]) for number, why in self.sweep.excluded.items())
        found += [f"not analysed: {line}" for line in some(excluded, MAX_WARNINGS)]
        found += ["--retry measures again what is not analysed"] if excluded else []
        found += [text.clean(caution) for caution in tables.cautions(self._passes)]
        warnings = _alike(tables.warnings(self._passes))
        found += warnings[:MAX_WARNINGS]
        if len(warnings) > MAX_WARNINGS:
            found.append(f"{len(warnings) - MAX_WARNINGS} more warnings: see report.html")
        return found


def _alike(found: Iterable[tuple[str, Sequence[int]]]) -> list[str]:
    """A line for all that differ in their numbers alone: each trial's own are on the page."""
    kinds: dict[str, list[tuple[str, Sequence[int]]]] = {}
    for words, trials in found:
        kinds.setdefault(re.sub(r"[\d.,]+", "0", words), []).append((words, trials))
    lines = []
    for (words, trials), *others in kinds.values():
        named = f"trial{'' if len(trials) == 1 else 's'} {_listed(trials)}"
        rest = _listed([number for _, numbers in others for number in numbers])
        lines.append(text.clean(f"{words} ({named}{f'; alike in {rest}' if rest else ''})"))
    return lines


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


class _Levels:
    """The table of levels; on a narrow terminal the columns with the highest rank go first."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self._columns()
        for most in sorted({rank for rank, *_ in columns}, reverse=True):
            table = self._table([c for c in columns if c[0] <= most])
            wanted = Measurement.get(console, options.update(max_width=10_000), table).maximum
            if wanted <= options.max_width or most == 0:
                yield table
                return

    def _columns(self) -> list[_Column]:
        sweep = self._sweep
        columns: list[_Column] = [
            (
                0,
                "offered" if sweep.is_open else sweep.unit,
                lambda level: Text(f"{level.load:,.6g}", style=self._mark(level)),
            ),
            (0, "ops/s", lambda level: _throughput(level, lambda i: text.count(i.estimate))),
            (4, "interval", lambda level: _throughput(level, lambda i: between(i, text.count), "dim")),
            (1, "gain", _gain),
            (2, "", self._bar),
        ]
        if sweep.law is not None:
            columns.append((6, "vs. law", lambda level: Text(_residual(level, sweep.law), style="dim")))
        objectives = {a.objective.percentile: a for a in sweep.answers}
        for name in dict.fromkeys(("p50", "p99", *objectives)):
            columns.append((0 if name in objectives else 5, f"{name} ms", _latency(name)))
            columns.append((3 if name in objectives else 7, "interval", _latency(name, is_interval=True)))
        columns += [(0, f"≤ {a.objective.limit}", _holds(a)) for a in sweep.answers]
        if any(len(level.trials) < sweep.passes for level in sweep.levels):
            columns.append(
                (1, "passes", lambda level: Text(passes(level, sweep), style=_enough(level, sweep)))
            )
        return columns

    def _table(self, columns: list[_Column]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for _, title, _ in columns:
            table.add_column(title, justify="right" if title else "left", no_wrap=True)
        for level in self._sweep.levels:
            table.add_row(*(cell(level) for _, _, cell in columns))
        return table

    def _mark(self, level: Level) -> str:
        return "bold reverse" if self._sweep.knee and self._sweep.knee.load == level.load else "bold"

    def _bar(self, level: Level) -> Text:
        top = max(summary.throughput_ops_s.estimate for _, summary in self._sweep.measured)
        ops_s = level.summary.throughput_ops_s.estimate if level.summary else 0.0
        eighths = round(8 * BAR_WIDTH * ops_s / top)
        whole, rest = divmod(eighths, 8)
        return Text("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else ""), style="blue")


def _throughput(level: Level, form: Callable[[Interval], str], style: str = "") -> Text:
    return Text(form(level.summary.throughput_ops_s) if level.summary else "–", style=style)


def _gain(level: Level) -> Text:
    return Text(gain(level.step.estimate) if level.step else "–", style="dim")


def _residual(level: Level, law: Law | None) -> str:
    return f"{100 * law.residuals[level.load]:+.1f}%" if law and level.load in law.residuals else "–"


def _latency(name: str, *, is_interval: bool = False) -> Callable[[Level], Text]:
    def cell(level: Level) -> Text:
        found = level.summary.latency_ns.get(name) if level.summary else None
        if found is None:
            return Text("–", style="dim")
        if is_interval:
            return Text(between(found, text.milliseconds), style="dim")
        return Text(text.milliseconds(found.estimate))

    return cell


def _enough(level: Level, sweep: Sweep) -> str:
    return "dim" if len(level.trials) == sweep.passes else "yellow"


def _holds(answer: Answer) -> Callable[[Level], Text]:
    def cell(level: Level) -> Text:
        if level.summary is None:
            return Text("–", style="dim")
        if answer.holds is not None and level.load <= answer.holds:
            return Text("holds", style="green")
        if answer.fails is not None and level.load >= answer.fails:
            return Text("fails", style="red")
        return Text("?" if level.load in answer.open_levels else "–", style="yellow")

    return cell


def _level(level: Level, law: Law | None) -> dict[str, Any]:
    summary = level.summary
    return {
        "treatment": level.treatment,
        "load": level.load,
        "throughput_ops_s": _interval(summary.throughput_ops_s) if summary else None,
        "step": _interval(level.step) if level.step else None,
        "latency_ns": {p: _interval(i) for p, i in summary.latency_ns.items()} if summary else {},
        "trials": list(summary.trials) if summary else [],
        "operations": summary.operations if summary else 0,
        "errors": summary.errors if summary else 0,
        "failed_share": level.failed_share,
        "search_ops_s": _finite(level.search_ops_s),
        "law_residual": _finite(law.residuals.get(level.load)) if law else None,
        "is_driver_saturated": level.is_driver_saturated,
        "missing": level.missing,
    }


def _knee(sweep: Sweep) -> dict[str, Any] | None:
    knee = sweep.knee
    return None if knee is None else {**asdict(knee), "ops_s": _interval(knee.ops_s)}


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "percentile": answer.objective.percentile,
        "limit_ns": answer.objective.limit_ns,
        "holds": answer.holds,
        "fails": answer.fails,
        "open_levels": list(answer.open_levels),
        "estimate": answer.estimate,
        "why": answer.why,
    }


def _law(law: Law) -> dict[str, Any]:
    return {
        "lambda_ops_s": _interval(law.lambda_ops_s),
        "sigma": _interval(law.sigma),
        "kappa": _interval(law.kappa),
        "peak_load": _interval(law.peak_load),
        "peak_is_bounded": law.peak_load.high is not None and math.isfinite(law.peak_load.high),
        "peak_ops_s": _finite(law.peak_ops_s),
        "p_value": _finite(law.p_value),
        "doubt": law.doubt,
    }


def _trial(record: TrialRecord, sweep: Sweep, response: TrialResponse | None) -> dict[str, Any]:
    excluded = "the search" if record.block == SEARCH else sweep.excluded.get(record.number)
    return {
        "number": record.number,
        "block": record.block,
        "position": record.position,
        "treatment": record.treatment,
        "state": record.state.value,
        "reason": record.reason,
        "excluded": excluded,
        "throughput_ops_s": _finite(response.throughput_ops_s) if response else None,
        "p99_ns": _finite(response.value("p99")) if response else None,
        "started_ns": record.times_ns.get("started"),
        "finished_ns": record.times_ns.get("finished"),
        "facts_hash": record.facts_hash,
        "warnings": list(record.warnings),
    }


def _interval(found: Interval) -> dict[str, float | None]:
    return {"estimate": _finite(found.estimate), "low": _finite(found.low), "high": _finite(found.high)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
