"""The documentation as a site: built strictly, read from a disk, searched without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import browser
from tests.folders import ROOT

SEARCH = """(async (words) => {
    const box = document.querySelector('.md-search__input');
    box.focus(); box.value = words;
    box.dispatchEvent(new KeyboardEvent('keyup', { bubbles: true }));
    box.dispatchEvent(new Event('input', { bubbles: true }));
    const links = () => [...document.querySelectorAll('.md-search-result__link')].map((each) => each.href);
    const pause = () => new Promise((done) => setTimeout(done, 50));
    for (let waited = 0; waited < 600 && !links().length; waited++) await pause();
    return links();
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # mkdocs.yml is strict: a broken link or anchor, or a page that the menu lacks, fails here.
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Page]:
    with browser.page() as page:
        yield page


def test_every_page_is_read_without_a_network(site: Path, tab: browser.Page) -> None:
    """In a narrow window, where a table or a line of code that is too wide shows."""
    tab.look(400)
    for path in sorted(site.rglob("*.html")):
        tab.open(path)
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= 400, f"{path.relative_to(site)} is {wide} pixels wide in a window of 400"
    assert not tab.seen.network
    assert not tab.seen.errors


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("GRANT", "howto/login"),
        ("noise floor", "explanation/verdicts"),
        ("innodb_io_capacity", "reference/knobs/"),
    ],
)
def test_the_search_finds(site: Path, tab: browser.Page, words: str, page: str) -> None:
    tab.look()
    tab.open(site / "index.html")
    found = tab.evaluate(f"{SEARCH}({words!r})")
    assert any(page in link for link in found), found
    assert not tab.seen.network
