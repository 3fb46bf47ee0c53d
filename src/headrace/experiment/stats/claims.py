"""What is proven of a factor, and for how much of the rest: the strongest sentence that is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.base.intervals import Interval

#: The levels of a part of a cumulative design.
WITHOUT, WITH = "without", "with"
PARTS = frozenset((WITHOUT, WITH))


class Scope(StrEnum):
    """``EVERYWHERE``: in the same direction at each level of each other factor, each proven by itself.
    ``ON_AVERAGE``: over all combinations; no pair is proven, and not each effect by itself. ``DEPENDS``: a pair is
    proven, so the factor is claimed only where its effect is.
    """

    EVERYWHERE = "everywhere"
    ON_AVERAGE = "on average"
    DEPENDS = "depends"


@dataclass(frozen=True)
class At:
    """A factor's effect while ``by`` is at ``at``."""

    by: str
    at: str
    ratio: Interval


@dataclass(frozen=True)
class Claim:
    """``ratio``: the response at ``level`` relative to ``first``, with the interval that is simultaneous over all
    levels of all factors. ``by`` is the factor that it clearly depends on ("": none), ``at`` its effects there.
    """

    factor: str
    level: str
    first: str
    ratio: Interval
    scope: Scope
    by: str = ""
    at: tuple[At, ...] = ()

    @property
    def best(self) -> Interval:
        """The ratio to rank it by: of what is proven, the one that is farthest from 1."""
        proven = [one.ratio for one in self.at if excludes_1(one.ratio)]
        return max(proven or [self.ratio], key=lambda ratio: max(ratio.estimate, 1 / ratio.estimate))


def excludes_1(ratio: Interval) -> bool:
    return ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high


def of(
    factor: str, level: str, first: str, ratio: Interval, conditions: Sequence[At], by: str
) -> Claim | None:
    """The strongest true claim; None if nothing is proven of this level."""
    own = tuple(one for one in conditions if one.by == by)
    proven = [one.ratio for one in conditions if excludes_1(one.ratio)]
    same_side = len({one.estimate > 1 for one in proven}) == 1
    is_everywhere = bool(conditions) and len(proven) == len(conditions) and same_side
    if by:
        if is_everywhere:
            return Claim(factor, level, first, ratio, Scope.EVERYWHERE, by, own)
        if any(excludes_1(one.ratio) for one in own):
            return Claim(factor, level, first, ratio, Scope.DEPENDS, by, own)
        return None
    if not excludes_1(ratio):
        return None
    return Claim(factor, level, first, ratio, Scope.EVERYWHERE if is_everywhere else Scope.ON_AVERAGE)


def words(claim: Claim, condition: str = "") -> str:
    """One sentence, about throughput."""
    subject, than = _subject(claim)
    where = f"At {condition}, " if condition else ""
    if claim.scope is Scope.DEPENDS:
        each = "; ".join(
            f"{_times(one.ratio, than)} {_at(one)}" if excludes_1(one.ratio) else f"not decided {_at(one)}"
            for one in claim.at
        )
        return f"{where}{'what' if where else 'What'} {subject} does depends on {claim.by}: {each}."
    if claim.at:
        each = "; ".join(f"{_times(one.ratio)} {_at(one)}" for one in claim.at)
        beyond = than.replace(" as ", " than ", 1)
        way = "faster" if claim.at[0].ratio.estimate > 1 else "slower"
        return f"{where}{subject} makes it {way}{beyond}, whatever the rest: {each}."
    scope = ", whatever the rest" if claim.scope is Scope.EVERYWHERE else ", on average over the rest"
    slower = "slower, " if claim.ratio.estimate < 1 else ""
    return f"{where}{subject} makes it {slower}{_times(claim.ratio, than)}{scope}."


def _subject(claim: Claim) -> tuple[str, str]:
    """Who makes the difference, and to what: a part has nothing to be compared with but its absence."""
    if {claim.level, claim.first} == PARTS:
        return claim.factor, ""
    return f"{claim.factor}={claim.level}", f" as {claim.factor}={claim.first}"


def _at(one: At) -> str:
    return f"{one.at} {one.by}" if one.at in PARTS else f"at {one.by}={one.at}"


def _times(ratio: Interval, than: str = "") -> str:
    return f"{ratio.estimate:.2f} times as fast{than} ({ratio.low:.2f} to {ratio.high:.2f})"
