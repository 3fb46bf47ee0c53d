"""The one encoder: each type has its form in JSON, and any other is an error."""

from __future__ import annotations

import ast
import json
import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel

from headrace.base.encode import json_text, plain
from tests.folders import ROOT

SOURCE = ROOT / "src" / "headrace"


class Word(StrEnum):
    YES = "yes"


class Level(IntEnum):
    HIGH = 3


class Odd(Enum):
    PAIR = (1, 2.5)


@dataclass(frozen=True)
class Estimate:
    estimate: Any
    low: Any = None


class Model(BaseModel):
    path: Path
    share: float


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(15), "15"),
        (np.uint8(3), "3"),
        (np.bool_(True), "true"),
        (np.float32(6.5), "6.5"),
        (np.float64("nan"), "null"),
        (math.inf, "null"),
        (-math.inf, "null"),
        (np.str_("a"), '"a"'),
        (np.array([[1, 2], [3, 4]]), "[[1, 2], [3, 4]]"),
        (np.array([1.5, np.nan, np.inf]), "[1.5, null, null]"),
        (np.array([True, False]), "[true, false]"),
        (np.array([Decimal("2"), None, "x"], dtype=object), '[2, null, "x"]'),
        (np.array(7), "7"),
        (Decimal("15"), "15"),
        (Decimal("6.50"), "6.5"),
        (Decimal("NaN"), "null"),
        (10**30, str(10**30)),
        (True, "true"),
        (Word.YES, '"yes"'),
        (Level.HIGH, "3"),
        (Odd.PAIR, "[1, 2.5]"),
        (Path("/a/b"), '"/a/b"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (ip_address("::1"), '"::1"'),
        (datetime(2026, 3, 1, 10, tzinfo=UTC), '"2026-03-01T10:00:00+00:00"'),
        (date(2026, 3, 1), '"2026-03-01"'),
        (time(1, 2), '"01:02:00"'),
        (pd.Timestamp("2026-03-01"), '"2026-03-01T00:00:00"'),
        (pd.NaT, "null"),
        (pd.NA, "null"),
        (Estimate(np.float64(2.0), math.nan), '{"estimate": 2.0, "low": null}'),
        (Model(path=Path("/x"), share=0.5), '{"path": "/x", "share": 0.5}'),
        ({1: "a", False: "b", None: "c", Word.YES: "d", np.int64(5): "e", 2.5: "f"},
         '{"1": "a", "false": "b", "null": "c", "yes": "d", "5": "e", "2.5": "f"}'),
        (Counter({"a": 2}), '{"a": 2}'),
        ({"b", "a"}, '["a", "b"]'),
        ((1, [np.int8(2), {"x": (np.nan,)}]), '[1, [2, {"x": [null]}]]'),
        ("\ud800\x1b", '"\\ud800\\u001b"'),
    ],
)  # fmt: skip
def test_each_type_has_its_form(value: Any, text: str) -> None:
    assert json_text(value) == text
    # What is plain stays as it is.
    assert plain(plain(value)) == plain(value)


@pytest.mark.parametrize(
    "value",
    [
        object(), b"bytes", bytearray(b"x"), range(3), complex(1, 2), len, Estimate, iter(()),
        np.datetime64("2026-03-01"), np.array(["2026-03-01"], dtype="datetime64[ns]"), np.timedelta64(1, "s"),
        np.array([1j]), np.bytes_(b"x"), pd.Timedelta("1s"), pd.Series([1]), pd.DataFrame(), {(1, 2): 3},
        {"a": [object()]}, {frozenset(): 1},
    ],
)  # fmt: skip
def test_any_other_type_is_an_error(value: Any) -> None:
    with pytest.raises(TypeError, match=r"no form in JSON|cannot be the key"):
        json_text(value)


def test_text_keeps_its_layout_and_is_valid_json() -> None:
    content = {"b": [1.0, math.nan], "a": {"x": np.int64(2)}}
    assert json_text(content, sort_keys=True, separators=(",", ":")) == '{"a":{"x":2},"b":[1.0,null]}'
    assert json.loads(json_text(content, indent=2), parse_constant=pytest.fail) == plain(content)


def test_nothing_falls_back_to_text() -> None:
    """A fallback makes numbers, paths and enums into text in silence. Commands print through the encoder only."""
    wrong = []
    for path in [*sorted(SOURCE.rglob("*.py")), *sorted((ROOT / "scripts").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("json.dumps", "json.dump"):
                continue
            has_fallback = any(keyword.arg in ("default", "cls") for keyword in node.keywords)
            if has_fallback or {"cli", "command", "commands"} & {path.stem, *path.parts}:
                wrong.append(f"{path}:{node.lineno}")
    assert not wrong, "use headrace.base.encode.json_text"
