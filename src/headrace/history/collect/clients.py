"""Response times that clients measured, minute by minute beside what is known of their servers.

    [[clients]]
    prometheus = "http://prometheus:9090"
    query = 'app_db_seconds_bucket{env="prod"}'     # as of `headrace verify`

    [[clients]]
    csv = "/var/log/app/latencies.csv"              # lines that the application appends, as of `verify`

    [[clients]]
    hdr = "/var/log/app/latencies.hlog"             # an interval log of HdrHistogram, of one host
    host = "db1"
    unit = "ns"                                     # of its values

    [[clients]]
    statsd = "127.0.0.1:8125"                       # timers, such as app.db1.checkout:12.5|ms
    pattern = "app.{host}.{class}"

Each source is read up to a minute that has passed. What comes later than its hour was rolled up, is of no host of
this fleet, or cannot be read is left out and counted: ``Clients.problem`` says it.
"""

from __future__ import annotations

import asyncio
import csv
import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from headrace.base import hdr, parquet, toml
from headrace.base.buckets import BEYOND, bucket_of
from headrace.base.counted import counted
from headrace.base.errors import HeadraceError, PlanError
from headrace.base.whole import plain_file
from headrace.change.production.prometheus import UNITS_NS, Question, read
from headrace.change.production.series import Series
from headrace.change.production.table import UNITS_NS as BOUNDS_NS
from headrace.change.production.table import row_of
from headrace.history.archive.files import HOUR_S, MINUTE_S, Archive
from headrace.history.archive.tables import CLIENTS, MOST_COUNT, MOST_TIME_S
from headrace.history.collect.bounds import MOST_BUCKETS, MOST_NAME
from headrace.history.collect.minute import table_of

log = logging.getLogger(__name__)

#: A minute is written so long after its end: a scrape or a flush comes with a delay.
GRACE_S = 10.0
#: Hours are rolled up a minute and a half after their end.
ROLLED_UP_S = 60.0
#: Minutes that a source may be behind, and bytes of its file that are read at a time.
MOST_BEHIND, MOST_BYTES = 30, 16 << 20
#: Hosts and minutes of a source that wait: anybody may send to a port, and write any time into a file.
MOST_WAITING = 10_000
#: A bound above it, 146 years, is none. A sample of fewer calls than this share is nobody's.
LONGEST_NS, LEAST_RATE = 2.0**62, 1e-6
#: Names that are said.
MOST_SAID = 3
#: The start of a file that says how the rest is read.
HEAD_BYTES, HEAD_LINES = 64 << 10, 100
#: Intervals up to this length count in the minute in which they began.
SHORT_S, YEAR_S = 10.0, 365 * 86_400.0
#: Columns of a source that tells a CSV from its first line.
COLUMNS = {"time", "seconds", "count"}

#: (class, bucket) -> calls; (host, minute) -> these
_Counts = dict[tuple[str, int], float]
_Calls = dict[tuple[str, int], _Counts]


class Source(BaseModel):
    """One ``[[clients]]``. ``hosts``: what the source calls a host -> its name in the fleet, where they differ."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prometheus: str = ""
    query: str = ""
    host_label: str = "instance"
    class_label: str = ""
    unit: str = "s"
    csv: Path | None = None
    hdr: Path | None = None
    host: str = ""
    statsd: str = ""
    pattern: str = ""
    hosts: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_one(self) -> Source:
        kinds = [name for name in ("prometheus", "csv", "hdr", "statsd") if getattr(self, name)]
        if len(kinds) != 1:
            raise ValueError("name one of prometheus, csv, hdr and statsd")
        if self.hdr and not (self.host and "unit" in self.model_fields_set):
            # No line of such a log says either.
            raise ValueError("hdr needs host, and the unit of its values")
        if self.prometheus and not self.query:
            raise ValueError("prometheus needs query")
        if self.unit not in UNITS_NS:
            raise ValueError(f"unit is one of {', '.join(UNITS_NS)}")
        if self.statsd and ("{host}" not in self.pattern or not re.search(r":\d+$", self.statsd)):
            raise ValueError(
                "statsd needs ADDRESS:PORT, and a pattern with {host}, such as app.{host}.{class}"
            )
        return self

    @property
    def name(self) -> str:
        return self.prometheus or str(self.csv or self.hdr or f"statsd {self.statsd}")


def read_sources(path: Path) -> list[Source]:
    """The sources of a file. Raises PlanError."""
    try:
        content = toml.parse(toml.read(path))
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except ValueError as error:
        raise PlanError(f"not TOML: {error}", place=str(path)) from error
    tables = content.pop("clients", [])
    if content or not isinstance(tables, list) or not tables:
        raise PlanError("has [[clients]] and nothing else", place=str(path), hint="headrace docs serve")
    sources = []
    for number, table in enumerate(tables, 1):
        try:
            sources.append(Source.model_validate(table))
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise PlanError(
                f"{where}: {first['msg']}" if where else str(first["msg"]).removeprefix("Value error, "),
                place=f"{path}: source {number}",
            ) from None
    return sources


class Clients:
    """Reads all sources each minute, and writes what they have into the history."""

    def __init__(self, archive: Archive, sources: Sequence[Source], hosts: Iterable[str]) -> None:
        self._archive = archive
        self._hosts = frozenset(hosts)
        self._readers = [_reader(source) for source in sources]
        self._deaf: list[str] = []
        #: Why something of a source is not kept; empty if nothing is.
        self.problem = ""

    async def run(self) -> None:
        for each in self._readers:
            if isinstance(each, Statsd):
                try:
                    await each.listen()
                except PlanError as error:
                    self._deaf.append(str(error))
        try:
            while True:
                now = time.time()
                await asyncio.sleep(MINUTE_S - (now - GRACE_S) % MINUTE_S)
                await self.collect(int((time.time() - GRACE_S) // MINUTE_S) * MINUTE_S)
        finally:
            for each in self._readers:
                each.close()

    async def collect(self, until_s: int) -> None:
        """Everything up to this minute's start."""
        said = list(self._deaf)
        for each in self._readers:
            try:
                calls = await asyncio.to_thread(each.take, until_s)
                left = await asyncio.to_thread(self._keep, calls, until_s)
            except HeadraceError as error:
                said.append(f"{each.source.name}: {error.message}")
                continue
            except Exception as error:
                log.exception("%s", each.source.name)
                said.append(f"{each.source.name}: {type(error).__name__}: {error}")
                continue
            if why := [*each.notes(), *left]:
                said.append(f"{each.source.name}: {', '.join(why)}")
        self.problem = f"response times of clients: {'; '.join(said)}"[:800] if said else ""

    def _keep(self, calls: _Calls, until_s: int) -> list[str]:
        """Write each minute. What is left out, and why."""
        strangers: Counter[str] = Counter()
        late = 0.0
        for (host, t_s), counts in sorted(calls.items()):
            if host not in self._hosts:
                strangers[host] += 1
            elif t_s // HOUR_S * HOUR_S + HOUR_S + ROLLED_UP_S <= until_s:
                late += sum(counts.values())
            else:
                self._write(host, t_s, counts)
        left = [f"{late:,.0f} calls came after their hour was closed"] if late else []
        if strangers:
            names = ", ".join(name[:80] for name, _ in strangers.most_common(MOST_SAID))
            more = f" and {len(strangers) - MOST_SAID} more" if len(strangers) > MOST_SAID else ""
            left.append(f"no host of this fleet: {names}{more}")
        return left

    def _write(self, host: str, t_s: int, counts: _Counts) -> None:
        path = self._archive.path(CLIENTS.name, host, "m", t_s)
        if path.exists():
            rows = parquet.read(path, CLIENTS.schema).to_pylist()
            for row in (row for row in rows if row["count"]):
                _add(counts, (row["class"], row["bucket"]), row["count"])
        rows = [
            {
                "class": name[:MOST_NAME],
                "bucket": bucket,
                "count": min(round(count), MOST_COUNT),
                "minutes": 0,
            }
            for (name, bucket), count in sorted(counts.items())[:MOST_BUCKETS]
        ]
        # A minute without calls is not a minute that nobody saw.
        rows.append({"class": "", "bucket": 0, "count": 0, "minutes": 1})
        self._archive.write(CLIENTS, host, "m", t_s, table_of(CLIENTS, rows, t_s))


def _add(counts: _Counts, key: tuple[str, int], number: float) -> None:
    counts[key] = counts.get(key, 0.0) + number


class Reader:
    """One source. ``take`` gives the calls up to a minute's start that were not given before."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.wrong: Counter[str] = Counter()

    def take(self, until_s: int) -> _Calls:
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
        return found

    def host(self, name: str) -> str:
        """As the fleet calls it: an exporter's port is no part of a host's name."""
        return self.source.hosts.get(name) or self.source.hosts.get(_bare(name)) or _bare(name)


def _bare(name: str) -> str:
    return re.sub(r":\d+$", "", name)


def _reader(source: Source) -> Reader:
    if source.prometheus:
        return Prometheus(source)
    return Csv(source) if source.csv else HdrLog(source) if source.hdr else Statsd(source)


class Prometheus(Reader):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._since_s = 0
        self._said: list[str] = []

    def take(self, until_s: int) -> _Calls:
        since_s = max(self._since_s or until_s - MINUTE_S, until_s - MOST_BEHIND * MINUTE_S)
        source = self.source
        observed = read(
            Question(
                source.prometheus, source.query, since_s, until_s, MINUTE_S, source.host_label,
                source.class_label, source.unit, GRACE_S,
            )
        )  # fmt: skip
        self._since_s = until_s
        self._said = [note for note in observed.notes if "gaps" in note or "reset" in note]
        calls: _Calls = {}
        for each in observed.series:
            self._take(calls, each)
        self._said = list(dict.fromkeys(self._said))
        return calls

    def _take(self, calls: _Calls, series: Series) -> None:
        ends = _ends(series.edges_ns[1:])
        for start, counts in zip(series.start_s, series.counts, strict=True):
            own = calls.setdefault((self.host(series.host), int(start)), {})
            for bucket, count in zip(ends, counts, strict=True):
                if 0 < count <= MOST_COUNT:
                    _add(own, (series.query_class, bucket), float(count))
                elif count:
                    self._said.append("counts that cannot be were left out")

    def notes(self) -> list[str]:
        return self._said


def _ends(bounds_ns: Any) -> list[int]:
    """The buckets that end at these bounds."""
    return [BEYOND if bound >= LONGEST_NS else bucket_ending_at(float(bound)) for bound in bounds_ns]


def bucket_ending_at(bound_ns: float) -> int:
    """A bound is the largest time of its bucket."""
    return int(bucket_of(max(math.ceil(bound_ns) - 1, 0)))


class Appended(Reader):
    """Lines that are appended to a file. One that shrinks or is another one is read from its start."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        path = source.csv or source.hdr
        assert path is not None
        self._path = path
        self._at = 0
        self._inode = -1
        self._rest = b""
        self._waiting: _Calls = {}
        #: The minute in which this began: of what is shorter only a part was read.
        self._first_s: int | None = None

    def take(self, until_s: int) -> _Calls:
        if self._first_s is None:
            self._first_s = until_s
        for line in self._lines():
            self._line(line, until_s)
        ready = {key: calls for key, calls in self._waiting.items() if key[1] + MINUTE_S <= until_s}
        for key in ready:
            del self._waiting[key]
        return ready

    def _lines(self) -> list[str]:
        try:
            with plain_file(self._path) as file:
                state = os.fstat(file.fileno()).st_ino
                if state != self._inode or file.seek(0, 2) < self._at:
                    # What was there before this began is not read: it belongs to minutes that have passed.
                    is_first = self._inode == -1
                    self._inode, self._at, self._rest = state, 0, b""
                    self._begin()
                    if is_first:
                        self._skip(file)
                file.seek(self._at)
                content = self._rest + file.read(MOST_BYTES)
                self._at = file.tell()
        except OSError as error:
            raise PlanError(f"cannot be read: {error.strerror}", place=str(self._path)) from error
        *lines, self._rest = content.split(b"\n")
        if len(self._rest) > MOST_BYTES:
            self.wrong["it never ends"] += 1
            self._rest = b""
        return [line.decode("utf-8", "replace").strip() for line in lines]

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

    def _own(self, host: str, minute: int, seconds: float, until_s: int) -> _Counts:
        """The calls of this minute, of which the line has so many seconds. Those that are not kept are in none."""
        if minute > until_s + HOUR_S or len(self._waiting) >= MOST_WAITING:
            self.wrong["its time is yet to come"] += 1
            return {}
        if minute == self._first_s and seconds < MINUTE_S - 1e-6:
            self.wrong["it is a part of the minute in which this began"] += 1
            return {}
        return self._waiting.setdefault((host, minute), {})


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
            self.wrong["no line has the columns time, seconds and count"] += 1
            return
        cells = dict(zip(self._header, _cells(line), strict=False))
        bound = next((name for name in self._header if name in BOUNDS_NS), "")
        try:
            host, query_class, start, end, upper, count = row_of(cells, bound)
        except (KeyError, ValueError) as error:
            self.wrong[f"it has no {error}" if isinstance(error, KeyError) else str(error)[:100]] += 1
            return
        if count > MOST_COUNT or not 0 <= start < MOST_TIME_S:
            self.wrong["its count or its time cannot be"] += 1
            return
        minute = int(start // MINUTE_S) * MINUTE_S
        if end > minute + MINUTE_S + 1e-6:
            self.wrong["its stretch is not within one minute"] += 1
            return
        own = self._own(self.host(host), minute, end - start, until_s)
        if count:
            _add(own, (query_class, _ends([upper])[0]), count)


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
            self.wrong["no line of an interval log"] += 1
            return
        try:
            start_s, length_s = self._absolute(float(cells[0])), float(cells[1])
            counts = hdr.decode(cells[3])
        except ValueError as error:
            self.wrong[str(error)[:100]] += 1
            return
        if not (0 <= start_s < MOST_TIME_S and 0 <= length_s <= MINUTE_S):
            self.wrong["its time cannot be, or it is longer than a minute"] += 1
            return
        minute = int(start_s // MINUTE_S) * MINUTE_S
        # Intervals begin when they begin. One of seconds counts where it began; a longer one is of no minute.
        if length_s > SHORT_S and start_s + length_s > minute + MINUTE_S:
            self.wrong["its stretch is not within one minute"] += 1
            return
        own = self._own(self.source.host, minute, length_s, until_s)
        unit_ns = UNITS_NS[self.source.unit]
        for value, count in counts:
            _add(own, (tag, _ends([(value + 1) * unit_ns])[0]), float(count))

    def _absolute(self, at_s: float) -> float:
        """As the library's own reader does: a time a year before the start of the log is one since its start."""
        if self._base_s is not None:
            return self._base_s + at_s
        if self._start_s is not None and at_s < self._start_s - YEAR_S:
            return self._start_s + at_s
        return at_s


_TIME_OF_LOG = re.compile(r"#\[(BaseTime|StartTime): ([0-9.]+)")


class Statsd(Reader, asyncio.DatagramProtocol):
    """Timers over UDP, each call by itself: NAME:VALUE|ms, also with a sample rate and with tags."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._shape = _shape(source.pattern)
        self._calls: _Calls = {}
        self._since_s = 0.0
        self._transport: asyncio.DatagramTransport | None = None

    async def listen(self) -> None:
        """Raises PlanError."""
        address, _, port = self.source.statsd.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            self._transport, _ = await loop.create_datagram_endpoint(
                lambda: self, local_addr=(address.strip("[]"), int(port))
            )
        except OSError as error:
            raise PlanError(f"cannot listen: {error.strerror}", place=self.source.name) from error
        self._since_s = time.time()

    def close(self) -> None:
        if self._transport:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        minute = int(time.time() // MINUTE_S) * MINUTE_S
        for line in data.decode("utf-8", "replace").splitlines():
            self.line(line, minute)

    def line(self, line: str, minute: int) -> None:
        name, _, rest = line.strip().partition(":")
        parts = rest.split("|")
        if len(parts) < 2 or parts[1] != "ms":
            return  # counters, gauges and sets share the port
        match = self._shape.fullmatch(name)
        if not match:
            return
        try:
            took_ns = float(parts[0]) * 1e6
            rate = next((float(part[1:]) for part in parts[2:] if part.startswith("@")), 1.0)
        except ValueError:
            took_ns = rate = math.nan
        if not (0 <= took_ns < LONGEST_NS and LEAST_RATE <= rate <= 1):
            self.wrong["no time in ms"] += 1
            return
        key = (self.host(match["host"])[:MOST_NAME], minute)
        if key not in self._calls and len(self._calls) >= MOST_WAITING:
            self.wrong["too many hosts"] += 1
            return
        own = self._calls.setdefault(key, {})
        if len(own) < MOST_BUCKETS:
            _add(own, (match.groupdict().get("class") or "", int(bucket_of(int(took_ns)))), 1 / rate)

    def take(self, until_s: int) -> _Calls:
        # The list is one step of the loop's thread, which adds to it meanwhile.
        ready = [key for key in list(self._calls) if key[1] + MINUTE_S <= until_s]
        found = {key: self._calls.pop(key) for key in ready}
        # The minute in which it began to listen is not a whole one, nor is one that comes again because the clock
        # was set back.
        since_s, self._since_s = self._since_s, max(self._since_s, float(until_s))
        return {key: calls for key, calls in found.items() if key[1] >= since_s}


def _shape(pattern: str) -> re.Pattern[str]:
    """``{host}`` and ``{class}`` stand for one part between dots, ``*`` for any."""
    text = re.escape(pattern)
    for name in ("host", "class"):
        text = text.replace(re.escape("{" + name + "}"), f"(?P<{name}>[^.]+)", 1)
    return re.compile(text.replace(re.escape("*"), "[^.]*"))
