"""Whether alerts keep what they promise: simulated years of hosts with days, weeks, jobs and short troubles.

A false alert is one for which nothing that was planted stands. Told in time is a planted change of which an alert
is raised within two minutes. Hosts differ: load by the hour, a job of every night and a longer one of each Sunday,
noise of each class that lasts for minutes, and troubles of up to a minute, two a day of each kind.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.history.archive.files import DAY_S, HOUR_S
from headrace.hunt.live import LOOKS
from headrace.web.alerts import Alerts
from headrace.web.signs import EVERY_S, WINDOW_S, Busy, Kind, Look
from headrace.web.usual import SINCE_S, Usual

MINUTES = 15
START_S = 1_700_000_000 // DAY_S * DAY_S
HOST, TOLD_WITHIN_S, WEEK_S = "db1", 120.0, 7 * DAY_S
GIB = 2.0**30
#: Calls per second and time per call in s of the classes of a host at its mean load.
CLASSES = {f"c{i}": (800.0 / 3**i, 0.0005 * 3**i) for i in range(6)}
#: Short troubles a day of each kind, and the longest.
TROUBLES_A_DAY, LONGEST_S = 2.0, 60.0
NEVER = (0.0, 0.0)
#: A state shows in a window that is filled with it for so long; a host is lost when it was silent for so long.
FILLED_S, STALE_S = 0.6 * WINDOW_S, 10.0
#: A planted change lasts this long, and the next one is so far.
LASTS_S = 2 * HOUR_S
PLANTED = (Kind.BOTTLENECK, Kind.NEW_CLASS, Kind.SLOWER, Kind.CONNECTIONS, Kind.REPLICA, Kind.DISK, Kind.LOST)


@dataclass
class World:
    """One host. ``planted``: kind -> when it began, while it lasts. ``is_sampled``: its server counts no
    statements; its process list is looked at LOOKS times."""

    seed: int
    is_sampled: bool = False
    planted: dict[Kind, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.swing = self.random.uniform(0.3, 0.9)
        self.job_hour = self.random.randrange(6)
        self.busy_hour = self.random.random() < 0.5
        self.noise = dict.fromkeys(CLASSES, 0.0)
        self.free = 400 * GIB
        self.lag_s = 0.0
        self.trouble: dict[Kind, tuple[float, float]] = {}
        self.times = 0

    def load(self, at_s: float) -> float:
        hours = at_s % DAY_S / HOUR_S
        weekend = 0.6 if int(at_s // DAY_S) % 7 in (2, 3) else 1.0
        return weekend * (1 + self.swing * math.sin((hours - 9) / 24 * 2 * math.pi))

    def look(self, at_s: float) -> Look:
        for kind in PLANTED:
            if (
                self.trouble.get(kind, NEVER)[1] + FILLED_S < at_s
                and self.random.random() < TROUBLES_A_DAY * EVERY_S / DAY_S
            ):
                began_s = at_s + self.random.uniform(0.0, EVERY_S)
                self.trouble[kind] = began_s, began_s + self.random.uniform(5.0, LONGEST_S)
        began_s = self.planted.get(Kind.LOST, at_s)
        lost = self.trouble.get(Kind.LOST, NEVER)
        if at_s - began_s > STALE_S or lost[0] + STALE_S < at_s < lost[1]:
            return Look(at_s, "connection refused")
        return Look(
            at_s,
            limiting=self.limiting(at_s),
            sentence="It is limited.",
            classes=self.sampled(at_s) if self.is_sampled else self.classes(at_s),
            is_sampled=self.is_sampled,
            connections=(self.share(at_s) * 1000, 1000.0),
            replicas={"": self.lag(at_s)},
            room={"/": self.room(at_s)},
        )

    def wrong(self, kind: Kind, at_s: float) -> bool:
        """Planted, or in a short trouble that fills most of the window."""
        if kind in self.planted:
            return at_s - self.planted[kind] >= FILLED_S
        began_s, ends_s = self.trouble.get(kind, NEVER)
        return began_s + FILLED_S <= at_s <= ends_s + WINDOW_S - FILLED_S

    def limiting(self, at_s: float) -> str:
        if self.wrong(Kind.BOTTLENECK, at_s):
            return "LOCK12 shop.orders" if Kind.BOTTLENECK in self.planted else "block sda"
        if self.in_job(at_s) or (self.load(at_s) > 1.5 and self.busy_hour and self.random.random() < 0.7):
            return "cpu"
        return "cpu" if self.load(at_s) > 1.2 and self.random.random() < 0.02 else ""

    def in_job(self, at_s: float) -> bool:
        """From ten past on for forty minutes, each night; on Sundays for two hours."""
        since_s = at_s % DAY_S - self.job_hour * HOUR_S - 600
        is_sunday = int(at_s // DAY_S) % 7 == 3
        return 0 <= since_s < (7200 if is_sunday else 2400)

    def classes(self, at_s: float) -> dict[str, Busy]:
        found, load = {}, self.load(at_s)
        in_job = self.in_job(at_s)
        for i, (name, (calls_s, mean_s)) in enumerate(CLASSES.items()):
            self.noise[name] = 0.95 * self.noise[name] + self.random.gauss(0.0, 0.06)
            mean = calls_s * load * WINDOW_S
            calls = max(float(round(mean + self.random.gauss(0.0, math.sqrt(mean)))), 0.0)
            slow = math.exp(self.noise[name] + self.random.gauss(0.0, 0.5 / math.sqrt(max(calls, 1))))
            slow *= (1 + 0.5 * max(load - 1, 0)) * (2.0 if in_job else 1.0)
            if i == 3 and self.wrong(Kind.SLOWER, at_s):
                slow *= 5
            if calls:
                found[name] = Busy(calls, calls * mean_s * slow / WINDOW_S)
        if in_job:
            found["job"] = Busy(20.0, 1.5)
        if self.wrong(Kind.NEW_CLASS, at_s):
            found[f"new{self.times}"] = Busy(300.0, 2.0)
        elif self.random.random() < 1e-3:
            found[f"rare{int(at_s)}"] = Busy(2.0, 0.4)
        return found

    def sampled(self, at_s: float) -> dict[str, Busy]:
        """Sessions that looks show: at each moment as many as chance has it."""
        found = {}
        for name, each in self.classes(at_s).items():
            mean = each.sessions * LOOKS
            seen = max(round(mean + self.random.gauss(0.0, math.sqrt(mean))), 0)
            if seen:
                found[name] = Busy(0.0, seen / LOOKS)
        return found

    def share(self, at_s: float) -> float:
        return 0.95 if self.wrong(Kind.CONNECTIONS, at_s) else min(0.35 * self.load(at_s), 0.8)

    def lag(self, at_s: float) -> float:
        if Kind.REPLICA in self.planted:
            return at_s - self.planted[Kind.REPLICA]
        began_s, ends_s = self.trouble.get(Kind.REPLICA, NEVER)
        is_behind = began_s <= at_s <= ends_s
        self.lag_s = self.lag_s + EVERY_S if is_behind else max(self.lag_s - 4 * EVERY_S, 0.0)
        return self.lag_s

    def room(self, at_s: float) -> float:
        """Grows by two GiB a day; binary logs are purged each night; sorts take some for a minute."""
        sawtooth = 20 * GIB * (at_s % DAY_S / DAY_S)
        growth = 0.2 * GIB * (at_s - START_S) / DAY_S
        free = self.free - sawtooth - growth
        if Kind.DISK in self.planted:
            return max(free - free * (at_s - self.planted[Kind.DISK]) / 1800.0, 1.0)
        return free - (15 * GIB * self.random.random() if self.wrong(Kind.DISK, at_s) else 0.0)


class Past:
    """What the history would say: hours of the last eight days."""

    def __init__(self) -> None:
        self.hours: dict[int, dict[str, dict[str, tuple[float, ...]]]] = {}

    def add(self, look: Look) -> None:
        hour = int(look.at_s // HOUR_S * HOUR_S)
        of = self.hours.setdefault(hour, {"limits": {}, "classes": {}, "room": {}})
        if look.limiting:
            of["limits"][look.limiting] = (of["limits"].get(look.limiting, (0.0,))[0] + EVERY_S / 60,)
        for name, each in (look.classes or {}).items():
            calls, time_ns = of["classes"].get(name, (0.0, 0.0))
            of["classes"][name] = calls + each.calls, time_ns + each.sessions * WINDOW_S * 1e9
        for mount, free in (look.room or {}).items():
            of["room"][mount] = (min(of["room"].get(mount, (math.inf,))[0], free),)

    def usual(self, at_s: float) -> Usual:
        self.hours = {hour: of for hour, of in self.hours.items() if hour >= at_s - SINCE_S}
        found: dict[str, dict[str, dict[int, tuple[float, ...]]]] = {"limits": {}, "classes": {}, "room": {}}
        for hour, of in self.hours.items():
            for table, names in of.items():
                for name, values in names.items():
                    found[table].setdefault(name, {})[hour] = values
        return Usual(
            frozenset(self.hours),
            _first(found["limits"]),
            {name: {h: (v[0], v[1]) for h, v in of.items()} for name, of in found["classes"].items()},
            _first(found["room"]),
            frozenset(found["classes"]),
            frozenset(self.hours),
        )


def _first(found: Mapping[str, Mapping[int, tuple[float, ...]]]) -> dict[str, dict[int, float]]:
    return {name: {hour: values[0] for hour, values in of.items()} for name, of in found.items()}


@dataclass
class Audited:
    """``late``: kind -> seconds until it was told, of each planted change; infinite if it was not."""

    weeks: float
    false: list[tuple[float, str]] = field(default_factory=list)
    took_s: dict[Kind, list[float]] = field(default_factory=dict)

    @property
    def false_a_week(self) -> float:
        return len(self.false) / self.weeks

    @property
    def told_share(self) -> float:
        all_s = [each for times in self.took_s.values() for each in times]
        return sum(each <= TOLD_WITHIN_S for each in all_s) / len(all_s) if all_s else math.nan


def audit(
    seed: int,
    days: float,
    planted: int,
    folder: Path,
    first_day: float = 9.0,
    lasts_s: float = LASTS_S,
    *,
    is_sampled: bool = False,
) -> Audited:
    """One host over so many days, with so many planted changes from a day on, of all kinds in turn."""
    world, past, found = World(seed, is_sampled), Past(), Audited(days / 7)
    path = folder / f"alerts-{seed}.jsonl"
    alerts = Alerts(path, {})
    plan = _plan(world, first_day, days, planted)
    next_plant = next(plan, None)
    usual, ends_s, known = Usual(), 0.0, set[str]()
    for i in range(int(days * DAY_S / EVERY_S)):
        at_s = START_S + i * EVERY_S
        if i and at_s % HOUR_S < EVERY_S:
            usual = past.usual(at_s)
        if next_plant is not None and at_s >= next_plant[0]:
            began_s, kind = next_plant
            world.planted, world.times = {kind: began_s}, world.times + 1
            ends_s, next_plant = at_s + lasts_s, next(plan, None)
            found.took_s.setdefault(kind, []).append(math.inf)
        if world.planted and at_s >= ends_s:
            world.planted = {}
        look = world.look(at_s)
        if not look.problem:
            past.add(look)
        alerts.look(HOST, look, usual, lambda name: name)
        for alert in alerts.standing:
            if alert.id in known:
                continue
            known.add(alert.id)
            kind = Kind(alert.kind)
            if kind in world.planted:
                took = found.took_s[kind]
                took[-1] = min(took[-1], at_s - world.planted[kind])
            elif not (world.planted or at_s < ends_s + 1800):
                found.false.append((at_s, alert.subject))
    path.unlink(missing_ok=True)
    return found


def _plan(world: World, first_day: float, days: float, planted: int) -> Iterator[tuple[float, Kind]]:
    """At any second."""
    free = (days - first_day) / max(planted, 1) * DAY_S
    kinds = [kind for kind in PLANTED if not (world.is_sampled and kind is Kind.SLOWER)]
    for i in range(planted):
        yield (
            START_S + first_day * DAY_S + i * free + world.random.uniform(0, free / 2),
            kinds[i % len(kinds)],
        )


def main(hosts: int = 2) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed, is_sampled in ((seed, way) for seed in range(hosts) for way in (False, True)):
            found = audit(seed, 365.0, 30, Path(folder), is_sampled=is_sampled)
            took = {str(kind): f"{max(times):.0f} s" for kind, times in found.took_s.items()}
            way = " by its process list" if is_sampled else ""
            print(
                f"host {seed}{way}: {found.false_a_week:.2f} false alerts a week, {found.told_share:.0%} of 30 "
                f"told in {TOLD_WITHIN_S:.0f} s; the slowest of each kind: {took}"
            )
            for at_s, subject in found.false[:5]:
                print(f"  false on day {(at_s - START_S) / DAY_S:.1f}: {subject}")
            wrong += found.false_a_week > 1 or found.told_share < 0.95
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
