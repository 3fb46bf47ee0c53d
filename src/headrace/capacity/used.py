"""What a host used of each resource over time, from raw counters: the one place with these formulas.

`headrace serve` keeps the result of each minute, `headrace size` computes it of samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from headrace.capacity.model import Resource
from headrace.host.devices import SECTOR_BYTES
from headrace.host.window import NEVER_RESET, RESET_SHARE, SUCCESS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.host.facts import HostFacts
    from headrace.host.samples import Samples
    from headrace.host.window import Window

    Floats = NDArray[np.float64]


class Part(StrEnum):
    """Parts of the CPU's time, in cores, and of a device's writes; and what is no resource."""

    USER = "cpu_user"
    SYSTEM = "cpu_system"
    SOFTIRQ = "cpu_softirq"  # of all cores, where Resource.SOFTIRQ is of the busiest
    SERVER = "cpu_server"  # the server's processes
    PAGE_WRITES = "page_writes"  # pages of data that InnoDB wrote, per second
    PAGE_BYTES = "page_bytes"  # of those, with their copies in the doublewrite buffer
    WATTS = "watts"  # of processors and their memory, where the host counts them (RAPL)


#: Metrics of the history that hold the results below, by resource or part.
DEMAND, LIMIT = "demand", "limit"
#: Digests that one sample of ``statements`` holds: fewer means that it holds all.
MOST_DIGESTS = 50
#: A distance of samples that is this many times the usual one is a gap.
GAP = 3.0
#: And so many times, a sample was missed.
MISSED = 1.6
#: A step of which less than this share was watched is unknown.
WATCHED = 0.5
#: Devices and interfaces that only pass on to others, by name: used if the host's facts are not known.
PARTITION = re.compile(r"(?:(?:sd|vd|xvd|hd)[a-z]+\d+|(?:nvme\d+n\d+|mmcblk\d+|loop\d+|nbd\d+)p\d+)")
STACKED = re.compile(r"(?:loop|ram|dm-|md|zram|sr|fd)\d.*")
INNER = re.compile(r"lo|(?:ifb|dummy|veth|docker|br|virbr|bond|team|tun|tap|cni|flannel|cali).*|.*\.\d+")
#: USER_HZ, in which the kernel tells a process's time: proc_pid_stat(5).
TICKS_S = 100.0
SERVERS = ("mysqld", "mariadbd", "memcached")
_WORKING = ("user", "nice", "system", "irq", "softirq")
_STATES = (*_WORKING, "idle", "iowait", "steal")


class Counters(Protocol):
    """Rates and gauges in steps; None for what has none."""

    @property
    def steps(self) -> int: ...

    def labels(self, sampler: str, metric: str) -> list[str]: ...

    def rate(self, sampler: str, metric: str, label: str = "") -> Floats | None: ...

    def gauge(self, sampler: str, metric: str, label: str = "") -> Floats | None: ...


class OverTime:
    """Counters and gauges of samples in steps. ``edges_s``: shape (n + 1,), seconds since 1970.

    What was not watched for most of a step is NaN there. A counter that was reset grew from 0.
    """

    def __init__(self, samples: Samples, edges_s: Floats) -> None:
        self.edges_s = edges_s
        self._samples = samples
        self._index: dict[tuple[str, str], dict[str, int]] = {}
        for number, (sampler, metric, label) in enumerate(samples.names):
            self._index.setdefault((sampler, metric), {})[label] = number
        self._ends = samples.ends

    @property
    def steps(self) -> int:
        return len(self.edges_s) - 1

    def labels(self, sampler: str, metric: str) -> list[str]:
        return list(self._index.get((sampler, metric), ()))

    @property
    def metrics(self) -> list[tuple[str, str]]:
        """(sampler, metric)."""
        return list(self._index)

    def ticks_s(self, sampler: str) -> Floats:
        """When it was sampled."""
        found = self._of(sampler, SUCCESS, "")
        return np.empty(0) if found is None else found[0]

    def rate(self, sampler: str, metric: str, label: str = "") -> Floats | None:
        """Growth per second in each step; None without two samples."""
        found = self._of(sampler, metric, label)
        return None if found is None else self._growth(*found, GAP, sampler not in NEVER_RESET)

    def counted(self, sampler: str, metric: str, label: str, most: int) -> Floats | None:
        """The same of a counter that is listed only while it is among the ``most`` busiest, and seldom
        sampled.

        One that appears later starts from 0 if the list was not full. Time without its samples is unknown: as
        long as a step, it would smear one step over its neighbours.
        """
        found = self._of(sampler, metric, label)
        if found is None:
            return None
        t, value = found
        before = self.ticks_s(sampler)
        before = before[before < t[0]]
        if len(before) and len(self.labels(sampler, metric)) < most:
            t, value = np.append(before[-1], t), np.append(0.0, value)
        return self._growth(t, value, MISSED, True)

    def _growth(self, t: Floats, value: Floats, gap: float, may_reset: bool) -> Floats | None:
        if len(t) < 2:
            return None
        width = np.diff(t)
        before, after = value[:-1], value[1:]
        is_reset = (after < RESET_SHARE * before) & may_reset
        with np.errstate(invalid="ignore"):  # damaged values may be infinite
            grown = np.maximum(np.where(is_reset, after, after - before), 0.0)
        is_known = (width > 0) & (width <= gap * usual(t))
        growth = np.append(0.0, np.cumsum(np.where(is_known, grown, 0.0)))
        watched = np.append(0.0, np.cumsum(np.where(is_known, width, 0.0)))
        seconds = np.diff(np.interp(self.edges_s, t, watched))
        total = np.diff(np.interp(self.edges_s, t, growth))
        enough = seconds >= WATCHED * np.diff(self.edges_s)
        return np.where(enough, total / np.where(enough, seconds, 1.0), np.nan)

    def gauge(self, sampler: str, metric: str, label: str = "") -> Floats | None:
        """The mean of each step; in one without a sample, the last sample as long as none was missed."""
        found = self._of(sampler, metric, label)
        if found is None:
            return None
        t, value = found
        at = np.searchsorted(self.edges_s, t, side="right") - 1
        at[t == self.edges_s[-1]] = self.steps - 1
        inside = (at >= 0) & (at < self.steps)
        counts = np.bincount(at[inside], minlength=self.steps)
        sums = np.bincount(at[inside], weights=value[inside], minlength=self.steps)
        middle = (self.edges_s[:-1] + self.edges_s[1:]) / 2
        last = np.searchsorted(t, middle, side="right") - 1
        holds = (last >= 0) & (middle - t[last] <= MISSED * usual(t))
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.where(holds, value[last], np.nan))

    def _of(self, sampler: str, metric: str, label: str) -> tuple[Floats, Floats] | None:
        number = self._index.get((sampler, metric), {}).get(label)
        if number is None:
            return None
        part = slice(self._samples.starts[number], self._ends[number])
        return self._samples.t_ns[part] / 1e9, self._samples.value[part]


def usual(t: Floats) -> float:
    """The usual distance of samples: of those that are there twice, as in a copied file, none."""
    apart = np.diff(t)
    apart = apart[apart > 0]
    return float(np.median(apart)) if len(apart) else 0.0


def used(over: Counters, facts: HostFacts | None = None) -> dict[str, Floats]:
    """Resource or part of CPU -> its use in each step. What was not sampled is absent."""
    return {str(name): values for name, values in _used(over, facts) if values is not None}


def limits(over: Counters) -> dict[Resource, float]:
    """What the counters themselves tell of the host's limits: cores, memory, the fullest file system."""
    found = {}
    if cores := _cores(over):
        found[Resource.CPU] = float(len(cores))
        found[Resource.SOFTIRQ] = 1.0
    for resource, values in (
        (Resource.MEMORY, over.gauge("memory", "MemTotal")),
        (Resource.SPACE, over.gauge("file_systems", "size_bytes", _fullest(over))),
    ):
        if values is not None and np.isfinite(values).any():
            found[resource] = float(values[np.isfinite(values)][-1])
    return found


def _used(over: Counters, facts: HostFacts | None) -> Iterator[tuple[str, Floats | None]]:
    yield from _cpu(over)
    nics = _interfaces(over, facts)
    yield Resource.PACKETS, _sum(over, "network", ("rx_packets", "tx_packets"), nics)
    disks = _disks(over, facts)
    yield Resource.READS, _sum(over, "disk", ("reads",), disks)
    yield Resource.WRITES, _sum(over, "disk", ("writes",), disks)
    for name, metric in (
        (Resource.READ_BYTES, "sectors_read"),
        (Resource.WRITE_BYTES, "sectors_written"),
    ):
        sectors = _sum(over, "disk", (metric,), disks)
        yield name, None if sectors is None else sectors * SECTOR_BYTES
    yield (
        Resource.LOG_BYTES,
        _added(over.rate("mysql_status", name) for name in ("innodb_os_log_written", "binlog_bytes_written")),
    )
    pages, copies = (
        over.rate("mysql_status", f"innodb_{name}") for name in ("pages_written", "dblwr_pages_written")
    )
    yield Part.PAGE_WRITES, pages
    size = over.gauge("mysql_status", "innodb_page_size")
    yield (
        Part.PAGE_BYTES,
        None if pages is None or copies is None or size is None else size * (pages + copies),
    )
    # Where the counter wraps, every 20 minutes or so, one sample's energy is lost.
    energy = _sum(over, "powercap", ("energy_uj",), over.labels("powercap", "energy_uj"))
    yield Part.WATTS, None if energy is None else energy / 1e6
    total, available = (over.gauge("memory", name) for name in ("MemTotal", "MemAvailable"))
    yield Resource.MEMORY, None if total is None or available is None else total - available
    mount = _fullest(over)
    size, left = (over.gauge("file_systems", name, mount) for name in ("size_bytes", "available_bytes"))
    yield Resource.SPACE, None if size is None or left is None else size - left


def _cores(over: Counters) -> list[str]:
    return [name for name in over.labels("cpu", "user") if name != "all"]


def _cpu(over: Counters) -> Iterator[tuple[str, Floats | None]]:
    cores = _cores(over)
    share = _shares(over, "all")
    if share and cores:
        yield Resource.CPU, len(cores) * np.sum([share[state] for state in _WORKING], axis=0)
        yield Part.USER, len(cores) * (share["user"] + share["nice"])
        yield Part.SYSTEM, len(cores) * share["system"]
        yield Part.SOFTIRQ, len(cores) * (share["softirq"] + share["irq"])
        own = [part["softirq"] + part["irq"] for core in cores if (part := _shares(over, core))]
        yield Resource.SOFTIRQ, _quietly(np.nanmax, own) if own else None
    yield Part.SERVER, _server(over)


def _server(over: Counters) -> Floats | None:
    names = [name for name in over.labels("process", "utime_ticks") if name.partition("/")[2] in SERVERS]
    known = _ticks(over, names)
    if not known:
        return None
    # Calls are counted on one server: with several at a time, as in tests, nothing tells which is its process.
    alone = np.isfinite(np.array(known)).sum(axis=0) <= 2
    return np.where(alone, _quietly(np.nansum, known) / TICKS_S, np.nan)


def of_process(over: Counters, pid: int) -> Floats | None:
    """Cores that a process uses, by its number."""
    names = [name for name in over.labels("process", "utime_ticks") if name.partition("/")[0] == str(pid)]
    known = _ticks(over, names)
    return _quietly(np.nansum, known) / TICKS_S if known else None


def _ticks(over: Counters, names: list[str]) -> list[Floats]:
    rates = [over.rate("process", f"{kind}_ticks", name) for name in names for kind in ("utime", "stime")]
    return [rate for rate in rates if rate is not None]


def _quietly(how: Callable[..., Floats], rows: list[Floats]) -> Floats:
    """Over rows; NaN only where all are."""
    stacked = np.array(rows)
    known = np.isfinite(stacked).any(axis=0)
    found = np.full(stacked.shape[1], np.nan)
    found[known] = how(stacked[:, known], axis=0)
    return found


def _shares(over: Counters, core: str) -> dict[str, Floats]:
    rates = {state: over.rate("cpu", state, core) for state in _STATES}
    if rates["user"] is None:
        return {}
    known = {state: np.zeros(over.steps) if rate is None else rate for state, rate in rates.items()}
    total = np.sum(list(known.values()), axis=0)
    return {state: rate / np.where(total > 0, total, np.nan) for state, rate in known.items()}


def _sum(over: Counters, sampler: str, metrics: tuple[str, ...], labels: list[str]) -> Floats | None:
    rates = [over.rate(sampler, metric, label) for metric in metrics for label in labels]
    known = [rate for rate in rates if rate is not None]
    return _quietly(np.nansum, known) if known else None


def _added(rates: Iterator[Floats | None]) -> Floats | None:
    known = [rate for rate in rates if rate is not None]
    return np.sum(known, axis=0) if known else None


def _interfaces(over: Counters, facts: HostFacts | None) -> list[str]:
    names = over.labels("network", "rx_packets")
    if facts is not None:
        physical = {str(nic["name"]) for nic in facts.network_interfaces if nic.get("physical")}
        if own := [name for name in names if name in physical]:
            return own
    outer = [name for name in names if not INNER.fullmatch(name)]
    return outer or [name for name in names if name != "lo"] or names


def _disks(over: Counters, facts: HostFacts | None) -> list[str]:
    names = over.labels("disk", "reads")
    if facts is not None:
        records = {name: facts.block_device(name) for name in names}
        own = [n for n, r in records.items() if r and r.get("kind") == "disk" and not r.get("slaves")]
        if own:
            return own
    whole = [name for name in names if not PARTITION.fullmatch(name)]
    return [name for name in whole if not STACKED.fullmatch(name)] or whole


def _fullest(over: Counters) -> str:
    """The mount point with the smallest share left at the end."""

    def left(mount: str) -> float:
        size, available = (
            over.gauge("file_systems", name, mount) for name in ("size_bytes", "available_bytes")
        )
        if size is None or available is None:
            return np.inf
        share = (available / np.where(size > 0, size, np.nan))[np.isfinite(available)]
        return float(share[-1]) if len(share) and np.isfinite(share[-1]) else np.inf

    return min(over.labels("file_systems", "size_bytes"), key=left, default="")


class _Whole:
    """A window as one step."""

    steps = 1

    def __init__(self, window: Window) -> None:
        self._window = window

    def labels(self, sampler: str, metric: str) -> list[str]:
        return self._window.labels(sampler, metric)

    def rate(self, sampler: str, metric: str, label: str = "") -> Floats | None:
        found = self._window.rate(sampler, metric, label)
        return None if found is None else np.array([found])

    def gauge(self, sampler: str, metric: str, label: str = "") -> Floats | None:
        found = self._window.gauge(sampler, metric, label)
        return None if found is None else np.array([found.mean])


def of_window(
    window: Window, facts: HostFacts | None = None
) -> tuple[dict[str, float], dict[Resource, float]]:
    """Use, and limits, over a window as one step."""
    whole = _Whole(window)
    found = {name: float(values[0]) for name, values in used(whole, facts).items()}
    return {name: value for name, value in found.items() if np.isfinite(value)}, limits(whole)
