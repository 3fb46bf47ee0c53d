"""The rows of a report: the same for the terminal, the page and ``report.json``; and a terminal's tables."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.base.counted import counted
from headrace.base.effect import Effect, NoiseFloor, Verdict
from headrace.base.intervals import Interval
from headrace.base.model import Treatment, TrialState, Value
from headrace.experiment.frozen import Design
from headrace.experiment.stats.result import Analysis, TreatmentSummary
from headrace.experiment.stats.trials import EMULATED, is_emulated
from headrace.experiment.store import TrialRecord
from headrace.show import text

THROUGHPUT = "throughput"

#: In the reason of a trial that is invalid for its driver: ``judge`` in crates/engine/src/lines.rs.
DRIVER = "the driver was"
#: Invalid trials of one treatment, from which on others with fewer are worth a caution.
LEAST_SELECTED = 2

#: Trials of a block that are further apart than this did not share the machine's condition ...
MAX_GAP_S = 3600.0

#: ... nor did short trials with room for this many more between them.
MAX_GAP_TRIALS = 20


class Figure(NamedTuple):
    """The customary figure of a workload: operations of one kind per minute."""

    operation: str
    name: str
    meaning: str


#: Workload -> its figure.
FIGURES: Mapping[str, Figure] = {
    "tpcc": Figure(
        "new_order",
        "New-Order TPM",
        "New-Order TPM: New-Order transactions per minute, including the 1% that the specification rolls "
        "back. This is not tpmC, a name reserved for audited results.",
    )
}

#: Recorded by a trial to document where it ran; a difference in these is not a difference in configuration.
_IDENTITIES = ("volume.device",)


@dataclass(frozen=True)
class ResultRow:
    """One treatment. If no trial could be analysed, ``summary`` is None and ``missing`` says why."""

    treatment: str
    configuration: str
    is_baseline: bool
    summary: TreatmentSummary | None
    effects: Mapping[str, Effect]
    missing: str = ""


@dataclass(frozen=True)
class Group:
    """All treatments of one condition, which are compared with each other. ``noise`` is by response."""

    condition: str
    baseline: str
    rows: tuple[ResultRow, ...]
    noise: Mapping[str, NoiseFloor]

    @property
    def baseline_configuration(self) -> str:
        return self.baseline.removesuffix(f" @ {self.condition}") if self.condition else self.baseline

    def floor(self, response: str) -> float | None:
        found = self.noise.get(response)
        return found.floor if found else None


def groups(design: Design, analysis: Analysis, records: Sequence[TrialRecord]) -> list[Group]:
    """Conditions in the design's order. Cumulative designs keep their order; others go from fast to slow."""
    summaries = {s.treatment: s for s in analysis.summaries}
    found = []
    for condition, treatments in design.conditions.items():
        baseline = design.baselines.get(condition, "")
        rows = [_row(t, baseline, summaries.get(t.name), analysis, records) for t in treatments]
        if design.kind not in ("cumulative", "leave-one-out"):
            rows.sort(key=lambda r: (not r.is_baseline, -_speed(r)))
        noise = {n.response: n for n in analysis.noise if n.condition == condition}
        found.append(Group(condition, baseline, tuple(rows), noise))
    return found


def _speed(row: ResultRow) -> float:
    return row.summary.throughput_ops_s.estimate if row.summary else 0.0


def _row(
    treatment: Treatment,
    baseline: str,
    summary: TreatmentSummary | None,
    analysis: Analysis,
    records: Sequence[TrialRecord],
) -> ResultRow:
    name = treatment.name
    effects = {e.response: e for e in analysis.effects if e.treatment == name}
    missing = "" if summary else _why_missing([r for r in records if r.treatment == name])
    return ResultRow(name, treatment.configuration, name == baseline, summary, effects, missing)


def _why_missing(records: Sequence[TrialRecord]) -> str:
    reasons = dict.fromkeys(f"{r.state}: {r.reason}" for r in records if r.state is not TrialState.COMPLETE)
    return "; ".join(reasons) or "not run yet"


def best(rows: Sequence[ResultRow]) -> ResultRow | None:
    """The treatment with the largest throughput effect; a proven effect precedes a larger unproven one."""
    return max((r for r in rows if THROUGHPUT in r.effects), key=merit, default=None)


def merit(row: ResultRow) -> tuple[bool, float]:
    effect = row.effects[THROUGHPUT]
    return effect.verdict is Verdict.BETTER, effect.ratio.estimate


@dataclass(frozen=True)
class Share:
    """One kind of operation of a treatment; ``summary`` is None if none succeeded in some trial."""

    operation: str
    summary: TreatmentSummary | None


def shares(analysis: Analysis, treatment: str) -> list[Share]:
    """Every kind of operation, most frequent first; empty if there is only one kind."""
    return [
        Share(name, next((s for s in summaries if s.treatment == treatment), None))
        for name, summaries in analysis.operations.items()
    ]


def per_minute(design: Design, shares: Sequence[Share]) -> Interval | None:
    """A treatment's customary figure; None for a workload without one."""
    figure = FIGURES.get(design.workload.kind)
    found = next((s.summary for s in shares if figure and s.operation == figure.operation), None)
    if found is None:
        return None
    rate = found.throughput_ops_s
    low, high = (None if end is None else 60 * end for end in (rate.low, rate.high))
    return Interval(60 * rate.estimate, low, high)


@dataclass(frozen=True)
class Differences:
    """Knobs by configuration: ``cells[knob][configuration]`` is (value as shown, differs from the baseline)."""

    configurations: tuple[str, ...]
    cells: Mapping[str, Mapping[str, tuple[str, bool]]]


def differences(design: Design, records: Sequence[TrialRecord]) -> Differences:
    """The settings that differ between treatments.

    The baseline of the first condition is the reference. If the baseline does not set a knob, its value is the
    original that a trial found before changing it.
    """
    by_configuration: dict[str, Mapping[str, Value]] = {}
    baseline = ""
    names = set(design.baselines.values())
    for treatment in design.treatments:
        by_configuration.setdefault(treatment.configuration, treatment.settings)
        baseline = baseline or (treatment.configuration if treatment.name in names else "")
    conditions = {k for t in design.treatments for k in t.settings if k.startswith("workload.")}
    knobs = dict.fromkeys(k for s in by_configuration.values() for k in s if k not in conditions)
    reference = by_configuration.get(baseline, {})
    cells: dict[str, dict[str, tuple[str, bool]]] = {}
    for knob in knobs:
        original = _original(knob, records)
        row = {}
        for name, settings in by_configuration.items():
            shown = text.setting(settings[knob]) if knob in settings else original
            row[name] = (shown, settings.get(knob) != reference.get(knob))
        if any(differs for _, differs in row.values()):
            cells[knob] = row
    return Differences((baseline, *(n for n in by_configuration if n != baseline)), cells)


def _original(knob: str, records: Sequence[TrialRecord]) -> str:
    for record in records:
        before = (record.knobs.get(knob) or {}).get("before")
        if before is not None:
            return text.setting(_as_written(before))
    return "default"


def _as_written(value: Any) -> Any:
    """``134217728`` as a plan writes it: ``128M``."""
    whole = int(value) if str(value).isdigit() else 0
    for factor, unit in ((1 << 30, "G"), (1 << 20, "M")):
        if whole and whole % factor == 0:
            return f"{whole // factor}{unit}"
    return value


@dataclass(frozen=True)
class Applied:
    """A setting before and after, as read back from the host, and the treatments with it."""

    setting: str
    before: str
    after: str
    treatments: tuple[str, ...]


def applied(records: Sequence[TrialRecord]) -> list[Applied]:
    """What trials changed or what differs between treatments."""
    holders: dict[tuple[str, str, str], dict[str, None]] = {}
    for record in records:
        for knob, change in record.knobs.items():
            if knob not in _IDENTITIES:
                key = (knob, text.setting(change.get("before")), text.setting(change.get("after")))
                holders.setdefault(key, {})[record.treatment] = None
    everyone = len({r.treatment for r in records if r.knobs})
    rows = []
    for (knob, before, after), treatments in sorted(holders.items()):
        same_everywhere = len(treatments) == everyone and before in (after, "unset")
        if not same_everywhere:
            rows.append(Applied(knob, before, after, tuple(treatments)))
    return rows


def warnings(records: Sequence[TrialRecord]) -> list[tuple[str, tuple[int, ...]]]:
    """Each warning once, with its trials."""
    found: dict[str, list[int]] = {}
    for record in records:
        for warning in dict.fromkeys(record.warnings):
            found.setdefault(warning, []).append(record.number)
    return [(warning, tuple(numbers)) for warning, numbers in found.items()]


def started_ns(record: TrialRecord) -> int:
    return record.times_ns.get("started") or record.window_start_ns


def _finished_ns(record: TrialRecord) -> int:
    """The last activity of a failed trial."""
    return max(record.window_end_ns, *record.times_ns.values(), 0)


def executed(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """In the order in which they actually ran: a repeated trial ran late."""
    return sorted(records, key=lambda r: (started_ns(r), r.number))


def cautions(records: Sequence[TrialRecord]) -> list[str]:
    """Emulated machines, and blocks whose analysed trials differ in time or host, so that pairing cancels less."""
    blocks: dict[int, list[TrialRecord]] = {}
    for record in executed(records):
        blocks.setdefault(record.block, []).append(record)
    found = [EMULATED] if is_emulated(records) else []
    found += _apart(blocks, records)
    found += _selected(records)
    sound = [r for r in records if r.state is TrialState.COMPLETE]
    found += _changed(sound, {r.number: r.facts_hash for r in sound}, "on a host with different facts")
    for program in versions(sound):
        used = {r.number: r.versions[program] for r in sound if program in r.versions}
        found += _changed(sound, used, f"with different versions of {program}")
    return found


def _selected(records: Sequence[TrialRecord]) -> list[str]:
    """Trials that are invalid for the driver's delay more often in one treatment than in another.

    On cores shared with the server, a treatment that needs more CPU delays the driver. The valid trials are then
    those in which it needed less.
    """
    trials: dict[str, int] = {}
    invalid: dict[str, int] = {}
    for record in records:
        if record.state in (TrialState.COMPLETE, TrialState.INVALID):
            trials[record.treatment] = trials.get(record.treatment, 0) + 1
            is_late = record.state is TrialState.INVALID and DRIVER in record.reason
            invalid[record.treatment] = invalid.get(record.treatment, 0) + is_late
    if not invalid:
        return []
    worst = max(invalid, key=lambda name: invalid[name] / trials[name])
    least = min(invalid, key=lambda name: invalid[name] / trials[name])
    # One trial more or less is chance.
    if invalid[worst] / trials[worst] <= invalid[least] / trials[least] or invalid[worst] < LEAST_SELECTED:
        return []
    return [
        f"the load driver itself made {invalid[worst]} of {counted(trials[worst], 'trial')} of "
        f"{worst} invalid, and "
        f"{invalid[least]} of {trials[least]} of {least}: the remaining trials are selected by treatment; give "
        "the driver its own cores or machine"
    ]


def _apart(blocks: Mapping[int, Sequence[TrialRecord]], records: Sequence[TrialRecord]) -> list[str]:
    lengths_s = [(_finished_ns(r) - started_ns(r)) / 1e9 for r in records if r.state is TrialState.COMPLETE]
    if not lengths_s:
        return []
    typical_s = statistics.median(lengths_s)
    # A repeated invalid trial leaves a hole of its own length, which is not a gap.
    limit_s = max(min(MAX_GAP_S, MAX_GAP_TRIALS * typical_s), 2 * typical_s)
    apart: dict[int, float] = {}
    for block, ran in sorted(blocks.items()):
        for i, (one, other) in enumerate(itertools.pairwise(ran), start=1):
            gap_s = (started_ns(other) - _finished_ns(one)) / 1e9
            analysed = [any(r.state is TrialState.COMPLETE for r in side) for side in (ran[:i], ran[i:])]
            if gap_s > limit_s and all(analysed):
                apart[block] = max(gap_s, apart.get(block, 0.0))
    if not apart:
        return []
    up_to = "up to " if len(apart) > 1 else ""
    return [
        f"trials of {_named(apart)} were measured {up_to}{text.seconds(max(apart.values()))} apart: pairing "
        "cannot cancel what changed in between"
    ]


def _changed(records: Sequence[TrialRecord], seen: Mapping[int, str], how: str) -> list[str]:
    """Blocks with several values, unless each treatment has its own: then the treatments differ in it."""
    by_treatment: dict[str, set[str]] = {}
    by_block: dict[int, set[str]] = {}
    for record in records:
        if record.number in seen:
            by_treatment.setdefault(record.treatment, set()).add(seen[record.number])
            by_block.setdefault(record.block, set()).add(seen[record.number])
    mixed = sorted(block for block, values in by_block.items() if len(values) > 1)
    if not mixed or all(len(values) == 1 for values in by_treatment.values()):
        return []
    return [f"trials of {_named(mixed)} ran {how}: pairing cannot cancel what changed in between"]


def _named(blocks: Iterable[int]) -> str:
    numbers = list(blocks)
    return f"block{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def versions(records: Sequence[TrialRecord]) -> dict[str, list[str]]:
    """Program -> every version that trials ran, in order of first use. More than one deserves attention."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for program, version in record.versions.items():
            found.setdefault(program, {})[version] = None
    return {program: list(seen) for program, seen in found.items()}
