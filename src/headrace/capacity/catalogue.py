"""Catalogues of hosts as people have them: CSV, or instances.json of ec2instances.info, which the user downloads.

    name,cpu,memory,reads,writes,packets,price,currency,watts,count
    r740,32,256GiB,400000,180000,1200000,410,EUR,380,12

A column is a resource of ``Resource`` in the demand's unit, written as an ``amount``. ``cpu_low`` and
``cpu_high`` are its interval if it was measured, ``cpu_knee`` the share at which the objective is no longer kept
(also with ``_low`` and ``_high``) and ``cpu_burst`` what it has for a while only, which no plan counts with.
``price`` is a month's, ``watts`` under load. ``count`` limits how many there are. A row of watts only (another
file) completes a catalogue.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.base.errors import PlanError
from headrace.base.intervals import Interval
from headrace.base.whole import read_plain
from headrace.capacity.amounts import amount, unit_of
from headrace.capacity.model import Capacity, Resource
from headrace.capacity.sums import is_limited
from headrace.capacity.table import named
from headrace.experiment.foreign import cells_of

#: Hours of a month: a year's, divided by 12.
MONTH_H = 8766 / 12
GIB = 1 << 30
HINT = "docs/reference/merge.md lists the columns"
#: A rate's share of the limit beyond which waiting grows fast, if no knee was measured: an assumption, and said.
ASSUMED_KNEE = Interval(0.7, 0.6, 0.8)
#: Memory and space do not queue, they end.
ASSUMED_FULL = Interval(0.9, 0.85, 0.95)
MOST_BYTES = 1 << 30
#: Columns of a CSV that hold numbers.
NUMBERS = {
    *(f"{r}{part}{end}" for r in Resource for part in ("", "_knee", "_burst") for end in ("", "_low", "_high")),
    "price", "watts", "count",
}  # fmt: skip


@dataclass(frozen=True)
class Offer:
    """A kind of host that can be had, and how many of it."""

    capacity: Capacity
    count: int | None = None


@dataclass(frozen=True)
class Catalogue:
    """``currency`` is empty where there are no prices."""

    offers: tuple[Offer, ...]
    currency: str
    notes: tuple[str, ...]


def read(path: Path, *, region: str = "us-east-1", only: Sequence[str] = ()) -> Catalogue:
    """Raises PlanError with the line and column. ``only``: patterns of names (shell style)."""
    if path.suffix == ".json":
        offers, currency, notes = _instances(path, region, only)
    else:
        offers, currency, notes = _csv(path, only)
    if not offers:
        raise PlanError("none of its hosts can be used", place=str(path), hint="; ".join(notes) or HINT)
    return Catalogue(tuple(offers), currency, (*notes, *_missing([each.capacity for each in offers])))


def _matches(name: str, only: Sequence[str]) -> bool:
    from fnmatch import fnmatchcase

    return not only or any(fnmatchcase(name, pattern) for pattern in only)


def _csv(path: Path, only: Sequence[str]) -> tuple[list[Offer], str, list[str]]:
    lines, notes = cells_of(path, ("name",), NUMBERS)
    offers: dict[str, Offer] = {}
    currencies: dict[str, str] = {}
    for place, cells in lines:
        name = cells["name"].strip()
        if not name:
            raise PlanError("column name: empty", place=place)
        if name in offers:
            raise PlanError(f"column name: {name} a second time", place=place)
        if not _matches(name, only):
            continue
        offers[name] = _offer(name, cells, place)
        currency = (cells.get("currency") or "").strip().upper()
        if offers[name].capacity.price is not None:
            currencies.setdefault(currency, place)
    if len(currencies) > 1:
        where = ", ".join(f"{c or 'none'} ({place.rpartition(':')[2]})" for c, place in currencies.items())
        raise PlanError(
            f"column currency: prices in {len(currencies)} currencies (lines): {where}",
            place=str(path),
            hint="convert them: exchange rates are not guessed",
        )
    return list(offers.values()), next(iter(currencies), ""), notes


def _offer(name: str, cells: Mapping[str, str], place: str) -> Offer:
    def number(column: str) -> float | None:
        text = (cells.get(column) or "").strip()
        return _number(text, column, place) if text else None

    def above_0(column: str) -> float | None:
        value = number(column)
        if value == 0:
            raise PlanError(f"column {column}: 0", place=place, hint="leave it empty if it is unknown")
        return value

    def interval(column: str) -> Interval | None:
        value, low, high = above_0(column), number(f"{column}_low"), number(f"{column}_high")
        if value is None:
            return None
        if not (low or value) <= value <= (high or value):
            raise PlanError(f"column {column}: {value:g} is outside its interval", place=place)
        return Interval(value, low, high)

    limit = {r: found for r in Resource if (found := interval(r.value)) is not None}
    knee = {r: found for r in limit if (found := interval(f"{r.value}_knee")) is not None}
    for resource, found in knee.items():
        if found.estimate > 1:
            raise PlanError(
                f"column {resource}_knee: {found.estimate:g} is a share of the limit, at most 1", place=place
            )
    burst = {r: more for r in limit if (more := number(f"{r.value}_burst")) is not None}
    count = number("count")
    if count is not None and count % 1:
        raise PlanError(f"column count: {count:g} is not a whole number", place=place)
    return Offer(
        Capacity(name, limit, knee, above_0("price"), above_0("watts"), burst),
        None if count is None else int(count),
    )


def _number(text: str, column: str, place: str) -> float:
    value = amount(text, unit_of(column))
    if value is None:
        raise PlanError(
            f"column {column}: {text!r} is not a number of at least 0",
            place=place,
            hint="such as 32, 1200000 or 256GiB",
        )
    return value


def _instances(path: Path, region: str, only: Sequence[str]) -> tuple[list[Offer], str, list[str]]:
    """instances.json: a list of instance types, prices by region, platform and term, dollars an hour.

    ``ebs_baseline_*`` are what a type has always, ``ebs_*`` for half an hour a day. ``base_performance`` is how
    many vCPUs a burstable type has always: the credits that it earns per hour / 60 (add_t2_credits of scrape.py,
    and scraper/aws/ec2/t2.go, in vantage-sh/ec2instances.info). AWS's table has the share of each vCPU.
    """
    try:
        content = json.loads(read_plain(path, MOST_BYTES).decode())
    except FileNotFoundError as error:
        raise PlanError("no such file", place=str(path)) from error
    except (OSError, UnicodeError, ValueError, RecursionError) as error:
        raise PlanError(f"not JSON: {error}", place=str(path)) from error
    if not isinstance(content, list):
        raise PlanError(
            "not a list of instance types", place=str(path), hint="instances.json of ec2instances.info"
        )
    offers, unpriced = [], []
    currency = "CNY" if region.startswith("cn-") else "USD"
    for number, each in enumerate(content):
        name = each.get("instance_type") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise PlanError(f"entry {number}: no instance_type", place=str(path))
        if not _matches(name, only):
            continue
        price = _price(each, region)
        if price is None:
            unpriced.append(name)
            continue
        offers.append(_instance(name, each, price))
    notes = [
        "a vCPU is mostly a hardware thread, less than a core: correct cpu if you measured it",
        "network_performance is in Gigabit, so packets are unknown and limit nothing: measure them",
    ]
    if unpriced:
        notes.append(f"no price in {region} for Linux on demand: {named(unpriced)} left out")
    return offers, currency, notes


def _price(entry: Mapping[str, Any], region: str) -> float | None:
    found: Any = entry.get("pricing")
    for key in (region, "linux", "ondemand"):
        found = found.get(key) if isinstance(found, dict) else None
    try:
        price = float(found) * MONTH_H
    except (TypeError, ValueError):
        return None
    return price if math.isfinite(price) and price > 0 else None


def _instance(name: str, entry: Mapping[str, Any], price: float) -> Offer:
    def value(key: str) -> float:
        found = entry.get(key)
        is_number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
        return max(float(found), 0.0) if is_number else 0.0  # type: ignore[arg-type]

    limit: dict[Resource, Interval] = {}
    burst: dict[Resource, float] = {}

    def put(resource: Resource, base: float, most: float) -> None:
        if base or most:
            limit[resource] = Interval(base or most, None, None)
        if most > base > 0:
            burst[resource] = most

    vcpus = value("vCPU")
    put(Resource.CPU, min(value("base_performance"), vcpus) or vcpus, vcpus)
    put(Resource.MEMORY, value("memory") * GIB, 0)
    # Reads and writes together, in requests and in MB/s.
    put(Resource.DEVICE_REQUESTS, value("ebs_baseline_iops"), value("ebs_iops"))
    put(Resource.DEVICE_BYTES, value("ebs_baseline_throughput") * 1e6, value("ebs_throughput") * 1e6)
    return Offer(Capacity(name, limit, {}, price, None, burst))


def with_watts(catalogue: Catalogue, path: Path) -> Catalogue:
    """The same with the watts of a table: columns name and watts."""
    lines, _ = cells_of(path, ("name", "watts"), ("watts",))
    table = {
        c["name"].strip(): _number(text, "watts", place) for place, c in lines if (text := c["watts"].strip())
    }
    offers = tuple(
        replace(o, capacity=replace(o.capacity, watts=table.get(o.capacity.name, o.capacity.watts)))
        for o in catalogue.offers
    )
    notes = tuple(n for n in catalogue.notes if not n.startswith("watts"))
    return Catalogue(
        offers, catalogue.currency, (*notes, *_missing([o.capacity for o in offers], ("watts",)))
    )


def _missing(
    capacities: Sequence[Capacity], fields: Sequence[str] = ("price", "watts", "limits")
) -> list[str]:
    notes = []
    for field in fields:
        if field == "limits":
            for resource in Resource:
                without = [c.name for c in capacities if not is_limited(resource, c.limit)]
                if 0 < len(without) < len(capacities):
                    notes.append(f"{resource} unknown for {named(without)}: it does not limit them")
            continue
        without = [c.name for c in capacities if getattr(c, field) is None]
        if without:
            notes.append(
                f"{field} unknown for {named(without) if len(without) < len(capacities) else 'all hosts'}"
            )
    return notes


def knee_of(capacity: Capacity, resource: Resource) -> tuple[Interval, bool]:
    """(the knee, whether it was measured)."""
    if resource in capacity.knee:
        return capacity.knee[resource], True
    return (ASSUMED_FULL if resource in (Resource.MEMORY, Resource.SPACE) else ASSUMED_KNEE), False
