"""The effects of a notice as a small picture: each with its interval beside 1."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

from headrace.show import text
from headrace.show.notice import Notice, Told

#: The most effects that are drawn; the first ones.
MOST_ROWS = 16
WIDTH, ROW, HEAD, NAMES, RIGHT = 900, 30, 60, 330, 210
_COLOURS = {
    "better": "#1a7f37", "worse": "#c4322b", "equivalent": "#2f6fbd", "not enough data": "#9a6700",
}  # fmt: skip


def drawn(notice: Notice, path: Path) -> Path | None:
    """Draw it; None without an effect that has an interval, or without Pillow."""
    rows = [each for each in notice.effects if _has_interval(each)][:MOST_ROWS]
    if not rows or importlib.util.find_spec("PIL") is None:
        return None
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (WIDTH, HEAD + ROW * len(rows) + 40), "#ffffff")
    pen = ImageDraw.Draw(image)
    font, strong = ImageFont.load_default(15), ImageFont.load_default(18)
    pen.text((16, 16), _ascii(f"headrace {notice.kind}: {notice.conclusion}", 70), "#1f2328", strong)
    scale = _Scale(rows)
    bottom = HEAD + ROW * len(rows)
    pen.line((scale.x(1.0), HEAD - 6, scale.x(1.0), bottom), "#8c959f", 1)
    for i, told in enumerate(rows):
        _row(pen, font, scale, told, HEAD + ROW * i + ROW // 2)
    for value in (scale.low, 1.0, scale.high):
        pen.text((scale.x(value), bottom + 8), f"{value:.3g}x", "#57606a", font, anchor="ma")
    image.save(path, "PNG")
    return path


def _has_interval(told: Told) -> bool:
    ends = (told.ratio.low, told.ratio.estimate, told.ratio.high)
    return all(each is not None and math.isfinite(each) and each > 0 for each in ends)


class _Scale:
    """Ratios on a log scale that holds 1 and every interval up to ten times."""

    def __init__(self, rows: list[Told]) -> None:
        lows = [each.ratio.low or 1.0 for each in rows]
        highs = [each.ratio.high or 1.0 for each in rows]
        self.low = max(0.1, min(0.97, *lows))
        self.high = min(10.0, max(1.03, *highs))

    def x(self, value: float) -> float:
        share = math.log(min(max(value, self.low), self.high) / self.low) / math.log(self.high / self.low)
        return NAMES + share * (WIDTH - NAMES - RIGHT)


def _row(pen: Any, font: Any, scale: _Scale, told: Told, y: int) -> None:
    colour = _COLOURS[told.verdict]
    pen.text((16, y), _ascii(f"{told.response} of {told.subject}", 38), "#1f2328", font, anchor="lm")
    low, high = scale.x(told.ratio.low or 1.0), scale.x(told.ratio.high or 1.0)
    pen.line((low, y, high, y), colour, 3)
    x = scale.x(told.ratio.estimate)
    pen.ellipse((x - 5, y - 5, x + 5, y + 5), colour)
    said = f"{text.ratio(told.ratio.estimate)}  {told.verdict}"
    pen.text((WIDTH - RIGHT + 24, y), _ascii(said, 26), colour, font, anchor="lm")


def _ascii(captured: str, most: int) -> str:
    """The built-in font has hardly more."""
    return text.short(text.clean(captured), most).encode("ascii", "replace").decode()
