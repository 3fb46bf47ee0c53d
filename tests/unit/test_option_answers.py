"""Option files as four servers read them: what their binaries answered, recorded, against what we make of them.

``tests/data/option-answers.json`` says which binary gave each answer: `--print-defaults` for trees of files, which
a generator made, and `--verbose --help` (MySQL: also `--validate-config`) for single lines.
``tests/real/server/test_option_files.py`` asks the binaries themselves.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.base.model import Vendor
from headrace.fleet.drift import _starts_with
from headrace.fleet.files import settled
from headrace.knobs import servers
from headrace.lab.server.option_files import Copies, Start, Word, reading, stripped, without_comment
from tests.folders import TESTS
from tests.servers import KINDS

#: A line break in a value ends the line of the binary's table.
FIRST_LINE = re.compile(r"\n.*", re.DOTALL)


@functools.cache
def answers() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((TESTS / "data" / "option-answers.json").read_text())
    return found


def vendor_of(kind: str) -> Vendor:
    return Vendor.MARIADB if kind.startswith("mariadb") else Vendor.MYSQL


def shown(word: Word) -> str:
    name, equals, _ = without_comment(word.text).partition("=")
    return f"--{stripped(name)}" + (f"={word.value or ''}" if equals else "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_of_files_has_the_words_that_the_binary_printed(kind: str) -> None:
    own = answers()[kind]
    for tree in own["trees"]:
        files = {path: text.encode("latin-1") for path, text in tree["files"].items()}
        seen = {name: frozenset(tree[name]) for name in ("ignored", "absent", "barred")}
        start = Start(vendor_of(kind), own["version"], tuple(tree["arguments"]), tree["environment"])
        found = reading(Copies(files, **seen), start)
        ends = [each for each in found.broken if each.endswith("no start gets past it)")]
        assert bool(ends) is (tree["printed"] is None), (tree["seed"], found.broken)
        if tree["printed"] is None:
            continue
        words = " ".join(shown(word) for word in found.words)
        printed = words.encode("utf-8", "surrogateescape").decode("latin-1").strip(" ")
        if not any("zero byte" in each for each in found.broken):
            assert printed == tree["printed"], tree["seed"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_is_what_the_binary_made_of_it_or_is_named_as_what_ends_a_start(kind: str) -> None:
    own = answers()[kind]
    vendor = vendor_of(kind)
    listed = servers.of(vendor, own["version"])
    assert listed is not None
    variables = {name: each.default or "" for name, each in listed.variables.items() if each.is_variable}
    start = Start(vendor, own["version"], ("--defaults-file=/my.cnf",))
    wrong = []
    for line, answer in own["lines"].items():
        content = f"[mysqld]\n{line}\n".encode()
        options, troubles = settled(reading(Copies({"/my.cnf": content}), start).words, start, variables)
        if answer is None:
            wrong += [] if troubles else [f"{line}: no start gets past it, and that is not said"]
            continue
        wrong += [f"{line}: starts, and we say {troubles}" for _ in troubles[:1] if "may" not in troubles[0]]
        for name, value in answer.items():
            ours = FIRST_LINE.sub("", options[name][0]) if name in options else None
            if ours is None or not _starts_with(name, value, ours, variables):
                wrong.append(f"{line}: {name} is {value!r}, and not {ours!r}")
    assert not wrong
