"""Where verdicts are told: ``KIND:PLACE``, and all of them at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.base.errors import HeadraceError, PlanError
from headrace.show.notice import Notice
from headrace.tell import chats, grafana, junit, markdown, metrics, webhook
from headrace.tell.kind import Teller

#: Kind -> what checks a place and opens it. Raises PlanError.
KINDS: Mapping[str, Callable[[str], Teller]] = {
    "apprise": chats.opened,
    "grafana": grafana.opened,
    "junit": junit.opened,
    "markdown": markdown.opened,
    "metrics": metrics.opened,
    "webhook": webhook.opened,
}

#: All places together take at most this long; what is not done by then has failed.
MOST_S = 60.0


@dataclass(frozen=True)
class Place:
    """``name`` is as the user wrote it: it has no secret, because those are in files."""

    name: str
    tell: Teller


@dataclass(frozen=True)
class Failure:
    place: str
    error: HeadraceError


def places_of(words: Sequence[str]) -> list[Place]:
    """The places of ``KIND:PLACE``, checked. Raises PlanError."""
    found = []
    for word in words:
        kind, colon, place = word.partition(":")
        if not colon or not place or kind not in KINDS:
            raise PlanError(
                "write KIND:PLACE, such as junit:verdict.xml",
                # Not the place: an address may be a secret.
                place=f"--tell {kind}:..." if colon else "--tell",
                hint=f"kinds are {', '.join(KINDS)}; `headrace docs tell`",
            )
        found.append(Place(word, KINDS[kind](place)))
    return found


def tell(notice: Notice, places: Sequence[Place], most_s: float = MOST_S) -> list[Failure]:
    """Tell all places at the same time; what failed, in their order."""
    outcomes: dict[int, HeadraceError | None] = {}

    def one(i: int, place: Place) -> None:
        try:
            place.tell(notice)
            outcomes[i] = None
        except HeadraceError as error:
            outcomes[i] = error
        except Exception as error:
            # Its text could quote an address with a token.
            outcomes[i] = HeadraceError(f"an unexpected error: {type(error).__name__}")

    # Daemons: a server that never ends its answer must not hold up the end of this process.
    threads = [
        threading.Thread(target=one, args=(i, place), daemon=True, name=f"tell {place.name}")
        for i, place in enumerate(places)
    ]
    until = time.monotonic() + most_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    slow = HeadraceError(f"it was not done within {most_s:g} s")
    return [
        Failure(place.name, error)
        for i, place in enumerate(places)
        if (error := outcomes.get(i, slow)) is not None
    ]
