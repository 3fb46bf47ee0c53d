"""What a replica applies, and when it has caught up, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headrace.capacity.replica import Channel
from headrace.show.parts import Column, Part, Sentence, Table

#: What decides how fast a replica applies; each server has some of them.
SETTINGS = (
    "slave_parallel_threads", "slave_parallel_mode", "replica_parallel_workers", "replica_parallel_type",
    "slave_parallel_workers", "replica_preserve_commit_order", "sync_binlog", "innodb_flush_log_at_trx_commit",
    "log_bin", "log_slave_updates", "log_replica_updates", "binlog_row_image",
)  # fmt: skip


def parts(found: Sequence[Channel], settings: Mapping[str, str]) -> Iterator[Part]:
    for channel in found:
        yield Sentence(f"{_name(channel)}{sentence(channel)}", "" if channel.pace else "aside")
    rows = [
        (
            channel.name or "(unnamed)",
            *(_megabytes(rate) for rate in (channel.fetched_bytes_s, channel.applied_bytes_s)),
        )
        for channel in found
    ]
    columns = (Column("channel"), Column("binary log fetched, MB/s", "n"), Column("applied, MB/s", "n"))
    yield Table(columns, rows, named=0)
    if settings:
        named = ", ".join(f"{name}={value}" for name, value in settings.items())
        yield Sentence(f"This holds for the settings of now: {named}.", "aside")


def sentence(channel: Channel) -> str:
    pace, lag_s = channel.pace, channel.lag_s
    if pace is None or lag_s is None:
        return f"The pace is not known: {channel.why}."
    between = f"{pace.estimate:.2f} ({pace.low:.2f} to {pace.high:.2f})"
    behind = f"It applies {between} s of its source's writes per second, and is {lag_s:,.0f} s behind."
    end = channel.caught_up_s
    if end is None:
        return f"{behind} {_never(channel)}"
    if end.high is None:
        return (
            f"{behind} It may have caught up in {_time(end.estimate)}; it is not certain that it ever does."
        )
    return f"{behind} It has caught up in {_time(end.estimate)} ({_time(end.low)} to {_time(end.high)})."


def _never(channel: Channel) -> str:
    assert channel.pace is not None
    if channel.pace.high is not None and channel.pace.high < 1:
        return "It falls further behind: at this load it does not catch up."
    return "It does not catch up as far as this watch can tell: watch longer (--seconds 10m)."


def to_json(found: Sequence[Channel], settings: Mapping[str, str]) -> dict[str, Any]:
    """Null for what is not known."""
    rows = []
    for channel in found:
        end = channel.caught_up_s
        row = asdict(channel)
        rows.append({**row, "why": channel.why or None, "caught_up_s": asdict(end) if end else None})
    return {"channels": rows, "settings": dict(settings)}


def _name(channel: Channel) -> str:
    return f"{channel.name}: " if channel.name else ""


def _megabytes(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate / 1e6:,.2f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return (
        f"{seconds:,.0f} s"
        if seconds < 600
        else f"{seconds / 60:,.0f} min"
        if seconds < 36_000
        else f"{seconds / 3600:,.1f} h"
    )
