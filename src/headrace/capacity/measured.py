"""Demands of a merge from what was measured: the history of `headrace serve`, or samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headrace.base.errors import NothingMeasured, PlanError
from headrace.capacity.history import History
from headrace.capacity.model import Demand, Resource
from headrace.capacity.table import Table, named, of_demands
from headrace.capacity.used import Part


def table_of(
    histories: Sequence[History],
    groups: Sequence[Sequence[str]] = (),
    types: Mapping[str, str] | None = None,
    needs: Mapping[str, Mapping[Resource, float]] | None = None,
) -> Table:
    """Each host's use over time as the demand of its databases.

    ``groups``: hosts of a replication group; ``types``: a host's type in the catalogue; ``needs``: what is known
    better than the use, such as a working set, at all times. Raises PlanError if a host is in two groups.
    """
    group_of = _groups(groups)
    needs = needs or {}
    start_s = min(each.demand.start_s for each in histories)
    demands = [
        _demand(each.demand, start_s, group_of.get(each.host, ""), needs.get(each.host, {}))
        for each in histories
    ]
    queries = {each.host: each.queries for each in histories if each.queries is not None}
    known = {host: values for host, values in queries.items() if np.isfinite(values).any()}
    watts = {each.host: each.parts[Part.WATTS] for each in histories if Part.WATTS in each.parts}
    found = of_demands(demands, known, types or {}, list(_notes(histories, group_of, needs)))
    return replace(found, watts={host: values for host, values in watts.items() if np.isfinite(values).any()})


def _groups(groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """Host -> the name of its group: that of its first member."""
    found: dict[str, str] = {}
    for hosts in groups:
        for host in hosts:
            if host in found:
                which = "twice in one group" if hosts.count(host) > 1 else "in two groups"
                raise PlanError(f"{host} is {which}", place="--group")
            found[host] = hosts[0]
        if len(hosts) < 2:
            raise PlanError(
                f"{hosts[0]} alone is not a replication group", place="--group", hint="--group db1,db2"
            )
    return found


def _demand(demand: Demand, start_s: int, group: str, need: Mapping[Resource, float]) -> Demand:
    """Each step counts with its highest minute where that is known: the mean of an hour hides it. All hosts share
    the steps of the first: the seconds by which samples of another start later move no peak.
    """
    used = {r: demand.most.get(r, values) for r, values in demand.used.items()}
    # A resource of which nothing is known would be filled from nothing.
    used = {r: values for r, values in used.items() if np.isfinite(values).any()}
    used |= {r: np.full(demand.steps, value) for r, value in need.items()}
    if not used:
        raise NothingMeasured(f"{demand.host} has no use of any resource in this history")
    if Resource.CPU not in used:
        raise NothingMeasured(
            f"{demand.host}: its CPU was not watched for one whole step, and a plan without it says nothing",
            hint=f"longer samples, or what it needs: --need {demand.host}=cpu=2",
        )
    return replace(demand, start_s=start_s, used=used, group=group, most={})


def _notes(
    histories: Sequence[History], group_of: Mapping[str, str], needs: Mapping[str, Mapping[Resource, float]]
) -> Iterator[str]:
    if any(each.demand.most and each.demand.step_s > 60 for each in histories):
        yield (
            "each hour counts with its highest minute, and the minutes of different hosts as if they coincided: "
            "the plan errs on the large side"
        )
    pools = [
        each.host for each in histories
        if Resource.MEMORY in each.demand.used and Resource.MEMORY not in needs.get(each.host, {})
    ]  # fmt: skip
    if pools:
        yield (
            f"{named(pools)}: the memory in use counts, full buffer pools included; give a smaller working set "
            "with --need HOST=memory=SIZE"
        )
    if len(histories) > 1 and not group_of:
        yield (
            "no replication groups are known, so replicas of the same data may share a host: --group db1,db2"
        )
