"""Rules about file systems that copy on write: properties of ZFS datasets with the server's files; btrfs."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping

from headrace.host.places import lies_below, real_path
from headrace.hunt.rules.evidence import GIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.rules.sizes import KIB
from headrace.hunt.rules.waited import waited_for_io

_MANUAL = "OpenZFS documentation, Workload Tuning (MySQL, InnoDB); zfsprops(7)"
#: Pages that the server writes, commits and writes per second, from which on they matter.
PAGES_S, COMMITS_S = 20.0, 20.0
_HOME = "innodb_log_group_home_dir"
#: ZFS's cache beside the buffer pool, in share of memory: as large as this it takes what the pool could have.
LARGE_CACHE = 0.10
#: Level of zstd from which on it takes many times the CPU time of lz4; the kernel's share of the CPUs that shows
#: it.
SLOW_LEVEL, SYSTEM = 10, 0.10


def _dataset(evidence: Evidence, path: str) -> str | None:
    mount = evidence.facts.server_file_system_of(path)
    return str(mount.get("source")) if mount is not None and mount.get("kind") == "zfs" else None


def properties(evidence: Evidence, dataset: str) -> Mapping[str, str]:
    """What is set for a dataset. Raises NotEnough, with what would tell, if that was not read."""
    facts = evidence.raw.get("zfs") or {}
    found: Mapping[str, str] | None = (facts.get("properties") or {}).get(dataset)
    if found:
        return found
    why = facts.get("unknown") or "they were not read"
    raise NotEnough(f"the properties of {dataset} are unknown: {why}; zfs get -Hp all {dataset} tells")


def _bytes(found: Mapping[str, str], name: str, dataset: str) -> float:
    try:
        return float(found[name])
    except (KeyError, ValueError, TypeError):
        raise NotEnough(f"the {name} of {dataset} is unknown") from None


def record_bytes(evidence: Evidence) -> float | None:
    """The smallest record size of the datasets with tables; None if the data is not on ZFS."""
    datasets = _of_tables(evidence)
    if not datasets:
        return None
    return min(_bytes(properties(evidence, each), "recordsize", each) for each in datasets)


def _of_tables(evidence: Evidence) -> list[str]:
    """The datasets with tables: the data directory's, then those that are mounted in it, a database each."""
    directory = evidence.data_directory
    first = _dataset(evidence, directory)
    if first is None:
        return []
    process = evidence.facts.server_process or {}
    mounts = process.get("file_systems") or evidence.raw.get("file_systems") or ()
    known = process.get("datadir"), process.get("working_directory")
    real = real_path(directory, known[0] or directory, known[1]).rstrip("/")
    logs = [real_path(path, known[0] or directory, known[1]) for path in _paths(evidence).values()]
    datasets = [first]
    for mount in mounts:
        place = str(mount.get("mount_point"))
        is_inside = lies_below(place, real) and place != real
        # A database's directory has no name with a #: the server's own have.
        is_own = "#" in place.removeprefix(real) or any(lies_below(path, place) for path in logs)
        if mount.get("kind") == "zfs" and is_inside and not is_own:
            datasets.append(str(mount.get("source")))
    return list(dict.fromkeys(datasets))


def _set(name: str, value: str, dataset: str) -> str:
    return f"zfs set {name}={value} {shlex.quote(dataset)}"


def _paths(evidence: Evidence) -> dict[str, str]:
    """The redo log and the binary log -> where they are. A relative path begins in the data directory."""
    directory = evidence.data_directory
    home = evidence.variable(_HOME) if evidence.has_variable(_HOME) else ""
    home = posixpath.normpath(posixpath.join(directory, home))
    # MySQL 8.0.30 and later have a directory of their own for it.
    places = {
        "redo log": f"{home}/#innodb_redo" if evidence.has_variable("innodb_redo_log_capacity") else home
    }
    if evidence.is_on("log_bin"):
        base = evidence.variable("log_bin_basename") if evidence.has_variable("log_bin_basename") else ""
        places["binary log"] = posixpath.dirname(posixpath.join(directory, base or "binlog"))
    return places


def _logs(evidence: Evidence) -> dict[str, str]:
    """The redo log and the binary log that are on ZFS -> their dataset."""
    found = {what: _dataset(evidence, path) for what, path in _paths(evidence).items()}
    return {what: dataset for what, dataset in found.items() if dataset is not None}


def _commits(evidence: Evidence) -> float:
    rates = evidence.window.rates("mysql_status", "com_commit")
    written = evidence.window.rate("mysql_status", "innodb_os_log_fsyncs") or 0.0
    return max(written, *rates.values(), 0.0)


@rule(
    "FS16",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=_MANUAL,
    refute="On a dataset whose records are pages, filled anew, bytes per page and p99 are equivalent.",
)
def records_are_larger_than_pages(evidence: Evidence) -> Iterator[Match]:
    """ZFS stores the data in records much larger than a page, so each page costs a whole record.

    ZFS reads, checks and writes whole records: to change one page of 16 KiB in a record of 128 KiB it reads what
    it does not have of it and writes all of it anew. A file keeps the record size that it was created with.
    """
    datasets = _of_tables(evidence)
    if not datasets:
        return
    page = evidence.number("innodb_page_size")
    written, read = (
        evidence.status_rate("innodb_pages_written"),
        evidence.status_rate("innodb_buffer_pool_reads"),
    )
    records = {each: _bytes(properties(evidence, each), "recordsize", each) for each in datasets}
    large = {each: record for each, record in records.items() if record >= 2 * page}
    # Which of several datasets the pages are in is not known.
    of_all = "" if len(datasets) == 1 else f" in all {len(datasets)} datasets with tables"
    is_costly = written + read >= PAGES_S and len(large) == len(datasets)
    for dataset, record in large.items():
        yield Match(
            dataset,
            f"{dataset} has records of {size(record)}, and InnoDB pages of {size(page)}: {written:,.0f} pages/s "
            f"written and {read:,.0f} read{of_all} cost up to {record / page:.0f} times their size.",
            (
                number("recordsize", size(record)),
                number("innodb_page_size", size(page)),
                number("pages written/s", written, ",.0f"),
                number("pages read/s", read, ",.0f"),
            ),
            (
                Remedy(
                    steps=(
                        _set("recordsize", f"{page / KIB:.0f}K", dataset),
                        "It holds for new files only: copy the data to a new dataset with the server stopped, or "
                        "rebuild tables (ALTER TABLE ... FORCE). Keep the logs in a dataset of their own, with "
                        "128K.",
                    )
                ),
            ),
            None if is_costly else Severity.ADVICE,
        )


@rule(
    "FS17",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=f"{_MANUAL}, sync",
    refute="After a power cut during writes, the last committed transactions are all there.",
)
def zfs_ignores_syncs(evidence: Evidence) -> Iterator[Match]:
    """ZFS does not wait for the disks when the server syncs a log: a power cut loses committed transactions.

    With sync=disabled an fsync returns at once, and the data reaches the disks with the next group of
    transactions, some seconds later. The server believes that its commits are safe; a replica or the binary log
    may be ahead of the redo log afterwards.
    """
    logs = _logs(evidence)
    for dataset in sorted(set(logs.values())):
        if properties(evidence, dataset).get("sync") != "disabled":
            continue
        there = " and the ".join(what for what, place in logs.items() if place == dataset)
        yield Match(
            dataset,
            f"{dataset}, with the {there}, has sync=disabled: a commit is not on the disks when it returns.",
            (number("sync", "disabled"), number("there", there)),
            (
                Remedy(
                    steps=(
                        _set("sync", "standard", dataset),
                        "If commits are too slow then: a log device (SLOG) that keeps writes in a power cut, or "
                        "innodb_flush_log_at_trx_commit = 2, which says what it gives up.",
                    ),
                    is_faster=False,
                ),
            ),
        )
    yield from _tables_behind_their_log(evidence, logs)


def _tables_behind_their_log(evidence: Evidence, logs: Mapping[str, str]) -> Iterator[Match]:
    """A checkpoint says that pages are on the disks, and the log's dataset keeps that before they are."""
    redo = logs.get("redo log")
    if redo is None or properties(evidence, redo).get("sync") == "disabled":
        return
    for dataset in _of_tables(evidence):
        if dataset in logs.values() or properties(evidence, dataset).get("sync") != "disabled":
            continue
        yield Match(
            dataset,
            f"{dataset}, with tables, has sync=disabled, and {redo}, with the redo log, has not: after a "
            "power cut the log may begin after pages that were lost.",
            (number("sync", "disabled"), number("redo log", redo)),
            (Remedy(steps=(_set("sync", "standard", dataset),), is_faster=False),),
        )


def _bypasses_cache(evidence: Evidence, dataset: str) -> bool:
    """Whether pages go past ZFS's cache (2.3 and later): the server asks for that, or the dataset always does it,
    and no record is larger than a page; a part of one is still cached."""
    own = properties(evidence, dataset)
    direct = own.get("direct", "disabled")
    asks = evidence.has_variable("innodb_flush_method") and "DIRECT" in evidence.variable(
        "innodb_flush_method"
    )
    is_direct = direct == "always" or (direct == "standard" and asks)
    return is_direct and _bytes(own, "recordsize", dataset) <= evidence.number("innodb_page_size")


@rule(
    "FS18",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source=f"{_MANUAL}, primarycache",
    refute="With primarycache=metadata and the memory given to the buffer pool, reads per second are equivalent.",
)
def pages_are_cached_by_zfs(evidence: Evidence) -> Iterator[Match]:
    """ZFS's cache keeps the server's pages a second time, or keeps not even metadata.

    The buffer pool knows better which pages are needed: with primarycache=metadata ZFS leaves them to it. Without
    any cache each read of a page first reads the blocks that say where it is.
    """
    held = evidence.window.gauge("zfs", "size")
    arc = "unknown" if held is None else size(held.mean)
    for dataset in _of_tables(evidence):
        cache = properties(evidence, dataset).get("primarycache")
        if cache is None:
            raise NotEnough(f"the primarycache of {dataset} is unknown")
        if cache == "metadata" or (cache == "all" and _bypasses_cache(evidence, dataset)):
            continue
        pool, memory = evidence.number("innodb_buffer_pool_size"), evidence.memory_bytes()
        if cache == "all" and (held is None or held.mean < LARGE_CACHE * memory or pool < GIB):
            continue
        yield Match(
            dataset,
            f"{dataset} has primarycache=none: every read of a page also reads metadata from the disks."
            if cache == "none"
            else f"{dataset} has primarycache=all: ZFS caches {arc} beside a buffer pool of {size(pool)}.",
            (number("primarycache", cache), number("ZFS's cache", arc), number("buffer pool", size(pool))),
            (
                Remedy(
                    steps=(
                        _set("primarycache", "metadata", dataset),
                        "Then limit ZFS's cache (zfs_arc_max) and give the memory to the buffer pool. Compare: "
                        "with a pool much smaller than the data, ZFS's compressed cache may hold more.",
                    )
                ),
            ),
            Severity.COST if cache == "none" else None,
        )


@rule(
    "FS19",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_MANUAL}, logbias and sync",
    refute="With logbias=latency (or sync=standard) on the logs' dataset, time per commit is equivalent.",
)
def logs_take_the_long_way(evidence: Evidence) -> Iterator[Match]:
    """ZFS is told to write the server's logs for throughput, or to sync every write, and commits wait for it.

    logbias=throughput is meant for the data: a log written so misses the log device (SLOG), and each small sync
    allocates and writes blocks of the pool. sync=always makes every write of a file wait as if it were a commit.
    """
    logs = _logs(evidence)
    commits = _commits(evidence)
    for dataset in sorted(set(logs.values())):
        found = properties(evidence, dataset)
        wrong = [
            f"{name}={value}"
            for name, value in (("logbias", "throughput"), ("sync", "always"))
            if found.get(name) == value
        ]
        if not wrong or commits < COMMITS_S:
            continue
        there = " and the ".join(what for what, place in logs.items() if place == dataset)
        fixes = {"logbias=throughput": ("logbias", "latency"), "sync=always": ("sync", "standard")}
        yield Match(
            dataset,
            f"{dataset}, with the {there}, has {' and '.join(wrong)}, at {commits:,.0f} syncs/s of the log.",
            (*(number(*each.split("=")) for each in wrong), number("syncs/s", commits, ",.0f")),
            (Remedy(steps=tuple(_set(*fixes[each], dataset) for each in wrong)),),
        )


@rule(
    "FS20",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_MANUAL}, compression and dedup",
    refute="On a dataset with lz4 and without dedup, filled anew, the kernel's CPU time and p99 are equivalent.",
)
def records_take_much_work(evidence: Evidence) -> Iterator[Match]:
    """ZFS compresses the data with a slow algorithm, or looks up every block in a table of all blocks.

    lz4 costs next to nothing and gives up early on what does not shrink; gzip and high levels of zstd take many
    times as long per record, in kernel threads. Deduplication reads its table for each write: it pays only where
    most blocks are equal, and the pages of a database never are.
    """
    written = evidence.status_rate("innodb_pages_written")
    system = sum(core.system for core in evidence.cores) / max(len(evidence.cores), 1)
    for dataset in _of_tables(evidence):
        found = properties(evidence, dataset)
        wrong = {}
        compression, dedup = found.get("compression"), found.get("dedup")
        if compression is None or dedup is None:
            raise NotEnough(f"the compression or dedup of {dataset} is unknown")
        if _is_slow(compression) and system >= SYSTEM:
            wrong[f"compression={compression}"] = _set("compression", "lz4", dataset)
        if dedup != "off" and written >= PAGES_S:
            wrong[f"dedup={dedup}"] = _set("dedup", "off", dataset)
        if not wrong:
            continue
        yield Match(
            dataset,
            f"{dataset} has {' and '.join(wrong)}: {written:,.0f} pages/s are written, and the kernel uses "
            f"{share(system)} of the CPUs.",
            (
                number("compression", compression),
                number("dedup", dedup),
                number("pages written/s", written, ",.0f"),
                number("system time", share(system)),
            ),
            (
                Remedy(
                    steps=(*wrong.values(), "It holds for what is written from then on: rewrite the tables.")
                ),
            ),
        )


def _is_slow(compression: str) -> bool:
    """gzip at any level, and zstd at a high one; zstd-fast is fast at any."""
    name, _, level = compression.partition("-")
    return name == "gzip" or (name == "zstd" and level.isdigit() and int(level) >= SLOW_LEVEL)


@rule(
    "FS21",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="btrfs documentation, btrfs(5): nodatacow, compress; chattr(1), C",
    refute="In a directory with chattr +C, filled anew, writes per page and p99 are equivalent.",
)
def btrfs_copies_pages(evidence: Evidence) -> Iterator[Match]:
    """Each changed page goes to another place on btrfs, and its trees with it.

    Files of a database are changed in place and at random: copied on write they fall into small pieces, and each
    sync also writes the trees that say where the pieces are. InnoDB has checksums and a doublewrite buffer of its
    own, so it needs no copies. A snapshot still makes one of each page that is changed after it.
    """
    mount = evidence.facts.server_file_system_of(evidence.data_directory) or {}
    if mount.get("kind") != "btrfs":
        return
    options = {*(mount.get("options") or ()), *(mount.get("super_options") or ())}
    if "nodatacow" in options:
        return
    written = evidence.status_rate("innodb_pages_written")
    waits = waited_for_io(evidence.window)
    packed = sorted(name for name in options if name.startswith("compress"))
    point, directory = str(mount["mount_point"]), shlex.quote(evidence.data_directory)
    yield Match(
        point,
        f"{point} (btrfs) has no nodatacow, at {written:,.0f} pages/s written: unless its files have chattr +C "
        f"(lsattr -d {directory} tells), each goes to another place; {waits.said}.",
        (
            number("options", ",".join(["datacow", *packed])),
            number("pages written/s", written, ",.0f"),
            waits.number,
        ),
        (
            Remedy(
                steps=(
                    f"See whether it is done: lsattr -d {directory} shows C.",
                    "If not: chattr +C on a new, empty directory, copy the data into it with the server stopped "
                    "(cp --reflink=never), and start the server there. Its files are neither compressed nor "
                    "checked by btrfs then.",
                )
            ),
        ),
        Severity.COST if written >= PAGES_S and waits.is_high else None,
    )
