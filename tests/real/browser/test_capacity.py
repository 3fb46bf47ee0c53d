"""How full hosts are, and which could be merged: the pages on a history of weeks, as a browser sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.web import app
from tests import browser
from tests.below import within
from tests.history import site
from tests.real.browser.test_serve import problems
from tests.served import on_loopback
from tests.unit.test_web_pages import fill_use

KEY = "key"
PAGES = ("/capacity", "/capacity/report", "/capacity/merge", "/capacity/merge/report")
CATALOGUE = (
    "name,cpu,cpu_knee,price,currency,watts,cpu_burst\nbig,24,0.8,500,USD,240,\nsmall,8,0.8,190,USD,90,12\n"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """db1 is full now, db2 on a date; db3 and db4 have room."""
    root = tmp_path_factory.mktemp("capacity")
    found = site(root, ["db1", "db2", "db3", "db4"], key=KEY)
    fill_use(found, db1=7.0, db2=2.0, db3=1.0, db4=1.0)
    found.catalogue = root / "hosts.csv"
    found.catalogue.write_text(CATALOGUE)
    with on_loopback(app.application(found)) as (found_at, _):
        yield found_at


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Page]:
    with browser.page() as page:
        yield page


@pytest.fixture(scope="module")
def url(address: str, tab: browser.Page) -> str:
    return within(tab, f"{address}/enter?key={KEY}")


@pytest.mark.parametrize(("width", "dark"), [(400, False), (1280, True), (2560, False)])
def test_every_page_is_drawn_without_an_error(
    address: str, url: str, tab: browser.Page, width: int, dark: bool
) -> None:
    tab.look(width, dark=dark)
    for path in PAGES:
        tab.open(url + path)
        tab.scroll_through()
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} pixels wide in a window of {width}"
        undrawn = "[...document.querySelectorAll('.plot')].filter(p => !p.dataset.drawn).length"
        assert tab.evaluate(undrawn) == 0
        assert tab.evaluate("document.querySelector('h1').textContent.length") > 0
    assert not [each for each in tab.seen.network if not each.startswith(address)]
    assert not tab.seen.errors


def test_every_page_can_be_read_and_used_by_everyone(url: str, tab: browser.Page) -> None:
    axe = pytest.importorskip("axe_core_python")
    script = (Path(axe.__path__[0]) / "axe.min.js").read_text()
    found = {}
    for dark in (False, True):
        tab.look(dark=dark)
        for path in PAGES:
            tab.open(url + path)
            found[f"{path}, {'dark' if dark else 'light'}"] = problems(
                tab, script, "color-contrast" if dark else ""
            )
    assert not {path: each for path, each in found.items() if each}


def test_the_plan_is_reached_by_clicks(url: str, tab: browser.Page) -> None:
    tab.look()
    tab.open(f"{url}/capacity")
    tab.open(tab.evaluate("document.querySelector('a[href$=\"/capacity/merge\"]').href"))
    assert tab.evaluate("document.querySelector('nav [aria-current]').textContent") == "Capacity"
    tab.open(tab.evaluate("document.querySelector('iframe.report').src"))
    page = tab.evaluate("document.body.innerText")
    assert "4 databases onto" in page
    assert "chance of exceeding the knee" in page
