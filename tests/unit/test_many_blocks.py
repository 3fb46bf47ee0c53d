"""Tables with thousands of blocks, and with blocks that compare nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace.experiment.stats import decision, effects
from headrace.experiment.stats.decision import Question, decide
from headrace.experiment.stats.effects import Effects, Observation, analyse
from tests.commands import headrace


def measured(blocks: int, seed: int, *, is_complete: bool = False) -> list[Observation]:
    """Two factors of two and three levels in each block, some trials missing, with a block's own level."""
    rng = np.random.default_rng(seed)
    found = []
    for block in range(blocks):
        shift = rng.normal(0, 0.3)
        for a in "xy":
            for b in "pqr":
                for _ in range(1 if is_complete else int(rng.integers(0, 4))):
                    log = 7 + shift + 0.1 * (a == "y") + 0.05 * (b == "q") + float(rng.normal(0, 0.05))
                    found.append(Observation({"a": a, "b": b}, log, block))
    return found


def close(one: Effects, other: Effects) -> None:
    assert one.error_degrees == other.error_degrees
    assert one.deviation == pytest.approx(other.deviation, rel=1e-6)
    for mine, theirs in zip(one.terms, other.terms, strict=True):
        assert (mine.term, mine.degrees) == (theirs.term, theirs.degrees)
        assert mine.p == pytest.approx(theirs.p, rel=1e-4)
    for level, same in zip(one.levels, other.levels, strict=True):
        assert level.mean == pytest.approx(same.mean, rel=1e-8)
        assert level.ratio.estimate == pytest.approx(same.ratio.estimate, rel=1e-8)
        assert (level.ratio.low or 1) == pytest.approx(same.ratio.low or 1, rel=1e-6)
    for contrast, its in zip(one.contrasts, other.contrasts, strict=True):
        assert contrast.ratio.estimate == pytest.approx(its.ratio.estimate, rel=1e-8)
    for own, by in zip(one.conditionals, other.conditionals, strict=True):
        assert dict(own.means) == pytest.approx(dict(by.means), rel=1e-8)
    sizes = [[s.size for s in each.singles] for each in (one, other)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_blocks_taken_out_by_their_means_are_the_same_as_columns(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    observations = measured(80, seed)
    assert len(observations) > effects.MOST_FOR_REST
    by_means = analyse(observations)
    monkeypatch.setattr(effects, "MOST_COLUMNS", 10_000)
    close(by_means, analyse(observations))


def test_a_factor_that_only_differs_between_blocks_is_unknown() -> None:
    rng = np.random.default_rng(1)
    observations = [
        Observation({"a": "xy"[block % 2], "b": b}, float(rng.normal()), block)
        for block in range(200)
        for b in "pqr"
    ]
    assert ("a", "y") in analyse(observations).unknown


def test_differences_over_many_blocks_agree_with_the_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    logs: dict[str, dict[int, float]] = {}
    for seen in measured(60, 5, is_complete=True):
        assert seen.block is not None
        logs.setdefault(" ".join(seen.levels.values()), {})[seen.block] = seen.log
    question = Question("tps", "", True, logs, True)
    whole = decision._pairs(question)
    monkeypatch.setattr(decision, "MOST_FITTED", 10)
    many = decision._pairs(question)
    assert many.mean == pytest.approx(whole.mean, abs=1e-9)
    others = ~np.eye(len(logs), dtype=bool)
    ratio = many.error[others] / whole.error[others]
    # The estimator lends variances.
    assert 0.6 < ratio.min() <= ratio.max() < 1.6
    assert decide([question], alpha=0.05, margin=0.03)


def test_25_000_lines_in_2_500_blocks_take_seconds(tmp_path: Path, seconds: Callable[[], float]) -> None:
    rng = np.random.default_rng(2)
    lines = [
        f"{block},{'xfs' if i % 2 else 'ext4'},{'a' if i % 4 < 2 else 'b'},"
        f"{1000 * (1 + 0.1 * (i % 2)) * math.exp(rng.normal(0, 0.02)):.3f}"
        for block in range(2500)
        for i in range(10)
    ]
    table = tmp_path / "t.csv"
    table.write_text("time,fs,mode,tps\n" + "\n".join(lines) + "\n")
    start = seconds()
    argv = (
        "import",
        str(table),
        "--factor",
        "fs",
        "--factor",
        "mode",
        "--response",
        "tps",
        "--block",
        "time",
    )
    done = headrace(*argv, "--json")
    assert done.returncode == 0, done.stderr
    assert seconds() - start < 10
    (study,) = json.loads(done.stdout)["studies"]
    assert study["observations"] == 25_000


@pytest.fixture
def seconds() -> Callable[[], float]:
    """Seconds of processor time of the children, which other work on the machine does not add to."""
    import resource

    def taken() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime + own.ru_utime + own.ru_stime

    return taken


@pytest.mark.parametrize(
    ("stamps", "said"),
    [
        ([*range(8)], "each time is there once, so that no two runs share one"),
        ([0, 0, 0, 0, 1, 1, 1, 1], "no time has two combinations of levels"),
        ([0, 1, 2, 3, 0, 1, 2, 7], "2 of 5 blocks (time) have one combination of levels only"),
    ],
)
def test_blocks_that_compare_nothing_are_said(tmp_path: Path, stamps: list[int], said: str) -> None:
    values = [1000, 1010, 1005, 1003, 900, 905, 903, 901]
    lines = [
        f"{stamp},{'xfs' if n < 4 else 'ext4'},{value}"
        for n, (stamp, value) in enumerate(zip(stamps, values, strict=True))
    ]
    table = tmp_path / "t.csv"
    table.write_text("time,fs,tps\n" + "\n".join(lines) + "\n")
    done = headrace("import", str(table), "--factor", "fs", "--response", "tps", "--block", "time")
    assert done.returncode == 0, done.stderr
    assert said in " ".join(done.stdout.split())
    assert ("xfs has the best tps" in " ".join(done.stdout.split())) == (stamps[4] != 1)
