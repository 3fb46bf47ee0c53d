"""The last hour of a host, in memory: its figures of every second, and whole moments."""

from __future__ import annotations

import pickle
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from headrace.host.cores import cores
from headrace.host.window import Window
from headrace.hunt import sessions
from headrace.hunt.recent import LiveWindow
from headrace.hunt.top.series import Point, Series
from headrace.hunt.top.shot import Shot

#: How long both are kept.
KEPT_S = 3600.0
#: Seconds between whole moments; and between those that are older than a while, to spare memory.
KEEP_EVERY_S, OLD_S, OLD_EVERY_S = 5.0, 600.0, 30.0
#: Of a whole moment: running statements and lock waits that are kept; and bytes of all moments together.
MOST_ROWS, MOST_BYTES = 200, 24 << 20
#: How a figure is written: a rate per second, a number, a share from 0 to 1, a size.
RATE, NUMBER, SHARE, BYTES = "/s", "", "%", "B"
#: What sessions that wait for nothing do.
EXECUTING = "executing (CPU or I/O)"


@dataclass(frozen=True)
class Figure:
    """``key`` in a point; ``title`` on the screen; ``kind`` as above; of the server's status the ``counter``."""

    key: str
    title: str
    kind: str
    counter: str = ""


#: In the order in which they are shown where there is not room for all.
FIGURES = (
    Figure("running", "running", NUMBER, "threads_running"),
    Figure("questions", "statements", RATE, "questions"),
    Figure("cpu", "CPUs busy", SHARE),
    Figure("row_waits", "row lock waits", RATE, "innodb_row_lock_waits"),
    Figure("connected", "connected", NUMBER, "threads_connected"),
    Figure("io", "waits for I/O", SHARE),
    Figure("checkpoint", "checkpoint age", BYTES),
    Figure("misses", "pool misses", RATE, "innodb_buffer_pool_reads"),
    Figure("fsyncs", "fsyncs", RATE, "innodb_data_fsyncs"),
    Figure("commits", "commits", RATE, "com_commit"),
    Figure("log", "redo log written", RATE, "innodb_os_log_written"),
    Figure("slow", "slow statements", RATE, "slow_queries"),
    Figure("history", "history list", NUMBER),
    Figure("lag", "s behind", NUMBER),
)
#: Those that the host tells, also without its server.
OF_THE_HOST = ("cpu", "io")
#: InnoDB's gauges: sampler and metric, which differ between vendors.
AGE = (
    ("mysql_status", "innodb_checkpoint_age"),
    ("innodb_status", "checkpoint_age_bytes"),
    ("innodb_metrics", "log_lsn_checkpoint_age"),
)
HISTORY = (
    ("mysql_status", "innodb_history_list_length"),
    ("innodb_status", "history_list_length"),
    ("innodb_metrics", "trx_rseg_history_len"),
)


def last_of(names: Iterable[tuple[str, str]], *windows: Window | None) -> float | None:
    """The newest value of the first metric that one of the windows has."""
    seen = [window for window in windows if window is not None]
    return next((v for name in names for window in seen if (v := window.last(*name)) is not None), None)


def point(shot: Shot, t_s: float) -> Point:
    window = shot.now
    figures: dict[str, float | None] = {}
    for figure in FIGURES:
        if figure.counter:
            get = window.rate if figure.kind == RATE else window.last
            figures[figure.key] = get("mysql_status", figure.counter)
    all_cores = cores(window)
    figures["cpu"] = all_cores[0].busy if all_cores else None
    pressure = window.rate("psi", "some_total_us", "io")
    figures["io"] = None if pressure is None else min(pressure / 1e6, 1.0)
    figures["checkpoint"] = last_of(AGE, window, shot.seldom)
    figures["history"] = last_of(HISTORY, window, shot.seldom)
    lags = [window.last("replication", "lag_s", label) for label in window.labels("replication", "lag_s")]
    figures["lag"] = max((lag for lag in lags if lag is not None), default=None)
    if shot.server_problem:
        # What it said last is not how it is.
        figures = {key: value if key in OF_THE_HOST else None for key, value in figures.items()}
    load = None if shot.server_problem else sessions.of_activity(shot.activity)
    waits = {each.name: each.sessions for each in load.waits} if load else {}
    if load and load.executing > 0:
        waits[EXECUTING] = load.executing
    return Point(t_s, figures, waits)


@dataclass(frozen=True)
class _Kept:
    t_s: float
    packed: bytes
    #: The whole moment without what is packed: facts and findings are the same objects for a long time.
    rest: Shot


class Past:
    """Takes a shot every second."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque()
        self._old: deque[_Kept] = deque()
        self._kept: deque[_Kept] = deque()
        self._bytes = 0

    def add(self, shot: Shot, t_s: float) -> None:
        """``t_s``: when it was taken, on a clock that does not go back."""
        self._points.append(point(shot, t_s))
        while self._points[0].t_s < t_s - KEPT_S:
            self._points.popleft()
        if self._kept and t_s < self._kept[-1].t_s + KEEP_EVERY_S - 0.5:
            return
        packed = zlib.compress(pickle.dumps(_varying(shot), pickle.HIGHEST_PROTOCOL), 1)
        rest = replace(shot, now=_NONE, recent=_NONE, seldom=None, listed={}, activity=None, series=None)
        self._kept.append(_Kept(t_s, packed, rest))
        self._bytes += len(packed)
        self._forget(t_s)

    def _forget(self, now_s: float) -> None:
        while self._kept[0].t_s < now_s - OLD_S or (self._bytes > MOST_BYTES and len(self._kept) > 1):
            kept = self._kept.popleft()
            is_spare = bool(self._old) and kept.t_s < self._old[-1].t_s + OLD_EVERY_S
            if is_spare:
                self._bytes -= len(kept.packed)
            else:
                self._old.append(kept)
            while self._old and (self._old[0].t_s < now_s - KEPT_S or self._bytes > MOST_BYTES):
                self._bytes -= len(self._old.popleft().packed)

    def _all(self) -> list[_Kept]:
        return [*self._old, *self._kept]

    @property
    def series(self) -> Series:
        return Series(list(self._points))

    def moments(self) -> list[float]:
        """When the whole moments were, oldest first."""
        return [each.t_s for each in self._all()]

    def step(self, at_s: float | None, seconds: float) -> float | None:
        """The moment so many seconds after ``at_s`` (None is now), at least the next one, or the oldest; None if
        that is now again.
        """
        moments = self.moments()
        if not moments:
            return None
        wanted = (moments[-1] + KEEP_EVERY_S if at_s is None else at_s) + seconds
        if wanted > moments[-1]:
            return None
        if at_s is not None:
            # Old moments are further apart than a step.
            beyond = [t_s for t_s in moments if (t_s > at_s if seconds > 0 else t_s < at_s)]
            moments = beyond or moments[:1]
        return min(moments, key=lambda t_s: abs(t_s - wanted))

    def shot(self, at_s: float, now_s: float) -> Shot | None:
        """The moment nearest to ``at_s``; None if nothing is kept."""
        if not self._kept:
            return None
        kept = min(self._all(), key=lambda each: abs(each.t_s - at_s))
        varying: dict[str, Any] = pickle.loads(zlib.decompress(kept.packed))
        points = [each for each in self._points if each.t_s <= kept.t_s]
        return replace(kept.rest, **varying, series=Series(points), back_s=max(now_s - kept.t_s, 0.001))


_NONE = LiveWindow([], {}, {})


def _varying(shot: Shot) -> dict[str, Any]:
    """What changes from second to second, as far as screens show it."""
    listed = {
        name: rows if isinstance(rows, str) else list(rows)[:MOST_ROWS] for name, rows in shot.listed.items()
    }
    return {
        "now": shot.now,
        "recent": shot.recent,
        "seldom": shot.seldom,
        "listed": listed,
        "activity": shot.activity,
    }
