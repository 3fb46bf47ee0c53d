"""From a finding to a proof: an experiment of the remedy against the current settings, on the plan's own workload.

    prove_finding   one finding: as-is against its remedies, interleaved, with a verdict
    prove_all       finding after finding from the cheapest up; what is proven is kept, and the next is tried on
                    top of it; at the end the start against the end, as the claim that can be defended

Every step is an experiment folder of its own, written by the same runner: it can be read, resumed and doubted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from headrace.base.counted import counted
from headrace.base.effect import Effect, Verdict
from headrace.base.errors import HeadraceError, NothingMeasured, PlanError, Refused
from headrace.base.intervals import inverse
from headrace.base.model import ServerLogin, TrialState, Value
from headrace.base.whole import make_folder, read_plain, replace_whole
from headrace.experiment import kinds, workloads
from headrace.experiment import plan as plans
from headrace.experiment import run as running
from headrace.experiment.plan import AS_IS
from headrace.experiment.runner import Listener, Note
from headrace.experiment.stats import guards as guarding
from headrace.experiment.stats.guards import Guard, Holds
from headrace.experiment.stats.study import analyse_experiment, failures
from headrace.experiment.stats.trials import RESPONSES, THROUGHPUT
from headrace.experiment.store import ExperimentFolder
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.snapshot import of_trial
from headrace.hunt.rules import Evidence, Finding, Judgement, all_rules, judge
from headrace.hunt.rules.rule import Confidence, Remedy, Severity
from headrace.knobs import catalogue as knobs
from headrace.knobs.catalogue import Cost
from headrace.knobs.change import changes
from headrace.knobs.losses import loss_of

REMEDY = "REMEDY"
#: A survey's trial is at least this long: rates of shorter ones are those of a few flushes.
SURVEY_S = 10.0
#: How often one rule may come back with another value, before it is left.
MOST_TRIES = 2
#: Of a remedy that lets people see more.
NOTHING_TO_SHOW = "it promises no effect that an experiment could show"
#: Of a remedy that keeps data or the server safe: throughput can neither prove nor refute it.
KEEPS_SAFE = "it protects the data or the server, which throughput cannot show: use headrace apply"
#: A fix may improve one and ruin the other, so both are reported.
OTHER = {"throughput": "p99"}
#: The share of a budget that one undecided step may take.
STEP_SHARE = 0.25
#: Alternatives of one finding that are tried in one experiment.
MOST_REMEDIES = 3

Settings = dict[str, Value]


@dataclass(frozen=True)
class Step:
    """One finding, put to the test. ``settings`` are those of the remedy that did best; ``effect`` is None where
    nothing could be compared, and ``reason`` says why, or that it also failed. ``other`` is its effect on the
    other response, ``guards`` what it cost beside both.
    """

    finding: str
    title: str
    settings: Mapping[str, Value]
    effect: Effect | None
    kept: bool
    reason: str
    folder: Path
    other: Effect | None = None
    guards: tuple[Guard, ...] = ()

    @property
    def verdict(self) -> str:
        return str(self.effect.verdict) if self.effect else "not measured"


@dataclass(frozen=True)
class Proof:
    """``steps`` in the order they were tried; ``kept`` all settings that were proven; ``final`` the end against
    the start, None where nothing was kept; ``other`` the same of the other response; ``skipped`` are findings
    that no experiment can test, and why; ``failed`` says how many trials of the end failed, if any;
    ``cautions`` what the proof cannot show.
    """

    steps: tuple[Step, ...]
    kept: Mapping[str, Value]
    final: Effect | None
    final_folder: Path | None
    skipped: tuple[tuple[str, str], ...]
    other: Effect | None = None
    failed: str = ""
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compared:
    """Effects by treatment: on the response that decides, and on the other one; ``guards`` by treatment."""

    folder: ExperimentFolder
    effects: Mapping[str, Effect]
    other: Mapping[str, Effect]
    guards: Mapping[str, tuple[Guard, ...]]


@dataclass(frozen=True)
class Bench:
    """Where proofs are made: a plan's workload and machine.

    ``response`` decides: ``throughput`` or a percentile. With ``minutes`` a comparison of throughput goes on until
    it is decided, for so long at most; ``blocks`` is then its first look.
    """

    plan: plans.Plan
    place: str
    folder: Path
    listen: Listener
    blocks: int = 4
    minutes: float | None = None
    response: str = "throughput"
    allow_weaker: tuple[str, ...] = ()
    run: Callable[[plans.PlanFile, Path | None, Listener], Awaitable[ExperimentFolder]] = running.run
    #: Gets every experiment when it has ended: a stop later must not cost its report.
    report: Callable[[ExperimentFolder], None] = lambda folder: None

    @classmethod
    def open(
        cls, plan_path: Path, folder: Path | None, listen: Listener, *, suffix: str = "proof", **options: Any
    ) -> Bench:
        """The bench of a plan file; without a folder, ``experiments/<plan's name>-<suffix>``. Raises PlanError."""
        plan = plans.load(plan_path).plan
        response = options.get("response", "throughput")
        if response not in RESPONSES:
            raise PlanError(f"response {response!r}: must be {', '.join(RESPONSES)}", place=str(plan_path))
        where = folder or Path("experiments") / f"{plan.name}-{suffix}"
        return cls(plan, str(plan_path), where, listen, **options)

    @property
    def base(self) -> Settings:
        return dict(self.plan.base)

    async def survey(self, name: str, settings: Mapping[str, Value]) -> tuple[Judgement, Evidence]:
        """Runs the workload on the base with these settings, and asks every rule about it."""
        folder = await self._experiment(name, {AS_IS: {}}, settings, blocks=1, least_s=SURVEY_S)
        return examine(folder, AS_IS)

    async def compare(
        self,
        name: str,
        treatments: Mapping[str, Mapping[str, Value]],
        settings: Mapping[str, Value],
        *,
        is_numbered: bool = False,
    ) -> Compared:
        """As-is (the base with ``settings``) against each treatment on top of it.

        ``is_numbered``: where another comparison has the name, this one is ``NAME-2``, and that one stays.
        """
        folder = await self._experiment(
            name, {AS_IS: {}, **treatments}, settings, blocks=self.blocks, is_numbered=is_numbered
        )
        effects = analyse_experiment(folder).effects
        responses = (self.response, OTHER.get(self.response, "throughput"))
        own, other = ({e.treatment: e for e in effects if e.response == name} for name in responses)
        return Compared(folder, own, other, _guards(folder, list(treatments)))

    async def _experiment(
        self,
        name: str,
        treatments: Mapping[str, Mapping[str, Value]],
        settings: Mapping[str, Value],
        *,
        blocks: int,
        least_s: float = 0.0,
        is_numbered: bool = False,
    ) -> ExperimentFolder:
        make_folder(self.folder)
        decided: dict[str, Any] = {}
        if self.minutes is not None and blocks > 1 and self.response == "throughput":
            decided = {"until_decided": True, "minutes": self.minutes}
        text = plan_text(
            self.plan,
            name,
            treatments,
            settings,
            blocks,
            allow_weaker=self.allow_weaker,
            decided=decided,
            least_s=least_s,
        )
        if is_numbered:
            name = self._free(name, text)
        path = self.folder / f"{name}.toml"
        replace_whole(path, text)
        ended = await self.run(plans.load(path), self.folder / name, self.listen)
        self.report(ended)
        return kinds.as_decided(ended)

    def _free(self, name: str, text: str) -> str:
        """The name, with a number where another plan than this has it."""
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        plans_there = ((own, self.folder / own / "plan.toml") for own in names)
        return next(own for own, there in plans_there if _text_of(there) in ("", text))


def plan_text(
    plan: plans.Plan,
    name: str,
    treatments: Mapping[str, Mapping[str, Value]],
    settings: Mapping[str, Value],
    blocks: int,
    *,
    allow_weaker: Iterable[str] = (),
    decided: Mapping[str, Any] | None = None,
    least_s: float = 0.0,
) -> str:
    """A plan file for treatments, the first of them the baseline, on the workload and the machine of ``plan``."""
    workload = plan.workload.model_dump(mode="json")
    workload["seconds"] = max(workload["seconds"], least_s)
    named = {treatment: own for treatment, own in treatments.items() if own}
    content = {
        "name": f"{plan.name}-{name}",
        "target": plan.target.model_dump(mode="json", exclude_none=True),
        **({"machine": plan.machine.model_dump(mode="json", exclude_none=True)} if plan.machine else {}),
        "design": {
            "kind": "cumulative",
            "baseline": next(iter(treatments)),
            "blocks": blocks,
            **(decided or {}),
            "seed": plan.design.seed,
            "alpha": plan.design.alpha,
            "equivalence": plan.design.equivalence,
            "allow_weaker_durability": [*plan.design.allow_weaker_durability, *allow_weaker],
            "rungs": {t: [bundle_name(t)] if own else [] for t, own in treatments.items()},
        },
        "workload": workload,
        "volume": plan.volume.model_dump(mode="json"),
        "server": plan.server.model_dump(mode="json", exclude_none=True),
        "base": {**plan.base, **settings},
        "bundles": {bundle_name(t): dict(own) for t, own in named.items()},
    }
    return tomli_w.dumps(content)


def live_options(finding: Finding, facts: HostFacts, allow_weaker: Iterable[str] = ()) -> list[Settings]:
    """The finding's remedies that can be made and undone while everything runs.

    Raises Refused with the reasons where there is none.
    """
    options: list[Settings] = []
    reasons = ["it names no setting"] if not finding.hit.remedies else []
    for remedy in finding.hit.remedies:
        settings: Settings = dict(remedy.settings)
        try:
            if not settings:
                raise Refused("needs manual steps: " + "; ".join(remedy.steps))
            if not finding.promises_speed(remedy):
                raise Refused(_no_promise(finding))
            if remedy.weakens and not set(settings) <= set(allow_weaker):
                raise Refused(f"would reduce durability: {'; '.join(remedy.weakens)}")
            for name, value in settings.items():
                knob, _, instance = name.partition("@")
                changes(knobs.find(knob), instance, value, facts)
                variable = knob.removeprefix("server.")
                if variable != knob and (loss := loss_of(variable, facts.variable(variable), value)):
                    raise Refused(f"cannot be undone: {loss.reason}", place=name)
        except (Refused, PlanError) as error:
            reasons.append(f"{error.place}: {error.message}" if error.place else error.message)
            continue
        options.append(settings)
    if not options:
        raise Refused(
            "no remedy of it can be tried on a running host: " + "; ".join(reasons), place=finding.id
        )
    return options[:MOST_REMEDIES]


def _no_promise(finding: Finding) -> str:
    return KEEPS_SAFE if finding.severity is Severity.RISK else NOTHING_TO_SHOW


async def prove_live(
    bench: Bench, finding: Finding, options: Sequence[Settings], cautions: Sequence[str] = ()
) -> Proof:
    """One finding on the running host; nothing is kept, whatever the verdict: that is `headrace apply`."""
    step, _ = await prove_finding(bench, finding, options, {}, 1)
    return Proof((step,), {}, None, None, (), cautions=tuple(cautions))


async def judge_settings(bench: Bench, settings: Mapping[str, Value], cautions: Sequence[str] = ()) -> Proof:
    """Any settings on the running host, in turns with its own; those are back afterwards in any case."""
    words = ", ".join(f"{name} = {value}" for name, value in settings.items())
    step, _ = await _put_to_test(bench, ("", words), "01-judged", [dict(settings)], {})
    return Proof((step,), {}, None, None, (), cautions=tuple(cautions))


async def cautions_of(
    agent: Agent, login: ServerLogin, settings: Mapping[str, Value], facts: HostFacts
) -> list[str]:
    """What turns on a live server cannot show: existing connections keep the old value of some variables."""
    vendor, version = facts.vendor, facts.server_version or ""
    kept = [name for name in settings if knobs.find(name.partition("@")[0]).is_of_sessions(vendor, version)]
    if not kept:
        return []
    words = ["sample", "--duration", "0s", "--samplers", "mysql_status", *login.argv]
    try:
        values = (await agent.answer(*words)).get("values") or {}
    except HeadraceError:
        values = {}
    count = (values.get("threads_connected") or {}).get("")
    many = "connections that exist" if count is None else f"{count:.0f} connections that exist"
    return [
        f"{', '.join(kept)}: {many} keep the old value until they reconnect, so only new ones are judged; with "
        "pools that never reconnect, the verdict says nothing"
    ]


def bundle_name(treatment: str) -> str:
    return treatment.lower()


def examine(folder: ExperimentFolder, treatment: str) -> tuple[Judgement, Evidence]:
    """What the rules say of a treatment: its last trial that can be analysed. Raises NothingMeasured."""
    records = [r for r in folder.trials() if r.treatment == treatment and r.state is TrialState.COMPLETE]
    if not records:
        states = "; ".join(f"{r.state}: {r.reason}" for r in folder.trials() if r.treatment == treatment)
        raise NothingMeasured(f"no trial of {treatment} can be evaluated: {states}", place=str(folder.path))
    evidence = Evidence.of(of_trial(folder.trial_path(records[-1].number)))
    return judge(evidence, all_rules()), evidence


def settable(remedy: Remedy, evidence: Evidence, plan: plans.Plan) -> tuple[Settings | None, str]:
    """The remedy as a plan sets it, or None and why not. A knob of the volume's own device loses its instance."""
    if not remedy.settings:
        return None, "needs manual steps: " + "; ".join(remedy.steps)
    found: Settings = {}
    for name, value in remedy.settings.items():
        knob, _, instance = name.partition("@")
        if knob.startswith("volume.") and instance:
            if instance.removeprefix("/dev/") not in volume_names(evidence) and instance not in _mounts(
                evidence
            ):
                return None, f"{name}: not the volume under test"
            name = knob
            if plan.volume.device == "directory":
                return None, f"{name}: this plan has no volume of its own"
        if knobs.find(knob).cost is Cost.REBOOT:
            return None, f"{name}: needs a reboot"
        found[name] = value
    return found, ""


def volume_names(evidence: Evidence) -> set[str]:
    """The block device beneath the server's data, by its names."""
    device = evidence.device_of(evidence.data_directory) if evidence.has_server else None
    return {device} if device else set()


def _mounts(evidence: Evidence) -> set[str]:
    mount = evidence.data_file_system if evidence.has_server else None
    return {str(mount["mount_point"])} if mount else set()


def candidates(
    judgement: Judgement, evidence: Evidence, bench: Bench, current: Mapping[str, Value]
) -> tuple[list[tuple[Finding, list[Settings]]], list[tuple[str, str]]]:
    """Findings that an experiment can test, the cheapest first; and the others, with why they cannot be."""
    ready: list[tuple[Finding, list[Settings]]] = []
    skipped: list[tuple[str, str]] = []
    for finding in judgement.findings:
        options: list[Settings] = []
        why = "it names no remedy"
        for remedy in finding.hit.remedies:
            if not finding.promises_speed(remedy):
                why = _no_promise(finding)
                continue
            if remedy.weakens and not set(remedy.settings) <= set(bench.allow_weaker):
                why = f"would reduce durability: {'; '.join(remedy.weakens)}"
                continue
            settings, reason = settable(remedy, evidence, bench.plan)
            if settings is None:
                why = reason
            elif all(current.get(name) == value for name, value in settings.items()):
                why = "is already set"
            else:
                options.append(settings)
        if options:
            ready.append((finding, options[:MOST_REMEDIES]))
        else:
            skipped.append((finding.id, why))
    ready.sort(key=lambda pair: _price(pair[0], pair[1]))
    return ready, skipped


def _price(finding: Finding, options: Sequence[Settings]) -> tuple[int, int, int]:
    costs, severities, confidences = list(Cost), list(Severity), list(Confidence)
    highest = max(costs.index(knobs.find(n.partition("@")[0]).cost) for n in options[0])
    return highest, severities.index(finding.severity), confidences.index(finding.rule.confidence)


async def prove_finding(
    bench: Bench, finding: Finding, options: Sequence[Settings], current: Mapping[str, Value], number: int
) -> tuple[Step, ExperimentFolder | None]:
    """One experiment: as-is against each of the finding's remedies. A remedy counts when it is better."""
    name = f"{number:02d}-{finding.rule.code}"
    return await _put_to_test(bench, (finding.id, finding.rule.title), name, options, current)


async def _put_to_test(
    bench: Bench, told: tuple[str, str], name: str, options: Sequence[Settings], current: Mapping[str, Value]
) -> tuple[Step, ExperimentFolder | None]:
    """``told``: the finding and its title; the first is empty for what no rule suggested."""
    names = [REMEDY if not n else f"{REMEDY}-{n + 1}" for n in range(len(options))]
    treatments = dict(zip(names, options, strict=True))
    try:
        compared = await bench.compare(name, treatments, current)
    except (NothingMeasured, PlanError) as error:
        step = Step(*told, options[0], None, False, error.message, bench.folder / name)
        return step, None
    folder = compared.folder
    effects = {n: compared.effects[n] for n in names if n in compared.effects}
    # What is left of a remedy that failed are its good trials.
    failed = failures(folder.trials())
    sound = {n: effect for n, effect in effects.items() if n not in failed}
    best = _best(sound or effects) if effects else names[0]
    effect = effects.get(best)
    guards = compared.guards.get(best, ())
    unheld = [each.watched.name for each in guards if each.holds is not Holds.YES]
    kept = effect is not None and effect.verdict is Verdict.BETTER and best in sound and not unheld
    reason = ("" if best in sound else failed_in(failed[best])) if effect else _why_not(folder, best)
    if unheld and not reason:
        reason = f"not proven within its limit: {', '.join(unheld)}"
    other = compared.other.get(best)
    step = Step(*told, treatments[best], effect, kept, reason, folder.path, other, guards)
    return step, folder


def _guards(folder: ExperimentFolder, treatments: Sequence[str]) -> dict[str, tuple[Guard, ...]]:
    """What each treatment costs beside the responses, where the workload has guards; empty where it has none."""
    design = folder.design
    if not workloads.has_guards(workloads.make_workload(design.workload.kind, design.workload.options)):
        return {}
    seen: dict[int, dict[str, list[Mapping[str, float | None]]]] = {}
    for record in folder.trials():
        if record.state is TrialState.COMPLETE:
            values = workloads.guarded(folder.trial_path(record.number), design.workload.warmup_s)
            seen.setdefault(record.block, {}).setdefault(record.treatment, []).append(values)
    guards = {}
    for name in treatments:
        blocks = [guarding.Block(own.get(name, ()), own.get(AS_IS, ())) for own in seen.values()]
        # Each has to hold, so that none takes of the others' level.
        guards[name] = tuple(guarding.guard(each, blocks, design.alpha) for each in workloads.GUARDS)
    return guards


def failed_in(counts: tuple[int, int]) -> str:
    return f"failed in {counts[0]} of {counted(counts[1], 'trial')}"


def _best(effects: Mapping[str, Effect]) -> str:
    """The remedy that is better by most for sure; if none is better, the one that looks best."""
    # As throughput: a latency is better when lower.
    gains = {n: e.ratio if e.response == THROUGHPUT else inverse(e.ratio) for n, e in effects.items()}
    if wins := [n for n, effect in effects.items() if effect.verdict is Verdict.BETTER]:
        return max(wins, key=lambda n: gains[n].low or 0.0)
    return max(gains, key=lambda n: gains[n].estimate)


def _why_not(folder: ExperimentFolder, treatment: str) -> str:
    reasons = {f"{r.state}: {r.reason}" for r in folder.trials() if r.treatment == treatment}
    return "; ".join(sorted(reasons)) or "none of its trials finished"


def treatment_of(step: Step, options: Sequence[Settings]) -> str:
    number = list(options).index(dict(step.settings))
    return REMEDY if not number else f"{REMEDY}-{number + 1}"


async def prove_all(
    bench: Bench, *, only: Iterable[str] = (), budget_s: float | None = None, most_steps: int = 30
) -> Proof:
    """Puts every finding to the test, from the cheapest up, and keeps what is proven better.

    ``only`` limits it to findings with these ids or codes. After a step that was kept the rules are asked again,
    about the trial with the remedy: what limits a server now may not have been visible before.
    """
    wanted = set(only)
    start = time.monotonic()
    kept: Settings = {}
    steps: list[Step] = []
    tries: dict[str, int] = {}
    tested: set[tuple[str, str]] = set()
    judgement, evidence = await bench.survey("00-survey", kept)
    skipped: dict[str, str] = {}
    while len(steps) < most_steps and (budget_s is None or time.monotonic() - start < budget_s):
        ready, aside = candidates(judgement, evidence, bench, {**bench.base, **kept})
        skipped |= dict(aside)
        ready = [
            (finding, options)
            for finding, options in ready
            if (not wanted or wanted & {finding.id, finding.rule.code})
            and (finding.id, repr(options)) not in tested
            and tries.get(finding.rule.code, 0) < MOST_TRIES
        ]
        if not ready:
            break
        finding, options = ready[0]
        tested.add((finding.id, repr(options)))
        tries[finding.rule.code] = tries.get(finding.rule.code, 0) + 1
        bench.listen(Note(f"{finding.id}: {finding.rule.title} ({len(ready) - 1} more to test)"))
        step, folder = await prove_finding(bench, finding, options, kept, len(steps) + 1)
        steps.append(step)
        bench.listen(Note(told(step)))
        if step.kept and folder is not None:
            kept |= step.settings
            judgement, evidence = examine(folder, treatment_of(step, options))
    left = tuple(skipped.items())
    if not kept:
        return Proof(tuple(steps), kept, None, None, left)
    # In trials of its own: those of the steps chose what was kept.
    bench.listen(Note("all that was proven, against the start"))
    final = await bench.compare(f"{len(steps) + 1:02d}-final", {"TUNED": kept}, {})
    effect, other = final.effects.get("TUNED"), final.other.get("TUNED")
    failed = failures(final.folder.trials()).get("TUNED")
    return Proof(
        tuple(steps), kept, effect, final.folder.path, left, other, failed_in(failed) if failed else ""
    )


def _text_of(plan: Path) -> str | None:
    """The plan of the experiment that has this name; empty if there is none, None for what is no plan."""
    try:
        return read_plain(plan).decode()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None


def told(step: Step) -> str:
    """The step's result in one line, and whether the other response got worse."""
    if step.effect is None:
        return f"  not measured: {step.reason}"
    worse = step.other if step.other and step.other.verdict is Verdict.WORSE else None
    also = f"; {worse.response} is worse: {_times(worse)}" if worse else ""
    also += f"; {step.reason}" if step.reason else ""
    return f"  {step.effect.verdict}: {_times(step.effect)}{also}; {'kept' if step.kept else 'not kept'}"


def _times(effect: Effect) -> str:
    ratio = effect.ratio
    between = f" ({ratio.low:.2f} to {ratio.high:.2f})" if ratio.low and ratio.high else ""
    return f"{ratio.estimate:.2f}x{between}"
