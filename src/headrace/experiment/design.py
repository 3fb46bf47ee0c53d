"""From a plan to a design: treatments, blocks and trials."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterable, Mapping
from functools import partial

from headrace.base.errors import PlanError
from headrace.base.meant import meant
from headrace.base.model import Role, Treatment, TrialSpec, Value
from headrace.experiment import fractions, volume, workloads
from headrace.experiment.boot import Boot
from headrace.experiment.frozen import Design, Skipped, boot_of, options_of
from headrace.experiment.plan import ALL, NONE, VM, FactorTable, Plan, Settings
from headrace.experiment.plan.where import assigned, located, value_text
from headrace.experiment.settle import PIECE_S
from headrace.host.target import TargetSpec
from headrace.knobs import catalogue as knobs
from headrace.lab.server import LAYOUT_VARIABLES
from headrace.lab.vm.spec import check_arguments

CONFIGURATION = "configuration"

#: Workloads that can warm up in pieces.
SETTLES = ("oltp", "sql", "tpcc", "sysbench-oltp")


def build(plan: Plan, *, place: str, is_root: bool = True) -> Design:
    """All treatments and the order of all trials. Raises PlanError with ``place`` and the key.

    Without root, treatments that need root are left out and listed in ``skipped``; the volume becomes an ordinary
    directory.
    """
    try:
        levels_by_factor = _levels(plan)
        _check_base(plan, levels_by_factor)
        plan = _with_reboots_hard(plan, levels_by_factor)
        treatments, baselines = _treatments(plan, levels_by_factor)
        _check_kernels(plan, treatments)
        _check_settling(plan)
        for treatment in treatments:
            check(plan, treatment)
        _check_differ(plan, treatments)
        _check_named(plan)
    except PlanError as error:
        raise located(error, place) from error
    skipped: list[Skipped] = []
    notes: list[str] = []
    if not is_root:
        treatments, notes = _without_root(plan, treatments, skipped)
        plan = plan.model_copy(update={"volume": plan.volume.model_copy(update={"device": "directory"})})
        names = {t.name for t in treatments}
        lost = [name for name in baselines.values() if name not in names]
        if lost:
            raise PlanError(f"the baseline {lost[0]!r} needs root", place=place, hint="run as root")
        if skipped and plan.design.kind in fractions.CHOSEN:
            name, reason = skipped[0].treatment, skipped[0].reason
            raise PlanError(
                f"{name!r}: {reason}, and a design of kind {plan.design.kind!r} needs every treatment",
                place=place,
                hint="run as root",
            )
    table = plan.design
    notes += [table.chosen] if table.chosen else []
    design = Design(
        name=plan.name,
        description=plan.description,
        kind=table.kind,
        seed=table.seed,
        blocks=table.blocks,
        alpha=table.alpha,
        equivalence=table.equivalence,
        response=table.response,
        resolution=(table.resolution or fractions.PLACKETT_BURMAN) if table.kind == "screening" else None,
        runs=table.runs,
        interactions=[(a, b) for a, b in table.interactions],
        hard=table.hard,
        workload=plan.workload,
        volume=plan.volume,
        server=plan.server,
        target=plan.target,
        machine=plan.machine,
        base=plan.base,
        baselines=baselines,
        treatments=tuple(treatments),
        trials=tuple(_order(plan, treatments, baselines)),
        blocks_per_session=_blocks_per_session(plan),
        skipped=tuple(skipped),
        notes=tuple(notes),
    )
    return design.frozen()


def _blocks_per_session(plan: Plan) -> int:
    """Raises PlanError if no data would be loaded anew."""
    table = plan.design
    if table.sessions == 1:
        return 0
    workload = workloads.make_workload(plan.workload.kind, plan.workload.options)
    if not workload.needs_server or workload.dataset() is None:
        raise PlanError(
            f"design.sessions = {table.sessions}: {plan.workload.kind} has no data that a session could load anew",
            hint="leave it out",
        )
    if plan.target.addresses:
        raise PlanError(
            f"design.sessions = {table.sessions}: not with several hosts, whose blocks differ anyway",
            hint="leave it out",
        )
    return table.blocks // table.sessions


def _levels(plan: Plan) -> dict[str, dict[str, Settings]]:
    """Factor -> level's name -> settings."""
    factors: dict[str, dict[str, Settings]] = {}
    if plan.design.kind == "leave-one-out":
        if CONFIGURATION in plan.factors:
            raise PlanError(f"factors.{CONFIGURATION}: in a leave-one-out this name belongs to the bundles")
        rungs = _left_out(plan)
        factors[CONFIGURATION] = {
            rung: _bundle(plan, "design.leave_out", names) for rung, names in rungs.items()
        }
    elif plan.design.kind == "cumulative":
        if not plan.design.rungs:
            raise PlanError(
                "design.rungs: a cumulative design needs rungs: names, each with its bundles",
                hint='[design.rungs] STOCK = [] and ALL = ["MYSQL"], with [bundles.MYSQL]',
            )
        if CONFIGURATION in plan.factors:
            raise PlanError(f"factors.{CONFIGURATION}: in a cumulative design this name belongs to the rungs")
        factors[CONFIGURATION] = {
            rung: _bundle(plan, f"design.rungs.{rung}", names) for rung, names in plan.design.rungs.items()
        }
    if plan.design.rungs and plan.design.kind != "cumulative":
        raise PlanError("design.rungs: only in a cumulative design", hint='kind = "cumulative"')
    if not factors and not plan.factors:
        raise PlanError(
            "factors: a factorial design needs at least one factor",
            hint='[factors.pool] knob = "server.innodb_buffer_pool_size" and levels = ["128M", "1G"]',
        )
    for name, factor in plan.factors.items():
        factors[name] = _factor_levels(plan, name, factor)
    for name in plan.design.hard:
        if name not in factors:
            near = meant(name, factors)
            raise PlanError(
                f"design.hard = {name!r}: no such factor; there are: {', '.join(factors)}",
                hint=f'hard = ["{near}"]' if near else None,
            )
    return factors


def _check_base(plan: Plan, factors: Mapping[str, Mapping[str, Settings]]) -> None:
    """Raise PlanError for a value in [base] that no treatment has, because a factor always sets that knob."""
    for name, levels in factors.items():
        for knob, value in plan.base.items():
            set_to = [settings.get(knob) for settings in levels.values()]
            if set_to and None not in set_to and value not in set_to and not isinstance(value, list):
                raise PlanError(
                    f"base.{knob} = {value!r}: the factor {name!r} sets it in every treatment, too",
                    hint=f"delete it from [base], or add {value_text(value)} to the levels of {name}",
                )


def _with_reboots_hard(plan: Plan, factors: Mapping[str, Mapping[str, Settings]]) -> Plan:
    """The plan with every factor that needs a reboot listed first among the hard ones."""
    costly = [
        name
        for name, levels in factors.items()
        if any(_needs_reboot(knob) for settings in levels.values() for knob in settings)
    ]
    if not costly:
        return plan
    before = [name for name in plan.design.hard if name in costly]
    hard = [*before, *(name for name in costly if name not in before)]
    hard += [name for name in plan.design.hard if name not in hard]
    return plan.model_copy(update={"design": plan.design.model_copy(update={"hard": hard})})


def _needs_reboot(knob: str) -> bool:
    return knob.startswith("machine.")


def _left_out(plan: Plan) -> dict[str, list[str]]:
    """Rungs: all bundles, then all except each one; the empty rung is the baseline."""
    names = plan.design.leave_out or list(plan.bundles)
    if len(set(names)) != len(names) or len(names) < 2:
        raise PlanError(
            f"design.leave_out = {names!r}: at least two bundles, each once",
            hint="[bundles.NAME] holds the settings of one",
        )
    rungs = {ALL: names} | {f"{ALL}-{left}": [n for n in names if n != left] for left in names}
    return ({NONE: []} if plan.design.baseline == NONE else {}) | rungs


def _factor_levels(plan: Plan, name: str, factor: FactorTable) -> dict[str, Settings]:
    if isinstance(factor.levels, list):
        assert factor.knob is not None  # the table's own check
        named = {_level_name(value): {factor.knob: value} for value in factor.levels}
        knobs.must_differ(f"factors.{name}.levels", factor.levels, partial(_meaning, plan, factor.knob))
        return named
    levels = {}
    for level, content in factor.levels.items():
        if isinstance(content, dict):
            levels[level] = content
        else:
            names = [content] if isinstance(content, str) else content
            levels[level] = _bundle(plan, f"factors.{name}.levels.{level}", names)
    return levels


def _plain(knob: str) -> str:
    """A knob without its instance, ``@sda``; SQL's ``@@global.x`` keeps its signs for the error."""
    return knob if knob.startswith("@") else knob.partition("@")[0]


def _meaning(plan: Plan, knob: str, level: Value) -> str:
    """Equal for levels that set the same. ``check`` reports invalid ones."""
    area, _, option = knob.partition(".")
    if area == "workload":
        with contextlib.suppress(PlanError, AttributeError):
            options = {**plan.workload.options, option: level}
            return repr(workloads.option(plan.workload.kind, options, option))
    with contextlib.suppress(PlanError, ValueError):
        return repr(knobs.find(_plain(knob)).meaning(level))
    return _level_name(level)


def _check_differ(plan: Plan, treatments: Iterable[Treatment]) -> None:
    """Raise PlanError for one configuration in two spellings (1G, 1024M): its treatments differ by noise only.

    Settings that are equal to the letter are a comparison of a configuration with itself, which was asked for.
    """
    known: dict[tuple[str, str], str] = {}

    def meaning(knob: str, value: Value) -> str:
        written = (knob, repr(value))
        if written not in known:
            known[written] = _meaning(plan, knob, value)
        return known[written]

    seen: dict[frozenset[tuple[str, str]], Treatment] = {}
    for treatment in treatments:
        meant = frozenset((knob, meaning(knob, value)) for knob, value in treatment.settings.items())
        first = seen.setdefault(meant, treatment)
        for knob, value in treatment.settings.items():
            other = first.settings[knob]
            if repr(other) != repr(value):
                raise PlanError(
                    f"{first.name!r} and {treatment.name!r} are the same: {knob} = {other!r} and {value!r}"
                )


def _check_named(plan: Plan) -> None:
    """Where an empty value is one, tables would show nothing for it."""
    for name, factor in plan.factors.items():
        if isinstance(factor.levels, list) and "" in factor.levels:
            raise PlanError(
                f"factors.{name}.levels: an empty level needs a name for the tables",
                hint=f'instead of knob and levels: levels.none = {{ "{factor.knob}" = "" }}, and so each other',
            )


def _level_name(value: Value) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bundle(plan: Plan, key: str, names: Iterable[str]) -> Settings:
    merged: Settings = {}
    for name in names:
        if name not in plan.bundles:
            known = ", ".join(plan.bundles) or "none"
            near = meant(name, plan.bundles)
            raise PlanError(
                f"{key}: no bundle named {name!r}; there are: {known}",
                hint=f'"{near}"' if near else _for_bundle(name),
            )
        merged = _merge(merged, plan.bundles[name], key)
    return merged


def _for_bundle(name: str) -> str:
    """What to write for a level that is neither a bundle nor a table; a number or a size is a knob's value."""
    if re.fullmatch(r"[\d.]+ ?[kKMGT]?i?[bB]?|ON|OFF|true|false", name):
        return f'{{ "server.NAME" = "{name}" }}, or knob = "server.NAME" and levels = ["{name}", ...]'
    return f'[bundles.{name}] with its settings, such as "server.NAME" = "VALUE"'


def _merge(first: Mapping[str, Value], second: Mapping[str, Value], key: str) -> Settings:
    """Both settings merged; lists accumulate, and two different values for one knob are an error."""
    merged = dict(first)
    for knob, value in second.items():
        old = merged.get(knob)
        if isinstance(old, list) and isinstance(value, list):
            merged[knob] = old + [v for v in value if v not in old]
        elif old is not None and old != value:
            raise PlanError(f"{key}: {knob} is set twice, to {old!r} and {value!r}")
        else:
            merged[knob] = value
    return merged


def _treatments(
    plan: Plan, factors: Mapping[str, Mapping[str, Settings]]
) -> tuple[list[Treatment], dict[str, str]]:
    baseline_levels = _baseline_levels(plan, factors)
    conditions = [name for name, levels in factors.items() if _is_condition(levels)]
    treatments, baselines = [], {}
    names = {factor: tuple(levels) for factor, levels in factors.items()}
    for chosen in fractions.combinations(plan.design, names, conditions, baseline_levels):
        settings: Settings = {}
        for factor, level in chosen.items():
            settings = _merge(settings, factors[factor][level], f"factors.{factor}.levels.{level}")
        condition = " ".join(f"{f}={chosen[f]}" for f in conditions)
        subject = " ".join(
            chosen[f] if len(factors) - len(conditions) == 1 else f"{f}={chosen[f]}"
            for f in factors
            if f not in conditions
        )
        name = f"{subject} @ {condition}" if condition else subject
        # A factor overrides the base, except that lists accumulate.
        base = {k: v for k, v in plan.base.items() if k not in settings or isinstance(v, list)}
        treatment = Treatment(name, chosen, _merge(base, settings, "base"), condition)
        treatments.append(treatment)
        if all(chosen[f] == level for f, level in baseline_levels.items() if f not in conditions):
            baselines[condition] = name
    for condition in {t.condition for t in treatments} - set(baselines):
        raise PlanError(
            f"design.exclude: leaves no baseline for {condition or 'the comparison'}",
            hint="every condition needs its own baseline",
        )
    return treatments, baselines


def _is_condition(levels: Mapping[str, Settings]) -> bool:
    """A factor that only changes the workload: its levels are different questions."""
    set_by = {knob for settings in levels.values() for knob in settings}
    return bool(set_by) and all(knob.startswith("workload.") for knob in set_by)


def _baseline_levels(plan: Plan, factors: Mapping[str, Mapping[str, Settings]]) -> dict[str, str]:
    baseline = plan.design.baseline
    if isinstance(baseline, str):
        subjects = [name for name, levels in factors.items() if not _is_condition(levels)]
        if not subjects:
            raise PlanError(
                f"design.baseline = {baseline!r}: every factor changes the workload alone: its levels are "
                "conditions, and nothing is compared within one",
                hint='[factors.NAME] with knob = "server.NAME"; `headrace plan print sweep` compares loads',
            )
        if len(subjects) != 1:
            raise PlanError(
                f"design.baseline = {baseline!r}: with {len(subjects)} factors it names a level of each",
                hint=_baseline_text(factors, subjects or list(factors), {"": baseline}),
            )
        baseline = {subjects[0]: baseline}
    for factor in factors:
        if factor not in baseline and not _is_condition(factors[factor]):
            raise PlanError(
                f"design.baseline: no level for the factor {factor!r}",
                hint=_baseline_text(factors, [*baseline, factor], baseline),
            )
    for factor, level in baseline.items():
        if factor not in factors:
            near = meant(factor, factors)
            raise PlanError(
                f"design.baseline: no factor {factor!r}; there are: {', '.join(factors)}",
                hint=_baseline_text(factors, [near], {near: level}) if near else None,
            )
        if level not in factors[factor]:
            raise PlanError(
                f"design.baseline: {factor} = {level!r}: no such level; there are: {', '.join(factors[factor])}",
                hint=_baseline_text(factors, list(baseline), baseline),
            )
    return baseline


def _baseline_text(
    factors: Mapping[str, Mapping[str, Settings]], names: Iterable[str], given: Mapping[str, str]
) -> str:
    """A baseline as the plan must have it: the given levels, or the nearest to them, or the first."""
    chosen = {}
    for factor in names:
        levels = factors.get(factor, {})
        wanted = [given[factor]] if factor in given else list(given.values())
        chosen[factor] = next(
            (near for word in wanted if (near := word if word in levels else meant(word, levels))),
            next(iter(levels), "LEVEL"),
        )
    if len(chosen) == 1 and len([f for f in factors if not _is_condition(factors[f])]) == 1:
        return f"baseline = {value_text(next(iter(chosen.values())))}"
    return f"baseline = {assigned(chosen)}"


def check(plan: Plan, treatment: Treatment) -> None:
    """Raise PlanError if a treatment cannot or must not be set up."""
    for knob, value in treatment.settings.items():
        if knob.startswith("workload."):
            continue
        name = _plain(knob)
        instance = knob.removeprefix(name).removeprefix("@")
        knobs.check(name, value)
        reason = knobs.weakens_durability(name, value, plan.server.vendor)
        if reason and knob not in plan.design.allow_weaker_durability:
            raise PlanError(
                f"{knob} = {value!r} in {treatment.name}: it reduces durability: {reason}",
                hint=f'if you want this: design.allow_weaker_durability = ["{knob}"]',
            )
        if workloads.watches(workloads.make_workload(plan.workload.kind, plan.workload.options)):
            continue
        if instance and not knob.startswith("host."):
            raise PlanError(f"{knob} in {treatment.name}: a trial's own volume or server has no instances")
        if knob.startswith("volume.") and plan.volume.device == "directory":
            raise PlanError(
                f"{knob} in {treatment.name}: a directory does not have its own file system or queue",
                hint='volume.device = "loop"',
            )
    own = workloads.make_workload(plan.workload.kind, options_of(plan.workload, treatment)).dataset()
    common = workloads.make_workload(plan.workload.kind, plan.workload.options).dataset()
    if own != common:
        changed = [k for k, v in (own or {}).items() if v != (common or {}).get(k)]
        raise PlanError(
            f"{', '.join(f'workload.{k}' for k in changed)} in {treatment.name}: it changes the data set, but "
            "an experiment has only one, which is restored before each trial",
            hint="set it in [workload], and run one experiment for each data set",
        )
    _check_layout(plan, treatment)
    boot = boot_of(plan.machine, treatment)
    if boot is not None:
        _check_may_reboot(plan, f"kernel {boot} in {treatment.name}")
        _check_arguments(plan, boot, treatment.name)
    volume.check(plan, treatment)


def _check_may_reboot(plan: Plan, what: str) -> None:
    address, table = plan.target.address, plan.machine
    if plan.target.addresses:
        raise PlanError(
            f"{what}: it needs a reboot, and shared machines are not rebooted",
            hint="name one address",
        )
    if address == VM:
        return
    if "@" not in address:
        raise PlanError(
            f"{what}: it needs a reboot, and headrace never reboots {address!r}",
            hint='[target] address = "vm", or a host over SSH that [machine] allows to reboot',
        )
    host = TargetSpec.parse(address).host
    if table is None or not table.allow_reboot or not {host, address} & set(table.hosts):
        raise PlanError(
            f"{what}: it needs a reboot of {host}, which the plan does not allow",
            hint=f'if you want this: [machine] allow_reboot = true and hosts = ["{host}"]',
        )


def _check_arguments(plan: Plan, boot: Boot, where: str) -> None:
    """On a host they would have to be in an entry of its boot loader, which outlives a killed run."""
    if boot.arguments and plan.target.address != VM:
        raise PlanError(
            f"machine.arguments in {where}: only a virtual machine boots with them",
            hint='[target] address = "vm"',
        )
    check_arguments(boot.arguments, f"machine.arguments in {where}")


def _check_kernels(plan: Plan, treatments: list[Treatment]) -> None:
    """A trial must not run on a kernel left by another trial."""
    without = [t.name for t in treatments if boot_of(plan.machine, t) is None]
    if without and (plan.target.address == VM or len(without) < len(treatments)):
        raise PlanError(
            f"machine.kernel: {without[0]} names no kernel",
            hint='[machine] kernel = "6.12" applies to all treatments without their own',
        )


def _check_settling(plan: Plan) -> None:
    """A warm-up in pieces needs a load that can be begun again."""
    table = plan.workload
    if not table.steady_within_s:
        return
    if table.kind not in SETTLES:
        raise PlanError(
            f"workload.steady_within_s: not with {table.kind}, whose load cannot run in pieces",
            hint=f"warmup_s; or workload.kind = {', '.join(SETTLES)}",
        )
    if table.steady_within_s < 2 * PIECE_S:
        raise PlanError(
            f"workload.steady_within_s = {table.steady_within_s:g}: at least {2 * PIECE_S:g}, because pieces of "
            f"{PIECE_S:g} s are compared"
        )


def _check_layout(plan: Plan, treatment: Treatment) -> None:
    """Settings that define the layout of the data files are fixed when the data set is built and cannot be
    factors.
    """
    for knob, value in treatment.settings.items():
        if knob.removeprefix("server.") in LAYOUT_VARIABLES and plan.base.get(knob) != value:
            raise PlanError(
                f"{knob} in {treatment.name}: it changes the layout of the data files, which all treatments share",
                hint="set it in [base], and run one experiment for each value",
            )


def _needs_root(knob: str) -> bool:
    return knob.startswith(("machine.", "volume.", "host."))


def _without_root(
    plan: Plan, treatments: list[Treatment], skipped: list[Skipped]
) -> tuple[list[Treatment], list[str]]:
    kept = []
    for treatment in treatments:
        beyond_base = [
            k for k, value in treatment.settings.items() if _needs_root(k) and value != plan.base.get(k)
        ]
        if beyond_base:
            skipped.append(Skipped(treatment.name, f"{beyond_base[0]} needs root"))
            continue
        settings = {k: v for k, v in treatment.settings.items() if not _needs_root(k)}
        kept.append(Treatment(treatment.name, treatment.levels, settings, treatment.condition))
    notes = []
    if plan.volume.device != "directory":
        notes.append(f"without root: an ordinary directory instead of a {plan.volume.device} volume")
    left = [knob for knob in plan.base if knob.startswith("host.")]
    if left:
        notes.append(f"without root: not set: {', '.join(left)}")
    return kept, notes


def _order(plan: Plan, treatments: list[Treatment], baselines: Mapping[str, str]) -> Iterable[TrialSpec]:
    """Blocks, each in a new random order; the baseline of every condition runs twice per block.

    The levels of a hard factor are in random order, and everything else is random within each level.
    """
    levels = {t.name: t.levels for t in treatments}
    generator = random.Random(plan.design.seed)
    number = 0
    for block in range(1, plan.design.blocks + 1):
        entries = [(t.name, Role.CANDIDATE) for t in treatments if baselines[t.condition] != t.name]
        entries += [(name, Role.BASELINE) for name in baselines.values()]
        entries += [(name, Role.REPEAT) for name in baselines.values()]
        entries = _arranged(entries, levels, plan.design.hard, generator)
        for position, (name, role) in enumerate(entries, start=1):
            number += 1
            yield TrialSpec(number, block, position, name, role)


def _arranged(
    entries: list[tuple[str, Role]],
    levels: Mapping[str, Mapping[str, str]],
    hard: list[str],
    generator: random.Random,
) -> list[tuple[str, Role]]:
    if not hard:
        generator.shuffle(entries)
        return entries
    plots: dict[str, list[tuple[str, Role]]] = {}
    for entry in entries:
        plots.setdefault(levels[entry[0]][hard[0]], []).append(entry)
    order = list(plots)
    generator.shuffle(order)
    return [e for level in order for e in _arranged(plots[level], levels, hard[1:], generator)]
