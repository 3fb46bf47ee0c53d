"""The memcached servers of the host: what each does, or why it was not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.base.counted import counted
from headrace.hunt.hunt import Hunt
from headrace.hunt.memcached import Cache, caches
from headrace.hunt.rules.evidence import size
from headrace.show.parts import Cell, Column, Gap, Part, Section, Sentence, Table

UNKNOWN = "unknown"


def section(hunt: Hunt) -> Section:
    found = _of(hunt)
    parts = list(_parts(hunt, found))
    return Section(
        "memcached",
        "memcached",
        "What do the caches do?",
        parts,
        "Rates are those of the window.",
        [*parts, Gap()] if parts else [],
        {"memcached": {"servers": [cache.to_json() for cache in found], "not_covered": _others(hunt)}},
    )


def summary(hunt: Hunt) -> str:
    """Which memcached servers were read, in a few words; empty without one."""
    versions = sorted({cache.version for cache in _of(hunt) if cache.is_read})
    count = sum(cache.is_read for cache in _of(hunt))
    return f"{f'{count} x ' if count > 1 else ''}memcached {', '.join(versions)}" if count else ""


def _of(hunt: Hunt) -> list[Cache]:
    return list(caches(hunt.evidence.facts, hunt.evidence.window)) if hunt.evidence.has_host else []


def _others(hunt: Hunt) -> list[dict[str, Any]]:
    if not hunt.evidence.has_host:
        return []
    rows = hunt.evidence.facts.caches_not_covered
    return [{"program": str(row["program"]), "pid": int(row["pid"])} for row in rows]


def _parts(hunt: Hunt, found: list[Cache]) -> Iterator[Part]:
    rows = [_row(cache) for cache in found if cache.is_read]
    columns = (
        Column("memcached"), Column("version"), Column("memory"), Column("items", "n"), Column("requests/s", "n"),
        Column("hits", "n"), Column("evictions/s", "n"), Column("connections", "n"), Column("CPUs", "n"),
    )  # fmt: skip
    if rows:
        yield Table(columns, rows, named=0)
    for cache in found:
        if cache.why:
            yield Sentence(
                f"{cache.name} was not read{' at the end' if cache.is_read else ''}: {cache.why}.", "alert"
            )
        if cache.is_restarted:
            yield Sentence(f"{cache.name} was restarted in the window: it has no rates.", "alert")
    if others := _others(hunt):
        named = ", ".join(f"{each['program']} (pid {each['pid']})" for each in others)
        yield Sentence(
            f"{counted(len(others), 'other store')} not examined: headrace does not cover {named}.", "aside"
        )


def _row(cache: Cache) -> tuple[str | Cell, ...]:
    used, limit = cache.last("bytes"), cache.last("limit_maxbytes")
    connected, most = cache.last("curr_connections"), cache.last("max_connections")
    return (
        cache.name,
        cache.version or UNKNOWN,
        f"{size(used)} of {size(limit)}",
        _shown(cache.last("curr_items")),
        _shown(cache.requests_s),
        f"{cache.hit_rate:.1%}" if cache.hit_rate is not None else UNKNOWN,
        _shown(cache.rate("evictions"), ",.1f"),
        f"{_shown(connected)} of {_shown(most)}" if most else _shown(connected),
        _shown(cache.cpus, ".2f"),
    )


def _shown(value: float | None, form: str = ",.0f") -> str:
    return UNKNOWN if value is None else format(value, form)
