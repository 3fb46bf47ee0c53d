"""Rules about flushing: how much is written in the background, how, and what survives a crash."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.model import Value, Vendor
from headrace.hunt.rules import sizes, zfs
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share, size
from headrace.hunt.rules.pool import MISSES_S, growth
from headrace.hunt.rules.redo import checkpoint_age
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs import catalogue as knobs
from headrace.knobs.knob import Versions

#: The default from the days of disks, until MySQL 8.4 made it 10,000: Configuring InnoDB I/O Capacity.
OLD_DEFAULT = 200
#: Flushing is behind when this much of the redo log waits for pages; adaptive flushing works hard by then.
BEHIND = 0.50
#: Share of innodb_io_capacity that is in use where it limits flushing.
AT_CAPACITY = 0.5
#: Fewer page writes per second than this cost nothing noticeable.
FEW_WRITES_S = 50.0
#: Page reads and writes per second above which caching them twice is noticeable.
PAGES_S = 200.0
#: Eight times the default: each cleaner searches this far once a second, regardless of what it finds.
DEEP_SCAN = 8_192
DEFAULT_SCAN = 1_024


_FLUSH = "MySQL Reference Manual, Configuring Buffer Pool Flushing"
_DURABLE = (
    "MySQL Reference Manual, innodb_flush_log_at_trx_commit and sync_binlog; MariaDB, Binary Log Group Commit"
)


@rule(
    "FLUSH01",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Configuring InnoDB I/O Capacity",
    refute="With the larger capacity, the checkpoint age falls, but throughput and p99 are equivalent.",
)
def capacity_of_a_disk(evidence: Evidence) -> Iterator[Match]:
    """Background flushing is limited to what a rotating disk can do, and falls behind on solid state.

    innodb_io_capacity limits background flushing. If it is too low, changes pile up until the redo log is nearly
    full, and then flushing is not limited at all. If it is too high, the server writes the same page again and
    again, so it should be as low as practical: raise it in steps.
    """
    capacity = evidence.number("innodb_io_capacity")
    flushed = evidence.status_rate("innodb_buffer_pool_pages_flushed")
    age, most = checkpoint_age(evidence)
    is_behind = most > 0 and age >= BEHIND * most
    is_flash = sizes.is_flash(evidence) if evidence.has_host else None
    if capacity > OLD_DEFAULT or is_flash is False or not is_behind:
        return
    # Of a load that is over the age stays where it is, and nobody waits for it.
    if flushed < AT_CAPACITY * capacity:
        return
    settings = sizes.io_capacity(evidence)
    if not settings:
        return
    yield Match(
        "",
        f"innodb_io_capacity is {capacity:.0f}{_on_flash(evidence)}; {flushed:,.0f} pages/s are flushed, and the "
        f"checkpoint age is {share(age / most)} of its limit.",
        (
            number("innodb_io_capacity", capacity, ".0f"),
            number("pages flushed/s", flushed, ",.0f"),
            number("checkpoint age", f"{size(age)} of {size(most)}"),
        ),
        (Remedy(settings),),
    )


def _on_flash(evidence: Evidence) -> str:
    return " on solid state" if evidence.has_host else " (whether on solid state is unknown)"


@rule(
    "FLUSH02",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, innodb_flush_neighbors: no seek time; MariaDB, MDEV-17380: ignored on "
    "solid state from 10.4",
    refute="With innodb_flush_neighbors at 0, pages written per second, throughput and p99 are equivalent.",
    applies_to={Vendor.MYSQL: Versions(), Vendor.PERCONA: Versions(), Vendor.MARIADB: Versions(until="10.4")},
)
def neighbours_on_flash(evidence: Evidence) -> Iterator[Match]:
    """Pages are flushed along with their dirty neighbours on solid state.

    On a disk this saves seeks. Solid state has none, so the neighbours are written early and then again later.
    """
    setting = evidence.variable("innodb_flush_neighbors")
    written = evidence.status_rate("innodb_pages_written")
    if setting in ("0", "OFF") or written < FEW_WRITES_S:
        return
    if evidence.has_host and not sizes.is_flash(evidence):
        return
    yield Match(
        "",
        f"innodb_flush_neighbors is {setting}{_on_flash(evidence)}, with {written:,.0f} pages/s written.",
        (number("innodb_flush_neighbors", setting), number("pages written/s", written, ",.0f")),
        (Remedy({"server.innodb_flush_neighbors": 0}),),
        None if evidence.has_host else Severity.ADVICE,
    )


@rule(
    "FLUSH03",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, innodb_flush_method; MariaDB, InnoDB Flush Method",
    refute="With O_DIRECT, throughput is lower: the page cache was worth more than the memory it took.",
)
def pages_cached_twice(evidence: Evidence) -> Iterator[Match]:
    """InnoDB's pages are cached twice: in the buffer pool and by the kernel.

    Without O_DIRECT each page read or written passes through the page cache and stays there. That memory is better
    used by the buffer pool, which knows which pages are hot. This does not apply to file systems without O_DIRECT,
    or to ext4 with data=journal.
    """
    by_switch = evidence.has_variable("innodb_data_file_buffering")
    if by_switch:
        is_cached = evidence.is_on("innodb_data_file_buffering")
        name, value = "innodb_data_file_buffering", evidence.variable("innodb_data_file_buffering")
    else:
        name, value = "innodb_flush_method", evidence.variable("innodb_flush_method")
        is_cached = value.lower() in ("", "fsync", "o_dsync", "0", "1")
    pages = evidence.status_rate("innodb_buffer_pool_reads") + evidence.status_rate("innodb_pages_written")
    if not is_cached or pages < PAGES_S or (evidence.has_host and not _takes_direct_io(evidence)):
        return
    setting: dict[str, Value] = {f"server.{name}": False if by_switch else "O_DIRECT"}
    misses, pool = (
        evidence.status_rate("innodb_buffer_pool_reads"),
        evidence.number("innodb_buffer_pool_size"),
    )
    if evidence.has_host and misses >= MISSES_S and pool < evidence.data_bytes:
        # The page cache answers reads that the pool misses: they need their memory in the pool first.
        larger, _ = growth(evidence)
        if larger <= pool:
            return
        setting["server.innodb_buffer_pool_size"] = int(larger)
    held = size(evidence.gauge("memory", "Cached").mean) if evidence.has_host else "unknown"
    which = f"which holds {held}" if evidence.has_host else "whose size is unknown, as is the file system"
    unknown = (
        () if evidence.has_host else ("On XFS, or ext4 without data=journal, and with a pool for all data.",)
    )
    yield Match(
        "",
        f"{name} is {value or 'fsync'}: {pages:,.0f} pages/s pass through the page cache, {which}.",
        (
            number(name, value or "fsync"),
            number("pages read and written/s", pages, ",.0f"),
            number("page cache", held),
        ),
        (Remedy(setting, unknown),),
        None if evidence.has_host else Severity.ADVICE,
    )


def _takes_direct_io(evidence: Evidence) -> bool:
    """Whether the data's file system does. Raises NotEnough if it is unknown."""
    mount = evidence.data_file_system
    if mount is None:
        raise NotEnough("the file system of the data is unknown")
    options = [*(mount.get("options") or ()), *(mount.get("super_options") or ())]
    return mount.get("kind") in ("xfs", "ext4") and "data=journal" not in options


@rule(
    "FLUSH04",
    severity=Severity.COST,
    confidence=Confidence.LOW,
    source="MySQL Reference Manual, innodb_lru_scan_depth: much higher than necessary may impact performance",
    refute="With the default depth, the number of free pages is unchanged, but throughput and p99 are "
    "equivalent.",
)
def scans_too_deep(evidence: Evidence) -> Iterator[Match]:
    """The page cleaners scan much deeper for free pages than the load needs.

    Once a second the cleaners scan each buffer pool instance this deep, under its lock. What counts is the product
    of depth and instances.
    """
    depth = evidence.number("innodb_lru_scan_depth")
    if evidence.status_rate("innodb_buffer_pool_wait_free") > 0 or depth < DEEP_SCAN:
        return
    parts = (
        evidence.number("innodb_buffer_pool_instances")
        if evidence.has_variable("innodb_buffer_pool_instances")
        else 1.0
    )
    read = evidence.status_rate("innodb_buffer_pool_reads")
    if depth * parts < 2 * read:
        return
    yield Match(
        "",
        f"innodb_lru_scan_depth is {depth:,.0f} in {parts:.0f} instances: {depth * parts:,.0f} pages are "
        f"scanned for {read:,.0f} reads/s, and nothing waits for a free page.",
        (
            number("innodb_lru_scan_depth", depth, ",.0f"),
            number("buffer pool instances", parts, ".0f"),
            number("pages read from files/s", read, ",.0f"),
        ),
        (Remedy({"server.innodb_lru_scan_depth": DEFAULT_SCAN}),),
    )


@rule(
    "FLUSH05",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, innodb_page_cleaners: 8.4 has one a part by default",
    refute="With one cleaner per instance, the checkpoint age and throughput are equivalent.",
    applies_to={Vendor.MYSQL: Versions(), Vendor.PERCONA: Versions(), Vendor.MARIADB: Versions(until="10.5")},
)
def fewer_cleaners_than_parts(evidence: Evidence) -> Iterator[Match]:
    """Flushing is behind, with fewer page cleaners than buffer pool instances.

    A cleaner works on one instance at a time; the others wait for it.
    """
    cleaners = evidence.number("innodb_page_cleaners")
    parts = evidence.number("innodb_buffer_pool_instances")
    waits = evidence.status_rate("innodb_buffer_pool_wait_free")
    age, most = checkpoint_age(evidence)
    if cleaners >= parts or (waits <= 0 and (most <= 0 or age < BEHIND * most)):
        return
    yield Match(
        "",
        f"{cleaners:.0f} page cleaners serve {parts:.0f} buffer pool instances; the checkpoint age is "
        f"{share(age / max(most, 1.0))} of its limit.",
        (
            number("innodb_page_cleaners", cleaners, ".0f"),
            number("innodb_buffer_pool_instances", parts, ".0f"),
            number("checkpoint age", f"{size(age)} of {size(most)}"),
            number("waits for a free page/s", waits, ",.1f"),
        ),
        (Remedy({"server.innodb_page_cleaners": int(parts)}),),
    )


@rule(
    "FLUSH06",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{_FLUSH}; InnoDB, buf0flu.cc: nothing is flushed for the redo log before its asynchronous limit",
    refute="With innodb_adaptive_flushing on, the spread of throughput between seconds is equivalent.",
)
def not_adaptive(evidence: Evidence) -> Iterator[Match]:
    """Flushing does not follow the redo rate.

    Without innodb_adaptive_flushing, the redo log triggers no flushing until it is nearly full; then statements
    stall until there is room again.
    """
    written = evidence.status_rate("innodb_pages_written")
    if evidence.is_on("innodb_adaptive_flushing") or written < FEW_WRITES_S:
        return
    age, most = checkpoint_age(evidence)
    yield Match(
        "",
        f"innodb_adaptive_flushing is off, with {written:,.0f} pages/s written; the checkpoint age reaches "
        f"{share(age / max(most, 1.0))} of its limit.",
        (
            number("innodb_adaptive_flushing", "OFF"),
            number("pages written/s", written, ",.0f"),
            number("checkpoint age", f"{size(age)} of {size(most)}"),
        ),
        (Remedy({"server.innodb_adaptive_flushing": True}),),
        None if age >= BEHIND * most else Severity.HOUSEKEEPING,
    )


@rule(
    "FLUSH07",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Using Asynchronous I/O on Linux; MariaDB, innodb_use_native_aio (io_uring or "
    "libaio)",
    refute="With innodb_use_native_aio on, throughput and p99 are equivalent.",
)
def without_asynchronous_io(evidence: Evidence) -> Iterator[Match]:
    """InnoDB's I/O threads do background reads and writes one at a time.

    With the kernel's asynchronous I/O each thread can have hundreds in flight. The server turns it off
    automatically if the system allows no more requests (fs.aio-max-nr), forbids io_uring, or the temporary
    directory does not support it; then the option alone changes nothing.
    """
    written = evidence.status_rate("innodb_pages_written")
    if evidence.is_on("innodb_use_native_aio") or written < PAGES_S:
        return
    threads = evidence.number("innodb_write_io_threads")
    pending = evidence.window.gauge("mysql_status", "innodb_data_pending_writes")
    waits = pending is not None and pending.mean >= threads
    forbidden = evidence.has_host and evidence.facts.sysctl("kernel.io_uring_disabled") in ("1", "2")
    by_ring = evidence.vendor is Vendor.MARIADB and evidence.version in Versions(since="10.6")
    causes = (
        "Check the error log of the server's start: if the server turned it off, remove the cause first: "
        + ("kernel.io_uring_disabled, LimitMEMLOCK= of the service" if by_ring else "fs.aio-max-nr (LIM02)")
        + ", or a tmpdir on a file system that does not support it.",
    )
    yield Match(
        "",
        f"innodb_use_native_aio is off: {threads:.0f} threads write {written:,.0f} pages/s one at a time.",
        (
            number("innodb_use_native_aio", "OFF"),
            number("innodb_write_io_threads", threads, ".0f"),
            number("pages written/s", written, ",.0f"),
            number("writes pending, mean", "unknown" if pending is None else pending.mean, ".1f"),
            *((number("kernel.io_uring_disabled", 1),) if by_ring and forbidden else ()),
        ),
        (
            Remedy(steps=causes)
            if by_ring and forbidden
            else Remedy({"server.innodb_use_native_aio": True}, causes),
        ),
        None if waits else Severity.HOUSEKEEPING,
    )


def _fsyncs_a_commit(evidence: Evidence) -> str:
    """Syncs per commit with these settings, before group commit shares them."""
    redo = 1 if evidence.variable("innodb_flush_log_at_trx_commit") in ("1", "3") else 0
    binlog = 1 if evidence.is_on("log_bin") and evidence.variable("sync_binlog") == "1" else 0
    return str(redo + binlog)


@rule(
    "FLUSH08",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=_DURABLE,
    refute="After a power cut under load, every committed transaction is still there.",
)
def commits_are_not_durable(evidence: Evidence) -> Iterator[Match]:
    """A power cut can lose committed transactions.

    Each of these settings saves a sync per commit, but that is a choice about durability, not tuning: a second of
    transactions can be lost, and a binary log that does not match the data breaks replicas. Group commit and a
    device with power-loss protection make syncs cheap without that risk.
    """
    values = {"innodb_flush_log_at_trx_commit": evidence.variable("innodb_flush_log_at_trx_commit")}
    weak: dict[str, Value] = {}
    if values["innodb_flush_log_at_trx_commit"] not in ("1", "3"):
        weak["server.innodb_flush_log_at_trx_commit"] = 1
    if evidence.is_on("log_bin"):
        values["sync_binlog"] = evidence.variable("sync_binlog")
        if values["sync_binlog"] != "1":
            weak["server.sync_binlog"] = 1
    if not weak:
        return
    shown = ", ".join(f"{name} is {values[name]}" for name in values if f"server.{name}" in weak)
    yield Match(
        "",
        f"{shown}: a commit waits for {_fsyncs_a_commit(evidence)} syncs instead of {len(values)}, "
        "and can be lost.",
        tuple(number(name, value) for name, value in values.items()),
        (Remedy(weak),),
    )


@rule(
    "FLUSH09",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Doublewrite Buffer; innodb_checksum_algorithm; MariaDB, innodb_doublewrite "
    "(fast: no sync of the data files before the copy is overwritten)",
    refute="The device and the file system write a whole page or none: untorn writes are configured for the data.",
)
def pages_unprotected(evidence: Evidence) -> Iterator[Match]:
    """A torn or damaged page cannot be repaired, or goes unnoticed.

    Without the doublewrite buffer, a 16 KiB page left half written by a power cut is lost, and the table with it.
    MariaDB's fast keeps the copy, but does not sync the page before it overwrites the copy. Without checksums, the
    server does not notice damaged pages. Both are safe to turn off only if a layer below provides the same
    protection. ZFS does, with records of at least a page: it never overwrites one, and has checksums of its own.
    """
    weak: dict[str, Value] = {}
    doublewrite = evidence.variable("innodb_doublewrite")
    checksums = evidence.variable("innodb_checksum_algorithm")
    if knobs.weakens_durability("server.innodb_doublewrite", doublewrite):
        weak["server.innodb_doublewrite"] = "ON"
    if checksums.lower() in ("none", "strict_none"):
        weak["server.innodb_checksum_algorithm"] = "crc32"
    if not weak:
        return
    record = zfs.record_bytes(evidence) if evidence.has_host else None
    if record is not None and record >= evidence.number("innodb_page_size"):
        return
    unknown = "" if evidence.has_host else "; whether its file system writes a page whole or not is unknown"
    yield Match(
        "",
        f"innodb_doublewrite is {doublewrite}, innodb_checksum_algorithm is {checksums}{unknown}.",
        (number("innodb_doublewrite", doublewrite), number("innodb_checksum_algorithm", checksums)),
        (Remedy(weak),),
    )
