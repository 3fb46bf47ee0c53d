"""Limits too small to run the machine or its server: refused below what is said here, unless it is so already.

No floor is advice. Most of a kernel's are its own defaults, or far below; of a server's, values below which
ordinary statements and clients fail or results are cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.base.model import Value
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.knobs.catalogue import find
from headrace.knobs.knob import size_bytes, value_text

MIB = 1 << 20
#: Pages that a connection's two smallest buffers take.
PAGES_OF_ONE = 2
#: The kernel's own smallest maximum for all of TCP.
FEWEST_PAGES = 128
PAGE = 4096
#: What the kernel took for enough before buffers grew by themselves.
ENOUGH_OF_ONE = 65_536
#: Ports for connections to other machines, whatever is open now.
FEWEST_PORTS = 1024
ROOM = 2


@dataclass(frozen=True)
class Floor:
    """``least`` is enough; below it ``harm`` comes. ``no_limit`` is a value that limits nothing."""

    least: float
    harm: str
    no_limit: float | None = None


_WATCHES = "systemd, udev and readers of logs watch files: they would fail"
_DROPPED = "packets would be dropped"
_NAMESPACES = "services with a file system or network of their own would not start"
_SESSIONS = "clients that pause would lose their connections"
_SPACE = "statements that need more fail"
_FLOORS: dict[str, Floor] = {
    "host.fs.epoll.max_user_watches": Floor(10_000, "servers could not wait for their clients"),
    "host.fs.inotify.max_queued_events": Floor(1024, "what watches files would miss changes"),
    "host.fs.inotify.max_user_instances": Floor(128, _WATCHES),
    "host.fs.inotify.max_user_watches": Floor(8192, _WATCHES),
    "host.fs.mount-max": Floor(1000, "file systems could not be mounted"),
    "host.kernel.keys.maxkeys": Floor(100, "logins and services could get no keys"),
    "host.kernel.pty.max": Floor(64, "nobody could log in to a terminal"),
    "host.kernel.shmall": Floor(8192, "programs could get no shared memory"),
    "host.kernel.shmmax": Floor(32 * MIB, "programs could get no shared memory"),
    "host.kernel.shmmni": Floor(64, "programs could get no shared memory"),
    "host.net.core.netdev_budget": Floor(64, _DROPPED),
    "host.net.core.netdev_max_backlog": Floor(300, _DROPPED),
    "host.net.core.optmem_max": Floor(4096, "sockets could set no options"),
    "host.net.core.rmem_default": Floor(16_384, _DROPPED),
    "host.net.core.rmem_max": Floor(65_536, _DROPPED),
    "host.net.core.wmem_default": Floor(16_384, "programs could send no larger messages"),
    "host.net.core.wmem_max": Floor(65_536, "programs could send no larger messages"),
    "host.net.ipv4.ipfrag_high_thresh": Floor(65_536, _DROPPED),
    "host.net.ipv4.neigh.default.gc_thresh3": Floor(128, "the machine could not reach its neighbours"),
    "host.net.ipv6.neigh.default.gc_thresh3": Floor(128, "the machine could not reach its neighbours"),
    "host.net.ipv4.tcp_max_orphans": Floor(
        1024, "connections that a program has closed would be reset before their data arrived"
    ),
    "host.net.ipv4.tcp_max_syn_backlog": Floor(128, "new connections would be dropped"),
    "host.net.ipv4.tcp_max_tw_buckets": Floor(
        1024, "closed connections would be forgotten: late segments could reach new ones"
    ),
    "host.net.ipv4.tcp_retries2": Floor(3, "a connection would end with the first packets that are lost"),
    "host.net.unix.max_dgram_qlen": Floor(10, "programs would wait for the system's log"),
    "host.user.max_cgroup_namespaces": Floor(64, _NAMESPACES),
    "host.user.max_ipc_namespaces": Floor(64, _NAMESPACES),
    "host.user.max_mnt_namespaces": Floor(64, _NAMESPACES),
    "host.user.max_net_namespaces": Floor(64, _NAMESPACES),
    "host.user.max_pid_namespaces": Floor(64, _NAMESPACES),
    "host.user.max_uts_namespaces": Floor(64, _NAMESPACES),
    "server.group_concat_max_len": Floor(1024, "GROUP_CONCAT would cut its result"),
    "server.interactive_timeout": Floor(5, _SESSIONS),
    "server.max_allowed_packet": Floor(MIB, "larger rows and statements fail, in dumps and replicas too"),
    "server.max_binlog_cache_size": Floor(MIB, "larger transactions fail"),
    "server.max_binlog_stmt_cache_size": Floor(MIB, "larger statements fail"),
    "server.max_connect_errors": Floor(10, "a client's machine is shut out after a few broken connections"),
    "server.max_connections": Floor(10, "clients and those who look after the server could not connect"),
    "server.max_execution_time": Floor(100, "longer SELECTs end with an error", 0),
    "server.max_join_size": Floor(10_000, "joins that read more rows fail"),
    "server.max_prepared_stmt_count": Floor(100, "clients that prepare statements fail"),
    "server.max_session_mem_used": Floor(MIB, _SPACE),
    "server.max_statement_time": Floor(0.1, "longer statements end with an error", 0),
    "server.max_tmp_session_space_usage": Floor(16 * MIB, _SPACE, 0),
    "server.max_tmp_total_space_usage": Floor(64 * MIB, _SPACE, 0),
    "server.max_user_connections": Floor(5, "an account's further clients could not connect", 0),
    "server.net_read_timeout": Floor(5, "clients that pause while they send are cut off"),
    "server.net_write_timeout": Floor(5, "clients that pause while they read are cut off"),
    "server.open_files_limit": Floor(1024, "tables and connections could not be opened", 0),
    "server.range_optimizer_max_mem_size": Floor(65_536, "ranges would be read as whole tables", 0),
    "server.sql_select_limit": Floor(1_000_000, "a SELECT without LIMIT would silently lose rows"),
    "server.tmp_disk_table_size": Floor(16 * MIB, _SPACE),
    "server.wait_timeout": Floor(5, _SESSIONS),
}
#: Their value is of several numbers.
_OF_PAGES = {"host.net.ipv4.tcp_mem": "TCP", "host.net.ipv4.udp_mem": "UDP"}
_BUFFERS = {"host.net.ipv4.tcp_rmem": "receive", "host.net.ipv4.tcp_wmem": "send"}
_RANGE, _RESERVED = "host.net.ipv4.ip_local_port_range", "host.net.ipv4.ip_local_reserved_ports"
NAMES = frozenset(_FLOORS) | frozenset(_OF_PAGES) | frozenset(_BUFFERS) | {_RANGE, _RESERVED}


#: By cat: the kernel gives nothing from the second byte on to a shell that reads one at a time.
_SCRIPT = """grep -E '^(TCP|UDP):' /proc/net/sockstat 2>/dev/null
for name; do value=$(cat "$name" 2>/dev/null) && printf '%s=%s\\n' "$name" "$value"; done; true"""


async def why_not(agent: Agent, settings: Mapping[str, Value], facts: HostFacts) -> dict[str, str]:
    """Setting -> why it is too small to run the machine or the server."""
    names = [name for name in settings if name in NAMES]
    if not names:
        return {}
    # A port that is reserved is none of the range's: each is counted with the other.
    asked = [name for name in (*names, _RANGE, _RESERVED) if name.startswith("host.")]
    paths = {find(name).location: name for name in asked}
    said = await agent.target.run(["sh", "-c", _SCRIPT, "sh", *paths], check=False)
    now: dict[str, str] = {}
    for line in said.text.splitlines():
        path, is_value, value = line.partition("=")
        if is_value and path in paths:
            now[paths[path]] = value
        elif words := line.split():
            count = dict(zip(words[1::2], words[2::2], strict=False))
            now[words[0] + "pages"] = count.get("mem", "0")
            now[words[0] + "sockets"] = count.get("inuse", "0")
    return {name: why for name in names if (why := too_small(name, settings, now, facts))}


def too_small(name: str, settings: Mapping[str, Value], now: Mapping[str, str], facts: HostFacts) -> str:
    """Why this value is too small, or an empty text. ``now`` has what the kernel has, by the setting's name."""
    value = settings[name]
    text = "" if isinstance(value, list) else value_text(value).strip()
    if name in _FLOORS:
        has = facts.variable(name.removeprefix("server.")) if name.startswith("server.") else now.get(name)
        return _below(_FLOORS[name], text, has or "")
    if name in (_RANGE, _RESERVED):
        return _ports(settings, now)
    numbers = [int(word) for word in text.split() if word.isdigit()]
    if len(numbers) != 3:
        return ""
    if name in _BUFFERS:
        before = _of_three(now.get(name, ""))
        if numbers[2] >= ENOUGH_OF_ONE or 0 < before <= numbers[2]:
            return ""
        return f"no connection could have a {_BUFFERS[name]} buffer of more than {numbers[2]} bytes"
    return _pages(_OF_PAGES[name], numbers, now, facts)


def _below(floor: Floor, text: str, has: str) -> str:
    number, before = _number(text), _number(has)
    if number is None or number >= floor.least or number == floor.no_limit:
        return ""
    if before is not None and before != floor.no_limit and number >= before:
        return ""
    return f"{text} is below {floor.least}: {floor.harm}" + (f" (it is {has} now)" if has else "")


def _number(text: str) -> float | None:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    return size_bytes(text) if re.fullmatch(r"\d+[KMGTPEkmgtpe]", text) else None


def _of_three(text: str) -> int:
    words = text.split()
    return int(words[2]) if len(words) == 3 and words[2].isdigit() else 0


def _pages(what: str, numbers: list[int], now: Mapping[str, str], facts: HostFacts) -> str:
    """The three of tcp_mem: no pressure below the first, none is given above the last."""
    used = int(now.get(f"{what}:pages", "0"))
    clients = int(_number(facts.variable("max_connections") or "") or 0) if what == "TCP" else 0
    needed = max(FEWEST_PAGES, ROOM * used + PAGES_OF_ONE * clients)
    if sorted(numbers) != numbers:
        return f"{' '.join(map(str, numbers))}: pressure begins above the most that there may be"
    if numbers[2] < needed:
        more = f", and {clients} connections take {PAGES_OF_ONE} each" if clients else ""
        return (
            f"{numbers[2]} pages for all of {what}; {used} are used now{more}: below {needed} data would be "
            "dropped"
        )
    if numbers[2] * PAGE > facts.memory_bytes:
        return f"{numbers[2]} pages are more than the machine's {facts.memory_bytes >> 20} MiB"
    return ""


def _ports(settings: Mapping[str, Value], now: Mapping[str, str]) -> str:
    """Ports for connections to others: those of the range that are not reserved."""

    def said(name: str) -> str:
        value = settings.get(name)
        return now.get(name, "") if value is None or isinstance(value, list) else value_text(value)

    ends = [int(word) for word in said(_RANGE).split() if word.isdigit()]
    if len(ends) != 2 or ends[0] > ends[1]:
        return ""
    reserved: set[int] = set()
    for part in said(_RESERVED).replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            reserved |= set(range(max(ends[0], int(first)), min(ends[1], int(last or first)) + 1))
    left = ends[1] - ends[0] + 1 - len(reserved)
    used = int(now.get("TCP:sockets", "0"))
    needed = max(FEWEST_PORTS, ROOM * used)
    if left >= needed:
        return ""
    return (
        f"{left} ports would be left for connections to others; {used} sockets are in use now: below {needed} "
        "programs could not connect"
    )
