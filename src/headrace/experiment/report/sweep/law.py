"""What limits it, by the Universal Scalability Law."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headrace.experiment.report.sweep.view import SweepView
from headrace.experiment.report.sweep.words import between, peak, share
from headrace.experiment.stats.usl import Law
from headrace.show import text
from headrace.show.parts import Cell, Column, Note, Part, Section, Sentence, Table


def section(view: SweepView) -> Section:
    """Empty for a sweep of the rate."""
    law = view.sweep.law
    return Section(
        "law",
        "Law",
        "What limits it, by the Universal Scalability Law?",
        lambda: _parts(view),
        data={"law": _json(law) if law else None, "law_refusal": view.sweep.law_refusal},
    )


def _parts(view: SweepView) -> Iterator[Part]:
    law = view.sweep.law
    if law is None:
        if view.sweep.law_refusal and not view.sweep.is_open:
            yield Note(f"No fit: {view.sweep.law_refusal}.")
        return
    yield Sentence(
        "X(N) = λN / (1 + σ(N − 1) + κN(N − 1)): a model fitted to the measurements. It has two reasons why "
        "doubling the clients does not double throughput."
    )
    yield _fit(view, law)
    columns = (
        Column(""),
        Column("estimate", "n"),
        Column(f"{view.confidence} interval", "n"),
        Column("meaning", "wrap"),
    )
    yield Table(columns, list(_rows(view, law)))
    if law.kappa.low == 0:
        yield Sentence(
            "The interval of κ includes 0: throughput may never fall, so the peak has no upper bound.",
            "aside",
        )


def _fit(view: SweepView, law: Law) -> Part:
    if law.doubt:
        return Note(
            f"The law does not describe these levels: {law.doubt}. Do not base a decision on its parameters.",
            is_attention=True,
        )
    if law.p_value is None:
        return Note("Only one pass: the fit of the law cannot be tested.")
    small = ": real, but too small to matter" if law.p_value < view.sweep.alpha else ""
    worst = round(100 * max(map(abs, law.residuals.values())), 1)
    return Sentence(
        f"The passes do not contradict it: no level deviates from the law by more than {worst}% "
        f"(test for lack of fit: p = {law.p_value:.2g}{small})."
    )


def _rows(view: SweepView, law: Law) -> Iterator[list[str | Cell]]:
    """(name, estimate, interval, meaning) of the law's parameters."""
    named = (
        ("λ", text.count(law.lambda_ops_s.estimate), between(law.lambda_ops_s, text.count),
         f"operations/s of {view.sweep.at(1)} only"),
        ("σ", share(law.sigma.estimate), text.between(law.sigma, share),
         "contention: the share of the work that is serialised"),
        ("κ", share(law.kappa.estimate), text.between(law.kappa, share),
         "crosstalk: the cost per pair of staying coherent; only this makes throughput fall"),
        ("N*", peak(law.peak_load.estimate), text.between(law.peak_load, peak),
         f"the peak: sqrt((1 − σ) / κ) {view.sweep.unit}"),
        ("X(N*)", "no limit" if law.peak_ops_s == math.inf else text.count(law.peak_ops_s), "–",
         "operations/s at the peak"),
    )  # fmt: skip
    for name, estimate, interval, meaning in named:
        yield [name, Cell(estimate, look="strong"), interval, meaning]


def _json(law: Law) -> dict[str, object]:
    shown = ("lambda_ops_s", "sigma", "kappa", "peak_load", "peak_ops_s", "p_value", "doubt")
    found: dict[str, object] = {name: getattr(law, name) for name in shown}
    high = law.peak_load.high
    return found | {"peak_is_bounded": high is not None and math.isfinite(high)}
