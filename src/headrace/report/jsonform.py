"""A page for programs: its data and that of its sections, as plain values.

Numbers that do not exist or are infinite are null. A dataclass has the keys of its fields, so an estimate is
``{"estimate", "low", "high"}``; ``low`` and ``high`` are null if no interval is possible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from headrace.report.parts import Page


def render(page: Page) -> dict[str, Any]:
    """The content of ``report.json``."""
    found = dict(page.data)
    for section in page.sections:
        found |= section.data
    if page.notice is not None:
        found["notice"] = page.notice
    return {key: plain(value) for key, value in found.items()}


def plain(value: Any) -> Any:
    """A value as JSON types."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return str(value)
