"""A hunt's page and its terminal view of real hosts: wide and narrow, in both schemes, 128 cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.hunt import hunt
from headrace.hunt.report.page import page_of
from headrace.show import html, terminal
from tests import browser
from tests.golden_hosts import HOSTS
from tests.written import printed

NEEDS_BROWSER = pytest.mark.needs("chromium")
SHOWN = ("cores-128-one-hot", "xen-one-hot-core", "swapping")


@NEEDS_BROWSER
@pytest.mark.parametrize("name", SHOWN)
def test_a_page_fits_its_window(name: str, tmp_path: Path) -> None:
    found = hunt.examine(HOSTS[name](tmp_path / name))
    path = tmp_path / "page.html"
    path.write_text(html.render(page_of(found)))
    with browser.page() as page:
        for width, dark in ((1280, False), (1280, True), (400, False), (400, True)):
            page.look(width, 900, dark=dark)
            page.open(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            bars = page.evaluate("[...document.querySelectorAll('.corebar')].map(e => e.offsetHeight)")
            assert len(bars) == len(found.evidence.cores)
            assert page.evaluate("document.querySelector('.verdict').innerText") == found.verdict.sentence
        assert page.seen.errors == []
        assert page.seen.network == []


def test_128_cores_fit_one_screen_of_a_terminal(tmp_path: Path) -> None:
    found = hunt.examine(HOSTS["cores-128-one-hot"](tmp_path / "big"))
    for width in (80, 160):
        lines = printed(terminal.render(page_of(found)), width=width).splitlines()
        assert max(len(line.rstrip()) for line in lines) <= width
        assert len(lines) < 90
        assert sum("core cpu" in line for line in lines) == 1
