"""Pieces as rows of samples: raw counters, and of printed rates the counters that grew by them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from headrace.base.errors import StoreError
from headrace.hunt.dumps.clock import Clock
from headrace.hunt.dumps.piece import Numbered, Rates, Status

#: Time in ns, sampler, metric, label, value.
Row = tuple[int, str, str, str, float]

#: Which program is believed where several print the same: those that tell CPUs and requests apart first.
ORDER = ("sadf -j", "sar", "mpstat", "iostat", "atop -P", "collectl -P", "vmstat", "top")
#: Status variables that are no counters: since the server's start they did not grow from 0.
_GAUGES = re.compile(
    r"threads_(connected|running|cached)|open_(files|streams|tables|table_definitions)|uptime.*|memory_used.*|"
    r"max_used_connections.*|last_query_\w+|prepared_stmt_count|slave_open_temp_tables|replica_open_temp_tables|"
    r"qcache_(free_\w+|queries_in_cache|total_blocks)|key_blocks_\w+|aria_pagecache_blocks_\w+|innodb_page_size|"
    r"innodb_buffer_pool_(pages_(data|dirty|free|total|misc|latched|old)|bytes_\w+|resize_\w+|load_\w+|dump_\w+)|"
    r"innodb_(row_lock_(current_waits|time_avg|time_max)|data_pending_\w+|os_log_pending_\w+|num_\w+|mem_\w+|"
    r"history_list_length|checkpoint_\w+|lsn_\w+|ibuf_(free_list|segment_size|size)|max_trx_id|undo_\w+|"
    r"available_undo_logs|redo_log_\w+|current_row_locks|truncated_status_writes)|ssl_\w+|tls_\w+|"
    r"threadpool_(idle_threads|threads)|rpl_semi_sync_\w*(status|clients|avg\w*)|wsrep_(?!flow_control_(paused_ns|sent|recv)"
    r"|replicated|received|local_(commits|bf_aborts|cert_failures|replays)|repl_|apply_|commit_).*|"
    r"delayed_insert_threads|not_flushed_delayed_rows|caching_sha2.*|compression.*|group_replication.*|"
    r"mysqlx_(sessions|worker_threads\w*|port|ssl_\w+)|tc_log_\w+|acl_.*|table_open_cache_active_instances|"
    r"binlog_(snapshot|gtid|cache_size)\w*|slave_(heartbeat_period|last_heartbeat)|error_log_\w+|flush_commands"
)


def is_gauge(name: str) -> bool:
    return _GAUGES.fullmatch(name) is not None


def rows_of_numbers(pieces: Sequence[Numbered], clock: Clock) -> list[Row]:
    counts: dict[str, int] = {}
    for piece in pieces:
        counts[piece.sampler] = counts.get(piece.sampler, 0) + (piece.at_s is None)
    rows: list[Row] = []
    for piece in pieces:
        t_ns = clock.ns(piece.at_s, piece.sampler, counts[piece.sampler])
        for metric, by_label in piece.numbers.items():
            rows += [(t_ns, piece.sampler, metric, label, value) for label, value in by_label.items()]
    return rows


def rows_of_status(statuses: Sequence[Status], clock: Clock, is_watched: bool) -> tuple[list[Row], list[str]]:
    """Rows of the status, and cautions. One alone is averaged since the server's start, unless something else of
    the dump was watched for a while: then its averages are of another time, and only its gauges are used."""
    at: dict[float, Mapping[str, float]] = {}
    cautions = []
    for status in statuses:
        time_s = clock.of_status(status)
        if time_s is None:
            cautions.append("a SHOW GLOBAL STATUS has no Uptime, so it is cut off: it is not used")
        else:
            # Two exports of one second, such as two pages of one scrape, are one.
            at[time_s] = {**at.get(time_s, {}), **status.values}
    _check_one_server(sorted(at), at)
    times = _of_one_start(sorted(at), at)
    if len(times) < len(at):
        cautions.append(
            "the server was restarted between two SHOW GLOBAL STATUS: only those after it are used"
        )
    rows = [(round(t * 1e9), "mysql_status", name, "", value) for t in times for name, value in at[t].items()]
    if len(times) == 1:
        values = at[times[0]]
        uptime = values.get("uptime", 0.0)
        if is_watched or uptime <= 0:
            cautions.append(
                "one SHOW GLOBAL STATUS: its counters are averages since the server's start and not of the time "
                "in which the host was watched, so only its gauges are used; a second one makes rates"
            )
        else:
            start_ns = round((times[0] - uptime) * 1e9)
            rows += [(start_ns, "mysql_status", name, "", 0.0) for name in values if not is_gauge(name)]
            cautions.append(
                f"one SHOW GLOBAL STATUS: every rate is an average since the server's start, {_long(uptime)} ago, "
                "in which peaks are lost; a second one, a minute later, shows what happens now"
            )
    return rows, list(dict.fromkeys(cautions))


def _check_one_server(times: Sequence[float], at: Mapping[float, Mapping[str, float]]) -> None:
    """Raises StoreError where a counter falls while the uptime grows: FLUSH STATUS resets none of these."""
    for before, after in itertools.pairwise(times):
        one, other = at[before], at[after]
        if other.get("uptime", 0.0) < one.get("uptime", 0.0):
            continue  # it was restarted
        fallen = [name for name in ("connections", "queries") if other.get(name, 1e300) < one.get(name, 0.0)]
        if fallen:
            raise StoreError(
                f"two SHOW GLOBAL STATUS are of different servers: {fallen[0].capitalize()} is "
                f"{one[fallen[0]]:,.0f} in one and {other[fallen[0]]:,.0f} in one with a longer Uptime",
                hint="give those of one server at a time",
            )


def _of_one_start(times: Sequence[float], at: Mapping[float, Mapping[str, float]]) -> list[float]:
    """The times after the last restart: the uptime of a later status is not less, by more than rounding."""
    kept: list[float] = []
    last: float | None = None
    for time_s in times:
        uptime = at[time_s].get("uptime")
        if last is not None and uptime is not None and uptime < last - 1:
            kept = []
        last = uptime if uptime is not None else last
        kept.append(time_s)
    return kept


def _long(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {name}"
    return f"{seconds:,.0f} seconds"


def rows_of_rates(pieces: Sequence[Rates], clock: Clock, sampled: set[str]) -> tuple[list[Row], list[str]]:
    """Counters that grew by the rates. ``sampled`` are samplers of which the dump has the counters themselves."""
    rows: list[Row] = []
    cautions: list[str] = []
    series: dict[tuple[str, str], list[Rates]] = {}
    for piece in pieces:
        series.setdefault((piece.sampler, piece.source), []).append(piece)
    for sampler in dict.fromkeys(name for name, _ in series):
        sources = sorted((source for name, source in series if name == sampler), key=_rank)
        if sampler in sampled:
            continue
        own = series[sampler, sources[0]]
        if any(piece.seconds is None for piece in own):
            cautions.append(
                f"{sources[0]} does not print how long its intervals are: they are taken as one second each"
            )
        rows += _grown(_longest(own), clock)
    return rows, list(dict.fromkeys(cautions))


def _rank(source: str) -> int:
    return ORDER.index(source) if source in ORDER else len(ORDER)


def _longest(pieces: Sequence[Rates]) -> Sequence[Rates]:
    """The longest run of intervals without a gap: a mean over a gap would be of no time."""
    runs: list[list[Rates]] = [[]]
    for piece in pieces:
        before = runs[-1][-1] if runs[-1] else None
        is_gap = (
            before is not None
            and piece.at_s is not None
            and before.at_s is not None
            and abs(piece.at_s - before.at_s - (piece.seconds or 1.0)) > 0.5 * (piece.seconds or 1.0) + 1
        )
        if is_gap:
            runs.append([])
        runs[-1].append(piece)
    return max(runs, key=len)


def _grown(pieces: Sequence[Rates], clock: Clock) -> list[Row]:
    rows: list[Row] = []
    lengths = [piece.seconds or 1.0 for piece in pieces]
    last_s = pieces[-1].at_s if pieces[-1].at_s is not None else clock.end_s
    time_s = last_s - sum(lengths)
    total: dict[tuple[str, str], float] = {}
    for piece, seconds in zip(pieces, lengths, strict=True):
        before_ns, time_s = round(time_s * 1e9), time_s + seconds
        t_ns = round(time_s * 1e9)
        for metric, by_label in piece.per_second.items():
            for label, value in by_label.items():
                if (metric, label) not in total:
                    total[metric, label] = 0.0
                    rows.append((before_ns, piece.sampler, metric, label, 0.0))
                total[metric, label] += value * seconds
                rows.append((t_ns, piece.sampler, metric, label, total[metric, label]))
        for metric, by_label in piece.gauges.items():
            rows += [(t_ns, piece.sampler, metric, label, value) for label, value in by_label.items()]
    return rows
