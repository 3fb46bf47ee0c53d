"""The page of `headrace size demand`: what one call of each query class costs.

``--json``: format, hosts[] (host, groups[] with classes, shares and calls per second; fits {resource:
costs[], one for each group, background, explained, steps}; locks[], seconds per call, one for each group, or
null; steady[], notes[], refusal), texts {class: text}, left_out[]
(files without samples).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.base.intervals import Interval
from headrace.capacity.demand import Costs, Fit
from headrace.capacity.history import History
from headrace.capacity.model import Resource
from headrace.capacity.report.words import cost, name, notes_of
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Page, Part, Section, Sentences, Table, method

#: Less than this explained, and the costs say little.
EXPLAINS = 0.5


def page_of(found: Sequence[Costs], histories: Sequence[History], left_out: Sequence[str] = ()) -> Page:
    texts = {label: words for history in histories for label, words in history.texts.items()}
    notes = [*left_out, *(f"{each.host}: {note}" for each in found for note in _notes(each, texts))]
    notes += notes_of([(history.host, history.notes) for history in histories])
    return Page(
        eyebrow="headrace size",
        title="What a call costs",
        verdicts=[_verdict(each, texts) for each in found[:3]],
        lead="Costs of one call by query class, from how the use of resources moved with the calls.",
        cautions=notes[:20],
        sections=[
            Section(
                "cost", "Cost of a call", "What does one call cost?", list(_tables(found, texts)),
                "Estimates with 95% intervals. A cost whose interval reaches 0 may be none. Lock time is the "
                "server's own count, so its interval is only how much it varied.",
                brief=[*_tables(found, texts, 3), *([Sentences(notes[:12])] if notes else [])],
            ),
            _method(),
        ],
        footer="headrace size demand --json prints the numbers",
        data={
            "format": 1,
            "headline": " ".join(_verdict(each, texts) for each in found),
            "hosts": list(found),
            "texts": texts,
            "left_out": list(left_out),
        },
    )  # fmt: skip


def _shown(label: str, texts: Mapping[str, str]) -> str:
    return text.short(texts.get(label) or label, 60)


def _verdict(found: Costs, texts: Mapping[str, str]) -> str:
    if found.refusal:
        return f"{found.host}: no cost can be stated: {found.refusal}."
    assert found.fits is not None
    fit = found.fits.get(Resource.CPU) or next(iter(found.fits.values()))
    shares = [each.estimate * group.calls for each, group in zip(fit.costs, found.groups, strict=True)]
    total = sum(shares) + fit.background.estimate
    at = max(range(len(shares)), key=shares.__getitem__)
    if total <= 0:
        return f"{found.host}: no class uses a measurable part of {name(fit.resource)}."
    shown = " + ".join(_shown(each, texts) for each in found.groups[at].classes)
    return (
        f"{found.host}: {shown} uses {shares[at] / total:.0%} of {name(fit.resource)}, "
        f"{cost(fit.resource, fit.costs[at].estimate)} "
        f"a call; {fit.background.estimate / total:.0%} is used without any call."
    )


def _notes(found: Costs, texts: Mapping[str, str]) -> Iterator[str]:
    yield from found.notes
    if found.steady:
        shown = ", ".join(_shown(each, texts) for each in found.steady[:6])
        yield f"{shown}: always at the same rate, so their cost counts as background"
    for fit in (found.fits or {}).values():
        if fit.explained < EXPLAINS and fit.resource == Resource.CPU:
            yield f"calls explain only {fit.explained:.0%} of how {name(fit.resource)} moved"


def _tables(found: Sequence[Costs], texts: Mapping[str, str], most: int = 20) -> Iterator[Part]:
    for each in [costs for costs in found if costs.fits][:most]:
        fits = list((each.fits or {}).values())
        has_locks = any(each.locks)
        rows: list[Cells] = [
            [
                " + ".join(_shown(label, texts) for label in group.classes),
                text.count(group.calls),
                *_cells(fits, number),
                *([_lock(each.locks[number])] if has_locks else []),
            ]
            for number, group in enumerate(each.groups)
        ]
        rest = [""] if has_locks else []
        rows.append(["background, per second", "", *_cells(fits, None), *rest])
        rows.append(["explained", "", *_explained(fits), *rest])
        columns = [Column("class", "wrap"), Column("calls/s", "n", 2), Column(name(fits[0].resource), "n")]
        columns += [Column("95%", "n", 1)]
        columns += [Column(name(fit.resource), "n", 3 + i) for i, fit in enumerate(fits[1:])]
        yield Table([*columns, *([Column("lock time", "n", 3)] if has_locks else [])], rows, each.host)


def _lock(found: Interval | None) -> str | Cell:
    if found is None:
        return "–"
    ends = f"{cost('cpu', found.low)} – {cost('cpu', found.high)}"
    return Cell(cost("cpu", found.estimate), note=ends)


def _cells(fits: Sequence[Fit], number: int | None) -> Iterator[str | Cell]:
    """The first resource has its interval in its own column, which a terminal shows, too."""
    for place, fit in enumerate(fits):
        found = fit.background if number is None else fit.costs[number]
        ends = f"{cost(fit.resource, found.low)} – {cost(fit.resource, found.high)}"
        if place:
            yield Cell(cost(fit.resource, found.estimate), note=ends)
        else:
            yield cost(fit.resource, found.estimate)
            yield ends


def _explained(fits: Sequence[Fit]) -> Iterator[str]:
    for place, fit in enumerate(fits):
        yield f"{fit.explained:.0%}"
        if not place:
            yield ""


def _method() -> Section:
    return Section(
        "method", "Method", "How this was computed",
        [
            method(
                [
                    ("Regression", "In each step the use of a resource is a background plus calls times "
                                   "cost, no cost below 0; "
                     "steps are weighted by the inverse of their expected use."),
                    ("Intervals", "A block bootstrap over time: neighbouring steps are alike, so whole "
                                  "stretches are drawn."),
                    ("Together", "Classes whose calls always rise and fall together are one group. Playing "
                                 "one of them alone tells "
                     "them apart."),
                    ("Assumed", "A call costs the same at any load. Near the knee it costs more: caches, "
                                "spinning, retries."),
                ]
            )
        ],
    )  # fmt: skip
