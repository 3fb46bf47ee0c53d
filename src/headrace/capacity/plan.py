"""A merge from demands and a catalogue: several plans, checked against the joint peaks, and the one to take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.base.errors import PlanError
from headrace.capacity import cost, merge, sums
from headrace.capacity.catalogue import Catalogue, Offer, knee_of
from headrace.capacity.clock import Clock
from headrace.capacity.cost import Growth, Scored, Use, Worth
from headrace.capacity.full import LEAST_DAYS
from headrace.capacity.full import growth as trend
from headrace.capacity.history import Peaks
from headrace.capacity.merge import Solution
from headrace.capacity.model import Capacity, Resource
from headrace.capacity.placement import Kind, Problem, fullness, problem
from headrace.capacity.rows import Rows, rows_of
from headrace.capacity.steps import largest
from headrace.capacity.table import Table, named
from headrace.capacity.together import Futures, Peak, Together, daily_peaks, filled, peak, together
from headrace.history.archive.files import DAY_S

Values = NDArray[np.float64]


NO_GROWTH = Growth()


@dataclass(frozen=True)
class Asked:
    """``risk``: the highest chance that a host is too full. ``quantile``: of a day's time that its peak covers.
    ``growth``: None for that of the history. ``by``: "price", "watts" or "hosts"."""

    risk: float = 0.05
    quantile: float = 0.99
    ahead_days: int = 30
    growth: Growth | None = None
    by: str = "price"
    survives: bool = True
    is_one_server: bool = False
    seconds: float = 60.0
    seed: int = 0
    exact: bool = True


@dataclass(frozen=True)
class PlannedHost:
    name: str
    capacity: Capacity
    databases: tuple[str, ...]
    uses: tuple[Use, ...]
    #: Largest share of what it is planned to carry if the worst other host fails; None: no failure is planned.
    after_failure: float | None

    @property
    def risk(self) -> float:
        if not self.uses:
            return 0.0
        return float(np.any([use.draws > 1 for use in self.uses], axis=0).mean())

    @property
    def first(self) -> Use | None:
        """The resource that ends first."""
        return max(self.uses, key=lambda use: use.share.estimate, default=None)


@dataclass(frozen=True)
class Measured:
    """Watts of processors and memory of all hosts today: on average, and at most at one time."""

    mean: float
    most: float


@dataclass(frozen=True)
class Merged:
    """The plan to take. ``averages``: how many hosts of the plan's most common kind the averages alone would ask
    for. ``cautions``: what is wrong or missing in what was given; ``assumptions``: what every plan has."""

    asked: Asked
    currency: str
    hosts: tuple[PlannedHost, ...]
    unplaced: Mapping[str, str]
    solution: Solution
    before: tuple[PlannedHost, ...]
    candidates: tuple[Scored, ...]
    worth: Worth | None
    averages: int
    databases: int
    is_stopped: bool
    cautions: tuple[str, ...]
    assumptions: tuple[str, ...] = ()
    #: None unless every host measures it.
    watts_today: Measured | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.cautions, *self.assumptions)

    @property
    def price(self) -> float | None:
        return cost.total([host.capacity.price for host in self.hosts])

    @property
    def watts(self) -> float | None:
        return cost.total([host.capacity.watts for host in self.hosts])

    @property
    def over(self) -> list[PlannedHost]:
        return [host for host in self.hosts if host.risk > self.asked.risk]

    @property
    def fits(self) -> bool:
        return not self.unplaced and not self.over


#: More room than the history asks for, in the plans that are compared.
ROOMS = (1.0, 1.15, 1.3)


def plan(table: Table, catalogue: Catalogue, asked: Asked, clock: Clock | None = None) -> Merged:
    """Raises PlanError if nothing limits: a catalogue without limits for the demands' resources; and if the fewest
    watts are asked for where no host has any."""
    clock = clock or Clock(asked.seconds)
    limited = {r for o in catalogue.offers for r in o.capacity.limit}
    demands, lacking = sums.added(table.demands, limited)
    unknown = [r for r in Resource if any(r in d.used for d in demands) and r not in limited]
    fleet = together(demands, is_one_server=asked.is_one_server, without=unknown)
    if not fleet.resources:
        raise PlanError(
            "the catalogue has no limit for any resource of the demands", hint="add a column, such as cpu"
        )
    unlimited = [r for r in unknown if r not in sums.counted(limited)]
    notes = [*table.notes, *lacking, *catalogue.notes, *fleet.notes, *_alone(fleet, asked)]
    growth, said = _growth(table, fleet, asked)
    assumptions = [*_assumptions(catalogue, fleet, unlimited), *said]
    asked = replace(asked, growth=growth)
    look = _Look(fleet, asked, growth)
    rows = rows_of(fleet, asked.quantile, sums.moving(demands, fleet))
    offers, asked, about = _compared(catalogue.offers, asked)
    notes += about
    seen = look.headroom(_problem(fleet, offers, rows, asked, {}))
    found: dict[str, tuple[Solution, list[PlannedHost]]] = {}
    for room in ROOMS:
        name = "as the history asks" if room == 1.0 else f"{100 * (room - 1):.0f}% more room"
        question = _problem(fleet, offers, rows, asked, {r: room * h for r, h in seen.items()})
        if room == 1.0:
            own = Clock(0.7 * clock.seconds, clock.listen, started=clock.started)
        else:
            own = Clock(min(0.15 * clock.seconds, clock.left_s))
        # A stop ends all of them.
        solution = merge.solve(question, _linked(own, clock), seed=asked.seed, exact=asked.exact)
        found[name] = (solution, look.hosts(solution, offers))
    fewest = min(len(each.placement.unplaced) for each, _ in found.values())
    complete = {name: each for name, each in found.items() if len(each[0].placement.unplaced) == fewest}
    scored = cost.regrets(
        {n: ([h.capacity for h in hs], [h.uses for h in hs]) for n, (_, hs) in complete.items()},
        asked.ahead_days,
    )
    if any(each.hosts and each.price is None for each in scored):
        notes.append("the price of a plan is unknown: regret counts hosts, not money")
    within = [s for s in scored if all(h.risk <= asked.risk for h in complete[s.name][1])]
    solution, hosts = complete[(within or scored)[0].name]
    unplaced = {
        fleet.hosts[i]: _why_not(solution.placement.problem, i, fleet.resources)
        for i in solution.placement.unplaced
    }
    before = look.before(table.types, {o.capacity.name: o for o in catalogue.offers})
    strange = sorted(
        {t for t in table.types.values() if t not in {o.capacity.name for o in catalogue.offers}}
    )
    if strange:
        notes.append(f"not in the catalogue, so today's hosts are not compared: {named(strange)}")
    broken = [h.name for h in before if h.risk > 0.5]
    if broken:
        notes.append(f"too full today: {named(broken)}: the objective is already broken at their peaks")
    return Merged(
        asked, catalogue.currency, tuple(hosts), unplaced, solution, tuple(before), tuple(scored),
        look.worth(table.queries, hosts), _averages(fleet, hosts or before, catalogue.offers), len(fleet.hosts),
        clock.is_stopped, tuple(notes), tuple(assumptions), _watts(table),
    )  # fmt: skip


def _watts(table: Table) -> Measured | None:
    if not table.demands or any(each.host not in table.watts for each in table.demands):
        return None
    whole = np.sum([table.watts[each.host] for each in table.demands], axis=0)
    known = whole[np.isfinite(whole)]
    return Measured(float(known.mean()), float(known.max())) if len(known) else None


def _compared(offers: Sequence[Offer], asked: Asked) -> tuple[Sequence[Offer], Asked, list[str]]:
    """The hosts that can be compared by what is asked for, or the question that can be answered instead; notes."""
    if asked.by == "price" and any(o.capacity.price is None for o in offers):
        note = "not every host has a price: the fewest hosts are planned, not the cheapest"
        return offers, replace(asked, by="hosts"), [note]
    if asked.by != "watts":
        return offers, asked, []
    known = [o for o in offers if o.capacity.watts is not None]
    if not known:
        raise PlanError(
            "no host of the catalogue has watts",
            hint="add a column watts, or --watts FILE with name and watts",
        )
    without = [o.capacity.name for o in offers if o.capacity.watts is None]
    notes = [f"not planned with, because their watts are unknown: {named(without)}"] if without else []
    return known, asked, notes


def _growth(table: Table, fleet: Together, asked: Asked) -> tuple[Growth, list[str]]:
    """What is asked for, or that of the joint daily peaks of all databases until the plan ends, and what to say of
    it. One of all: which of them grows faster than the others is not told from a few weeks.
    """
    found, notes = asked.growth, []
    if found is None:
        resource = fleet.resources[0]
        days = daily_peaks(fleet.values[:, 0].sum(axis=0), fleet.steps_per_day, asked.quantile)
        first = table.demands[0].start_s // DAY_S
        laws = trend(Peaks(first + np.arange(len(days)), days))
        if not laws:
            return NO_GROWTH, [
                f"fewer than {LEAST_DAYS} days show no growth, and none is planned for: --growth"
            ]
        grown = [law.within(asked.ahead_days) for law in laws]
        lows, highs = [each.low or 0.0 for each in grown], [each.high or 0.0 for each in grown]
        found = Growth(max(1 + min(lows), 0.0), 1 + max(highs), 1 + grown[0].estimate)
        word = "grow" if grown[0].estimate >= 0 else "shrink"
        notes.append(
            f"the joint peaks of {resource} {word} by {100 * abs(grown[0].estimate):.1f}% in {asked.ahead_days} "
            f"days ({100 * (found.low - 1):+z.1f} to {100 * (found.high - 1):+z.1f}%), and that is planned for: "
            "--growth replaces it"
        )
    if found.low < 1:
        notes.append("demand may shrink: the plan still carries today's")
    return found, notes


def _linked(own: Clock, outer: Clock) -> Clock:
    stop = outer.stop

    def both() -> None:
        own.stop()
        stop()

    outer.stop = both  # type: ignore[method-assign]
    if outer.is_stopped:
        own.stop()
    return own


def _assumptions(catalogue: Catalogue, fleet: Together, unlimited: Sequence[Resource]) -> list[str]:
    notes = []
    if unlimited:
        which = ", ".join(unlimited)
        one = len(unlimited) == 1
        notes.append(
            f"{which} {'has' if one else 'have'} no limit in the catalogue: {'it is' if one else 'they are'} "
            "assumed never to run out"
        )
    said: dict[str, list[str]] = {}
    for resource in fleet.resources:
        assumed = [
            o.capacity for o in catalogue.offers
            if resource in o.capacity.limit and not knee_of(o.capacity, resource)[1]
        ]  # fmt: skip
        if assumed:
            knees = [knee_of(capacity, resource)[0] for capacity in assumed]
            low, high = (min(k.low or k.estimate for k in knees), max(k.high or k.estimate for k in knees))
            which = "all hosts" if len(assumed) == len(catalogue.offers) else named([c.name for c in assumed])
            said.setdefault(f"not measured for {which}: assumed {low:g} to {high:g} of the limit", []).append(
                resource
            )
    notes += [f"the knee of {' and of '.join(own)} was {words}" for words, own in said.items()]
    bursts = sorted({r.value for o in catalogue.offers for r in o.capacity.burst})
    if bursts:
        notes.append(f"bursts of {', '.join(bursts)} do not count: a peak may outlast the credit")
    return notes


def _alone(fleet: Together, asked: Asked) -> list[str]:
    alone = [h for h, g in zip(fleet.hosts, fleet.groups, strict=True) if not g or fleet.groups.count(g) == 1]
    if asked.survives and alone:
        who = "1 database has no replica and is down if its host fails"
        if len(alone) > 1:
            who = f"{len(alone)} databases have no replica and are down if their host fails"
        return [f"{who}: {named(alone)}"]
    return []


def _problem(
    fleet: Together, offers: Sequence[Offer], rows: Rows, asked: Asked, headroom: Mapping[Resource, float],
) -> Problem:  # fmt: skip
    kinds = []
    growth = (asked.growth or NO_GROWTH).draws()
    for offer in offers:
        limit = {}
        for resource in fleet.resources:
            draws = cost.carried(offer.capacity, resource)
            # What it carries with the asked certainty, for a demand that grows.
            limit[resource] = math.inf if draws is None else float(np.quantile(draws / growth, asked.risk))
            limit[resource] /= headroom.get(resource, 1.0)
        carries = np.array([limit[fleet.resources[r]] for r in rows.resource])
        price = {"price": offer.capacity.price, "watts": offer.capacity.watts}.get(asked.by)
        kinds.append(Kind(offer.capacity.name, carries, 1.0 if price is None else price, offer.count))
    return problem(fleet, kinds, rows, survives=asked.survives)


class _Look:
    """Joint peaks of sets of databases, over the same draws of days."""

    def __init__(self, fleet: Together, asked: Asked, growth: Growth) -> None:
        self.fleet, self.asked = fleet, asked
        self.futures = Futures.of(fleet.days)
        self.growth = growth.draws()
        self.index = {host: i for i, host in enumerate(fleet.hosts)}

    def peaks(self, members: Sequence[int]) -> list[Peak]:
        total = self.fleet.values[list(members)].sum(axis=0)
        days = daily_peaks(total, self.fleet.steps_per_day, self.asked.quantile)
        return [
            Peak(
                resource,
                *peak(days[j], self.futures, self.asked.ahead_days),
                days[j][self.futures.days].mean(axis=1),
            )
            for j, resource in enumerate(self.fleet.resources)
        ]

    def headroom(self, question: Problem) -> dict[Resource, float]:
        """How far peaks to come may exceed the largest of the history, typically: from a plan made in one go."""
        placement = merge.first(question)
        ratios: dict[Resource, list[float]] = {r: [1.0] for r in self.fleet.resources}
        for host in placement.used:
            peaks = self.peaks(placement.members[host])
            for found, seen in zip(peaks, largest(placement, host), strict=True):
                if seen > 0:
                    ratios[found.resource].append(float(np.quantile(found.draws, 1 - self.asked.risk)) / seen)
        return {r: max(1.0, float(np.quantile(values, 0.9))) for r, values in ratios.items()}

    def hosts(self, solution: Solution, offers: Sequence[Offer]) -> list[PlannedHost]:
        placement, by_name = solution.placement, {o.capacity.name: o.capacity for o in offers}
        width = len(str(len(placement.used)))
        found = []
        for number, host in enumerate(placement.used, 1):
            kind = placement.kinds[host]
            worst = fullness(placement.worst(host), kind.carries)
            found.append(
                self._planned(
                    f"new-{number:0{width}}", by_name[kind.name], placement.members[host],
                    worst if self.asked.survives else None,
                )
            )  # fmt: skip
        return found

    def _planned(
        self, name: str, capacity: Capacity, members: Sequence[int], after_failure: float | None
    ) -> PlannedHost:
        uses = [
            use
            for each in self.peaks(members)
            if (use := cost.use_of(each, capacity, self.growth)) is not None
        ]
        names = tuple(sorted(self.fleet.hosts[m] for m in members))
        return PlannedHost(name, capacity, names, tuple(uses), after_failure)

    def before(self, types: Mapping[str, str], offers: Mapping[str, Offer]) -> list[PlannedHost]:
        """Today's hosts whose type is in the catalogue."""
        return [
            self._planned(host, offers[types[host]].capacity, [i], None)
            for i, host in enumerate(self.fleet.hosts)
            if types.get(host) in offers
        ]

    def worth(self, queries: Mapping[str, Values], hosts: Sequence[PlannedHost]) -> Worth | None:
        per_day = self.fleet.steps_per_day
        # A gap is no idle time; nor is it a peak, because this is the work that is paid for.
        known = [filled(queries[host], per_day, np.nanmean) for host in self.fleet.hosts if host in queries]
        if len(known) < len(self.fleet.hosts) or not any(h.uses for h in hosts):
            return None
        daily = daily_peaks(np.sum(known, axis=0), per_day, self.asked.quantile)
        price, watts = (
            cost.total([h.capacity.price for h in hosts]),
            cost.total([h.capacity.watts for h in hosts]),
        )
        return cost.worth(daily, [h.uses for h in hosts], price, watts, self.futures.days)


def _why_not(question: Problem, item: int, resources: Sequence[Resource]) -> str:
    able = [k for k in question.kinds if (question.need[item] + question.reserve[item] <= k.carries).all()]
    if able:
        return "no host is left: more are needed than there are"
    if any((question.need[item] <= k.carries).all() for k in question.kinds):
        return "no host carries it and the load of a failed replica"
    # Of the host that lacks least.
    _, row = min(_lacking(question.need[item], kind.carries) for kind in question.kinds)
    resource = resources[question.row_resource[row]]
    return f"its own peak of {resource} is more than any host of the catalogue carries with it"


def _lacking(need: Values, carries: Values) -> tuple[float, int]:
    """How many times what is carried it needs at most, and in which row."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(need > 0, need / carries, 0.0)
    return float(times.max()), int(times.argmax())


def _averages(fleet: Together, hosts: Sequence[PlannedHost], offers: Sequence[Offer]) -> int:
    names = [h.capacity.name for h in hosts]
    name = max(set(names), key=names.count) if names else offers[0].capacity.name
    capacity = next(o.capacity for o in offers if o.capacity.name == name)
    means = fleet.values.mean(axis=2).sum(axis=0)
    shares = [
        means[j] / (capacity.limit[r].estimate * knee_of(capacity, r)[0].estimate)
        for j, r in enumerate(fleet.resources)
        if r in capacity.limit and capacity.limit[r].estimate > 0
    ]
    return max(1, math.ceil(max(shares, default=1.0) - 1e-9))
