"""A machine's latencies compared with published ones, and which pairs are out of balance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import StoreError

#: Sources of the published numbers.
SOURCES = {
    2009: "Jeff Dean, Designs, Lessons and Advice from Building Large Distributed Systems, LADIS 2009 "
    "(the same numbers in Peter Norvig, Teach Yourself Programming in Ten Years)",
    2020: "Google SRE, Latency Numbers Everyone Should Know (sre.google, rule-of-thumb-latency-numbers-letter; "
    "undated, about 2020)",
}

#: Row -> its name for people, and the ns published in 2009 and about 2020. A number is listed only for the same
#: operation, or for the nearest one, which ``NEAREST`` then names.
RUNGS: dict[str, tuple[str, float | None, float | None]] = {
    "l1": ("L1 cache reference", 0.5, 1),
    "branch_mispredict": ("branch mispredict", 5, 3),
    "l2": ("L2 cache reference", 7, 4),
    "l3": ("L3 cache reference", None, None),
    "mutex": ("mutex lock and unlock", 25, 17),
    "mutex_contended": ("mutex, two threads", None, None),
    "memory": ("memory reference", 100, 100),
    "mutex_handover": ("mutex, to a sleeping thread", None, None),
    "loopback_2kb": ("2 KB over loopback and back", None, None),
    "memory_1mb": ("1 MB from memory", 250_000, 10_000),
    "network_2kb": ("2 KB over the network and back", 500_000, 500_000),
    "network_connect": ("TCP connect over the network", 500_000, 500_000),
    "server": ("SELECT 1", None, None),
    "device_read_32": ("16 KB read, 32 concurrent, each", None, None),
    "device_read": ("16 KB random read", 10_000_000, 20_000),
    "device_write": ("16 KB random write", None, None),
    "device_sync_write": ("16 KB random write, fdatasync", None, None),
    "commit_512": ("512 B of log, fdatasync", None, None),
    "commit_16k": ("16 KB of log, fdatasync", None, None),
    "append_fsync": ("4 KB appended, fsync", None, None),
    "device_1mb": ("1 MB from the device", 20_000_000, 1_000_000),
}
NEAREST = {
    "network_2kb": "a round trip within a datacenter",
    "network_connect": "a round trip within a datacenter",
    "device_read": "2009: a disk seek; 2020: 4 kB from an SSD",
    "device_1mb": "2009: from a disk; 2020: from an SSD",
}


@dataclass(frozen=True)
class Rung:
    """One row as the agent measured it. ``low_ns`` to ``high_ns`` is an interval of the median, by rounds."""

    rung: str
    name: str
    median_ns: float
    p99_ns: float
    min_ns: float
    low_ns: float
    high_ns: float
    confidence: float
    repetitions: int
    method: str
    spoiled_by: tuple[str, ...]
    published_2009_ns: float | None
    published_2020_ns: float | None


@dataclass(frozen=True)
class Imbalance:
    """A pair of rows (or a row and a setting) that is out of balance; the sentence has its numbers."""

    code: str
    sentence: str
    rungs: tuple[str, ...]


@dataclass(frozen=True)
class Ladder:
    """All rows, in the published order; ``missing`` is row -> why it could not be measured."""

    rungs: tuple[Rung, ...]
    missing: dict[str, str]
    spoiled_by: tuple[str, ...]
    memory: dict[str, int | None]
    server: dict[str, Any] | None
    device: str | None

    def median_ns(self, rung: str) -> float | None:
        return next((found.median_ns for found in self.rungs if found.rung == rung), None)


def read(rows: Iterable[Mapping[str, Any]]) -> Ladder:
    """The agent's lines, parsed. Raises StoreError if they are damaged or incomplete."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    try:
        for row in rows:
            by_kind.setdefault(row["kind"], []).append(row)
        # Lines without an end are incomplete.
        start, _ = by_kind["start"][0], by_kind["end"][0]
        order = list(RUNGS)
        rungs = [_rung(row) for row in by_kind.get("rung", ()) if row["rung"] in RUNGS]
        return Ladder(
            tuple(sorted(rungs, key=lambda found: order.index(found.rung))),
            {row["rung"]: row["reason"] for row in by_kind.get("missing", ())},
            tuple(start["spoiled_by"]),
            start["memory"],
            start["server"],
            start["device"],
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreError(f"these are not the lines of a ladder: {error!r}") from error


def _rung(row: Mapping[str, Any]) -> Rung:
    name, published_2009_ns, published_2020_ns = RUNGS[row["rung"]]
    return Rung(
        rung=row["rung"],
        name=name,
        median_ns=float(row["median_ns"]),
        p99_ns=float(row["p99_ns"]),
        min_ns=float(row["min_ns"]),
        low_ns=float(row["low_ns"]),
        high_ns=float(row["high_ns"]),
        confidence=float(row["confidence"]),
        repetitions=int(row["repetitions"]),
        method=row["method"],
        spoiled_by=tuple(row["spoiled_by"]),
        published_2009_ns=published_2009_ns,
        published_2020_ns=published_2020_ns,
    )


def duration(value_ns: float) -> str:
    """``1.35 ns``, ``104 us``, ``2.3 ms``."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(value_ns) >= size:
            return (
                f"{value_ns / size:.3g} {unit}"
                if value_ns / size < 1000
                else f"{value_ns / size:,.0f} {unit}"
            )
    return f"{value_ns:.3g} ns"


def imbalances(ladder: Ladder) -> list[Imbalance]:
    """The pairs that are out of balance. If a number is missing, the rule has no finding."""
    return [found for rule in _RULES if (found := rule(ladder)) is not None]


def _flash_behind_a_lock(ladder: Ladder) -> Imbalance | None:
    """A lock that is handed to a sleeping thread for each read allows fewer reads than the device."""
    one, many, lock = (ladder.median_ns(r) for r in ("device_read", "device_read_32", "mutex_handover"))
    if not one or not many or not lock or many > 0.5 * one:
        return None
    text = (
        f"The device reads 16 KB in {duration(one)} one at a time, and one per {duration(many)} with 32 "
        f"concurrent ({1e9 / one:,.0f} and {1e9 / many:,.0f} reads/s): one read at a time uses "
        f"{many / one:.0%} of it"
    )
    if lock > many:
        text += (
            f"; a lock that is handed to a sleeping thread for each read ({duration(lock)}) admits "
            f"{1e9 / lock:,.0f}/s, {many / lock:.0%} of what the device does"
        )
    return Imbalance("flash-behind-one-lock", text + ".", ("device_read", "device_read_32", "mutex_handover"))


def _idle_memory(ladder: Ladder) -> Imbalance | None:
    """Data that would fit into free memory, but a buffer pool too small for it, whose misses cost device reads."""
    server = ladder.server or {}
    pool, data = server.get("buffer_pool_bytes"), server.get("data_bytes")
    free, read, memory = (
        ladder.memory.get("available_bytes"),
        ladder.median_ns("device_read"),
        ladder.median_ns("memory"),
    )
    if not server.get("is_local") or not pool or not data or not free or data <= pool or free < 2 * pool:
        return None
    text = (
        f"{free / 2**30:.1f} GiB of memory are available next to a buffer pool of {pool / 2**30:.2f} GiB for "
        f"{data / 2**30:.2f} GiB of data"
    )
    if read and memory:
        text += f"; a page from the device takes {duration(read)}, {read / memory:,.0f} memory references"
    misses, requests = server.get("pool_misses"), server.get("pool_requests")
    if misses is not None and requests:
        text += f" ({misses / requests:.2%} of page reads missed the buffer pool since the server started)"
    return Imbalance("memory-idle-beside-a-small-pool", text + ".", ("device_read", "memory"))


def _commit_beside_network(ladder: Ladder) -> Imbalance | None:
    commit = ladder.median_ns("commit_512")
    path = next((r for r in ("network_2kb", "network_connect") if ladder.median_ns(r)), None)
    trip = ladder.median_ns(path) if path else None
    if not commit or not trip or path is None or commit <= trip:
        return None
    return Imbalance(
        "sync-slower-than-network",
        f"A sync of the log ({duration(commit)}) takes {commit / trip:.1f} times the round trip over the "
        f"network ({duration(trip)}): a replica could have the commit before this device.",
        ("commit_512", path),
    )


def _loopback_beside_device(ladder: Ladder) -> Imbalance | None:
    loop, read = ladder.median_ns("loopback_2kb"), ladder.median_ns("device_read")
    if not loop or not read or loop <= read:
        return None
    return Imbalance(
        "loopback-slower-than-device",
        f"2 KB over the loopback and back ({duration(loop)}) take longer than a read from the device "
        f"({duration(read)}): the cost is waking a thread, so reduce round trips before reads.",
        ("loopback_2kb", "device_read"),
    )


def _commit_beside_statement(ladder: Ladder) -> Imbalance | None:
    commit, server = ladder.median_ns("commit_512"), ladder.median_ns("server")
    facts = ladder.server or {}
    if not commit or not server or commit < 3 * server or not facts.get("is_local"):
        return None
    if facts.get("flush_log_at_trx_commit") != 1:
        return None
    syncs = 1 + bool(facts.get("log_bin") and facts.get("sync_binlog") == 1)
    cost = commit * syncs
    return Imbalance(
        "commit-dominates",
        f"A durable commit waits for {syncs} sync{'s' * (syncs > 1)} of the log ({duration(cost)}), "
        f"{cost / server:.1f} times a round trip to the server ({duration(server)}): one connection commits "
        f"at most {1e9 / (cost + server):,.0f} times per second, regardless of its statements; several rows "
        "per commit, or several connections (group commit), share the sync.",
        ("commit_512", "server"),
    )


def _tail_of_commits(ladder: Ladder) -> Imbalance | None:
    found = next((r for r in ladder.rungs if r.rung == "commit_512"), None)
    if found is None or found.p99_ns < 10 * found.median_ns or found.repetitions < 500:
        return None
    return Imbalance(
        "uneven-sync",
        f"One sync of the log in a hundred takes {duration(found.p99_ns)} or more, "
        f"{found.p99_ns / found.median_ns:.0f} times the median ({duration(found.median_ns)}): the device "
        "stalls, or other load keeps it busy, and every commit behind it waits.",
        ("commit_512",),
    )


_RULES: tuple[Callable[[Ladder], Imbalance | None], ...] = (
    _flash_behind_a_lock,
    _idle_memory,
    _commit_beside_statement,
    _commit_beside_network,
    _loopback_beside_device,
    _tail_of_commits,
)
