"""How much of the time tasks waited for I/O, where the kernel counts it: unknown is neither none nor much."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.host.window import Window
from headrace.hunt.resources import PRESSURE_HIGH
from headrace.hunt.rules.evidence import Number, number, share


@dataclass(frozen=True)
class Waited:
    """``share`` of the time in which some task waited; None where it is not counted."""

    share: float | None

    @property
    def is_high(self) -> bool:
        """Whether it is known to dominate."""
        return self.share is not None and self.share >= PRESSURE_HIGH

    @property
    def said(self) -> str:
        if self.share is None:
            return "how much tasks wait for I/O is unknown"
        return f"tasks wait for I/O {share(self.share)} of the time"

    @property
    def number(self) -> Number:
        return number("waited for I/O", "unknown" if self.share is None else share(self.share))


def waited_for_io(window: Window) -> Waited:
    """Linux counts it since 4.20, unless it is built without it or booted with psi=0."""
    rate = window.rate("psi", "some_total_us", "io")
    return Waited(None if rate is None else min(rate / 1e6, 1.0))
