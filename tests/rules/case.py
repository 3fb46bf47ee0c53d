"""A case of a rule: a host on which it must fire, must be silent, or must say what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.rules.evidence import Evidence


@dataclass(frozen=True)
class Case:
    """``subjects``: what it must find, no more and no less; empty: it must look and find nothing.
    ``missing``: part of what it must say that it lacks. ``says``: parts of the first finding's summary."""

    rule: str
    name: str
    host: Callable[[], Evidence]
    subjects: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    missing: str = ""
