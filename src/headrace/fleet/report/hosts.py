"""Which hosts answered, which did not and why, and how old the last known answers are."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.fleet.runner import Outcome, State
from headrace.host.ranges import fold
from headrace.show.parts import Cell, Cells, Gap, Part, Sentence, Table
from headrace.show.text import seconds

STYLES = {State.OK: "green", State.FAILED: "red", State.UNREACHABLE: "red", State.SKIPPED: "yellow"}


def age_s(outcome: Outcome) -> float:
    """How old an answer is."""
    return max(time.time() - outcome.at, 0.0)


def to_json(outcome: Outcome) -> dict[str, Any]:
    """``answer`` of a host that is not ok is its last known one; ``age_s`` says how old it is."""
    content: dict[str, Any] = {"state": str(outcome.state), "address": outcome.address, "at": outcome.at}
    if outcome.reason:
        content |= {"reason": outcome.reason, "hint": outcome.hint}
    if outcome.answer is not None:
        content |= {"age_s": round(age_s(outcome), 1), "seconds": outcome.seconds, "answer": outcome.answer}
    return content


@dataclass
class Roll:
    """Who is there: filled while the outcomes pass, so that no answer is kept."""

    total: int
    states: Counter[State] = field(default_factory=Counter)
    #: (state, reason without the host's own name, hint, age of the last answer) -> hosts
    lost: dict[tuple[State, str, str], list[tuple[str, float | None]]] = field(default_factory=dict)

    def call(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Each outcome with an answer, the last known ones too."""
        for outcome in outcomes:
            self.states[outcome.state] += 1
            if outcome.state is not State.OK:
                why = (outcome.state, _general(outcome.reason, outcome), _general(outcome.hint, outcome))
                age = None if outcome.answer is None else age_s(outcome)
                self.lost.setdefault(why, []).append((outcome.host, age))
            if outcome.answer is not None:
                yield outcome

    def parts(self) -> Iterator[Part]:
        """How many answered, and a line for each reason why not."""
        counts = [f"{self.states[state]} {state}" for state in State if self.states[state]]
        not_finished = self.total - sum(self.states.values())
        counts += [f"{not_finished} not finished"] if not_finished else []
        noun = "host" if self.total == 1 else "hosts"
        yield Sentence(f"{self.total} {noun}: {', '.join(counts)}", "strong")
        if not self.lost:
            return
        yield Gap()
        rows: list[Cells] = []
        for (state, reason, hint), found in sorted(self.lost.items(), key=lambda item: -len(item[1])):
            ages = [age for _, age in found if age is not None]
            last = f"{len(ages)} shown as last known, {_ages(ages)} old" if ages else ""
            note = "; ".join(part for part in (last, f"try: {hint}" if hint else "") if part)
            rows.append(
                [
                    Cell(fold(name for name, _ in found), style="bold"),
                    Cell(str(state), style=STYLES[state]),
                    reason + (f" ({note})" if note else ""),
                ]
            )
        yield Table((("hosts", "wrap"), ("state", ""), ("why", "wrap")), rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "hosts": self.total,
            "states": {str(state): self.states[state] for state in State},
            "not_finished": self.total - sum(self.states.values()),
            "lost": [
                {
                    "state": str(state),
                    "reason": reason,
                    "hint": hint,
                    "hosts": [name for name, _ in found],
                    "last_known_age_s": {name: round(age, 1) for name, age in found if age is not None},
                }
                for (state, reason, hint), found in self.lost.items()
            ],
        }


def _ages(ages: list[float]) -> str:
    oldest, youngest = max(ages), min(ages)
    return seconds(oldest) if oldest < 1.2 * youngest + 1 else f"{seconds(youngest)} to {seconds(oldest)}"


def _general(text: str, outcome: Outcome) -> str:
    """Without the host's own address, so that the same reason is one line for all."""
    for own in (outcome.address.partition(" by ")[0], outcome.host):
        if own:
            text = _without(own, text)
    host, _, port = outcome.address.partition(" by ")[0].rpartition(":")
    if host and port.isdigit():
        text = _without(host, text.replace(f"-p {port} ", "-p PORT "))
    return text


def _without(name: str, text: str) -> str:
    """A short name may be a part of other words."""
    return re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "HOST", text)
