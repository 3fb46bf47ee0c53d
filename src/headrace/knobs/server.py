"""Knobs of the server: the allocator, and the variables that performance work meets most.

A variable that is not listed is accepted, too: servers have hundreds. What is listed is checked against the
real servers by the tests: that the version has it, and that it does not claim to be dynamic when it is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.knobs.knob import Cost, Durability, Kind, Knob, Versions
from headrace.model import Vendor

_ALL = Versions()


def _only(mariadb: Versions | None = None, mysql: Versions | None = None) -> Mapping[Vendor, Versions]:
    found = {Vendor.MARIADB: mariadb, Vendor.MYSQL: mysql, Vendor.PERCONA: mysql}
    return {vendor: versions for vendor, versions in found.items() if versions is not None}


_EVERYWHERE = _only(_ALL, _ALL)
_MARIADB = _only(mariadb=_ALL)
_MYSQL = _only(mysql=_ALL)

_INNODB = (
    "MySQL Reference Manual, InnoDB Startup Options and System Variables; MariaDB, InnoDB System Variables"
)
_SERVER = "MySQL Reference Manual, Server System Variables; MariaDB, Server System Variables"
_BINLOG = (
    "MySQL Reference Manual, Binary Logging Options and Variables; "
    "MariaDB, Replication and Binary Log System Variables"
)
_POOL = "MariaDB, Thread Pool System and Status Variables"


def _variable(
    name: str,
    kind: Kind,
    cost: Cost,
    doc: str,
    *,
    source: str = _INNODB,
    unit: str = "",
    allowed: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    weak: tuple[str, str] = ("", ""),
    applies_to: Mapping[Vendor, Versions] = _EVERYWHERE,
) -> Knob:
    return Knob(
        f"server.{name}",
        kind,
        cost,
        doc,
        source,
        unit=unit,
        allowed=allowed,
        low=low,
        high=high,
        durability=Durability.BY_VALUE if weak[0] else Durability.KEPT,
        weak_values=weak[0],
        weak_reason=weak[1],
        applies_to=applies_to,
    )


def unlisted(variable: str) -> Knob:
    """A variable that is not in the catalogue: the server decides whether it exists."""
    return Knob(
        f"server.{variable}",
        Kind.ANY,
        Cost.RESTART,
        "A server variable that headrace has no record of.",
        _SERVER,
        durability=Durability.UNKNOWN,
    )


_I, _N, _S, _B, _C, _T = Kind.INTEGER, Kind.NUMBER, Kind.SIZE, Kind.SWITCH, Kind.CHOICE, Kind.TEXT
_DYNAMIC, _RESTART, _REBUILD = Cost.DYNAMIC, Cost.RESTART, Cost.REBUILD

_FLUSH_METHODS = ("fsync", "O_DSYNC", "littlesync", "nosync", "O_DIRECT", "O_DIRECT_NO_FSYNC")

_REDO_AND_FLUSHING = (
    _variable(
        "innodb_flush_log_at_trx_commit",
        _I,
        _DYNAMIC,
        "When the redo log is written and synced: 1 and 3 at every commit, 2 written but not synced, 0 neither.",
        low=0,
        high=3,
        weak=(
            r"[02]",
            "transactions of the last second that were confirmed are lost in a power cut (0: in any crash)",
        ),
    ),
    _variable(
        "innodb_flush_log_at_timeout",
        _I,
        _DYNAMIC,
        "How often the redo log is synced where commits do not do it.",
        unit="s",
        low=0,
        high=2700,
    ),
    _variable(
        "innodb_doublewrite",
        _C,
        _RESTART,
        "A page is written twice, so that one torn by a power cut can be repaired.",
        allowed=("ON", "OFF", "1", "0", "true", "false", "fast", "DETECT_AND_RECOVER", "DETECT_ONLY"),
        weak=(
            r"off|0|false|detect_only",
            "a page torn by a power cut cannot be repaired: the data may be unreadable",
        ),
    ),
    _variable(
        "innodb_flush_method",
        _C,
        _RESTART,
        "How data and log files are opened and synced.",
        allowed=_FLUSH_METHODS,
        weak=(
            r"nosync|littlesync|o_direct_no_fsync",
            "data files are not synced: safe only where every cache below the server survives a power cut",
        ),
    ),
    _variable(
        "innodb_log_file_size",
        _S,
        _RESTART,
        "The redo log: a larger one spreads checkpoints. MySQL 8.0.30 replaced it by innodb_redo_log_capacity.",
        unit="bytes",
        low=1 << 20,
    ),
    _variable(
        "innodb_redo_log_capacity",
        _S,
        _DYNAMIC,
        "The redo log in all its files.",
        unit="bytes",
        low=8 << 20,
        applies_to=_only(mysql=Versions(since="8.0.30")),
    ),
    _variable(
        "innodb_log_buffer_size", _S, _RESTART, "Redo that is kept in memory until written.", unit="bytes"
    ),
    _variable(
        "innodb_log_write_ahead_size", _S, _RESTART, "The block in which redo is written.", unit="bytes"
    ),
    _variable(
        "innodb_log_checksums",
        _B,
        _DYNAMIC,
        "Checksums of redo blocks.",
        weak=(r"off|0|false", "a damaged redo log goes unnoticed by recovery"),
        applies_to=_MYSQL,
    ),
    _variable(
        "innodb_checksum_algorithm",
        _C,
        _DYNAMIC,
        "Checksums of pages.",
        allowed=tuple(
            strict + name for strict in ("", "strict_") for name in ("full_crc32", "crc32", "innodb", "none")
        ),
        weak=(r"(strict_)?none", "a damaged page goes unnoticed"),
    ),
    _variable(
        "innodb_flush_neighbors",
        _I,
        _DYNAMIC,
        "Dirty neighbours are flushed along; flash needs 0.",
        low=0,
        high=2,
    ),
    _variable("innodb_io_capacity", _I, _DYNAMIC, "Background writes.", unit="pages/s", low=100),
    _variable(
        "innodb_io_capacity_max",
        _I,
        _DYNAMIC,
        "Background writes when flushing is behind.",
        unit="pages/s",
        low=100,
    ),
    _variable(
        "innodb_lru_scan_depth",
        _I,
        _DYNAMIC,
        "How far a buffer pool is searched for pages to flush.",
        unit="pages",
        low=100,
    ),
    _variable(
        "innodb_max_dirty_pages_pct",
        _N,
        _DYNAMIC,
        "Dirty pages above which flushing is hurried.",
        unit="%",
        low=0,
        high=99.999,
    ),
    _variable(
        "innodb_max_dirty_pages_pct_lwm",
        _N,
        _DYNAMIC,
        "Dirty pages at which flushing starts early.",
        unit="%",
        low=0,
        high=99.999,
    ),
    _variable("innodb_adaptive_flushing", _B, _DYNAMIC, "Flushing follows the rate of redo."),
    _variable(
        "innodb_adaptive_flushing_lwm",
        _N,
        _DYNAMIC,
        "How full the redo log is when that starts.",
        unit="%",
        low=0,
        high=70,
    ),
    _variable("innodb_flush_sync", _B, _DYNAMIC, "Checkpoints ignore innodb_io_capacity."),
    _variable("innodb_page_cleaners", _I, _RESTART, "Threads that flush.", low=1, high=64, applies_to=_MYSQL),
    _variable("innodb_read_io_threads", _I, _RESTART, "Threads for asynchronous reads.", low=1, high=64),
    _variable("innodb_write_io_threads", _I, _RESTART, "Threads for asynchronous writes.", low=1, high=64),
    _variable("innodb_use_native_aio", _B, _RESTART, "Asynchronous I/O of the kernel instead of threads."),
    _variable(
        "innodb_use_fdatasync",
        _B,
        _DYNAMIC,
        "fdatasync instead of fsync.",
        applies_to=_only(mysql=Versions(since="8.0.26")),
    ),
)

_MEMORY = (
    _variable(
        "innodb_buffer_pool_size",
        _S,
        _DYNAMIC,
        "The cache of pages; the first thing to size.",
        unit="bytes",
        low=5 << 20,
    ),
    _variable(
        "innodb_buffer_pool_instances",
        _I,
        _RESTART,
        "Parts of the buffer pool, each with its own locks.",
        low=0,
        high=64,
        applies_to=_MYSQL,
    ),
    _variable("innodb_numa_interleave", _B, _RESTART, "The buffer pool is spread over NUMA nodes."),
    _variable("large_pages", _B, _RESTART, "Huge pages for the large buffers.", source=_SERVER),
    _variable(
        "innodb_adaptive_hash_index", _B, _DYNAMIC, "A hash index over hot pages; can be a hot lock itself."
    ),
    _variable(
        "innodb_adaptive_hash_index_parts", _I, _RESTART, "Parts of the adaptive hash index.", low=1, high=512
    ),
    _variable(
        "innodb_change_buffering",
        _C,
        _DYNAMIC,
        "Which changes to secondary indexes are buffered.",
        allowed=("none", "inserts", "deletes", "changes", "purges", "all"),
        applies_to=_only(Versions(until="11.0"), _ALL),
    ),
    _variable(
        "innodb_random_read_ahead", _B, _DYNAMIC, "Read-ahead when many pages of an extent are cached."
    ),
    _variable(
        "innodb_read_ahead_threshold",
        _I,
        _DYNAMIC,
        "Pages read in sequence that start a read-ahead.",
        unit="pages",
        low=0,
        high=64,
    ),
    _variable("key_buffer_size", _S, _DYNAMIC, "The cache of MyISAM indexes.", source=_SERVER, unit="bytes"),
    _variable("tmp_table_size", _S, _DYNAMIC, "In-memory temporary tables.", source=_SERVER, unit="bytes"),
    _variable(
        "max_heap_table_size",
        _S,
        _DYNAMIC,
        "MEMORY tables; also bounds tmp_table_size.",
        source=_SERVER,
        unit="bytes",
    ),
    _variable(
        "sort_buffer_size", _S, _DYNAMIC, "For each sort of each session.", source=_SERVER, unit="bytes"
    ),
    _variable(
        "join_buffer_size", _S, _DYNAMIC, "For each join without an index.", source=_SERVER, unit="bytes"
    ),
    _variable("read_buffer_size", _S, _DYNAMIC, "For each sequential scan.", source=_SERVER, unit="bytes"),
    _variable(
        "read_rnd_buffer_size", _S, _DYNAMIC, "For rows read in sorted order.", source=_SERVER, unit="bytes"
    ),
    _variable(
        "query_cache_size",
        _S,
        _DYNAMIC,
        "Results of queries; one lock for all.",
        source=_SERVER,
        unit="bytes",
        applies_to=_MARIADB,
    ),
    _variable(
        "query_cache_type",
        _C,
        _DYNAMIC,
        "Whether results of queries are cached.",
        source=_SERVER,
        allowed=("OFF", "ON", "DEMAND", "0", "1", "2"),
        applies_to=_MARIADB,
    ),
)

_CONCURRENCY = (
    _variable(
        "innodb_thread_concurrency",
        _I,
        _DYNAMIC,
        "Threads inside InnoDB at once; 0 is no limit.",
        low=0,
        high=1000,
        applies_to=_MYSQL,
    ),
    _variable(
        "innodb_spin_wait_delay", _I, _DYNAMIC, "Pause between polls of a spin lock.", low=0, high=6000
    ),
    _variable("innodb_sync_spin_loops", _I, _DYNAMIC, "Polls before a thread sleeps.", low=0),
    _variable("innodb_purge_threads", _I, _RESTART, "Threads that remove old row versions.", low=1, high=32),
    _variable("innodb_deadlock_detect", _B, _DYNAMIC, "Deadlocks are looked for at every wait."),
    _variable(
        "innodb_autoinc_lock_mode",
        _I,
        _RESTART,
        "How AUTO_INCREMENT locks: 2 needs row-based replication.",
        low=0,
        high=2,
    ),
    _variable("max_connections", _I, _DYNAMIC, "Clients at once.", source=_SERVER, low=1, high=100000),
    _variable(
        "back_log", _I, _RESTART, "Connections that wait for a thread.", source=_SERVER, low=1, high=65535
    ),
    _variable("thread_cache_size", _I, _DYNAMIC, "Threads kept for the next client.", source=_SERVER, low=0),
    _variable("thread_handling", _T, _RESTART, "A thread a connection, or a pool.", source=_POOL),
    _variable(
        "thread_pool_size",
        _I,
        _DYNAMIC,
        "Groups of the thread pool.",
        source=_POOL,
        low=1,
        applies_to=_MARIADB,
    ),
    _variable("table_open_cache", _I, _DYNAMIC, "Open tables of all sessions.", source=_SERVER, low=1),
    _variable(
        "table_open_cache_instances", _I, _RESTART, "Parts of that cache.", source=_SERVER, low=1, high=64
    ),
    _variable("table_definition_cache", _I, _DYNAMIC, "Table definitions.", source=_SERVER, low=400),
    _variable("innodb_open_files", _I, _RESTART, "Data files that InnoDB keeps open.", low=0),
    _variable("skip_name_resolve", _B, _RESTART, "Clients are known by address only.", source=_SERVER),
    _variable(
        "performance_schema",
        _B,
        _RESTART,
        "The server's own instruments; they cost some throughput.",
        source=_SERVER,
    ),
    _variable(
        "transaction_isolation",
        _C,
        _DYNAMIC,
        "What transactions see of each other.",
        source=_SERVER,
        allowed=("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"),
    ),
)

_LOGGING_AND_LAYOUT = (
    _variable(
        "sync_binlog",
        _I,
        _DYNAMIC,
        "Commits after which the binary log is synced; 0 leaves it to the system.",
        source=_BINLOG,
        low=0,
        weak=(
            r"(?!1$).*",
            "with a binary log, its last transactions are lost in a power cut and replicas diverge",
        ),
    ),
    _variable(
        "log_bin",
        _T,
        _RESTART,
        "The binary log: needed for replicas and point-in-time recovery.",
        source=_BINLOG,
    ),
    _variable(
        "binlog_format",
        _C,
        _DYNAMIC,
        "What the binary log holds.",
        source=_BINLOG,
        allowed=("ROW", "MIXED", "STATEMENT"),
    ),
    _variable("binlog_row_image", _T, _DYNAMIC, "Which columns of a row are logged.", source=_BINLOG),
    _variable(
        "binlog_group_commit_sync_delay",
        _I,
        _DYNAMIC,
        "Wait that gathers more commits for one sync.",
        source=_BINLOG,
        unit="us",
        low=0,
        high=1000000,
        applies_to=_MYSQL,
    ),
    _variable(
        "binlog_commit_wait_count",
        _I,
        _DYNAMIC,
        "Commits to gather for one sync.",
        source=_BINLOG,
        low=0,
        applies_to=_MARIADB,
    ),
    _variable(
        "innodb_page_size",
        _S,
        _REBUILD,
        "The page of the data files; decided when they are made.",
        unit="bytes",
        low=4096,
        high=65536,
    ),
    _variable("innodb_file_per_table", _B, _DYNAMIC, "A file for each new table."),
    _variable("innodb_undo_log_truncate", _B, _DYNAMIC, "Grown undo files are made small again."),
    _variable("innodb_stats_persistent", _B, _DYNAMIC, "Statistics for the optimiser survive a restart."),
)

KNOBS = (
    Knob(
        "server.allocator",
        Kind.CHOICE,
        Cost.RESTART,
        "The memory allocator, preloaded and then looked up in what the process really mapped.",
        "ld.so(8), LD_PRELOAD; jemalloc(3); gperftools, TCMalloc",
        allowed=("system", "jemalloc", "tcmalloc"),
    ),
    *_REDO_AND_FLUSHING,
    *_MEMORY,
    *_CONCURRENCY,
    *_LOGGING_AND_LAYOUT,
)
