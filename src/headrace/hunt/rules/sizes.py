"""Right sizes: for each knob one number over all rules, from what the window showed to be needed.

A size is never below the server's default, never more than the memory that is there allows times its users, and
rounded as the server rounds. An empty result: no larger size would help here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace.base.errors import HostUnknown
from headrace.base.model import Value, Vendor
from headrace.host.devices import VIRTUAL, class_of
from headrace.hunt.reclaim import in_groups_only, is_memory_short
from headrace.hunt.rules.evidence import GIB, MIB, Evidence, NotEnough
from headrace.knobs.knob import Versions

KIB = 1 << 10
#: Defaults of MySQL and of MariaDB: the least that any of these is set to.
DEFAULTS: dict[str, tuple[int, int]] = {
    "sort_buffer_size": (256 * KIB, 2 * MIB),
    "join_buffer_size": (256 * KIB, 256 * KIB),
    "read_buffer_size": (128 * KIB, 128 * KIB),
    "read_rnd_buffer_size": (256 * KIB, 256 * KIB),
    "binlog_cache_size": (32 * KIB, 32 * KIB),
    "tmp_table_size": (16 * MIB, 16 * MIB),
    "temptable_max_ram": (GIB, GIB),
    "table_open_cache": (4_000, 2_000),
    "table_definition_cache": (2_000, 400),
    "max_connections": (151, 151),
    "innodb_log_buffer_size": (16 * MIB, 16 * MIB),
    "innodb_lru_scan_depth": (1_024, 1_024),
}
#: Share of the memory that stays free after any remedy, and of the rest that one remedy may take.
RESERVE, OF_SPARE = 0.05, 0.25
#: Sorts that need more than this are better served by an index or a session-level setting.
LARGEST_SORT = 8 * MIB
#: What a row takes in the sort buffer: its key, and its columns or its address.
SORTED_ROW_BYTES = 128
LARGEST_TABLE = 256 * MIB
#: The memory that all temporary tables share is set in whole steps of this.
SHARED_STEP = 128 * MIB
#: Transactions beyond this are few, and a file serves them.
LARGEST_BINLOG_CACHE = 16 * MIB
#: A table cache of which this share is used will be larger.
CACHE_FULL = 0.85
#: The default of open_files_limit where the system allows it.
FILES = 5_000
#: An entry of the table cache with its handler.
TABLE_BYTES = 20 * KIB
LARGEST_TABLE_CACHE = 16_384
#: A definition with its columns, indexes and InnoDB's own record of it.
DEFINITION_BYTES = 32 * KIB
#: A prepared statement with its text and tree; the most that every version accepts.
PREPARED_BYTES, MOST_PREPARED = 16 * KIB, 1_048_576
#: Thread, network buffers and the session's own structures.
SESSION_BYTES = 512 * KIB
#: The manual asks for a value as low as practical: at most this share of the device's measured limit.
SHARE_OF_DEVICE = 0.50
#: The first step on flash: MariaDB Cloud's and many vendors' smallest setting for solid state.
FLASH_CAPACITY = 1_000
LARGEST_CAPACITY = 20_000
#: Requests per second, and the wait of each, that no spindle reaches on the files of a database.
SEEKS_S, SEEK_MS = 500.0, 2.0
#: From this version on a temporary table in memory is bounded by tmp_table_size also in TempTable.
BOUNDED_TEMPTABLE = Versions(since="8.0.28")


def default(evidence: Evidence, name: str) -> int:
    return DEFAULTS[name][evidence.vendor is Vendor.MARIADB]


def group_limit(process: Mapping[str, Any]) -> float | None:
    """The memory that its control group leaves a process: above memory.high it is held up, above memory.max ended.

    None without a limit.
    """
    own = process.get("cgroup") or {}
    limits = (own.get("memory_max_bytes"), own.get("memory_high_bytes"))
    return min((float(limit) for limit in limits if isinstance(limit, int) and limit > 0), default=None)


def is_short(evidence: Evidence) -> bool:
    """Whether tasks of the host wait for memory, or were killed for lack of it: nothing may grow.

    Of a host that is unknown nothing says so: there the memory that was given decides.
    """
    if not evidence.has_host:
        return False
    window = evidence.window
    if (window.growth("vmstat", "oom_kill") or 0.0) > 0 and not in_groups_only(window):
        return True
    # Only the server's own groups are sampled.
    own = (
        window.growth("cgroup", "memory_oom_kill", each)
        for each in window.labels("cgroup", "memory_oom_kill")
    )
    return any(own) or is_memory_short(window)


def least(evidence: Evidence, name: str) -> int:
    """The server's default, below which no size is advised; 0 where memory is short: nothing grows to it."""
    return 0 if is_short(evidence) else default(evidence, name)


def spare_bytes(evidence: Evidence) -> float:
    """Memory that is available to the server at its worst moment, less a reserve.

    Of a server whose host is unknown: what is left of the memory that was given when all sessions use their
    buffers; 0 if none was given, so that nothing is proposed to grow. None is spare either where tasks wait for
    memory, or were killed for it, whatever the kernel calls available.
    """
    if not evidence.has_host:
        given = evidence.facts.given_memory_bytes
        taken = evidence.number("innodb_buffer_pool_size") + fixed_buffers(evidence)
        taken += sum(beside_the_pool(evidence).values()) if given else 0.0
        return max((1 - RESERVE) * given - taken, 0.0) if given else 0.0
    total = evidence.last("memory", "MemTotal")
    available = evidence.available_bytes()
    if is_short(evidence):
        return 0.0
    process = evidence.process or {}
    limit = group_limit(process)
    if limit is not None and process.get("rss_bytes") is not None:
        total, available = min(total, limit), min(available, limit - process["rss_bytes"])
    return max(available - RESERVE * total, 0.0)


def sessions(evidence: Evidence) -> float:
    """The most sessions at once so far: each may hold its buffers at the same time."""
    return max(evidence.status("max_used_connections"), 1.0)


def per_session(evidence: Evidence, name: str, wanted: float) -> int:
    """A buffer of every session: a power of two, at least the default, and all of them within the spare memory."""
    most = OF_SPARE * spare_bytes(evidence) / sessions(evidence) + evidence.number(name)
    return max(least(evidence, name), power_of_two(wanted, most))


def power_of_two(wanted: float, most: float) -> int:
    """The next one up, or the largest that is within ``most``."""
    up = 1 << max(math.ceil(wanted) - 1, 0).bit_length()
    return up if up <= most else 1 << max(int(most).bit_length() - 1, 0)


def sort_buffer(evidence: Evidence) -> dict[str, Value]:
    """For twice the rows of a mean sort, because many are larger; or four times as much as did not do."""
    sorts = evidence.status_rate("sort_scan") + evidence.status_rate("sort_range")
    mean = SORTED_ROW_BYTES * evidence.status_rate("sort_rows") / sorts if sorts > 0 else 0.0
    now = evidence.number("sort_buffer_size")
    wanted = per_session(evidence, "sort_buffer_size", min(max(2 * mean, 4 * now), LARGEST_SORT))
    return {"server.sort_buffer_size": wanted} if wanted > now else {}


def binlog_cache(evidence: Evidence) -> dict[str, Value]:
    """Four times as much as did not do, or twice a mean transaction."""
    mean = 0.0
    logged = evidence.window.rate("mysql_status", "binlog_bytes_written")
    used = evidence.status_rate("binlog_cache_use")
    if logged and used > 0:
        mean = logged / used
    now = evidence.number("binlog_cache_size")
    wanted = per_session(evidence, "binlog_cache_size", min(max(2 * mean, 4 * now), LARGEST_BINLOG_CACHE))
    return {"server.binlog_cache_size": wanted} if wanted > now else {}


def temporary_tables(evidence: Evidence) -> dict[str, Value]:
    """The limits that bound a temporary table in memory on this server.

    MEMORY tables are bounded by the smaller of two variables. TempTable has a limit for all tables together, and
    from 8.0.28 on tmp_table_size for each; max_heap_table_size is none of its own.
    """
    running = max(evidence.gauge("mysql_status", "threads_running").high, 1.0)
    found: dict[str, Value] = {}
    if is_short(evidence):
        return found
    names = ["tmp_table_size", "max_heap_table_size"]
    if is_temptable(evidence):
        names = ["tmp_table_size"] if evidence.version in BOUNDED_TEMPTABLE else []
    lowest = default(evidence, "tmp_table_size")
    now = min((evidence.number(name) for name in names), default=0.0)
    room = OF_SPARE * spare_bytes(evidence)
    wanted = max(lowest, power_of_two(min(max(4 * now, lowest), LARGEST_TABLE), now + room / running))
    if names and wanted > now:
        found = {f"server.{name}": wanted for name in names if evidence.number(name) < wanted}
    if is_temptable(evidence):
        all_together = evidence.number("temptable_max_ram")
        needed = max(default(evidence, "temptable_max_ram"), power_of_two(wanted * running, GIB))
        if needed > all_together and needed - all_together <= spare_bytes(evidence):
            found["server.temptable_max_ram"] = needed
    return found


def shared_temporary_memory(evidence: Evidence) -> dict[str, Value]:
    """Room for a table of the largest size in each thread that ran, or four times as much; within memory."""
    now = evidence.number("temptable_max_ram")
    running = max(evidence.gauge("mysql_status", "threads_running").high, 1.0)
    each = evidence.number("tmp_table_size") if evidence.version in BOUNDED_TEMPTABLE else 0.0
    needed = max(running * min(each, LARGEST_TABLE), 4 * now, default(evidence, "temptable_max_ram"))
    most = now + OF_SPARE * spare_bytes(evidence)
    # A limit and no allocation: the default is safe whatever is free, unless tasks wait for memory already.
    wanted = max(int(min(needed, most) // SHARED_STEP) * SHARED_STEP, least(evidence, "temptable_max_ram"))
    return {"server.temptable_max_ram": wanted} if wanted > now else {}


def is_temptable(evidence: Evidence) -> bool:
    engine = "internal_tmp_mem_storage_engine"
    return evidence.has_variable(engine) and evidence.variable(engine).lower() == "temptable"


def _tables(evidence: Evidence) -> float:
    return float(sum(engine.get("tables") or 0 for engine in evidence.settings.get("engines") or ()))


def table_cache(evidence: Evidence) -> int:
    """An entry for each table of each session, as far as memory allows; the number of tables may be unknown.

    MySQL divides the cache into parts, and each must hold the tables of one session.
    """
    now = evidence.number("table_open_cache")
    parts = 1.0
    if evidence.vendor is not Vendor.MARIADB and evidence.has_variable("table_open_cache_instances"):
        parts = evidence.number("table_open_cache_instances")
    needed = max(_tables(evidence) * max(sessions(evidence), parts), 2 * now)
    most = min(LARGEST_TABLE_CACHE, now + OF_SPARE * spare_bytes(evidence) / TABLE_BYTES)
    floor = now if is_short(evidence) else 2 * now
    return int(max(min(needed, max(most, floor)), least(evidence, "table_open_cache")))


def open_files(evidence: Evidence, used: float = 0.0) -> int:
    """What the server asks for itself with these settings, or half as many again as were open; whole thousands.

    A table takes two: MySQL Reference Manual, open_files_limit.
    """
    tables = evidence.number("table_open_cache")
    if evidence.status("open_tables") >= CACHE_FULL * tables:
        tables = table_cache(evidence)
    sessions_allowed = evidence.number("max_connections")
    needed = max(10 + sessions_allowed + 2 * tables, 5 * sessions_allowed, FILES, 1.5 * used)
    return math.ceil(needed / 1_000) * 1_000


def definition_cache(evidence: Evidence) -> dict[str, Value]:
    """Every table, and a tenth more, as far as memory allows."""
    now = evidence.number("table_definition_cache")
    needed = min(max(1.1 * _tables(evidence), 2 * now), max(LARGEST_TABLE_CACHE, 2 * now))
    room = now + OF_SPARE * spare_bytes(evidence) / DEFINITION_BYTES
    wanted = int(max(min(needed, room), least(evidence, "table_definition_cache")))
    return {"server.table_definition_cache": wanted} if wanted > now else {}


def prepared_statements(evidence: Evidence) -> dict[str, Value]:
    """As many for each connection that is allowed as each keeps now, within memory; none where they pile up."""
    limit = evidence.number("max_prepared_stmt_count")
    kept = evidence.gauge("mysql_status", "prepared_stmt_count")
    sessions_now = evidence.gauge("mysql_status", "threads_connected")
    if kept.low < kept.last == kept.high and sessions_now.high <= 1.1 * sessions_now.low + 2:
        return {}
    needed = kept.high / max(sessions_now.high, 1.0) * evidence.number("max_connections")
    room = limit + OF_SPARE * spare_bytes(evidence) / PREPARED_BYTES
    wanted = int(min(needed, room, MOST_PREPARED))
    return {"server.max_prepared_stmt_count": wanted} if wanted > limit else {}


def connections(evidence: Evidence) -> dict[str, Value]:
    """Half as many again as were used, or as asked for: as far as memory allows the sessions their buffers."""
    limit = evidence.number("max_connections")
    refused = evidence.window.growth("mysql_status", "connection_errors_max_connections") or 0.0
    needed = max(1.5 * sessions(evidence), limit + refused, default(evidence, "max_connections"))
    each = SESSION_BYTES + sum(evidence.number(name) for name in SESSION_BUFFERS)
    wanted = min(-(-needed // 50) * 50, 100_000, limit + spare_bytes(evidence) // each)
    return {"server.max_connections": int(wanted)} if wanted > limit else {}


SESSION_BUFFERS = ("sort_buffer_size", "join_buffer_size", "read_buffer_size", "read_rnd_buffer_size")
#: Session buffer -> counters of the statements that allocate it; a version may lack some of them.
ALLOCATED_BY = {
    "sort_buffer_size": ("sort_scan", "sort_range", "sort_rows"),
    "join_buffer_size": ("select_full_join", "select_range_check"),
    "read_buffer_size": ("select_scan",),
    "read_rnd_buffer_size": ("sort_rows",),
}
#: Statements of a kind per second below which none of them runs when the server is busiest.
RARE_S = 0.1


def fixed_buffers(evidence: Evidence) -> float:
    """Memory of the server for all sessions together, without the buffer pool."""
    caches = sum(_cache(evidence, *each) for each in INDEX_CACHES if evidence.has_variable(each[0]))
    queries = 0.0
    if evidence.has_variable("query_cache_type") and evidence.variable("query_cache_type").upper() != "OFF":
        queries = evidence.number("query_cache_size")
    return evidence.number("innodb_log_buffer_size") + caches + queries


#: Size, size of a block, blocks that were ever used, and counters of use of the caches of other engines.
INDEX_CACHES = (
    (
        "key_buffer_size",
        "key_cache_block_size",
        "key_blocks_used",
        ("key_read_requests", "key_write_requests"),
    ),
    (
        "aria_pagecache_buffer_size",
        "aria_block_size",
        "aria_pagecache_blocks_used",
        ("aria_pagecache_read_requests", "aria_pagecache_write_requests"),
    ),
)


def _cache(evidence: Evidence, size: str, block: str, used: str, counters: tuple[str, ...]) -> float:
    """Its memory is reserved when the server starts, and taken as blocks are filled: all of it where it works."""
    whole, blocks = evidence.number(size), evidence.window.last("mysql_status", used)
    if blocks is None or not evidence.has_variable(block) or _is_used(evidence, counters):
        return whole
    return min(whole, blocks * evidence.number(block))


def beside_the_pool(evidence: Evidence) -> dict[str, float]:
    """What the server takes when as many clients as ever are there, by what takes it."""
    kept = evidence.number("thread_stack") + 2 * evidence.number("net_buffer_length")
    kept += evidence.number("binlog_cache_size") if evidence.is_on("log_bin") else 0
    running = max(evidence.gauge("mysql_status", "threads_running").high, 1.0)
    temporary = min(evidence.number("tmp_table_size"), evidence.number("max_heap_table_size")) * running
    if is_temptable(evidence):
        # All its tables share one limit; before 8.0.28 it was the only one.
        each = evidence.number("tmp_table_size") if evidence.version in BOUNDED_TEMPTABLE else math.inf
        temporary = min(each * running, evidence.number("temptable_max_ram"))
    return {
        "sessions": kept * evidence.status("max_used_connections"),
        "running statements": running * sum(evidence.number(name) for name in allocated(evidence)),
        "temporary tables": temporary if _is_used(evidence, ("created_tmp_tables",)) else 0.0,
    }


def allocated(evidence: Evidence) -> list[str]:
    """The session buffers that statements of this server allocate."""
    return [name for name in SESSION_BUFFERS if _is_used(evidence, ALLOCATED_BY[name])]


def _is_used(evidence: Evidence, counters: tuple[str, ...]) -> bool:
    """Whether any was counted more than rarely, in the window or since the start; true if none is known."""
    known = [name for name in counters if evidence.window.last("mysql_status", name) is not None]
    return not known or any(evidence.status_per_second(name) >= RARE_S for name in known)


def scan_depth(evidence: Evidence) -> int:
    """Each instance frees this many pages a second: those that are read, and a quarter more."""
    parts = (
        max(evidence.number("innodb_buffer_pool_instances"), 1.0)
        if evidence.has_variable("innodb_buffer_pool_instances")
        else 1.0
    )
    read = 1.25 * evidence.status_rate("innodb_buffer_pool_reads") / parts
    now = evidence.number("innodb_lru_scan_depth")
    return math.ceil(max(2 * now, read, default(evidence, "innodb_lru_scan_depth")) / 256) * 256


def is_flash(evidence: Evidence) -> bool:
    """Whether the data is on solid state only. Raises NotEnough if a device does not report it."""
    kinds = []
    for name in evidence.beneath(evidence.data_directory):
        record = evidence.facts.block_device(name)
        if record is None or record.get("rotational") is None:
            raise NotEnough(f"the host does not report whether {name} rotates")
        kinds.append(bool(record["rotational"]) and not _is_faster_than_seeks(evidence, name, record))
    return not any(kinds)


def _is_faster_than_seeks(evidence: Evidence, name: str, record: Mapping[str, Any]) -> bool:
    """Whether a virtual disk is seen not to be a spindle: by default it reports that it rotates."""
    device = evidence.devices.get(name)
    is_virtual = class_of(record) is VIRTUAL
    return is_virtual and device is not None and device.operations >= SEEKS_S and device.wait_ms < SEEK_MS


def io_capacity(evidence: Evidence) -> dict[str, Value]:
    """Twice the pages that are flushed now and twice the setting, within half of what the device was measured for.

    Both settings, the maximum first: a capacity above its maximum is cut.
    """
    now = evidence.number("innodb_io_capacity")
    try:
        least = FLASH_CAPACITY if is_flash(evidence) else 0
        devices = evidence.beneath(evidence.data_directory)
    except (NotEnough, HostUnknown):
        least, devices = 0, []
    flushed = evidence.window.rate("mysql_status", "innodb_buffer_pool_pages_flushed") or 0.0
    limits = [SHARE_OF_DEVICE * evidence.limits[name] for name in devices if evidence.limits.get(name)]
    wanted = int(min([max(2 * flushed, 2 * now, least), max(LARGEST_CAPACITY, now), *limits]))
    if wanted <= now:
        return {}
    most = int(max(evidence.number("innodb_io_capacity_max"), 2 * wanted))
    return {"server.innodb_io_capacity_max": most, "server.innodb_io_capacity": wanted}


def log_buffer(evidence: Evidence, largest: int) -> dict[str, Value]:
    """A second of redo, or four times as much as did not do."""
    now = evidence.number("innodb_log_buffer_size")
    needed = max(evidence.status_rate("innodb_os_log_written"), 4 * now)
    least = default(evidence, "innodb_log_buffer_size")
    wanted = max(least, power_of_two(min(needed, largest), now + OF_SPARE * spare_bytes(evidence)))
    return {"server.innodb_log_buffer_size": wanted} if wanted > now else {}
