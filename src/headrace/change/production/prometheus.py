"""Histograms and counters of Prometheus, VictoriaMetrics or PMM, by ``query_range``.

Raw counters are asked for, never rates: a percentile of a window needs the buckets, and a reset must be seen. A
stretch between two points counts only if both are there and no counter fell; anything else is a gap.
"""

from __future__ import annotations

import http.client
import math
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.counted import counted
from headrace.base.errors import PlanError, TargetError
from headrace.base.received import BadContent, Bound, parsed
from headrace.change.production.series import ALL, ONLY_COUNTS, Observed, Series

if TYPE_CHECKING:
    from headrace.change.production.series import Floats

#: Prometheus refuses more points per series than 11,000.
MOST_POINTS = 10_000
#: Most bytes of an answer, and most values in it: 13 million points take less than 256 MiB, and 100 MiB of empty
#: lists fill all memory.
MOST_BYTES, MOST_VALUES = 256 * 2**20, 40_000_000
#: The whole answer must be here within so many times the limit for its first byte: one that trickles never ends.
MOST_WAITS = 10
UNITS_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Question:
    """What to ask: a selector of a histogram's ``..._bucket`` series, or of a counter of calls."""

    url: str
    query: str
    since_s: float
    until_s: float
    step_s: float = 60.0
    host_label: str = "instance"
    class_label: str = ""
    unit: str = "s"
    timeout_s: float = 30.0
    #: What the answer may be; None for the most of all.
    bound: Bound | None = None

    @property
    def most(self) -> Bound:
        return self.bound or Bound(MOST_BYTES, MOST_VALUES)

    @property
    def limit_s(self) -> float:
        """Of the whole answer."""
        return MOST_WAITS * self.timeout_s


class TooLarge(TargetError):
    """An answer that exceeds its bound: fewer steps may fit."""


def read(question: Question) -> Observed:
    """The increments of the series. Raises TargetError if there is no whole answer."""
    parts = urllib.parse.urlsplit(question.url)
    if "@" in question.url:
        raise PlanError(
            "every user of this machine can read the credentials in an address",
            place=f"{parts.scheme}://...",
            hint="an address that needs none, such as that of a proxy on this machine",
        )
    if parts.scheme not in ("http", "https"):
        raise PlanError("not an http or https address", place=question.url)
    first = math.ceil(question.since_s / question.step_s)
    count = math.floor(question.until_s / question.step_s) - first + 1
    if count < 2:
        raise PlanError(f"less than two steps of {question.step_s:g} s", place=question.query)
    points: dict[_Labels, Floats] = {}
    for start in range(0, count, MOST_POINTS):
        end = min(start + MOST_POINTS, count)
        for labels, values in _asked(question, first + start, first + end - 1):
            own = points.setdefault(labels, np.full(count, np.nan))
            _fill(own, values, first, question, end)
    if not points:
        raise TargetError(
            "no series matches",
            place=f"{question.url} {question.query}",
            hint="is the time within its retention?",
        )
    return _observed(question, points, np.arange(first, first + count, dtype=np.float64) * question.step_s)


def _asked(question: Question, first: int, last: int) -> Iterator[tuple[_Labels, Any]]:
    seen: set[_Labels] = set()
    words = {
        "query": question.query,
        "start": f"{first * question.step_s:.3f}",
        "end": f"{last * question.step_s:.3f}",
        "step": f"{question.step_s:g}",
    }
    answer = _answer(question, words)
    try:
        if answer["data"]["resultType"] != "matrix":
            raise ValueError(f"the answer is a {answer['data']['resultType']}, not a matrix")
        for each in answer["data"]["result"]:
            labels = tuple(sorted((str(k), str(v)) for k, v in each["metric"].items()))
            if labels in seen:
                raise ValueError(f"two series have the same labels: {_words(labels)}")
            seen.add(labels)
            yield labels, each["values"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TargetError(f"not an answer to a range query: {error}", place=question.url) from error


def _answer(question: Question, words: Mapping[str, str]) -> Any:
    url = f"{question.url.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(words)}"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    most = question.most.size_bytes
    try:
        with _asks(question) as ask, ask.open(request, timeout=question.timeout_s) as reply:
            text = _content(reply, question)
            missing = reply.length if len(text) <= most else 0
    except urllib.error.HTTPError as error:
        with error:
            raise TargetError(f"HTTP {error.code}: {_reason(error)}", place=question.url) from error
    except TimeoutError as error:
        raise _hung(question) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _hung(question) from error
        raise TargetError(f"cannot be reached: {error.reason}", place=question.url) from error
    except (http.client.HTTPException, OSError) as error:
        raise TargetError(
            f"its answer was cut short: {error or type(error).__name__}", place=question.url
        ) from error
    if missing:
        raise TargetError(f"its answer was cut short by {missing} bytes", place=question.url)
    if len(text) > most:
        raise TooLarge(f"its answer exceeds {most >> 20} MiB", place=question.url, hint="narrow the query")
    try:
        found = parsed(text, question.most)
    except BadContent as error:
        if "too large" in str(error):
            raise TooLarge(f"its answer is {error}", place=question.url, hint="narrow the query") from error
        raise TargetError(f"its answer was cut short, or is not one: {error}", place=question.url) from error
    if not isinstance(found, dict) or found.get("status") != "success":
        raise TargetError(f"it refused: {str(found)[:200]}", place=question.url)
    return found


class _Stays(urllib.request.HTTPRedirectHandler):
    """An answer that leads elsewhere is not followed: it would choose what this machine asks, such as the address
    that gives a cloud's machines their keys.
    """

    def redirect_request(self, *_: Any) -> None:
        return None


@contextmanager
def _asks(question: Question) -> Iterator[urllib.request.OpenerDirector]:
    """Connections that end when the whole answer must be here, also amid a header that trickles."""
    open_now: list[socket.socket] = []

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            open_now.append(self.sock)

    class Encrypted(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            open_now.append(self.sock)

    class Http(urllib.request.HTTPHandler):
        def http_open(self, asked: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, asked)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, asked: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Encrypted, asked)

    timer = threading.Timer(question.limit_s, partial(_end, open_now))
    timer.daemon = True
    timer.start()
    try:
        yield urllib.request.build_opener(_Stays, Http, Https)
    finally:
        timer.cancel()


def _end(connections: list[socket.socket]) -> None:
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _content(reply: http.client.HTTPResponse, question: Question) -> bytes:
    """Its bytes, one more than there may be at most. Raises TimeoutError, also for those that come one by one."""
    until, pieces, size = time.monotonic() + question.limit_s, [], 0
    most = question.most.size_bytes
    while size <= most and (piece := reply.read1(min(1 << 20, most + 1 - size))):
        pieces.append(piece)
        size += len(piece)
        if time.monotonic() > until:
            raise TimeoutError
    return b"".join(pieces)


def _hung(question: Question) -> TargetError:
    return TargetError(f"no answer within {question.timeout_s:g} s", place=question.url)


def _reason(error: urllib.error.HTTPError) -> str:
    if where := error.headers.get("Location"):
        return f"it leads to {where[:200]}, which is not followed; name that address if it is right"
    try:
        return str(parsed(error.read(65536))["error"])[:300]
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return str(error.reason)


def _fill(own: Floats, values: Any, first: int, question: Question, end: int) -> None:
    """Values at their steps; what is not a finite number leaves a gap."""
    try:
        pairs = np.array([(float(at), float(value)) for at, value in values]).reshape(-1, 2)
    except (TypeError, ValueError) as error:
        raise TargetError(f"a point is not a time and a number: {error}", place=question.url) from error
    places = np.rint(pairs[:, 0] / question.step_s) - first
    good = np.isfinite(pairs).all(axis=1) & (pairs[:, 1] >= 0) & (places >= 0) & (places < end)
    own[places[good].astype(np.int64)] = pairs[good, 1]


# -- From counters to increments --------------------------------------------------------------------------------


class _Group:
    """The series of one host and class, by their upper bound."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.increments: dict[float, Floats] = {}
        self.is_gap = np.zeros(n, dtype=np.bool_)
        self.is_known = np.zeros(n, dtype=np.bool_)

    def add(self, bound: float, values: Floats) -> int:
        """Add a counter; returns how often it was reset."""
        is_there = np.isfinite(values)
        if not is_there.any():
            return 0
        steps = np.diff(values)
        places = np.flatnonzero(is_there)
        alive = np.zeros(self.n, dtype=np.bool_)
        alive[places[0] : places[-1]] = True
        resets = steps < 0
        self.is_gap |= alive & ~(steps >= 0)
        self.is_known |= steps >= 0
        own = self.increments.setdefault(bound, np.full(self.n, np.nan))
        # NaN means that the bound does not exist at that time, which differs from no event.
        good = steps >= 0
        own[good] = np.where(np.isfinite(own[good]), own[good], 0.0) + steps[good]
        return int(resets.sum())


def _observed(question: Question, points: Mapping[_Labels, Floats], times: Floats) -> Observed:
    groups: dict[tuple[str, str], _Group] = {}
    resets: Counter[str] = Counter()
    extra: dict[str, set[str]] = {}
    left_out: dict[str, list[_Labels]] = {}
    is_histogram = any("le" in dict(labels) for labels in points)
    chosen = {question.host_label, question.class_label, "le", "__name__"}
    for labels, values in points.items():
        named = dict(labels)
        for name, value in labels:
            if name not in chosen:
                extra.setdefault(name, set()).add(value)
        host, query_class = named.get(question.host_label, ""), named.get(question.class_label, ALL)
        bound = _bound(named.get("le"), is_histogram, question)
        if not host or not bound > 0:
            why = f"no label {question.host_label}" if not host else "no bound le"
            left_out.setdefault(why, []).append(labels)
            continue
        group = groups.setdefault((host, query_class), _Group(len(times) - 1))
        resets[host] += group.add(bound, values)
    if not groups:
        why, some = next(iter(left_out.items()))
        raise PlanError(
            f"a series has {why}: {_words(some[0])}",
            place=question.query,
            hint="--host-label names the label of the host" if "label" in why else "",
        )
    series, gaps = [], 0
    for (host, query_class), group in groups.items():
        found, lost = _series(host, query_class, group, times)
        series += found
        gaps += lost
    # One exporter's nonsense costs no other host its calls.
    wrong = [
        f"{counted(len(some), 'series', 'series')} left out: {why}, such as {_words(some[0])}"
        for why, some in left_out.items()
    ]
    return Observed(tuple(series), (*_notes(resets, gaps, extra), *wrong))


def _bound(le: str | None, is_histogram: bool, question: Question) -> float:
    """In ns; NaN if it is none."""
    if not is_histogram:
        return math.inf
    try:
        return float(le or "") * UNITS_NS[question.unit]
    except ValueError:
        return math.nan


def _series(host: str, query_class: str, group: _Group, times: Floats) -> tuple[list[Series], int]:
    """Series of stretches that have the same bounds, and how many stretches are lost."""
    bounds = np.array(sorted(group.increments))
    cumulative = np.stack([group.increments[bound] for bound in bounds], axis=1)
    exists = np.isfinite(cumulative)
    good = group.is_known & ~group.is_gap
    if not math.isinf(bounds[-1]):
        good[:] = False
    else:
        good &= exists[:, -1]
    layouts: dict[bytes, list[int]] = {}
    for i in np.flatnonzero(good):
        layouts.setdefault(exists[i].tobytes(), []).append(int(i))
    found, lost = [], int((group.is_gap | (group.is_known & ~good)).sum())
    for rows in layouts.values():
        at = np.array(rows)
        own = exists[at[0]]
        counts = np.diff(cumulative[at][:, own], axis=1, prepend=0.0)
        # A scrape is not atomic for every exporter: a bucket that has more than a wider one is nonsense.
        whole = (counts >= 0).all(axis=1)
        lost += int((~whole).sum())
        at, counts = at[whole], counts[whole]
        edges = ONLY_COUNTS if own.sum() == 1 else np.concatenate(([0.0], bounds[own]))
        if len(at):
            found.append(Series(host, query_class, times[at], times[at + 1], edges, counts))
    return found, lost


def _notes(resets: Mapping[str, int], gaps: int, extra: Mapping[str, set[str]]) -> Iterator[str]:
    if reset := [host for host, count in resets.items() if count]:
        yield f"counters were reset on {', '.join(sorted(reset))}: a restart, or a truncated table"
    if gaps:
        yield f"{gaps} stretches are gaps: a missing point, a reset, or buckets that contradict each other"
    if summed := sorted(name for name, values in extra.items() if len(values) > 1):
        yield f"series that differ in {', '.join(summed)} were added up"


def _words(labels: _Labels) -> str:
    return ("{" + ", ".join(f'{name}="{value}"' for name, value in labels) + "}")[:300]
