"""Every knob by name: ``machine.*``, ``volume.*``, ``host.*``, ``server.*``, ``workload.*``. One record each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from headrace.base.errors import PlanError
from headrace.base.model import Value, Vendor
from headrace.knobs import devices, engine, host, machine, replication, server, session, volume
from headrace.knobs.instance import Instance, instances, matches, resolve
from headrace.knobs.knob import Cost, Durability, Kind, Knob, Versions

__all__ = [
    "CATALOGUE",
    "Cost",
    "Durability",
    "Instance",
    "Kind",
    "Knob",
    "Versions",
    "check",
    "find",
    "instances",
    "matches",
    "resolve",
    "unlisted",
    "weakens_durability",
]

_FILES = (machine, volume, host, devices, server, engine, session, replication)
CATALOGUE: dict[str, Knob] = {knob.name: knob for file in _FILES for knob in file.KNOBS}


#: The record of a server's variable that has none.
unlisted = server.unlisted

#: Settings of other databases -> the knob that does here what they do there.
_ELSEWHERE = {
    "shared_buffers": "server.innodb_buffer_pool_size",
    "wiredTigerCacheSizeGB": "server.innodb_buffer_pool_size",
    "db_cache_size": "server.innodb_buffer_pool_size",
    "max_wal_size": "server.innodb_log_file_size",
    "wal_buffers": "server.innodb_log_buffer_size",
    "synchronous_commit": "server.innodb_flush_log_at_trx_commit",
    "work_mem": "server.sort_buffer_size",
    "temp_buffers": "server.tmp_table_size",
    "full_page_writes": "server.innodb_doublewrite",
}

AREAS = "machine., volume., host., server. or workload."


def find(name: str) -> Knob:
    """The record of a knob. A sysctl or server variable that has none gets one of unknown durability.

    Raises PlanError, with the name that was probably meant.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    area, _, rest = name.partition(".")
    if area == "workload" and re.fullmatch(r"[a-z][a-z0-9_]*", rest):
        return _workload_option(name)
    # Both namespaces are open, so only obvious slips are refused.
    slip = _ELSEWHERE.get(name.rpartition(".")[2]) or next(
        (known for known in CATALOGUE if _is_slip(name, known)), None
    )
    # A component's variables begin with its name: validate_password.length.
    if not slip and area == "server" and re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?", rest):
        return server.unlisted(rest)
    if not slip and area == "host" and re.fullmatch(r"[a-z]+(\.[A-Za-z0-9_-]+)+", rest):
        return host.unlisted(rest)
    meant = slip or _closest(name) or _as_written_elsewhere(name)
    raise PlanError(
        "no such knob",
        place=name,
        hint=f"did you mean {meant}?" if meant else f"names start with {AREAS}",
    )


def _as_written_elsewhere(name: str) -> str | None:
    """``@@global.x`` of SQL, ``x = 1`` of an option file, capitals: the knob that these set."""
    plain = re.sub(r"^(server|mysqld)\.|^@@(global\.|session\.)?|^--|\s*=.*$", "", name.lower()).replace(
        "-", "_"
    )
    return next((known for known in (f"server.{plain}", f"host.{plain}", plain) if known in CATALOGUE), None)


def check(name: str, value: Value) -> None:
    """Raises PlanError unless the knob exists and may have this value."""
    find(name).check(value)


def must_differ(place: str, levels: Iterable[Value], meaning: Callable[[Value], str]) -> None:
    """Two spellings of one setting would be two treatments that differ by noise only. Raises PlanError.

    ``meaning`` is equal for levels that set the same.
    """
    seen: dict[str, Value] = {}
    for level in levels:
        meant = meaning(level)
        if meant in seen:
            raise PlanError(f"{place}: {seen[meant]!r} and {level!r} are the same", hint=f"delete {level!r}")
        seen[meant] = level


def weakens_durability(
    name: str, value: Value, vendor: Vendor | None = None, version: str = ""
) -> str | None:
    """How this setting reduces durability; None if it does not, as far as is known. See ``Knob.weakness``."""
    area, _, variable = name.partition(".")
    if match := re.fullmatch(r"(skip|disable)_(\w+)", variable):
        # Servers accept skip_NAME for NAME = off; `skip_NAME = off` is not worth distinguishing.
        negated = CATALOGUE.get(f"{area}.{match[2]}")
        if negated:
            return negated.weakness(False)
    return find(name).weakness(value, vendor, version)


def _workload_option(name: str) -> Knob:
    return Knob(
        name,
        Kind.ANY,
        Cost.DYNAMIC,
        "A workload option; the workload itself checks it.",
        "headrace: Workloads",
    )


def _is_slip(name: str, known: str) -> bool:
    """One letter too many, missing, wrong or swapped; or an abbreviation, which servers would accept."""
    if known.startswith(name) and name.count("_") >= 2:
        return True
    if abs(len(name) - len(known)) > 1:
        return False
    same = len(_common_start(name, known))
    a, b = name[same:], known[same:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[:2][::-1] and a[2:] == b[2:])


def _common_start(a: str, b: str) -> str:
    length = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]


def _closest(name: str) -> str | None:
    """A known knob that looks like this name, perhaps without its area."""
    ends = [known for known in CATALOGUE if known.split(".", 1)[1] in (name, name.split(".", 1)[-1])]
    return next(iter(ends or difflib.get_close_matches(name, CATALOGUE, n=1)), None)
