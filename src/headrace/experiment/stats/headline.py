"""The conclusion in plain sentences, the strongest first: what is proven of a factor, then the best treatment."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.base.counted import counted
from headrace.base.effect import Effect, NoiseFloor, Verdict
from headrace.base.intervals import Needed, span
from headrace.base.model import Treatment
from headrace.experiment.stats import claims
from headrace.experiment.stats.estimate import KINDS
from headrace.experiment.stats.result import Analysis
from headrace.experiment.stats.trials import THROUGHPUT

#: The latency reported with throughput in the sentence.
TAIL = "p99"

#: Percentiles that a sentence about times names.
TIMES = ("p50", "p90", "p95", "p99", "p99.9")

#: A gain of this much is no news if it is excluded.
MOST_EXCLUDED = 10.0

#: Effects of factors that the sentence has numbers for.
MOST_CLAIMS = 3


@dataclass(frozen=True)
class More:
    """How an experiment goes on: ``run`` is the command without its number of blocks ("": it cannot be extended),
    ``plan`` shows what a plan can detect; a block takes ``block_s``.
    """

    run: str
    show: str
    done: int
    block_s: float | None

    def blocks(self, needed: Needed) -> tuple[str, str]:
        """How long they take, and the command that measures them as a sentence."""
        ends = [(end - self.done) * self.block_s for end in needed] if self.block_s else []
        took = f" (another {duration(ends)})" if ends else ""
        return took, f" To measure them: {self.run} --blocks +{needed.most - self.done}." if self.run else ""

    @property
    def plan(self) -> str:
        """The command that shows which effects a plan detects in the noise that was measured."""
        return f" To see what a plan can detect in this noise: {self.show}." if self.show else ""


def duration(ends_s: Sequence[float]) -> str:
    """``0.5 to 1.2 h``, or minutes if it is less than one hour."""
    if ends_s and max(ends_s) < 3600:
        return " to ".join(dict.fromkeys(f"{max(round(end / 60), 1)}" for end in ends_s)) + " min"
    return (
        " to ".join(
            dict.fromkeys(f"{end / 3600:.1g}" if end < 36e3 else f"{end / 3600:.0f}" for end in ends_s)
        )
        + " h"
    )


def of_experiment(
    analysis: Analysis,
    treatments: Mapping[str, Treatment],
    baselines: Mapping[str, str],
    *,
    done: int,
    planned: int,
    failed: Mapping[str, tuple[int, int]],
    invalid: Sequence[str] = (),
    again: str = "",
    asked: Collection[str] = (),
    more: More | None = None,
    is_open_loop: bool = False,
    instead: str = "",
) -> str:
    """The headline of ``analysis``. ``baselines`` maps condition to treatment; ``done`` of ``planned`` trials;
    ``asked`` are the treatments that the experiment is about (empty: all).

    ``is_open_loop``: the load has a rate of its own, so that only times can differ where all keep up with it.
    ``instead`` is the conclusion of an experiment that is about something else than throughput and times.
    ``invalid`` are the reasons of the invalid trials, and ``again`` is the command that measures them again;
    ``more`` has those that would decide what is open.
    ``failed`` maps a treatment to (failed trials, trials): the remaining trials of a treatment that often fails
    are its good ones, so the conclusion must mention it.
    """
    names = {name: treatment.configuration for name, treatment in treatments.items()}
    waits = _waits(analysis, names, baselines, asked, more) if is_open_loop else ""
    parts = [instead] if instead else []
    if not instead:
        parts += [waits or _conclusion(analysis, names, baselines, asked, more), *_adjusted(analysis)]
    if failed:
        listed = ", ".join(f"{name} in {n} of {total}" for name, (n, total) in failed.items())
        parts.append(f"Failed: {listed} trials.")
    if invalid:
        parts.append(_invalid(invalid, done, again))
    measured = {summary.treatment for summary in analysis.summaries}
    hopeless = {name for name, (n, total) in failed.items() if n == total}
    missing = [name for name in treatments if name not in measured | hopeless]
    if done < planned:
        parts.append(f"So far {done} of {planned} trials are done.")
    elif missing and analysis.summaries:
        parts.append(f"Without a valid trial: {', '.join(missing)}.")
    return " ".join(parts)


def _invalid(reasons: Sequence[str], done: int, again: str) -> str:
    """How many trials do not count, what was most often the cause, and what to do."""
    # Equal but for their numbers.
    kinds = [re.sub(r"[\d.,]+", "", reason.split("; ")[0]) for reason in reasons]
    kind, count = Counter(kinds).most_common(1)[0]
    example = reasons[kinds.index(kind)].split("; ")[0]
    many = "all" if count == len(reasons) > 1 else f"{count} of them"
    cause = f", {many} as in: {example}" if len(set(reasons)) > 1 else f": {example}"
    trials = "trial" if done == 1 else "trials"
    what = f" To measure them again: {again}" if again else ""
    return f"Not counted: {len(reasons)} of {done} {trials}{cause}.{what}"


def of_left_out(effects: Iterable[Effect], names: Mapping[str, str], equivalence: float) -> str:
    """What each bundle contributes to the others.

    ``effects`` are of all but one relative to all, ``names`` their bundles.
    """
    wording = {
        Verdict.WORSE: "ALL needs {}",
        Verdict.BETTER: "ALL is faster without {}",
        Verdict.EQUIVALENT: f"{{}} can go (equivalent within {equivalence:.0%})",
        Verdict.NOT_ENOUGH_DATA: "not decided: {}",
    }
    own = [e for e in effects if e.response == THROUGHPUT and e.treatment in names]
    parts = []
    for verdict, words in wording.items():
        found = [e for e in own if e.verdict is verdict]
        listed = ", ".join(
            f"{names[e.treatment]} ({e.ratio.estimate:.2f}x without it{e.condition and f' at {e.condition}'})"
            for e in sorted(found, key=lambda e: e.ratio.estimate)
        )
        parts += [words.format(listed)] if found else []
    return f"{'; '.join(parts)}." if parts else ""


def of_comparison(a: str, b: str, effects: Iterable[Effect], equivalence: float) -> str:
    """The headline of two experiments; ``effects`` are B / A."""
    throughput = [e for e in effects if e.response == THROUGHPUT]
    if not throughput:
        return f"{a} and {b} have no treatment with valid trials in both."
    wording = {
        Verdict.BETTER: "faster in {}",
        Verdict.WORSE: "slower in {}",
        Verdict.EQUIVALENT: f"within {equivalence:.0%} in {{}}",
        Verdict.NOT_ENOUGH_DATA: "indistinguishable from noise in {}",
    }
    texts = []
    for verdict, text in wording.items():
        found = [f"{e.treatment} ({_times(e)})" for e in throughput if e.verdict is verdict]
        if found:
            texts.append(text.format(", ".join(found)))
    return f"Unpaired, and run at different times: {b} relative to {a} is {'; '.join(texts)}."


def _adjusted(analysis: Analysis) -> Iterable[str]:
    """What others took from the machine, and how the ratios account for it."""
    for kind in KINDS:
        found = [a for a in analysis.adjustments if a.response == THROUGHPUT and a.kind == kind]
        if trials := sum(a.trials for a in found):
            most = max(a.most_lost for a in found if a.trials)
            took = f"up to {most:.0%}, in {counted(trials, 'trial')}"
            yield f"Ratios account for {kind} that others took: {took}."
        for each in (a.uneven for a in found if a.uneven):
            yield (
                f"Others took {each.baseline_lost:.0%} of the {kind} from {each.baseline}, but {each.lost:.0%} "
                f"from {each.treatment}. The configuration may be the reason (a low-priority program uses what is "
                "left idle), and then its ratio is wrong: repeat this without other load."
            )
        if left := sum(a.left_out for a in found):
            yield (
                f"Not compared: {left} trials in which others took {kind}, because it slows the treatments "
                "differently."
            )


def _conclusion(
    analysis: Analysis,
    names: Mapping[str, str],
    baselines: Mapping[str, str],
    asked: Collection[str],
    more: More | None,
) -> str:
    effects = [e for e in analysis.effects if e.response == THROUGHPUT]
    if not analysis.summaries:
        return "Nothing can be concluded: there is no valid trial."
    factors = _factors(analysis)
    if not effects:
        return f"{factors}Nothing can be compared: no block has valid trials of both a treatment and its baseline."
    noise = _noise([n for n in analysis.noise if n.response == THROUGHPUT])
    best = {condition: best_proven(effects, condition, asked) for condition in baselines}
    if not any(best.values()):
        said, command = _nothing_better(analysis, effects, names, more)
        # What no plan can tell, more blocks cannot.
        noise = noise.replace(": add blocks or use", ": use") if "no plan of this size" in said else noise
        return f"{factors}{said}{noise}{command}"
    level = f"{1 - analysis.alpha:.0%}"
    if len(best) == 1:
        (effect,) = (e for e in best.values() if e is not None)
        return (
            f"{factors}{'Best: ' if factors else ''}{names[effect.treatment]} has {_times(effect)} the throughput "
            f"of {names[effect.baseline]} ({level} interval {_between(effect)}){_tail(analysis, effect)}{noise}"
        )
    texts = [
        f"no treatment proven faster at {condition}"
        if effect is None
        else f"{names[effect.treatment]} at {condition}, {_times(effect)} that of {names[effect.baseline]} "
        f"({_between(effect)})"
        for condition, effect in best.items()
    ]
    return f"{factors}Most throughput, with {level} intervals: {'; '.join(texts)}{noise}"


def _waits(
    analysis: Analysis,
    names: Mapping[str, str],
    baselines: Mapping[str, str],
    asked: Collection[str],
    more: More | None,
) -> str:
    """Of a load with a rate of its own that all keep up with: who waits less. Empty if some do not keep up, or if
    no time is known."""
    rates = [e for e in analysis.effects if e.response == THROUGHPUT]
    times = [e for e in analysis.effects if e.response in TIMES]
    if not rates or not times or any(e.verdict is not Verdict.EQUIVALENT for e in rates):
        return ""
    said = [
        f"{f'at {condition}, ' if condition else ''}{_waits_less(own, names, asked, more)}"
        for condition in baselines
        if (own := [e for e in times if e.condition == condition])
    ]
    level = f"{1 - analysis.alpha:.0%}"
    return (
        f"{'; '.join(said)}. Intervals hold at {level} for each percentile. All keep up with the load's own rate, "
        "so throughput tells nothing."
    )


def _waits_less(
    times: Sequence[Effect], names: Mapping[str, str], asked: Collection[str], more: More | None
) -> str:
    """Without a full stop. Of the treatment with the most proven percentiles; the slowest calls first."""
    proven = [e for e in times if e.verdict is Verdict.BETTER]
    baseline = names[times[0].baseline]
    if not proven:
        tails = [e for e in times if e.response == TAIL] or times
        counts = Counter(e.verdict for e in tails)
        listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        text, command = _outlook([e for e in tails if e.verdict is Verdict.NOT_ENOUGH_DATA], names, more)
        said = (
            f"No treatment is proven to answer sooner than {baseline} ({tails[0].response}: {listed}{text})"
        )
        return f"{said}.{command}".rstrip(".")

    def merit(treatment: str) -> tuple[bool, int, float]:
        own = [e for e in proven if e.treatment == treatment]
        return treatment in asked, len(own), -min(e.ratio.estimate for e in own)

    best = max(dict.fromkeys(e.treatment for e in proven), key=merit)
    own = {e.response: e for e in times if e.treatment == best}
    better = [f"{name} {_times(e)} ({_between(e)})" for name, e in own.items() if e.verdict is Verdict.BETTER]
    worse = [f"{name} {_times(e)}" for name, e in own.items() if e.verdict is Verdict.WORSE]
    open_ = [name for name, e in own.items() if e.verdict is Verdict.NOT_ENOUGH_DATA]
    text = f"{names[best]} answers sooner than {baseline}: {', '.join(better[::-1])}"
    text += f"; but later: {', '.join(worse)}" if worse else ""
    return text + (f"; not enough data for {', '.join(open_)}" if open_ else "")


def best_proven(effects: Iterable[Effect], condition: str, asked: Collection[str] = ()) -> Effect | None:
    """The proven treatment with the largest gain in throughput; of those asked about, if one of them is proven."""
    better = [e for e in effects if e.condition == condition and e.verdict is Verdict.BETTER]
    return max(better, key=lambda e: (e.treatment in asked, e.ratio.estimate), default=None)


def _nothing_better(
    analysis: Analysis, effects: Sequence[Effect], names: Mapping[str, str], more: More | None
) -> tuple[str, str]:
    """Without a full stop, and the command for what is open as a sentence."""
    counts = {
        f"equivalent within {analysis.equivalence:.0%}": Verdict.EQUIVALENT,
        "worse": Verdict.WORSE,
        "undecided": Verdict.NOT_ENOUGH_DATA,
    }
    found = {text: sum(e.verdict is verdict for e in effects) for text, verdict in counts.items()}
    baselines = sorted({names[e.baseline] for e in effects})
    text = f"No treatment is proven faster than {' or '.join(baselines)}: "
    text += ", ".join(f"{n} {kind}" for kind, n in found.items() if n)
    undecided = [e for e in effects if e.verdict is Verdict.NOT_ENOUGH_DATA]
    if undecided and all(e.ratio.low is None for e in undecided):
        if max(e.blocks for e in undecided) < 2:
            command = f" To measure two more: {more.run} --blocks +2." if more and more.run else ""
            return f"{text}, because an interval needs at least 2 complete blocks", command
        return f"{text}, because too few trials count to know how much they vary", ""
    said, command = _outlook(undecided, names, more)
    return text + said, command


def _outlook(undecided: Sequence[Effect], names: Mapping[str, str], more: More | None) -> tuple[str, str]:
    """What more blocks would decide, or what is excluded already, and the command for either."""
    if not undecided:
        return "", ""
    settled = [(e, e.needed) for e in undecided if e.needed]
    if settled:
        needed = Needed(min(n.least for _, n in settled), max(n.most for _, n in settled))
        which = (
            "it"
            if len(undecided) == 1
            else " and ".join(names[e.treatment] for e, _ in settled[:MOST_CLAIMS])
        )
        took, command = more.blocks(needed) if more else ("", "")
        return f"; about {span(needed)} blocks in total would settle {which}{took}", command
    command = more.plan if more else ""
    highs = [e.ratio.high for e in undecided if e.ratio.low and e.ratio.high is not None]
    if len(highs) < len(undecided) or max(highs) > MOST_EXCLUDED:
        return "; no plan of this size will tell", command
    return f"; gains above {max(highs):.2f}x are excluded, and no plan of this size will tell more", command


def _factors(analysis: Analysis) -> str:
    """What is proven of factors, most useful first, as sentences with a space behind; "" if nothing is."""
    studies = [study for study in analysis.studies if study.response == THROUGHPUT]
    found = [(study.condition, claim) for study in studies for claim in study.claims]
    # What makes it faster comes first, then the larger effect.
    found.sort(key=lambda each: (each[1].best.estimate < 1, -abs(math.log(each[1].best.estimate))))
    said = [claims.words(claim, condition) for condition, claim in found[:MOST_CLAIMS]]
    if more := len(found) - MOST_CLAIMS:
        said += [f"{more} more effects of factors are proven."] if more > 0 else []
    named = {claim.factor for _, claim in found}
    others = Counter(
        term.name
        for study in studies
        for term in study.effects.terms
        # Alpha is for all conditions together.
        if len(term.term) == 1 and term.p_holm is not None and term.p_holm < study.alpha / len(studies)
        if term.name not in named
    )
    if others:
        where = f" (in {{}} of {len(studies)} conditions)" if len(studies) > 1 else ""
        listed = " and ".join(f"{name}{where.format(count)}" for name, count in others.most_common())
        verb = "makes" if len(others) == 1 else "make"
        said.append(f"Over all treatments, {listed} {verb} a proven difference.")
    return "".join(f"{sentence} " for sentence in said)


def _tail(analysis: Analysis, best: Effect) -> str:
    for effect in analysis.effects:
        if (effect.response, effect.treatment) == (TAIL, best.treatment):
            change = abs(effect.ratio.estimate - 1)
            return {
                Verdict.BETTER: f" with {TAIL} {change:.0%} lower",
                Verdict.WORSE: f" but {TAIL} {change:.0%} higher",
                Verdict.EQUIVALENT: f" with {TAIL} the same within {analysis.equivalence:.0%}",
                Verdict.NOT_ENOUGH_DATA: f"; its {TAIL} change is inconclusive",
            }[effect.verdict]
    return ""


def _noise(floors: Sequence[NoiseFloor]) -> str:
    known = [n.floor for n in floors if n.floor is not None]
    text = "."
    if known and max(known) < 1:
        text = f"; two runs of the baseline differ by up to {max(known):.1%} here."
    elif known:
        text = "; repeated baseline runs vary too much: add blocks or use a quieter machine."
    odd = [
        n
        for n in floors
        if n.ratio.low is not None and n.ratio.high is not None and not n.ratio.low <= 1 <= n.ratio.high
    ]
    if odd:
        where = ", ".join(n.condition for n in odd if n.condition)
        text += f" Caution: the two baseline runs of a block differ{' at ' + where if where else ''}."
    return text


def _times(effect: Effect) -> str:
    return f"{effect.ratio.estimate:.2f}x"


def _between(effect: Effect) -> str:
    return f"{effect.ratio.low:.2f} to {effect.ratio.high:.2f}"
