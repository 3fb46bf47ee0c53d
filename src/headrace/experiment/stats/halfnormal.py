"""Half-normal plots: which effects stand out from the noise, visually rather than by a test.

Without effects, the sizes of a study's single degrees of freedom would follow one normal distribution, and be on a
line through 0 against its quantiles. Real effects are above it, at the right.

Sources: Daniel 1959, Use of half-normal plots in interpreting factorial two-level experiments, Technometrics 1;
Lenth 1989, Quick and easy analysis of unreplicated factorials, Technometrics 31 (the noise without repeats).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.intervals import t_quantile
from headrace.experiment.stats.effects import Effects, Single
from headrace.experiment.stats.matters import lenth_error, lenth_margin

#: Fewer points than this do not show a line and are drawn as bars.
MIN_POINTS = 7


@dataclass(frozen=True)
class Point:
    """``size`` as a multiple of the noise; ``expected`` is its expected value if all points were noise.

    ``name`` is empty if it belongs to no term.
    """

    name: str
    size: float
    expected: float
    is_beyond: bool


@dataclass(frozen=True)
class HalfNormal:
    """``points`` from small to large.

    ``noise`` is the deviation of one observation in log units. Beyond ``margin`` (a multiple of it) an effect is
    significant, for all points jointly. ``is_from_repeats``: otherwise the noise is taken from the small effects,
    assuming that most are zero.
    """

    points: tuple[Point, ...]
    noise: float
    margin: float
    source: str

    @property
    def has_line(self) -> bool:
        return len(self.points) >= MIN_POINTS


def half_normal(effects: Effects, alpha: float = 0.05) -> HalfNormal | None:
    """None if the noise is unknown: no error term, and fewer than 5 effects."""
    from scipy.special import ndtri

    singles = sorted(effects.singles, key=lambda s: s.size)
    found = _noise(effects, singles, alpha)
    if found is None or not singles:
        return None
    noise, margin = found
    points = tuple(
        Point(
            " x ".join(single.term),
            single.size / noise,
            float(ndtri(0.5 + 0.5 * (i + 0.5) / len(singles))),
            single.size > margin,
        )
        for i, single in enumerate(singles)
    )
    source = effects.error if effects.deviation else "small effects"
    return HalfNormal(points, noise, margin / noise, source)


def _noise(effects: Effects, singles: list[Single], alpha: float) -> tuple[float, float] | None:
    """The deviation of one observation, and the size beyond which one of the singles is significant."""
    if effects.deviation:
        each = alpha / max(len(singles), 1)
        return effects.deviation, t_quantile(effects.error_degrees, each) * effects.deviation
    sizes = [single.size for single in singles]
    noise, margin = lenth_error(sizes), lenth_margin(sizes, alpha)
    return (noise, margin) if noise and margin else None
