"""Which combinations of levels a design has: all of them, a screening's rows, or the most informative ones.

Sources: Plackett & Burman 1946, Biometrika 33; Box & Hunter 1961, The 2^(k-p) fractional factorial designs,
Technometrics 3 (resolution); Fedorov 1972, Theory of Optimal Experiments, ch. 3; Cook & Nachtsheim 1980,
Technometrics 22 (comparison of exchange algorithms).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.errors import PlanError
from headrace.base.meant import meant
from headrace.experiment.plan import DesignTable
from headrace.experiment.plan.where import value_text
from headrace.experiment.stats import aliasing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Signs = NDArray[np.int8]

Levels = Mapping[str, Sequence[str]]
Combination = dict[str, str]

PLACKETT_BURMAN = "Plackett-Burman"

#: Kinds that select combinations: a missing one changes what the others estimate.
CHOSEN = ("screening", "optimal")

_RESOLUTIONS = {"III": 3, "IV": 4, "V": 5}

#: Factors of a screening: the library has Plackett-Burman designs of 4 to 24 runs.
MIN_SCREENED, MAX_SCREENED = 3, 23

#: Rows of a screening; a fraction of resolution V grows fast.
MAX_ROWS = 512

#: Maximum combinations to enumerate, and to select an optimal design from.
MAX_CANDIDATES = 20_000

#: An exchange can end in a local optimum: the best of this many random starts is taken.
STARTS = 12


def combinations(
    table: DesignTable, factors: Levels, conditions: Sequence[str], baseline: Mapping[str, str]
) -> Iterator[Combination]:
    """The combinations, each once: a level for every factor. Raises PlanError with the key.

    ``conditions`` are factors that change the question: the design is the same in each of their combinations.
    """
    _check_excluded(factors, table)
    subjects = {f: tuple(levels) for f, levels in factors.items() if f not in conditions}
    if table.kind == "screening":
        yield from _crossed(factors, conditions, _screened(table, subjects, baseline), table)
        return
    count = math.prod(len(levels) for levels in factors.values())
    if count > MAX_CANDIDATES:
        raise PlanError(
            f"factors: {count} combinations of levels; at most {MAX_CANDIDATES}",
            hint='fewer levels, or design.kind = "screening"',
        )
    everything = (dict(zip(factors, c, strict=True)) for c in itertools.product(*factors.values()))
    allowed = [c for c in everything if not _is_excluded(c, table)]
    if table.kind != "optimal":
        yield from allowed
        return
    for asked in itertools.product(*(factors[name] for name in conditions)):
        own = [c for c in allowed if all(c[f] == v for f, v in zip(conditions, asked, strict=True))]
        yield from _optimal(table, subjects, own, baseline)


def _check_excluded(factors: Levels, table: DesignTable) -> None:
    """Raises PlanError for a factor or a level that is not there: such a line would exclude nothing."""
    for rule in table.exclude:
        for name, level in rule.items():
            if name not in factors:
                near = meant(name, list(factors)) or next(iter(factors))
                raise PlanError(
                    f"design.exclude: {name!r} is not a factor; there are: {', '.join(factors)}",
                    hint=f"{near} = {value_text(level)}",
                )
            if level not in factors[name]:
                near = meant(level, list(factors[name])) or next(iter(factors[name]))
                raise PlanError(
                    f"design.exclude: {level!r} is not a level of {name}; there are: {', '.join(factors[name])}",
                    hint=f"{name} = {value_text(near)}",
                )


def _is_excluded(combination: Mapping[str, str], table: DesignTable) -> bool:
    return any(all(combination.get(f) == v for f, v in rule.items()) for rule in table.exclude)


def _crossed(
    factors: Levels, conditions: Sequence[str], rows: Sequence[Combination], table: DesignTable
) -> Iterator[Combination]:
    for row in rows:
        for asked in itertools.product(*(factors[name] for name in conditions)):
            own = {**row, **dict(zip(conditions, asked, strict=True))}
            if _is_excluded(own, table):
                levels = ", ".join(f"{f} = {v!r}" for f, v in own.items())
                raise PlanError(
                    f"design.exclude: a screening needs the combination {levels}",
                    hint='design.kind = "optimal" picks among the combinations that exist',
                )
            yield {name: own[name] for name in factors}


def _screened(
    table: DesignTable, subjects: Mapping[str, Sequence[str]], baseline: Mapping[str, str]
) -> list[Combination]:
    for name, levels in subjects.items():
        if len(levels) != 2:
            raise PlanError(
                f"factors.{name}.levels = {list(levels)!r}: a screening has two levels per factor",
                hint='design.kind = "optimal" takes any number',
            )
    if not MIN_SCREENED <= len(subjects) <= MAX_SCREENED:
        raise PlanError(
            f"factors: {len(subjects)} to screen ({', '.join(subjects)}); {MIN_SCREENED} to {MAX_SCREENED} "
            "are possible"
        )
    rows = signs(len(subjects), table.resolution)
    if len(rows) > MAX_ROWS:
        raise PlanError(
            f"design.resolution = {table.resolution!r}: {len(rows)} runs per block for {len(subjects)} "
            f"factors; at most {MAX_ROWS}",
            hint="a lower resolution, or none (Plackett-Burman)",
        )
    other = {name: next(v for v in levels if v != baseline[name]) for name, levels in subjects.items()}
    return [
        {name: other[name] if sign > 0 else baseline[name] for name, sign in zip(subjects, row, strict=True)}
        for row in rows
    ]


def signs(factors: int, resolution: str | None) -> Signs:
    """A two-level design: one row per run, one column per factor, -1 and +1; its first row is all -1.

    Negating a column changes neither orthogonality nor confounding, so the baseline can be in the design.
    """
    import pydoe

    if resolution is None:
        matrix = pydoe.pbdesign(factors)
    else:
        matrix = pydoe.fracfact_by_res(factors, _RESOLUTIONS[resolution])
    found: Signs = np.rint(matrix).astype(np.int8)
    found *= -found[0].copy()
    return found


def _optimal(
    table: DesignTable, subjects: Levels, allowed: Sequence[Combination], baseline: Mapping[str, str]
) -> list[Combination]:
    """The baseline, what is included by name, and the rest of ``runs`` from ``allowed`` by D-optimality."""
    assert table.runs is not None  # the table's own check
    fixed = [_place(baseline, allowed, "design.baseline")]
    for rule in table.include:
        if set(rule) != set(subjects):
            raise PlanError(f"design.include = {rule!r}: a level for each of {', '.join(subjects)}")
        fixed.append(_place(rule, allowed, "design.include"))
    fixed = list(dict.fromkeys(fixed))
    matrix = _estimable(table, subjects, allowed)
    least = max(matrix.shape[1], len(fixed))
    if not least <= table.runs <= len(allowed):
        raise PlanError(
            f"design.runs = {table.runs}: from {least} (the effects asked for, or what is included) to "
            f"{len(allowed)} (the combinations that exist)"
        )
    return [allowed[i] for i in pick(matrix, table.runs, fixed, table.seed)]


def _estimable(table: DesignTable, subjects: Levels, allowed: Sequence[Combination]) -> Floats:
    """Everything that all allowed combinations together could estimate, as orthonormal columns.

    Levels that only occur together (no RAID, no chunk) give identical columns: they are estimated as one, and cost
    one run. Raises PlanError if a term is fully confounded with others.
    """
    terms = _terms(table, subjects)
    used = {
        name: tuple(v for v in levels if any(c[name] == v for c in allowed))
        for name, levels in subjects.items()
    }
    matrix = aliasing.model_matrix(allowed, used, terms)
    rank = np.linalg.matrix_rank(matrix)
    for term in terms:
        rest = aliasing.model_matrix(allowed, used, [t for t in terms if t != term])
        if rank == np.linalg.matrix_rank(rest):
            raise PlanError(
                f"design.exclude: leaves no way to distinguish the effect of {' x '.join(term)} from the "
                "others",
                hint="exclude less, or do not ask for that interaction",
            )
    basis: Floats = np.linalg.svd(matrix, full_matrices=False)[0][:, :rank]
    # Scale rows to a length of about 1, regardless of the number of candidates.
    return basis * math.sqrt(len(allowed))


def _place(levels: Mapping[str, str], allowed: Sequence[Combination], key: str) -> int:
    for i, combination in enumerate(allowed):
        if all(combination.get(f) == v for f, v in levels.items()):
            return i
    raise PlanError(f"{key} = {dict(levels)!r}: no such combination, or one that design.exclude names")


def _terms(table: DesignTable, subjects: Levels) -> list[tuple[str, ...]]:
    for pair in table.interactions:
        for name in pair:
            if name not in subjects or pair[0] == pair[1]:
                raise PlanError(
                    f"design.interactions = {pair!r}: two different factors of {', '.join(subjects)}"
                )
    pairs = [tuple(sorted(pair, key=list(subjects).index)) for pair in table.interactions]
    return [(name,) for name in subjects] + list(dict.fromkeys(pairs))


def pick(candidates: Floats, runs: int, fixed: Sequence[int], seed: int) -> list[int]:
    """The rows of ``candidates`` (one row per combination, one column per model coefficient), including ``fixed``,
    whose information matrix has the largest determinant found by single exchanges (Fedorov 1972): ascending, each
    once, deterministic for a seed.
    """
    generator = random.Random(seed)
    free = [i for i in range(len(candidates)) if i not in set(fixed)]
    best: list[int] = []
    best_value = -math.inf
    for _ in range(STARTS):
        chosen = [*fixed, *generator.sample(free, runs - len(fixed))]
        value = _exchange(candidates, chosen, len(fixed))
        if value > best_value + 1e-9:
            best, best_value = sorted(chosen), value
    return best


def _exchange(candidates: Floats, chosen: list[int], fixed: int) -> float:
    """Exchange rows of ``chosen`` after the first ``fixed`` while that helps; returns the log determinant."""
    width = candidates.shape[1]
    # A start may be singular: a tiny ridge makes it invertible without affecting the choice.
    trace = 1e-6 * np.eye(width)
    while True:
        rows = candidates[chosen]
        information = rows.T @ rows + trace
        inverse = np.linalg.inv(information)
        spread = candidates @ inverse
        own = np.einsum("ij,ij->i", spread, candidates)
        mixed = spread[chosen] @ candidates.T
        gain = (1 + own)[None, :] * (1 - own[chosen])[:, None] + mixed**2
        gain[:fixed] = 0
        gain[:, chosen] = 0
        out, into = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[out, into] <= 1 + 1e-9:
            return float(np.linalg.slogdet(information)[1])
        chosen[int(out)] = int(into)
