"""What a look at a host shows that somebody may want to be told: ``signs_of`` is pure, and all numbers are here.

A sign is one look's. What makes an alert of it, and ends it, is ``headrace.web.alerts``. ``benches/alerts.py``
audits the numbers with simulated years.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.web.usual import Usual

#: Seconds between two looks, and those that one is of: it has two samples of the samplers that run rarely.
EVERY_S, WINDOW_S = 22.0, 25.5
#: A class costs from so many active sessions on, if they are this share of all.
COST_SESSIONS, COST_SHARE = 0.25, 0.15
#: A class became slower if a call takes this many times what is usual, of at least so many calls in a look.
SLOWER, FEWEST_CALLS = 2.0, 10
#: Shares of max_connections at which one is told, and below which that is over.
NEAR, FAR = 0.85, 0.75
#: A replica is behind by this, or falls behind by this share of the time; below the last it is not.
BEHIND_S, FALLS_BEHIND, CAUGHT_UP_S = 30.0, 0.5, 5.0
#: A disk that fills so fast that it would be full within this time.
FILLS_WITHIN_S = 3600.0


class Kind(StrEnum):
    BOTTLENECK = "new bottleneck"
    NEW_CLASS = "new query class"
    SLOWER = "slower query class"
    CONNECTIONS = "connections near the limit"
    REPLICA = "replica behind"
    DISK = "disk filling up"
    LOST = "host not answering"
    COLLECTION = "nothing is collected"


#: Looks in a row that must show it, for one slow moment is nothing to tell. That nothing is collected is certain.
LOOKS: Mapping[Kind, int] = {kind: 1 if kind is Kind.COLLECTION else 4 for kind in Kind}


@dataclass(frozen=True)
class Busy:
    """A query class in a look: calls in it, 0 where nobody counts them, and the mean number of sessions that
    executed it."""

    calls: float
    sessions: float

    @property
    def mean_ns(self) -> float:
        return self.sessions * WINDOW_S * 1e9 / self.calls if self.calls else math.nan


@dataclass(frozen=True)
class Look:
    """A host at a moment. None is unknown, never nothing. ``problem``: why all of it is;
    ``refusal``: why what the server knows is, although the host answers.

    ``classes`` are those of performance_schema, or, if ``is_sampled``, those that were seen in the process list.
    ``replicas``: channel -> seconds behind, beyond a delay that was asked for; infinite if a thread does not run.
    ``room``: mount point -> bytes available.
    """

    at_s: float
    problem: str = ""
    refusal: str = ""
    limiting: str | None = None
    sentence: str = ""
    classes: Mapping[str, Busy] | None = None
    is_sampled: bool = False
    connections: tuple[float, float] | None = None
    replicas: Mapping[str, float] | None = None
    room: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Sign:
    """``is_raised``: reason enough for a new alert. An alert that stands ends when ``value`` is below
    ``clear_below`` of the sign with which it began, or when there is no sign of it."""

    kind: Kind
    what: str
    said: str
    is_raised: bool = True
    value: float = 1.0
    clear_below: float = 0.0


@dataclass(frozen=True)
class Signs:
    """``unknown`` kinds say nothing in this look: no alert of them begins, and none ends."""

    found: Mapping[tuple[Kind, str], Sign] = field(default_factory=dict)
    unknown: frozenset[Kind] = frozenset()


def signs_of(look: Look, before: Look | None, usual: Usual, full_within_days: float) -> Signs:
    """``before``: the look before it, if there was one."""
    if look.problem:
        lost = Sign(Kind.LOST, "", f"The host has not answered: {look.problem.rstrip('.')}.")
        return Signs({(Kind.LOST, ""): lost}, frozenset(set(Kind) - {Kind.LOST, Kind.COLLECTION}))
    unknown = {
        kind
        for kind, known in (
            (Kind.BOTTLENECK, look.limiting),
            (Kind.NEW_CLASS, look.classes),
            (Kind.SLOWER, None if look.is_sampled else look.classes),
            (Kind.CONNECTIONS, look.connections),
            (Kind.REPLICA, look.replicas),
            (Kind.DISK, look.room),
        )
        if known is None
    }
    found = [
        *_refusal(look),
        *_bottleneck(look, usual),
        *_classes(look, usual),
        *_connections(look),
        *_replicas(look, before),
        *_disks(look, before, usual, full_within_days),
    ]
    return Signs({(sign.kind, sign.what): sign for sign in found}, frozenset(unknown))


def _refusal(look: Look) -> Iterator[Sign]:
    if look.refusal:
        yield Sign(Kind.LOST, "server", f"The server has not answered: {look.refusal.rstrip('.')}.")


def _bottleneck(look: Look, usual: Usual) -> Iterator[Sign]:
    if look.limiting:
        is_new = usual.is_learned and not usual.has_limit(look.limiting, look.at_s)
        yield Sign(Kind.BOTTLENECK, look.limiting, look.sentence, is_new)


def _classes(look: Look, usual: Usual) -> Iterator[Sign]:
    classes = look.classes or {}
    total = sum(each.sessions for each in classes.values())
    past = usual.seen if look.is_sampled else usual.classes
    is_learned = usual.is_learned and usual.has_learned_classes(look.is_sampled)
    for name, each in classes.items():
        costs = each.sessions >= COST_SESSIONS and each.sessions >= COST_SHARE * total
        if name not in past:
            share = each.sessions / (total or 1)
            said = f"It has {each.sessions:.1f} active sessions on average, {share:.0%} of all."
            is_new = is_learned and costs
            yield Sign(Kind.NEW_CLASS, name, said, is_new, each.sessions, COST_SESSIONS / 2)
            continue
        mean_ns = usual.mean_ns(name, look.at_s)
        if mean_ns is None or each.calls < FEWEST_CALLS:
            continue
        ratio = each.mean_ns / mean_ns
        said = f"A call takes {_ms(each.mean_ns)}, {ratio:.1f} times what is usual at this time ({_ms(mean_ns)})."
        more = each.sessions * (1 - 1 / ratio) if ratio > 1 else 0.0
        is_slower = is_learned and ratio >= SLOWER and more >= COST_SESSIONS / 2 and costs
        # As a time, not a ratio: what is usual is another time in another hour.
        yield Sign(Kind.SLOWER, name, said, is_slower, each.mean_ns, (1 + SLOWER) / 2 * mean_ns)


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:,.3g} ms" if time_ns < 1e9 else f"{time_ns / 1e9:,.3g} s"


def _connections(look: Look) -> Iterator[Sign]:
    if look.connections is None:
        return
    used, limit = look.connections
    said = f"{used:,.0f} of {limit:,.0f} connections are taken (max_connections)."
    if limit:
        yield Sign(Kind.CONNECTIONS, "", said, used / limit >= NEAR, used / limit, FAR)


def _replicas(look: Look, before: Look | None) -> Iterator[Sign]:
    for channel, lag_s in (look.replicas or {}).items():
        then = (before.replicas or {}).get(channel) if before is not None else None
        name = f"The replica (channel {channel})" if channel else "The replica"
        if math.isinf(lag_s):
            yield Sign(
                Kind.REPLICA, channel, f"{name} has stopped: a thread of it does not run.", True, lag_s, 5.0
            )
            continue
        falls = (
            before is not None
            and then is not None
            and lag_s >= CAUGHT_UP_S
            and lag_s - then >= FALLS_BEHIND * (look.at_s - before.at_s)
        )
        said = f"{name} is {lag_s:,.0f} s behind."
        yield Sign(Kind.REPLICA, channel, said, lag_s >= BEHIND_S or falls, lag_s, CAUGHT_UP_S)


def _disks(look: Look, before: Look | None, usual: Usual, full_within_days: float) -> Iterator[Sign]:
    for mount, available in (look.room or {}).items():
        then = (before.room or {}).get(mount) if before is not None else None
        seconds = math.inf
        if before is not None and then is not None and then > available:
            seconds = available * (look.at_s - before.at_s) / (then - available)
        days = usual.full_in_days(mount, available)
        is_fast = seconds <= FILLS_WITHIN_S
        left = f"{available / 2**30:,.1f} GiB are left"
        said = (
            f"{mount} will be full in {seconds / 60:,.0f} minutes if it goes on filling as now: {left}."
            if is_fast
            else f"{mount} will be full in {days:,.1f} days if it grows as in the last days: {left}."
        )
        yield Sign(
            Kind.DISK,
            mount,
            said,
            is_fast or days <= full_within_days,
            max(FILLS_WITHIN_S / max(seconds, 1.0) if is_fast else 0.0, full_within_days / max(days, 1e-3)),
            0.5,
        )
