"""What whole factorials prove of their factors: found in any noise, claimed no further than it holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from headrace.experiment.stats import additive, claims, untold, whole
from headrace.experiment.stats.effects import Observation, analyse
from headrace.experiment.stats.estimate import Seen

ALPHA = 0.05
STUDIES = 500

PARTS = {
    "STOCK": {"FS": "without", "MYSQL": "without"},
    "FS": {"FS": "with", "MYSQL": "without"},
    "MYSQL": {"FS": "without", "MYSQL": "with"},
    "ALL": {"FS": "with", "MYSQL": "with"},
}
POOLS = {
    " ".join(cell): dict(zip(("fs", "pool"), cell, strict=True))
    for cell in itertools.product(("ext4", "xfs"), ("64M", "1G", "4G"))
}


@pytest.mark.parametrize("name", untold.NOISES)
@pytest.mark.parametrize("factors", [2, 3])
def test_three_blocks_find_a_factor_in_any_noise_and_claim_nothing_false(name: str, factors: int) -> None:
    noise = untold.NOISES[name]
    found = untold.judge(np.random.default_rng(11), noise, factors, STUDIES, 3, ALPHA)
    most = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / STUDIES)
    assert found.alarms / STUDIES <= most
    assert found.beside / STUDIES <= most
    if noise.noisy is None:
        assert found.found / STUDIES >= 0.90 - 3 * math.sqrt(0.9 * 0.1 / STUDIES)


def said(
    cells: Mapping[str, Mapping[str, str]],
    true: Callable[[Mapping[str, str]], float],
    deviation: float = 0.02,
    blocks: int = 3,
) -> list[str]:
    rng = np.random.default_rng(1)
    seen = [
        Seen(name, block, 7 + 0.1 * block + true(cell) + deviation * rng.normal())
        for block in range(blocks)
        for name, cell in [*list(cells.items())[:1], *cells.items()]
    ]
    means = [
        Observation(
            cell, float(np.mean([s.log for s in seen if (s.treatment, s.block) == (name, block)])), block
        )
        for name, cell in cells.items()
        for block in range(blocks)
    ]
    found = whole.fitted(seen, analyse(means).factors, cells)
    effects = whole.with_own_variances(analyse(means), found, ALPHA)
    return [claims.words(claim) for claim in whole.claimed(effects, found, ALPHA)]


def test_a_factor_that_works_everywhere_is_named_with_its_interval() -> None:
    assert said(PARTS, lambda cell: 0.8 * (cell["MYSQL"] == "with")) == [
        "MYSQL makes it 2.22 times as fast (2.17 to 2.27), whatever the rest."
    ]
    (slower,) = said(PARTS, lambda cell: -0.4 * (cell["MYSQL"] == "with"))
    assert slower.startswith("MYSQL makes it slower, 0.67 times as fast (0.65 to ")


def test_a_factor_that_needs_another_is_claimed_only_with_it() -> None:
    own = said(PARTS, lambda cell: 0.8 * (cell["MYSQL"] == cell["FS"] == "with"))
    assert len(own) == 2
    assert own[1].startswith("What MYSQL does depends on FS: not decided without FS; 2.")
    assert own[1].endswith(" with FS.")


def test_a_factor_that_gains_by_another_is_claimed_with_both_of_its_effects() -> None:
    *_, own = said(
        PARTS, lambda cell: 0.4 * (cell["MYSQL"] == "with") + 0.4 * (cell["MYSQL"] == cell["FS"] == "with")
    )
    assert own.startswith("MYSQL makes it faster, whatever the rest: 1.")
    assert " without FS; 2." in own


def test_a_level_is_compared_with_the_first_of_its_factor() -> None:
    gain = {"64M": 0.0, "1G": 0.5, "4G": 0.7}
    first, second = said(POOLS, lambda cell: gain[cell["pool"]])
    assert first.startswith("pool=1G makes it 1.6")
    assert "times as fast as pool=64M (" in second
    own = said(POOLS, lambda cell: gain[cell["pool"]] * (cell["fs"] == "xfs"))
    assert any(
        each.startswith("What pool=4G does depends on fs: not decided at fs=ext4; 1.99 ") for each in own
    )
    assert not any("whatever the rest" in each or "on average" in each for each in own)


def test_where_each_effect_is_not_proven_by_itself_the_claim_is_of_the_average() -> None:
    (own,) = said(PARTS, lambda cell: 0.45 * (cell["MYSQL"] == "with"), deviation=0.15)
    assert own.endswith("), on average over the rest.") or own.endswith("), whatever the rest.")
    assert own.startswith("MYSQL makes it 1.")


def test_copies_prove_nothing() -> None:
    """Equal to the last digit, trials show no noise, and so no certainty."""
    assert said(PARTS, lambda cell: 0.8 * (cell["MYSQL"] == "with"), deviation=0.0) == []


def test_too_few_trials_for_outliers_are_left_to_the_verdicts_estimator() -> None:
    cells = list(PARTS.values())
    factors = {"FS": ("without", "with"), "MYSQL": ("without", "with")}
    rows = additive.rows_of(factors, cells, with_pairs=True)
    seen = [Seen(name, block, 7.0 + block) for block in range(2) for name in PARTS]
    assert additive.fit_one(seen, list(PARTS), rows, whole.of_pairs(factors, cells)) is None


def test_a_treatment_that_alone_was_disturbed_is_left_to_the_verdicts_estimator() -> None:
    cells = list(PARTS.values())
    factors = {"FS": ("without", "with"), "MYSQL": ("without", "with")}
    rows = additive.rows_of(factors, cells, with_pairs=False)
    lost = {"STOCK": 0.3}
    seen = [Seen(name, block, 7.0 + block, lost.get(name, 0.0)) for block in range(5) for name in PARTS]
    assert additive.fit_one(seen, list(PARTS), rows, whole.of_levels(factors, cells)) is None
