"""SHOW REPLICA STATUS, by all its names: the numbers that the agent's sampler takes from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.hunt.dumps.piece import Channels, Numbered, Piece, number_of, stamped
from headrace.hunt.dumps.tables import tables

NAME = "SHOW REPLICA STATUS"

#: Metric -> its column, as MySQL has called it since 8.0.22, and before; MariaDB keeps the older names.
_NUMBERS = {
    "lag_s": ("seconds_behind_source", "seconds_behind_master"),
    "delay_s": ("sql_delay",),
    "read_position_bytes": ("read_source_log_pos", "read_master_log_pos"),
    "exec_position_bytes": ("exec_source_log_pos", "exec_master_log_pos"),
    "relay_space_bytes": ("relay_log_space",),
}
_FILES = {
    "read_file": ("source_log_file", "master_log_file"),
    "exec_file": ("relay_source_log_file", "relay_master_log_file"),
}
_THREADS = {
    "io": (("replica_io_running", "slave_io_running"), ("replica_io_state", "slave_io_state")),
    "sql": (
        ("replica_sql_running", "slave_sql_running"),
        ("replica_sql_running_state", "slave_sql_running_state", "slave_sql_state"),
    ),
}
#: Columns of one vendor's servers only.
_OF_MARIADB, _OF_MYSQL = ("using_gtid", "gtid_io_pos"), ("auto_position", "source_uuid", "master_uuid")


def read(text: str) -> list[Piece]:
    if "_SQL_Running" not in text:
        return []
    pieces: list[Piece] = []
    for at_s, part in stamped(text):
        for table in tables(part, _is_status):
            if not table.rows:
                continue
            numbers: dict[str, dict[str, float]] = {}
            for row in table.rows:
                _add(row, numbers)
            pieces.append(Numbered("replication", numbers, at_s, NAME))
            pieces.append(Channels([_channel(row) for row in table.rows], _vendor(table.columns)))
    return pieces


def _is_status(columns: Sequence[str]) -> bool:
    return any(name in columns for name in _THREADS["io"][0]) and any(
        name in columns for name in _THREADS["sql"][0]
    )


def _of(row: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    cell = next((row[name].strip() for name in names if name in row), None)
    return None if cell in (None, "NULL", r"\N") else cell


def _number(row: Mapping[str, str], *names: str) -> float | None:
    return number_of(_of(row, names) or "")


def _name(row: Mapping[str, str]) -> str:
    return _of(row, ("channel_name", "connection_name")) or ""


def _add(row: Mapping[str, str], numbers: dict[str, dict[str, float]]) -> None:
    channel = _name(row)
    values = {metric: _number(row, *names) for metric, names in _NUMBERS.items()}
    for metric, names in _FILES.items():
        values[metric] = number_of((_of(row, names) or "").rpartition(".")[2])
    for thread, (names, states) in _THREADS.items():
        running, state = _of(row, names), _of(row, states)
        values[f"{thread}_running"] = None if running is None else float(running == "Yes")
        if state:
            numbers.setdefault(f"{thread}_state", {})[f"{channel}/{state}" if channel else state] = 1.0
    for metric, value in values.items():
        if value is not None:
            numbers.setdefault(metric, {})[channel] = value


def _channel(row: Mapping[str, str]) -> dict[str, Any]:
    """As ``server_settings`` of the facts has it."""
    by_gtid = _of(row, ("auto_position", "using_gtid"))
    errors = {
        thread: _number(row, f"last_{thread}_errno", *(("last_errno",) if thread == "sql" else ()))
        for thread in _THREADS
    }
    return {
        "channel": _name(row),
        "source_host": _of(row, ("source_host", "master_host")),
        "io_running": _of(row, _THREADS["io"][0]),
        "sql_running": _of(row, _THREADS["sql"][0]),
        "is_by_gtid": None if by_gtid is None else by_gtid not in ("0", "No"),
        **{f"last_{thread}_errno": None if error is None else int(error) for thread, error in errors.items()},
    }


def _vendor(columns: tuple[str, ...]) -> str:
    if any(name in columns for name in _OF_MARIADB):
        return "mariadb"
    return "mysql" if any(name in columns for name in _OF_MYSQL) else ""
