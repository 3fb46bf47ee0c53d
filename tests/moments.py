"""A window of a saved host: the kernel's own files written for successive moments, read by the real agent.

    host = Host(tmp_path / "db1", "nvme-8core")
    snapshot = host.watch(Activity(every_core={"user": 0.2}, devices={"nvme1n1": Disk(reads=900, read_ms=0.1)}))

The files have the columns and names that the host's kernel release writes: an old one has fewer. What happens in
them is said as rates a second, numbers or functions of the seconds since the start.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import zstandard

from headrace.base.model import Facts
from headrace.host.agent import Agent
from headrace.host.samples import Samples
from headrace.host.snapshot import Snapshot
from headrace.host.target.fixture import FixtureTarget
from headrace.hunt.hunt import sampler_errors
from tests.programs import agent_path
from tests.rules import hosts

HOSTS = Path(__file__).parent / "hosts"
SECONDS, STEP_S = hosts.SECONDS, hosts.STEP_S
USER_HZ = 100
#: The host has been up for so long: what its counters stand at when we first look.
BEFORE_S = 100_000
STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "TASKLET", "SCHED", "HRTIMER", "RCU")
HEAD_OF_NET_DEV = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast"
    "|bytes    packets errs drop fifo colls carrier compressed\n"
)

Rate = float | Callable[[float], float]


@dataclass(frozen=True)
class Disk:
    """A block device: requests a second, their mean size in KiB and time in ms, and the share of time with any."""

    reads: Rate = 0.0
    writes: Rate = 0.0
    read_ms: Rate = 0.0
    write_ms: Rate = 0.0
    util: Rate = 0.0
    read_kib: float = 16.0
    write_kib: float = 16.0
    flushes: Rate = 0.0
    flush_ms: float = 0.0


@dataclass(frozen=True)
class Nic:
    """An interface: packets a second and their mean size in bytes."""

    rx: Rate = 0.0
    tx: Rate = 0.0
    rx_size: float = 200.0
    tx_size: float = 200.0
    rx_dropped: Rate = 0.0


@dataclass(frozen=True)
class Packets:
    """What one core's receive path does with packets, a second."""

    processed: Rate = 0.0
    dropped: Rate = 0.0
    squeezed: Rate = 0.0


@dataclass(frozen=True)
class Program:
    """A process: the CPUs that it uses, in user mode and in the kernel."""

    pid: int
    name: str
    user: Rate = 0.0
    system: Rate = 0.0
    threads: int = 40
    rss_bytes: int = 8 << 30


@dataclass(frozen=True)
class Activity:
    """What a host does. ``cores`` and ``every_core`` are shares of time by state, the rest is idle; ``interrupts``
    is line -> CPU -> a second; ``pressure`` resource -> (some, full); ``memory`` kB of /proc/meminfo's names."""

    every_core: Mapping[str, Rate] = field(default_factory=dict)
    cores: Mapping[int, Mapping[str, Rate]] = field(default_factory=dict)
    running: int = 2
    blocked: int = 0
    devices: Mapping[str, Disk] = field(default_factory=dict)
    interfaces: Mapping[str, Nic] = field(default_factory=dict)
    receive: Mapping[int, Packets] = field(default_factory=dict)
    interrupts: Mapping[str, Mapping[int, Rate]] = field(default_factory=dict)
    vmstat: Mapping[str, Rate] = field(default_factory=dict)
    tcp: Mapping[str, Rate] = field(default_factory=dict)
    pressure: Mapping[str, tuple[Rate, Rate]] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    programs: tuple[Program, ...] = ()

    def but(self, **changes: Any) -> Activity:
        return replace(self, **changes)


class Host:
    """A copy of ``tests/hosts/<fixture>`` in ``root``, to change and to watch."""

    def __init__(self, root: Path, fixture: str) -> None:
        self.root = root
        shutil.copytree(HOSTS / fixture, root, ignore=shutil.ignore_patterns(".gitkeep"))
        self._counters: dict[object, float] = {}

    # The host

    def write(self, files: Mapping[str, str]) -> None:
        """Path below the root -> text; a line's end is added."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if text.endswith("\n") or not text else f"{text}\n")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text, f"{name} has no {old!r}"
        (self.root / name).write_text(text.replace(old, new))

    def remove(self, *names: str) -> None:
        for name in names:
            path = self.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def resize(self, cpus: int, nodes: int = 1, threads_per_core: int = 1) -> None:
        """Other processors. Cores are numbered first, then their second threads, as firmware does."""
        folder = "sys/devices/system"
        for old in (self.root / folder / "cpu").glob("cpu[0-9]*"):
            if int(old.name[3:]) >= cpus:
                shutil.rmtree(old)
        cores = cpus // threads_per_core
        per_node = cores // nodes
        files = {f"{folder}/cpu/{name}": f"0-{cpus - 1}" for name in ("online", "possible", "present")}
        for cpu in range(cpus):
            topology, core = f"{folder}/cpu/cpu{cpu}/topology", cpu % cores
            files[f"{topology}/core_id"] = str(core % per_node)
            files[f"{topology}/physical_package_id"] = str(core // per_node)
            files[f"{topology}/thread_siblings_list"] = ",".join(
                str(core + number * cores) for number in range(threads_per_core)
            )
        total_kb = self._meminfo()["MemTotal"]
        for node in range(nodes):
            of_node = [str(cpu) for cpu in range(cpus) if cpu % cores // per_node == node]
            files[f"{folder}/node/node{node}/cpulist"] = ",".join(of_node)
            files[f"{folder}/node/node{node}/distance"] = " ".join(
                "10" if other == node else "21" for other in range(nodes)
            )
            files[f"{folder}/node/node{node}/meminfo"] = (
                f"Node {node} MemTotal:       {total_kb // nodes} kB\n"
                f"Node {node} MemFree:         {total_kb // nodes // 30} kB\n"
            )
        block = (self.root / "proc/cpuinfo").read_text().split("\n\n")[0]
        files["proc/cpuinfo"] = "".join(
            block.replace("processor\t: 0", f"processor\t: {cpu}") + "\n\n" for cpu in range(cpus)
        )
        files["proc/irq/default_smp_affinity"] = "f" * (cpus // 4)
        head, *lines = (self.root / "proc/interrupts").read_text().splitlines()
        count = len(head.split())
        files["proc/interrupts"] = "\n".join(
            [_head_of_cpus(cpus), *(_resized(line, count, cpus) for line in lines)]
        )
        self.write(files)
        for queues in (self.root / "sys/block").glob("*/mq"):
            folders = sorted(queues.iterdir(), key=lambda queue: int(queue.name))
            share = max(cpus // len(folders), 1)
            for number, queue in enumerate(folders):
                own = range(number * share, (number + 1) * share) if number < cpus else ()
                (queue / "cpu_list").write_text(", ".join(map(str, own)) + "\n")

    def queues(self, interface: str, count: int) -> None:
        """As after ``ethtool -L INTERFACE combined COUNT``: the later queues and their interrupts are gone."""
        for queue in (self.root / f"sys/class/net/{interface}/queues").iterdir():
            if int(queue.name.partition("-")[2]) >= count:
                shutil.rmtree(queue)

    @property
    def release(self) -> tuple[int, int]:
        major, minor, *_ = (self.root / "proc/sys/kernel/osrelease").read_text().split(".")
        return int(major), int(minor)

    @property
    def cpus(self) -> list[int]:
        folder = self.root / "sys/devices/system/cpu"
        return sorted(int(path.name[3:]) for path in folder.glob("cpu[0-9]*"))

    # The window

    def watch(
        self,
        activity: Activity,
        *,
        server: Mapping[str, Any] | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> Snapshot:
        """A minute of it. ``server``: arguments of hosts.unwell, whose server runs here, too."""
        lines: list[str] = []
        for second in range(0, SECONDS + 1, STEP_S):
            self._write_moment(activity, second)
            argv = [agent_path(), "sample", "--duration", "0s", "--root", str(self.root)]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                lines.append(json.dumps({**json.loads(line), "t_ns": second * 10**9}))
        stream = self.root.with_suffix(".jsonl.zst")
        stream.write_bytes(zstandard.compress("\n".join(lines).encode()))
        samples, facts = Samples.read(stream), asyncio.run(self._facts())
        if server is not None:
            samples, facts = _with_server(samples, facts, server)
        errors = sampler_errors(stream)
        return Snapshot(
            self.root.name, "2026-01-31T12:00:00+00:00", float(SECONDS), facts, samples, errors, limits or {}
        )

    async def _facts(self) -> Facts:
        target = FixtureTarget(self.root)
        await target.connect()
        try:
            return await (await Agent.install(target)).facts()
        finally:
            await target.close()

    def _write_moment(self, activity: Activity, second: int) -> None:
        self._second = second
        files = {
            "proc/stat": self._stat(activity),
            "proc/interrupts": self._interrupts(activity),
            "proc/softirqs": self._softirqs(activity),
            "proc/net/softnet_stat": self._softnet(activity),
            "proc/diskstats": self._diskstats(activity),
            "proc/net/dev": self._net_dev(activity),
            "proc/net/snmp": self._snmp(activity),
            "proc/net/netstat": self._netstat(activity),
            "proc/vmstat": self._vmstat(activity),
            "proc/meminfo": self._meminfo_text(activity),
            **self._pressure(activity),
        }
        for program in activity.programs:
            files.update(self._program(program))
        self.write(files)

    def _count(self, key: object, rate: Rate) -> int:
        """A counter's value now: it grows by the rate in the middle of each step."""
        second = self._second
        if second == 0:
            self._counters[key] = (rate(0.0) if callable(rate) else rate) * BEFORE_S
        else:
            now = rate(second - STEP_S / 2) if callable(rate) else rate
            self._counters[key] += now * STEP_S
        return round(self._counters[key])

    def _share(self, activity: Activity, cpu: int, state: str) -> Rate:
        shares = {**activity.every_core, **activity.cores.get(cpu, {})}
        if state != "idle":
            return shares.get(state, 0.0)

        def idle(t: float) -> float:
            return 1 - sum(value(t) if callable(value) else value for value in shares.values())

        return idle

    def _stat(self, activity: Activity) -> str:
        rows = []
        for cpu in self.cpus:
            row = []
            for state in STATES:
                share = self._share(activity, cpu, state)
                row.append(self._count(("cpu", cpu, state), _times(share, USER_HZ)))
            rows.append(row)
        total = [sum(column) for column in zip(*rows, strict=True)]
        lines = [
            f"cpu  {_words(total)}",
            *(f"cpu{c} {_words(r)}" for c, r in zip(self.cpus, rows, strict=True)),
        ]
        lines += [
            f"intr {self._count('intr', 20_000.0)} 0 0",
            f"ctxt {self._count('ctxt', 40_000.0)}",
            "btime 1767000000",
            f"processes {self._count('forks', 1.0)}",
            f"procs_running {activity.running}",
            f"procs_blocked {activity.blocked}",
            f"softirq {self._count('softirq', 9_000.0)} 0 0 0 0 0 0 0 0 0 0",
        ]
        return "\n".join(lines)

    def _interrupts(self, activity: Activity) -> str:
        if self._second == 0:
            self._lines = (self.root / "proc/interrupts").read_text().splitlines()
        head, *lines = self._lines
        count = len(head.split())
        found = [head]
        for line in lines:
            irq = line.partition(":")[0].strip()
            counts, rest = _split_counts(line, count)
            grown = activity.interrupts.get(irq, {})
            for position, rate in grown.items():
                counts[position] = self._count(("irq", irq, position), rate)
            found.append(_line_of_counts(irq, counts, rest))
        return "\n".join(found)

    def _softirqs(self, activity: Activity) -> str:
        lines = [" " * 20 + "".join(f"CPU{cpu:<8}" for cpu in self.cpus)]
        for name in SOFTIRQS:
            usual = 0.0 if name == "HI" else 100.0
            counts = []
            for cpu in self.cpus:
                rate = activity.receive[cpu].processed if cpu in activity.receive else 10.0
                counts.append(self._count(("softirq", name, cpu), rate if name == "NET_RX" else usual))
            lines.append(f"{name:>12}:" + "".join(f" {number:>10}" for number in counts))
        return "\n".join(lines)

    def _softnet(self, activity: Activity) -> str:
        # 2.6.35 received_rps, 3.11 flow_limit, 5.10 the backlog's length and the CPU, 6.6 the backlog's two parts.
        release = self.release
        columns = 10 if release < (3, 11) else 11 if release < (5, 10) else 13 if release < (6, 6) else 15
        lines = []
        for cpu in self.cpus:
            packets = activity.receive.get(cpu, Packets(10.0))
            row = [0] * columns
            for column, rate in enumerate((packets.processed, packets.dropped, packets.squeezed)):
                row[column] = self._count(("softnet", cpu, column), rate) % (1 << 32)
            if columns > 12:
                row[12] = cpu
            lines.append(" ".join(f"{number:08x}" for number in row))
        return "\n".join(lines)

    def _diskstats(self, activity: Activity) -> str:
        # 4.18 discards, 5.5 flushes.
        columns = 11 if self.release < (4, 18) else 15 if self.release < (5, 5) else 17
        lines = ["   1       0 ram0" + " 0" * columns]
        for name, disk in activity.devices.items():
            major, minor = (self.root / f"sys/block/{name}/dev").read_text().strip().split(":")
            waited = _sum(_product(disk.reads, disk.read_ms), _product(disk.writes, disk.write_ms))
            rates: list[Rate] = [
                *(disk.reads, 0.0, _times(disk.reads, disk.read_kib * 2), _product(disk.reads, disk.read_ms)),
                *(disk.writes, 0.0, _times(disk.writes, disk.write_kib * 2)),
                *(_product(disk.writes, disk.write_ms), 0.0, _times(disk.util, 1e3), waited),
                *(0.0, 0.0, 0.0, 0.0, disk.flushes, _times(disk.flushes, disk.flush_ms)),
            ]
            row = [self._count(("disk", name, n), rate) for n, rate in enumerate(rates)][:columns]
            row[8] = 1 if row[0] + row[4] else 0
            lines.append(f"{major:>4} {minor:>7} {name} {_words(row)}")
        return "\n".join(lines)

    def _net_dev(self, activity: Activity) -> str:
        text = HEAD_OF_NET_DEV
        for name, nic in {"lo": Nic(5.0, 5.0), **activity.interfaces}.items():
            rates: list[Rate] = [
                *(_times(nic.rx, nic.rx_size), nic.rx, 0.0, nic.rx_dropped, 0.0, 0.0, 0.0, 0.0),
                *(_times(nic.tx, nic.tx_size), nic.tx, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            ]
            row = [self._count(("net", name, n), rate) for n, rate in enumerate(rates)]
            text += f"{name:>6}: {' '.join(f'{number:>7}' for number in row)}\n"
        return text

    def _snmp(self, activity: Activity) -> str:
        sent = sum(_at(nic.tx) for nic in activity.interfaces.values()) or 10.0
        rates: dict[str, Rate] = {
            **{"ActiveOpens": 0.2, "PassiveOpens": 0.5, "InSegs": sent, "OutSegs": sent, "RetransSegs": 0.0},
            **{name: rate for name, rate in activity.tcp.items() if name in ("OutSegs", "RetransSegs")},
        }
        counts = _words(self._count(("tcp", name), rate) for name, rate in rates.items())
        return f"Tcp: RtoAlgorithm RtoMin RtoMax MaxConn {' '.join(rates)}\nTcp: 1 200 120000 -1 {counts}"

    def _netstat(self, activity: Activity) -> str:
        names = ["SyncookiesSent", "ListenOverflows", "ListenDrops", "TCPTimeouts"]
        # 3.2 does not count a full queue of half-open connections by these names.
        names += ["TCPReqQFullDoCookies", "TCPReqQFullDrop"] if self.release >= (2, 6) else []
        counts = _words(self._count(("tcpext", name), activity.tcp.get(name, 0.0)) for name in names)
        return f"TcpExt: {' '.join(names)}\nTcpExt: {counts}"

    def _vmstat(self, activity: Activity) -> str:
        names = {"nr_dirty": 0.0, "pgpgin": 5_000.0, "pgpgout": 9_000.0, "pswpin": 0.0, "pswpout": 0.0}
        names |= {"pgfault": 2_000.0, "pgmajfault": 0.1, "compact_stall": 0.0}
        # 4.8 counts reclaim by node, 4.13 the killings.
        if self.release >= (4, 8):
            names |= {"pgscan_kswapd": 0.0, "pgscan_direct": 0.0}
            names |= {"allocstall_dma32": 0.0, "allocstall_normal": 0.0, "allocstall_movable": 0.0}
        else:
            zones = ("dma", "dma32", "normal", "movable")
            names |= {f"pgscan_{who}_{zone}": 0.0 for who in ("kswapd", "direct") for zone in zones}
            names |= {"allocstall": 0.0}
        names |= {"oom_kill": 0.0} if self.release >= (4, 13) else {}
        names |= {"drop_pagecache": 0.0, "drop_slab": 0.0} if self.release >= (3, 15) else {}
        if self.release >= (3, 8):
            names |= {"numa_hint_faults": 0.0, "numa_pages_migrated": 0.0}
        unknown = activity.vmstat.keys() - names.keys()
        assert not unknown, f"Linux {self.release} has no {unknown} in /proc/vmstat"
        return "\n".join(
            f"{name} {self._count(('vmstat', name), activity.vmstat.get(name, usual))}"
            for name, usual in names.items()
        )

    def _meminfo(self) -> dict[str, int]:
        lines = (line.split() for line in (self.root / "proc/meminfo").read_text().splitlines())
        return {name.rstrip(":"): int(value) for name, value, *_ in lines}

    def _meminfo_text(self, activity: Activity) -> str:
        values = {**self._meminfo(), **activity.memory}
        if self.release < (3, 14):
            values.pop("MemAvailable", None)
        pages = ("HugePages_Total", "HugePages_Free")
        return "\n".join(
            f"{name + ':':<15} {value:>9}{'' if name in pages else ' kB'}" for name, value in values.items()
        )

    def _pressure(self, activity: Activity) -> dict[str, str]:
        if self.release < (4, 20):
            return {}
        found = {}
        for resource in ("cpu", "io", "memory"):
            text = ""
            for kind, rate in zip(("some", "full"), activity.pressure.get(resource, (0.0, 0.0)), strict=True):
                # 5.13 shows it for the CPU, too.
                if kind == "some" or resource != "cpu" or self.release >= (5, 13):
                    total = self._count(("psi", resource, kind), _times(rate, 1e6))
                    text += f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n"
            found[f"proc/pressure/{resource}"] = text
        return found

    def _program(self, program: Program) -> dict[str, str]:
        user, system = (
            self._count((program.pid, kind), _times(rate, USER_HZ))
            for kind, rate in (("user", program.user), ("system", program.system))
        )
        folder = f"proc/{program.pid}"
        stat = f"{program.pid} ({program.name}) S 1 1 1 0 -1 4194304 99 0 0 0 {user} {system} 0 0 20 0"
        size = f"{2 * program.rss_bytes} {program.rss_bytes // 4096} 18446744073709551615"
        return {
            f"{folder}/comm": program.name,
            f"{folder}/stat": f"{stat} {program.threads} 0 195802 {size}",
            f"{folder}/io": "rchar: 1\nwchar: 2\nsyscr: 0\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: 8192",
            f"{folder}/task/{program.pid}/status": f"Name:\t{program.name}\n"
            f"voluntary_ctxt_switches:\t{self._count((program.pid, 'switches'), 1_000.0)}\n"
            "nonvoluntary_ctxt_switches:\t10",
        }


def _with_server(samples: Samples, facts: Facts, changes: Mapping[str, Any]) -> tuple[Samples, Facts]:
    """The server of tests/rules/hosts.py as if it had been asked on this host."""
    evidence = hosts.unwell(**changes)
    pid = next((server["pid"] for server in facts.data["servers"]), None)
    settings = {**evidence.raw["server_settings"], "pid": pid}
    data = {**facts.data, "server_settings": settings}
    status = [row for row in evidence.window.samples.rows() if row[1] == "mysql_status"]
    return Samples.of([*samples.rows(), *status]), Facts(facts.hash, data)


def _at(rate: Rate, t: float = 0.0) -> float:
    return rate(t) if callable(rate) else rate


def _times(rate: Rate, factor: float) -> Rate:
    return (lambda t: factor * _at(rate, t)) if callable(rate) else factor * rate


def _product(a: Rate, b: Rate) -> Rate:
    return lambda t: _at(a, t) * _at(b, t)


def _sum(a: Rate, b: Rate) -> Rate:
    return lambda t: _at(a, t) + _at(b, t)


def _words(numbers: Iterable[object]) -> str:
    return " ".join(map(str, numbers))


def _head_of_cpus(cpus: int) -> str:
    return " " * 11 + " ".join(f"{f'CPU{cpu}':<10}" for cpu in range(cpus))


def _split_counts(line: str, count: int) -> tuple[list[int], str]:
    """The counts of a line of /proc/interrupts, and what follows them. ERR and MIS have one."""
    words = line.partition(":")[2].split(maxsplit=count)
    counts = [int(word) for word in words[:count] if word.isdigit()]
    return counts, words[count].rstrip() if len(words) > count else ""


def _line_of_counts(irq: str, counts: list[int], rest: str) -> str:
    return f"{irq:>4}: {' '.join(f'{number:>10}' for number in counts)}{f'  {rest}' if rest else ''}"


def _resized(line: str, count: int, cpus: int) -> str:
    counts, rest = _split_counts(line, count)
    irq = line.partition(":")[0].strip()
    if len(counts) > 1:
        per_cpu = not irq.isdigit()
        counts = [*counts[:cpus], *([counts[0] if per_cpu else 0] * (cpus - len(counts)))]
    return _line_of_counts(irq, counts, rest)
