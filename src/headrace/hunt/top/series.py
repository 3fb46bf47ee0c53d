"""Figures of a host second by second, up to a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One second: figures by key (None is unknown), and sessions at work by what they wait for."""

    t_s: float
    figures: Mapping[str, float | None]
    waits: Mapping[str, float]


@dataclass(frozen=True)
class Series:
    """Points up to a moment, oldest first."""

    points: Sequence[Point] = ()

    def of(self, key: str, seconds: int) -> list[float | None]:
        """A figure, second by second; a second without a sample is None."""
        return self._by_second(seconds, lambda each: each.figures.get(key))

    def waiting(self, name: str, seconds: int) -> list[float | None]:
        return self._by_second(seconds, lambda each: each.waits.get(name, 0.0))

    def waits(self, seconds: int) -> list[str]:
        """What sessions waited for, the most first."""
        found: dict[str, float] = {}
        for each in self.points[-seconds:]:
            for name, mean in each.waits.items():
                found[name] = found.get(name, 0.0) + mean
        return sorted(found, key=lambda name: -found[name])

    def _by_second(self, seconds: int, value: Callable[[Point], float | None]) -> list[float | None]:
        found: list[float | None] = [None] * seconds
        if self.points:
            end = self.points[-1].t_s
            for each in self.points[-seconds:]:
                back = round(end - each.t_s)
                if back < seconds:
                    found[seconds - 1 - back] = value(each)
        return found
