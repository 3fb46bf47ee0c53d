"""The one way from headrace's values to JSON.

Each type has its form here, and any other is an error: a value that is quietly turned into text looks right to
people and is wrong for programs (``"15"`` where a number belongs).

| value | JSON |
|---|---|
| bool, int, float, and numpy's | true or false, a number; NaN and infinite numbers are null |
| Decimal (DuckDB's sums) | a number |
| str, and numpy's; Path, UUID, IP addresses | text |
| date, time, datetime (also pandas') | text as of ISO 8601; NaT is null |
| Enum | its value |
| dataclass | an object of its fields |
| pydantic model | an object of its fields, as it writes them itself |
| Mapping | an object; its keys are text, numbers, booleans or any other of the simple values above |
| list, tuple, set, frozenset, numpy array | an array; that of a set is sorted if it can be |
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from pathlib import PurePath
from typing import Any
from uuid import UUID

_AS_TEXT = (PurePath, UUID, IPv4Address, IPv6Address)


def json_text(value: Any, **layout: Any) -> str:
    """A value as JSON text; ``layout`` has the arguments of ``json.dumps`` that only change its look.

    Raises TypeError for a value without a form in JSON.
    """
    return json.dumps(plain(value), allow_nan=False, **layout)


def plain(value: Any) -> Any:
    """A value as str, int, float, bool, None, list and dict. Raises TypeError for what has no form in JSON."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return _sorted([plain(each) for each in value])
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, date | datetime | time):
        # Only pandas has a datetime that is not equal to itself: NaT.
        return value.isoformat() if value == value else None
    if isinstance(value, _AS_TEXT):
        return str(value)
    return _foreign(value)


def _number(value: Decimal) -> int | float | None:
    if not value.is_finite():
        return None
    return int(value) if value == value.to_integral_value() else float(value)


def _foreign(value: Any) -> Any:
    """Values of libraries, without importing them: most commands need neither."""
    library = type(value).__module__.partition(".")[0]
    # Their times have many units, and some become numbers without one.
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if library == "numpy" and kind and kind in "biufUO":
        return plain(value.tolist())
    if library == "pandas" and type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(type(value), "model_dump"):
        return plain(value.model_dump(mode="json"))
    raise TypeError(
        f"{type(value).__module__}.{type(value).__qualname__} has no form in JSON: give it one in "
        f"headrace.base.encode, or write a number, a text or a dataclass"
    )


def _key(key: Any) -> str:
    """Keys of an object are text: those that JSON would write as numbers or words are written so here."""
    found = plain(key)
    if isinstance(found, list | dict):
        raise TypeError(f"{key!r} cannot be the key of an object in JSON")
    return found if isinstance(found, str) else json.dumps(found)


def _sorted(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return values
