"""What a host can carry: from what was measured on it, and where nothing was, from its facts, said to be so.

``limit`` is the most of a resource; the ``knee`` is the share of it up to which requests do not wait much
longer than they are served, or, from a sweep, up to which its objective held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.errors import StoreError
from headrace.base.intervals import Interval
from headrace.base.received import parsed
from headrace.base.whole import read_plain
from headrace.capacity.model import Capacity, Resource

if TYPE_CHECKING:
    from headrace.experiment.stats.sweep_result import Sweep
    from headrace.experiment.store import ExperimentFolder
    from headrace.host.facts import HostFacts

#: How often waiting may last as long as being served at the knee: the interval's ends, and its middle.
WAITS = (0.5, 1.0, 2.0)
#: A sweep that ends below this share of the usual knee was not limited by this resource.
FAR = 0.5
#: Knees that no queue explains, with their reason.
STOCKS = {
    Resource.MEMORY: (
        0.90,
        0.85,
        0.95,
    ),  # the rest is for page tables, connections and the page cache's floor
    Resource.SPACE: (0.85, 0.80, 0.90),  # file systems slow down, and an online ALTER needs a copy
}
#: How a limit that is a lower bound is said to be known.
AT_LEAST = "at least, "
#: A rung of `headrace latencies` -> the resource whose rate it bounds, and whether it was measured with many at
#: a time.
_RUNGS = {
    "device_read_32": (Resource.READS, 1.0, True),
    "device_read": (Resource.READS, 1.0, False),
    "device_write": (Resource.WRITES, 1.0, False),
    "device_1mb": (Resource.READ_BYTES, float(1 << 20), False),
}


@dataclass(frozen=True)
class Known:
    """A capacity, and where each part of it comes from: "measured: ...", "seen: ..." or "assumed: ..."."""

    capacity: Capacity
    limit_from: Mapping[Resource, str] = field(default_factory=dict)
    knee_from: Mapping[Resource, str] = field(default_factory=dict)
    #: The largest number of calls per second that kept the objective, from a sweep.
    ops_s: Interval | None = None
    objective: str = ""
    notes: tuple[str, ...] = ()

    def is_at_least(self, resource: Resource) -> bool:
        """Whether the limit is a lower bound."""
        return self.limit_from.get(resource, "").startswith(AT_LEAST)

    def full_at(self, resource: Resource) -> Interval | None:
        """Use at which the knee is reached; the interval is of both limits."""
        limit, knee = self.capacity.limit.get(resource), self.capacity.knee.get(resource)
        if limit is None or knee is None:
            return None
        ends = [
            (a if a is not None else limit.estimate) * (b if b is not None else knee.estimate)
            for a, b in ((limit.low, knee.low), (limit.high, knee.high))
        ]
        return Interval(limit.estimate * knee.estimate, ends[0], ends[1])


def exactly(value: float) -> Interval:
    return Interval(value, value, value)


def times(found: Interval, factor: float) -> Interval:
    low, high = found.low, found.high
    return Interval(
        found.estimate * factor,
        None if low is None else low * factor,
        None if high is None else high * factor,
    )


def known(
    name: str,
    seen: Mapping[Resource, float],
    facts: HostFacts | None = None,
    ladder: Mapping[str, Any] | None = None,
    sweep: Known | None = None,
    given: Mapping[Resource, float] | None = None,
) -> Known:
    """A host's capacity. A limit is the first that is known: given, of a ladder, of facts, of its samples, of a
    sweep's samples. The knee of what a sweep filled is the sweep's; all others are those of a queue.
    """
    notes: list[str] = []
    limit, said = _limits(seen, facts, ladder, sweep, given or {}, notes)
    servers = {Resource.CPU: limit[Resource.CPU].estimate} if Resource.CPU in limit else {}
    if ladder is not None:
        servers[Resource.READS] = _parallel(ladder)
    knees, why = _assumed_knees(limit, servers)
    if sweep is not None:
        notes += sweep.notes
        for resource, found in sweep.capacity.knee.items():
            if resource in limit:
                knees[resource], why[resource] = found, sweep.knee_from[resource]
    return Known(
        Capacity(name, limit, knees), said, why,
        sweep.ops_s if sweep else None, sweep.objective if sweep else "", tuple(notes),
    )  # fmt: skip


def _limits(
    seen: Mapping[Resource, float],
    facts: HostFacts | None,
    ladder: Mapping[str, Any] | None,
    sweep: Known | None,
    given: Mapping[Resource, float],
    notes: list[str],
) -> tuple[dict[Resource, Interval], dict[Resource, str]]:
    limit = {r: exactly(v) for r, v in seen.items() if v > 0}
    said = dict.fromkeys(limit, "seen in the samples")
    if facts is not None:
        for resource, value in _of_facts(facts).items():
            limit[resource], said[resource] = exactly(value), "the host's facts"
    if ladder is not None:
        for resource, found, how in _of_ladder(ladder, notes):
            limit[resource], said[resource] = found, how
        packets = _of_packets(ladder, notes)
        if packets is not None:
            limit[Resource.PACKETS], said[Resource.PACKETS] = packets
    if sweep is not None:
        for resource, found in sweep.capacity.limit.items():
            if resource not in limit:
                limit[resource], said[resource] = found, sweep.limit_from[resource]
    for resource, value in given.items():
        limit[resource], said[resource] = exactly(value), "given"
    return limit, said


def waiting(utilisation: float, servers: float) -> float:
    """How many times as long as it is served a request to ``servers`` equal servers waits; below 1.

    For an M/M/c queue, by Sakasegawa 1977, An approximation formula Lq = a rho^b / (1 - rho), Ann. Inst.
    Stat. Math. 29.
    """
    return float(utilisation ** (np.sqrt(2 * (servers + 1)) - 1) / (servers * (1 - utilisation)))


def assumed_knee(servers: float, waits: float = 1.0) -> float:
    """The utilisation at which requests wait ``waits`` times as long as they are served."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if waiting(middle, servers) < waits else (low, middle)
    return low


def queue_knee(servers: float) -> Interval:
    low, middle, high = (assumed_knee(servers, waits) for waits in WAITS)
    return Interval(middle, low, high)


def _assumed_knees(
    limit: Mapping[Resource, Interval], servers: Mapping[Resource, float]
) -> tuple[dict[Resource, Interval], dict[Resource, str]]:
    """``servers``: how many requests a resource serves at a time; 1 if that is not known."""
    knees: dict[Resource, Interval] = {}
    why: dict[Resource, str] = {}
    for resource in limit:
        if resource in STOCKS:
            knees[resource] = Interval(*STOCKS[resource])
            why[resource] = "assumed: the rest is reserve"
            continue
        count = max(servers.get(resource, 1.0), 1.0)
        knees[resource] = queue_knee(count)
        queue = f"a queue of {count:.3g} server{'' if count == 1 else 's'}"
        why[resource] = f"assumed: {queue}, where waiting takes as long as service (half to twice)"
    return knees, why


def _of_facts(facts: HostFacts) -> dict[Resource, float]:
    """Cores and memory. The size of disks is no limit of a file system, which the samples know."""
    return {
        Resource.CPU: float(facts.cpu_count),
        Resource.SOFTIRQ: 1.0,
        Resource.MEMORY: float(facts.memory_bytes),
    }


def _of_ladder(content: Mapping[str, Any], notes: list[str]) -> Iterable[tuple[Resource, Interval, str]]:
    """From ``headrace latencies --json``. A rung with many at a time is the limit; one at a time is less than
    it.
    """
    done: set[Resource] = set()
    rows = {row.get("rung"): row for row in _rows(content)}
    for rung, (resource, unit, is_many) in _RUNGS.items():
        row = rows.get(rung)
        if row is None or resource in done:
            continue
        try:
            fast, middle, slow = (float(row[key]) for key in ("low_ns", "median_ns", "high_ns"))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"its row {rung} is damaged: {error!r}") from error
        if min(fast, middle, slow) <= 0:
            continue
        done.add(resource)
        how = "measured by ladder" if is_many else f"{AT_LEAST}measured by ladder, one at a time"
        if row.get("spoiled_by"):
            notes.append(f"ladder's {rung} is doubtful: {'; '.join(map(str, row['spoiled_by']))}")
        yield resource, Interval(unit * 1e9 / middle, unit * 1e9 / slow, unit * 1e9 / fast), how


def _of_packets(content: Mapping[str, Any], notes: list[str]) -> tuple[Interval, str] | None:
    """From ``headrace latencies --packets --json``: the size with the fewest packets, as the host is set now.

    What was measured with RPS is said in ``notes``: it is the limit of another setting.
    """
    try:
        least: dict[str, Mapping[str, Any]] = {}
        for row in content.get("packets", ()):
            known = least.setdefault(row["rps"], row)
            if float(row["packets_s"]["estimate"]) < float(known["packets_s"]["estimate"]):
                least[row["rps"]] = row
        for rps, row in least.items():
            if rps:
                notes.append(_with_rps(rps, row))
        if "" not in least:
            return None
        rate, (request, reply) = least[""]["packets_s"], least[""]["size"]
        found = Interval(float(rate["estimate"]), rate["low"], rate["high"])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"its packets are damaged: {error!r}") from error
    how = f"{AT_LEAST}by ladder --packets: one core with both ends, {request}/{reply} B, without a card"
    return found, how


def _with_rps(rps: str, row: Mapping[str, Any]) -> str:
    rate, (request, reply) = row["packets_s"], row["size"]
    ends = "" if rate["low"] is None else f" ({rate['low']:,.0f} to {rate['high']:,.0f})"
    return (
        f"with RPS {rps}, ladder --packets measured {rate['estimate']:,.0f} packets/s{ends}, {request}/{reply} B: "
        "still a lower bound on a host with more queues, and not the limit as it is set now"
    )


def _parallel(content: Mapping[str, Any]) -> float:
    """How many reads the device serves at a time: one alone takes so many times longer than one of many."""
    rows = {row.get("rung"): row for row in _rows(content)}
    one, many = (rows.get(rung, {}).get("median_ns") for rung in ("device_read", "device_read_32"))
    return max(float(one) / float(many), 1.0) if one and many else 1.0


def _rows(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = content.get("rungs")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise StoreError("this is not the output of `headrace latencies --json`")
    return rows


def laid_over(contents: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Merge several outputs of ``headrace latencies --json``: of what two of them measured, the later counts."""
    if not contents:
        return None
    rungs: list[Mapping[str, Any]] = []
    for content in contents:
        later = _rows(content)
        measured = {_RUNGS[row["rung"]][0] for row in later if row.get("rung") in _RUNGS}
        # A rung of the earlier one would otherwise win as the better one of its resource.
        rungs = [row for row in rungs if _RUNGS.get(row.get("rung", ""), (None,))[0] not in measured] + later
    packets = [content["packets"] for content in contents if content.get("packets")]
    return {"rungs": rungs, **({"packets": packets[-1]} if packets else {})}


def read_ladder(path: Path) -> Mapping[str, Any]:
    content = read_json(path)
    _rows(content)
    return content


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = parsed(read_plain(path))
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot be read: {error}", place=str(path)) from error
    if not isinstance(content, dict):
        raise StoreError("this is not an object of JSON", place=str(path))
    return content


# A sweep: where the objective, or the growth of throughput, ended, and how much of each resource was used
# there.


def of_sweep(path: Path) -> Known:
    """From the folder of a finished sweep: its samples tell the use of each resource at the knee.

    From its report.json alone only the calls per second are known.
    """
    if path.is_file():
        return _of_report(read_json(path), str(path))
    from headrace.experiment.stats.sweep import analyse_sweep
    from headrace.experiment.store import ExperimentFolder

    folder = ExperimentFolder.open(path)
    return _of_folder(folder, analyse_sweep(folder))


def _of_report(content: Mapping[str, Any], place: str) -> Known:
    try:
        answers, knee = content["objectives"], content["knee"]
        by_load = {row["load"]: row["throughput_ops_s"] for row in content["levels"]}
        held = next((a for a in answers if a["holds"] is not None), None)
        rate = by_load[held["holds"]] if held else knee["ops_s"] if knee else None
        if rate is None:
            raise StoreError(
                "the sweep found neither a knee nor a level that kept its objective", place=place
            )
        ops_s = Interval(float(rate["estimate"]), rate["low"], rate["high"])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"this is not the report.json of a sweep: {error!r}", place=place) from error
    objective = (
        f"{held['percentile']} within {held['limit_ns'] / 1e6:g} ms" if held else "the knee of throughput"
    )
    note = "give the sweep's directory instead of its report.json: its samples tell the use of each resource"
    return Known(Capacity("sweep", {}), ops_s=ops_s, objective=objective, notes=(note,))


def _of_folder(folder: ExperimentFolder, sweep: Sweep) -> Known:
    place = str(folder.path)
    answer = next((a for a in sweep.answers if a.holds is not None), None)
    if answer is not None:
        at, beyond = answer.holds, answer.fails
        ops_s, objective = answer.ops_s, str(answer.objective)
    elif sweep.knee is not None:
        at, ops_s, objective = sweep.knee.load, sweep.knee.ops_s, "the knee of throughput"
        beyond = next((level.load for level in sweep.levels if level.load > sweep.knee.load), None)
    else:
        raise StoreError("the sweep found neither a knee nor a level that kept its objective", place=place)
    below = {level.load: level.trials for level in sweep.levels}
    seen, limits = _use(folder, below.get(at, ()) if at is not None else ())
    over, _ = _use(folder, below.get(beyond, ()) if beyond is not None else ())
    knees, why, notes = {}, {}, []
    if seen:
        usual = {r: queue_knee(limits[r] if r is Resource.CPU else 1.0).estimate for r in seen}
        first = max(seen, key=lambda r: float(np.mean(seen[r])) / usual[r])
        middle = float(np.mean(seen[first]))
        after = float(np.mean(over[first])) if first in over else middle
        # The others had room left there: their use at this load is no knee of theirs.
        knees[first] = Interval(middle, min(*seen[first], middle), max(*seen[first], after, middle))
        why[first] = f"measured by sweep: {objective}"
        if middle < FAR * usual[first]:
            notes.append(
                f"the sweep ended at {middle:.0%} of {first}, so something else limits: a device, or locks; "
                f"its use of {first} is only a measure of the load"
            )
    limit = {r: exactly(value) for r, value in limits.items()}
    if beyond is None:
        notes.append("the sweep did not reach a level that failed: the knee may be higher")
    return Known(
        Capacity(folder.design.name, limit, knees), dict.fromkeys(limit, "seen in the sweep"), why,
        ops_s, objective, tuple(notes),
    )  # fmt: skip


def _use(
    folder: ExperimentFolder, trials: Sequence[int]
) -> tuple[dict[Resource, list[float]], dict[Resource, float]]:
    """The share of each limit that the trials used, one value per trial; and the limits."""
    from headrace.capacity.used import of_window
    from headrace.host.facts import HostFacts
    from headrace.host.snapshot import of_trial
    from headrace.host.window import Window

    found: dict[Resource, list[float]] = {}
    limit: dict[Resource, float] = {}
    for number in trials:
        snapshot = of_trial(folder.trial_path(number))
        use, limits = of_window(Window(snapshot.samples), HostFacts(snapshot.facts))
        limit.update(limits)
        for resource in (Resource.CPU, Resource.SOFTIRQ):
            if resource in use and limits.get(resource):
                found.setdefault(resource, []).append(use[resource] / limits[resource])
    return found, limit
