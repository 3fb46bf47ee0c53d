"""What matters in experiments of several factors: folders whose effects we know, reports, false alarms."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from headrace.base.intervals import POWER
from headrace.base.model import Facts
from headrace.experiment import design as designs
from headrace.experiment import plan as plans
from headrace.experiment import report
from headrace.experiment.frozen import Design
from headrace.experiment.report import designs as outlooks
from headrace.experiment.stats import matters, whole
from headrace.experiment.stats.effects import Effects, Observation, analyse
from headrace.experiment.stats.factors import Study
from headrace.experiment.stats.study import analyse_experiment
from headrace.experiment.stats.trials import TrialResponse
from headrace.experiment.store import ExperimentFolder
from headrace.show import jsonform, terminal
from tests import browser, synthetic
from tests.commands import headrace
from tests.unit.test_designs import LEFT_OUT, baseline, build, plan_text, screening, two_levels
from tests.written import printed

Levels = Mapping[str, str]


def experiment(path: Path, design: Design, effect: Callable[[Levels], float]) -> ExperimentFolder:
    """The folder of a design whose trials all ran; ``effect`` is a treatment's throughput."""
    effects = {t.configuration: effect(t.levels) for t in design.treatments}
    shape = synthetic.Shape(
        effects=effects,
        conditions=tuple(design.baselines),
        seconds=12,
        kind=design.kind,
        sampled=False,
    )
    folder = ExperimentFolder.create(path, 'name = "t"\n', design)
    facts = Facts("f" * 64, synthetic.facts_of(shape))
    folder.save_facts(facts)
    for spec in design.trials:
        synthetic.write_trial(folder, shape, spec, facts.hash)
    return folder


POOL = {"innodb_io_capacity": [200, 400, 800], "table_open_cache": [100, 200]}
THREADS = '[factors.threads]\nknob = "workload.threads"\nlevels = [4, 8]\n'


def crossed(levels: Levels) -> float:
    """Capacity helps at a large cache alone."""
    if levels["table_open_cache"] == "100":
        return 1.0
    return {"200": 1.0, "400": 1.5, "800": 2.0}[levels["innodb_io_capacity"]]


@pytest.fixture(scope="module")
def factorial(tmp_path_factory: pytest.TempPathFactory) -> ExperimentFolder:
    text = plan_text(f'kind = "factorial"\nblocks = 4\nbaseline = {baseline(POOL)}', POOL, THREADS)
    return experiment(tmp_path_factory.mktemp("factorial") / "e", build(text), crossed)


@pytest.fixture(scope="module")
def screened(tmp_path_factory: pytest.TempPathFactory) -> ExperimentFolder:
    design = build(screening(7, 'resolution = "III"\nblocks = 3'))

    def effect(levels: Levels) -> float:
        return (1.6 if levels["innodb_purge_threads"] == "8" else 1.0) * (
            0.8 if levels["table_open_cache"] == "400" else 1.0
        )

    return experiment(tmp_path_factory.mktemp("screening") / "e", design, effect)


def study_of(folder: ExperimentFolder, response: str, condition: str = "") -> Study:
    found = analyse_experiment(folder).studies
    return next(s for s in found if s.response == response and s.condition == condition)


def test_each_condition_has_its_effects_and_its_interaction(factorial: ExperimentFolder) -> None:
    found = analyse_experiment(factorial).studies
    assert [(s.condition, s.response) for s in found] == [
        (condition, response)
        for condition in ("threads=4", "threads=8")
        for response in ("throughput", "p99_ms")
    ]
    for condition in ("threads=4", "threads=8"):
        # Levels in the plan's order, whatever the order of the trials.
        assert study_of(factorial, "throughput", condition).effects.factors["innodb_io_capacity"] == (
            "200", "400", "800",
        )  # fmt: skip
        study = study_of(factorial, "throughput", condition)
        assert study.effects.factors.keys() == {"innodb_io_capacity", "table_open_cache"}
        # The baseline's two trials of a block are one observation.
        assert study.effects.observations == 6 * 4
        assert study.effects.error == "repeats"
        assert study.effects.error_degrees == 5 * 3
        means = {(c.at, level): mean for c in study.effects.conditionals if c.factor == "innodb_io_capacity"
                 for level, mean in c.means.items()}  # fmt: skip
        assert means["200", "800"] / means["200", "200"] == pytest.approx(2.0, rel=0.05)
        assert means["100", "800"] / means["100", "200"] == pytest.approx(1.0, rel=0.05)
        pair = next(t for t in study.effects.terms if len(t.term) == 2)
        assert pair.p_holm is not None
        assert pair.p_holm < 0.001
    assert not study_of(factorial, "p99_ms", "threads=4").is_higher_better


def test_a_screening_finds_the_two_that_matter_and_says_what_they_may_be(screened: ExperimentFolder) -> None:
    study = study_of(screened, "throughput")
    assert [len(t.term) for t in study.effects.terms] == [1] * 7
    sure = {c.term[0] for c in study.effects.contrasts if (c.ratio.low or 0) > 1 or (c.ratio.high or 2) < 1}
    assert sure == {"innodb_purge_threads", "table_open_cache"}
    ratio = next(c.ratio for c in study.effects.contrasts if c.term == ("innodb_purge_threads",))
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 1.6 < ratio.high
    content = jsonform.render(report.of(screened))["factors"][0]
    assert len(content["confounded"]) == 7
    assert json.loads(json.dumps(content, allow_nan=False))


def test_an_experiment_of_one_factor_or_a_race_has_no_such_section(tmp_path: Path) -> None:
    steps = {"STOCK": 1.0, "KERNEL": 1.1, "KERN+MYSQL": 2.0, "ALL": 2.1}
    shape = synthetic.Shape(steps, seconds=12, sampled=False, blocks=2)
    folder = synthetic.make(tmp_path / "e", shape)
    assert analyse_experiment(folder).studies == ()
    assert "What matters" not in printed(terminal.render(report.of(folder)), width=100)


def test_a_leave_one_out_says_what_can_go(tmp_path: Path) -> None:
    rest = {"ALL": 1.0, "ALL-mysql": 0.4, "ALL-je": 1.0, "ALL-cache": 0.8}
    design = build(LEFT_OUT.format(more="blocks = 12"))
    folder = experiment(tmp_path / "e", design, lambda levels: rest[levels["configuration"]])
    found = analyse_experiment(folder)
    needed, rest_of_it = found.headline.split("; ", 1)
    assert needed.startswith("ALL needs mysql (0.40x without it), cache (0.80x")
    assert rest_of_it.startswith("je (1.00x without it) can go (equivalent within 3%).")
    assert found.studies == ()


def test_the_terminal_tells_the_sentences(factorial: ExperimentFolder) -> None:
    said = printed(terminal.render(report.of(factorial)), width=100)
    assert "What matters for throughput @ threads=4" in said
    assert "The effect of innodb_io_capacity on throughput depends on table_open_cache" in " ".join(
        said.split()
    )


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("name", ["factorial", "screened"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_has_its_section_in_a_browser(name: str, width: int, request: pytest.FixtureRequest) -> None:
    folder: ExperimentFolder = request.getfixturevalue(name)
    page = report.write(report.of(folder), folder)
    with browser.page() as tab:
        tab.look(width)
        tab.open(page)
        tab.scroll_through()
        assert tab.seen.errors == []
        assert tab.seen.network == []
        drawn = tab.evaluate(
            "[...document.querySelectorAll('#matters > div:not([hidden]) .plot')].filter(p => p.closest("
            "'[hidden]') === null).map(p => p.querySelectorAll('.main-svg').length)"
        )
        # Shares; the factorial's interaction, or the screening's contrasts and what sticks out of the noise.
        assert len(drawn) == {"factorial": 2, "screened": 3}[name]
        assert all(drawn)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


#: Of each chart of the result that has row names: those beside or above its rows.
ROW_NAMES = """[...document.querySelectorAll('#result .plot')].filter(p => p.offsetWidth).map(p =>
    [...p.querySelectorAll('.ytick text, .annotation-text')].map(t => t.textContent))"""


@pytest.mark.needs("chromium")
def test_on_a_narrow_page_each_configuration_can_be_told_from_the_others(tmp_path: Path) -> None:
    """Names that are too long beside their row were cut in the middle, where these differ."""
    factors = {
        "innodb_io_capacity": [100_000_000, 200_000_000],
        "innodb_lru_scan_depth": [4_000_000, 8_000_000],
        "table_open_cache": [500_000, 1_000_000],
    }
    design = build(plan_text(f'kind = "factorial"\nblocks = 2\nbaseline = {baseline(factors)}', factors))
    folder = experiment(tmp_path / "e", design, lambda _: 1.0)
    page = report.write(report.of(folder), folder)
    with browser.page() as tab:
        tab.look(400)
        tab.open(page)
        tab.scroll_through()
        charts = tab.evaluate(ROW_NAMES)
        # The factors' chart, the bars, the ratios.
        assert [len(set(names)) for names in charts] == [3, 8, 8]
        assert [len(names) for names in charts] == [3, 8, 8]
        # Nothing of the table is out of sight, and each number has its label.
        assert tab.evaluate("Math.max(...[...document.querySelectorAll('#table .stacked td')].map(e => "
                            "e.getBoundingClientRect().right)) <= innerWidth")  # fmt: skip
        labels = tab.evaluate("[...document.querySelector('#table .stacked tbody tr:last-child').cells].map("
                              "e => e.dataset.label)")  # fmt: skip
        assert labels[1:4] == ["operations/s", "throughput ratio", "interval"]
        assert tab.evaluate("document.querySelectorAll('#result .xerror').length") > 0


@pytest.mark.needs("chromium")
def test_no_interval_is_drawn_where_there_is_none(tmp_path: Path) -> None:
    """One of width 0 was, which looks like certainty."""
    folder = experiment(tmp_path / "e", build(screening(5, 'resolution = "III"\nblocks = 1')), lambda _: 1.0)
    page = report.write(report.of(folder), folder)
    with browser.page() as tab:
        tab.open(page)
        tab.scroll_through()
        assert (
            tab.evaluate("document.querySelectorAll('#result .bars .point, #result .scatter .point').length")
            > 0
        )
        assert tab.evaluate("document.querySelectorAll('#result .xerror').length") == 0


# --- Simulations: the error that a verdict rests on ---


def split_plot(
    generator: random.Random, blocks: int, between_set_ups: float, between_trials: float
) -> list[Observation]:
    """No effect at all: a kernel with two levels set up anew twice a block, four trials on each set-up."""
    found = []
    for block in range(blocks):
        common = generator.gauss(0, 0.05)
        for kernel in "ab":
            set_up = common + generator.gauss(0, between_set_ups)
            for i in range(4):
                levels = {"kernel": kernel, "x": str(i % 2), "y": str(i // 2)}
                found.append(Observation(levels, set_up + generator.gauss(0, between_trials), block))
    return found


def p_of(found: Effects, *term: str) -> float:
    value = next(t.p for t in found.terms if t.term == term)
    assert value is not None
    return value


@pytest.mark.slow
def test_set_ups_are_not_mistaken_for_effects() -> None:
    """A/A of a split plot: false alarms at most alpha (binomial error of 600 included); else far more."""
    generator = random.Random(6)
    alarms = {"kernel": 0, "x": 0, "taken for trials": 0}
    studies = 600
    for i in range(studies):
        seen = split_plot(generator, 4, 0.03, 0.01)
        found = analyse(seen, hard=["kernel"])
        alarms["kernel"] += p_of(found, "kernel") < 0.05
        alarms["x"] += p_of(found, "x") < 0.05
        if i < 150:
            alarms["taken for trials"] += p_of(analyse(seen), "kernel") < 0.05
    most = 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert alarms["kernel"] / studies <= most
    assert alarms["x"] / studies <= most
    assert alarms["taken for trials"] / 150 > 0.2


def test_a_balanced_split_plot_is_that_of_the_textbook() -> None:
    """F of the whole plots from their means: (b - 1)(a - 1) degrees of freedom."""
    seen = split_plot(random.Random(3), 5, 0.03, 0.01)
    found = analyse(seen, hard=["kernel"])
    assert [(s.factors, s.degrees) for s in found.strata] == [(("kernel",), 4)]
    means = {
        (b, k): sum(o.log for o in seen if o.block == b and o.levels["kernel"] == k) / 4
        for b in range(5)
        for k in "ab"
    }
    differences = [means[b, "b"] - means[b, "a"] for b in range(5)]
    center = sum(differences) / 5
    spread = math.sqrt(sum((d - center) ** 2 for d in differences) / 4 / 5)
    from scipy import stats

    assert p_of(found, "kernel") == pytest.approx(2 * stats.t.sf(abs(center) / spread, 4))
    level = next(e for e in found.levels if e.level == "b")
    assert level.ratio.low is not None
    half = stats.t.ppf(1 - 0.05 / 3 / 2, 4) * spread
    assert math.log(level.ratio.estimate / level.ratio.low) == pytest.approx(half)


def test_one_block_shows_nothing_of_set_ups() -> None:
    found = analyse(split_plot(random.Random(3), 1, 0.03, 0.01), hard=["kernel"])
    assert found.strata[0].degrees == 0
    assert next(t.p for t in found.terms if t.term == ("kernel",)) is None
    assert all(e.ratio.low is None for e in found.levels if e.factor == "kernel")


def test_a_level_that_was_never_measured_beside_the_first_is_not_compared() -> None:
    """No RAID has no chunk: nothing tells the one from the other."""
    cells = [("one", "none"), ("four", "64"), ("four", "256"), ("eight", "64"), ("eight", "256")]
    seen = [
        Observation({"disks": d, "chunk": c}, math.log(i + 1.0) + 0.01 * b, b)
        for b in range(3)
        for i, (d, c) in enumerate(cells)
    ]
    found = analyse(seen, pairs=[])
    assert set(found.unknown) == {("disks", "four"), ("disks", "eight"), ("chunk", "64"), ("chunk", "256")}
    assert {(e.factor, e.level) for e in found.levels} == {("disks", "one"), ("chunk", "none")}


@pytest.mark.slow
def test_lenth_raises_few_false_alarms() -> None:
    generator = random.Random(9)
    alarms = 0
    for _ in range(4000):
        logs = [generator.gauss(0, 0.02) for _ in range(11)]
        margin = matters.lenth_margin(logs)
        assert margin is not None
        alarms += max(map(abs, logs)) > margin
    assert alarms / 4000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)
    assert matters.lenth_margin([0.1] * 4) is None


def test_one_noisy_treatment_makes_no_factor_matter() -> None:
    """An F test finds one that matters in 12% of such experiments."""
    design = build(plan_text(f'kind = "factorial"\nblocks = 4\nbaseline = {baseline(POOL)}', POOL))
    generator = random.Random(3)
    spread = {t.name: 0.05 for t in design.treatments}
    spread[design.treatments[-1].name] *= 5
    alarms, most = {"ours": 0, "F": 0}, 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    for _ in range(200):
        trials = [
            TrialResponse(
                t.number, t.block, t.treatment, t.role, math.exp(generator.gauss(5, spread[t.treatment]))
            )
            for t in design.trials
        ]
        study = matters.studies(design.treatments, trials, kind="factorial")[0]
        alarms["ours"] += any((t.p_holm or 0) < 0.05 for t in study.effects.terms)
        seen = [
            Observation(t.levels, statistics.fmean(math.log(r.throughput_ops_s) for r in own), block)
            for t in design.treatments
            for block in range(1, 5)
            if (own := [r for r in trials if (r.treatment, r.block) == (t.name, block)])
        ]
        alarms["F"] += any((t.p_holm or 0) < 0.05 for t in analyse(seen).terms)
    assert alarms["ours"] / 200 <= most < alarms["F"] / 200


def test_the_p_value_of_a_factor_is_that_of_its_most_deviant_level(factorial: ExperimentFolder) -> None:
    """Two levels deviate by as much, so theirs is the p value of one against the other."""
    effects = study_of(factorial, "throughput", "threads=4").effects
    assert effects.has_own_variances
    (contrast,) = (c for c in effects.contrasts if c.term == ("table_open_cache",))
    two = next(t for t in effects.terms if t.term == ("table_open_cache",))
    assert two.p is not None
    assert two.p < 0.001
    assert contrast.ratio.low is not None
    assert contrast.ratio.low > 1
    assert 1 <= two.error_degrees < effects.error_degrees + 30
    levels = {"a": ("1", "2", "3"), "b": ("x", "y")}
    cells = [{"a": a, "b": b} for a in levels["a"] for b in levels["b"]]
    means = np.log([[2, 3], [2, 3], [4, 6]]).ravel()
    # Level 3 of a is 2 log(2) / 3 above the mean, the others half as much below; b adds the same everywhere.
    assert whole.deviations(("a",), levels, cells) @ means / 2 == pytest.approx(
        np.array([-1, -1, 2]) * math.log(2) / 3
    )
    assert whole.deviations(("b",), levels, cells) @ means / 3 == pytest.approx([-math.log(1.5) / 2])
    assert whole.deviations(("a", "b"), levels, cells) @ means == pytest.approx([0, 0, 0])


def found_share(design: Design, gain: float, factor: str, studies: int) -> float:
    """How often an effect of ``gain`` of a factor is told, trials spreading by 2%."""
    generator = random.Random(4)
    cells = [t.levels for t in design.treatments]
    hits = 0
    for _ in range(studies):
        seen: Sequence[Observation] = [
            Observation(
                cell,
                (math.log(gain) if cell[factor] == "8" else 0.0) + generator.gauss(0, 0.02),
                block,
            )
            for block in range(design.blocks)
            for cell in cells
        ]
        found = analyse(seen, pairs=[])
        ratio = next(e.ratio for e in found.levels if e.factor == factor and e.level == "8")
        assert ratio.low is not None
        hits += ratio.low > 1
    return hits / studies


@pytest.mark.slow
def test_what_plan_show_promises_is_found_as_often_as_it_says() -> None:
    design = build(screening(5, 'resolution = "III"\nblocks = 3'))
    outlook = outlooks.outlook(design, 0.02)
    detectable = next(d for d in outlook.factors if d.what == "innodb_read_io_threads")
    assert detectable.ratio is not None
    assert detectable.degrees == 7 * 2
    share = found_share(design, detectable.ratio, "innodb_read_io_threads", 300)
    assert share == pytest.approx(POWER, abs=3 * math.sqrt(0.16 / 300))


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2, 3, 5])
def test_in_a_whole_factorial_too(blocks: int) -> None:
    """There treatments have variances of their own; with two blocks 1 in 3 were found, not 4 in 5."""
    design = build(plan_text(f'kind = "factorial"\nblocks = {blocks}\nbaseline = {baseline(POOL)}', POOL))
    promised = next(d for d in outlooks.outlook(design, 0.02).factors if d.what == "table_open_cache")
    assert promised.ratio is not None
    generator, hits = random.Random(5), 0
    gains = {
        t.name: promised.ratio if t.levels["table_open_cache"] == "200" else 1 for t in design.treatments
    }
    for _ in range(300):
        trials = [
            TrialResponse(
                t.number,
                t.block,
                t.treatment,
                t.role,
                gains[t.treatment] * math.exp(generator.gauss(5, 0.02)),
            )
            for t in design.trials
        ]
        study = matters.studies(design.treatments, trials, kind="factorial")[0]
        level = next(e for e in study.effects.levels if (e.factor, e.level) == ("table_open_cache", "200"))
        hits += (level.ratio.low or 0) > 1
    assert hits / 300 == pytest.approx(POWER, abs=3 * math.sqrt(0.16 / 300))


@pytest.mark.parametrize("blocks", [3, 5])
def test_a_treatment_against_the_baseline_too(blocks: int) -> None:
    """As the verdicts judge it: one fit of all trials, the baseline twice in a block."""
    from headrace.experiment.stats import estimate

    design = build(screening(4, f"blocks = {blocks}"))
    found = outlooks.outlook(design, 0.02).baseline
    assert found is not None
    assert found.ratio is not None
    count, studies = len(design.treatments), 2000
    codes = np.tile([0, *range(count)], blocks)
    y = np.random.default_rng(8).normal(0, 0.02, (studies, len(codes)))
    y[:, codes == 1] += math.log(found.ratio)
    fit = estimate.fit(
        y, np.zeros(y.shape), np.ones(y.shape, dtype=bool), codes, np.repeat(np.arange(blocks), count + 1)
    )
    contrast = fit.contrasts((np.eye(count)[1] - np.eye(count)[0])[None])
    low = contrast.estimate - contrast.half_width(0.05 / (count - 1) / 2)
    # The promise is simulated, too, by fewer studies.
    assert (low > 0).mean() == pytest.approx(POWER, abs=0.04)


def test_what_differs_by_the_margin_is_rarely_called_equivalent() -> None:
    """TOST: at a true ratio on the margin's edge at most half of alpha, at a true 1 nearly always."""
    from headrace.base import intervals
    from headrace.base.effect import Verdict
    from headrace.experiment.stats import compare

    generator = random.Random(12)

    def share(ratio: float) -> float:
        hits = 0
        for _ in range(3000):
            logs = {block: math.log(ratio) + generator.gauss(0, 0.01) for block in range(5)}
            found = compare.verdict("throughput", intervals.geometric(logs, 0.05), 0.03)
            hits += found is Verdict.EQUIVALENT
        return hits / 3000

    for edge in (1.03, 1 / 1.03):
        assert share(edge) <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 3000)
    assert share(1.0) > 0.9


def test_plan_show_tells_of_set_ups_confounding_and_one_block() -> None:
    factors = two_levels(5)
    text = plan_text(
        'kind = "screening"\nresolution = "IV"\nblocks = 1\nhard = ["table_open_cache"]\n'
        f"baseline = {baseline(factors)}",
        factors,
    )
    outlook = outlooks.outlook(build(text), 0.02)
    assert outlook.plots == {"table_open_cache": 2}
    said = printed(outlooks.terminal(outlook), width=120)
    assert "table_open_cache is hard to change: 2 set-ups per block" in said
    assert "One block" in said
    assert "Resolution" in said
    content = outlooks.to_json(outlook)
    assert json.loads(json.dumps(content, allow_nan=False))
    assert all(d["ratio"] is None for d in content["factors"])


def test_the_command_prints_it_and_its_json() -> None:
    answer = headrace("plan", "show", "screening", "--sd", "0.05")
    assert answer.returncode == 0, answer.stderr
    assert "pool is confounded with log x neighbors" in " ".join(answer.stdout.split())
    small, large = (
        json.loads(headrace("plan", "show", "screening", "--sd", sd, "--json").stdout)["outlook"]
        for sd in ("0.02", "0.05")
    )
    assert small["sd"] == 0.02
    assert 1 < small["factors"][0]["ratio"] < large["factors"][0]["ratio"]
    assert small["aliasing"]["resolution"] == 3


def test_the_example_is_a_screening_of_seven_in_eight_runs() -> None:
    path = Path(report.__file__).parents[2] / "examples" / "screening.toml"
    design = designs.build(plans.load(path).plan, place=str(path))
    outlook = outlooks.outlook(design, 0.02)
    assert outlook.aliasing is not None
    assert (outlook.aliasing.runs, outlook.aliasing.resolution) == (8, 3)


def test_contrasts_that_are_equal_to_the_last_digit_show_no_noise() -> None:
    assert matters.lenth_margin([0.0, 0.0, 0.0, 0.0, 0.01, 0.02, 0.0]) is None
    assert matters.lenth_margin([0.001, -0.002, 0.001, 0.002, 0.01, 0.02, 0.0]) is not None
