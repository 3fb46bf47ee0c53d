"""Made histories of demand: seasons, weekends, noise, growth, and peaks that coincide or do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
STEP = timedelta(minutes=30)


def batch(hosts: int, *, together: bool, days: int = 14, seed: int = 1) -> dict[str, np.ndarray]:
    """CPU of hosts that are quiet, but for an hour's batch a day: at the same hour, or one after the other.

    Averages are the same either way. Demand grows by 1% a week, and weekends are quieter.
    """
    random = np.random.default_rng(seed)
    steps = np.arange(days * 48)
    hour, day = steps % 48 / 2, steps // 48
    found = {}
    for i in range(hosts):
        season = 1 + 0.3 * np.cos((hour - 14) / 24 * 2 * np.pi)
        weekend = np.where(day % 7 >= 5, 0.8, 1.0)
        at = 2 if together else 2 * i
        burst = np.where((hour >= at) & (hour < at + 1), 5.0, 0.0)
        found[f"db{i + 1}"] = (
            (0.6 * season * weekend + burst) * random.lognormal(0, 0.03, len(steps)) * (1.01 ** (day / 7))
        )
    return found


def written(path: Path, cpu: dict[str, np.ndarray], *, without: range = range(0), **columns: str) -> Path:
    """A table of CPU, without some days."""
    header = ",".join(["host", "time", "resource", "value", *columns])
    more = "".join(f",{value}" for value in columns.values())
    lines = [
        f"{host},{START + at * STEP:%Y-%m-%dT%H:%M:%SZ},cpu,{value:.6g}{more}"
        for host, values in cpu.items()
        for at, value in enumerate(values)
        if at // 48 not in without
    ]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path
