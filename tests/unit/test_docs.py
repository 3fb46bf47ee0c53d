"""The documentation follows the code: generated pages are current, and every file that a text names is there."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from headrace import cli
from headrace.base.errors import NotReady
from headrace.cli.docs import find
from headrace.cli.docs_search import search
from headrace.cli.shell import app
from headrace.hunt.rules import all_rules
from headrace.knobs import catalogue as knobs
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
    assert str(find(tmp_path, "NET01")).endswith("reference/rules/network.html#net01")
    assert find(tmp_path, "nothing") is None


def test_docs_searches_sections(tmp_path: Path) -> None:
    entries = [
        ("howto/symptoms.html", "What do I do when ...", ""),
        (
            "howto/symptoms.html#slow",
            "Commits wait",
            "<p><code>hunt</code> says how long they wait",
        ),
        ("reference/rules/logs.html", "Rules: logs", ""),
        ("reference/rules/logs.html#blog04", "BLOG04: Each commit waits", "for others &amp; on purpose"),
        ("project/changelog.html", "Changelog", "commit wait commit wait"),
        ("howto/other.html", "Other", "a replica, and a commit"),
        *((f"howto/{number}.html", "Another page", "about nothing of that kind") for number in range(20)),
    ]
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search_index.json").write_text(
        json.dumps({"docs": [dict(zip(("location", "title", "text"), row, strict=True)) for row in entries]})
    )
    answers = search(tmp_path, "When do commits wait?")
    assert [answer.address for answer in answers] == [
        "howto/symptoms.html#slow", "reference/rules/logs.html#blog04", "howto/other.html",
    ]  # fmt: skip
    assert (answers[0].page, answers[0].title) == ("What do I do when ...", "Commits wait")
    assert answers[1].excerpt == "for others & on purpose"
    assert search(tmp_path, "the") == search(tmp_path, 'zzz" OR *') == []


def test_pages_are_searched_as_they_are_written_where_no_site_is_built(tmp_path: Path) -> None:
    (tmp_path / "howto").mkdir()
    (tmp_path / "howto" / "slow.md").write_text(
        "# Slow\n\nAll of it.\n\n## Commits wait { #com01 }\n\nLook at the log.\n\n## Other\n\nNothing.\n"
    )
    (answer,) = search(tmp_path, "commit wait")
    assert (answer.page, answer.title) == ("Slow", "Commits wait")
    assert answer.address == "howto/slow.html#commits-wait"
    assert answer.excerpt == "Look at the log."


FENCED = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def test_every_command_in_the_documentation_exists_with_its_options() -> None:
    cli.load()
    root = typer.main.get_command(app)
    wrong, seen = [], 0
    for path in [*DOCS.rglob("*.md"), *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md")]:
        text = path.read_text()
        inline = re.findall(r"`(headrace [^`]+)`", FENCED.sub("", text))
        lines = [
            line
            for language, block in FENCED.findall(text)
            if language in ("", "sh", "bash", "console")
            for line in re.findall(r"^(?:sudo )?(headrace .*)", block.replace("\\\n", " "), re.MULTILINE)
        ]
        for line in inline + lines:
            seen += 1
            if fault := unknown_word(root, line):
                wrong.append(f"{path.relative_to(ROOT)}: {line!r}: {fault}")
    assert seen > 400
    assert not wrong, "\n".join(wrong)


def unknown_word(root: Any, line: str) -> str:
    """The first word of a command line that the command does not know; empty if it knows all."""
    try:
        words = shlex.split(re.split(r"[;|>&]| \.\.\.", line)[0], comments=True)[1:]
    except ValueError:
        return ""  # a text that quotes half of a command
    command, context = root, root.context_class(root, info_name="headrace")
    while words and hasattr(command, "list_commands") and not words[0].startswith("-"):
        child = command.get_command(context, words[0])
        if child is None and any(each.param_type_name == "argument" for each in command.get_params(context)):
            break  # what the command takes beside its own commands
        if child is None:
            return f"no command {words[0]}" if re.fullmatch(r"[a-z][a-z-]+", words[0]) else ""
        command, context = child, child.context_class(child, info_name=words[0], parent=context)
        words = words[1:]
    known = {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
    options = [word.partition("=")[0].rstrip(",.") for word in words if re.match(r"-{1,2}[a-z]", word)]
    return next((f"no option {option}" for option in options if option not in known), "")


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


def test_each_promise_of_security_names_a_test_that_is_there() -> None:
    text = (DOCS / "explanation" / "security.md").read_text()
    part = text.partition("## What holds these promises")[2].partition("\n## ")[0]
    rows = [row.split("|")[1:3] for row in part.splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 20
    for promise, held in rows:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", held)
        assert tests, promise
        assert held.count("`") == 2 * len(tests), f"{promise}: a file is no test"
        for path, name in tests:
            assert (ROOT / path).is_file(), f"{promise}: {path}"
            is_there = re.search(rf"^\s*(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
            assert is_there, f"{promise}: {path} has no {name}"
