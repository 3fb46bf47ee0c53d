"""Every kind of part in every renderer: hostile text is shown and never read, and one policy guards every page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from markupsafe import Markup

from headrace.base.effect import Verdict
from headrace.base.intervals import Interval
from headrace.show import html, jsonform, parts, terminal
from headrace.show.parts import (
    Bars,
    Box,
    Card,
    Cell,
    Chart,
    Column,
    Compare,
    Details,
    Facts,
    Gap,
    Heading,
    Image,
    Key,
    Keys,
    Lines,
    Marks,
    Note,
    Page,
    Part,
    Picture,
    Row,
    Runs,
    Scale,
    Section,
    Sentence,
    Sentences,
    Span,
    Switch,
    Table,
    When,
)
from tests.synthetic import HOSTILE
from tests.written import Outline, assert_harmless, printed

H = HOSTILE
FIGURE: dict[str, Any] = {
    "data": [{"name": H, "customdata": [H, Markup("<b>{}</b>").format(H)], "x": [1, 2]}],
    "layout": {"height": 100, "meta": {"rows": [H]}},
}
WORDS: list[str | Span] = [
    H,
    Span(H, "code"),
    Span(H, "strong"),
    Span(H, "chip better"),
    Span(H, link="here"),
]

EVERY: tuple[Part, ...] = (
    Table(
        [Column(H, over=H, small=H), ("b", "n"), Column(H, "code")],
        [[Cell(WORDS, note=H), Cell(H, chip="better", label=H), Cell(H, look="code")]],
        title=H,
    ),
    Table([(H, "")], [[H]], title=H, is_folded=True),
    Chart(FIGURE, H, H, [(H, "@{accent}", "●")], WORDS),
    Row([Chart(FIGURE, H), Note(H)]),
    Box("controls", [Note(H)]),
    Note(H, is_attention=True),
    Sentence(WORDS),
    Heading(H),
    Sentences([H, WORDS]),
    Facts([(H, WORDS)]),
    Marks([(H, "@{accent}", H)]),
    Switch("x", H, [H]),
    When("x", H, [Note(H)]),
    Scale(50),
    Compare([(H, FIGURE)], [0]),
    Runs([(H, [(H, "complete", H)])]),
    Bars([(H, [("part-user", 50.0)], H, H)], [("part-user", H)]),
    Details(WORDS, [Note(H)]),
    Card(WORDS, [Note(H)], "finding"),
    Picture(Markup("<svg></svg>"), WORDS),
    Image(f"<svg>{H}</svg>", H),
    Lines(f"{H}\n{H}"),
    Keys([Key(H, H, H)]),
    Gap(),
)


def page_with(*shown: Part) -> Page:
    sections = [Section("all", H, H, shown, H, brief=shown)]
    return Page(H, H, [H], sections, lead=H, keys=[Key(H, H, H)], cautions=[H], footer=H)


def test_every_kind_of_part_is_here() -> None:
    assert {type(part) for part in EVERY} == set(get_args(parts.Part))


@pytest.mark.parametrize("part", EVERY, ids=lambda part: type(part).__name__)
def test_hostile_text_is_shown_and_never_read(part: Part) -> None:
    page = html.render(page_with(part))
    outline = Outline(page)
    body = page.partition("<script")[0]
    assert not {"\x1b", "\x07", "\u202e"} & set(body)
    allowed = {"img"} if isinstance(part, Image) else set()
    assert {tag for tag, _ in outline.tags if tag in ("img", "x", "bold")} <= allowed
    assert not [attrs for _, attrs in outline.tags if "onerror" in attrs]
    assert "onerror=alert(1)" in outline.text
    for figure in outline.figures().values():
        assert "<img" not in json.dumps(figure)
        assert figure["data"][0]["x"] == [1, 2]
        assert figure["data"][0]["customdata"][1].startswith("<b>&lt;/script&gt;")


@pytest.mark.parametrize("part", EVERY, ids=lambda part: type(part).__name__)
def test_hostile_text_does_not_reach_a_terminal(part: Part) -> None:
    assert_harmless(printed(terminal.render(page_with(part))))


@pytest.mark.parametrize("part", EVERY, ids=lambda part: type(part).__name__)
def test_one_policy_allows_exactly_the_scripts_of_the_page(part: Part) -> None:
    outline = Outline(html.render(page_with(part)))
    (policy,) = [attrs["content"] for tag, attrs in outline.tags if tag == "meta" and attrs.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "connect-src" not in policy
    scripts = outline.code()
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    needs = any(isinstance(each, Chart | Compare | Switch) for each in parts.walk([part]))
    assert len(scripts) == (2 if needs else 0)


def test_a_section_without_parts_is_not_on_the_page() -> None:
    sections = [Section("a", "A", "A", [Note("a")]), Section("b", "B", "B", brief=[Note("b")])]
    page = html.render(Page("x", "x", [], sections))
    assert 'id="a"' in page
    assert 'id="b"' not in page
    assert 'href="#b"' not in page


@dataclass(frozen=True)
class Told:
    ratio: Interval
    verdict: Verdict


def test_json_is_the_data_of_the_page_and_its_sections_as_plain_values() -> None:
    told = Told(Interval(1.5, None, math.inf), Verdict.BETTER)
    sections = [Section("a", "", "", data={"told": [told], "numbers": {"x": math.nan}})]
    found = jsonform.render(Page("x", "x", [], sections, data={"format": 1}))
    ratio = {"estimate": 1.5, "low": None, "high": None}
    assert found == {"format": 1, "told": [{"ratio": ratio, "verdict": "better"}], "numbers": {"x": None}}
    json.dumps(found, allow_nan=False)
