"""How sources of the response times that clients measured are read: Prometheus, a CSV that grows, and statsd.

What a source sends is somebody else's: anybody may send to a port, and a file is what its application writes. So
what waits is bounded, a line that cannot be costs no other, and what is left out is counted and said.
"""

from __future__ import annotations

import asyncio
import csv
import io
import math
import os
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from headrace.base import hdr
from headrace.base.buckets import BEYOND, bucket_of
from headrace.base.counted import counted
from headrace.base.errors import PlanError
from headrace.base.received import Bound
from headrace.base.whole import plain_file
from headrace.change.production.prometheus import UNITS_NS, Question, TooLarge, read
from headrace.change.production.series import Series
from headrace.change.production.table import UNITS_NS as BOUNDS_NS
from headrace.change.production.table import row_of
from headrace.history.archive.files import HOUR_S, MINUTE_S
from headrace.history.archive.tables import MOST_COUNT, MOST_TIME_S
from headrace.history.collect.bounds import MOST_BUCKETS, MOST_NAME
from headrace.history.collect.sources import Source

#: A minute is written so long after its end: a scrape or a flush comes with a delay.
GRACE_S = 10.0
#: Minutes that a source may be behind, and bytes of its file that are read at a time.
MOST_BEHIND, MOST_BYTES = 30, 16 << 20
#: Of a source, what waits for the end of its minutes, in about as many bytes of memory: anybody may send to a
#: port, and write any time and any name into a file. An entry takes so many beside its name.
MOST_WAITING, ENTRY_BYTES = 256 << 20, 250
#: Of an answer of Prometheus: 200,000 buckets of two points each. A larger one takes minutes of a processor.
MOST_OF_PROMETHEUS = Bound(32 << 20, 4_000_000)
#: How long the lines of a minute may take, and the buckets of one histogram: a kilobyte may be a million of them.
MOST_READ_S, MOST_OF_HISTOGRAM = 20.0, 50_000
#: Minutes of a source that are remembered, so that a clock that is set back gives none of them twice.
MOST_GIVEN = 3 * 24 * 60
#: Lines that are read of a port in a tenth of a second: strangers may send without end.
SLICE_S, MOST_IN_SLICE = 0.1, 1000
#: Of a timer's name: a pattern with two ``*`` tries every place for each of them.
MOST_METRIC = 250
#: Reasons and names that are told apart.
MOST_REASONS = 1000
#: Linux's option of a socket that says how many datagrams found no room in it.
_SO_RXQ_OVFL = 40
#: A bound above it, 146 years, is none. A sample of fewer calls than this share is nobody's.
LONGEST_NS, LEAST_RATE = 2.0**62, 1e-6
#: The start of a file that says how the rest is read.
HEAD_BYTES, HEAD_LINES = 64 << 10, 100
#: Intervals up to this length count in the minute in which they began.
SHORT_S, YEAR_S = 10.0, 365 * 86_400.0
#: Names that are said.
MOST_SAID = 3
#: Columns of a source that tells a CSV from its first line.
COLUMNS = {"time", "seconds", "count"}

#: (class, bucket) -> calls; (host, minute) -> these
Counts = dict[tuple[str, int], float]
Calls = dict[tuple[str, int], Counts]


def add(counts: Counts, key: tuple[str, int], number: float) -> None:
    counts[key] = counts.get(key, 0.0) + number


class Reader:
    """One source. ``take`` gives the calls up to a minute's start that were not given before."""

    def __init__(self, source: Source, hosts: frozenset[str]) -> None:
        self.source = source
        self.wrong: Counter[str] = Counter()
        self._hosts = hosts
        self._strangers: Counter[str] = Counter()
        self._calls: Calls = {}
        #: How much of the memory each of these takes.
        self._sizes: dict[tuple[str, int], int] = {}
        self._size = 0
        self._given: dict[int, None] = {}

    def take(self, until_s: int) -> Calls:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open between two minutes."""

    def notes(self) -> list[str]:
        """What could not be read since the last minute."""
        most = self.wrong.most_common(MOST_SAID)
        found = [f"{counted(count, 'line')} left out: {why}" for why, count in most]
        if others := self.wrong.total() - sum(count for _, count in most):
            found.append(f"{counted(others, 'line')} for other reasons")
        self.wrong.clear()
        if self._strangers:
            names = ", ".join(name[:80] for name, _ in self._strangers.most_common(MOST_SAID))
            more = len(self._strangers) - MOST_SAID
            found.append(f"no host of this fleet: {names}{f' and {more} more' if more > 0 else ''}")
            self._strangers.clear()
        return found

    def host(self, name: str) -> str:
        """As the fleet calls it: an exporter's port is no part of a host's name."""
        return self.source.hosts.get(name) or self.source.hosts.get(_bare(name)) or _bare(name)

    def left_out(self, why: str, lines: int = 1) -> None:
        self.wrong[why if len(self.wrong) < MOST_REASONS else "too many reasons"] += lines

    def is_ours(self, host: str) -> bool:
        """Whether it is a host of the fleet; one that is none is said."""
        if host in self._hosts:
            return True
        if host in self._strangers or len(self._strangers) < MOST_REASONS:
            self._strangers[host[:MOST_NAME]] += 1
        return False

    def count(self, host: str, minute: int, key: tuple[str, int], number: float) -> None:
        """Calls of a minute, which wait for its end as far as there is room."""
        if not self.is_ours(host):
            return
        own = self._calls.setdefault((host, minute), {})
        key = (key[0][:MOST_NAME], key[1])
        if number and key not in own:
            size = ENTRY_BYTES + len(key[0])
            if len(own) >= MOST_BUCKETS or self._size + size > MOST_WAITING:
                self.left_out("more than there is room for")
                return
            self._size += size
            self._sizes[host, minute] = self._sizes.get((host, minute), 0) + size
        if number:
            add(own, key, number)

    def _ready(self, until_s: int) -> Calls:
        """What waited for the end of its minute."""
        # The list is one step: of a port, the loop's thread adds meanwhile.
        ready = [key for key in list(self._calls) if key[1] + MINUTE_S <= until_s]
        for key in ready:
            self._size -= self._sizes.pop(key, 0)
        return {key: self._calls.pop(key) for key in ready}

    def _once(self, calls: Calls, since_s: int, until_s: int) -> Calls:
        """Without minutes that were given before: a clock that was set back brings them again."""
        new = {key: own for key, own in calls.items() if key[1] not in self._given}
        again = {key[1] for key in calls} - {key[1] for key in new}
        self._given |= dict.fromkeys(range(since_s, until_s, MINUTE_S))
        for minute in list(self._given)[: max(len(self._given) - MOST_GIVEN, 0)]:
            del self._given[minute]
        if again:
            self.left_out("its minute came twice, or not from its start", len(again))
        return new


@lru_cache(maxsize=4096)
def _bare(name: str) -> str:
    return re.sub(r":\d+$", "", name)


@lru_cache(maxsize=1 << 16)
def _bucket(time_ns: int) -> int:
    return int(bucket_of(time_ns))


def reader_of(source: Source, hosts: frozenset[str]) -> Reader:
    if source.prometheus:
        return Prometheus(source, hosts)
    if source.hdr:
        return HdrLog(source, hosts)
    return Csv(source, hosts) if source.csv else Statsd(source, hosts)


class Prometheus(Reader):
    def __init__(self, source: Source, hosts: frozenset[str]) -> None:
        super().__init__(source, hosts)
        self._since_s = 0
        self._said: list[str] = []

    def take(self, until_s: int) -> Calls:
        since_s = max(self._since_s, until_s - MOST_BEHIND * MINUTE_S)
        if not self._since_s or since_s >= until_s:
            # The start, or the clock was set back.
            since_s = until_s - MINUTE_S
        source = self.source
        try:
            observed = read(
                Question(
                    source.prometheus, source.query, since_s, until_s, MINUTE_S, source.host_label,
                    source.class_label, source.unit, GRACE_S, MOST_OF_PROMETHEUS,
                )
            )  # fmt: skip
        except TooLarge:
            # One minute alone may be small enough.
            self._since_s = until_s
            raise
        self._since_s = until_s
        told = ("gaps", "reset", "left out")
        self._said = [note for note in observed.notes if any(word in note for word in told)]
        calls: Calls = {}
        for each in observed.series:
            if self.is_ours(self.host(each.host)):
                self._take(calls, each)
        self._said = list(dict.fromkeys(self._said))
        return self._once(calls, since_s, until_s)

    def _take(self, calls: Calls, series: Series) -> None:
        ends = _ends(series.edges_ns[1:])
        for start, counts in zip(series.start_s, series.counts, strict=True):
            own = calls.setdefault((self.host(series.host), int(start)), {})
            for bucket, count in zip(ends, counts, strict=True):
                if 0 < count <= MOST_COUNT:
                    add(own, (series.query_class, bucket), float(count))
                elif count:
                    self._said.append("counts that cannot be were left out")

    def notes(self) -> list[str]:
        said, self._said = self._said, []
        return [*super().notes(), *(note[:200] for note in said)]


def _ends(bounds_ns: Any) -> list[int]:
    """The buckets that end at these bounds."""
    return [BEYOND if bound >= LONGEST_NS else bucket_ending_at(float(bound)) for bound in bounds_ns]


def bucket_ending_at(bound_ns: float) -> int:
    """A bound is the largest time of its bucket."""
    return _bucket(max(math.ceil(bound_ns) - 1, 0))


class Appended(Reader):
    """Lines that are appended to a file. One that shrinks or is another one is read from its start."""

    def __init__(self, source: Source, hosts: frozenset[str]) -> None:
        super().__init__(source, hosts)
        path = source.csv or source.hdr
        assert path is not None
        self._path = path
        self._at = 0
        self._inode = -1
        self._rest = b""
        #: How often a file was gone before its last lines were read.
        self._lost = 0
        #: The minute in which this began: of what is shorter only a part was read.
        self._first_s: int | None = None

    def take(self, until_s: int) -> Calls:
        if self._first_s is None:
            self._first_s = until_s
        end_s = time.monotonic() + MOST_READ_S
        for line in self._lines():
            if time.monotonic() > end_s:
                self.left_out(f"more than {MOST_READ_S:.0f} s of reading")
            else:
                self._line(line, until_s)
        return self._ready(until_s)

    def _lines(self) -> Iterator[str]:
        try:
            with plain_file(self._path) as file:
                state = os.fstat(file.fileno()).st_ino
                if state != self._inode or file.seek(0, 2) < self._at:
                    # What was there before this began is not read: it belongs to minutes that have passed.
                    is_first = self._inode == -1
                    if not is_first:
                        yield from self._last_lines(state)
                    self._inode, self._at, self._rest = state, 0, b""
                    self._begin()
                    if is_first:
                        self._skip(file)
                file.seek(self._at)
                content = self._rest + file.read(MOST_BYTES)
                self._at = file.tell()
        except OSError as error:
            raise PlanError(f"cannot be read: {error.strerror}", place=str(self._path)) from error
        end = content.rfind(b"\n") + 1
        self._rest = content[end:]
        if len(self._rest) > MOST_BYTES:
            self.left_out("it never ends")
            self._rest = b""
        # One by one: a list of short lines takes thirty times their bytes.
        for line in io.BytesIO(content[:end]):
            yield line.decode("utf-8", "replace").strip()

    def _last_lines(self, inode: int) -> Iterator[str]:
        """What the file that was here before got since it was read, by whatever name it has now."""
        content = None if inode == self._inode else self._rotated()
        if content is None:
            self._lost += 1
            return
        for line in io.BytesIO(self._rest + content):
            yield line.decode("utf-8", "replace").strip()

    def _rotated(self) -> bytes | None:
        """The rest of the file beside this one that it was; None if it is gone, packed or too large."""
        stem, inode = self._path.stem, self._inode
        with suppress(OSError):
            with os.scandir(self._path.parent) as entries:
                names = [
                    each.path for each in entries if each.inode() == inode and each.name.startswith(stem)
                ]
            for name in names:
                with plain_file(Path(name)) as file:
                    if os.fstat(file.fileno()).st_ino != inode:
                        continue
                    file.seek(self._at)
                    content = file.read(MOST_BYTES + 1)
                    return content if len(content) <= MOST_BYTES else None
        return None

    def notes(self) -> list[str]:
        said = super().notes()
        if self._lost:
            said.append("it was rotated or cut short: what it got since it was last read may be lost")
        self._lost = 0
        return said

    def _skip(self, file: Any) -> None:
        """To its end; its first lines say how the others are read."""
        file.seek(0)
        for line in file.read(HEAD_BYTES).decode("utf-8", "replace").splitlines()[:HEAD_LINES]:
            self._head(line.strip())
        end = file.seek(0, 2)
        # From the start of a line on.
        file.seek(max(end - (64 << 10), 0))
        tail = file.read()
        self._at = end - (len(tail) - (tail.rfind(b"\n") + 1))

    def _begin(self) -> None:
        """Forget what the first lines of another file said."""
        raise NotImplementedError

    def _head(self, line: str) -> bool:
        """Whether this line says how others are read."""
        raise NotImplementedError

    def _line(self, line: str, until_s: int) -> None:
        """A line that is new."""
        raise NotImplementedError

    def _keep(self, host: str, minute: int, seconds: float, until_s: int, counts: Counts) -> None:
        """The calls of a line that has so many seconds of this minute."""
        if minute > until_s + HOUR_S:
            self.left_out("its time is yet to come")
        elif minute == self._first_s and seconds < MINUTE_S - 1e-6:
            self.left_out("it is a part of the minute in which this began")
        else:
            for key, number in counts.items():
                self.count(host, minute, key, number)


class Csv(Appended):
    def _begin(self) -> None:
        self._header: list[str] = []

    def _head(self, line: str) -> bool:
        names = [word.strip() for word in _cells(line)]
        if set(names) >= COLUMNS:
            self._header = names
            return True
        return False

    def _line(self, line: str, until_s: int) -> None:
        if not line or self._head(line):
            return
        if not self._header:
            self.left_out("no line has the columns time, seconds and count")
            return
        cells = dict(zip(self._header, _cells(line), strict=False))
        bound = next((name for name in self._header if name in BOUNDS_NS), "")
        try:
            host, query_class, start, end, upper, count = row_of(cells, bound)
        except (KeyError, ValueError) as error:
            self.left_out(f"it has no {error}" if isinstance(error, KeyError) else str(error)[:100])
            return
        if count > MOST_COUNT or not 0 <= start < MOST_TIME_S:
            self.left_out("its count or its time cannot be")
            return
        minute = int(start // MINUTE_S) * MINUTE_S
        if end > minute + MINUTE_S + 1e-6:
            self.left_out("its stretch is not within one minute")
            return
        counts = {(query_class, _ends([upper])[0]): count}
        self._keep(self.host(host), minute, end - start, until_s, counts)


def _cells(line: str) -> list[str]:
    """Of a line; none of one that is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


class HdrLog(Appended):
    """An interval log of HdrHistogram: [Tag=CLASS,]START,LENGTH,MAX,HISTOGRAM in each line. Times count from what
    ``#[BaseTime: ...]`` says, or ``#[StartTime: ...]``, or are since 1970."""

    def _begin(self) -> None:
        self._base_s: float | None = None
        self._start_s: float | None = None

    def _head(self, line: str) -> bool:
        if not line.startswith("#"):
            return line.startswith('"')  # the names of the columns
        if match := _TIME_OF_LOG.match(line):
            try:
                at_s = float(match[2])
            except ValueError:
                return True
            if match[1] == "BaseTime":
                self._base_s = at_s
            else:
                self._start_s = at_s
        return True

    def _line(self, line: str, until_s: int) -> None:
        if not line or self._head(line):
            return
        cells = line.split(",")
        tag = cells.pop(0)[4:] if cells[0].startswith("Tag=") else ""
        if len(cells) != 4:
            self.left_out("no line of an interval log")
            return
        try:
            start_s, length_s = self._absolute(float(cells[0])), float(cells[1])
            counts = hdr.decode(cells[3])
        except ValueError as error:
            self.left_out(str(error)[:100])
            return
        if len(counts) > MOST_OF_HISTOGRAM:
            self.left_out("a histogram of more buckets than any has")
            return
        if not (0 <= start_s < MOST_TIME_S and 0 <= length_s <= MINUTE_S):
            self.left_out("its time cannot be, or it is longer than a minute")
            return
        minute = int(start_s // MINUTE_S) * MINUTE_S
        # Intervals begin when they begin. One of seconds counts where it began; a longer one is of no minute.
        if length_s > SHORT_S and start_s + length_s > minute + MINUTE_S:
            self.left_out("its stretch is not within one minute")
            return
        unit_ns = UNITS_NS[self.source.unit]
        own: Counts = {("", 0): 0.0}
        for value, count in counts:
            add(own, (tag, _ends([(value + 1) * unit_ns])[0]), float(count))
        self._keep(self.source.host, minute, length_s, until_s, own)

    def _absolute(self, at_s: float) -> float:
        """As the library's own reader does: a time a year before the start of the log is one since its start."""
        if self._base_s is not None:
            return self._base_s + at_s
        if self._start_s is not None and at_s < self._start_s - YEAR_S:
            return self._start_s + at_s
        return at_s


_TIME_OF_LOG = re.compile(r"#\[(BaseTime|StartTime): ([0-9.]+)")


class Statsd(Reader):
    """Timers over UDP, each call by itself: NAME:VALUE|ms, also with a sample rate and with tags."""

    def __init__(self, source: Source, hosts: frozenset[str]) -> None:
        super().__init__(source, hosts)
        self._shape = _shape(source.pattern)
        self._since_s = 0
        self._socket: socket.socket | None = None
        self._slice, self._left = -1.0, 0
        self._resumes: asyncio.TimerHandle | None = None
        #: Datagrams that found no room, since the socket is there and as said.
        self._dropped, self._dropped_said = 0, 0

    async def listen(self) -> None:
        """Raises PlanError."""
        address, _, port = self.source.statsd.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            places = await loop.getaddrinfo(
                address.strip("[]") or None, int(port), type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
            )
            self._socket = socket.socket(places[0][0], socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
            self._socket.bind(places[0][4])
        except (OSError, UnicodeError) as error:
            self.close()
            why = error.strerror if isinstance(error, OSError) else "no such address"
            raise PlanError(f"cannot listen: {why}", place=self.source.name) from error
        loop.add_reader(self._socket, self._read)
        # The minute in which it begins to listen is not a whole one.
        self._given[int(time.time() // MINUTE_S) * MINUTE_S] = None

    def close(self) -> None:
        if self._resumes:
            self._resumes.cancel()
        if self._socket:
            with suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        """What is there, as much as a slice of time may have: pages and hosts are served by the same thread."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        if now - self._slice >= SLICE_S:
            self._slice, self._left = now, MOST_IN_SLICE
        minute = int(time.time() // MINUTE_S) * MINUTE_S
        while self._left > 0 and self._socket:
            try:
                data, said, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(4))
            except OSError:
                return  # nothing more is there, or a neighbour answered
            for level, kind, value in said:
                if level == socket.SOL_SOCKET and kind == _SO_RXQ_OVFL and len(value) >= 4:
                    self._dropped = struct.unpack("=I", value[:4])[0]
            self.datagram(data, minute)
        if self._socket:
            loop.remove_reader(self._socket)
            self._resumes = loop.call_later(max(self._slice + SLICE_S - now, 0), self._resume)

    def _resume(self) -> None:
        if self._socket:
            asyncio.get_running_loop().add_reader(self._socket, self._read)

    def datagram(self, data: bytes, minute: int) -> None:
        lines = data.decode("utf-8", "replace").splitlines()
        self._left -= max(len(lines), 1)
        if len(lines) > MOST_IN_SLICE:
            self.left_out("too many in one datagram", len(lines) - MOST_IN_SLICE)
        for line in lines[:MOST_IN_SLICE]:
            self.line(line, minute)

    def line(self, line: str, minute: int) -> None:
        name, _, rest = line.strip().partition(":")
        parts = rest.split("|")
        if len(parts) < 2 or parts[1] != "ms":
            return  # counters, gauges and sets share the port
        if len(name) > MOST_METRIC:
            self.left_out(f"a name of more than {MOST_METRIC} characters")
            return
        match = self._shape.fullmatch(name)
        if not match:
            return
        try:
            took_ns = float(parts[0]) * 1e6
            rate = next((float(part[1:]) for part in parts[2:] if part.startswith("@")), 1.0)
        except ValueError:
            took_ns = rate = math.nan
        if not (0 <= took_ns < LONGEST_NS and LEAST_RATE <= rate <= 1):
            self.left_out("no time in ms")
            return
        name = match.groupdict().get("class") or ""
        self.count(self.host(match["host"]), minute, (name, _bucket(int(took_ns))), 1 / rate)

    def notes(self) -> list[str]:
        lost, self._dropped_said = self._dropped - self._dropped_said, self._dropped
        said = super().notes()
        if lost > 0:
            most = counted(round(MOST_IN_SLICE / SLICE_S), "line")
            said.append(f"{counted(lost, 'datagram')} lost: more came than {most} a second")
        return said

    def take(self, until_s: int) -> Calls:
        since_s, self._since_s = self._since_s, until_s
        if not until_s - MOST_BEHIND * MINUTE_S <= since_s < until_s:
            since_s = until_s - MINUTE_S
        # Of a time when the clock was ahead: it was set back.
        for key in [key for key in list(self._calls) if key[1] > until_s + HOUR_S]:
            self._size -= self._sizes.pop(key, 0)
            del self._calls[key]
            self.left_out("its minute is yet to come")
        return self._once(self._ready(until_s), since_s, until_s)


def _shape(pattern: str) -> re.Pattern[str]:
    """``{host}`` and ``{class}`` stand for one part between dots, ``*`` for any."""
    text = re.escape(pattern)
    for name in ("host", "class"):
        text = text.replace(re.escape("{" + name + "}"), f"(?P<{name}>[^.]+)", 1)
    return re.compile(text.replace(re.escape("*"), "[^.]*"))
