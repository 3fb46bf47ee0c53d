"""Two clocks at one moment: what a machine is set to, which may change, and what counts since its boot."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

#: Time services set a clock back by less.
SET_BACK_S = 60.0


@dataclass(frozen=True)
class Clocks:
    """Two clocks of this machine at one moment: what it is set to, and seconds since its boot."""

    wall_s: float
    boot_s: float
    boot: str

    @classmethod
    def now(cls) -> Clocks:
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = ""
        return cls(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), boot)

    def since(self, before: Clocks) -> float | None:
        """Seconds from ``before`` to here; None across a boot, of which only the clock could tell."""
        is_same = bool(self.boot) and self.boot == before.boot and self.boot_s >= before.boot_s
        return self.boot_s - before.boot_s if is_same else None
