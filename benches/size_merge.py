"""1,000 databases onto about 200 hosts: how far the plan is from the bound after a minute.

Each database has CPU, packets, reads, writes and memory over 14 days in steps of an hour, with its own time of
day, weekends, noise and bursts; 60% are in groups of three, and any one host may fail. The peer is the sum of
each database's own peaks, packed first-fit decreasing: what a spreadsheet does.

Target: within 2% of the bound in 60 s. A miss is reported, and fails nothing: the bound knows neither that each
host has its own worst hour nor that databases cannot be cut, so how much of the gap is real is not known.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from headrace.capacity import merge
from headrace.capacity.clock import Clock
from headrace.capacity.model import Demand, Resource
from headrace.capacity.placement import Kind, Problem, problem
from headrace.capacity.rows import rows_of
from headrace.capacity.together import together

MINUTES = 3
TARGET = 0.02
DATABASES = 1000
DAYS = 14
#: Sized for about 200 hosts.
HOST = {
    Resource.CPU: 13.0,
    Resource.PACKETS: 190_000.0,
    Resource.READS: 24_000.0,
    Resource.WRITES: 12_000.0,
    Resource.MEMORY: 400e9,
}


def demands(count: int, seed: int, noise: float = 0.03) -> list[Demand]:
    random = np.random.default_rng(seed)
    hours = np.arange(DAYS * 24)
    found = []
    group_end, group = 0, ""
    for i in range(count):
        if i >= group_end:
            is_replicated = random.random() < 0.33
            group, group_end = (f"g{i}", i + 3) if is_replicated else ("", i + 1)
            scale, phase = min(random.lognormal(0, 0.6), 2.5), random.normal(14, 4)
        season = 1 + 0.6 * np.cos((hours - phase) / 24 * 2 * np.pi)
        season = season * np.where(hours // 24 % 7 >= 5, 0.7, 1.0)
        used = {}
        for resource, mean in {
            Resource.CPU: 1.2, Resource.PACKETS: 15_000.0, Resource.READS: 1800.0, Resource.WRITES: 900.0,
        }.items():  # fmt: skip
            level = mean * scale * min(random.lognormal(0, 0.4), 1.5)
            used[resource] = level * season * random.lognormal(0, noise, len(hours))
        used[Resource.MEMORY] = np.full(len(hours), 40e9 * scale * min(random.lognormal(0, 0.5), 1.5))
        found.append(Demand(f"db{i}", 0, 3600, used, group))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--databases", type=int, default=DATABASES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--noise", type=float, default=0.03, help="of each step, as a share")
    options = parser.parse_args()
    fleet = together(demands(options.databases, options.seed, options.noise))
    rows = rows_of(fleet, 1.0)
    carries = np.array([HOST[fleet.resources[r]] for r in rows.resource])
    print(f"{len(rows.need)} databases, {rows.need.shape[1]} rows, {options.seconds:g} s each")
    failed = False
    for survives in (False, True):
        asked = problem(fleet, [Kind("host", carries)], rows, survives=survives)
        if not survives:
            print(f"sum of own peaks, first fit decreasing, groups apart: {peaks_first_fit(asked)} hosts")
        clock = Clock(options.seconds)
        found = merge.solve(asked, clock, seed=options.seed)
        broken = found.placement.violations()
        gap = float("inf") if found.gap is None else found.gap
        missed = "" if gap <= TARGET else f", target {100 * TARGET:g}% missed"
        print(
            f"{'any one host may fail' if survives else 'groups apart'}: {found.placement.price:.0f} hosts, bound "
            f"{found.bound:.0f}, gap {100 * gap:.1f}%{missed}; {found.seconds:.0f} s",
            flush=True,
        )
        failed |= bool(broken) or bool(found.placement.unplaced)
        if broken:
            print(f"BROKEN: {broken[:3]}")
    return int(failed)


def peaks_first_fit(asked: Problem) -> int:
    carries = asked.kinds[0].carries
    rows = [np.flatnonzero(asked.row_resource == r) for r in np.unique(asked.row_resource)]
    peaks = np.stack([asked.need[:, own].max(axis=1) / carries[own[0]] for own in rows], axis=1)
    hosts: list[np.ndarray] = []
    groups: list[set[int]] = []
    for item in np.argsort(-peaks.max(axis=1)):
        for at, load in enumerate(hosts):
            if (load + peaks[item] <= 1).all() and not groups[at] & set(asked.mates[item]):
                hosts[at] = load + peaks[item]
                groups[at].add(int(item))
                break
        else:
            hosts.append(peaks[item])
            groups.append({int(item)})
    return len(hosts)


if __name__ == "__main__":
    sys.exit(main())
