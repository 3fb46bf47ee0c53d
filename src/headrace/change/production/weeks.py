"""The same hours of earlier weeks, as control hosts that do not exist.

A host's series of k weeks ago are moved forward by k weeks and get a name of their own. So whatever compares hosts
compares weeks, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from headrace.change.production.series import Gets, Series

_Some = TypeVar("_Some", Series, Gets)

WEEK_S = 7 * 86_400.0


def names(hosts: Sequence[str], weeks: int) -> tuple[str, ...]:
    """Week by week, in each all hosts."""
    return tuple(_name(host, k) for k in range(1, weeks + 1) for host in hosts)


def earlier(series: Sequence[_Some], hosts: Sequence[str], weeks: int, at_s: float) -> list[_Some]:
    """Only from before the change: no week may contain it."""
    known = set(hosts)
    found = []
    for each in series:
        if each.host not in known:
            continue
        old = each.between(float("-inf"), at_s)
        for k in range(1, weeks + 1):
            moved = k * WEEK_S
            found.append(
                replace(old, host=_name(each.host, k), start_s=old.start_s + moved, end_s=old.end_s + moved)
            )
    return found


def _name(host: str, k: int) -> str:
    return f"{host}, {k} week{'s' if k > 1 else ''} earlier"
