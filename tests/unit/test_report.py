"""Reports of generated experiments whose truth we know: the page and the JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from headrace.base.intervals import Interval
from headrace.experiment import report
from headrace.experiment.report import page as experiment_page
from headrace.experiment.report import tables
from headrace.experiment.report.page import page_of
from headrace.experiment.report.view import View
from headrace.experiment.stats.result import Analysis
from headrace.experiment.stats.study import analyse_experiment
from headrace.show import charts, html, jsonform
from tests import browser, synthetic
from tests.written import Outline, Written, shown

NEEDS_BROWSER = pytest.mark.needs("chromium")


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
    # 8 treatments: pace, heat map, strips; 6 of the ladder, distribution and drift; 8 of its parts; their effects.
    assert len(outline.figures()) == 3 * 8 + 6 + 2 + 3 + 8 + 1


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
    assert len(outline.code()) == 2
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
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in outline.code()}
    assert allowed == hashes
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_the_page_is_small_and_names_the_owner_of_its_chart_library(ladder: Written) -> None:
    """The library alone has 1.5 MB."""
    assert len(ladder.html.encode()) < 1_100_000
    (library, _) = Outline(ladder.html).code()
    assert library.startswith("/**\n* plotly.js")
    assert re.search(r"<!-- plotly\.js .* Copyright .* Plotly, Inc\. .* MIT license -->", ladder.html)


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
        "cautions", "planned_trials", "versions", "factors", "choice", "duet", "switchback", "machines", "growth",
        "adopt", "notice", "power_cuts",
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
    assert "unknown, huge pages unknown" in page


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
def test_a_browser_that_cannot_unpack_the_charts_says_so(ladder: Written, tmp_path: Path) -> None:
    path = tmp_path / "cut.html"
    path.write_text(re.sub(r'(id="library">.{1000})[^<]*', r"\1", ladder.html))
    with browser.page() as page:
        page.open(path)
        note = "document.getElementById('no-charts')"
        page.evaluate(
            f"(async () => {{ for (let n = 0; n < 100 && {note}.hidden; n++)"
            " await new Promise((done) => setTimeout(done, 50)); })()"
        )
        assert page.evaluate(f"{note}.hidden") is False
        assert page.evaluate("document.querySelectorAll('svg.main-svg').length") == 0


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


def test_many_warnings_do_not_bury_the_table(tmp_path: Path) -> None:
    warnings = {n: f"another program used {n} cores" for n in range(1, 13)}
    shape = synthetic.Shape(
        effects={"A": 1.0, "B": 1.2}, blocks=4, seconds=5, sampled=False, warnings=warnings
    )
    written = Written(tmp_path / "e", shape)
    assert "7 more warnings: see report.html" in shown(written, 100)
    outline = Outline(written.html)
    assert all(warning in outline.text for warning in warnings.values())
