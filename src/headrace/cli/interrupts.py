"""Ctrl-C before a command handles it itself.

It raises KeyboardInterrupt in the middle of any import, and an extension module may swallow that (pydantic-core
does, while it builds a model): the command would go on as if nothing had been pressed. So it is remembered.
"""

from __future__ import annotations

import signal
from types import FrameType

_pressed: list[int] = []


def remember() -> None:
    """Remember Ctrl-C from now on, unless it already has a handler or is ignored (nohup)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def was_pressed() -> bool:
    return bool(_pressed)


def _interrupt(number: int, _: FrameType | None) -> None:
    _pressed.append(number)
    raise KeyboardInterrupt
