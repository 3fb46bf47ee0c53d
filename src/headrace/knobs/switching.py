"""Which knobs can change under a running load, so that what follows the change shows their effect."""

from __future__ import annotations

from headrace.base.model import Vendor
from headrace.knobs.knob import Cost, Knob
from headrace.knobs.servers import lists

#: A connection copies these from the server when it is made: a change reaches none that exists.
PER_CONNECTION = frozenset(
    {
        "binlog_format",
        "binlog_row_image",
        "binlog_transaction_compression",
        "bulk_insert_buffer_size",
        "eq_range_index_dive_limit",
        "group_concat_max_len",
        "information_schema_stats_expiry",
        "innodb_ddl_buffer_size",
        "innodb_ddl_threads",
        "innodb_lock_wait_timeout",
        "innodb_parallel_read_threads",
        "innodb_strict_mode",
        "interactive_timeout",
        "internal_tmp_mem_storage_engine",
        "join_buffer_size",
        "join_buffer_space_limit",
        "join_cache_level",
        "lock_wait_timeout",
        "log_queries_not_using_indexes",
        "log_slow_rate_limit",
        "log_slow_verbosity",
        "long_query_time",
        "max_allowed_packet",
        "max_execution_time",
        "max_heap_table_size",
        "max_sort_length",
        "max_statement_time",
        "max_user_connections",
        "min_examined_row_limit",
        "mrr_buffer_size",
        "myisam_sort_buffer_size",
        "net_buffer_length",
        "net_read_timeout",
        "net_write_timeout",
        "optimizer_search_depth",
        "optimizer_switch",
        "optimizer_use_condition_selectivity",
        "query_cache_type",
        "range_optimizer_max_mem_size",
        "read_buffer_size",
        "read_rnd_buffer_size",
        "slow_query_log",
        "sort_buffer_size",
        "tmp_disk_table_size",
        "tmp_table_size",
        "transaction_isolation",
        "use_stat_tables",
        "wait_timeout",
    }
)

#: Settings of the network that the kernel reads while packets flow; of the others, most are a socket's from its
#: beginning.
_FLOWING = frozenset(
    {
        "host.net.core.dev_weight",
        "host.net.core.netdev_budget",
        "host.net.core.netdev_budget_usecs",
        "host.net.core.netdev_max_backlog",
        "host.net.core.rps_sock_flow_entries",
        "host.net.ipv4.tcp_autocorking",
        "host.net.ipv4.tcp_limit_output_bytes",
        "host.net.ipv4.tcp_slow_start_after_idle",
    }
)

#: Decided when a process asks for memory, which a server with a buffer pool did at its start.
_OF_MEMORY = frozenset(
    {
        "host.thp",
        "host.thp_defrag",
        "host.vm.nr_hugepages",
        "host.vm.nr_overcommit_hugepages",
        "host.vm.overcommit_memory",
        "host.vm.overcommit_ratio",
        "host.vm.overcommit_kbytes",
    }
)


def is_of_sessions(knob: Knob, vendor: Vendor | None, version: str) -> bool:
    """Whether a connection copies it when it is made, so that existing ones keep the old value."""
    if not knob.name.startswith("server."):
        return False
    own = knob.listed_on(vendor, version)
    return knob.name.removeprefix("server.") in PER_CONNECTION or bool(own and own.is_of_sessions)


def _cheapest(knob: Knob, vendor: Vendor) -> Cost:
    """The cost on the server of this vendor that takes the change best."""
    is_dynamic = vendor in knob.dynamic_in or any(
        knob.cost_on(vendor, own.version) is Cost.DYNAMIC for own in lists() if own.vendor is vendor
    )
    return Cost.DYNAMIC if is_dynamic and knob.name.startswith("server.") else knob.cost


def why_not(knob: Knob, vendor: Vendor, version: str = "") -> str | None:
    """Why a change under load would not show what the knob does; None if it does.

    Without a version, any that takes the change will do.
    """
    area, _, variable = knob.name.partition(".")
    if knob.never:
        return knob.never
    if area in ("machine", "workload"):
        return "reboot" if area == "machine" else "it changes the workload"
    cost = knob.cost_on(vendor, version) if version else _cheapest(knob, vendor)
    if cost is not Cost.DYNAMIC:
        return str(cost)
    if area == "server":
        return "only new connections have it" if variable in PER_CONNECTION else None
    if not knob.location:
        return "no file of a running host"
    if knob.name.startswith("host.net.") and knob.name not in _FLOWING:
        return "only new connections have it"
    return "only memory that is asked for later has it" if knob.name in _OF_MEMORY else None
