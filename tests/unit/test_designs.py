"""Designs by method: their matrices by brute force, what they refuse, and the order of trials."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.base.errors import PlanError
from headrace.base.model import Role
from headrace.experiment import design as designs
from headrace.experiment import fractions
from headrace.experiment import plan as plans
from headrace.experiment.frozen import Design
from headrace.experiment.stats import aliasing


def plan_text(design: str, factors: Mapping[str, Sequence[int]], rest: str = "") -> str:
    tables = "".join(
        f'[factors.{name}]\nknob = "server.{name}"\nlevels = {list(levels)}\n'
        for name, levels in factors.items()
    )
    workload = '[workload]\nkind = "sysbench-oltp"\nseconds = 5\n'
    return f'name = "t"\n[design]\n{design}\n{workload}{tables}{rest}'


def build(text: str, *, is_root: bool = True) -> Design:
    return designs.build(plans.parse(text, "t.toml"), place="t.toml", is_root=is_root)


KNOBS = (
    "innodb_io_capacity", "innodb_read_io_threads", "innodb_write_io_threads", "innodb_purge_threads",
    "table_open_cache", "thread_cache_size", "innodb_lru_scan_depth", "max_connections",
)  # fmt: skip


def two_levels(count: int) -> dict[str, list[int]]:
    return {name: [4, 8] if "threads" in name else [200, 400] for name in KNOBS[:count]}


def baseline(factors: Mapping[str, Sequence[int]]) -> str:
    return "{ " + ", ".join(f'{name} = "{levels[0]}"' for name, levels in factors.items()) + " }"


def screening(count: int, more: str = "") -> str:
    factors = two_levels(count)
    return plan_text(f'kind = "screening"\nbaseline = {baseline(factors)}\n{more}', factors)


@pytest.mark.parametrize("factors", range(3, 24))
@pytest.mark.parametrize("resolution", [None, "III", "IV", "V"])
def test_the_columns_of_a_screening_are_balanced_and_orthogonal(factors: int, resolution: str | None) -> None:
    if resolution == "V" and factors > 11:
        pytest.skip("more rows than a plan may have")
    matrix = fractions.signs(factors, resolution).astype(int)
    runs = len(matrix)
    assert matrix.shape == (runs, factors)
    assert (matrix[0] == -1).all()
    assert len({tuple(row) for row in matrix}) == runs
    assert (matrix.sum(axis=0) == 0).all()
    assert (matrix.T @ matrix == runs * np.eye(factors, dtype=int)).all()


@pytest.mark.parametrize(("resolution", "longest_free"), [("III", 2), ("IV", 3), ("V", 4)])
@pytest.mark.parametrize("factors", range(3, 12))
def test_a_fraction_has_the_resolution_it_is_named_by(
    factors: int, resolution: str, longest_free: int
) -> None:
    """By its meaning: in every so many columns each combination of signs stands equally often."""
    matrix = fractions.signs(factors, resolution)
    for columns in itertools.combinations(range(factors), min(longest_free, factors)):
        _, counts = np.unique(matrix[:, columns], axis=0, return_counts=True)
        assert len(counts) == 2 ** len(columns)
        assert len(set(counts)) == 1


@pytest.mark.parametrize(("factors", "resolution"), [(5, None), (11, None), (7, "III"), (6, "IV"), (8, "IV")])
def test_aliases_are_what_a_noiseless_interaction_does_to_the_estimates(
    factors: int, resolution: str | None
) -> None:
    """Brute force: give the response nothing but one pair's effect, fit the model, and see where it turns up."""
    matrix = fractions.signs(factors, resolution).astype(float)
    cells = [{f"f{i}": str(int(v)) for i, v in enumerate(row)} for row in matrix]
    found = aliasing.structure(cells)
    known = {(a.term, a.other): a.weight for a in found.aliases}

    # The first cell is all -1, and the first level of a contrast is +1: columns are turned round.
    def column(term: tuple[str, ...]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.prod([-matrix[:, int(name[1:])] for name in term], axis=0)
        return found

    model = np.stack([np.ones(len(matrix)), *(column(t) for t in found.terms)], axis=1)
    for pair in itertools.combinations([f"f{i}" for i in range(factors)], 2):
        if pair in found.terms:
            continue
        estimates = np.linalg.lstsq(model, column(pair), rcond=None)[0][1:]
        for term, estimate in zip(found.terms, estimates, strict=True):
            assert known.get((term, pair), 0.0) == pytest.approx(estimate, abs=1e-9)


def test_resolution_and_partial_confounding_are_told() -> None:
    def of(factors: int, resolution: str | None) -> aliasing.Aliasing:
        return aliasing.structure(
            [{f"f{i}": str(v) for i, v in enumerate(row)} for row in fractions.signs(factors, resolution)]
        )

    burman = of(11, None)
    assert (burman.runs, burman.resolution, burman.is_partial) == (12, 3, True)
    assert {round(abs(a.weight), 9) for a in burman.aliases} == {round(1 / 3, 9)}
    assert of(8, "IV").resolution == 4
    assert not of(8, "IV").is_partial
    assert of(5, "V").resolution == 5
    assert not of(5, "V").aliases


def test_a_screening_has_its_baseline_and_every_condition() -> None:
    text = (
        screening(5, 'resolution = "III"') + '[factors.threads]\nknob = "workload.threads"\nlevels = [4, 8]\n'
    )
    design = build(text)
    assert len(design.treatments) == 8 * 2
    assert len(design.baselines) == 2
    assert [t.role for t in design.trials].count(Role.REPEAT) == 2 * 5
    assert design.resolution == "III"
    assert not design.hard


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (screening(2), "factors: 2 to screen"),
        (screening(4, 'resolution = "VI"'), "design.resolution = 'VI': must be one of III, IV, V"),
        (screening(4, "runs = 8"), 'runs = 8: only for a design of kind = "optimal"'),
        (screening(4, 'hard = ["disk"]'), "design.hard = 'disk': no such factor"),
        (screening(4, 'exclude = [{ innodb_io_capacity = "400" }]'), "innodb_io_capacity = '400'"),
        (
            plan_text(
                f'kind = "screening"\nbaseline = {baseline(two_levels(3))}',
                two_levels(3) | {KNOBS[2]: [4, 8, 16]},
            ),
            "factors.innodb_write_io_threads.levels = ['4', '8', '16']",
        ),
        (
            plan_text(f'kind = "optimal"\nbaseline = {baseline(two_levels(3))}', two_levels(3)),
            "runs: how many treatments",
        ),
        (
            plan_text(f'kind = "optimal"\nruns = 3\nbaseline = {baseline(two_levels(3))}', two_levels(3)),
            "design.runs = 3: from 4",
        ),
        (
            plan_text(
                f'kind = "optimal"\nruns = 6\ninteractions = [["x", "table_open_cache"]]\n'
                f"baseline = {baseline(two_levels(3))}",
                two_levels(3),
            ),
            "design.interactions = ['x', 'table_open_cache']",
        ),
        (
            plan_text(
                f'kind = "race"\nhard = ["{KNOBS[0]}"]\nbaseline = {baseline(two_levels(3))}', two_levels(3)
            ),
            "hard = ['innodb_io_capacity']",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_key_and_value(text: str, said: str) -> None:
    with pytest.raises(PlanError) as error:
        build(text)
    assert said in str(error.value)


# Chunks exist on RAID alone; a single disk (1) has none (16).
RAID = {
    "innodb_read_io_threads": [1, 4, 8],
    "table_open_cache": [16, 64, 256],
    "max_connections": [100, 200, 300],
}
NO_CHUNK = [(1, 64), (1, 256), (4, 16), (8, 16)]


def raid(runs: int, seed: int = 1, more: str = "") -> str:
    rules = ", ".join(f'{{ innodb_read_io_threads = "{d}", table_open_cache = "{c}" }}' for d, c in NO_CHUNK)
    first = baseline(RAID)
    return plan_text(
        f'kind = "optimal"\nruns = {runs}\nseed = {seed}\nbaseline = {first}\nexclude = [{rules}]\n{more}',
        RAID,
    )


def test_an_optimal_design_keeps_out_what_does_not_exist() -> None:
    design = build(raid(9))
    cells = [
        (int(t.levels["innodb_read_io_threads"]), int(t.levels["table_open_cache"]))
        for t in design.treatments
    ]
    assert len(design.treatments) == 9
    assert not set(cells) & set(NO_CHUNK)
    assert build(raid(9)).hash == design.hash
    assert len({build(raid(9, seed)).hash for seed in range(4)}) > 1


def determinant(cells: Sequence[Mapping[str, str]]) -> float:
    """Of what is estimable: the product of the eigenvalues of the information matrix that are not nil."""
    levels = {name: [str(v) for v in own] for name, own in RAID.items()}
    matrix = aliasing.model_matrix(cells, levels, [(name,) for name in levels])
    values = np.linalg.eigvalsh(matrix.T @ matrix)
    return float(np.prod(values[values > 1e-9])) if (values > 1e-9).sum() == 6 else 0.0


def test_no_other_choice_of_runs_tells_more() -> None:
    """All 3,003 ways to take 6 runs of the 15 that exist, less those without the baseline."""
    everything = [dict(zip(RAID, map(str, c), strict=True)) for c in itertools.product(*RAID.values())]
    allowed = [
        c
        for c in everything
        if (int(c["innodb_read_io_threads"]), int(c["table_open_cache"])) not in NO_CHUNK
    ]
    found = build(raid(7))
    first = next(c for c in allowed if list(c.values()) == ["1", "16", "100"])
    others = [c for c in allowed if c != first]
    best = max(determinant([first, *c]) for c in itertools.combinations(others, 6))
    assert determinant([dict(t.levels) for t in found.treatments]) == pytest.approx(best, rel=1e-6)


def test_runs_that_are_included_stand_and_the_rest_is_chosen_around_them() -> None:
    kept = '{ innodb_read_io_threads = "8", table_open_cache = "64", max_connections = "200" }'
    names = [t.levels for t in build(raid(7, more=f"include = [{kept}]")).treatments]
    assert {"innodb_read_io_threads": "8", "table_open_cache": "64", "max_connections": "200"} in names
    with pytest.raises(PlanError, match=r"design\.include"):
        build(raid(7, more=f"include = [{kept.replace('64', '16')}]"))


def test_an_effect_that_exclusions_hide_is_named() -> None:
    rules = '[{ innodb_io_capacity = "200", table_open_cache = "400" }, ' \
        '{ innodb_io_capacity = "400", table_open_cache = "200" }]'  # fmt: skip
    factors = {"innodb_io_capacity": [200, 400], "table_open_cache": [200, 400], "max_connections": [1, 2]}
    text = plan_text(
        f'kind = "optimal"\nruns = 4\nbaseline = {baseline(factors)}\nexclude = {rules}', factors
    )
    with pytest.raises(PlanError, match="effect of innodb_io_capacity from the others"):
        build(text)


LEFT_OUT = """
name = "t"
[design]
kind = "leave-one-out"
{more}
[workload]
kind = "sysbench-oltp"
seconds = 5
[bundles.mysql]
"server.innodb_buffer_pool_size" = "1G"
[bundles.je]
"server.allocator" = "jemalloc"
[bundles.cache]
"server.table_open_cache" = 4000
"""


def test_leave_one_out_makes_its_own_rungs() -> None:
    design = build(LEFT_OUT.format(more=""))
    assert [t.name for t in design.treatments] == ["ALL", "ALL-mysql", "ALL-je", "ALL-cache"]
    assert design.baselines == {"": "ALL"}
    assert design.treatment("ALL-je").settings == {
        "server.innodb_buffer_pool_size": "1G", "server.table_open_cache": 4000,
    }  # fmt: skip
    fewer = build(LEFT_OUT.format(more='leave_out = ["mysql", "je"]\nbaseline = "NONE"'))
    assert [t.name for t in fewer.treatments] == ["NONE", "ALL", "ALL-mysql", "ALL-je"]
    with pytest.raises(PlanError, match="no bundle named 'x'"):
        build(LEFT_OUT.format(more='leave_out = ["mysql", "x"]'))
    with pytest.raises(PlanError, match="at least two bundles"):
        build(LEFT_OUT.format(more='leave_out = ["mysql"]'))


@pytest.mark.parametrize("hard", [["table_open_cache"], ["table_open_cache", "innodb_read_io_threads"]])
def test_hard_factors_change_no_more_often_than_they_must(hard: list[str]) -> None:
    factors = {
        "innodb_read_io_threads": [1, 2],
        "table_open_cache": [200, 400, 800],
        "max_connections": [1, 2],
    }
    text = plan_text(
        f'kind = "factorial"\nblocks = 30\nhard = {hard}\nbaseline = {baseline(factors)}', factors
    )
    design = build(text)
    levels = {t.name: t.levels for t in design.treatments}
    firsts, orders = set(), set()
    for block in range(1, 31):
        own = [levels[t.treatment] for t in design.trials if t.block == block]
        assert len(own) == 12 + 1
        groups = 1
        for name in hard:
            groups *= len(factors[name])
            runs = [
                key
                for key, _ in itertools.groupby(
                    tuple(c[f] for f in hard[: hard.index(name) + 1]) for c in own
                )
            ]
            assert len(runs) == len(set(runs)) == groups
        firsts.add(own[0]["table_open_cache"])
        orders.add(tuple(c["max_connections"] for c in own))
    assert len(firsts) == 3
    assert len(orders) > 20
    assert design.hard == hard


def test_a_design_keeps_its_hash() -> None:
    text = plan_text('kind = "factorial"\nbaseline = "200"', {"table_open_cache": [200, 400]})
    assert build(text).hash.startswith("54e4fb38596afeb6")


def test_a_design_that_needs_every_treatment_is_refused_without_root() -> None:
    factors = two_levels(3)
    text = plan_text(
        f'kind = "screening"\nbaseline = {baseline(factors)[:-1]}, swap = "60" }}',
        factors,
        '[factors.swap]\nknob = "host.vm.swappiness"\nlevels = [60, 1]\n[base]\n"host.vm.swappiness" = 60\n',
    )
    assert build(text).treatments
    with pytest.raises(PlanError, match="needs root"):
        build(text, is_root=False)


def test_more_combinations_than_can_be_looked_at_are_refused() -> None:
    factors = {name: list(range(100, 110)) for name in ("table_open_cache", "max_connections", "x", "y", "z")}
    with pytest.raises(PlanError, match="100000 combinations"):
        build(plan_text(f'kind = "factorial"\nbaseline = {baseline(factors)}', factors))


def test_the_pick_is_deterministic_and_never_twice() -> None:
    generator = np.random.default_rng(5)
    candidates = generator.normal(size=(40, 4))
    found = fractions.pick(candidates, 8, [3, 7], 2)
    assert found == fractions.pick(candidates, 8, [3, 7], 2)
    assert len(set(found)) == 8
    assert {3, 7} <= set(found)
    assert found == sorted(found)
