"""Settings whose effect no rollback brings back: a class beside durability, allowed by name only.

A server that gets one of these removes files, or writes something that keeps the value. The journal restores the
variable, never what is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from headrace.base.model import Value
from headrace.knobs.knob import size_bytes, value_text


class What(StrEnum):
    """What is lost; the first three are files on the host, which can be counted."""

    BINARY_LOGS = "binary logs"
    RELAY_LOGS = "relay logs"
    UNDO = "undo files"
    TABLES = "tables"
    STATE = "state"


@dataclass(frozen=True)
class Loss:
    """``oldest_s``: files older than this go; ``most_bytes``: the oldest go until no more is left."""

    what: What
    reason: str
    oldest_s: float | None = None
    most_bytes: int | None = None


_PURGED = (
    "the server removes binary logs for good: no restore to a point in time, and replicas that need them end"
)
_MADE = "tables that are made meanwhile keep it"
_SECONDS_A_DAY = 86_400.0


def loss_of(variable: str, before: str | None, value: Value) -> Loss | None:
    """What a new value of a server's variable destroys for good; None if nothing, as far as is known.

    ``before`` is the value now, None if it is unknown: then any value counts as a smaller one.
    """
    rule = _RULES.get(variable)
    if rule is None or isinstance(value, list):
        return None
    return rule(_number(before), value_text(value).strip().lower())


def _age(unit_s: float) -> Callable[[float | None, str], Loss | None]:
    def loss(before: float | None, text: str) -> Loss | None:
        new = _number(text)
        # 0 is never: everything is kept.
        if new == 0 or (new is not None and before is not None and 0 < before <= new):
            return None
        return Loss(What.BINARY_LOGS, _PURGED, oldest_s=None if new is None else new * unit_s)

    return loss


def _total(before: float | None, text: str) -> Loss | None:
    new = _number(text)
    if new == 0 or (new is not None and before is not None and 0 < before <= new):
        return None
    return Loss(What.BINARY_LOGS, _PURGED, most_bytes=None if new is None else int(new))


def _relay(before: float | None, text: str) -> Loss | None:
    new = _number(text)
    if new == 0 or (new is not None and before is not None and 0 < before <= new):
        return None
    reason = (
        "the replica removes relay logs as soon as it may, and its source must keep the binary logs longer"
    )
    return Loss(What.RELAY_LOGS, reason, most_bytes=None if new is None else int(new))


def _undo_size(before: float | None, text: str) -> Loss | None:
    new = _number(text)
    if new is not None and before is not None and new >= before:
        return None
    return Loss(What.UNDO, "undo files above it are cut to their first size", most_bytes=None)


def _on(what: What, reason: str) -> Callable[[float | None, str], Loss | None]:
    def loss(before: float | None, text: str) -> Loss | None:
        return Loss(what, reason) if text in ("on", "1", "true") and before != 1 else None

    return loss


def _any(what: What, reason: str) -> Callable[[float | None, str], Loss | None]:
    return lambda before, text: Loss(what, reason)


def _number(text: str | None) -> float | None:
    """``ON`` is 1; a size may have its letter. None if it is no number."""
    words = {"on": 1.0, "off": 0.0, "true": 1.0, "false": 0.0}
    plain = (text or "").strip().lower()
    if plain in words:
        return words[plain]
    try:
        return float(size_bytes(plain)) if plain[-1:].isalpha() else float(plain)
    except ValueError:
        return None


_RULES: dict[str, Callable[[float | None, str], Loss | None]] = {
    "binlog_expire_logs_seconds": _age(1.0),
    "expire_logs_days": _age(_SECONDS_A_DAY),
    "max_binlog_total_size": _total,
    "binlog_space_limit": _total,
    "binlog_expire_logs_auto_purge": _on(What.BINARY_LOGS, _PURGED),
    "slave_connections_needed_for_purge": lambda before, text: (
        Loss(What.BINARY_LOGS, f"fewer replicas must be connected for it: {_PURGED}")
        if (new := _number(text)) is None or before is None or new < before
        else None
    ),
    "relay_log_space_limit": _relay,
    "relay_log_purge": _on(What.RELAY_LOGS, "the replica removes relay logs that it has applied"),
    "innodb_undo_log_truncate": _on(What.UNDO, "undo files that have grown are cut to their first size"),
    "innodb_max_undo_log_size": _undo_size,
    "event_scheduler": _on(What.STATE, "events run meanwhile, and what they do to the data stays"),
    "gtid_purged": _any(
        What.STATE, "the sets of transactions that the server has and has removed change for good"
    ),
    "gtid_slave_pos": _any(What.STATE, "the replica's position changes for good"),
    "gtid_binlog_state": _any(What.STATE, "the state of the binary log changes for good"),
    "default_storage_engine": _any(What.TABLES, _MADE),
    "default_table_encryption": _any(What.TABLES, _MADE),
    "innodb_compression_default": _any(What.TABLES, _MADE),
    "innodb_default_encryption_key_id": _any(What.TABLES, _MADE),
    "innodb_default_row_format": _any(What.TABLES, _MADE),
    "innodb_encrypt_tables": _any(What.TABLES, f"tables are rewritten in the background, and {_MADE}"),
    "innodb_file_per_table": _any(What.TABLES, _MADE),
    "character_set_server": _any(What.TABLES, f"databases and {_MADE}"),
    "collation_server": _any(What.TABLES, f"databases and {_MADE}"),
}
