"""The pages of races, imports, tunings and series: what they say, and that nothing in them is read as markup."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.base.buckets import bucket_of
from headrace.base.effect import Effect, Verdict
from headrace.base.intervals import Interval
from headrace.base.model import Role, TrialState, Value
from headrace.base.percentiles import Histogram
from headrace.experiment import kinds, report
from headrace.experiment import plan as plans
from headrace.experiment.foreign import Row
from headrace.experiment.frozen import Design
from headrace.experiment.kinds import race as races
from headrace.experiment.kinds.search import Found
from headrace.experiment.report.effects import page as effects_html
from headrace.experiment.report.history import page as history_html
from headrace.experiment.report.tune import page as tune_html
from headrace.experiment.report.tune import words as tune_text
from headrace.experiment.space import Seen
from headrace.experiment.stats.decision import decide
from headrace.experiment.stats.factors import questions_of, studies_of
from headrace.experiment.stats.history import Point, watch
from headrace.experiment.stats.trials import TrialResponse
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.experiment.tune import Confirmed, Tuned, front_of
from headrace.host.arrow import INTERVALS, LATENCY, SAMPLES, TrialData, empty_data
from headrace.show import html, text
from headrace.show.parts import MOST_ROWS, Table
from tests import browser, synthetic
from tests.commands import headrace
from tests.published import FOLDER
from tests.unit.test_tune import table as tune_table
from tests.written import Outline

NEEDS_BROWSER = pytest.mark.needs("chromium")

RACE = """
name = "race"
[design]
kind = "race"
baseline = "100"
blocks = 8
equivalence = 0.03
[workload]
kind = "oltp"
seconds = 10
[factors.capacity]
knob = "server.innodb_io_capacity"
levels = {levels}
"""

SPEEDS = {"STOCK": 1.0, "POOL": 2.1, "POOL+LOG": 2.6, "ALL": 2.63, "NOATIME": 1.02, "SMALL": 0.4}


def race_design(names: Mapping[str, float], title: str) -> Design:
    """A race of as many treatments, renamed: a plan would not take all of these names."""
    levels = [100 + i for i in range(len(names))]
    plan = plans.parse(RACE.format(levels=levels), "race.toml")
    design = kinds.build(plan, place="race.toml")
    new = dict(zip((t.name for t in design.treatments), names, strict=True))
    treatments = tuple(replace(t, name=new[t.name]) for t in design.treatments)
    trials = tuple(replace(t, treatment=new[t.treatment]) for t in design.trials)
    return replace(design, name=title, description=title, treatments=treatments, trials=trials)


def made_race(path: Path, speeds: Mapping[str, float], title: str, fails: str = "") -> ExperimentFolder:
    """Run a generated race as the runner would: after each trial the judge says what comes next."""
    folder = ExperimentFolder.create(path, "", race_design(speeds, title))
    rng = np.random.default_rng(4)
    while not (found := races.progress_of(folder)).is_over:
        done = {r.number for r in folder.trials()}
        specs = races._trials(found.runners, folder.design.seed)
        spec = next(t for t in specs if t.number not in done)
        has_failed = spec.treatment == fails
        ops_s = 4000 * speeds[spec.treatment] * math.exp(rng.normal(0, 0.012))
        start_ns = synthetic.START_NS + spec.number * 16_000_000_000
        record = TrialRecord(
            spec.number,
            spec.block,
            spec.position,
            spec.treatment,
            Role.CANDIDATE,
            TrialState.FAILED if has_failed else TrialState.COMPLETE,
            synthetic.HOSTILE if has_failed else "",
            0 if has_failed else start_ns,
            0 if has_failed else start_ns + 10_000_000_000,
            times_ns={"started": start_ns - 10**9, "finished": start_ns + 11 * 10**9},
            warnings=[synthetic.HOSTILE] if spec.number == 2 else [],
        )
        folder.begin_trial(spec.number).commit(record, empty_data() if has_failed else measured(ops_s))
    return folder


def measured(ops_s: float) -> TrialData:
    row = {
        "t_s": 0.0,
        "duration_s": 10.0,
        "operation": "t",
        "count": round(ops_s * 10),
        "errors": 0,
        "rows": 0,
        "bytes": 0,
        "min_ns": None,
        "max_ns": None,
        "p99_ns": None,
    }
    return TrialData(
        pa.Table.from_pylist([row], schema=INTERVALS), LATENCY.empty_table(), SAMPLES.empty_table()
    )


def evil(n: int) -> str:
    return f"{synthetic.HOSTILE} {n}"


def figures(page: str) -> list[dict[str, Any]]:
    return [
        json.loads(m) for m in re.findall(r'<script type="application/json" id="\w+">(.*?)</script>', page)
    ]


def is_safe(page: str) -> None:
    """Nothing hostile is an element, a control character, or markup inside a figure."""
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "alert(1)" in page
    for figure in figures(page):
        assert "<img" not in json.dumps(figure)
    outline = Outline(page)
    assert not [tag for tag, _ in outline.tags if tag == "img"]


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = made_race(tmp_path_factory.mktemp("pages") / "race", SPEEDS, "Six ways")
    return report.write(report.of(folder), folder)


@pytest.fixture(scope="module")
def evil_race(tmp_path_factory: pytest.TempPathFactory) -> Path:
    speeds = {evil(i): 1.0 + i / 3 for i in range(5)}
    folder = made_race(tmp_path_factory.mktemp("pages") / "evil", speeds, evil(9), fails=evil(1))
    return report.write(report.of(folder), folder)


def test_a_race_says_which_remain_which_were_eliminated_and_what_it_saved(race: Path) -> None:
    page = race.read_text()
    assert race.name == "report.html"
    assert json.loads((race.parent / "report.json").read_text())["races"][0]["leader"] in ("ALL", "POOL+LOG")
    assert "eliminated after block 2 by" in page
    assert "of the full study" in page
    ratios, saved = figures(page)
    assert len(ratios["data"][0]["x"]) == 6
    ran, spared = (trace["y"] for trace in saved["data"])
    assert ran[0] == 6
    assert ran[3] < 6
    assert all(a + b == 6 for a, b in zip(ran, spared, strict=True))


def test_a_hostile_race_is_text(evil_race: Path) -> None:
    is_safe(evil_race.read_text())


def imported(path: Path, names: Sequence[str], repeats: int = 1, *, with_latency: bool = False) -> Path:
    """A table of two factors with two levels each, and one with three."""
    rng = np.random.default_rng(5)
    rows = [
        Row(
            "x",
            {names[0]: names[1 + a], names[3]: names[4 + b], "threads": str(4**c)},
            {
                names[6]: 100 * (1 + 3 * a * b) * (1 + c) * math.exp(rng.normal(0, 0.05)),
                "p99_ms": 5 * (1 + a) * (3 - c) * math.exp(rng.normal(0, 0.05)),
            },
        )
        for a, b, c, _ in itertools.product(range(2), range(2), range(3), range(repeats))
    ]
    responses = {names[6]: True, "p99_ms": False} if with_latency else {names[6]: True}
    studies = studies_of(rows, [names[0], names[3], "threads"], responses)
    sources = [Path(names[1].replace("/", "_"))]
    path.write_text(html.render(effects_html.page_of(studies, sources, decide(questions_of(studies)))))
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ["filesystem", "xfs", "ext4", "kernel", "6.1", "6.12", "tps"]
    return imported(tmp_path_factory.mktemp("pages") / "import.html", names)


@pytest.fixture(scope="module")
def evil_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imported(
        tmp_path_factory.mktemp("pages") / "evil.html", [evil(i) for i in range(7)], 2, with_latency=True
    )


def test_an_import_has_its_sentences_shares_plots_ranks_and_groups(table: Path) -> None:
    page = Outline(table.read_text())
    said = " ".join(" ".join(page.words).split())
    for part in (
        "What matters for tps?",
        "What depends on what?",
        "Which is best for tps?",
        "assume that there are none",
        "filesystem by kernel",
        "All 12 cells",
        "Separate groups",
    ):
        assert part in said
    shares, noise, *plots, ranks = figures(table.read_text())
    assert len(shares["data"][0]["x"]) == 6
    # One observation a cell: 11 degrees of freedom, each a point, the line of noise and what lies beyond it.
    line, *points, _ = noise["data"]
    assert line["x"] == line["y"]
    assert sum(len(p["x"]) for p in points) == 11
    assert all(noise["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis"))
    assert len(noise["layout"]["shapes"]) == 1
    assert len(plots) == 3
    assert len({json.dumps(plot["layout"]["yaxis"]) for plot in plots}) == 1, "one scale for all plots"
    values = ranks["data"][0]["x"]
    assert values == sorted(values, reverse=True)


def test_repeats_give_intervals_to_the_choice_and_two_responses_a_front(tmp_path: Path) -> None:
    names = ["filesystem", "xfs", "ext4", "kernel", "6.1", "6.12", "tps"]
    page = imported(tmp_path / "two.html", names, 3, with_latency=True).read_text()
    said = " ".join(" ".join(Outline(page).words).split())
    assert "ext4 6.12 16 has the best tps; " in said
    assert "on both tps and p99_ms" in said
    kept, latency, front, *_ = figures(page)
    assert len(kept["data"][0]["x"]) == 12
    assert kept["data"][0]["x"][0] == 1
    assert latency["layout"]["xaxis"]["title"]["text"] == "share of the best value"
    assert front["layout"]["xaxis"]["title"]["text"] == "tps, more is better"
    assert front["layout"]["yaxis"]["title"]["text"] == "p99_ms, less is better"


def test_a_hostile_import_is_text(evil_table: Path) -> None:
    is_safe(evil_table.read_text())


def watched(path: Path, name: str, response: str, levels: Sequence[float]) -> Path:
    rng = np.random.default_rng(6)
    points = [
        Point(f"{name} {i}", tuple(level + rng.normal(0, 0.02) for _ in range(3)))
        for i, level in enumerate(levels)
    ]
    path.write_text(html.render(history_html.page_of(watch(points), response, alpha=0.05, margin=0.03)))
    return path


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watched(
        tmp_path_factory.mktemp("pages") / "watch.html", "v", "tps", [7.0] * 10 + [7.3] * 10 + [6.9] * 9
    )


@pytest.fixture(scope="module")
def evil_series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watched(tmp_path_factory.mktemp("pages") / "evil.html", evil(1), evil(2), [7.0] * 10 + [6.3] * 10)


def test_a_series_shows_its_levels_and_changes(series: Path) -> None:
    page = series.read_text()
    assert "2 changes in 29 points, the last at v 20" in page
    (figure,) = figures(page)
    assert len(figure["layout"]["shapes"]) == 2
    levels = [t for t in figure["data"] if t["mode"] == "lines"]
    assert [t["x"] for t in levels] == [[-0.5, 9.5], [9.5, 19.5], [19.5, 28.5]]
    assert levels[1]["y"][0] == pytest.approx(math.exp(7.3), rel=0.03)


def test_a_hostile_series_is_text(evil_series: Path) -> None:
    is_safe(evil_series.read_text())


@pytest.mark.parametrize("points", [0, 1, 6])
def test_a_series_that_is_too_short_has_a_page(tmp_path: Path, points: int) -> None:
    page = watched(tmp_path / "x.html", "v", "tps", [7.0] * points).read_text()
    assert "points are too few" in page


def effect(response: str, name: str, ratio: float, verdict: Verdict) -> Effect:
    return Effect(
        response, name, "AS-IS", "", Interval(ratio, ratio * 0.96, ratio * 1.04), verdict, 4, None, 2
    )


def tuned(names: Sequence[str], objectives: Sequence[str], points: int = 40) -> Tuned:
    """A search whose throughput grows with the pool's size, and what it confirmed."""
    table = tune_table(f"objective = {json.dumps(list(objectives))}")
    rng = np.random.default_rng(7)
    found = []
    for number in range(1, points + 1):
        gain = 0.0 if number == 1 else rng.uniform(-0.5, 1.2)
        tells = {"throughput": 1000 * math.exp(gain), "p99": 8e6 * math.exp(0.4 * gain + rng.normal(0, 0.2))}
        state = TrialState.FAILED if number % 11 == 0 else TrialState.COMPLETE
        logs = tuple(math.log(tells[o]) * (1 if o == "throughput" else -1) for o in objectives)
        seen = Seen({}, logs, {"p99=10ms": math.log(tells["p99"] / 1e7)})
        response = answered(number, tells["throughput"], tells["p99"])
        is_sound = state is TrialState.COMPLETE
        settings: dict[str, Value] = {
            "server.innodb_flush_method": names[0],
            "server.innodb_io_capacity": number,
        }
        settings = {} if number == 1 else settings
        found.append(
            Found(
                number,
                settings,
                state,
                "" if is_sound else names[1],
                response if is_sound else None,
                seen if is_sound else Seen({}, None, {}),
            )
        )
    winner = Confirmed(
        names[2],
        {"server.innodb_flush_method": names[0]},
        {
            "throughput": effect("throughput", names[2], 2.4, Verdict.BETTER),
            "p99": effect("p99", names[2], 0.8, Verdict.BETTER),
        },
    )
    lean = Confirmed("LEAN", {}, {"throughput": effect("throughput", "LEAN", 2.3, Verdict.BETTER)})
    return Tuned(
        table,
        found,
        front_of(found, table),
        {"pool": 0.6, "capacity": 0.3, "flush": 0.1},
        [],
        [winner, lean],
        winner,
        Path("/nowhere"),
        None,
    )


def answered(number: int, ops_s: float, p99_ns: float) -> TrialResponse:
    """A thousand and more operations of one latency: their p99 is that."""
    latency = Histogram.of(bucket_of(np.array([int(p99_ns)])), np.array([5000]))
    return TrialResponse(number, 0, "x", Role.CANDIDATE, ops_s, latency=latency)


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "tune.html"
    found = tuned(["fsync", "no start", "P007"], ["throughput"])
    path.write_text(html.render(tune_html.page_of(found, "shop")))
    return path


@pytest.fixture(scope="module")
def evil_tuning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "evil.html"
    found = tuned([evil(1), evil(2), evil(3)], ["throughput", "p99"])
    path.write_text(html.render(tune_html.page_of(found, evil(4))))
    return path


def test_a_tuning_shows_what_was_confirmed_what_mattered_and_the_search(tuning: Path) -> None:
    page = tuning.read_text()
    assert "P007 is confirmed: throughput 2.400x the current settings" in page
    assert "LEAN sets 0 of its 1 knobs" in page
    confirmed, p99, importance, search = figures(page)
    assert confirmed["data"][0]["x"] == [2.4, 2.3]
    assert p99["data"][0]["x"] == [0.8]
    assert importance["data"][0]["x"] == [60, 30, 10]
    best = search["data"][0]["y"]
    assert best == sorted(best), "the best so far never falls"
    assert sum(len(t["x"]) for t in search["data"][1:]) == 40


def test_a_lean_candidate_that_costs_latency_says_so() -> None:
    found = tuned(["a", "b", "c"], ["throughput"])
    winner, lean = found.confirmed
    assert "Worse" not in tune_text.lean_sentence(found)
    slow = dataclasses.replace(
        lean, effects={**lean.effects, "p99": effect("p99", "LEAN", 2.4, Verdict.WORSE)}
    )
    said = tune_text.lean_sentence(dataclasses.replace(found, confirmed=[winner, slow]))
    assert said.endswith("Worse than the current settings: p99.")


def test_how_much_a_lean_candidate_reaches_has_an_interval() -> None:
    found = tuned(["a", "b", "c"], ["throughput"])
    winner, lean = found.confirmed
    assert winner is found.winner

    def said(**ratios: Interval) -> str:
        own = {
            name: dataclasses.replace(
                each, effects={"throughput": dataclasses.replace(each.effects["throughput"], ratio=ratio)}
            )
            for name, each, ratio in (("best", winner, ratios["best"]), ("lean", lean, ratios["lean"]))
        }
        return tune_text.lean_sentence(
            dataclasses.replace(found, confirmed=[own["best"], own["lean"]], winner=own["best"])
        )

    best = Interval(2.0, 1.6, 2.5)
    assert "reaches 95% of it (60% to 150%; better against" in said(best=best, lean=Interval(1.9, 1.5, 2.4))
    assert "reaches 95% of it (no interval; better" in said(best=best, lean=Interval(1.9, None, None))


def test_two_objectives_show_their_front(evil_tuning: Path) -> None:
    page = evil_tuning.read_text()
    is_safe(page)
    *_, front = figures(page)
    line = front["data"][0]
    assert line["x"] == sorted(line["x"])
    assert line["y"] == sorted(line["y"]), "more throughput costs latency along the front"


def test_a_tuning_that_found_nothing_has_a_page() -> None:
    nothing = dataclasses.replace(
        tuned(["a", "b", "c"], ["throughput"], 1),
        confirmed=[],
        winner=None,
        importance={},
        found=[],
        front=[],
    )
    page = html.render(tune_html.page_of(nothing, "shop"))
    assert "No point was tried yet" in page
    assert "there was nothing to confirm" in page


def test_rows_beyond_the_cap_are_counted() -> None:
    rows = [(str(i),) for i in range(MOST_ROWS + 7)]
    assert Table((("n", ""),), rows).left == 7
    assert len(Table((("n", ""),), rows).shown) == MOST_ROWS


PAGES = ["race", "evil_race", "table", "evil_table", "series", "evil_series", "tuning", "evil_tuning"]


@NEEDS_BROWSER
@pytest.mark.parametrize("which", PAGES)
def test_a_browser_draws_it_without_an_error_or_a_request(which: str, request: pytest.FixtureRequest) -> None:
    browser.assert_drawn(request.getfixturevalue(which))


def test_the_commands_write_their_pages(tmp_path: Path) -> None:
    page, file = tmp_path / "p.html", FOLDER / "pinterest-2015-async-rndwr.csv"
    factors = ["--factor", "kernel", "--factor", "filesystem", "--factor", "raid_chunk"]
    done = headrace("import", str(file), *factors, "--response", "write_mb_s", "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert f"page: {page}" in done.stderr
    said = " ".join(" ".join(Outline(page.read_text()).words).split())
    assert "4 cells collapsed, at 87.0 to 103; 16 have 530 to 661" in said
    rows = [f"v{i},{1000 * (1 + (i > 8) / 4) + i % 3}" for i in range(18)]
    (tmp_path / "t.csv").write_text("version,tps\n" + "\n".join(rows) + "\n")
    done = headrace("watch", str(tmp_path / "t.csv"), "--response", "tps", "--html", str(page), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["changes"][0]["name"] == "v9"
    assert "the last at v9" in page.read_text()
    done = headrace(
        "watch", str(tmp_path / "t.csv"), "--response", "tps", "--html", str(tmp_path / "no" / "p.html")
    )
    assert done.returncode == 2
    assert "there is no directory" in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_latencies_of_experiments_are_shown_in_ms(tmp_path: Path) -> None:
    found = watch([Point(str(i), (math.log(5e6),)) for i in range(8)])
    page = html.render(history_html.page_of(found, "p99", alpha=0.05, margin=0.03, is_time_ns=True))
    (figure,) = figures(page)
    assert figure["data"][0]["y"] == [5.0] * 8
    assert figure["layout"]["yaxis"]["title"]["text"] == "p99 [ms]"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("kernel=6.1 chunk=4K filesystem=xfs", "6.1 4K xfs"),
        ("kernel=6.1 filesystem=xfs @ test=rndrd io=async", "6.1 xfs @ rndrd async"),
        ("chunk=4K", "chunk=4K"),
        ("a name of no levels that is rather long", "a name of n… rather long"),
    ],
)
def test_a_long_name_keeps_what_tells_it_from_others(name: str, shown: str) -> None:
    assert text.short(name) == shown
