"""How many packets per second a path carries: limits over rounds, and a cost per packet and per byte."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.base.errors import StoreError
from headrace.base.intervals import Interval, geometric

#: A rate is sustained if this share of what was offered is answered.
ANSWERED = 0.99

Size = tuple[int, int]


@dataclass(frozen=True)
class Core:
    """What a core of the server's host did in a step, as shares of the step."""

    name: str
    softirq: float
    busy: float


@dataclass(frozen=True)
class Step:
    """One rate in one round. ``share`` None: requests followed replies without a limit."""

    round: int
    rps: str
    size: Size
    share: float | None
    #: Requests per second that were offered (None without a limit) and answered.
    offered_s: float | None
    answered_s: float
    #: Received and sent by the server's interface per second.
    packets_s: float
    p50_ns: float | None
    p99_ns: float | None
    cores: tuple[Core, ...]
    #: Packets: dropped by a core's queue or the interface, by a full socket; and how often a core ended early.
    dropped: int
    socket_full: int
    squeezed: int
    #: What interrupting another core took in this round, there and back.
    interrupt_ns: float | None = None
    #: CPU time of both ends, in cores.
    own: float | None = None


@dataclass(frozen=True)
class Limit:
    """The limit for one size: one value per round. ``knee`` is the share of it that was still answered."""

    rps: str
    size: Size
    packets_s: Interval
    knee: float | None
    rounds: int


def steps_of(rows: Iterable[Mapping[str, Any]], number: int, rps: str) -> list[Step]:
    """The steps of one round as the agent printed them. Raises StoreError if they are damaged or incomplete."""
    try:
        found = list(rows)
        if not found or found[-1]["kind"] != "end":
            raise StoreError("the round has no end")
        interrupt_ns = found[0].get("interrupt_ns")
        return [_step(row, number, rps, interrupt_ns) for row in found if row["kind"] == "step"]
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise StoreError(f"these are not the lines of a measurement of packets: {error!r}") from error


def _step(row: Mapping[str, Any], number: int, rps: str, interrupt_ns: float | None) -> Step:
    before, after = row["server"]
    seconds = (after["t_ns"] - before["t_ns"]) / 1e9

    def grown(sampler: str, metric: str, label: str) -> int:
        now, then = (each.get(sampler, {}).get(metric, {}).get(label, 0) for each in (after, before))
        return int(now) - int(then)

    nic = after["interface"]
    names = [name for name in after["cpu"]["user"] if name != "all"]
    cores = []
    for name in names:
        time = {state: grown("cpu", state, name) for state in after["cpu"] if name in after["cpu"][state]}
        total = sum(time[s] for s in time if s not in ("guest", "guest_nice"))
        softirq = time.get("softirq", 0) + time.get("irq", 0)
        busy = total - time.get("idle", 0) - time.get("iowait", 0)
        if total > 0:
            cores.append(Core(name, softirq / total, busy / total))
    return Step(
        number, rps, (int(row["request_bytes"]), int(row["reply_bytes"])), row["share"], row["offered_s"],
        row["answered"] / row["seconds"],
        (grown("network", "rx_packets", nic) + grown("network", "tx_packets", nic)) / seconds,
        _percentile(row["latency"]["buckets"], 0.5), _percentile(row["latency"]["buckets"], 0.99),
        tuple(cores),
        sum(grown("softnet", "dropped", name) for name in names) + grown("network", "rx_dropped", nic),
        grown("snmp", "Udp.RcvbufErrors", ""),
        sum(grown("softnet", "time_squeeze", name) for name in names),
        interrupt_ns, _own(row),
    )  # fmt: skip


def _own(row: Mapping[str, Any]) -> float | None:
    """None from an agent that does not count it."""
    ends = [row.get(end, ()) for end in ("client", "server")]
    if not all(end and all("own_cpu_ns" in counted for counted in end) for end in ends):
        return None
    used = 0.0
    for before, after in ends:
        used += (after["own_cpu_ns"] - before["own_cpu_ns"]) / (after["t_ns"] - before["t_ns"])
    return used


def _percentile(buckets: Sequence[Sequence[int]], share: float) -> float | None:
    from headrace.base.buckets import bucket_value

    total = sum(count for _, count in buckets)
    reached = 0
    for bucket, count in buckets:
        reached += count
        if reached >= share * total:
            return float(bucket_value(int(bucket)))
    return None


def limits(steps: Sequence[Step], alpha: float = 0.05) -> list[Limit]:
    """Each size's limit with and without RPS, in the order in which they were measured.

    A round is the unit: its limit is what was answered without a limit of the rate, two packets a request.
    """
    found = []
    for rps, size in dict.fromkeys((step.rps, step.size) for step in steps):
        own = [step for step in steps if (step.rps, step.size) == (rps, size)]
        most = {step.round: 2 * step.answered_s for step in own if step.share is None and step.answered_s > 0}
        if not most:
            continue
        interval = geometric({number: math.log(value) for number, value in most.items()}, alpha)
        found.append(Limit(rps, size, interval, _knee(own), len(most)))
    return found


def _knee(steps: Sequence[Step]) -> float | None:
    """The highest share that was answered in every round, with all below it."""
    knee = None
    for share in sorted({step.share for step in steps if step.share is not None}):
        at = [step for step in steps if step.share == share and step.offered_s]
        if any(step.answered_s < ANSWERED * (step.offered_s or 0.0) for step in at):
            break
        knee = share
    return min(knee, 1.0) if knee is not None else None


@dataclass(frozen=True)
class Model:
    """Seconds of the path's narrowest part: per packet, and per byte of payload; both at least 0."""

    packet_s: float
    byte_s: float

    def packets_s(self, size: Size) -> float:
        return 2 / (2 * self.packet_s + self.byte_s * sum(size))


def fit(limits: Sequence[Limit]) -> Model:
    """Least squares of relative errors; from one size bytes cost nothing."""
    time = np.array([2 / each.packets_s.estimate for each in limits])
    bytes_ = np.array([float(sum(each.size)) for each in limits])
    if len(set(bytes_)) > 1:
        columns = np.column_stack([2 / time, bytes_ / time])
        (packet_s, byte_s), *_ = np.linalg.lstsq(columns, np.ones(len(time)), rcond=None)
        if packet_s > 0 and byte_s > 0:
            return Model(float(packet_s), float(byte_s))
    return Model(float(np.exp(np.mean(np.log(time))) / 2), 0.0)


def errors(limits: Sequence[Limit]) -> tuple[dict[Size, float], dict[tuple[Size, Size], float]]:
    """How far predictions are off: each size from all others, and (from, of) each from one other size."""
    left_out, single = {}, {}
    for each in limits:
        others = [other for other in limits if other is not each]
        if others:
            left_out[each.size] = fit(others).packets_s(each.size) / each.packets_s.estimate - 1
        for other in others:
            single[other.size, each.size] = fit([other]).packets_s(each.size) / each.packets_s.estimate - 1
    return left_out, single
