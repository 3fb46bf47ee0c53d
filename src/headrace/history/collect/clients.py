"""Response times that clients measured, minute by minute beside what is known of their servers.

Each source is read up to a minute that has passed. What comes later than its hour was rolled up, is of no host of
this fleet, or cannot be read is left out and counted: ``Clients.problem`` says it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa

from headrace.base import parquet
from headrace.base.counted import counted
from headrace.base.errors import HeadraceError, PlanError
from headrace.history.archive.files import HOUR_S, MINUTE_S, Archive
from headrace.history.archive.tables import CLIENTS, MOST_COUNT
from headrace.history.collect.bounds import MOST_BUCKETS, MOST_NAME
from headrace.history.collect.minute import table_of
from headrace.history.collect.readers import GRACE_S, Calls, Counts, Reader, Statsd, add, reader_of
from headrace.history.collect.sources import Source

log = logging.getLogger(__name__)

#: Hours are rolled up a minute and a half after their end.
ROLLED_UP_S = 60.0
#: How long a minute waits for a source that is slow; then the next minute asks it again.
WAITED_S = 40.0
#: Characters that are said of a source: long words of one hide nothing of another.
MOST_WORDS, MOST_SAID = 300, 2000


class Clients:
    """Reads all sources each minute, and writes what they have into the history."""

    def __init__(self, archive: Archive, sources: Sequence[Source], hosts: Iterable[str]) -> None:
        self._archive = archive
        known = frozenset(hosts)
        self._readers = [reader_of(source, known) for source in sources]
        self._deaf: list[str] = []
        self._reading: dict[Reader, asyncio.Future[Calls]] = {}
        #: What could not be written: the disk may have room in the next minute.
        self._unwritten: dict[Reader, Calls] = {}
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
        """Everything up to this minute's start. A source that is slow or fails costs no other its minute."""
        said = list(self._deaf)
        for each in asyncio.as_completed([self._taken(each, until_s) for each in self._readers]):
            reader, calls, why = await each
            try:
                why += await asyncio.to_thread(self._keep, reader, calls, until_s)
            except Exception as error:
                log.exception("%s", reader.source.name)
                why.append(f"{type(error).__name__}: {error}")
            if why:
                said.append(f"{reader.source.name}: {', '.join(why)[:MOST_WORDS]}")
        self.problem = f"response times of clients: {'; '.join(said)}"[:MOST_SAID] if said else ""

    async def _taken(self, reader: Reader, until_s: int) -> tuple[Reader, Calls, list[str]]:
        """What a source gives, and what is to be said of it."""
        reading = self._reading.pop(reader, None) or _aside(partial(reader.take, until_s))
        done, _ = await asyncio.wait([reading], timeout=WAITED_S)
        if not done:
            self._reading[reader] = reading
            return reader, {}, ["its answer is still waited for"]
        try:
            return reader, reading.result(), reader.notes()
        except HeadraceError as error:
            return reader, {}, [error.message]
        except Exception as error:
            log.error("%s", reader.source.name, exc_info=error)
            return reader, {}, [f"{type(error).__name__}: {error}"]

    def _keep(self, reader: Reader, calls: Calls, until_s: int) -> list[str]:
        """Write each minute. What is left out, and why."""
        for key, counts in self._unwritten.pop(reader, {}).items():
            own = calls.setdefault(key, {})
            for name, number in counts.items():
                add(own, name, number)
        late, again, failed = 0.0, {}, Counter[str]()
        for (host, t_s), counts in sorted(calls.items()):
            if t_s // HOUR_S * HOUR_S + HOUR_S + ROLLED_UP_S <= until_s:
                late += sum(counts.values())
                continue
            try:
                self._write(host, t_s, counts)
            except (HeadraceError, pa.ArrowException, OSError, ValueError) as error:
                # The disk is full, or what is there is damaged: this minute of this host alone.
                again[host, t_s] = counts
                failed[error.message if isinstance(error, HeadraceError) else str(error)] += 1
        left = [f"{late:,.0f} calls came after their hour was closed"] if late else []
        if again:
            self._unwritten[reader] = again
            why = failed.most_common(1)[0][0]
            left.append(f"{counted(len(again), 'minute')} of hosts not written yet: {why}")
        return left

    def _write(self, host: str, t_s: int, counts: Counts) -> None:
        # Not in place: what cannot be written is written later.
        counts = dict(counts)
        path = self._archive.path(CLIENTS.name, host, "m", t_s)
        if path.exists():
            rows = parquet.read(path, CLIENTS.schema).to_pylist()
            for row in (row for row in rows if row["count"]):
                add(counts, (row["class"], row["bucket"]), row["count"])
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


def _aside(work: Callable[[], Calls]) -> asyncio.Future[Calls]:
    """In a thread that the end of this program does not wait for."""
    loop = asyncio.get_running_loop()
    later: asyncio.Future[Calls] = loop.create_future()

    def tell(calls: Calls, error: Exception | None) -> None:
        if error is not None and not later.cancelled():
            later.set_exception(error)
        elif not later.cancelled():
            later.set_result(calls)

    def run() -> None:
        calls: Calls = {}
        wrong: Exception | None = None
        try:
            calls = work()
        except Exception as error:
            wrong = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, calls, wrong)

    threading.Thread(target=run, daemon=True, name="clients").start()
    return later
