"""What a sweep says in sentences: its headline, and numbers as people read them."""

from __future__ import annotations

import math
import textwrap

from headrace.base.intervals import Interval
from headrace.experiment.stats.sweep_result import Answer, Knee, Sweep

#: An interval that spans more than this factor is useless and not printed.
WIDEST = 100.0


def headline(sweep: Sweep) -> str:
    if sweep.knee is None:
        return " ".join(
            ["Nothing can be concluded: there is no valid trial of a pass.", *_about_limits(sweep)]
        )
    parts = [_about_knee(sweep, sweep.knee)]
    parts += [_about_objective(sweep, answer) for answer in sweep.answers]
    if not sweep.is_open:
        parts.append(_about_law(sweep))
    parts += _about_limits(sweep)
    if sweep.done < sweep.planned:
        parts.append(f"So far {sweep.done} of {sweep.planned} trials are done.")
    return " ".join(parts)


def _about_knee(sweep: Sweep, knee: Knee) -> str:
    rate = f"{_count(knee.ops_s.estimate)} operations/s"
    if knee.ops_s.low is not None and knee.ops_s.high is not None and is_telling(knee.ops_s):
        rate += f" ({_count(knee.ops_s.low)} to {_count(knee.ops_s.high)})"
    if sweep.is_open:
        rate += f", {knee.ops_s.estimate / knee.load:.0%} of the offered load"
    if knee.is_top:
        return f"Throughput still grows at {sweep.at(knee.load)}, {_top(sweep)}: {rate}."
    text = (
        f"Throughput grows up to {sweep.at(knee.load)}: {rate}; no higher level brings {sweep.gain:.0%} more"
    )
    if knee.low is None or knee.high is None:
        return f"{text} (too few passes for a range)."
    if knee.low == knee.high:
        return f"{text}, with {1 - sweep.alpha:.0%} confidence."
    beyond = " or beyond" if knee.may_be_top else ""
    return f"{text} ({1 - sweep.alpha:.0%} range of the knee: {knee.low:,.6g} to {knee.high:,.6g}{beyond})."


def _about_objective(sweep: Sweep, answer: Answer) -> str:
    if answer.holds is not None and answer.ops_s is not None:
        rate = "" if sweep.is_open else f", {_count(answer.ops_s.estimate)} operations/s"
        text = f"{answer.objective} holds up to {sweep.at(answer.holds)}{rate}"
    else:
        text = f"{answer.objective} is not shown to hold at any level"
    if answer.fails is not None:
        text += f", and fails at {sweep.at(answer.fails)}"
    if answer.open_levels:
        first, last = answer.open_levels[0], answer.open_levels[-1]
        ends = f"{first:,.6g} to {last:,.6g}" if last > first else f"{first:,.6g}"
        text += f"; undecided at {ends} ({answer.why})"
    elif answer.fails is None:
        text += f", {_top(sweep)}"
    return text + "."


def _top(sweep: Sweep) -> str:
    return "the highest level" if sweep.unreached is None else "the highest level that could be measured"


def _about_limits(sweep: Sweep) -> list[str]:
    """Why levels could not be measured, other than the server's throughput."""
    said = []
    if sweep.driver_saturated:
        said.append(
            f"At {sweep.at(*sweep.driver_saturated)} the driver, not the server, was the bottleneck: "
            "those trials do not measure the server."
        )
    level = sweep.unreached
    if level is not None and not level.is_driver_saturated:
        why = (
            level.missing if level.missing.startswith("failed") else f"could not be measured: {level.missing}"
        )
        said.append(f"{sweep.at(level.load)} {textwrap.shorten(why.rstrip('.'), 160, placeholder=' ...')}.")
    return said


def _about_law(sweep: Sweep) -> str:
    law = sweep.law
    if law is None:
        return sweep.law_refusal[0].upper() + sweep.law_refusal[1:] + "."
    if law.doubt:
        return f"The Universal Scalability Law does not describe these levels: {law.doubt}."
    peak = law.peak_load
    if not math.isfinite(peak.estimate):
        end = "levels off" if math.isfinite(law.peak_ops_s) else "grows without limit"
        text = f"By the Universal Scalability Law there is no peak: throughput {end}"
        if peak.low is None:
            return f"{text} (too few passes to be certain)."
        return f"{text} (certainly no peak below {round_peak(peak.low):,.6g})."
    text = f"The Universal Scalability Law puts the peak at {sweep.at(round_peak(peak.estimate))}"
    if peak.low is None or peak.high is None:
        return f"{text} (too few passes for a range)."
    if math.isinf(peak.high):
        return f"{text}, or at any load from {round_peak(peak.low):,.6g}: crosstalk may be 0."
    return f"{text} ({round_peak(peak.low):,.6g} to {round_peak(peak.high):,.6g})."


def round_peak(load: float) -> float:
    """A whole number, with one decimal only if it is small."""
    return round(load, 1) if load < 10 else float(round(load))


def is_telling(found: Interval) -> bool:
    """Whether an interval is useful: with two or three dissimilar passes it spans orders of magnitude."""
    return found.low is not None and found.high is not None and found.high < WIDEST * found.low


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
