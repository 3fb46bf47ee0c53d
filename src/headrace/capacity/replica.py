"""How fast a replica applies what its source wrote, and when it has caught up: from the course of its lag.

While a replica is behind, it applies as fast as it can. The lag is in the source's time: if it falls by a quarter
of a second each second, the replica applies 1.25 s of the source's writes per second. A replica that is not behind
waits for its source, and shows only that it keeps up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.base.intervals import Interval, t_quantile
from headrace.host.window import Window

#: Parts of the watch that are compared: the lag of successive seconds depends on each other, their means hardly.
BLOCKS = 6
#: The lag is known to a second: in a shorter part its rounding would be a large share.
SHORTEST_BLOCK_S = 5.0
ALPHA = 0.05


@dataclass(frozen=True)
class Channel:
    """A channel of a replica.

    ``pace``: seconds of the source's writes that it applied per second, None with the reason in ``why``. ``lag_s``
    is that at the end, ``fetched`` and ``applied`` bytes of the binary log per second, None if it went on to its
    next file.
    """

    name: str
    lag_s: float | None
    pace: Interval | None
    why: str
    fetched_bytes_s: float | None
    applied_bytes_s: float | None

    @property
    def keeps_up(self) -> bool:
        """Whether it was not behind at some time: its pace, though not known, is that of its source or more."""
        return self.lag_s is not None and self.why == IS_NOT_BEHIND

    @property
    def caught_up_s(self) -> Interval | None:
        """Seconds until it has caught up if its source goes on as it did.

        ``high`` is None if it may never; None if the pace is unknown, or that of its source or below.
        """
        if self.pace is None or self.lag_s is None or self.pace.estimate <= 1:
            return None
        low, high = self.pace.low, self.pace.high
        soonest = self.lag_s / (high - 1) if high is not None and high > 1 else None
        latest = self.lag_s / (low - 1) if low is not None and low > 1 else None
        return Interval(self.lag_s / (self.pace.estimate - 1), soonest, latest)


#: The reason that is no lack of data.
IS_NOT_BEHIND = (
    "it was not behind all of the time, so it waited for its source: it keeps up, and how much more it could "
    "apply is not known. Stop its applier for some minutes (STOP REPLICA SQL_THREAD), start it again, and measure "
    "meanwhile"
)


def channels(window: Window) -> list[Channel]:
    """Every channel that was sampled, by name; empty if the server is no replica, or was not asked."""
    names = {*window.labels("replication", "sql_running"), *window.labels("replication", "lag_s")}
    return [_channel(window, name) for name in sorted(names)]


def _channel(window: Window, name: str) -> Channel:
    lag_s = window.last("replication", "lag_s", name)
    pace, why = None, ""
    running = window.gauge("replication", "sql_running", name)
    if running is not None and running.low < 1:
        why = "its applier did not run all of the time: START REPLICA SQL_THREAD"
    elif lag_s is None:
        why = "the server does not know its lag: its connection to the source or its applier does not run"
    else:
        pace, why = paced(*_lags(window, name))
    fetched, applied = (
        None
        if _moved_on(window, f"{what}_file", name)
        else window.rate("replication", f"{what}_position_bytes", name)
        for what in ("read", "exec")
    )
    return Channel(name, lag_s, pace, why, fetched, applied)


def _lags(window: Window, name: str) -> tuple[Sequence[float], Sequence[float]]:
    times = window.times("replication", "lag_s", name)
    return times.tolist(), window.values("replication", "lag_s", name).tolist()


def _moved_on(window: Window, metric: str, name: str) -> bool:
    gauge = window.gauge("replication", metric, name)
    return gauge is None or gauge.low != gauge.high


def paced(times_s: Sequence[float], lags_s: Sequence[float]) -> tuple[Interval | None, str]:
    """The pace with its interval over parts of the watch, or why it is not known."""
    t, lag = np.asarray(times_s, dtype=float), np.asarray(lags_s, dtype=float)
    least = BLOCKS * SHORTEST_BLOCK_S
    if len(t) < 2 or t[-1] - t[0] < least - 1:
        return None, f"it was watched for less than {least:.0f} s"
    if lag.min() <= 0:
        return None, IS_NOT_BEHIND
    ends = np.linspace(t[0], t[-1], BLOCKS + 1)
    at = np.interp(ends, t, lag)
    paces = 1 - np.diff(at) / np.diff(ends)
    mean, spread = float(paces.mean()), float(paces.std(ddof=1)) / math.sqrt(BLOCKS)
    # Each end is known to a second, whatever the parts between them say.
    rounding = 1 / (t[-1] - t[0])
    half = max(t_quantile(BLOCKS - 1, ALPHA) * spread, rounding)
    return Interval(mean, max(mean - half, 0.0), mean + half), ""
