"""How long a search may take, and who is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Clock:
    """How long a search may take. ``stop`` ends it with the best plan so far; ``listen`` is told of each better
    one."""

    seconds: float = 60.0
    listen: Callable[[Any], None] = lambda found: None
    is_stopped: bool = False
    started: float = field(default_factory=time.monotonic)

    def stop(self) -> None:
        self.is_stopped = True

    @property
    def left_s(self) -> float:
        return 0.0 if self.is_stopped else self.started + self.seconds - time.monotonic()
