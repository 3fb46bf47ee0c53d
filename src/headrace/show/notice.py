"""A verdict in the short form that can be told to others: see ``headrace.tell``.

A report makes it of what it shows; nothing is computed a second time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from headrace.base.effect import Effect, Verdict
from headrace.base.encode import json_text
from headrace.base.errors import StoreError
from headrace.base.intervals import Interval

#: Most effects of a notice, the first ones; a report has all.
MOST_EFFECTS = 200


class Conclusion(StrEnum):
    """The verdicts, and what a question without a ratio may end with."""

    BETTER = Verdict.BETTER
    WORSE = Verdict.WORSE
    EQUIVALENT = Verdict.EQUIVALENT
    NOT_ENOUGH_DATA = Verdict.NOT_ENOUGH_DATA
    #: A series without a change, hosts without a difference: nothing was seen, which is no proof.
    NOTHING_FOUND = "nothing found"
    #: Hosts differ, and nobody measured what that costs.
    DIFFERENT = "different"
    #: A race or a sweep has its answer: there was nothing to be better than.
    DECIDED = "decided"
    #: An alert of ``headrace serve`` begins, and ends.
    RAISED = "raised"
    RESOLVED = "resolved"

    @staticmethod
    def worst(verdicts: Iterable[Verdict]) -> Conclusion:
        """Of several responses of one change: worse if any is, then better if any is. Equivalent only if all are,
        because an undecided one may be worse.
        """
        found = set(verdicts)
        for each in (Verdict.WORSE, Verdict.BETTER, Verdict.NOT_ENOUGH_DATA, Verdict.EQUIVALENT):
            if each in found:
                return Conclusion(each)
        return Conclusion.NOT_ENOUGH_DATA


@dataclass(frozen=True)
class Told:
    """One effect: ``subject`` (a treatment, a host) in one response, as a ratio; ``note`` says why there is no
    verdict.
    """

    subject: str
    response: str
    ratio: Interval
    verdict: Verdict
    note: str = ""

    @staticmethod
    def of(effect: Effect) -> Told:
        where = f" at {effect.condition}" if effect.condition else ""
        return Told(f"{effect.treatment}{where}", effect.response, effect.ratio, effect.verdict)


@dataclass(frozen=True)
class Notice:
    """``kind`` is the command that judged, ``subject`` what about.

    ``at_s`` is when the change was made (Unix time). ``next`` are lines for a shell that undo or continue it.
    ``link`` is where the report is, ``counts`` what else is worth a graph. ``id`` names the evidence: the same
    evidence has the same id.
    """

    kind: str
    subject: str
    conclusion: Conclusion
    headline: str
    effects: tuple[Told, ...] = ()
    next: str = ""
    id: str = ""
    link: str = ""
    at_s: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        if len(self.effects) > MOST_EFFECTS:
            object.__setattr__(self, "effects", self.effects[:MOST_EFFECTS])
        if not self.id:
            # Not of where it lies: a copied experiment is the same evidence.
            content = json_text(replace(self, id="-", link="", next=""), sort_keys=True)
            object.__setattr__(self, "id", hashlib.sha256(content.encode()).hexdigest()[:16])

    @staticmethod
    def from_json(content: Any, place: str) -> Notice:
        """The notice in a report's JSON. Raises StoreError."""
        if not isinstance(content, dict) or "notice" not in content:
            raise StoreError(
                "it has no verdict to send",
                place=place,
                hint="write it with headrace verify, watch, compare or fleet drift and --json",
            )
        try:
            return _ADAPTER.validate_python(_with_nan(content["notice"]))
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise StoreError(f"its verdict is damaged: {key}: {first['msg']}", place=place) from error


def _with_nan(found: Any) -> Any:
    """JSON has no NaN: an estimate that does not exist is null there."""
    if isinstance(found, dict):
        return {
            key: math.nan if key == "estimate" and value is None else _with_nan(value)
            for key, value in found.items()
        }
    return [_with_nan(each) for each in found] if isinstance(found, list) else found


_ADAPTER = TypeAdapter(Notice)
