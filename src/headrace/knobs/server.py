"""Knobs of the server: the allocator, and the variables that performance work meets most.

A variable that is not listed is also accepted: servers have hundreds. The tests check each listed one against
real servers: that the version has it, and that it does not claim to be dynamic when it is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.model import Vendor
from headrace.knobs import servers
from headrace.knobs.knob import Cost, Durability, Kind, Knob, Versions

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
    weak: tuple[str, str] = ("", ""),
    applies_to: Mapping[Vendor, Versions] = EVERYWHERE,
    dynamic_in: Mapping[Vendor, Versions] | None = None,
    restart_at: Mapping[Vendor, str] | None = None,
    variables: Mapping[Vendor, tuple[Versions, str]] | None = None,
    is_memory: bool = False,
    loses: str = "",
    formerly: str = "",
    never: str = "",
) -> Knob:
    """A record of what only people know; the range, of all listed servers, comes from their lists."""
    others = [other for _, other in (variables or {}).values()]
    lists = [own for each in (name, *others) for own in servers.in_any(each)]
    lows = [own.low for own in lists if own.low is not None]
    highs = [own.high for own in lists if own.high is not None]
    is_number = kind in (Kind.INTEGER, Kind.NUMBER, Kind.SIZE)
    names = {each.lower(): each for own in lists for each in own.names} if kind is Kind.CHOICE else {}
    return Knob(
        f"server.{name}",
        kind,
        cost,
        doc,
        source,
        unit=unit,
        allowed=tuple(names.values()),
        low=min(lows) if is_number and lows else None,
        high=max(highs) if is_number and highs else None,
        durability=Durability.BY_VALUE if weak[0] else Durability.KEPT,
        weak_values=weak[0],
        weak_reason=weak[1],
        applies_to=applies_to,
        dynamic_in=dynamic_in or {},
        restart_at=restart_at or {},
        variables=variables or {},
        is_memory=is_memory,
        loses=loses,
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
        never=_ACTION if name in _ACTIONS else "",
    )


#: The server does something when they are set, and prints OFF again, or nothing.
_ACTIONS = frozenset(
    {
        "innodb_buffer_pool_dump_now",
        "innodb_buffer_pool_load_abort",
        "innodb_buffer_pool_load_now",
        "innodb_log_checkpoint_now",
        "innodb_monitor_reset",
        "innodb_monitor_reset_all",
        "innodb_truncate_temporary_tablespace_now",
    }
)
_ACTION = "an action of the server, not a setting: nothing can be read back, proved or undone"

_I, _N, _S, _B, _C, _T = Kind.INTEGER, Kind.NUMBER, Kind.SIZE, Kind.SWITCH, Kind.CHOICE, Kind.TEXT
_DYNAMIC, _RESTART, _REBUILD = Cost.DYNAMIC, Cost.RESTART, Cost.REBUILD

_REDO_AND_FLUSHING = (
    variable(
        "innodb_flush_log_at_trx_commit",
        _I,
        _DYNAMIC,
        "When the redo log is written and synced: 1 and 3 at every commit, 2 written but not synced, 0 neither.",
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
        weak=(
            r"0*([2-9]|[1-9]\d+)",
            "where innodb_flush_log_at_trx_commit is not 1, a power cut loses so many seconds of transactions",
        ),
    ),
    variable(
        "innodb_doublewrite",
        _C,
        _RESTART,
        "A page is written twice, so that one torn by a power cut can be repaired.",
        weak=(
            r"off|0|false|detect_only|fast|2",
            "a page torn by a power cut cannot be repaired: the data may be unreadable",
        ),
        restart_at={Vendor.MYSQL: r"off|0|false", Vendor.PERCONA: r"off|0|false"},
    ),
    variable(
        "innodb_flush_method",
        _C,
        _RESTART,
        "How data and log files are opened and synced.",
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
        applies_to=only(ALL, BEFORE_9_7),
        dynamic_in=only(mariadb=Versions(since="10.9")),
    ),
    variable(
        "innodb_redo_log_capacity",
        _S,
        _DYNAMIC,
        "The size of the redo log, over all its files.",
        unit="bytes",
        applies_to=only(mysql=Versions(since="8.0.30")),
        formerly="innodb_log_file_size times innodb_log_files_in_group",
    ),
    variable(
        "innodb_log_buffer_size",
        _S,
        _RESTART,
        "Memory for redo that is not yet written.",
        unit="bytes",
        is_memory=True,
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
        weak=(r"(strict_)?none", "a damaged page goes unnoticed"),
    ),
    variable(
        "innodb_flush_neighbors",
        _I,
        _DYNAMIC,
        "Whether dirty neighbours are flushed too; flash needs 0.",
    ),
    variable("innodb_io_capacity", _I, _DYNAMIC, "Background writes.", unit="pages/s"),
    variable(
        "innodb_io_capacity_max",
        _I,
        _DYNAMIC,
        "Background writes when flushing is behind.",
        unit="pages/s",
    ),
    variable(
        "innodb_lru_scan_depth",
        _I,
        _DYNAMIC,
        "How far each buffer pool instance is searched for pages to flush.",
        unit="pages",
    ),
    variable(
        "innodb_max_dirty_pages_pct",
        _N,
        _DYNAMIC,
        "Dirty pages above which flushing is aggressive.",
        unit="%",
    ),
    variable(
        "innodb_max_dirty_pages_pct_lwm",
        _N,
        _DYNAMIC,
        "Dirty pages at which flushing starts early.",
        unit="%",
    ),
    variable("innodb_adaptive_flushing", _B, _DYNAMIC, "Flushing follows the rate of redo."),
    variable(
        "innodb_adaptive_flushing_lwm",
        _N,
        _DYNAMIC,
        "How full the redo log is when adaptive flushing starts.",
        unit="%",
    ),
    variable("innodb_flush_sync", _B, _DYNAMIC, "Checkpoints ignore innodb_io_capacity."),
    variable("innodb_page_cleaners", _I, _RESTART, "Threads that flush.", applies_to=MYSQL),
    variable(
        "innodb_read_io_threads",
        _I,
        _RESTART,
        "Threads for asynchronous reads.",
        dynamic_in=SINCE_MARIADB_10_11,
    ),
    variable(
        "innodb_write_io_threads",
        _I,
        _RESTART,
        "Threads for asynchronous writes.",
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
        is_memory=True,
    ),
    variable(
        "innodb_buffer_pool_instances",
        _I,
        _RESTART,
        "Instances of the buffer pool, each with its own locks.",
        applies_to=MYSQL,
    ),
    variable("innodb_numa_interleave", _B, _RESTART, "The buffer pool is spread over NUMA nodes."),
    variable("large_pages", _B, _RESTART, "Huge pages for the large buffers.", source=SERVER),
    variable(
        "innodb_adaptive_hash_index", _B, _DYNAMIC, "A hash index over hot pages; can be a hot lock itself."
    ),
    variable("innodb_adaptive_hash_index_parts", _I, _RESTART, "Parts of the adaptive hash index."),
    variable(
        "innodb_change_buffering",
        _C,
        _DYNAMIC,
        "Which changes to secondary indexes are buffered.",
        applies_to=only(Versions(until="11.0"), ALL),
    ),
    variable("innodb_random_read_ahead", _B, _DYNAMIC, "Read-ahead when many pages of an extent are cached."),
    variable(
        "innodb_read_ahead_threshold",
        _I,
        _DYNAMIC,
        "Pages read in sequence that start a read-ahead.",
        unit="pages",
    ),
    variable(
        "key_buffer_size",
        _S,
        _DYNAMIC,
        "The cache of MyISAM indexes.",
        source=SERVER,
        unit="bytes",
        is_memory=True,
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
        is_memory=True,
        applies_to=MARIADB,
    ),
    variable(
        "query_cache_type",
        _C,
        _DYNAMIC,
        "Whether results of queries are cached.",
        source=SERVER,
        applies_to=MARIADB,
    ),
)

_CONCURRENCY = (
    variable(
        "innodb_thread_concurrency",
        _I,
        _DYNAMIC,
        "Concurrent threads inside InnoDB; 0: no limit.",
        applies_to=MYSQL,
    ),
    variable(
        "innodb_spin_wait_delay",
        _I,
        _DYNAMIC,
        "Pause between polls of a spin lock.",
    ),
    variable(
        "innodb_spin_wait_pause_multiplier",
        _I,
        _DYNAMIC,
        "PAUSE instructions for each unit of innodb_spin_wait_delay.",
        applies_to=only(mysql=Versions(since="8.0.16")),
    ),
    variable("innodb_sync_spin_loops", _I, _DYNAMIC, "Polls before a thread sleeps."),
    variable(
        "innodb_purge_threads",
        _I,
        _RESTART,
        "Threads that remove old row versions.",
        dynamic_in=SINCE_MARIADB_10_11,
    ),
    variable("innodb_deadlock_detect", _B, _DYNAMIC, "Every wait is checked for deadlocks."),
    variable(
        "innodb_autoinc_lock_mode",
        _I,
        _RESTART,
        "How AUTO_INCREMENT locks: 2 needs row-based replication.",
    ),
    variable("max_connections", _I, _DYNAMIC, "Concurrent clients.", source=SERVER),
    variable("back_log", _I, _RESTART, "Connections that wait for a thread.", source=SERVER),
    variable("thread_cache_size", _I, _DYNAMIC, "Threads kept for the next client.", source=SERVER),
    variable("thread_handling", _T, _RESTART, "One thread per connection, or a thread pool.", source=POOL),
    variable(
        "thread_pool_size",
        _I,
        _DYNAMIC,
        "Groups of the thread pool.",
        source=POOL,
        applies_to=MARIADB,
    ),
    variable(
        "table_open_cache",
        _I,
        _DYNAMIC,
        "Open tables of all sessions.",
        source=SERVER,
        formerly="table_cache until 5.1",
    ),
    variable("table_open_cache_instances", _I, _RESTART, "Parts of the table cache.", source=SERVER),
    variable("table_definition_cache", _I, _DYNAMIC, "Table definitions.", source=SERVER),
    variable("innodb_open_files", _I, _RESTART, "Data files that InnoDB keeps open."),
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
        variables={Vendor.MARIADB: (Versions(until="11.1"), "tx_isolation")},
        formerly="tx_isolation, which MySQL 8.0 removed",
    ),
)

_LOGGING_AND_LAYOUT = (
    variable(
        "sync_binlog",
        _I,
        _DYNAMIC,
        "Commits after which the binary log is synced; 0 leaves it to the system.",
        source=BINLOG,
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
        applies_to=MYSQL,
    ),
    variable(
        "binlog_commit_wait_count",
        _I,
        _DYNAMIC,
        "Commits to group into one sync.",
        source=BINLOG,
        applies_to=MARIADB,
    ),
    variable(
        "innodb_page_size",
        _S,
        _REBUILD,
        "The page size of the data files; fixed when they are created.",
        unit="bytes",
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
