"""Memory and limits of processes, refused where the machine cannot have them: with the sum that shows it.

A kernel takes ``vm.nr_hugepages`` for more memory than there is, and gives what it can; ``kernel.pid_max`` of 301
ends logins. Nothing of this is refused by the kernel or the server, so it is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headrace.base.counted import counted
from headrace.base.model import Value, Vendor
from headrace.change import floors
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.knobs.catalogue import CATALOGUE
from headrace.knobs.knob import size_bytes, value_text

GIB = 1 << 30
#: The kernel's own formula gives a thousandth of memory or less; above a twentieth it warns of programs killed.
MOST_KEPT_FREE = 0.05
#: Programs come and go: a limit needs room above what is there now.
ROOM = 2
#: Of clients that wait to be taken: the kernel's own default for twenty years.
FEWEST_QUEUED = 128
#: Buffers that each session may have; one alone must fit beside the common ones.
OF_SESSIONS = frozenset(
    {
        "aria_sort_buffer_size",
        "bulk_insert_buffer_size",
        "join_buffer_size",
        "max_heap_table_size",
        "mrr_buffer_size",
        "myisam_sort_buffer_size",
        "range_alloc_block_size",
        "read_buffer_size",
        "read_rnd_buffer_size",
        "sort_buffer_size",
        "tmp_table_size",
    }
)
#: Of these each session has one as soon as its work needs it: all may, at a busy moment.
OF_EACH = frozenset(
    {
        "binlog_cache_size",
        "binlog_stmt_cache_size",
        "join_buffer_size",
        "max_heap_table_size",
        "mrr_buffer_size",
        "query_prealloc_size",
        "read_buffer_size",
        "read_rnd_buffer_size",
        "sort_buffer_size",
        "thread_stack",
        "tmp_table_size",
        "transaction_prealloc_size",
    }
)
#: Memory that all sessions share and that may grow to its limit.
OF_ALL = frozenset({"innodb_ft_total_cache_size", "mhnsw_max_cache_size", "temptable_max_ram"})
#: Rows that performance_schema takes memory for at the start: bytes of one on MariaDB 10.11 and on MySQL 8.0, by
#: SHOW ENGINE PERFORMANCE_SCHEMA STATUS, and the variables whose bytes it has besides.
_DIGEST, _TEXT = "performance_schema_max_digest_length", "performance_schema_max_sql_text_length"
OF_ROWS: Mapping[str, tuple[int, int, tuple[str, ...]]] = {
    "performance_schema_digests_size": (512, 4224, (_DIGEST,)),
    "performance_schema_events_stages_history_long_size": (104, 104, ()),
    "performance_schema_events_statements_history_long_size": (1424, 1504, (_DIGEST, _TEXT)),
    "performance_schema_events_transactions_history_long_size": (320, 344, ()),
    "performance_schema_events_waits_history_long_size": (176, 176, ()),
}
_COUPLED = ("host.vm.overcommit_memory", "host.vm.overcommit_kbytes", "host.vm.overcommit_ratio")
_OF_TABLES = frozenset({"max_heap_table_size", "tmp_table_size"})
#: Sizes that are usual for one, and that `hunt` proposes: few sessions need theirs at a time.
USUAL_BYTES, USUAL_TABLE_BYTES = 16 << 20, 256 << 20
DEDICATED = "server.innodb_dedicated_server"
_SCRIPT = """cat /proc/loadavg /proc/sys/fs/file-nr /proc/sys/fs/aio-nr | tr '\\n\\t' '  '; echo
grep -h -E '^(MemAvailable|Committed_AS|CommitLimit|SwapTotal|Hugepagesize|HugePages_Total):' /proc/meminfo
n=$(cat /proc/sys/net/netfilter/nf_conntrack_count 2>/dev/null) && echo "tracked: $n"
[ -n "$1" ] && echo "maps: $(cat "/proc/$1/maps" 2>/dev/null | wc -l)"; true"""


async def why_not(agent: Agent, settings: Mapping[str, Value], facts: HostFacts) -> dict[str, str]:
    """Setting -> why this machine cannot have it, with the sum. All of them are counted together.

    What cannot be counted is not refused: that the machine has no such number is no proof of harm.
    """
    found = {**_dedicated(settings, facts), **await floors.why_not(agent, settings, facts)}
    wanted = {name: number for name, value in settings.items() if (number := _number(value)) is not None}
    if not any(name in _CHECKS or _is_memory(name) for name in wanted):
        return found
    # Each of two that are coupled is counted with the other.
    now = {**await _now(agent, facts), **{name: wanted[name] for name in _COUPLED if name in wanted}}
    for name, number in wanted.items():
        check = _CHECKS.get(name)
        why = check(number, now, facts) if check else ""
        if _is_memory(name):
            why = _memory(name, wanted, now, facts)
        if why:
            found[name] = why
    return found


def _dedicated(settings: Mapping[str, Value], facts: HostFacts) -> dict[str, str]:
    """MySQL with innodb_dedicated_server sizes itself by the whole machine, whatever else runs on it."""
    wanted = settings.get(DEDICATED, "OFF")
    if isinstance(wanted, list) or value_text(wanted).upper() not in ("ON", "1", "TRUE"):
        return {}
    if (facts.variable(DEDICATED.removeprefix("server.")) or "").upper() in ("ON", "1"):
        return {}
    memory = facts.memory_bytes
    pool = max(128 << 20, memory // 2 if memory <= 4 * GIB else memory * 3 // 4)
    own = [
        name
        for name in ("innodb_buffer_pool_size", "innodb_redo_log_capacity")
        if f"server.{name}" in settings
    ]
    why = (
        f"sizes the server by the whole machine: a buffer pool of {_gib(pool)} of {_gib(memory)}, and a redo "
        "log of gigabytes that its start writes, which may last minutes"
    )
    return {DEDICATED: why + (f", except for {' and '.join(own)}" if own else "")}


def _is_memory(name: str) -> bool:
    variable = name.removeprefix("server.")
    return variable != name and (
        variable in OF_SESSIONS | OF_EACH | OF_ALL | set(OF_ROWS)
        or (name in CATALOGUE and CATALOGUE[name].is_memory)
    )


def _number(value: Value) -> int | None:
    if isinstance(value, list | bool):
        return None
    text = value_text(value).strip()
    return size_bytes(text) if re.fullmatch(r"\d+[KMGTPEkmgtpe]?", text) else None


async def _now(agent: Agent, facts: HostFacts) -> dict[str, int]:
    """What the machine uses now; without what it does not say."""
    pid = str(facts.server_pid or "")
    said = await agent.target.run(["sh", "-c", _SCRIPT, "sh", pid], check=False)
    lines = said.text.splitlines()
    found: dict[str, int] = {}
    words = lines[0].split() if lines else []
    if len(words) >= 9:  # loadavg has five, file-nr three, aio-nr one
        found |= {"threads": int(words[3].partition("/")[2]), "files": int(words[5]), "aio": int(words[8])}
    for line in lines[1:]:
        name, _, text = line.partition(":")
        number = int(text.split()[0]) if text.split() else 0
        found[name] = number * 1024 if text.endswith("kB") else number
    return found


def _memory(name: str, wanted: Mapping[str, int], now: Mapping[str, int], facts: HostFacts) -> str:
    """The server's common buffers, the largest of a session, and huge pages that are not the server's."""
    parts: dict[str, int] = {}
    for knob in CATALOGUE.values():
        variable = knob.name.removeprefix("server.")
        own = wanted.get(knob.name, _number(facts.variable(variable) or "") if knob.is_memory else None)
        if knob.is_memory and own:
            parts[variable] = own
    variable = name.removeprefix("server.")
    if count := _connections_of(variable, wanted, facts):
        parts[f"{variable} of {counted(count, 'connection')}"] = wanted[name] * count
    elif variable in OF_SESSIONS | OF_EACH:
        parts[f"{variable} of one session"] = wanted[name]
    elif variable in OF_ALL:
        parts[variable] = wanted[name]
    elif variable in OF_ROWS:
        on_mariadb, on_mysql, texts = OF_ROWS[variable]
        row = on_mariadb if facts.vendor is Vendor.MARIADB else on_mysql
        row += sum(_number(facts.variable(text) or "") or 0 for text in texts)
        parts[f"{variable} of {counted(wanted[name], 'row')}"] = wanted[name] * row
    huge = now.get("HugePages_Total", 0) * now.get("Hugepagesize", 0)
    if huge and (facts.variable("large_pages") or "OFF").upper() not in ("ON", "1"):
        parts["huge pages"] = huge
    total = sum(parts.values())
    if total <= facts.memory_bytes:
        return _more_than_left(name, wanted, now, facts) or _group(parts, facts)
    large = sorted(parts, key=lambda part: -parts[part])[:4]
    words = " + ".join(f"{part} {_gib(parts[part])}" for part in large)
    more = " + ..." if len(parts) > 4 else ""
    return f"{words}{more} = {_gib(total)}; the machine has {_gib(facts.memory_bytes)}"


def _more_than_left(name: str, wanted: Mapping[str, int], now: Mapping[str, int], facts: HostFacts) -> str:
    """Common buffers that fit into the machine, but not beside what else runs on it."""
    if name not in CATALOGUE or not CATALOGUE[name].is_memory or "MemAvailable" not in now:
        return ""
    more = 0
    for each, number in wanted.items():
        if each in CATALOGUE and CATALOGUE[each].is_memory:
            more += number - (_number(facts.variable(each.removeprefix("server.")) or "") or 0)
    if more <= now["MemAvailable"]:
        return ""
    return (
        f"{_gib(more)} more than now; {_gib(now['MemAvailable'])} of {_gib(facts.memory_bytes)} are available"
    )


def _connections_of(variable: str, wanted: Mapping[str, int], facts: HostFacts) -> int:
    """How many sessions may have this buffer at a time; 0 where one alone is counted."""
    usual = USUAL_TABLE_BYTES if variable in _OF_TABLES else USUAL_BYTES
    before = _number(facts.variable(variable) or "") or 0
    size = wanted[f"server.{variable}"]
    if variable not in OF_EACH or size <= usual or size <= before:
        return 0
    most = facts.variable("temptable_max_ram")
    if (
        variable in _OF_TABLES
        and most
        and (facts.variable("internal_tmp_mem_storage_engine") or "") == "TempTable"
    ):
        return 0  # all of them have one limit
    return wanted.get("server.max_connections") or _number(facts.variable("max_connections") or "") or 0


def _group(parts: Mapping[str, int], facts: HostFacts) -> str:
    """The same within the server's control group; huge pages count elsewhere."""
    own = (facts.server_process or {}).get("cgroup") or {}
    limits = {name: own.get(f"memory_{name}_bytes") for name in ("max", "high")}
    known = {name: limit for name, limit in limits.items() if isinstance(limit, int) and limit > 0}
    total = sum(size for part, size in parts.items() if part != "huge pages")
    if not known or (facts.variable("large_pages") or "OFF").upper() in ("ON", "1"):
        return ""
    name = min(known, key=lambda each: known[each])
    if total <= known[name]:
        return ""
    ends = "the kernel ends it above that" if name == "max" else "the kernel slows it down above that"
    limit = f"memory.{name} of its control group is {_gib(known[name])}"
    return f"{_gib(total)} with its other buffers; {limit}: {ends}"


def _huge_pages(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    page, reserved = now.get("Hugepagesize", 2 << 20), now.get("HugePages_Total", 0)
    more, room = (number - reserved) * page, now.get("MemAvailable", facts.memory_bytes)
    if more <= room:
        return ""
    return (
        f"{number} pages of {page >> 20} MiB = {_gib(number * page)}, {_gib(more)} more than now; "
        f"{_gib(room)} of {_gib(facts.memory_bytes)} are available"
    )


def _kept_free(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    asked = number * 1024
    if asked <= MOST_KEPT_FREE * facts.memory_bytes:
        return ""
    share = asked / facts.memory_bytes
    return f"{_gib(asked)} = {share:.0%} of {_gib(facts.memory_bytes)} would be kept from every program"


def _threads(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    if "threads" not in now:
        return ""
    clients = _number(facts.variable("max_connections") or "") or 0
    needed = ROOM * now["threads"] + clients
    if number >= needed:
        return ""
    more = f" + {clients} for the server's max_connections" if clients else ""
    return (
        f"{ROOM} x {now['threads']} threads of now{more} = {needed}: new ones would fail, logins among them"
    )


def _files(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    if "files" not in now:
        return ""
    own = _number(facts.variable("open_files_limit") or "") or 0
    needed = ROOM * now["files"] + own
    if number >= needed:
        return ""
    more = f" + {own} of the server's open_files_limit" if own else ""
    return f"{ROOM} x {now['files']} open files of now{more} = {needed}: programs could open no more"


def _files_of_one(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    own = _number(facts.variable("open_files_limit") or "") or 1024
    return "" if number >= own else f"the server's open_files_limit is {own}: its next start would get less"


def _connections(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    """Each connection is an open file of the server's process, which opens no more than it may."""
    own = _number(facts.variable("open_files_limit") or "")
    if own is None or number <= own:
        return ""
    return f"each connection is an open file, and the server may open {own} (open_files_limit): logins would fail"


def _backlog(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    own = _number(facts.variable("back_log") or "") or 0
    if number >= min(own, FEWEST_QUEUED):
        return ""
    queued = counted(number, "client")
    return f"the server's back_log is {own}: its next start would queue {queued}, and refuse more"


def _watermarks(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    """Of 10,000 parts of the memory, between each two of the three watermarks."""
    share = 2 * number / 10_000
    if share <= MOST_KEPT_FREE:
        return ""
    asked = round(share * facts.memory_bytes)
    return (
        f"the kernel would reclaim until {_gib(asked)} = {share:.0%} of {_gib(facts.memory_bytes)} are free"
    )


def _table(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    """Tables of the kernel's that are allocated as a whole, with eight bytes an entry."""
    if number * 8 <= MOST_KEPT_FREE * facts.memory_bytes:
        return ""
    return f"{number} entries take {_gib(number * 8)} of {_gib(facts.memory_bytes)} at once"


def _full_text(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    """Each table with a full-text index has a cache; all of them together have a limit."""
    total = _number(facts.variable("innodb_ft_total_cache_size") or "") or 0
    if not total or number <= total:
        return ""
    return (
        f"each table with a full-text index may have {_gib(number)}, and all of them together {_gib(total)} "
        "(innodb_ft_total_cache_size)"
    )


def _aio(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    used = now.get("aio", 0)
    return "" if number >= used else f"{used} requests are reserved now: the next server would start without"


def _maps(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    used = now.get("maps", 0)
    if number >= ROOM * max(used, 1000):
        return ""
    return f"{ROOM} x {max(used, 1000)} areas, what a server has ({used} now): it would crash without memory"


def _tracked(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    """Where the firewall follows connections, one that finds no room is dropped."""
    needed = ROOM * now.get("tracked", 0) + (_number(facts.variable("max_connections") or "") or 0)
    if "tracked" not in now or number >= needed:
        return ""
    clients = needed - ROOM * now["tracked"]
    more = f" + {clients} for the server's max_connections" if clients else ""
    return (
        f"{ROOM} x {counted(now['tracked'], 'connection')} of now{more} = {needed}: new ones would be dropped"
    )


def _overcommit(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    """Mode 2 refuses memory above the limit, at once."""
    if number != 2:
        return ""
    limit = now.get("CommitLimit", 0)
    if kilobytes := now.get("host.vm.overcommit_kbytes", 0):
        limit = kilobytes * 1024 + now.get("SwapTotal", 0)
    elif "host.vm.overcommit_ratio" in now:
        limit = _of_ratio(now["host.vm.overcommit_ratio"], now, facts)
    return _commit(limit, now)


def _ratio(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    return _commit(_of_ratio(number, now, facts), now) if _is_strict(now, facts) else ""


def _of_ratio(number: int, now: Mapping[str, int], facts: HostFacts) -> int:
    huge = now.get("HugePages_Total", 0) * now.get("Hugepagesize", 0)
    return (facts.memory_bytes - huge) * number // 100 + now.get("SwapTotal", 0)


def _is_strict(now: Mapping[str, int], facts: HostFacts) -> bool:
    """Whether the kernel counts what programs have committed, now or with what is asked for as well."""
    return str(now.get("host.vm.overcommit_memory", facts.sysctl("vm.overcommit_memory"))) == "2"


def _kilobytes(number: int, now: Mapping[str, int], facts: HostFacts) -> str:
    if not _is_strict(now, facts) or not number:
        return ""
    return _commit(number * 1024 + now.get("SwapTotal", 0), now)


def _commit(limit: int, now: Mapping[str, int]) -> str:
    used = now.get("Committed_AS", 0)
    if not limit or used <= limit:
        return ""
    return (
        f"programs have {_gib(used)} committed, and the limit would be {_gib(limit)}: no program gets memory"
    )


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size < 100 * GIB else f"{size / GIB:.0f} GiB"


_CHECKS: dict[str, Callable[[int, Mapping[str, int], HostFacts], str]] = {
    "host.fs.aio-max-nr": _aio,
    "host.fs.file-max": _files,
    "host.fs.nr_open": _files_of_one,
    "host.kernel.pid_max": _threads,
    "host.kernel.threads-max": _threads,
    "host.vm.max_map_count": _maps,
    "host.vm.min_free_kbytes": _kept_free,
    "host.vm.nr_hugepages": _huge_pages,
    "host.vm.nr_hugepages_mempolicy": _huge_pages,
    "host.net.core.rps_sock_flow_entries": _table,
    "host.net.core.somaxconn": _backlog,
    "host.net.netfilter.nf_conntrack_buckets": _table,
    "host.net.netfilter.nf_conntrack_max": _tracked,
    "host.vm.overcommit_kbytes": _kilobytes,
    "host.vm.overcommit_memory": _overcommit,
    "host.vm.overcommit_ratio": _ratio,
    "host.vm.watermark_scale_factor": _watermarks,
    "server.innodb_ft_cache_size": _full_text,
    "server.max_connections": _connections,
}
