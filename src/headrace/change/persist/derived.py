"""What a start makes of an option only after its options are read, where the binary therefore cannot be asked.

Each rule is one of InnoDB's own at start-up. What no rule knows is compared after the restart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from headrace.base.model import Vendor
from headrace.knobs.knob import size_bytes
from headrace.lab.server.option_files import Word

#: srv0srv.h, BUF_POOL_SIZE_THRESHOLD: a smaller pool has one instance.
INSTANCES_FROM = 1 << 30
#: ha_innodb.cc, innodb_init_params.
LEAST_FILES = 10
#: MySQL 8.0.30 and later: they do nothing where the capacity is given.
REDO_SIZES = frozenset({"innodb_log_file_size", "innodb_log_files_in_group"})

#: What a start of MySQL lowers to another where that is given.
_MOST = {
    "innodb_max_dirty_pages_pct_lwm": "innodb_max_dirty_pages_pct",
    "innodb_io_capacity": "innodb_io_capacity_max",
}
_INDEXES = frozenset({"log_bin_index", "relay_log_index"})
_SKIPPED = re.compile(r"off|all|ddl_exist_errors|[0-9]+(\s*,\s*([0-9]+|ddl_exist_errors))*|")
#: Decided when the data directory is made: a server with another value does not start, or does not find its data.
OF_THE_DATA = frozenset(
    {
        "aria_block_size",
        "aria_log_dir_path",
        "datadir",
        "innodb_data_file_path",
        "innodb_data_home_dir",
        "innodb_log_group_home_dir",
        "innodb_page_size",
        "innodb_undo_directory",
        "lower_case_table_names",
    }
)


def derived(
    variable: str, wanted: str, values: Mapping[str, str], vendor: Vendor | None, words: Sequence[Word]
) -> str:
    """What the start would make of it instead, as a sentence; empty where no rule says so."""
    if re.fullmatch(r"[0-9]+[KMGTPEkmgtpe]", wanted):
        wanted = str(size_bytes(wanted))
    if variable in OF_THE_DATA:
        return (
            "is decided when the data directory is made: with another value the server does not find its data"
        )
    is_consistent = values.get("enforce_gtid_consistency", "").upper() in ("ON", "1")
    if variable == "gtid_mode" and wanted.upper() in ("ON", "ON_PERMISSIVE") and not is_consistent:
        return "the server would not start: gtid_mode needs enforce_gtid_consistency=ON in the same files"
    if variable == "innodb_open_files" and wanted.isdigit():
        limit = values.get("open_files_limit", "")
        if int(wanted) < LEAST_FILES:
            return f"InnoDB takes less than {LEAST_FILES} for no number at all, and the start sets one of its own"
        if limit.isdigit() and 0 < int(limit) < int(wanted):
            return f"is more than the server may open ({limit}), so the start sets a number of its own"
    if said := _of_texts(variable, wanted, values):
        return said
    if vendor is Vendor.MARIADB:
        return ""
    return _of_mysql(variable, wanted, words) or _of_pool(variable, wanted, values)


def _of_texts(variable: str, wanted: str, values: Mapping[str, str]) -> str:
    """Of what a start takes no notice."""
    if variable == "log_bin_index" and values.get("log_bin", "") in ("", "0", "OFF"):
        return "does nothing while the binary log is off"
    if variable == "log_error" and wanted and "." not in wanted.rpartition("/")[2]:
        return "a start gives it the ending .err"
    if variable == "innodb_adaptive_hash_index_cells":
        return "is a number that the start makes of the pool's size, or rounds up to a prime"
    if variable.endswith("_skip_errors") and not _SKIPPED.fullmatch(wanted.lower()):
        return "names no number of an error: the start takes no notice of it"
    if variable.startswith("performance_schema_") and wanted == "-1":
        return "stands for a number that the start computes"
    return ""


def _of_mysql(variable: str, wanted: str, words: Sequence[Word]) -> str:
    limit = next((word for word in reversed(words) if word.option == _MOST.get(variable)), None)
    if limit and _is_above(wanted, limit.value or ""):
        return f"asked for {wanted}, but the next start makes it {limit.value}, by {limit.text.strip()}"
    if variable in _INDEXES and not wanted.endswith(".index"):
        return "a start gives it the ending .index"
    if variable == "innodb_undo_tablespaces":
        return "does nothing: undo tablespaces are made by CREATE UNDO TABLESPACE"
    if variable in REDO_SIZES and any(word.option == "innodb_redo_log_capacity" for word in words):
        return (
            "does nothing, because innodb_redo_log_capacity is set: that one decides the size of the redo log"
        )
    return ""


def _is_above(wanted: str, most: str) -> bool:
    number = re.compile(r"[0-9]+(\.[0-9]+)?")
    return all(number.fullmatch(each) for each in (wanted, most)) and float(wanted) > float(most)


def _of_pool(variable: str, wanted: str, values: Mapping[str, str]) -> str:
    """What MySQL's buffer pool makes of it."""
    if variable == "innodb_buffer_pool_instances" and wanted not in ("0", "1"):
        pool = values.get("innodb_buffer_pool_size", "")
        if pool.isdigit() and 0 < int(pool) < INSTANCES_FROM:
            return f"asked for {wanted}, but the next start makes it 1: a pool of {pool} bytes is below 1 GiB"
    if variable == "innodb_page_cleaners" and wanted.isdigit():
        # buf0buf.cc: no more than there are instances, and a pool below 1 GiB has one.
        pool, instances = (values.get(f"innodb_buffer_pool_{each}", "") for each in ("size", "instances"))
        most = int(instances) if instances.isdigit() else 0
        if pool.isdigit() and int(pool) < INSTANCES_FROM:
            most = 1
        if 0 < most < int(wanted):
            return (
                f"asked for {wanted}, but the next start makes it {most}, the number of the pool's instances"
            )
    pool_bytes = values.get("innodb_buffer_pool_size", "")
    if variable == "innodb_buffer_pool_chunk_size" and pool_bytes.isdigit():
        given = int(values.get("innodb_buffer_pool_instances", "1") or 1)
        part = int(pool_bytes) // (max(1, given) if int(pool_bytes) >= INSTANCES_FROM else 1)
        if size_bytes(wanted) > part:
            return f"asked for {wanted}, but the next start makes it {part}, an instance's part of the pool"
    return ""
