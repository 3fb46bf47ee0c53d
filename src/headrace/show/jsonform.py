"""A page for programs: its data and that of its sections, as plain values.

Numbers that do not exist or are infinite are null. A dataclass has the keys of its fields, so an estimate is
``{"estimate", "low", "high"}``; ``low`` and ``high`` are null if no interval is possible.
"""

from __future__ import annotations

from typing import Any

from headrace.base.encode import plain
from headrace.show.parts import Page


def render(page: Page) -> dict[str, Any]:
    """The content of ``report.json``."""
    found = dict(page.data)
    for section in page.sections:
        found |= section.data
    if page.notice is not None:
        found["notice"] = page.notice
    return {key: plain(value) for key, value in found.items()}
