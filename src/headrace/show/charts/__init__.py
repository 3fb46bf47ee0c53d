"""Figures, one file per family; shared code is here."""

from headrace.show.charts.rows import (
    DASHES,
    HOVER,
    LINE_COLOURS,
    Row,
    errors,
    hint,
    ladder,
    line_x,
    noise_row,
    numbers,
    ratio_span,
    ratio_ticks,
    ratios,
    ticks_ms,
    verdict_mark,
)

__all__ = [
    "DASHES",
    "HOVER",
    "LINE_COLOURS",
    "Row",
    "errors",
    "hint",
    "ladder",
    "line_x",
    "noise_row",
    "numbers",
    "ratio_span",
    "ratio_ticks",
    "ratios",
    "ticks_ms",
    "verdict_mark",
]
