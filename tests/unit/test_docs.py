"""The documentation follows the code: generated pages are current, and every file that a text names is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from headrace import knobs
from headrace.cli.docs import find
from headrace.errors import HeadraceError, NotReady
from headrace.rules import all_rules
from tests.folders import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_current(reference: ModuleType) -> None:
    pages = reference.pages()
    stale = [name for name, text in pages.items() if (DOCS / "reference" / name).read_text() != text]
    assert not stale, "run scripts/reference.py"
    for folder in ("rules", "knobs"):
        there = {f"{folder}/{path.name}" for path in (DOCS / "reference" / folder).glob("*.md")}
        assert there == {name for name in pages if name.startswith(folder)}


def test_the_pages_hold_every_command_rule_and_knob(reference: ModuleType) -> None:
    pages = reference.pages()
    rules = "".join(text for name, text in pages.items() if name.startswith("rules/"))
    for rule in all_rules():
        assert f"## {rule.code}: {rule.title}" in rules
    catalogue = "".join(text for name, text in pages.items() if name.startswith("knobs/"))
    for name in knobs.CATALOGUE:
        assert re.search(rf"^\| `{re.escape(name)}[@`]", catalogue, re.MULTILINE), name
    for command in ("hunt", "run", "lab up", "recording cut", "rules show"):
        assert f"`headrace {command}`" in pages["cli.md"]


def test_every_page_that_the_sources_name_exists() -> None:
    for folder, pattern in (
        ("src", "*.py"),
        ("src", "*.toml"),
        ("tests", "*.py"),
        ("agent", "*.rs"),
        ("crates", "*.rs"),
    ):
        for path in (ROOT / folder).rglob(pattern):
            for page in re.findall(r"docs/[\w/-]+\.md", path.read_text(errors="replace")):
                assert (ROOT / page).exists(), f"{path} names {page}"


def test_docs_finds_pages_and_rules_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="not built"):
        find(tmp_path, "")
    for name in (
        "index",
        "howto/tune",
        "explanation/sweeps",
        "reference/rules/index",
        "reference/rules/network",
    ):
        page = tmp_path / f"{name}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text('<h2 id="net01">' if name.endswith("network") else "")
    assert find(tmp_path, "") == str(tmp_path / "index.html")
    assert (
        find(tmp_path, "tune")
        == find(tmp_path, "docs/howto/tune.md")
        == str(tmp_path / "howto" / "tune.html")
    )
    assert find(tmp_path, "sweep") == str(tmp_path / "explanation" / "sweeps.html")
    assert find(tmp_path, "rules") == str(tmp_path / "reference" / "rules" / "index.html")
    assert find(tmp_path, "NET01").endswith("reference/rules/network.html#net01")
    with pytest.raises(HeadraceError, match="no such page"):
        find(tmp_path, "nothing")


def test_every_page_that_a_hint_names_exists() -> None:
    """``headrace docs NAME`` in a message opens a page of docs/."""
    pages = [path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")]
    named = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"headrace docs ([a-z][a-z-]+)`", path.read_text())
    }
    assert named
    for name in named:
        assert any(page.rpartition("/")[2].startswith(name) for page in pages), name


def test_every_path_that_contributors_are_sent_to_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:src|tests|crates|scripts|docs)/[\w/.-]+)`", text)
    assert len(named) > 20
    for name in named:
        assert (ROOT / name).exists(), name
