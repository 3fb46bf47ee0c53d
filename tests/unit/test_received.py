"""What others send is bounded by what it becomes, before anything is made of it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import CommandFailed, HeadraceError, StoreError
from headrace.base.model import Facts
from headrace.base.received import (
    ANY,
    MOST_DEPTH,
    OF_VERBS,
    BadContent,
    Bound,
    an_object,
    lines,
    number,
    parsed,
    read_as_sent,
)
from headrace.host import snapshot
from headrace.hunt.hunt import examine
from headrace.hunt.report.page import page_of
from tests.folders import ROOT

SMALL = Bound(1 << 20, 1000)

#: Each stands for its kind: what it is -> how it is refused.
BOMBS: dict[str, tuple[str | bytes, str]] = {
    "many lists": ("[" + "[]," * 2000 + "[]]", "too large"),
    "many objects": ("[" + "{}," * 2000 + "{}]", "too large"),
    "many numbers": ("[" + "0," * 2000 + "0]", "too large"),
    "many keys": ("{" + ",".join(f'"{n}":0' for n in range(2000)) + "}", "too large"),
    "many short words": (json.dumps(["a"] * 2000), "too large"),
    "long": ('"' + "x" * (2 << 20) + '"', "too large"),
    "long bytes": (b'"' + b"x" * (2 << 20) + b'"', "too large"),
    "deep lists": ("[" * 300 + "]" * 300, "deeper"),
    "deep objects": ('{"a":' * 150 + "1" + "}" * 150, "deeper"),
    "deeper than any parser": ("[" * 900 + "1", "deeper"),
    "deep after a large word": ('{"s":"' + "x" * 100_000 + '","d":' + "[" * 150 + "]" * 150 + "}", "deeper"),
    "NaN": ("[NaN]", "not a number"),
    "Infinity": ('{"a": -Infinity}', "not a number"),
    "infinite by its exponent": ("[1e999]", "finite"),
    "infinite and negative": ("[-1E+400]", "finite"),
    "thousands of digits": ("9" * 5000, "not JSON"),
    "more than 64 bits": (f"[{2**64 + 1}]", "64 bits"),
    "cut": ('{"a": [1,', "not JSON"),
    "nothing": ("", "not JSON"),
    "no text": (b"\xff\xfe\x00", "not JSON"),
    "NUL": ("\0", "not JSON"),
    "two documents": ("1 2", "not JSON"),
    # Hours where each quote of a text without an end is tried up to that end.
    "an open text of quotes": ("[" * 150 + '"' + '\\"' * 400_000, "deeper"),
    "an open text of backslashes": ("[" * 150 + '"\\' * 250_001, "deeper"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_each_bomb_is_one_error(name: str) -> None:
    content, why = BOMBS[name]
    with pytest.raises(BadContent, match=why):
        parsed(content, SMALL)


@pytest.mark.parametrize("value", [None, [], {}, "x", True, [[1]], 2**63, -1])
def test_whatever_a_host_answers_is_a_page_or_one_error(value: object) -> None:
    def bent(answer: Any) -> Any:
        if isinstance(answer, dict):
            return {key: bent(each) for key, each in answer.items()}
        return [bent(each) for each in answer] if isinstance(answer, list) else value

    facts = json.loads((ROOT / "tests/rules/host.json").read_text())
    saved = snapshot.Snapshot("db", "2026", 1.0, Facts("", bent(facts)), snapshot.NO_SAMPLES)
    with contextlib.suppress(HeadraceError):
        page_of(examine(saved))
    with (
        pytest.raises(CommandFailed, match=r"what it says cannot be read: TypeError"),
        read_as_sent("what it says"),
    ):
        int([])  # type: ignore[call-overload]


def test_what_fits_is_what_was_sent() -> None:
    text = json.dumps({"a": [1, 2.5, None, True, "[[[,,," * 5000], "b": {"c": "\ud800"}, "n": 2**64})
    assert parsed(text, SMALL) == json.loads(text)
    long = json.dumps({"a": ['[[[,,,\\"' * 20_000], "x": "\ud800"})
    assert parsed(long, SMALL) == json.loads(long)
    with pytest.raises(BadContent, match="not an object"):
        an_object("[1]")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_are_a_document_or_one_error(content: str | bytes) -> None:
    with contextlib.suppress(BadContent):
        parsed(content, SMALL)


@pytest.mark.parametrize("value", [None, "1", True, [], float("nan"), float("inf"), -1, 2**65, 10**400])
def test_numbers_are_never_bent(value: object) -> None:
    with pytest.raises(BadContent):
        number(value, least=0)
    assert number(5, least=0) == 5.0


def test_a_bound_keeps_memory_within_a_multiple_of_the_input() -> None:
    """In a process of its own: 100 MiB of lists were 6.7 GB."""
    script = (
        "import resource, sys; from headrace.base.received import *\n"
        "content = b'[' + b'[],' * (100 << 20 // 3) + b'[]]'\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for bound in (OF_VERBS['facts'], Bound(1 << 30, 400_000)):\n"
        "    try: parsed(content, bound); sys.exit('taken')\n"
        "    except BadContent: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(content) >> 10)"
    ).replace("100 << 20 // 3", "(10 << 20) // 3")
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    grown_kib, size_kib = map(int, done.stdout.split())
    assert grown_kib < 10 * size_kib + (64 << 10)


def saved(path: Path, **parts: bytes) -> Path:
    """A saved hunt, in which these parts are others."""
    original = snapshot.Snapshot("db1", "2026-01-01", 1.0, Facts("", {"a": 1}), snapshot.NO_SAMPLES)
    snapshot.save(original, path)
    changed = path.with_name("changed.hunt")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, parts.get(name.replace(".", "_"), source.read(name)))
    return changed


HEADER = {"format": snapshot.FORMAT, "seconds": 1.0}


@pytest.mark.parametrize(
    "parts",
    [
        {"facts_json": b'{"x":[' + b"[]," * (6 << 20) + b"[]]}"},
        {"facts_json": b'{"x":' + b"[" * MOST_DEPTH + b"]" * MOST_DEPTH + b"}"},
        {"facts_json": b"[]"},
        {"facts_json": b'{"a": NaN}'},
        {"counters_json": b"[" * 3000},
        {"counters_json": b'[["a","b","c",1e999]]'},
        {"counters_json": b'{"a": 1}'},
        {"counters_json": b"[[1]]"},
        {"snapshot_json": json.dumps({**HEADER, "seconds": "x"}).encode()},
        {"snapshot_json": json.dumps({**HEADER, "seconds": None}).encode()},
        {"snapshot_json": json.dumps({**HEADER, "limits": [1]}).encode()},
        {"snapshot_json": json.dumps({**HEADER, "limits": {"sda": "fast"}}).encode()},
        {"snapshot_json": json.dumps({**HEADER, "errors": 7}).encode()},
        {"t_ns_zst": b"x"},
        {"t_ns_zst": b""},
    ],
    ids="+".join,
)
def test_a_hostile_hunt_is_a_damaged_one(tmp_path: Path, parts: dict[str, bytes]) -> None:
    with pytest.raises(StoreError, match="damaged"):
        snapshot.load(saved(tmp_path / "a.hunt", **parts))


def test_a_hunt_is_read_as_it_was_saved(tmp_path: Path) -> None:
    assert snapshot.load(saved(tmp_path / "a.hunt")).facts.data == {"a": 1}


def test_every_verb_with_a_bound_has_a_smaller_one() -> None:
    assert all(each.size_bytes < ANY.size_bytes and each.values < ANY.values for each in OF_VERBS.values())
    assert OF_VERBS["facts"].size_bytes == 4 << 20


def test_a_text_in_json_lines_may_hold_what_looks_like_an_end_of_a_line() -> None:
    assert lines('{"a":"x\u2028y\x85\x0b"}\n\n{"b":1}\n') == ['{"a":"x\u2028y\x85\x0b"}', '{"b":1}']
