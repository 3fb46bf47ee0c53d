"""Predictions and what came of them, kept on this machine: a prediction is written before it is tried."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from headrace.base.errors import StoreError
from headrace.base.intervals import Interval
from headrace.base.state import state_path
from headrace.capacity.foresee import Allowances, Prediction, is_inside

FILE = "predictions.jsonl"
#: So many of the intervals should hold.
HOLD = 0.95


@dataclass(frozen=True)
class Kept:
    """``at``: seconds since 1970. ``measured`` is None as long as nothing was measured. ``about``: what it
    takes to measure it later, if that is not done by the same command."""

    id: str
    at: float
    host: str
    plan: tuple[str, ...]
    prediction: Prediction
    measured: float | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_inside(self) -> bool | None:
        return None if self.measured is None else is_inside(self.prediction.interval, self.measured)


@dataclass(frozen=True)
class Calibration:
    """Of one quantity: ``inside`` of ``tried`` outcomes lay in their interval; errors are medians, as shares.

    ``bounds`` outcomes had only a lower bound, which ``bounds_held`` of them kept; they are not among those tried.
    ``share``: how many of all such intervals hold, with its exact 95% interval (Clopper & Pearson 1934, Biometrika
    26).
    """

    quantity: str
    made: int
    tried: int
    inside: int
    bounds: int
    bounds_held: int
    share: Interval | None
    error: float | None
    naive_error: float | None

    @property
    def is_too_narrow(self) -> bool:
        return self.share is not None and self.share.high is not None and self.share.high < HOLD

    @property
    def is_too_wide(self) -> bool:
        return self.share is not None and self.share.low is not None and self.share.low > HOLD


def path() -> Path:
    return state_path(FILE)


class Batch:
    """Predictions and outcomes that ``write`` appends together: one sync to disk, however many they are."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def keep(
        self,
        id_: str,
        at: float,
        host: str,
        plan: Sequence[str],
        found: Iterable[Prediction],
        about: Mapping[str, Any] | None = None,
    ) -> None:
        same = {"id": id_, "at": at, "host": host, "plan": list(plan)}
        if about:
            same["about"] = dict(about)
        self._rows += [{**same, "prediction": _json(each)} for each in found]

    def came_true(self, id_: str, measured: Iterable[tuple[Prediction, float]]) -> None:
        self._rows += [
            {"id": id_, "what": each.what, "quantity": each.quantity, "measured": value}
            for each, value in measured
            if math.isfinite(value)
        ]

    def write(self) -> None:
        """Raises StoreError."""
        if self._rows:
            _append(self._rows)
        self._rows = []


def keep(id_: str, at: float, host: str, plan: Sequence[str], found: Iterable[Prediction]) -> None:
    """Raises StoreError."""
    batch = Batch()
    batch.keep(id_, at, host, plan, found)
    batch.write()


def came_true(id_: str, measured: Iterable[tuple[Prediction, float]]) -> None:
    """What was measured of predictions that are kept. Raises StoreError."""
    batch = Batch()
    batch.came_true(id_, measured)
    batch.write()


def every() -> list[Kept]:
    """All of them, the latest last; half a line that a killed command left is none. Raises StoreError."""
    found: dict[tuple[str, str, str], Kept] = {}
    for row in _rows():
        try:
            if "prediction" in row:
                prediction = _prediction(row["prediction"])
                key = (row["id"], prediction.what, prediction.quantity)
                found[key] = Kept(
                    row["id"], row["at"], row["host"], tuple(row["plan"]), prediction,
                    about=dict(row.get("about", {})),
                )  # fmt: skip
            elif (key := (row["id"], row["what"], row["quantity"])) in found:
                old = found[key]
                found[key] = replace(old, measured=_number(row["measured"]))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"cannot be read: {error!r}", place=str(path())) from error
    return list(found.values())


def calibration(kept: Iterable[Kept]) -> list[Calibration]:
    by_quantity: dict[str, list[Kept]] = defaultdict(list)
    for each in kept:
        by_quantity[each.prediction.quantity].append(each)
    found = []
    for quantity, all_of in by_quantity.items():
        measured = [each for each in all_of if each.measured is not None]
        tried = [each for each in measured if each.prediction.is_interval]
        errors = [abs(math.expm1(error)) for error in _errors(tried)]
        naive = [
            abs(each.measured / each.prediction.naive - 1)
            for each in tried
            if each.measured and each.prediction.naive
        ]
        inside = sum(each.is_inside is True for each in tried)
        medians = (median(each) if each else None for each in (errors, naive))
        bounds = [each for each in measured if not each.prediction.is_interval]
        held = sum(each.is_inside is True for each in bounds)
        share = share_of(inside, len(tried))
        found.append(
            Calibration(quantity, len(all_of), len(tried), inside, len(bounds), held, share, *medians)
        )
    return found


def share_of(inside: int, tried: int) -> Interval | None:
    from scipy.stats import binomtest

    if not tried:
        return None
    found = binomtest(inside, tried).proportion_ci(0.95, "exact")
    return Interval(inside / tried, float(found.low), float(found.high))


def allowances(kept: Iterable[Kept]) -> Allowances:
    """How far predictions were off so far."""
    errors: dict[str, list[float]] = defaultdict(list)
    for each in kept:
        errors[each.prediction.quantity] += _errors([each])
    return Allowances(errors)


def _errors(kept: Iterable[Kept]) -> list[float]:
    return [
        math.log(each.measured / each.prediction.interval.estimate)
        for each in kept
        if each.measured and 0 < each.prediction.interval.estimate < math.inf
    ]


def _json(prediction: Prediction) -> dict[str, Any]:
    content = asdict(prediction)
    estimate = content["interval"]["estimate"]
    # JSON has no infinity.
    content["interval"]["estimate"] = None if math.isinf(estimate) else estimate
    return content


def _prediction(content: dict[str, Any]) -> Prediction:
    found = content["interval"]
    estimate = math.inf if found["estimate"] is None else _number(found["estimate"])
    low, high = (None if found[end] is None else _number(found[end]) for end in ("low", "high"))
    interval = Interval(estimate, low, high)
    return Prediction(str(content["what"]), str(content["quantity"]), interval, _number(content["naive"]))


def _number(value: Any) -> float:
    """Nothing that is predicted or measured can be negative."""
    found = float(value)
    if not 0 <= found < math.inf:
        raise ValueError(f"{value!r} is not an amount")
    return found


def _rows() -> list[dict[str, Any]]:
    try:
        content = path().read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", place=str(path())) from error
    rows = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            if line:
                rows.append(json.loads(line))
        except ValueError as error:
            if not content.endswith(b"\n") and line == content.rsplit(b"\n", 1)[-1]:
                break
            raise StoreError(f"line {number} cannot be read", place=str(path())) from error
    return rows


def _append(rows: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        with path().open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            # Half a line that a killed command left must not join ours.
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror}", place=str(path())) from error
