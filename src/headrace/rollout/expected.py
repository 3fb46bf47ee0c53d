"""A rollout's predicted effect: found for its plan, kept there, and compared with production.

Which of its numbers is compared is part of the plan, too. The rollout judges time per query, and an experiment's
throughput is comparable with it only in a closed loop without pauses: a fixed number of connections, always busy,
divided by their throughput is the mean time of an operation (Little's law).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.base.errors import PlanError, StoreError
from headrace.base.intervals import Interval, inverse
from headrace.base.model import Value
from headrace.experiment.frozen import Design
from headrace.experiment.store import ExperimentFolder
from headrace.fleet.evidence import changed_by, day_of, turned
from headrace.knobs.knob import value_text
from headrace.knobs.values import plain_value
from headrace.rollout.book import Book
from headrace.rollout.judge import THROUGHPUT, TIME, Bound, Outcome, sequence
from headrace.rollout.plan import Expected, Plan, Said, Stage
from headrace.rollout.prediction import Prediction

#: A search chooses its points by their results, and a sweep changes the load: neither compares settings.
NO_COMPARISONS = ("search", "sweep", "soak")
#: Loads of statements on a fixed number of connections.
LOADS = ("oltp", "sql", "tpcc", "sysbench-oltp")
#: Counters that grow as the queries do which a rollout counts.
QUERIES = ("mysql_status.questions", "mysql_status.queries")
#: How deep experiments are below a folder of them: ``experiments/PLAN-proof/02-final``.
DEPTH = 3
MOST_NAMED = 5


@dataclass(frozen=True)
class _Match:
    folder: ExperimentFolder
    treatment: str
    #: Its baseline has the settings, and the treatment leaves them out.
    is_turned: bool


def find(places: Sequence[Path], settings: Mapping[str, Value]) -> Expected:
    """What the latest experiment in these folders says that changed exactly these settings to these values.

    Raises PlanError if there is none, it is not finished, or it measured them under several conditions.
    """
    folders = [folder for place in places for folder in _experiments(place)]
    found = [each for folder in folders for each in _matches(folder, settings)]
    where = ", ".join(map(str, places))
    if not found:
        others = [shown for folder in folders for shown in _changes(folder)]
        raise PlanError(
            f"no experiment there changed exactly these settings to these values ({len(folders)} experiments"
            + (f": {'; '.join(others[:MOST_NAMED])})" if others else ")"),
            place=where,
        )
    folder = max((each.folder for each in found), key=_ended_ns)
    own = [each for each in found if each.folder.path == folder.path]
    if len(own) > 1:
        names = ", ".join(each.treatment for each in own)
        raise PlanError(f"it measured these settings several times: {names}", place=str(folder.path))
    _must_be_finished(folder)
    return _expected(own[0])


def _experiments(place: Path) -> list[ExperimentFolder]:
    """The folder itself, or those below it that can be read. Raises StoreError if the folder itself cannot."""
    if (place / "design.json").is_file() or not place.is_dir():
        return [ExperimentFolder.open(place)]
    found: list[ExperimentFolder] = []
    level = [place]
    for _ in range(DEPTH):
        below = [path for each in level for path in sorted(each.iterdir()) if path.name[:1] != "."]
        level = [path for path in below if path.is_dir() and not path.is_symlink()]
        for path in level:
            if (path / "design.json").is_file():
                with contextlib.suppress(StoreError):
                    found.append(ExperimentFolder.open(path))
    return found


def _matches(folder: ExperimentFolder, settings: Mapping[str, Value]) -> list[_Match]:
    design = folder.design
    if design.experiment in NO_COMPARISONS:
        return []
    wanted = {knob: _plain(value) for knob, value in settings.items()}
    found = []
    for treatment in _compared(design):
        changed = changed_by(design, treatment)
        if {knob: after for knob, (_, after) in changed.items()} == wanted:
            found.append(_Match(folder, treatment, is_turned=False))
        elif {knob: before for knob, (before, _) in changed.items()} == wanted:
            found.append(_Match(folder, treatment, is_turned=True))
    return found


def _changes(folder: ExperimentFolder) -> list[str]:
    if folder.design.experiment in NO_COMPARISONS:
        return []
    found = []
    for treatment in _compared(folder.design):
        changed = changed_by(folder.design, treatment)
        found.append(", ".join(f"{knob}={after or 'as it is'}" for knob, (_, after) in changed.items()))
    return found


def _compared(design: Design) -> list[str]:
    """Treatments that are compared with a baseline."""
    baselines = set(design.baselines.values())
    return [
        each.name
        for each in design.treatments
        if each.name not in baselines and each.condition in design.baselines
    ]


def _plain(value: Value) -> str:
    return plain_value(",".join(value) if isinstance(value, list) else value_text(value))


def _ended_ns(folder: ExperimentFolder) -> int:
    return max((record.window_end_ns for record in folder.trials()), default=0)


def _must_be_finished(folder: ExperimentFolder) -> None:
    from headrace.experiment import kinds

    planned = {trial.number for trial in kinds.as_decided(folder).design.trials}
    left = planned - {record.number for record in folder.trials()}
    if left:
        raise PlanError(
            f"is not finished: {len(left)} of {len(planned)} trials are missing",
            place=str(folder.path),
            hint=f"headrace run {folder.path}/plan.toml -o {folder.path}",
        )


def _expected(match: _Match) -> Expected:
    # Lazy: SciPy and DuckDB.
    from headrace.experiment.stats.study import analyse_experiment
    from headrace.experiment.stats.trials import EMULATED, is_emulated

    folder, design = match.folder, match.folder.design
    analysis = analyse_experiment(folder)
    responses = {}
    for effect in analysis.effects:
        if effect.treatment == match.treatment and effect.ratio.estimate > 0:
            ratio = inverse(effect.ratio) if match.is_turned else effect.ratio
            verdict = turned(effect.verdict) if match.is_turned else effect.verdict
            responses[effect.response] = Said(
                ratio.estimate, ratio.low, ratio.high, str(verdict), effect.blocks
            )
    if not responses:
        raise PlanError("it has no effect of these settings", place=str(folder.path))
    metric, why = _metric(design, match.treatment)
    if "throughput" not in responses:
        metric, why = "", "the lab has no throughput"
    if is_emulated(folder.trials()):
        metric, why = "", EMULATED
    changed = changed_by(design, match.treatment)
    return Expected(
        experiment=analysis.name,
        kind=design.experiment,
        folder=str(folder.path.resolve()),
        day=day_of(folder),
        workload=design.workload.kind,
        treatment=match.treatment,
        before={
            knob: (after if match.is_turned else before) or _recorded(match, knob)
            for knob, (before, after) in changed.items()
        },
        responses=responses,
        metric=metric,
        why=why,
    )


def _recorded(match: _Match, knob: str) -> str | None:
    """What was there before a trial set it, where the baseline left it alone."""
    if match.is_turned:
        return None
    for record in match.folder.trials():
        before = (record.knobs.get(knob) or {}).get("before")
        if record.treatment == match.treatment and before is not None:
            return plain_value(str(before))
    return None


def _metric(design: Design, treatment: str) -> tuple[str, str]:
    """What a rollout judges that the experiment's throughput says; else empty, and why not."""
    kind = design.workload.kind
    own = design.treatment(treatment)
    for each in (own, design.treatment(design.baselines[own.condition])):
        options = design.options_of(each)
        if kind == "observe":
            counter = str(options.get("counter") or QUERIES[0])
            if counter in QUERIES:
                continue
            return "", f"the lab counted {counter}, and production is judged by queries"
        if kind == "probe":
            return "", "the lab timed gets of memcached, which is not compared"
        if kind not in LOADS:
            return (
                "",
                f"the lab's load ({kind}) does not keep a fixed number of connections busy with statements",
            )
        if options.get("rate") or options.get("profile"):
            return (
                "",
                "the lab's load had a fixed rate, so its throughput does not follow the time of a query",
            )
        if options.get("think_time_s") or options.get("times") == "specification":
            return "", "the lab's connections paused between operations, so throughput is not time"
    return (THROUGHPUT if kind == "observe" else TIME), ""


# -- compared with production ------------------------------------------------------------------------------------


def lab(expected: Expected) -> Bound | None:
    """The log cost of the change in the lab, in the metric that production is judged by; None if none compares."""
    if not expected.metric:
        return None
    said = expected.responses["throughput"]
    cost = inverse(Interval(said.ratio, said.low, said.high))
    return Bound(
        said.blocks,
        math.log(cost.estimate),
        math.log(cost.low) if cost.low else -math.inf,
        math.log(cost.high) if cost.high else math.inf,
    )


def production(book: Book, metric: str, stage: Stage | None = None) -> Bound | None:
    """The log cost in production: of one stage as its verdict states it, or of all stages of the rollout together,
    by a confidence sequence, because how many blocks there are follows from what they showed. None without a
    verdict or data.
    """
    question = book.plan.question()
    verdicts = book.state.verdicts
    stages = [each for each in book.plan.stages if each.name in verdicts and stage in (None, each)]
    if not stages:
        return None
    if stage is not None:
        verdict = verdicts[stage.name]
        bounds = verdict.get("bounds") or {}
        # Harm may be that of one host or of another metric.
        if metric in bounds and verdict["outcome"] != Outcome.FAIL:
            return Bound(**bounds[metric])
        found = sequence(book.trial([stage]).evidence(metric), question.harm_alpha)
    else:
        found = sequence(book.trial(stages).evidence(metric), question.alpha)
    return found if found.pairs else None


def prediction(book: Book, stage: Stage | None = None) -> Prediction | None:
    """The lab next to production, of one stage or all; None if one of them is missing or they do not compare."""
    expected = book.plan.expected
    known = lab(expected) if expected else None
    if expected is None or known is None:
        return None
    found = production(book, expected.metric, stage)
    return Prediction(known, found) if found else None


def other_start(plan: Plan) -> dict[str, list[str]]:
    """Hosts on which a setting had another value before the change than in the experiment: knob=value -> hosts."""
    found: dict[str, list[str]] = {}
    if plan.expected is None:
        return found
    for name in (name for stage in plan.stages for name in stage.hosts):
        for knob, before in plan.expected.before.items():
            now = plan.members[name].now.get(knob)
            if before is not None and now and plain_value(now) != before:
                found.setdefault(f"{knob}={now}", []).append(name)
    return found


def left_out(book: Book) -> str:
    """Why a rollout says nothing about how well the lab predicts; empty if it does."""
    if book.plan.expected is None:
        return "no experiment was named in the plan"
    if not book.plan.expected.metric:
        return "the lab's metric does not compare"
    if not book.state.verdicts:
        return "no stage has a verdict"
    return "" if prediction(book) else "no pair of blocks had data"
