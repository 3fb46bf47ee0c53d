"""Series over versions: changes found where they are, hardly any where none is, and the command's exit code."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import signal

from headrace.base import intervals
from headrace.base.effect import Verdict
from headrace.base.model import Role
from headrace.experiment.stats import audit
from headrace.experiment.stats.history import Change, History, Point, watch
from headrace.experiment.stats.trials import TrialResponse
from tests.commands import headrace
from tests.json_numbers import numbers_as_text
from tests.synthetic import Shape, make

ALPHA = 0.05
BETWEEN_TRIALS = 0.02


def measured(
    rng: np.random.Generator, levels: Sequence[float], trials: int = 3, seconds: int = 60
) -> list[Point]:
    """Trials whose seconds are autocorrelated by 0.9, off by 2% from trial to trial, around each point's level."""
    shocks = rng.normal(0, 0.1 * math.sqrt(1 - 0.9**2), (len(levels), trials, seconds + 50))
    means = 1 + signal.lfilter([1], [1, -0.9], shocks, axis=-1)[..., 50:].mean(axis=-1)
    logs = np.log(means) + rng.normal(0, BETWEEN_TRIALS, means.shape) + np.array(levels)[:, None]
    return [Point(f"v{i}", tuple(map(float, row))) for i, row in enumerate(logs)]


@pytest.mark.parametrize("length", [8, 20])
def test_a_steady_series_raises_hardly_any_alarm(length: int) -> None:
    rng = np.random.default_rng(length)
    studies = 150
    alarms = sum(bool(watch(measured(rng, [0.0] * length, trials=1)).changes) for _ in range(studies))
    assert alarms / studies <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / studies)


def carried(rng: np.random.Generator, length: int, share: float) -> list[Point]:
    """A steady level with noise of 1 that carries ``share`` over from point to point."""
    noise = signal.lfilter([1], [1, -share], rng.normal(size=length + 50))[50:]
    return [Point(str(i), (float(value),)) for i, value in enumerate(noise)]


def growing(rng: np.random.Generator, length: int) -> list[Point]:
    scales = np.linspace(1, 5, length)
    return [Point(str(i), (float(value),)) for i, value in enumerate(rng.normal(size=length) * scales)]


@pytest.mark.parametrize("length", [12, 30])
@pytest.mark.parametrize("share", [0.5, 0.7, None])
def test_noise_that_carries_over_or_grows_is_no_change(share: float | None, length: int) -> None:
    """Random orders of the points raise alarms in 14% to 55% of such series."""
    rng = np.random.default_rng(length)
    studies = 100
    series = (growing(rng, length) if share is None else carried(rng, length, share) for _ in range(studies))
    alarms = sum(bool(watch(points).changes) for points in series)
    assert alarms / studies <= 0.07 + 3 * math.sqrt(0.07 * 0.93 / studies)


def test_a_level_that_came_and_went_is_two_changes() -> None:
    rng = np.random.default_rng(8)
    found = [watch(measured(rng, [0.0] * 10 + [-0.3] * 6 + [0.0] * 10)).changes for _ in range(10)]
    assert sum([c.at for c in changes] == [10, 16] for changes in found) >= 8
    verdicts = {tuple(c.verdict for c in changes) for changes in found if len(changes) == 2}
    assert verdicts == {(Verdict.WORSE, Verdict.BETTER)}


@pytest.mark.parametrize("seed", range(8, 28))
def test_a_long_series_is_searched_everywhere(seed: int) -> None:
    """A false second change stood up to 56 points behind the step in 2 of 10: the step was moved to its place
    after the test, which had seen a few points at a wrong level.
    """
    rng = np.random.default_rng(seed)
    found = watch(measured(rng, [0.0] * 301 + [-0.2] * 100, trials=1))
    assert [abs(c.at - 301) <= 1 for c in found.changes] == [True]


@pytest.mark.parametrize(("ratio", "is_independent"), [(0.8, False), (0.9, True)])
def test_a_step_is_found_where_it_is(ratio: float, is_independent: bool) -> None:
    """Where points may carry noise over, a step must be twice as large to stand out in 18 of them."""
    rng = np.random.default_rng(2)
    right = 0
    for _ in range(40):
        points = measured(rng, [0.0] * 10 + [math.log(ratio)] * 8)
        found = watch(points, is_independent=is_independent)
        right += any(abs(c.at - 10) <= 1 for c in found.changes)
        assert all(c.ratio.low is not None and c.ratio.high is not None for c in found.changes)
    assert right / 40 > 0.9


def test_two_steps_and_their_verdicts() -> None:
    rng = np.random.default_rng(3)
    found = watch(measured(rng, [0.0] * 10 + [0.2] * 10 + [-0.1] * 10))
    assert [c.at for c in found.changes] == [10, 20]
    assert [c.verdict for c in found.changes] == [Verdict.BETTER, Verdict.WORSE]
    assert found.segments == [(0, 10), (10, 20), (20, 30)]
    assert 0.005 < found.noise < 0.04
    slower = watch(measured(rng, [0.0] * 10 + [0.2] * 10), is_higher_better=False)
    assert slower.changes[0].verdict is Verdict.WORSE


def test_a_change_too_small_to_matter_says_so() -> None:
    rng = np.random.default_rng(4)
    points = [Point(str(i), (0.005 * (i >= 15) + rng.normal(0, 0.0005),)) for i in range(30)]
    assert [c.verdict for c in watch(points, margin=0.03).changes] == [Verdict.EQUIVALENT]


def test_a_verdict_and_its_interval_agree() -> None:
    """Two points of a new level are a change, but their interval often included 1 beside the word "worse"."""
    found: list[Change] = []
    for seed in range(10):
        values = np.random.default_rng(seed).normal(0, 0.02, 20)
        values[18:] -= 0.15
        found += watch([Point(str(i), (float(v),)) for i, v in enumerate(values)]).changes
    open_ones = [c for c in found if c.ratio.low and c.ratio.high and c.ratio.low <= 1 <= c.ratio.high]
    assert open_ones
    assert {c.verdict for c in open_ones} == {Verdict.NOT_ENOUGH_DATA}
    for change in found:
        if change.verdict is Verdict.WORSE:
            assert change.ratio.high is not None
            assert change.ratio.high < 1


def test_too_few_points_tell_nothing() -> None:
    points = [Point(str(i), (float(i // 3),)) for i in range(7)]
    assert watch(points).changes == ()
    assert watch(points[:1]).changes == ()
    assert watch([Point("same", (1.0,))] * 20).changes == ()


def test_one_wild_point_is_no_level() -> None:
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(100):
        points = measured(rng, [0.0] * 12)
        points[5] = Point("wild", (-0.3,))
        alarms += any(
            c.at in (5, 6) and c.verdict is Verdict.WORSE and c.p < 0.01 for c in watch(points).changes
        )
    assert alarms < 10


def same(a: History, b: History) -> bool:
    return [(c.at, c.p) for c in a.changes] == [(c.at, c.p) for c in b.changes]


def test_the_same_series_gives_the_same_answer() -> None:
    points = measured(np.random.default_rng(6), [0.0] * 10 + [0.1] * 10)
    assert same(watch(points), watch(points))


# The commands.


def csv_of(path: Path, points: Sequence[Point]) -> Path:
    rows = [f"{p.name},{math.exp(log):.3f}" for p in points for log in p.logs]
    path.write_text("version,tps\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(("step", "code"), [(-0.2, 13), (0.2, 0), (0.0, 0)])
def test_a_script_is_told_by_the_exit_code(tmp_path: Path, step: float, code: int) -> None:
    points = measured(np.random.default_rng(12), [7.0] * 8 + [7.0 + step] * 8)
    file = csv_of(tmp_path / "t.csv", points)
    found = headrace("watch", str(file), "--response", "tps")
    assert found.returncode == code, found.stderr
    said = " ".join(found.stdout.split())
    assert ("No change in 16 points" in said) == (step == 0)
    if step:
        content = json.loads(headrace("watch", str(file), "--response", "tps", "--json").stdout)
        assert content["changes"][0]["name"] == "v8"


def test_experiments_are_points(tmp_path: Path) -> None:
    folders = []
    for i in range(8):
        shape = Shape(
            effects={"STOCK": 1.0, "X": 1.2}, blocks=2, seed=i, base_ops_s=4000.0 if i < 4 else 2500.0
        )
        folders.append(str(make(tmp_path / f"day{i}", shape).path))
    found = headrace("watch", *folders)
    assert found.returncode == 13, found.stderr + found.stdout
    assert "the last at day4" in " ".join(found.stdout.split())
    wrong = headrace("watch", *folders, "--treatment", "Y")
    assert (wrong.returncode, "there are: STOCK, X" in wrong.stderr) == (3, True)
    assert "p98" in headrace("watch", *folders, "--response", "p98").stderr


def test_trials_that_may_be_the_slow_ones_are_not_left_out_silently(tmp_path: Path) -> None:
    """A night whose trials partly failed passed as one without a change."""
    folders = []
    for i in range(9):
        failed = {1: "the server died", 2: "the server died", 4: "the server died"} if i == 8 else {}
        shape = Shape(effects={"STOCK": 1.0, "X": 1.2}, blocks=3, seed=i, failed=failed)
        folders.append(str(make(tmp_path / f"day{i}", shape).path))
    found = headrace("watch", *folders)
    said = " ".join(found.stdout.split())
    assert found.returncode == 15, found.stderr + found.stdout
    assert "which may be the slow ones: day8 (" in said
    assert "the server died). So day8 may be worse than it looks." in said
    assert headrace("watch", *folders[:8]).returncode == 0
    # An earlier night is named, and decides nothing.
    later = headrace("watch", folders[8], *folders[:8])
    assert (later.returncode, "day8 (" in later.stdout) == (0, True)


def test_empty_cells_of_a_table_are_not_left_out_silently(tmp_path: Path) -> None:
    file = csv_of(tmp_path / "t.csv", measured(np.random.default_rng(12), [7.0] * 10))
    file.write_text(f"{file.read_text()}v9,\n")
    found = headrace("watch", str(file), "--response", "tps")
    assert found.returncode == 15, found.stderr + found.stdout
    assert "no tps in line" in found.stderr
    assert "So v9 may be worse than it looks." in " ".join(found.stdout.split())
    file.write_text(f"{file.read_text()}v10,\n")
    none = headrace("watch", str(file), "--response", "tps")
    assert (none.returncode, "the latest, v10, has no tps" in none.stderr) == (10, True)


def test_an_experiment_without_trials_is_nothing_measured(tmp_path: Path) -> None:
    shape = Shape(effects={"STOCK": 1.0, "X": 1.2}, blocks=1, unfinished=3)
    empty = str(make(tmp_path / "empty", shape).path)
    for words in (("watch", empty, empty), ("report", "--self-check", empty)):
        found = headrace(*words)
        assert (found.returncode, found.stdout) == (10, ""), found.stderr


@pytest.mark.slow
def test_the_audit_holds_here_and_on_an_experiment(tmp_path: Path) -> None:
    simulated = headrace("report", "--self-check", "--studies", "100", "--json")
    assert simulated.returncode == 0, simulated.stderr
    # What a rate is of is a text.
    assert [text for text in numbers_as_text(json.loads(simulated.stdout)) if ".detail" not in text] == []
    rates = json.loads(simulated.stdout)["rates"]
    assert {rate["what"].partition(":")[0] for rate in rates} == {
        "run", "choice", "compare", "power", "intervals", "effects", "factors", "power of a factor", "race",
        "until decided", "switchback", "watch"
    }  # fmt: skip
    assert all(rate["holds"] for rate in rates)
    folder = make(tmp_path / "e", Shape(blocks=8)).path
    own = headrace("report", "--self-check", str(folder), "--json")
    assert own.returncode == 0, own.stderr
    (throughput, *_) = json.loads(own.stdout)["rates"]
    assert throughput["studies"] == 2**8


def test_an_audit_finds_a_test_that_cries_wolf() -> None:
    assert not audit.Rate("broken", 2000, 200, 0.05).holds
    assert audit.Rate("sound", 2000, 110, 0.05).holds
    assert not audit.Rate("blind", 2000, 1500, 0.05, least=0.85).holds


def pairs(ratios: Sequence[float]) -> list[TrialResponse]:
    """The two baseline trials of each block, with these log ratios."""
    return [
        TrialResponse(2 * block + place, block, "STOCK", role, 1000 * math.exp(place * ratio))
        for block, ratio in enumerate(ratios)
        for place, role in enumerate((Role.BASELINE, Role.REPEAT))
    ]


@pytest.mark.parametrize("ratios", [[0.0100, 0.0101], [0.01] * 11])
def test_swaps_of_the_same_few_pairs_are_not_as_many_studies(ratios: list[float]) -> None:
    """Half of two alike pairs' swaps exclude 1, and 6.5% of eleven's; as many independent studies rarely do."""
    found = audit.of_pairs("throughput", pairs(ratios))
    assert found is not None
    assert found.rate > 0.05 + 3 * math.sqrt(0.05 * 0.95 / found.studies)
    assert found.holds


def test_the_audit_of_an_experiment_rarely_ends_wrongly() -> None:
    rng = np.random.default_rng(3)
    for count in (2, 3, 5, 8, 15):
        found = [audit.of_pairs("throughput", pairs(list(rng.normal(0, 0.02, count)))) for _ in range(100)]
        assert sum(not rate.holds for rate in found if rate) <= 1


def test_an_audit_of_pairs_counts_what_their_intervals_say() -> None:
    ratios = [0.011, -0.004, 0.009, 0.013, 0.002, 0.008]
    wrong = 0
    for signs in itertools.product((1, -1), repeat=len(ratios)):
        ratio = intervals.geometric(
            {i: s * r for i, (s, r) in enumerate(zip(signs, ratios, strict=True))}, 0.05
        )
        assert ratio.low is not None
        assert ratio.high is not None
        wrong += not ratio.low <= 1 <= ratio.high
    found = audit.of_pairs("throughput", pairs(ratios))
    assert found is not None
    assert (found.alarms, found.studies) == (wrong, 64)


def stepped(
    rng: np.random.Generator, length: int, steps: dict[int, float], noise: float = 0.02
) -> list[Point]:
    """Levels that change by these ratios, with independent noise."""
    values = rng.normal(0, noise, length)
    for at, ratio in steps.items():
        values[at:] += math.log(ratio)
    return [Point(f"v{i}", (float(value),)) for i, value in enumerate(values)]


def test_three_steps_are_three_changes() -> None:
    """Each hid in a test of one or two changes of the whole series: "No change" in 20 of 30."""
    right = 0
    for seed in range(4):
        points = stepped(np.random.default_rng(seed), 120, {25: 0.92, 60: 1.12, 100: 0.9})
        at = [c.at for c in watch(points).changes]
        right += len(at) == 3 and all(abs(a - b) <= 2 for a, b in zip(at, (25, 60, 100), strict=True))
    assert right >= 3


@pytest.mark.parametrize("away", [-6, -1, 1])
def test_an_outlier_is_named_and_does_not_take_the_place_of_a_step(away: int) -> None:
    right = 0
    for seed in range(4):
        points = stepped(np.random.default_rng(seed), 60, {30: 0.9})
        wild = points[30 + away]
        points[30 + away] = Point(wild.name, (wild.log - 0.5,))
        found = watch(points)
        right += any(abs(c.at - 30) <= 2 for c in found.changes)
        assert [each.at for each in found.outliers] == [30 + away]
        assert found.outliers[0].ratio < 0.8
    assert right == 4


def test_one_outlier_is_no_change() -> None:
    alarms = 0
    for seed in range(10):
        points = stepped(np.random.default_rng(seed), 40, {})
        points[20] = Point("wild", (0.4,))
        found = watch(points)
        alarms += bool(found.changes)
        assert [each.name for each in found.outliers] == ["wild"]
    assert alarms <= 3


def test_a_step_is_seen_after_three_points() -> None:
    seen = 0
    for seed in range(10):
        found = watch(stepped(np.random.default_rng(seed), 40, {37: 0.9}))
        seen += any(abs(c.at - 37) <= 2 for c in found.changes)
    assert seen >= 8


def test_a_report_says_outliers(tmp_path: Path) -> None:
    points = stepped(np.random.default_rng(1), 20, {})
    points = [Point(p.name, (p.log + 7,)) for p in points]
    points[9] = Point("v9", (6.0,))
    file = csv_of(tmp_path / "t.csv", points)
    found = headrace("watch", str(file), "--response", "tps")
    assert (found.returncode, "No change in 20 points" in found.stdout) == (0, True)
    assert "An outlier, no change: v9" in " ".join(found.stdout.split())
    content = json.loads(headrace("watch", str(file), "--response", "tps", "--json").stdout)
    assert [each["name"] for each in content["outliers"]] == ["v9"]


@pytest.mark.parametrize("seed", [1, 8, 20, 23])
def test_a_stair_that_is_certainly_there_is_never_no_change(seed: int) -> None:
    """Each step was compared with a bound for all three, and where one failed none was named."""
    rng = np.random.default_rng(seed)
    values = 0.02 * rng.normal(size=40)
    for at in (10, 20, 30):
        values[at:] -= 0.06
    found = [change.at for change in watch([Point(str(i), (v,)) for i, v in enumerate(values)]).changes]
    assert len(found) == 3
    assert all(abs(at - true) <= 1 for at, true in zip(found, (10, 20, 30), strict=True))
