"""The search space of a tuning: knobs with their ranges, and the library that proposes the next point.

A point maps names of the plan's ``[tune.knobs]`` to values. Numbers are searched on a log scale if their range
spans a factor of ten or more: from 128M to 8G the doublings matter, not the bytes.

Proposals come from Optuna's tree-structured Parzen estimator (Bergstra et al. 2011, NIPS 24; multivariate:
Falkner, Klein & Hutter 2018, ICML), or from its Gaussian processes if PyTorch is installed; PyTorch is larger than
everything else together, so it is an extra (``headrace[gp]``).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.errors import PlanError
from headrace.base.model import Value
from headrace.experiment.plan import KnobRange, Settings
from headrace.experiment.stats.importance import shares
from headrace.knobs import catalogue as knobs

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from optuna.distributions import BaseDistribution

#: From this ratio of high to low, a range is searched on a log scale.
LOG_FROM = 10.0

#: Points drawn at random before the model proposes any.
STARTUP = 10

Point = Mapping[str, Value]


@dataclass(frozen=True)
class Seen:
    """A tested point.

    ``values`` are to be maximised, one per objective (None: it failed, which is worse than anything measured);
    ``excess`` is how far each constraint was exceeded, 0 or less if it holds.
    """

    point: Point
    values: tuple[float, ...] | None
    excess: Mapping[str, float]

    @property
    def is_feasible(self) -> bool:
        return self.values is not None and all(value <= 0 for value in self.excess.values())


def settings_of(space: Mapping[str, KnobRange], point: Point) -> Settings:
    """The knobs' settings of a point."""
    return {space[name].knob: value for name, value in point.items()}


def check(space: Mapping[str, KnobRange], allow_weaker: Sequence[str]) -> None:
    """Check that every range's ends, or levels, are valid values, and that none reduces durability without
    permission.
    """
    taken: dict[str, str] = {}
    for name, found in space.items():
        if found.knob in taken:
            raise PlanError(f"tune.knobs.{name}: {found.knob} is also searched by {taken[found.knob]}")
        taken[found.knob] = name
        if found.knob.startswith("workload."):
            raise PlanError(
                f"tune.knobs.{name}: {found.knob} changes the question instead of improving the result"
            )
        for value in found.ends():
            try:
                knobs.check(found.knob, value)
            except PlanError as error:
                raise PlanError(f"tune.knobs.{name}: {error.message}", hint=error.hint) from error
            reason = knobs.weakens_durability(found.knob, value)
            if reason and found.knob not in allow_weaker:
                raise PlanError(
                    f"tune.knobs.{name}: {found.knob} = {value!r} reduces durability: {reason}",
                    hint=f'if you want this: tune.allow_weaker_durability = ["{found.knob}"]',
                )
        knobs.must_differ(f"tune.knobs.{name}.levels", found.levels or (), partial(_meaning, found.knob))


def _meaning(knob: str, level: Value) -> str:
    return repr(knobs.find(knob).meaning(level))


def point_of(space: Mapping[str, KnobRange], settings: Mapping[str, Value]) -> dict[str, Value]:
    """The point for these settings; other knobs are at their ``start``.

    Raises PlanError for a knob that is not searched.
    """
    names = {found.knob: name for name, found in space.items()}
    for knob in settings:
        if knob not in names:
            raise PlanError(f"{knob} is not among [tune.knobs]")
    found: dict[str, Value] = {n: r.start for n, r in space.items() if r.start is not None}
    return found | {names[knob]: value for knob, value in settings.items()}


def has_gaussian_processes() -> bool:
    return importlib.util.find_spec("torch") is not None


def propose(
    space: Mapping[str, KnobRange],
    seen: Sequence[Seen],
    seed: int,
    number: int,
    *,
    sampler: str = "auto",
    constraints: Sequence[str] = (),
    objectives: int = 1,
) -> dict[str, Value]:
    """The point of trial ``number``: deterministic for the points seen and the seed, so a killed search continues
    the same.
    """
    optuna = _optuna()
    study = optuna.create_study(
        directions=["maximize"] * objectives,
        sampler=_sampler(sampler, seed * 100_003 + number),
    )
    for trial in frozen(space, seen, constraints, objectives):
        study.add_trial(trial)
    asked = study.ask({name: _distribution(found) for name, found in space.items()})
    return {name: space[name].value(asked.params[name]) for name in space}


def frozen(
    space: Mapping[str, KnobRange], seen: Sequence[Seen], constraints: Sequence[str], objectives: int
) -> list[Any]:
    """The points seen, in the library's form."""
    optuna = _optuna()
    distributions = {name: _distribution(found) for name, found in space.items()}
    worst = [min((s.values[i] for s in seen if s.values is not None), default=0.0) for i in range(objectives)]
    found = []
    for one in seen:
        params = {name: space[name].parameter(value) for name, value in one.point.items()}
        if set(params) != set(space) or not all(_holds(distributions[n], params[n]) for n in params):
            continue  # a start outside the ranges, or one with a knob at an unlisted value
        # A server that does not start counts as worse than anything measured, by a factor of e.
        values = list(one.values) if one.values is not None else [value - 1.0 for value in worst]
        excess = {name: one.excess.get(name, 1.0 if one.values is None else 0.0) for name in constraints}
        found.append(
            optuna.trial.create_trial(
                params=params, distributions=distributions, values=values, constraints=excess or None
            )
        )
    return found


def importance(space: Mapping[str, KnobRange], seen: Sequence[Seen]) -> dict[str, float]:
    """The share of the first objective's variation that each knob explains, largest first (analysis.importance);
    empty with too few points.
    """
    trials = frozen(space, [one for one in seen if one.values is not None], (), 1)
    if len(trials) < 2 * STARTUP:
        return {}
    terms = {name: _terms(found, [trial.params[name] for trial in trials]) for name, found in space.items()}
    ranges = {name: _terms(found, _spread(found)) for name, found in space.items()}
    return shares(terms, ranges, np.array([trial.values[0] for trial in trials]))


def _terms(found: KnobRange, values: Sequence[Any]) -> NDArray[np.float64]:
    """A knob's terms in a regression, one row per value: a parabola over its range, or a step for each level
    except the first.
    """
    if found.levels is not None:
        others = [found.parameter(level) for level in found.levels[1:]]
        return np.array([[float(value == other) for other in others] for value in values])
    low, high = (found.number(end) for end in found.ends())
    numbers = np.array(values, dtype=np.float64)
    if _is_logarithmic(found):
        numbers, low, high = np.log(numbers), math.log(low), math.log(high)
    place = (numbers - low) / (high - low) - 0.5
    return np.stack([place, place**2], axis=1)


def _spread(found: KnobRange) -> list[Any]:
    """Values spread evenly over the knob's range."""
    if found.levels is not None:
        return [found.parameter(level) for level in found.levels]
    low, high = (found.number(end) for end in found.ends())
    return list(np.geomspace(low, high, 41) if _is_logarithmic(found) else np.linspace(low, high, 41))


def _is_logarithmic(found: KnobRange) -> bool:
    low, high = (found.number(end) for end in found.ends())
    return low > 0 and high / low >= LOG_FROM


def _optuna() -> ModuleType:
    """The library, imported on demand (it takes a second), with logging disabled."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _sampler(name: str, seed: int) -> Any:
    optuna = _optuna()
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name == "gp" or (name == "auto" and has_gaussian_processes()):
        if not has_gaussian_processes():
            raise PlanError('tune.sampler = "gp": PyTorch is missing', hint="pip install 'headrace[gp]'")
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=STARTUP)
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)


def _distribution(found: KnobRange) -> BaseDistribution:
    from optuna import distributions

    if found.levels is not None:
        return distributions.CategoricalDistribution([found.parameter(v) for v in found.levels])
    low, high = (found.number(v) for v in found.ends())
    is_log = _is_logarithmic(found)
    if found.is_whole:
        return distributions.IntDistribution(int(low), int(high), log=is_log)
    return distributions.FloatDistribution(low, high, log=is_log)


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    return bool(distribution._contains(distribution.to_internal_repr(value)))
