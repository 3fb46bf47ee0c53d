"""``report.html``: one file, no network request, every captured text escaped.

The page carries a content security policy that allows exactly the scripts in it (by hash) and no connection, so
even text that slipped through could neither run nor call home.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from headrace import __version__
from headrace.analysis.percentiles import PERCENTILES
from headrace.analysis.result import Analysis, Effect, Interval, NoiseFloor, Verdict
from headrace.errors import StoreError, TargetError
from headrace.facts import HostFacts
from headrace.model import Facts, TrialState
from headrace.report import charts, choices, duet, machines, matters, tables, text
from headrace.report.evidence import Evidence
from headrace.report.sections import Machines, Paces
from headrace.store import ExperimentFolder

#: Responses that a reader can switch the ratio chart to.
RATIO_RESPONSES = ("throughput", "p50", "p95", "p99", "p99.9")
LATENCIES = (*PERCENTILES, "max")
SHARE_LATENCIES = ("p50", "p90", "p99", "max")

_CHIP = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.EQUIVALENT: "equivalent",
    Verdict.NOT_ENOUGH_DATA: "unsure",
}


def render(folder: ExperimentFolder, analysis: Analysis, evidence: Evidence) -> str:
    """The page as text."""
    page = _Page(folder, analysis, evidence)
    scripts = [
        _resource(__package__, "vendored/plotly.min.js"),
        _resource(__package__, "templates/report.js"),
    ]
    hashes = " ".join(f"'sha256-{_digest(s)}'" for s in scripts)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    return (
        environment()
        .get_template("report.html")
        .render(
            page=page,
            place=page.figures.add,
            csp=f"{policy}; script-src {hashes}",
            css=_resource(__package__, "templates/report.css"),
            scripts=scripts,
            version=__version__,
        )
    )


def environment() -> jinja2.Environment:
    """The templates, every text of a page escaped, and what shows its numbers."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= _FILTERS
    return found


def _wrappable(captured: str) -> Markup:
    """A setting's name or value, breakable where a person would break it."""
    escaped = str(escape(text.clean(captured)))
    for mark in (",", ".", "_"):
        escaped = escaped.replace(mark, f"{mark}<wbr>")
    return Markup(escaped)


def _css_colour(token: str) -> str:
    """``@{line1/0.5}`` as a style sheet reads it; there the shade does not matter."""
    return f"var(--{token.strip('@{}').partition('/')[0]})"


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "clean": text.clean,
    "count": text.count,
    "ms": text.milliseconds,
    "ratio": text.ratio,
    "floor": text.plus_minus,
    "short": text.short,
    "seconds": text.seconds,
    "chip": _CHIP.__getitem__,
    "css": _css_colour,
    "wrappable": _wrappable,
    "between": text.between,
    "between_count": lambda interval: text.between(interval, text.count),
    "between_ms": lambda interval: text.between(interval, text.milliseconds),
}


def _resource(package: str, path: str) -> str:
    return resources.files(package).joinpath(path).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


class Figures:
    """The page's figures by the id that their places refer to."""

    def __init__(self) -> None:
        self.dumped: dict[str, str] = {}

    def add(self, figure: charts.Figure) -> dict[str, Any]:
        name = f"fig{len(self.dumped) + 1}"
        self.dumped[name] = charts.dump(figure)
        return {"id": name, "height": int(figure["layout"]["height"])}


class _Page:
    """What the template reads. Each property is one part of the page, in the page's order."""

    def __init__(self, folder: ExperimentFolder, analysis: Analysis, evidence: Evidence) -> None:
        self.design = folder.design
        self.analysis = analysis
        self.evidence = evidence
        self.figures = Figures()
        self.groups = tables.groups(folder.design, analysis, evidence.records)
        self.choices = choices.parts(analysis.decision) if analysis.decision else []
        self.matters = matters.cards(analysis)
        self.latencies, self.share_latencies = LATENCIES, SHARE_LATENCIES
        self.verdicts = tuple(_CHIP.items())
        self._folder = folder
        paces = Paces(evidence, self.groups, self.figures.add)
        self.paces, self.pace_note = paces.cards(), paces.note()
        machines = Machines(evidence, self.groups, self.figures.add)
        self.heat_maps, self.heat_tops = machines.heat_maps(), machines.heat_tops
        self.machines, self.machine_rows = machines.details(), machines.summaries()

    @cached_property
    def confidence(self) -> str:
        return f"{100 * (1 - self.analysis.alpha):g}%"

    @cached_property
    def counts(self) -> dict[str, int]:
        states = [r.state for r in self.evidence.records]
        planned = len(self.design.trials)
        return {**{s.value: states.count(s) for s in TrialState}, "planned": planned, "done": len(states)}

    @cached_property
    def period(self) -> str:
        times = [t for r in self.evidence.records for t in r.times_ns.values()]
        if not times:
            return ""
        first, last = (datetime.fromtimestamp(t / 1e9, UTC) for t in (min(times), max(times)))
        length = text.seconds((max(times) - min(times)) / 1e9)
        return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC ({length})"

    @cached_property
    def keys(self) -> list[dict[str, str]]:
        """The figures to take away. With several conditions, those of the one with the largest effect."""
        bests = [(g, b) for g in self.groups if (b := tables.best(g.rows))]
        cards = []
        if bests:
            group, row = max(bests, key=lambda x: tables.merit(x[1]))
            where = f" at {text.clean(group.condition)}" if group.condition else ""
            cards.append(_key("Throughput", row, row.effects[tables.THROUGHPUT], where))
            if "p99" in row.effects:
                cards.append(_key("p99 latency", row, row.effects["p99"], where))
            cards.append(_noise_key(group.noise.get(tables.THROUGHPUT)))
        counts = self.counts
        aside = [f"{counts[s]} {s}" for s in ("invalid", "failed") if counts[s]]
        left = counts["planned"] - counts["done"]
        aside += [f"{left} not run yet"] if left else []
        cards.append(
            {
                "title": "Trials analysed",
                "value": f"{len({n for s in self.analysis.summaries for n in s.trials})} of {counts['planned']}",
                "note": ", ".join(aside) or "all complete",
                "kind": "attention" if aside else "",
            }
        )
        return cards

    @cached_property
    def ladders(self) -> list[dict[str, Any]]:
        """One entry a condition: throughput, and the ratio chart for each response."""
        tops = [
            i.high if i.high is not None else i.estimate
            for g in self.groups for r in g.rows if r.summary
            for i in [r.summary.throughput_ops_s]
        ]  # fmt: skip
        return [
            {
                "group": group,
                "throughput": self.figures.add(
                    charts.ladder(
                        [_bar(r) for r in group.rows],
                        "throughput [operations/s]",
                        max(tops, default=1.0),
                    )
                ),
                "ratios": self._ratios(group),
            }
            for group in self.groups
        ]

    def _ratios(self, group: tables.Group) -> list[dict[str, Any]]:
        found = []
        for response in self.responses:
            span = charts.ratio_span(
                [r.effects[response].ratio for g in self.groups for r in g.rows if response in r.effects],
                max((g.floor(response) or 0.0 for g in self.groups), default=0.0),
            )
            rows = [self._ratio_row(group, row, response) for row in group.rows]
            better = "higher is better" if response == tables.THROUGHPUT else "lower is better"
            baseline = charts.label(text.short(text.clean(group.baseline_configuration)))
            title = f"{response} relative to {baseline} ({better})"
            figure = charts.ratios(rows, title, group.floor(response), span)
            found.append({"response": response, **self.figures.add(figure)})
        return found

    def _ratio_row(self, group: tables.Group, row: tables.ResultRow, response: str) -> charts.Row:
        if row.is_baseline and response in group.noise:
            return charts.noise_row(group.noise[response], row.configuration)
        effect = row.effects.get(response)
        if effect is None:
            return charts.Row(row.configuration, None, "@{muted}")
        colour, symbol = charts.verdict_mark(effect)
        hint = (
            f"<b>{charts.label(row.configuration)}</b>: {text.ratio(effect.ratio.estimate)}"
            f" ({text.between(effect.ratio)})<br>{effect.verdict}, {effect.blocks} blocks"
        )
        return charts.Row(row.configuration, effect.ratio, colour, symbol, hint)

    @cached_property
    def responses(self) -> list[str]:
        present = {e.response for e in self.analysis.effects}
        return [r for r in RATIO_RESPONSES if r in present]

    @cached_property
    def scaling(self) -> dict[str, Any] | None:
        """Throughput over a numeric condition (threads), when that is what the conditions are."""
        parts = [g.condition.split("=", 1) for g in self.groups]
        if len(parts) < 2 or any(len(p) != 2 or " " in p[1] or not _is_number(p[1]) for p in parts):
            return None
        if len({p[0] for p in parts}) != 1:
            return None
        order = sorted(range(len(parts)), key=lambda i: float(parts[i][1]))
        names = [r.configuration for r in sorted(self.groups[0].rows, key=lambda r: not r.is_baseline)]
        by_place = {(g.condition, r.configuration): r for g in self.groups for r in g.rows}
        styles = self._line_styles(names, self.groups[0])
        lines = []
        for name in names:
            rows = [by_place.get((self.groups[i].condition, name)) for i in order]
            found: list[Interval | None] = [
                r.summary.throughput_ops_s if r and r.summary else None for r in rows
            ]
            lines.append((name, *styles[name][:2], found))
        figure = charts.scaling([parts[i][1] for i in order], parts[0][0], "throughput [operations/s]", lines)
        legend = [
            {"name": n, "colour": styles[n][0], "dash": styles[n][1]} for n in names if _is_telling(styles[n])
        ]
        return {**self.figures.add(figure), "factor": parts[0][0], "legend": legend}

    def _line_styles(self, names: Sequence[str], group: tables.Group) -> dict[str, tuple[str, str, float]]:
        """(colour, dash, width) by configuration. Past eight lines only the telling ones are coloured."""
        others = [n for n in names if n != group.baseline_configuration]
        styles = {n: ("@{ink}", "dot", 2.4) for n in names if n not in others}
        if len(others) <= len(charts.LINE_COLOURS):
            return styles | {n: (charts.LINE_COLOURS[i], charts.DASHES[i], 2.0) for i, n in enumerate(others)}
        speed = {
            r.configuration: r.effects[tables.THROUGHPUT].ratio.estimate
            for r in group.rows
            if tables.THROUGHPUT in r.effects
        }
        telling = sorted((n for n in others if n in speed), key=lambda n: speed[n], reverse=True)
        styles |= dict.fromkeys(others, ("@{muted/0.6}", "solid", 1.0))
        if telling:
            styles[telling[-1]] = (charts.LINE_COLOURS[1], "dash", 2.2)
            styles[telling[0]] = (charts.LINE_COLOURS[0], "solid", 2.4)
        return styles

    @cached_property
    def distributions(self) -> list[dict[str, Any]]:
        found = []
        for group in self.groups:
            names = [r.configuration for r in group.rows if r.summary]
            styles = self._line_styles(names, group)
            # Coloured lines last: they are drawn over the grey ones.
            rows = sorted((r for r in group.rows if r.summary), key=lambda r: styles[r.configuration][2])
            lines = []
            for row in rows:
                assert row.summary is not None
                colour, dash, width = styles[row.configuration]
                lines.append(
                    (row.configuration, colour, dash, width, *self.evidence.distribution(row.summary))
                )
            if any(len(line[4]) for line in lines):
                drawn = [r.configuration for r, line in zip(rows, lines, strict=True) if len(line[4])]
                shown = [n for n in names if n in drawn and _is_telling(styles[n])]
                legend = [{"name": n, "colour": styles[n][0], "dash": styles[n][1]} for n in shown]
                found.append(
                    {
                        "group": group,
                        "legend": legend,
                        "others": len(drawn) - len(shown),
                        **self.figures.add(charts.percentiles(lines)),
                    }
                )
        return found

    @cached_property
    def is_open_loop(self) -> bool:
        return tables.is_open_loop(self.design)

    @cached_property
    def shares(self) -> dict[str, list[tables.Share]]:
        """Treatment -> each kind of operation; empty where there is only one."""
        found = {r.treatment: tables.shares(self.analysis, r.treatment) for g in self.groups for r in g.rows}
        return found if any(found.values()) else {}

    @cached_property
    def per_minute(self) -> dict[str, Interval]:
        """Treatment -> the figure by which the workload is known; empty where it has none."""
        figures = {name: tables.per_minute(self.design, shares) for name, shares in self.shares.items()}
        return {name: figure for name, figure in figures.items() if figure}

    @cached_property
    def figure(self) -> tables.Figure | None:
        return tables.FIGURES.get(self.design.workload.kind)

    @cached_property
    def comparisons(self) -> list[tuple[tables.Group, tables.ResultRow, Effect]]:
        return [(g, row, effect) for g in self.groups for row in g.rows for effect in row.effects.values()]

    @cached_property
    def differences(self) -> tables.Differences:
        return tables.differences(self.design, self.evidence.records)

    @cached_property
    def applied(self) -> list[dict[str, Any]]:
        total = len({r.treatment for r in self.evidence.records if r.knobs})
        return [
            {"row": row, "treatments": "all" if len(row.treatments) == total else ", ".join(row.treatments)}
            for row in tables.applied(self.evidence.records)
        ]

    @cached_property
    def hosts(self) -> list[dict[str, Any]]:
        hashes = dict.fromkeys(r.facts_hash for r in self.evidence.records if r.facts_hash)
        return [
            {
                "hash": h[:12],
                "trials": [r.number for r in self.evidence.records if r.facts_hash == h],
                "digest": self._digest(h),
            }
            for h in hashes
        ]

    def _digest(self, facts_hash: str) -> list[tuple[str, str]]:
        """One damaged file of facts must not cost the page."""
        try:
            return _digest_of(self._folder.facts(facts_hash))
        except StoreError as error:
            return [("facts", f"not known: {error.message}")]

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        rows = []
        for record in self.evidence.records:
            response = self.evidence.responses.get(record.number)
            times = record.times_ns
            started = tables.started_ns(record)
            total_s = (
                (times["finished"] - times["started"]) / 1e9
                if {"started", "finished"} <= set(times)
                else None
            )
            rows.append(
                {
                    "record": record,
                    "started": f"{datetime.fromtimestamp(started / 1e9, UTC):%m-%d %H:%M:%S}"
                    if started
                    else "–",
                    "total_s": total_s,
                    "throughput": response.throughput_ops_s if response else None,
                    "p99_ns": response.value("p99") if response else None,
                    "why": self.analysis.excluded.get(record.number, record.reason),
                }
            )
        return rows

    @cached_property
    def order(self) -> list[dict[str, Any]]:
        """Blocks as rows, each in the order in which its trials really ran; then those that are yet to run."""
        ran = {r.number: r for r in tables.executed(self.evidence.records)}
        planned = {spec.number: spec for spec in self.design.trials}
        blocks: dict[int, list[dict[str, Any]]] = {
            b: [] for b in sorted({spec.block for spec in self.design.trials})
        }
        for number in [*(n for n in ran if n in planned), *(n for n in planned if n not in ran)]:
            spec = planned[number]
            state = ran[number].state.value if number in ran else "planned"
            blocks[spec.block].append({**asdict(spec), "state": state})
        return [{"block": block, "cells": cells} for block, cells in blocks.items()]

    @cached_property
    def drift(self) -> dict[str, Any] | None:
        means = {s.treatment: s.throughput_ops_s.estimate for s in self.analysis.summaries}
        points: dict[str, tuple[list[int], list[float], list[str]]] = {
            "complete": ([], [], []),
            "invalid": ([], [], []),
        }
        executed = tables.executed(self.evidence.records)
        firsts = [
            place + 0.5
            for place, (one, other) in enumerate(itertools.pairwise(executed), start=1)
            if one.block != other.block
        ]
        for place, record in enumerate(executed, start=1):
            response = self.evidence.responses.get(record.number)
            mean = means.get(record.treatment)
            if response and mean and response.throughput_ops_s > 0:
                order, percent, hints = points[record.state.value]
                order.append(place)
                percent.append(100 * math.expm1(math.log(response.throughput_ops_s / mean)))
                hints.append(f"trial {record.number}, block {record.block}, {record.treatment}")
        if not points["complete"][0]:
            return None
        return self.figures.add(charts.drift(points, firsts))

    @cached_property
    def side_by_side(self) -> list[str]:
        return duet.sentences(self._folder, self.evidence.records, self.evidence.responses)

    @cached_property
    def between_machines(self) -> list[str]:
        return machines.sentences(self._folder, self.analysis, list(self.evidence.records))

    @cached_property
    def cautions(self) -> list[str]:
        return tables.cautions(self.evidence.records)

    @cached_property
    def warnings(self) -> list[tuple[str, tuple[int, ...]]]:
        return tables.warnings(self.evidence.records)

    @cached_property
    def versions(self) -> dict[str, list[str]]:
        return tables.versions(self.evidence.records)

    @cached_property
    def workload_options(self) -> list[tuple[str, str]]:
        return [(k, text.setting(v)) for k, v in self.design.workload.options.items()]


def _is_telling(style: tuple[str, str, float]) -> bool:
    return "muted" not in style[0]


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _digest_of(facts: Facts) -> list[tuple[str, str]]:
    """A host that lacks a fact still has a report, which says what is missing."""
    rows: list[tuple[str, str]] = []
    try:
        rows.extend(HostFacts(facts).digest())
    except TargetError as error:
        rows.append(("not known", error.message))
    return rows


def _key(title: str, row: tables.ResultRow, effect: Effect, where: str) -> dict[str, str]:
    return {
        "title": f"{title}, {text.short(text.clean(row.configuration), 60)}{where}",
        "value": f"{text.ratio(effect.ratio.estimate)} ×",
        "note": f"{text.between(effect.ratio)} · {effect.verdict}",
        "kind": _CHIP[effect.verdict],
    }


def _noise_key(noise: NoiseFloor | None) -> dict[str, str]:
    if noise is None:
        return {
            "title": "Noise floor (A/A)",
            "value": "–",
            "note": "no block has both baseline trials",
            "kind": "",
        }
    return {
        "title": "Noise floor (A/A)",
        "value": text.plus_minus(noise.floor),
        "note": f"baseline against itself: {text.ratio(noise.ratio.estimate)} ({text.between(noise.ratio)})",
        "kind": "",
    }


def _bar(row: tables.ResultRow) -> charts.Row:
    if row.summary is None:
        return charts.Row(f"{row.configuration} (none)", None, "@{muted}")
    effect = row.effects.get(tables.THROUGHPUT)
    colour = "@{muted}" if row.is_baseline or effect is None else charts.verdict_mark(effect)[0]
    found = row.summary.throughput_ops_s
    hint = (
        f"<b>{charts.label(row.configuration)}</b>: {text.count(found.estimate)} operations/s"
        f"<br>{text.between(found, text.count)}, {len(row.summary.trials)} trials"
    )
    return charts.Row(row.configuration, found, colour, hint=hint)
