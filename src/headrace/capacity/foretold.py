"""What `size full` and `size merge` predicted, kept until later data of the same source tells what came of it.

- of `size full`, per host and resource: the days until the knee is reached. It is measured on the first day whose
  highest minute reaches the knee of then, or missed if its interval has passed without such a day. If the knee is
  another one by now, nothing is said.
- of `size merge`, per planned host and resource: the largest joint daily peak of its databases in the days that
  the plan is for. It is measured from their use in these days, wherever they ran.

Per source, host and resource only one prediction is open at a time: repeated runs predict the same thing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headrace.base.intervals import Interval
from headrace.capacity import predictions, sums
from headrace.capacity.foresee import Prediction
from headrace.capacity.full import Host
from headrace.capacity.history import WHOLE_DAY, History
from headrace.capacity.model import SUMS, Demand, Resource
from headrace.capacity.outlook import Outlook, State
from headrace.capacity.plan import Merged
from headrace.capacity.predictions import Kept
from headrace.capacity.table import Table
from headrace.capacity.together import daily_peaks, together
from headrace.history.archive.files import DAY_S

#: Quantities of their own: past errors of `size prove` are not those of these.
DATE, PEAK = "date", "planned peak"
#: A knee that differs by no more is the same.
SAME = 0.01


def of_full(hosts: Sequence[Host], histories: Sequence[History], source: str) -> None:
    """Measure what has come, then keep what is predicted now. Raises StoreError."""
    kept = [each for each in predictions.every() if each.prediction.quantity == DATE]
    used = {each.host: each for each in histories}
    knees = {(host.name, o.resource): o.full_at.estimate for host in hosts for o in host.outlooks}
    still_open = set()
    batch = predictions.Batch()
    for each in _open(kept, source):
        resource = Resource(each.prediction.what.rsplit(" ", 1)[1])
        knee = knees.get((each.host, resource))
        limit = float(each.about["limit"])
        if knee is None or abs(knee / limit - 1) > SAME:
            continue
        days = _came(each, used[each.host], resource, limit)
        if days is None:
            still_open.add(each.prediction.what)
        else:
            batch.came_true(each.id, [(each.prediction, days)])
    known = {(each.id, each.prediction.what) for each in kept}
    for host in hosts:
        id_ = f"full {source} {host.end_s}"
        for outlook in host.outlooks:
            found = _dated(host, outlook)
            if found is not None and found.what not in still_open and (id_, found.what) not in known:
                about = {"source": source, "end_s": host.end_s, "limit": outlook.full_at.estimate}
                batch.keep(id_, time.time(), host.name, [host.name], [found], about)
    batch.write()


def _open(kept: Sequence[Kept], source: str) -> Iterator[Kept]:
    return (each for each in kept if each.measured is None and each.about.get("source") == source)


def _dated(host: Host, each: Outlook) -> Prediction | None:
    if each.state is not State.DATED or each.day is None or each.is_at_least:
        return None
    low, high = each.day.low, each.day.high
    end = high if high is not None and math.isfinite(high) else None
    return Prediction(f"{host.name} {each.resource}", DATE, Interval(each.day.estimate, low, end), 0.0)


def _came(kept: Kept, history: History, resource: Resource, limit: float) -> float | None:
    """Days until the knee was reached, or that it was not reached for too long; None if that is not known yet."""
    peaks = history.peaks.get(resource)
    end_s = int(kept.about["end_s"])
    if peaks is None:
        return None
    later = peaks.day * DAY_S >= end_s
    days, most = peaks.day[later], peaks.most[later]
    reached = days[most >= limit]
    last = int(reached[0]) if len(reached) else int(days[-1]) if len(days) else -1
    passed = (last + 0.5) - end_s / DAY_S
    # In a gap it may have been reached before.
    if last < 0 or (days <= last).sum() < WHOLE_DAY * (last - end_s // DAY_S):
        return None
    high = kept.prediction.interval.high
    return passed if len(reached) or (high is not None and passed > high) else None


def of_merge(merged: Merged, table: Table, source: str) -> None:
    """Measure what has come, then keep what is predicted now. Raises StoreError."""
    kept = [each for each in predictions.every() if each.prediction.quantity == PEAK]
    added, _ = sums.added(table.demands, set(SUMS))
    demands = {each.host: each for each in added}
    first = table.demands[0]
    end_s = first.start_s + first.steps * first.step_s
    is_open = False
    batch = predictions.Batch()
    for each in _open(kept, source):
        value = _peak(each, demands)
        if value is not None:
            batch.came_true(each.id, [(each.prediction, value)])
        elif _until_s(each) > end_s:
            is_open = True
    id_ = f"merge {source} {end_s}"
    if is_open or not merged.fits or any(each.id == id_ for each in kept):
        batch.write()
        return
    asked = merged.asked
    about = {
        "source": source, "end_s": end_s, "days": asked.ahead_days, "quantile": asked.quantile,
        "one_server": asked.is_one_server,
    }  # fmt: skip
    for host in merged.hosts:
        found = [Prediction(f"{host.name} {use.resource}", PEAK, use.grown, 0.0) for use in host.uses]
        batch.keep(id_, time.time(), host.name, host.databases, found, about)
    batch.write()


def _until_s(kept: Kept) -> int:
    return int(kept.about["end_s"]) + int(kept.about["days"]) * DAY_S


def _peak(kept: Kept, demands: Mapping[str, Demand]) -> float | None:
    """The largest daily peak of these databases together in the days of the plan; None unless all were watched."""
    resource = Resource(kept.prediction.what.rsplit(" ", 1)[1])
    if any(name not in demands or resource not in demands[name].used for name in kept.plan):
        return None
    own = [_cut(demands[name], resource, int(kept.about["end_s"]), _until_s(kept)) for name in kept.plan]
    per_day = max(1, DAY_S // own[0].step_s)
    known = np.isfinite(np.array([each.used[resource] for each in own])).all(axis=0)
    if len(known) < int(kept.about["days"]) * per_day:
        return None
    if known[: len(known) // per_day * per_day].reshape(-1, per_day).mean(axis=1).min() < WHOLE_DAY:
        return None
    joint = together(own, is_one_server=bool(kept.about["one_server"]))
    return float(daily_peaks(joint.values[:, 0].sum(axis=0), per_day, float(kept.about["quantile"])).max())


def _cut(demand: Demand, resource: Resource, start_s: int, until_s: int) -> Demand:
    """Only this resource, between these times; shorter if it is not as long."""
    first = max(0, math.ceil((start_s - demand.start_s) / demand.step_s))
    last = max(first, (until_s - demand.start_s) // demand.step_s)
    return replace(
        demand,
        start_s=demand.start_s + first * demand.step_s,
        used={resource: demand.used[resource][first:last]},
        most={},
    )
