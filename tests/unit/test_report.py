"""Reports of generated experiments whose truth we know: the page, its series, the terminal table and the JSON."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from rich.console import Console

from headrace import arrow, buckets, report, store
from headrace.analysis.intervals import Interval
from headrace.analysis.result import Analysis, Comparison
from headrace.analysis.study import analyse_experiment
from headrace.experiment.runner import Note, Step, TrialEnded, TrialStarted
from headrace.model import Role, TrialSpec, TrialState
from headrace.report import charts, html, jsonform, progress, terminal, text, views
from headrace.report.experiment import evidence, series, tables
from headrace.report.experiment import page as experiment_page
from headrace.report.experiment.machine import heat_tops
from headrace.report.experiment.page import page_of
from headrace.report.experiment.series import Grid
from headrace.report.experiment.view import View
from headrace.store import ExperimentFolder
from tests import browser, synthetic

NEEDS_BROWSER = pytest.mark.needs("chromium")

LADDER = synthetic.Shape(
    invalid={9: "an array was resyncing"},
    failed={14: "the server did not start: unknown variable"},
    warnings={3: "no steady state", 4: "no steady state"},
    gap_trial=2,
    reset_trial=1,
)
HOSTILE = synthetic.Shape(
    effects={synthetic.HOSTILE: 1.0, f"{synthetic.HOSTILE}2": 1.3},
    blocks=3,
    seconds=8,
    invalid={2: synthetic.HOSTILE},
    failed={4: synthetic.HOSTILE},
    warnings={1: synthetic.HOSTILE},
    description=synthetic.HOSTILE,
    hostname=synthetic.HOSTILE,
)


class Written:
    """An experiment with its report written."""

    def __init__(self, path: Path, shape: synthetic.Shape) -> None:
        self.folder = synthetic.make(path, shape)
        self.analysis = analyse_experiment(self.folder)
        self.report = page_of(View(self.folder, self.analysis))
        self.page = report.write(self.report, self.folder)
        self.html = self.page.read_text(encoding="utf-8")
        self.json = json.loads((path / "report.json").read_text())


@pytest.fixture(scope="session")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("report") / "ladder", LADDER)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("report") / "hostile", HOSTILE)


def gathered(written: Written) -> evidence.Evidence:
    return View(written.folder, written.analysis).evidence


class Outline(HTMLParser):
    """A page's elements, its text, and the content of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.in_script = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.in_script = True
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.in_script = self.in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self.in_script:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def figures(self) -> dict[str, Any]:
        return {str(a["id"]): json.loads(content) for a, content in self.scripts if a.get("type")}


def test_the_page_has_the_verdict_and_every_treatment_and_trial(ladder: Written) -> None:
    outline = Outline(ladder.html)
    assert ladder.analysis.headline in outline.text
    for name in synthetic.LADDER:
        assert name in outline.text
    rows = [attrs.get("class") for tag, attrs in outline.tags if tag == "tr"]
    assert (rows.count("complete"), rows.count("invalid"), rows.count("failed")) == (43, 1, 1)
    assert "an array was resyncing" in outline.text
    assert "the server did not start: unknown variable" in outline.text
    assert "no steady state trials 3, 4" in outline.text
    assert "Generated CPU" in outline.text
    assert f"Every comparison ({len(ladder.analysis.effects)})" in outline.text
    ids = [attrs.get("id") for tag, attrs in outline.tags if tag == "section"]
    assert ids == [
        "result", "table", "settle", "choice", "matters", "time", "latency", "machine", "configuration", "host",
        "trials", "adopt", "method",
    ]  # fmt: skip


def test_every_place_for_a_chart_has_its_figure_and_every_figure_a_place(ladder: Written) -> None:
    outline = Outline(ladder.html)
    places = {attrs["data-figure"] for _, attrs in outline.tags if "data-figure" in attrs}
    choices = {attrs["value"] for tag, attrs in outline.tags if tag == "option"}
    assert places | choices == set(outline.figures())
    # 8 treatments: pace, heat map, strips; 6 of the ladder, the distribution and the drift; 10 of its parts.
    assert len(outline.figures()) == 3 * 8 + 6 + 2 + 3 + 10


def test_differences_show_only_what_differs(ladder: Written) -> None:
    found = tables.differences(ladder.folder.design, ladder.folder.trials())
    assert "volume.filesystem" not in found.cells
    pool = found.cells["server.innodb_buffer_pool_size"]
    assert pool["STOCK"] == ("128M", False)  # the original that a trial found before it changed it
    assert pool["MYSQL"] == ("1G", True)
    assert found.cells["server.allocator"]["KERNEL"] == ("default", False)


def test_hostile_text_is_shown_and_never_read(hostile: Written) -> None:
    outline = Outline(hostile.html)
    assert "onerror=alert(1)" in outline.text
    assert not [attrs for _, attrs in outline.tags if "onerror" in attrs or attrs.get("src")]
    assert not [tag for tag, _ in outline.tags if tag == "img"]
    assert len([attrs for attrs, _ in outline.scripts if not attrs.get("type")]) == 2
    for character in ("\x1b", "\x07", "\u202e"):
        assert character not in hostile.html.partition("<script")[0]
    figures = json.dumps(outline.figures())
    assert "&lt;/script&gt;" in figures
    assert "<img" not in figures


def test_no_script_element_can_be_ended_from_within() -> None:
    dumped = html.dump({"x": "</script><!--&", "y": Markup("<b>&amp;</b>")})
    assert not set("<>&") & set(dumped)
    assert json.loads(dumped) == {"x": "&lt;/script&gt;&lt;!--&amp;", "y": "<b>&amp;</b>"}


@pytest.mark.parametrize("which", ["ladder", "hostile"])
def test_nothing_in_the_page_points_outside(which: str, request: pytest.FixtureRequest) -> None:
    outline = Outline(request.getfixturevalue(which).html)
    for tag, attrs in outline.tags:
        for name in ("src", "href", "action", "srcset", "poster", "data"):
            link = attrs.get(name)
            assert link is None or link.startswith(("#", "data:")), f"{tag} {name}={link}"
    style = request.getfixturevalue(which).html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_allows_exactly_the_pages_scripts_and_no_connection(ladder: Written) -> None:
    outline = Outline(ladder.html)
    policy = next(a["content"] for t, a in outline.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    scripts = [content for attrs, content in outline.scripts if not attrs.get("type")]
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert allowed == hashes
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_a_report_says_which_one_to_take(ladder: Written) -> None:
    choice = ladder.json["choice"]
    throughput, p99 = choice["best"]
    assert (throughput["response"], throughput["leader"], throughput["certainty"]) == (
        "throughput",
        "ALL",
        "sure",
    )
    assert p99["response"] == "p99_ms"
    first, second = throughput["candidates"][:2]
    assert first["kept"]["estimate"] == 1
    assert second["kept"]["low"] <= second["mean"] / first["mean"] <= second["kept"]["high"] < 1
    assert choice["fronts"][0]["members"][0] == "ALL"
    assert choice["robust"] == []
    assert "ALL has the best throughput; " in " ".join(shown(ladder, 200).split())
    assert "ALL has the best throughput; " in " ".join(Outline(ladder.html).text.split())


def test_json_has_the_documented_form(ladder: Written) -> None:
    found = ladder.json
    assert set(found) == {
        "format", "headrace", "experiment", "headline", "treatments", "effects", "noise", "trials",
        "cautions", "planned_trials", "versions", "factors", "choice", "duet", "switchback", "machines",
        "adopt", "notice",
    }  # fmt: skip
    assert found["format"] == 1
    assert found == json.loads(json.dumps(jsonform.render(ladder.report)))
    assert [t["treatment"] for t in found["treatments"]] == list(synthetic.LADDER)
    best = next(e for e in found["effects"] if e["treatment"] == "ALL" and e["response"] == "throughput")
    assert best["verdict"] == "better"
    assert best["ratio"]["low"] < 3.4 < best["ratio"]["high"]
    assert best["noise_floor"] > 0
    states = {t["number"]: t["state"] for t in found["trials"]}
    assert (states[9], states[14], len(states)) == ("invalid", "failed", 45)
    assert next(t for t in found["trials"] if t["number"] == 14)["throughput_ops_s"] is None
    documented = set(re.findall(r"^    (\w+)", experiment_page.__doc__ or "", flags=re.MULTILINE))
    assert documented == set(found)


def test_numbers_that_do_not_exist_are_null(ladder: Written) -> None:
    broken = replace(
        ladder.analysis.summaries[0],
        throughput_ops_s=Interval(math.nan, -math.inf, math.inf),
    )
    analysis = replace(ladder.analysis, summaries=(broken,))
    found = jsonform.render(page_of(View(ladder.folder, analysis)))
    assert found["treatments"][0]["throughput_ops_s"] == {"estimate": None, "low": None, "high": None}
    json.dumps(found, allow_nan=False)


def counters(tmp_path: Path, samples: list[tuple[int, str, str, str, float]]) -> ExperimentFolder:
    """One trial whose window starts at 0 s and lasts 10 s; samples are (t_s, sampler, metric, label, value)."""
    folder = ExperimentFolder.create(tmp_path / "e", "", synthetic.bare_design())
    columns = list(zip(*sorted(samples, key=lambda s: (s[1:4], s[0])), strict=True))
    arrays = [
        pa.array([int(t * 1e9) for t in columns[0]]),
        *map(pa.array, columns[1:4]),
        pa.array(columns[4]),
    ]
    data = arrow.TrialData(
        arrow.INTERVALS.empty_table(),
        arrow.LATENCY.empty_table(),
        pa.Table.from_arrays(arrays, schema=arrow.SAMPLES),
    )
    record = store.TrialRecord(
        1, 1, 1, "A", Role.BASELINE, TrialState.COMPLETE, window_start_ns=0, window_end_ns=10_000_000_000
    )
    folder.begin_trial(1).commit(record, data)
    return folder


def rate(folder: ExperimentFolder, grid: Grid, metric: str = "reads") -> list[float]:
    with folder.database() as connection:
        found = series.rates(connection, folder.trials()[0], grid, "disk", "sda", [metric])
    return [round(v, 6) for v in found[metric].tolist()]


def test_a_rate_is_the_difference_of_two_samples(tmp_path: Path) -> None:
    samples = [(t, "disk", "reads", "sda", 1000.0 + 7 * t) for t in range(11)]
    assert rate(counters(tmp_path, samples), Grid(0, 1, 10)) == [7.0] * 10


def test_samples_off_the_grid_leave_no_gaps_and_lose_nothing(tmp_path: Path) -> None:
    jitter = [0, 0.3, -0.2, 0.4, -0.4, 0.1, 0.45, -0.45, 0.2, 0, 0]
    times = [t + j for t, j in zip(range(11), jitter, strict=True)]
    samples = [(t, "disk", "reads", "sda", 50 * t) for t in times]
    found = rate(counters(tmp_path, samples), Grid(0, 1, 10))  # type: ignore[arg-type]
    assert found == pytest.approx([50.0] * 10, abs=0.01)


def test_a_missing_sample_is_a_gap_and_never_a_zero(tmp_path: Path) -> None:
    samples = [(t, "disk", "reads", "sda", 7.0 * t) for t in range(11) if t not in (4, 5, 6)]
    found = rate(counters(tmp_path, samples), Grid(0, 1, 10))
    assert [math.isnan(v) for v in found] == [False] * 3 + [True] * 4 + [False] * 3


def test_a_counter_that_starts_again_is_a_gap_there_only(tmp_path: Path) -> None:
    samples = [(t, "disk", "reads", "sda", 1e6 + 7 * t if t < 5 else 7.0 * (t - 5)) for t in range(11)]
    found = rate(counters(tmp_path, samples), Grid(0, 1, 10))
    assert math.isnan(found[4])
    assert found[:4] + found[5:] == [7.0] * 9


def test_wide_buckets_hold_the_mean(tmp_path: Path) -> None:
    samples = [(t, "disk", "reads", "sda", float(t * t)) for t in range(11)]
    assert rate(counters(tmp_path, samples), Grid(0, 5, 2)) == [5.0, 15.0]


def test_busy_is_all_but_idle_and_iowait(tmp_path: Path) -> None:
    per_second = {
        "user": 30,
        "nice": 0,
        "system": 10,
        "idle": 40,
        "iowait": 10,
        "irq": 1,
        "softirq": 5,
        "steal": 4,
    }
    samples = [
        (t, "cpu", mode, core, 1e5 + t * ticks * (2 if core == "all" else 1))
        for t in range(11)
        for mode, ticks in per_second.items()
        for core in ("cpu0", "all")
    ]
    folder = counters(tmp_path, samples)
    with folder.database() as connection:
        found = series.cpu(connection, folder.trials()[0], Grid(0, 2, 5))
    for core in ("cpu0", "all"):
        means = {share: float(values.mean()) for share, values in found[core].items()}
        expected = {"busy": 0.5, "system": 0.1, "softirq": 0.05, "iowait": 0.1, "steal": 0.04}
        assert means == pytest.approx(expected)


def test_a_small_step_back_of_iowait_is_no_reset(tmp_path: Path) -> None:
    samples = []
    for t in range(11):
        for mode, value in (("user", 50.0 * t), ("idle", 50.0 * t), ("iowait", 9.0 - (t == 5))):
            samples.append((t, "cpu", mode, "cpu0", value))
        samples += [(t, "cpu", m, "cpu0", 0.0) for m in ("nice", "system", "irq", "softirq", "steal")]
    folder = counters(tmp_path, samples)
    with folder.database() as connection:
        busy = series.cpu(connection, folder.trials()[0], Grid(0, 1, 10))["cpu0"]["busy"]
    assert np.isfinite(busy).all()
    assert busy == pytest.approx(np.full(10, 0.5), abs=0.02)


def test_iowait_that_the_kernel_moved_to_idle_makes_nothing_negative(tmp_path: Path) -> None:
    """On an idle core a step back larger than what was used left a busy share under zero."""
    samples = []
    for t in range(11):
        moved = 60.0 * (t >= 5)
        values = {"user": 2.0 * t, "idle": 90.0 * t + moved, "iowait": 500.0 + 8 * t - moved}
        samples += [(t, "cpu", mode, "cpu0", value) for mode, value in values.items()]
        samples += [(t, "cpu", m, "cpu0", 0.0) for m in ("nice", "system", "irq", "softirq", "steal")]
    folder = counters(tmp_path, samples)
    with folder.database() as connection:
        found = series.cpu(connection, folder.trials()[0], Grid(0, 1, 10))["cpu0"]
    assert found["busy"] == pytest.approx(np.full(10, 0.02), abs=1e-9)
    assert all(np.isfinite(values).all() for values in found.values())
    assert all((values >= 0).all() and (values <= 1).all() for values in found.values())


def test_more_iowait_than_unused_time_is_no_more_than_all_of_it(tmp_path: Path) -> None:
    samples = []
    for t in range(11):
        values = {"user": 1.0 * t, "idle": 1000.0 - 50 * t, "iowait": 140.0 * t}
        samples += [(t, "cpu", mode, "cpu0", value) for mode, value in values.items()]
        samples += [(t, "cpu", m, "cpu0", 0.0) for m in ("nice", "system", "irq", "softirq", "steal")]
    folder = counters(tmp_path, samples)
    with folder.database() as connection:
        found = series.cpu(connection, folder.trials()[0], Grid(0, 1, 10))["cpu0"]
    assert found["busy"] == pytest.approx(np.full(10, 1 / 91))
    assert found["iowait"] == pytest.approx(np.full(10, 90 / 91))


def test_a_share_over_all_of_the_time_has_a_scale(ladder: Written) -> None:
    found = gathered(ladder)
    heat = {share: np.full((1, found.machine_grid.size), 1.5) for share in series.CPU_SHARES}
    found = replace(found, machines={t: replace(m, heat=heat) for t, m in found.machines.items()})
    tops = heat_tops(list(found.machines.values()))
    assert tops == dict.fromkeys(series.CPU_SHARES, 100)


@pytest.mark.parametrize(("operations", "is_stated"), [(999, False), (1000, True)])
def test_p99_over_time_needs_ten_operations_beyond_it(
    tmp_path: Path, operations: int, is_stated: bool
) -> None:
    folder = ExperimentFolder.create(tmp_path / "e", "", synthetic.bare_design())
    empty: dict[str, Any] = {field.name: None for field in arrow.INTERVALS}
    row = empty | {"t_s": 0.0, "duration_s": 1.0, "operation": "x", "count": operations, "errors": 0}
    bar = {"t_s": 0.0, "operation": "x", "kind": "service", "bucket": 700, "count": operations}
    data = arrow.TrialData(
        pa.Table.from_pylist([row], arrow.INTERVALS),
        pa.Table.from_pylist([bar], arrow.LATENCY),
        arrow.SAMPLES.empty_table(),
    )
    record = store.TrialRecord(1, 1, 1, "A", Role.BASELINE, TrialState.COMPLETE)
    folder.begin_trial(1).commit(record, data)
    with folder.database() as connection:
        found = series.paces(connection, Grid(0, 1, 1), 1.0, folder.latency_rows, "service")[1].p99_ns
    assert bool(np.isfinite(found[0])) is is_stated


def test_p99_over_time_is_exact_where_histograms_allow(tmp_path: Path) -> None:
    shape = synthetic.Shape(
        effects={"A": 1.0}, blocks=1, seconds=20, histogram_per_second=True, sampled=False
    )
    folder = synthetic.make(tmp_path / "e", shape)
    grid = Grid(0, 5, 4)
    with folder.database() as connection:
        assert series.has_histogram_per_second(connection, "service")
        found = series.paces(connection, grid, 1.0, folder.latency_rows, "service")[1].p99_ns
        rows = connection.execute(
            "SELECT bucket, count FROM latency WHERE trial = 1 AND t_s >= 5 AND t_s < 10 ORDER BY bucket"
        ).fetchnumpy()
    values = np.repeat(buckets.bucket_value(rows["bucket"]), rows["count"])
    assert found[1] == np.sort(values)[math.ceil(0.99 * len(values)) - 1]


def test_slow_seconds_survive_a_wide_bucket(tmp_path: Path) -> None:
    folder = ExperimentFolder.create(tmp_path / "e", "", synthetic.bare_design())
    n = 100
    count = np.full(n, 1000)
    count[37] = 1
    p99_ns = np.full(n, 2_000_000)
    p99_ns[37] = 900_000_000
    zeros = np.zeros(n, dtype=np.int64)
    columns = [
        np.arange(n, dtype=float),
        np.ones(n),
        ["x"] * n,
        count,
        zeros,
        zeros,
        zeros,
        zeros,
        zeros,
        p99_ns,
    ]
    intervals = pa.Table.from_arrays([pa.array(c) for c in columns], schema=arrow.INTERVALS)
    record = store.TrialRecord(1, 1, 1, "A", Role.BASELINE, TrialState.COMPLETE)
    data = arrow.TrialData(intervals, arrow.LATENCY.empty_table(), arrow.SAMPLES.empty_table())
    folder.begin_trial(1).commit(record, data)
    with folder.database() as connection:
        pace = series.paces(connection, Grid(0, 50, 2), 1.0, folder.latency_rows, "service")[1]
    assert pace.slowest.tolist() == [1.0, 1000.0]
    assert pace.p99_ns.tolist() == [9e8, 2e6]
    assert pace.mean[0] == pytest.approx((49 * 1000 + 1) / 50)


@given(
    warmup_s=st.floats(0, 3600),
    seconds=st.floats(0.5, 86_400),
    points=st.integers(60, 400),
    step_s=st.sampled_from([0.5, 1.0, 10.0]),
)
def test_a_grid_spans_everything_with_few_buckets(
    warmup_s: float, seconds: float, points: int, step_s: float
) -> None:
    grid = Grid.spanning(warmup_s, seconds, points, step_s)
    assert grid.size <= points + 2
    assert grid.width_s >= step_s
    assert grid.start_s <= -warmup_s + 1e-6
    assert grid.start_s + grid.width_s * grid.size >= seconds - 0.101 * grid.width_s
    assert float(grid.start_s / grid.width_s).is_integer()


def test_a_long_trial_makes_no_long_page(tmp_path: Path) -> None:
    shape = synthetic.Shape(effects={"A": 1.0, "B": 1.2}, blocks=2, seconds=4000, warmup_s=100, cores=2)
    folder = synthetic.make(tmp_path / "e", shape)
    analysis = analyse_experiment(folder)
    view = View(folder, analysis)
    found = view.evidence
    assert found.pace_grid.size <= evidence.MAX_POINTS + 2
    assert found.machine_grid.size <= evidence.MAX_POINTS + 2
    assert found.machines["A"].heat["busy"].shape == (2, found.machine_grid.size)
    assert report.write(page_of(view), folder).stat().st_size < 6e6


def test_the_representative_is_the_trial_of_median_throughput(ladder: Written) -> None:
    found = gathered(ladder)
    assert found.p99_is_exact is False
    for summary in ladder.analysis.summaries:
        speeds = sorted(found.responses[n].throughput_ops_s for n in summary.trials)
        chosen = found.representatives[summary.treatment]
        assert chosen.state is TrialState.COMPLETE
        assert found.responses[chosen.number].throughput_ops_s == speeds[(len(speeds) - 1) // 2]


def test_the_distribution_agrees_with_the_summary(ladder: Written) -> None:
    found = gathered(ladder)
    for summary in ladder.analysis.summaries:
        fraction, latency_ns = found.distribution(summary)
        assert (np.diff(latency_ns) >= 0).all()
        assert latency_ns[np.argmin(abs(fraction - 0.99))] == summary.latency_ns["p99"].estimate


@given(st.floats(0.001, 1000), st.floats(1.001, 1000))
def test_ratio_ticks_are_few_and_inside(low: float, factor: float) -> None:
    ticks = charts.ratio_ticks(low, low * factor)
    assert len(ticks) <= 12
    assert all(low <= t * (1 + 1e-6) and t <= low * factor * (1 + 1e-6) for t in ticks)
    if low <= 1 <= low * factor and factor > 1.02:
        assert 1.0 in ticks


def test_an_interval_of_two_blocks_does_not_squeeze_the_chart() -> None:
    low, high = charts.ratio_span([Interval(1.2, 1e-5, 1e7), Interval(1.5, 1.4, 1.6)], 0.02)
    assert low > 0.3
    assert high < 5


def shown(written: Written, width: int, *, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, no_color=not colour)
    console.print(terminal.render(written.report))
    return out.getvalue()


@pytest.mark.parametrize(
    ("width", "present", "absent"),
    [(80, ["ratio", "verdict", "A/A floor"], ["p50 ms"]), (120, ["p50 ms", "p99.9 ms"], ["max ms"]),
     (200, ["p99.99 ms", "max ms", "blocks needed"], [])],
)  # fmt: skip
def test_the_table_fits_the_terminal(
    ladder: Written, width: int, present: list[str], absent: list[str]
) -> None:
    lines = shown(ladder, width).splitlines()
    assert max(map(len, lines)) <= width
    header = next(line for line in lines if line.startswith("configuration"))
    assert all(name in header for name in present)
    assert not any(name in header for name in absent)
    row = next(line for line in lines if line.startswith("ALL  "))
    assert "better" in row
    assert "±" in row
    assert any("1 invalid (trial 9)" in line for line in lines)


@pytest.mark.parametrize("width", [80, 200])
def test_hostile_text_does_not_reach_the_terminal_raw(hostile: Written, width: int) -> None:
    out = shown(hostile, width)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\u202e" not in out
    assert "[bold red]x[/]" in shown(hostile, 400)
    assert "\x1b[31mred" not in shown(hostile, width, colour=True)
    assert max(map(len, out.splitlines())) <= width


def printed(*parts: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=300, force_terminal=True, no_color=True)
    for part in parts:
        console.print(part)
    # What rich itself sends (bold, dim) is none of ours.
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


def assert_harmless(out: str) -> None:
    assert "[bold red]x[/]" in out
    assert "\\x1b[31mred\\x07" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_hostile_text_does_not_reach_any_view_raw(hostile: Written) -> None:
    evil = synthetic.HOSTILE
    design = replace(hostile.folder.design, name=evil, base={evil: evil})
    first = f"Unpaired: {evil}"
    comparison = Comparison(
        a=evil, b=evil, alpha=0.05, equivalence=0.03, effects=hostile.analysis.effects, only_in_a=(),
        only_in_b=(), notes=(evil,), headline=first,
    )  # fmt: skip
    facts = hostile.folder.facts("f" * 64)
    for view in (
        views.design(design, 1.0),
        views.status(ExperimentFolder(hostile.folder.path, design), []),
        views.comparison(comparison),
        views.facts(facts),
    ):
        assert_harmless(printed(view))


def test_hostile_text_does_not_reach_the_progress_display_raw(hostile: Written) -> None:
    out = io.StringIO()
    evil = synthetic.HOSTILE
    console = Console(file=out, width=500, force_terminal=False)
    with progress.Watcher(console) as watcher:
        watcher.listen(Note(f"skipped {evil}:\nsecond line"))
        watcher.listen(Step(evil))
        for record in hostile.folder.trials():
            watcher.listen(TrialEnded(record, 100.0, 1, 9, 60.0))
    assert_harmless(out.getvalue())
    assert "\nsecond line\n" in out.getvalue()
    live = Console(file=io.StringIO(), width=500, force_terminal=True, no_color=True)
    with progress.Watcher(live) as watcher:
        watcher.listen(TrialStarted(first_spec(hostile), 1, 9, 60.0))
        watcher.listen(Step(evil))
        assert_harmless(printed(watcher._progress.get_renderable()))


def first_spec(written: Written) -> TrialSpec:
    return replace(written.folder.design.trials[0], role=Role.CANDIDATE)


def moved(
    records: list[store.TrialRecord], number: int, later_s: float, **more: Any
) -> list[store.TrialRecord]:
    """The same trials, but that one was measured (again) so much later."""
    changed = []
    for record in records:
        if record.number == number:
            times_ns = {name: t + int(later_s * 1e9) for name, t in record.times_ns.items()}
            record = replace(record, times_ns=times_ns, **more)
        changed.append(record)
    return changed


def test_blocks_that_share_their_time_and_host_need_no_caution(ladder: Written) -> None:
    assert tables.cautions(ladder.folder.trials()) == []
    assert ladder.json["cautions"] == []


def test_trials_selected_by_the_drivers_delay_are_a_caution(ladder: Written) -> None:
    records = ladder.folder.trials()
    names = list(dict.fromkeys(r.treatment for r in records))

    def late(treatment: str, number: int) -> list[store.TrialRecord]:
        own = [r.number for r in records if r.treatment == treatment and r.state is TrialState.COMPLETE]
        reason = "the driver was late: p99 2.10 ms of its own delay"
        return [
            replace(r, state=TrialState.INVALID, reason=reason) if r.number in own[:number] else r
            for r in records
        ]

    assert tables.cautions(late(names[1], 1)) == []
    (caution,) = tables.cautions(late(names[1], 2))
    assert caution.startswith("the load driver itself made 2 of ")
    assert f"trials of {names[1]} invalid, and 0 of " in caution
    # All alike: nothing is selected.
    alike = [replace(r, state=TrialState.INVALID, reason="the driver was saturated") for r in records]
    assert not any("selected" in text for text in tables.cautions(alike))


def test_a_block_measured_over_days_is_a_caution(ladder: Written, tmp_path: Path) -> None:
    records = ladder.folder.trials()
    in_3 = next(r for r in records if r.block == 3 and r.state is TrialState.COMPLETE)
    caution = "trials of block 3 were measured 3 days apart: pairing cannot cancel what changed between"
    assert tables.cautions(moved(records, in_3.number, 3 * 86_400 + 400)) == [caution]
    two = moved(moved(records, in_3.number, 3 * 86_400 + 400), 1, 7200)
    assert tables.cautions(two)[0].startswith("trials of blocks 1, 3 were measured up to 3 days apart")
    # Trials of 30 s: ten minutes are 20 of them.
    assert len(tables.cautions(moved(records, 45, 900))) == 1
    assert tables.cautions(moved(records, 45, 300)) == []
    # What is not analysed may have been measured at any time.
    assert tables.cautions(moved(records, in_3.number, 9e5, state=TrialState.INVALID)) == []

    folder = synthetic.make(tmp_path / "e", replace(LADDER, gap_trial=0, reset_trial=0))
    (late,) = [r for r in moved(records, in_3.number, 3 * 86_400 + 400) if r.number == in_3.number]
    path = folder.trial_path(late.number) / "trial.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"times_ns": late.times_ns}))
    analysis = analyse_experiment(folder)
    written = page_of(View(folder, analysis))
    page = report.write(written, folder).read_text()
    assert f"Caution: {caution}." in Outline(page).text
    out = io.StringIO()
    Console(file=out, width=200).print(terminal.render(written))
    assert caution in out.getvalue()
    assert json.loads((folder.path / "report.json").read_text())["cautions"] == [caution]
    # The order of execution is that of the clock.
    cells = re.findall(r'class="cell [^"]*" title="trial (\d+),', page)
    numbers = [r.number for r in records if r.block == 3]
    numbers.remove(late.number)
    start = cells.index(str(numbers[0]))
    assert cells[start : start + 9] == [*map(str, numbers), str(late.number)]


def test_a_failed_trial_without_an_end_is_no_gap(ladder: Written) -> None:
    records = [
        replace(r, times_ns={"started": r.times_ns["started"]}) if r.state is TrialState.FAILED else r
        for r in ladder.folder.trials()
    ]
    assert tables.cautions(records) == []


def test_a_host_or_program_that_changed_within_a_block_is_a_caution(ladder: Written) -> None:
    records = ladder.folder.trials()
    facts = [replace(r, facts_hash="e" * 64) if r.number > 40 else r for r in records]
    assert tables.cautions(facts) == [
        "trials of block 5 ran on a host with different facts: pairing cannot cancel what changed between"
    ]
    upgraded = [
        replace(r, versions=r.versions | {"mariadbd": "11.4"}) if r.number > 40 else r for r in records
    ]
    assert tables.cautions(upgraded) == [
        "trials of block 5 ran with different versions of mariadbd: pairing cannot cancel what changed between"
    ]
    between = [replace(r, facts_hash="e" * 64) if r.block > 3 else r for r in records]
    assert tables.cautions(between) == []


def test_versions_that_are_the_treatments_own_are_no_caution(ladder: Written) -> None:
    records = [
        replace(r, versions=r.versions | {"mariadbd": "11.4"}) if r.treatment == "ALL" else r
        for r in ladder.folder.trials()
    ]
    assert tables.cautions(records) == []


def test_no_rule_but_the_interval_is_said_to_decide(ladder: Written) -> None:
    said = Outline(ladder.html).text + shown(ladder, 200)
    for rule in ("is no effect", "deserves no belief", "effects are noise", "never averaged"):
        assert rule not in said
    assert "A verdict is based on the configuration's own interval" in Outline(ladder.html).text
    assert "the intervals hold jointly at 95% and decide the verdict" in " ".join(shown(ladder, 200).split())


def test_an_experiment_without_a_usable_trial_has_a_report(tmp_path: Path) -> None:
    shape = synthetic.Shape(effects={"A": 1.0, "B": 1.2}, blocks=1, seconds=5, unfinished=1,
                            failed={1: "no", 2: "never"})  # fmt: skip
    written = Written(tmp_path / "e", shape)
    assert "failed: never" in Outline(written.html).text
    assert written.json["effects"] == []
    assert "not run yet" in Outline(written.html).text + shown(written, 80)


def test_conditions_are_grouped_and_never_mixed(tmp_path: Path) -> None:
    shape = synthetic.Shape(
        effects={"A": 1.0, "B": 1.5},
        conditions=("threads=8", "threads=16"),
        blocks=2,
        seconds=6,
        sampled=False,
    )
    written = Written(tmp_path / "e", shape)
    groups = tables.groups(written.folder.design, written.analysis, written.folder.trials())
    assert [(g.condition, [r.configuration for r in g.rows]) for g in groups] == [
        ("threads=8", ["A", "B"]),
        ("threads=16", ["A", "B"]),
    ]
    outline = Outline(written.html)
    assert "Throughput by threads" in outline.text
    assert [a.get("class") for t, a in outline.tags if t == "h3"].count("condition") >= 4
    assert "section" in {t for t, _ in outline.tags}
    assert "machine" not in [a.get("id") for t, a in outline.tags if t == "section"]  # nothing was sampled


def test_other_designs_go_from_fast_to_slow(tmp_path: Path) -> None:
    shape = synthetic.Shape(
        effects={"A": 1.0, "B": 1.5, "C": 3.0}, blocks=2, seconds=6, kind="factorial", sampled=False
    )
    folder = synthetic.make(tmp_path / "e", shape)
    (group,) = tables.groups(folder.design, analyse_experiment(folder), folder.trials())
    assert [r.configuration for r in group.rows] == ["A", "C", "B"]


def test_facts_that_lack_something_do_not_cost_the_report(tmp_path: Path) -> None:
    folder = synthetic.make(tmp_path / "e", synthetic.Shape(effects={"A": 1.0}, blocks=1, seconds=5))
    path = next((folder.path / "facts").iterdir())
    content = json.loads(path.read_text())
    del content["memory"]
    path.write_text(json.dumps(content))
    page = report.write(report.of(folder), folder).read_text()
    assert "the facts do not say memory.total_bytes" in page


@pytest.mark.parametrize(
    ("value", "expected"),
    [(13612.4, "13,612"), (0, "0"), (42.04, "42.0"), (0.9, "0.900"), (math.nan, "–"), (None, "–")],
)
def test_counts(value: float | None, expected: str) -> None:
    assert text.count(value) == expected


@pytest.mark.parametrize(
    ("value_ns", "expected"),
    [(31_200, "0.0312"), (1_523_000, "1.52"), (12_444_000, "12.4"), (1_204_000_000, "1,204"), (None, "–"),
     (0, "0")],
)  # fmt: skip
def test_milliseconds(value_ns: float | None, expected: str) -> None:
    assert text.milliseconds(value_ns) == expected


@given(st.text(max_size=200))
def test_clean_text_has_no_character_that_hides_or_commands(captured: str) -> None:
    cleaned = text.clean(captured)
    assert cleaned == text.clean(cleaned)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\u200f" for c in cleaned)


@NEEDS_BROWSER
@pytest.mark.parametrize("which", [pytest.param("ladder", marks=pytest.mark.path), "hostile"])
def test_chromium_shows_everything_without_error_or_network(
    which: str, request: pytest.FixtureRequest
) -> None:
    written: Written = request.getfixturevalue(which)
    with browser.page() as page:
        page.look(1280, 900)
        page.open(written.page)
        page.scroll_through()
        empty = (
            "[...document.querySelectorAll('.plot')].filter((p) => p.offsetWidth && !p.querySelector('svg'))"
        )
        assert page.evaluate(f"{empty}.length") == 0
        assert page.evaluate("document.querySelectorAll('.plot svg.main-svg').length") > 10
        for button in ("softirq", "p99"):
            page.evaluate(f"document.querySelector('.switch button[value=\"{button}\"]').click()")
        page.scroll_through()
        assert page.evaluate("document.querySelector('[data-is=p99]').hidden") is False
        page.evaluate(
            "(() => { const s = document.querySelector('select'); s.selectedIndex = s.options.length - 1;"
            "s.dispatchEvent(new Event('change')); })()"
        )
        page.look(1280, 900, dark=True)
        page.look(400, 800)
        page.scroll_through()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        assert page.seen.errors == []
        assert page.seen.network == []


@NEEDS_BROWSER
def test_chart_text_stays_inside_its_chart(ladder: Written) -> None:
    script = """[...document.querySelectorAll('.plot')].flatMap((plot) => {
        const box = plot.getBoundingClientRect();
        return [...plot.querySelectorAll('svg text')].filter((t) => t.textContent.trim()).filter((t) => {
            const b = t.getBoundingClientRect();
            return b.width && (b.left < box.left - 1 || b.right > box.right + 1 || b.bottom > box.bottom + 1);
        }).map((t) => t.textContent);
    })"""
    with browser.page() as page:
        for width in (1280, 400):
            page.look(width, 900)
            page.open(ladder.page)
            page.scroll_through()
            assert page.evaluate(script) == []


@NEEDS_BROWSER
def test_the_browser_check_would_find_an_error_and_a_request(tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('seen'); missing();</script>")
    with browser.page() as page:
        page.open(path)
        page.evaluate("new Promise((done) => setTimeout(done, 200))")
        assert page.seen.network == ["http://127.0.0.1:9/x.png"]
        assert any("seen" in error for error in page.seen.errors)
        assert any("missing is not defined" in error for error in page.seen.errors)


@NEEDS_BROWSER
def test_the_policy_stops_what_would_slip_through(hostile: Written, tmp_path: Path) -> None:
    path = tmp_path / "injected.html"
    injected = (
        "<img src='http://127.0.0.1:9/x.png' onerror='window.owned = 1'><script>window.owned = 1</script>"
    )
    path.write_text(hostile.html.replace("<main>", f"<main>{injected}", 1))
    with browser.page() as page:
        page.open(path)
        page.evaluate("new Promise((done) => setTimeout(done, 200))")
        assert page.evaluate("window.owned === undefined")
        assert page.seen.errors  # the browser says that it blocked something


def test_an_analysis_is_only_printed(ladder: Written) -> None:
    other: Analysis = replace(ladder.analysis, headline="Quite another verdict.")
    assert "Quite another verdict." in html.render(page_of(View(ladder.folder, other)))


@pytest.mark.parametrize(
    ("floor", "expected"),
    [(0.0184, "± 1.8%"), (0.241, "± 24%"), (3.46, "± 346%"), (345.0, "> ± 1,000%"), (None, "–")],
)
def test_noise_floors(floor: float | None, expected: str) -> None:
    assert text.plus_minus(floor) == expected


def test_many_warnings_do_not_bury_the_table(tmp_path: Path) -> None:
    warnings = {n: f"another program used {n} cores" for n in range(1, 13)}
    shape = synthetic.Shape(
        effects={"A": 1.0, "B": 1.2}, blocks=4, seconds=5, sampled=False, warnings=warnings
    )
    written = Written(tmp_path / "e", shape)
    assert "7 more warnings: see report.html" in shown(written, 100)
    outline = Outline(written.html)
    assert all(warning in outline.text for warning in warnings.values())


def test_an_interval_of_two_blocks_is_said_in_words() -> None:
    assert text.between(Interval(1.7, 0.0007, 4250.0)) == "too wide to say"
    assert text.between(Interval(1.7, 0.5, 6.65)) == "0.500 – 6.650"
    assert text.between(Interval(1.7, None, None)) == "–"
