"""A case of a rule: a host on which it must fire, must be silent, or must say what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.base.model import Value
from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Severity


@dataclass(frozen=True)
class Case:
    """``subjects``: what it must find, no more and no less; empty: it must look and find nothing.
    ``missing``: part of what it must say that it lacks. ``says``: parts of the first finding's summary.
    ``sets``: the settings of each of the first finding's remedies. ``steps``: parts of its steps, in order."""

    rule: str
    name: str
    host: Callable[[], Evidence]
    subjects: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    missing: str = ""
    sets: tuple[Mapping[str, Value], ...] | None = None
    steps: tuple[str, ...] = ()
    severity: Severity | None = None
