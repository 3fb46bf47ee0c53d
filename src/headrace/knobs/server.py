"""Knobs of the server: the allocator, and the variables that performance work meets most.

A variable that is not listed is also accepted: servers have hundreds. The tests check each listed one against
real servers: that the version has it, and that it does not claim to be dynamic when it is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.knobs.knob import MOST_MEMORY_BYTES, Cost, Durability, Kind, Knob, Versions
from headrace.model import Vendor

ALL = Versions()


def only(mariadb: Versions | None = None, mysql: Versions | None = None) -> Mapping[Vendor, Versions]:
    found = {Vendor.MARIADB: mariadb, Vendor.MYSQL: mysql, Vendor.PERCONA: mysql}
    return {vendor: versions for vendor, versions in found.items() if versions is not None}


EVERYWHERE = only(ALL, ALL)
MARIADB = only(mariadb=ALL)
MYSQL = only(mysql=ALL)
#: MySQL 9.7 no longer has the two variables that innodb_redo_log_capacity replaced.
BEFORE_9_7 = Versions(until="9.7")
SINCE_MYSQL_8 = only(mysql=Versions(since="8.0.11"))
SINCE_MARIADB_10_11 = only(mariadb=Versions(since="10.11"))

INNODB = (
    "MySQL Reference Manual, InnoDB Startup Options and System Variables; MariaDB, InnoDB System Variables"
)
SERVER = "MySQL Reference Manual, Server System Variables; MariaDB, Server System Variables"
BINLOG = (
    "MySQL Reference Manual, Binary Logging Options and Variables; "
    "MariaDB, Replication and Binary Log System Variables"
)
POOL = "MariaDB, Thread Pool System and Status Variables"


def variable(
    name: str,
    kind: Kind,
    cost: Cost,
    doc: str,
    *,
    source: str = INNODB,
    unit: str = "",
    allowed: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    weak: tuple[str, str] = ("", ""),
    applies_to: Mapping[Vendor, Versions] = EVERYWHERE,
    dynamic_in: Mapping[Vendor, Versions] | None = None,
    high_in: Mapping[Vendor, float] | None = None,
    formerly: str = "",
    never: str = "",
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
        dynamic_in=dynamic_in or {},
        high_in=high_in or {},
        formerly=formerly,
        never=never,
    )


def unlisted(name: str) -> Knob:
    """A variable that is not in the catalogue: the server decides whether it exists."""
    return Knob(
        f"server.{name}",
        Kind.ANY,
        Cost.RESTART,
        "A server variable that headrace has no record of.",
        SERVER,
        durability=Durability.UNKNOWN,
    )


_I, _N, _S, _B, _C, _T = Kind.INTEGER, Kind.NUMBER, Kind.SIZE, Kind.SWITCH, Kind.CHOICE, Kind.TEXT
_DYNAMIC, _RESTART, _REBUILD = Cost.DYNAMIC, Cost.RESTART, Cost.REBUILD

_FLUSH_METHODS = ("fsync", "O_DSYNC", "littlesync", "nosync", "O_DIRECT", "O_DIRECT_NO_FSYNC")

_REDO_AND_FLUSHING = (
    variable(
        "innodb_flush_log_at_trx_commit",
        _I,
        _DYNAMIC,
        "When the redo log is written and synced: 1 and 3 at every commit, 2 written but not synced, 0 neither.",
        low=0,
        high=3,
        weak=(
            r"[02]",
            "committed transactions of the last second are lost in a power cut (0: in any crash)",
        ),
    ),
    variable(
        "innodb_flush_log_at_timeout",
        _I,
        _DYNAMIC,
        "How often the redo log is synced if commits do not do it.",
        unit="s",
        low=0,
        high=2700,
    ),
    variable(
        "innodb_doublewrite",
        _C,
        _RESTART,
        "A page is written twice, so that one torn by a power cut can be repaired.",
        allowed=("ON", "OFF", "1", "0", "true", "false", "fast", "DETECT_AND_RECOVER", "DETECT_ONLY"),
        weak=(
            r"off|0|false|detect_only|fast|2",
            "a page torn by a power cut cannot be repaired: the data may be unreadable",
        ),
    ),
    variable(
        "innodb_flush_method",
        _C,
        _RESTART,
        "How data and log files are opened and synced.",
        allowed=_FLUSH_METHODS,
        weak=(
            r"nosync|littlesync|o_direct_no_fsync",
            "data files are not synced: safe only if every cache below the server survives a power cut",
        ),
    ),
    variable(
        "innodb_log_file_size",
        _S,
        _RESTART,
        "The redo log: a larger one spreads checkpoints. MySQL 8.0.30 replaced it by innodb_redo_log_capacity.",
        unit="bytes",
        low=1 << 20,
        applies_to=only(ALL, BEFORE_9_7),
        dynamic_in=only(mariadb=Versions(since="10.9")),
    ),
    variable(
        "innodb_redo_log_capacity",
        _S,
        _DYNAMIC,
        "The size of the redo log, over all its files.",
        unit="bytes",
        low=8 << 20,
        applies_to=only(mysql=Versions(since="8.0.30")),
        formerly="innodb_log_file_size times innodb_log_files_in_group",
    ),
    variable(
        "innodb_log_buffer_size",
        _S,
        _RESTART,
        "Memory for redo that is not yet written.",
        unit="bytes",
        high=MOST_MEMORY_BYTES,
        dynamic_in=SINCE_MYSQL_8,
    ),
    variable(
        "innodb_log_write_ahead_size",
        _S,
        _RESTART,
        "The block size of redo writes.",
        unit="bytes",
        dynamic_in=SINCE_MYSQL_8,
    ),
    variable(
        "innodb_log_checksums",
        _B,
        _DYNAMIC,
        "Checksums of redo blocks.",
        weak=(r"off|0|false", "a damaged redo log goes unnoticed by recovery"),
        applies_to=MYSQL,
    ),
    variable(
        "innodb_checksum_algorithm",
        _C,
        _DYNAMIC,
        "Checksums of pages.",
        allowed=tuple(
            strict + name for strict in ("", "strict_") for name in ("full_crc32", "crc32", "innodb", "none")
        ),
        weak=(r"(strict_)?none", "a damaged page goes unnoticed"),
    ),
    variable(
        "innodb_flush_neighbors",
        _I,
        _DYNAMIC,
        "Whether dirty neighbours are flushed too; flash needs 0.",
        low=0,
        high=2,
    ),
    variable("innodb_io_capacity", _I, _DYNAMIC, "Background writes.", unit="pages/s", low=100),
    variable(
        "innodb_io_capacity_max",
        _I,
        _DYNAMIC,
        "Background writes when flushing is behind.",
        unit="pages/s",
        low=100,
    ),
    variable(
        "innodb_lru_scan_depth",
        _I,
        _DYNAMIC,
        "How far each buffer pool instance is searched for pages to flush.",
        unit="pages",
        low=100,
    ),
    variable(
        "innodb_max_dirty_pages_pct",
        _N,
        _DYNAMIC,
        "Dirty pages above which flushing is aggressive.",
        unit="%",
        low=0,
        high=99.999,
    ),
    variable(
        "innodb_max_dirty_pages_pct_lwm",
        _N,
        _DYNAMIC,
        "Dirty pages at which flushing starts early.",
        unit="%",
        low=0,
        high=99.999,
    ),
    variable("innodb_adaptive_flushing", _B, _DYNAMIC, "Flushing follows the rate of redo."),
    variable(
        "innodb_adaptive_flushing_lwm",
        _N,
        _DYNAMIC,
        "How full the redo log is when adaptive flushing starts.",
        unit="%",
        low=0,
        high=70,
    ),
    variable("innodb_flush_sync", _B, _DYNAMIC, "Checkpoints ignore innodb_io_capacity."),
    variable("innodb_page_cleaners", _I, _RESTART, "Threads that flush.", low=1, high=64, applies_to=MYSQL),
    variable(
        "innodb_read_io_threads",
        _I,
        _RESTART,
        "Threads for asynchronous reads.",
        low=1,
        high=64,
        dynamic_in=SINCE_MARIADB_10_11,
    ),
    variable(
        "innodb_write_io_threads",
        _I,
        _RESTART,
        "Threads for asynchronous writes.",
        low=1,
        high=64,
        dynamic_in=SINCE_MARIADB_10_11,
    ),
    variable("innodb_use_native_aio", _B, _RESTART, "Asynchronous I/O of the kernel instead of threads."),
    variable(
        "innodb_use_fdatasync",
        _B,
        _DYNAMIC,
        "fdatasync instead of fsync.",
        applies_to=only(mysql=Versions(since="8.0.26")),
    ),
)

_MEMORY = (
    variable(
        "innodb_buffer_pool_size",
        _S,
        _DYNAMIC,
        "The cache of pages; the first thing to size.",
        unit="bytes",
        low=5 << 20,
        high=MOST_MEMORY_BYTES,
    ),
    variable(
        "innodb_buffer_pool_instances",
        _I,
        _RESTART,
        "Instances of the buffer pool, each with its own locks.",
        low=0,
        high=64,
        applies_to=MYSQL,
    ),
    variable("innodb_numa_interleave", _B, _RESTART, "The buffer pool is spread over NUMA nodes."),
    variable("large_pages", _B, _RESTART, "Huge pages for the large buffers.", source=SERVER),
    variable(
        "innodb_adaptive_hash_index", _B, _DYNAMIC, "A hash index over hot pages; can be a hot lock itself."
    ),
    variable(
        "innodb_adaptive_hash_index_parts", _I, _RESTART, "Parts of the adaptive hash index.", low=1, high=512
    ),
    variable(
        "innodb_change_buffering",
        _C,
        _DYNAMIC,
        "Which changes to secondary indexes are buffered.",
        allowed=("none", "inserts", "deletes", "changes", "purges", "all"),
        applies_to=only(Versions(until="11.0"), ALL),
    ),
    variable("innodb_random_read_ahead", _B, _DYNAMIC, "Read-ahead when many pages of an extent are cached."),
    variable(
        "innodb_read_ahead_threshold",
        _I,
        _DYNAMIC,
        "Pages read in sequence that start a read-ahead.",
        unit="pages",
        low=0,
        high=64,
    ),
    variable(
        "key_buffer_size",
        _S,
        _DYNAMIC,
        "The cache of MyISAM indexes.",
        source=SERVER,
        unit="bytes",
        high=MOST_MEMORY_BYTES,
    ),
    variable("tmp_table_size", _S, _DYNAMIC, "In-memory temporary tables.", source=SERVER, unit="bytes"),
    variable(
        "max_heap_table_size",
        _S,
        _DYNAMIC,
        "MEMORY tables; also bounds tmp_table_size.",
        source=SERVER,
        unit="bytes",
    ),
    variable("sort_buffer_size", _S, _DYNAMIC, "For each sort of each session.", source=SERVER, unit="bytes"),
    variable(
        "join_buffer_size", _S, _DYNAMIC, "For each join without an index.", source=SERVER, unit="bytes"
    ),
    variable("read_buffer_size", _S, _DYNAMIC, "For each sequential scan.", source=SERVER, unit="bytes"),
    variable(
        "read_rnd_buffer_size", _S, _DYNAMIC, "For rows read in sorted order.", source=SERVER, unit="bytes"
    ),
    variable(
        "query_cache_size",
        _S,
        _DYNAMIC,
        "Results of queries; one lock for all.",
        source=SERVER,
        unit="bytes",
        high=MOST_MEMORY_BYTES,
        applies_to=MARIADB,
    ),
    variable(
        "query_cache_type",
        _C,
        _DYNAMIC,
        "Whether results of queries are cached.",
        source=SERVER,
        allowed=("OFF", "ON", "DEMAND", "0", "1", "2"),
        applies_to=MARIADB,
    ),
)

_CONCURRENCY = (
    variable(
        "innodb_thread_concurrency",
        _I,
        _DYNAMIC,
        "Concurrent threads inside InnoDB; 0 is no limit.",
        low=0,
        high=1000,
        applies_to=MYSQL,
    ),
    variable(
        "innodb_spin_wait_delay",
        _I,
        _DYNAMIC,
        "Pause between polls of a spin lock.",
        low=0,
        high=6000,
        high_in={Vendor.MYSQL: 1000, Vendor.PERCONA: 1000},
    ),
    variable(
        "innodb_spin_wait_pause_multiplier",
        _I,
        _DYNAMIC,
        "PAUSE instructions for each unit of innodb_spin_wait_delay.",
        low=0,
        high=100,
        applies_to=only(mysql=Versions(since="8.0.16")),
    ),
    variable("innodb_sync_spin_loops", _I, _DYNAMIC, "Polls before a thread sleeps.", low=0),
    variable(
        "innodb_purge_threads",
        _I,
        _RESTART,
        "Threads that remove old row versions.",
        low=1,
        high=32,
        dynamic_in=SINCE_MARIADB_10_11,
    ),
    variable("innodb_deadlock_detect", _B, _DYNAMIC, "Every wait is checked for deadlocks."),
    variable(
        "innodb_autoinc_lock_mode",
        _I,
        _RESTART,
        "How AUTO_INCREMENT locks: 2 needs row-based replication.",
        low=0,
        high=2,
    ),
    variable("max_connections", _I, _DYNAMIC, "Concurrent clients.", source=SERVER, low=1, high=100000),
    variable(
        "back_log", _I, _RESTART, "Connections that wait for a thread.", source=SERVER, low=1, high=65535
    ),
    variable("thread_cache_size", _I, _DYNAMIC, "Threads kept for the next client.", source=SERVER, low=0),
    variable("thread_handling", _T, _RESTART, "One thread per connection, or a thread pool.", source=POOL),
    variable(
        "thread_pool_size",
        _I,
        _DYNAMIC,
        "Groups of the thread pool.",
        source=POOL,
        low=1,
        applies_to=MARIADB,
    ),
    variable(
        "table_open_cache",
        _I,
        _DYNAMIC,
        "Open tables of all sessions.",
        source=SERVER,
        low=1,
        formerly="table_cache until 5.1",
    ),
    variable(
        "table_open_cache_instances", _I, _RESTART, "Parts of the table cache.", source=SERVER, low=1, high=64
    ),
    variable("table_definition_cache", _I, _DYNAMIC, "Table definitions.", source=SERVER, low=400),
    variable("innodb_open_files", _I, _RESTART, "Data files that InnoDB keeps open.", low=0),
    variable("skip_name_resolve", _B, _RESTART, "Clients are identified by address only.", source=SERVER),
    variable(
        "performance_schema",
        _B,
        _RESTART,
        "The server's own instruments; they cost some throughput.",
        source=SERVER,
    ),
    variable(
        "transaction_isolation",
        _C,
        _DYNAMIC,
        "What transactions see of each other.",
        source=SERVER,
        formerly="tx_isolation, which MySQL 8.0 removed",
        allowed=("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"),
    ),
)

_LOGGING_AND_LAYOUT = (
    variable(
        "sync_binlog",
        _I,
        _DYNAMIC,
        "Commits after which the binary log is synced; 0 leaves it to the system.",
        source=BINLOG,
        low=0,
        weak=(
            r"(?!1$).*",
            "with a binary log, its last transactions are lost in a power cut and replicas diverge",
        ),
    ),
    variable(
        "log_bin",
        _T,
        _RESTART,
        "The binary log: needed for replicas and point-in-time recovery.",
        source=BINLOG,
        weak=(r"off|0|false", "nothing is there to recover a backup to a point in time, and replicas end"),
    ),
    variable(
        "binlog_format",
        _C,
        _DYNAMIC,
        "The format of the binary log. STATEMENT is not safe with innodb_autoinc_lock_mode 2.",
        source=BINLOG,
        allowed=("ROW", "MIXED", "STATEMENT"),
        weak=(
            r"statement",
            "replicas diverge where a statement is not deterministic, or AUTO_INCREMENT needs no lock (mode 2)",
        ),
    ),
    variable("binlog_row_image", _T, _DYNAMIC, "Which columns of a row are logged.", source=BINLOG),
    variable(
        "binlog_group_commit_sync_delay",
        _I,
        _DYNAMIC,
        "A delay that groups more commits into one sync.",
        source=BINLOG,
        unit="us",
        low=0,
        high=1000000,
        applies_to=MYSQL,
    ),
    variable(
        "binlog_commit_wait_count",
        _I,
        _DYNAMIC,
        "Commits to group into one sync.",
        source=BINLOG,
        low=0,
        applies_to=MARIADB,
    ),
    variable(
        "innodb_page_size",
        _S,
        _REBUILD,
        "The page size of the data files; fixed when they are created.",
        unit="bytes",
        low=4096,
        high=65536,
    ),
    variable("innodb_file_per_table", _B, _DYNAMIC, "A file for each new table."),
    variable("innodb_undo_log_truncate", _B, _DYNAMIC, "Grown undo files are truncated."),
    variable("innodb_stats_persistent", _B, _DYNAMIC, "Statistics for the optimiser survive a restart."),
)

KNOBS = (
    Knob(
        "server.allocator",
        Kind.CHOICE,
        Cost.RESTART,
        "The memory allocator: preloaded, and then verified in the process's mappings.",
        "ld.so(8), LD_PRELOAD; jemalloc(3); gperftools, TCMalloc",
        allowed=("system", "jemalloc", "tcmalloc"),
    ),
    *_REDO_AND_FLUSHING,
    *_MEMORY,
    *_CONCURRENCY,
    *_LOGGING_AND_LAYOUT,
)
