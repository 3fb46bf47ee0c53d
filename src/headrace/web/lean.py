"""What a process that runs for months need not carry."""

from __future__ import annotations

import contextlib
import ctypes

#: Of glibc's malloc.h.
M_ARENA_MAX = -8
ARENAS = 2


def few_arenas() -> None:
    """Let all threads share glibc's memory: by default there are eight arenas per CPU, and what one frees no other
    uses. Other C libraries have none. Call it before the first thread starts.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
