"""Words that say nothing: what is at zero stays there, and the rest only gets less."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.folders import ROOT

SOURCE, DOCS = ROOT / "src" / "headrace", ROOT / "docs"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Functions of a room that are called `of`: from_rows, from_json or parse say from what.
STILL_OF = {
    "hunt": 9, "experiment": 8, "web": 3, "rollout": 3, "fleet": 3, "capacity": 3, "base": 2,
    "traffic": 2, "host": 2, "change": 2, "knobs": 1, "indexes": 1, "show": 1, "mcp": 1,
}  # fmt: skip
#: Functions of a room with a local `found`: the name of the thing says what was found.
STILL_FOUND = {
    "experiment": 390, "hunt": 210, "capacity": 140, "change": 130, "traffic": 80, "web": 70,
    "history": 50, "host": 50, "rollout": 40, "lab": 40, "fleet": 40, "indexes": 40, "knobs": 20,
    "show": 10, "tell": 10, "mcp": 10, "base": 10, "cli": 10,
}  # fmt: skip
#: Words of the longest sentence.
MOST_WORDS = 35
#: "is no number" says in three words what "is not a number" says in English; "there is no file" is English.
IS_NO = re.compile(
    r"(?<![Tt]here )\b(?:is|are) no (?!longer|more|less|slower|faster|larger|smaller|better|worse)\w+"
)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in nodes(path) if isinstance(node, FUNCTIONS))


def has_local(function: ast.AST, name: str) -> bool:
    return any(
        (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == name)
        for node in ast.walk(function)
    )


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def said(path: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings."""
    documents = {
        id(node.body[0].value)
        for node in nodes(path)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value


def long_sentences(text: str) -> list[str]:
    """Sentences with more than MOST_WORDS words; tables, headings and commands have none."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*[-*|#\d])", FENCED.sub("", text))
    prose = (
        re.sub(r"\]\([^)]*\)", "]", each)
        for each in blocks
        if not each.lstrip("\n").startswith(("|", "#", "    "))
    )
    sentences = (each for block in prose for each in re.split(r"(?<=[.!?:;])\s+", block))
    return [each for each in sentences if len(each.split()) > MOST_WORDS]


def more_than(counts: Counter[str], still: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count > still.get(name, 0)}


def test_no_room_has_more_functions_that_are_called_of() -> None:
    counts = Counter(
        room(path) for path in SOURCE.rglob("*.py") for each in functions(path) if each.name == "of"
    )
    assert not more_than(counts, STILL_OF)


def test_no_room_has_more_locals_that_are_called_found() -> None:
    counts = Counter(
        room(path) for path in SOURCE.rglob("*.py") for each in functions(path) if has_local(each, "found")
    )
    assert not more_than(counts, STILL_FOUND)


def test_nothing_is_no_something_in_a_message() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}: {text[:100]!r}"
        for path in sorted(SOURCE.rglob("*.py"))
        for text in said(path)
        if IS_NO.search(text)
    ]
    assert not wrong, "\n".join(wrong)
    assert IS_NO.search("'x' is no number")
    assert not IS_NO.search("there is no file x, and the index is no longer used")


def test_no_page_has_a_long_sentence() -> None:
    pages = {
        path.relative_to(DOCS).as_posix(): long_sentences(path.read_text())
        for path in DOCS.rglob("*.md")
        if path.name != "cli.md" and path.parent.name not in ("rules", "knobs")
    }
    assert not {name: sentences for name, sentences in pages.items() if sentences}
    assert [len(long_sentences(" ".join(["word"] * count))) for count in (35, 36)] == [0, 1]
    assert len(pages) > 50
