"""A rollout's predicted effect next to production's, and how often the two agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.base.intervals import TOO_WIDE, USELESS
from headrace.rollout import expected
from headrace.rollout.book import Book
from headrace.rollout.judge import Bound, more, shown
from headrace.rollout.plan import Expected, Plan, Said, Stage
from headrace.rollout.prediction import Agreement, Prediction, Record, record
from headrace.show.parts import Cell, Cells, Gap, Part, Sentence, Table

LOOKS = {
    Agreement.CONTAINED: "better",
    Agreement.OVERLAP: "unsure",
    Agreement.BETTER: "worse",
    Agreement.WORSE: "worse",
    Agreement.UNKNOWN: "unsure",
}
#: From so many rollouts on, their interval may be narrow enough to be of use.
FEW = 5


def plan_sentences(plan: Plan) -> list[str]:
    """What the lab said, which number of it production is compared with, and what was different there."""
    known = plan.expected
    if known is None:
        return []
    found = [f"Lab: {source(known)}: {', '.join(_said(name, each) for name, each in _main(known).items())}."]
    cost = expected.lab(known)
    if cost is None:
        found.append(f"It is not compared with production: {known.why}.")
    else:
        found.append(f"Compared with production as {known.metric}: {shown(cost, known.metric)}{_how(known)}.")
    unknown = [knob for knob, before in known.before.items() if before is None]
    if unknown:
        found.append(f"The lab does not record the value before: {', '.join(unknown)}.")
    found += [
        f"The lab started from {known.before[start.partition('=')[0]]}, but {start} on {', '.join(hosts)}."
        for start, hosts in expected.other_start(plan).items()
    ]
    return found


def source(known: Expected) -> str:
    """``io of 3 May 2026 (oltp)``."""
    return f"{known.experiment} of {known.day} ({known.workload})"


def _main(known: Expected) -> Mapping[str, Said]:
    """Throughput, and the percentile that is usually asked for."""
    return {name: known.responses[name] for name in ("throughput", "p99") if name in known.responses}


def _said(name: str, said: Said) -> str:
    if said.low is None or said.high is None:
        span = ""
    elif said.high > USELESS * said.low:
        span = f" (interval {TOO_WIDE})"
    else:
        span = f" ({more(said.low)} to {more(said.high)})"
    return f"{name} {more(said.ratio)}{span}, {said.verdict}"


def _how(known: Expected) -> str:
    return ", from the throughput of a closed loop" if known.metric != "throughput" else ""


def pair(known: Expected, found: Prediction) -> str:
    """``lab -15.3% (-19.4% to -10.7%), production -13.0% (-16.7% to -8.3%)``."""
    return f"lab {shown(found.lab, known.metric)}, production {shown(found.production, known.metric)}"


def status_parts(book: Book) -> Iterator[Part]:
    """Each stage with a verdict, and all of them together."""
    known = book.plan.expected
    if known is None:
        return
    rows: list[Cells] = [
        [Cell(row.stage, style="bold"), row.lab, row.production, Cell(row.agreement, row.look)]
        for row in stages(book)
    ]
    yield Gap()
    for sentence in plan_sentences(book.plan):
        yield Sentence(sentence)
    if rows:
        yield Table(
            (("stage", ""), (f"lab: {known.metric}", ""), ("production", ""), ("", "wrap")),
            rows,
        )


@dataclass(frozen=True)
class Row:
    """One stage, or all of them."""

    stage: str
    lab: str
    production: str
    agreement: str
    look: str


def stages(book: Book) -> list[Row]:
    """Of the stages with a verdict that compare; ``all`` if there are several."""
    known = book.plan.expected
    found = [(stage.name, stage) for stage in book.plan.stages if stage.name in book.state.verdicts]
    asked: list[tuple[str, Stage | None]] = [*found, *([("all", None)] if len(found) > 1 else [])]
    rows = []
    for name, stage in asked:
        each = expected.prediction(book, stage)
        if known is not None and each is not None:
            lab, production = shown(each.lab, known.metric), shown(each.production, known.metric)
            rows.append(Row(name, lab, production, str(each.agreement), LOOKS[each.agreement]))
    return rows


def sentence(book: Book) -> str:
    """The rollout in one line; empty if the plan names no experiment."""
    known = book.plan.expected
    if known is None:
        return ""
    found = expected.prediction(book)
    return f"{known.metric}: {pair(known, found)}" if found else expected.left_out(book)


def to_json(book: Book) -> dict[str, Any] | None:
    """What the experiment said, and each stage with a verdict next to it; None if the plan names none."""
    known = book.plan.expected
    if known is None:
        return None
    whole = expected.prediction(book)
    return {
        **known.to_json(),
        "other_start": expected.other_start(book.plan),
        "stages": {
            stage.name: _prediction_json(known.metric, found)
            for stage in book.plan.stages
            if stage.name in book.state.verdicts and (found := expected.prediction(book, stage))
        },
        "all": _prediction_json(known.metric, whole) if whole else None,
        "not_compared": expected.left_out(book),
    }


def _prediction_json(metric: str, found: Prediction) -> dict[str, Any]:
    return {
        "metric": metric,
        "lab": _bound_json(found.lab, metric),
        "production": _bound_json(found.production, metric),
        "log_difference": found.difference,
        "agreement": found.agreement.name.lower(),
    }


def _bound_json(bound: Bound, metric: str) -> dict[str, float | None]:
    estimate, low, high = bound.ratio(metric)
    has_interval = bound.high < float("inf") and bound.low > -float("inf")
    return {
        "ratio": estimate,
        "low": low if has_interval else None,
        "high": high if has_interval else None,
    }


# -- over all rollouts -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class History:
    """``predictions``: by the rollout's id. ``left_out``: id -> why it says nothing."""

    books: Mapping[str, Book]
    predictions: Mapping[str, Prediction]
    left_out: Mapping[str, str]
    record: Record


def history(books: Sequence[Book]) -> History:
    predictions = {book.plan.id: found for book in books if (found := expected.prediction(book))}
    left = {book.plan.id: expected.left_out(book) for book in books if book.plan.id not in predictions}
    return History({book.plan.id: book for book in books}, predictions, left, record(predictions))


def history_sentences(found: History) -> list[str]:
    """How well the lab predicted production, and how strong that evidence is."""
    left = Counter(found.left_out.values())
    others = f"Not counted: {'; '.join(f'{count} because {why}' for why, count in left.items())}."
    told = [others] if left else []
    record = found.record
    if record.ratio is None:
        return ["No rollout has both a verdict and an experiment that compares with it.", *told]
    counts = record.agreements
    many = f"{record.rollouts} rollout{'s' if record.rollouts > 1 else ''}"
    lines = [
        f"{many} with both: production's interval contains the lab's estimate in "
        f"{counts[Agreement.CONTAINED]}, overlaps its interval in {record.overlapping}, of {record.compared} "
        "with both intervals.",
        f"Production was better than the lab said in {counts[Agreement.BETTER]}, worse in "
        f"{counts[Agreement.WORSE]} (no overlap).",
        _mean(record),
    ]
    sources = {book.plan.expected.folder for book in _counted(found) if book.plan.expected}
    if len(sources) < record.rollouts:
        one = len(sources) == 1
        lines.append(
            f"They are based on {len(sources)} experiment{'' if one else 's'}: rollouts of the same one are "
            "not independent, and the interval is narrower than it should be."
        )
    return [*lines, *told]


def _counted(found: History) -> list[Book]:
    return [found.books[identity] for identity in found.predictions]


def _mean(record: Record) -> str:
    ratio = record.ratio
    assert ratio is not None
    said = f"Cost in production relative to the lab, geometric mean: {ratio.estimate - 1:+.1%}"
    if ratio.low is None or ratio.high is None:
        return f"{said}. One rollout is too few for an interval: how much others would differ is unknown."
    words = (
        f"{said} ({ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}, {record.rollouts} rollouts are the units)."
    )
    return f"{words} With so few rollouts this is weak evidence." if record.rollouts < FEW else words


def history_parts(found: History) -> Iterator[Part]:
    """A row per rollout that is counted, the latest last."""
    rows: list[Cells] = []
    for identity, each in found.predictions.items():
        known = found.books[identity].plan.expected
        assert known is not None
        rows.append(
            [
                Cell(identity, style="bold"),
                known.experiment,
                known.metric,
                shown(each.lab, known.metric),
                shown(each.production, known.metric),
                Cell(str(each.agreement), LOOKS[each.agreement]),
            ]
        )
    if rows:
        columns = (
            ("rollout", ""),
            ("experiment", "wrap"),
            ("metric", ""),
            ("lab", ""),
            ("production", ""),
            ("", "wrap"),
        )
        yield Table(columns, rows)
        yield Gap()
    for line in history_sentences(found):
        yield Sentence(line)


def history_json(found: History) -> dict[str, Any]:
    record = found.record
    rollouts = {}
    for identity, each in found.predictions.items():
        known = found.books[identity].plan.expected
        assert known is not None
        rollouts[identity] = {"experiment": known.experiment, **_prediction_json(known.metric, each)}
    return {
        "rollouts": rollouts,
        "left_out": dict(found.left_out),
        "counted": record.rollouts,
        "compared": record.compared,
        "contains": record.agreements[Agreement.CONTAINED],
        "overlaps": record.overlapping,
        "better": record.agreements[Agreement.BETTER],
        "worse": record.agreements[Agreement.WORSE],
        "cost_relative_to_lab": asdict(record.ratio) if record.ratio else None,
        "sentences": history_sentences(found),
    }
