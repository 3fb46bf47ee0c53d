"""The terminal as a way out: whatever is printed, no control character and no mark-up of others reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from headrace.show import text


class Screen(Console):
    """Cleans what it prints, also where a caller forgot to. A string is never read as rich's own mark-up."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            # Colours are not in the text: rich adds them when it writes. A table comes here once a level.
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment("\n".join(map(text.clean, segment.text.split("\n"))), segment.style)
