"""Reports of generated sweeps whose truth we know: the page, the terminal table, the JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.base.buckets import bucket_of, bucket_value
from headrace.base.model import Facts, TrialSpec, TrialState
from headrace.experiment import plan as plans
from headrace.experiment import report
from headrace.experiment.kinds import sweep as sweeps
from headrace.experiment.report.sweep import page as sweep_page
from headrace.experiment.report.sweep.trials import alike
from headrace.experiment.report.sweep.view import SweepView
from headrace.experiment.stats.sweep_result import Sweep
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.host.arrow import TrialData, empty_data
from headrace.show import jsonform, terminal
from tests import browser, synthetic
from tests.written import Outline, printed

NEEDS_BROWSER = pytest.mark.needs("chromium")

PLAN = """
name = "{name}"
description = "A generated sweep."
[workload]
kind = "sysbench-oltp"
seconds = 10
warmup_s = 2
table_size = 1000
[sweep]
{sweep}
"""

CLOSED = """
knob = "workload.threads"
max = 256
passes = 4
objective = ["p99=30ms", "p50=5ms"]
"""

OPEN = """
knob = "workload.rate"
levels = [1000, 2000, 3000, 4000, 5000]
objective = ["p99.9=100ms"]
"""


@dataclass(frozen=True)
class Truth:
    """What a generated server does: lambda, sigma, kappa; ``noise`` from trial to trial of one level.

    ``invalid`` and ``failed`` map a trial's number to its reason; ``errors`` a load to the share it refuses.
    ``late`` is the share of the good operations that end only after the window.
    """

    lambda_ops_s: float = 900.0
    sigma: float = 0.06
    kappa: float = 0.0006
    noise: float = 0.02
    invalid: Mapping[int, str] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    errors: Mapping[float, float] = field(default_factory=dict)
    late: float = 0.0
    seed: int = 3

    def ops_s(self, load: float) -> float:
        return self.lambda_ops_s * load / (1 + self.sigma * (load - 1) + self.kappa * load * (load - 1))


def parsed(text: str, name: str = "generated", workload: str = "") -> plans.Plan:
    content = PLAN.replace("{sweep}", text).replace("{name}", name).replace("[sweep]", f"{workload}\n[sweep]")
    return plans.parse(content, "sweep.toml")


def make(path: Path, text: str = CLOSED, truth: Truth | None = None, most: int = 10_000) -> ExperimentFolder:
    """Run a generated sweep as the runner would: after each trial it asks what comes next."""
    truth = truth or Truth()
    design = sweeps.Sweep.build(parsed(text), place="sweep.toml")
    folder = ExperimentFolder.create(path, PLAN, design)
    shape = synthetic.Shape(seconds=10, warmup_s=2, cores=2)
    facts = Facts("f" * 64, synthetic.facts_of(shape))
    folder.save_facts(facts)
    kind = sweeps.Sweep(folder)
    for _ in range(most):
        ask = kind.next(folder.trials())
        if not ask.moments:
            break
        write_trial(folder, truth, shape, ask.moments[0][0])
    return folder


def write_trial(folder: ExperimentFolder, truth: Truth, shape: synthetic.Shape, spec: TrialSpec) -> None:
    sweep = sweeps.table_of(folder.design)
    load = float(str(folder.design.treatment(spec.treatment).settings[sweep.knob]))
    number = spec.number
    state, reason = TrialState.COMPLETE, ""
    if number in truth.invalid:
        state, reason = TrialState.INVALID, truth.invalid[number]
    if number in truth.failed:
        state, reason = TrialState.FAILED, truth.failed[number]
    start_ns = synthetic.START_NS + number * 16_000_000_000
    record = replace(
        TrialRecord.of(spec, state, reason),
        window_start_ns=start_ns if state is not TrialState.FAILED else 0,
        window_end_ns=start_ns + 10_000_000_000 if state is not TrialState.FAILED else 0,
        times_ns={"started": start_ns - 4_000_000_000, "finished": start_ns + 11_000_000_000},
        facts_hash="f" * 64,
        versions={"headrace": "0.1.0", "sysbench": "1.0.20"},
        cpus=2,
    )
    folder.begin_trial(number).commit(
        record, empty_data() if state is TrialState.FAILED else data_of(truth, shape, spec, load, sweep)
    )


def data_of(
    truth: Truth, shape: synthetic.Shape, spec: TrialSpec, load: float, sweep: plans.SweepTable
) -> TrialData:
    """Throughput by the law, latency by Little's: N / X in a closed loop, 1 / (room left) in an open one."""
    generator = np.random.default_rng([truth.seed, spec.number])
    if sweep.is_open:
        top = truth.ops_s(12)
        ops_s = min(load, top)
        mean_s = 0.001 / max(1 - load / top, 0.002)
    else:
        ops_s = truth.ops_s(load)
        mean_s = load / ops_s
    ops_s *= math.exp(generator.normal(0, truth.noise))
    shape = synthetic.Shape(
        effects={spec.treatment: 1.0}, seconds=10, warmup_s=2, cores=2, base_ops_s=ops_s, noise=0.0
    )
    data = synthetic.trial_data(shape, spec, synthetic.START_NS + spec.number * 16_000_000_000)
    # The generated latencies are about 6.4 s by throughput: bring them to the mean that is wanted.
    factor = mean_s / (6.4 / ops_s) * math.exp(generator.normal(0, truth.noise))
    buckets = bucket_of((bucket_value(data.latency["bucket"].to_numpy()) * factor).astype(np.int64))
    latency = data.latency.set_column(3, "bucket", pa.array(buckets, pa.int32()))
    intervals = data.intervals
    for name in ("min_ns", "max_ns", "p99_ns"):
        scaled = pc.cast(pc.round(pc.multiply(intervals[name], factor)), pa.int64())
        intervals = intervals.set_column(intervals.schema.get_field_index(name), name, scaled)
    share = truth.errors.get(load, 0.0)
    kind = "response" if sweep.is_open or truth.errors or truth.late else "service"
    latency = latency.set_column(2, "kind", pa.array([kind] * len(latency)))
    if share:
        # As a server that refuses at once: fast, and so without a trace in the percentiles.
        refused = round(share * sum(latency["count"].to_pylist()))
        row = {"t_s": None, "operation": "write", "kind": "failed", "bucket": 100, "count": refused}
        latency = pa.concat_tables([latency, pa.Table.from_pylist([row], schema=latency.schema)])
    if truth.late:
        ended = round(truth.late * sum(latency["count"].to_pylist()))
        row = {"t_s": None, "operation": "write", "kind": "response", "bucket": 100, "count": ended}
        latency = pa.concat_tables([latency, pa.Table.from_pylist([row], schema=latency.schema)])
    return TrialData(intervals, latency, data.samples)


# The reports.

#: As the driver says it.
SATURATED = "the driver was saturated: a thread used 97% of a core (limit 85%); give it more threads"
LATE = "the driver was late: p99 2.51 ms after an operation could be sent (limit 1 ms)"

HOSTILE = "</script><img src=x onerror=alert(1)> [bold red]x[/] \x1b[31mred"


class Written:
    """A sweep with its report written."""

    def __init__(self, path: Path, text: str, truth: Truth | None = None, most: int = 10_000) -> None:
        folder = make(path, text, truth, most)
        self.view = SweepView(folder)
        self.report = sweep_page.page_of(self.view)
        self.page = report.write(self.report, folder)
        self.html = self.page.read_text(encoding="utf-8")
        self.json = json.loads((path / "report.json").read_text())

    @property
    def sweep(self) -> Sweep:
        return self.view.sweep

    def outline(self) -> Outline:
        return Outline(self.html)

    def terminal(self, width: int) -> str:
        return printed(terminal.render(self.report), width=width)


@pytest.fixture(scope="session")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Written:
    truth = Truth(invalid={12: "an array was resyncing"})
    return Written(tmp_path_factory.mktemp("sweep") / "closed", CLOSED, truth)


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("sweep") / "open", OPEN)


def test_the_truth_comes_back(closed: Written) -> None:
    found, truth = closed.sweep, Truth()
    assert found.knee is not None
    assert found.knee.load == 32
    law = found.law
    assert law is not None
    assert law.doubt == ""
    assert law.sigma.estimate == pytest.approx(truth.sigma, rel=0.15)
    assert law.kappa.estimate == pytest.approx(truth.kappa, rel=0.15)
    assert law.peak_load.estimate == pytest.approx(math.sqrt((1 - truth.sigma) / truth.kappa), rel=0.1)
    assert [(a.holds, a.fails) for a in found.answers] == [(64, 128), (32, 64)]
    assert found.latency_kind == "service"
    assert found.excluded == {12: "invalid: an array was resyncing"}


def test_the_search_is_not_analysed(closed: Written) -> None:
    analysed = [n for _, summary in closed.sweep.measured for n in summary.trials]
    assert sorted(analysed) == [n for n in range(9, 41) if n != 12]
    assert all(level.search_ops_s for level in closed.sweep.levels)


def test_the_page_says_it_first_and_has_every_level_and_trial(closed: Written) -> None:
    outline = closed.outline()
    assert closed.sweep.headline in outline.text
    assert "Throughput grows up to 32 threads" in closed.sweep.headline
    assert "The Universal Scalability Law puts the peak at" in closed.sweep.headline
    rows = [attrs.get("class") for tag, attrs in outline.tags if tag == "tr"]
    assert (rows.count("complete"), rows.count("invalid")) == (39, 1)
    assert "an array was resyncing" in outline.text
    assert "The search ended because the last 2 levels brought less than 5% more throughput" in outline.text
    assert "a closed loop" in outline.text
    assert "optimistic" in outline.text
    ids = [attrs.get("id") for tag, attrs in outline.tags if tag == "section"]
    assert ids == ["result", "table", "law", "time", "machine", "host", "trials", "method"]


def test_an_open_loop_has_response_times_the_offered_rate_and_no_law(opened: Written) -> None:
    text = opened.outline().text
    assert "response time" in text
    assert "of the offered" in text
    assert "This is a closed loop" not in text
    assert opened.json["law"] is None
    assert "an offered rate is not a number of clients" in opened.json["law_refusal"]
    assert 'id="law"' not in opened.html
    assert "operations/s offered" in opened.sweep.headline
    assert opened.sweep.answers[0].holds == 4000
    assert opened.sweep.answers[0].fails == 5000


def test_every_place_for_a_chart_has_its_figure_and_every_figure_a_place(closed: Written) -> None:
    outline = closed.outline()
    places = {attrs["data-figure"] for _, attrs in outline.tags if "data-figure" in attrs}
    choices = {attrs["value"] for tag, attrs in outline.tags if tag == "option"}
    assert places | choices == set(outline.figures())
    # 8 levels: pace and strips; then throughput, latency and drift.
    assert len(outline.figures()) == 2 * 8 + 3


def test_the_throughput_chart_has_the_law_the_trials_and_the_knee(closed: Written) -> None:
    figure = next(f for f in closed.outline().figures().values() if "throughput" in json.dumps(f["layout"]))
    traces = {trace.get("name", "mean"): trace for trace in figure["data"]}
    assert set(traces) == {"scalability law", "search, not analysed", "one trial", "mean"}
    assert len(traces["one trial"]["x"]) == 31
    assert len(traces["search, not analysed"]["x"]) == 8
    assert traces["mean"]["x"] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert max(traces["scalability law"]["y"]) == pytest.approx(closed.sweep.law.peak_ops_s, rel=0.01)  # type: ignore[union-attr]
    assert any(shape.get("x0") == 32 for shape in figure["layout"]["shapes"])


def test_the_latency_chart_has_each_objective_as_a_line(closed: Written) -> None:
    figure = next(f for f in closed.outline().figures().values() if "latency [ms]" in json.dumps(f["layout"]))
    limits = [shape["y0"] for shape in figure["layout"]["shapes"] if shape.get("xref") == "paper"]
    assert limits == [30, 5]
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert [note["text"] for note in figure["layout"]["annotations"]] == [
        "p99 within 30 ms",
        "p50 within 5 ms",
    ]


def test_json_has_the_documented_form(closed: Written) -> None:
    found = closed.json
    assert found == json.loads(json.dumps(jsonform.render(closed.report), allow_nan=False))
    documented = re.findall(r"^    (\w+)", sweep_page.__doc__ or "", flags=re.MULTILINE)
    assert sorted(documented) == sorted(found)
    assert found["format"] == 1
    assert [level["load"] for level in found["levels"]] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert found["knee"]["load"] == 32
    assert found["law"]["peak_is_bounded"] is True
    assert found["objectives"][0] == {
        "percentile": "p99", "limit_ns": 3e7, "holds": 64.0, "fails": 128.0, "open_levels": [],
        "estimate": 64.0, "why": "",
    }  # fmt: skip
    excluded = {t["number"]: t["excluded"] for t in found["trials"]}
    assert excluded[3] == "the search"
    assert excluded[12] == "invalid: an array was resyncing"
    assert excluded[13] is None


@pytest.mark.parametrize("width", [50, 80, 120, 200])
def test_the_table_fits_the_terminal(closed: Written, width: int) -> None:
    shown = closed.terminal(width)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if line.lstrip().startswith("threads  "))
    assert ("gain" in head) == (width >= 80)
    # Numbers of the table stand to the right, so that a sentence's own 32 at the start of a line is none of them.
    assert sum(line.startswith(" ") and line.split()[:1] == ["32"] for line in lines) == 1
    assert re.sub(r"\s+", " ", shown).startswith(closed.sweep.headline)


def test_the_bar_is_as_long_as_the_throughput(closed: Written) -> None:
    bars = {line.split()[0]: line.count("█") for line in closed.terminal(200).splitlines() if "█" in line}
    assert bars["32"] == 16
    assert bars["1"] == 1
    assert bars["8"] == pytest.approx(16 * Truth().ops_s(8) / Truth().ops_s(32), abs=1)


def test_an_unfinished_sweep_has_a_report(tmp_path: Path) -> None:
    searching = Written(tmp_path / "searching", CLOSED, most=3)
    assert searching.sweep.knee is None
    assert searching.sweep.headline.startswith("Nothing can be concluded")
    assert searching.json["sweep"]["search_end"] == ""
    repeating = Written(tmp_path / "repeating", CLOSED, most=14)
    assert "So far 14 of 40 trials are done." in repeating.sweep.headline
    assert repeating.json["planned_trials"] == 40
    assert "Universal Scalability Law needs 6 distinct levels" in repeating.html or repeating.sweep.law


def test_below_six_levels_the_page_says_how_many_there_are(tmp_path: Path) -> None:
    few = Written(tmp_path / "few", 'knob = "workload.threads"\nlevels = [1, 4, 16, 64]')
    assert few.json["law"] is None
    assert "needs 6 distinct levels, and there are 4" in few.outline().text
    assert "needs 6 distinct levels, and there are 4" in few.terminal(200)


def test_hostile_text_is_shown_and_never_read(tmp_path: Path) -> None:
    truth = Truth(failed={10: HOSTILE}, invalid={11: HOSTILE})
    hostile = Written(tmp_path / "hostile", CLOSED, truth)
    outline = hostile.outline()
    assert "onerror=alert(1)" in outline.text
    assert not [tag for tag, _ in outline.tags if tag == "img"]
    assert "\x1b" not in hostile.html.partition("<script")[0]
    assert "\x1b" not in hostile.terminal(100)


def test_a_driver_at_its_limit_is_told_from_a_server_at_its_limit(tmp_path: Path) -> None:
    """It is saturated at 16 and 32 threads, while the server would still grow."""
    found = Written(
        tmp_path / "full",
        CLOSED,
        Truth(invalid={5: SATURATED, 6: f"client 2 (root@db1): {LATE}; {SATURATED}"}),
    )
    assert found.json["sweep"]["search_end"] == "the last 2 levels saturated the driver"
    assert {t["treatment"] for t in found.json["trials"] if t["block"]} == {
        f"threads={n}" for n in (1, 2, 4, 8)
    }
    said = found.sweep.headline
    assert said.startswith("Throughput still grows at 8 threads, the highest level that could be measured: ")
    assert "At 16 and 32 threads the driver, not the server, was the bottleneck" in said
    assert "p99 within 30 ms holds up to 8 threads" in said
    assert [level["is_driver_saturated"] for level in found.json["levels"]] == [False] * 4 + [True] * 2
    assert "give it more threads (workload.threads)" in found.outline().text
    assert re.sub(r"\s+", " ", found.terminal(100)).count("give it more threads (workload.threads)") == 1
    rows = [line.split() for line in found.terminal(100).splitlines()]
    assert not [row for row in rows if row[:1] in (["16"], ["32"]) and "holds" in row]


def test_a_level_that_lost_passes_says_how_many_are_left(tmp_path: Path) -> None:
    """The driver was saturated in three passes of 128 threads: what is left is one trial, without an interval."""
    whole = make(tmp_path / "whole")
    numbers = [r.number for r in whole.trials() if r.treatment == "threads=128" and r.block in (1, 2, 3)]
    partly = Written(tmp_path / "partly", CLOSED, Truth(invalid=dict.fromkeys(numbers, SATURATED)))
    assert "At 128 threads the driver, not the server, was the bottleneck" in partly.sweep.headline
    row = next(line for line in partly.terminal(200).splitlines() if line.split()[:1] == ["128"])
    assert row.split()[-3:] == ["1", "of", "4"]
    assert "1 of 4" in partly.outline().text
    assert partly.sweep.knee is not None
    assert partly.sweep.knee.may_be_top


def test_errors_that_come_fast_do_not_hold_an_objective(tmp_path: Path) -> None:
    """3% of the operations are refused from 8 threads on: more than p99 has room for, less than p50 has."""
    truth = Truth(errors=dict.fromkeys((8.0, 16.0, 32.0, 64.0, 128.0), 0.03))
    found = Written(tmp_path / "refused", CLOSED.replace("30ms", "1s").replace("5ms", "1s"), truth)
    p99, p50 = found.sweep.answers
    assert (p99.holds, p99.fails, p99.open_levels) == (4, 8, ())
    assert p50.holds == 128
    assert found.json["levels"][3]["failed_share"] == pytest.approx(0.03 / 1.03, rel=0.01)
    assert found.json["levels"][2]["failed_share"] == 0


def test_operations_that_end_after_the_window_have_not_failed(tmp_path: Path) -> None:
    """They are in the latencies but not in the throughput: 5% is more than p99 has room for."""
    found = Written(tmp_path / "late", CLOSED.replace("30ms", "1s").replace("5ms", "1s"), Truth(late=0.05))
    assert [answer.fails for answer in found.sweep.answers] == [None, None]
    assert [level["failed_share"] for level in found.json["levels"]] == [0] * len(found.json["levels"])


def test_another_objective_is_asked_of_the_same_trials(tmp_path: Path) -> None:
    folder = make(tmp_path / "s")
    asked = sweeps.asking(folder, ["p95=1s"], "x")
    assert [str(a.objective) for a in SweepView(asked).sweep.answers] == ["p95 within 1 s"]
    assert [str(a.objective) for a in SweepView(folder).sweep.answers] == [
        "p99 within 30 ms",
        "p50 within 5 ms",
    ]


def test_warnings_that_differ_in_their_numbers_alone_share_a_line(tmp_path: Path) -> None:
    reasons = {n: f"another program, rustc, used 0.{n} cores (limit 0.5)" for n in (60, 71, 82)}
    lines = alike([*((why, [n]) for n, why in reasons.items()), ("a leak", [4, 2])])
    assert lines == [f"{reasons[60]} (trial 60; similar in 71, 82)", "a leak (trials 2, 4)"]


def test_nothing_in_the_page_points_outside(closed: Written) -> None:
    for tag, attrs in closed.outline().tags:
        for name in ("src", "href", "action", "srcset", "poster", "data"):
            link = attrs.get(name)
            assert link is None or link.startswith(("#", "data:")), f"{tag} {name}={link}"


@NEEDS_BROWSER
@pytest.mark.parametrize("which", ["closed", "opened"])
def test_a_browser_draws_every_chart_without_an_error_or_a_request(
    which: str, request: pytest.FixtureRequest
) -> None:
    browser.assert_drawn(request.getfixturevalue(which).page)


def test_status_and_report_know_a_sweep(closed: Written) -> None:
    folder = ExperimentFolder.open(closed.page.parent)
    assert report.of(folder).eyebrow == "headrace sweep"
    assert len(sweeps.Sweep.as_decided(folder).design.trials) == 40
    assert len(folder.design.trials) == 9 * 5  # the frozen design: a search to the top
