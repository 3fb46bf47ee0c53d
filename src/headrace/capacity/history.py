"""What hosts used over time, by host: from the history of `headrace serve`, or from samples.

All hosts of one reading share their steps. A step that nobody watched is NaN, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.errors import NothingMeasured, StoreError
from headrace.base.whole import plain_file
from headrace.capacity.model import Demand, Resource
from headrace.capacity.used import DEMAND, LIMIT, MOST_DIGESTS, OverTime, Part, limits, used, usual
from headrace.history.archive import is_archive
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, REQUESTS, SLOW_LOG
from headrace.host.samples import Samples
from headrace.host.window import SUCCESS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.history.archive.reader import Range, Reader

    Floats = NDArray[np.float64]

SAMPLES_SUFFIX = ".jsonl.zst"
#: With which a compressed file begins (RFC 8878, 3.1.1).
ZSTD = b"\x28\xb5\x2f\xfd"
#: Histories up to this long are read in minutes, longer ones in hours: minutes are kept for two days.
IN_MINUTES_S = 2 * DAY_S
#: Samples give at least about so many steps, and no step shorter than this.
SAMPLE_STEPS, LEAST_STEP_S = 120, 5
MOST_STEPS = 1_000_000
#: One read of the history: see ``archive.reader.Range.rows_s``.
_READ_S = {MINUTE_S: 6 * HOUR_S, HOUR_S: 8 * DAY_S}
#: A row whose numbers can be: a damaged one says nothing of its time.
#: The archive's reader gives no value for a number that cannot be.
_SOUND = "COALESCE(isfinite(sum) AND isfinite(most) AND sum >= 0 AND most >= 0, FALSE)"
#: Seconds of each step that were watched, among the means.
_WATCHED = "watched_s"
#: Statements that clients sent.
QUESTIONS = "questions"
#: A day counts if this share of it was watched.
WHOLE_DAY = 0.75
#: Sources that count every call, the best first. The process list counts none.
_COUNTING = (PERFORMANCE_SCHEMA, SLOW_LOG)


@dataclass(frozen=True)
class Peaks:
    """The highest minute of each day that was watched for most of it. ``day``: days since 1970, UTC."""

    day: NDArray[np.int64]
    most: Floats


@dataclass(frozen=True)
class Overall:
    """A resource's ``mean`` use over the whole history, and the share of that time in which it was ``watched``."""

    mean: float
    watched: float


@dataclass(frozen=True)
class History:
    """One host over time. ``calls[c]``: calls per second of a query class in each step of the demand;
    ``queries``: statements of clients per second; ``lock_s[c]``: seconds per second that calls of the class
    waited for locks, by the server's count; ``parts``: the CPU's parts in cores; ``limits``: what the samples
    tell of the host.

    ``peaks`` and ``overall`` are of the whole history. The steps begin where there are rows as fine as they are:
    `headrace serve` keeps hours for some weeks, and days for a year.
    """

    demand: Demand
    calls: Mapping[str, Floats] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    lock_s: Mapping[str, Floats] = field(default_factory=dict)
    parts: Mapping[Part, Floats] = field(default_factory=dict)
    limits: Mapping[Resource, float] = field(default_factory=dict)
    peaks: Mapping[Resource, Peaks] = field(default_factory=dict)
    overall: Mapping[Resource, Overall] = field(default_factory=dict)
    source: str = ""
    notes: tuple[str, ...] = ()
    queries: Floats | None = None

    @property
    def host(self) -> str:
        return self.demand.host


def _nobody(said: str) -> None:
    pass


def read(
    path: Path,
    step_s: int = 0,
    hosts: Sequence[str] = (),
    tell: Callable[[str], None] = _nobody,
    *,
    with_calls: bool = True,
) -> list[History]:
    """Every host that the path holds: a history's directory, a samples file, or a directory of them.

    In a directory each file is a host by its name, and a subdirectory a host whose files follow each other. A file
    without samples is left out, which ``tell`` is told. ``with_calls``: see ``of_archive``.
    """
    if is_archive(path):
        found = of_archive(Archive(path), step_s, hosts, with_calls=with_calls)
    else:
        files = {host: paths for host, paths in _sample_files(path).items() if not hosts or host in hosts}
        found = _of_samples(files, step_s, tell)
    if not found and path.is_file():
        samples = f"headrace-agent sample --output HOST{SAMPLES_SUFFIX}"
        hint = "`headrace size merge` reads tables of demands" if path.suffix == ".csv" else samples
        raise NothingMeasured("there are no samples in this file", place=str(path), hint=hint)
    if not found:
        raise NothingMeasured("no host has a history here", place=str(path))
    return found


def names(path: Path) -> list[str]:
    """The hosts that ``read`` finds there."""
    return Archive(path).hosts() if is_archive(path) else list(_sample_files(path))


def _sample_files(path: Path) -> dict[str, list[Path]]:
    if path.is_file():
        return {_name(path): [path]}
    if not path.is_dir():
        raise StoreError(
            "no such file or directory",
            place=str(path),
            hint="collect a history with `headrace serve`, or name samples",
        )
    found = {_name(file): [file] for file in sorted(path.glob(f"*{SAMPLES_SUFFIX}"))}
    for folder in sorted(each for each in path.iterdir() if each.is_dir()):
        if files := sorted(folder.glob(f"*{SAMPLES_SUFFIX}")):
            found[folder.name] = files
    if not found:
        raise NothingMeasured(
            "neither a history of `headrace serve` nor samples",
            place=str(path),
            hint=f"headrace-agent sample --output HOST{SAMPLES_SUFFIX}",
        )
    return found


def _name(path: Path) -> str:
    return path.name.removesuffix(SAMPLES_SUFFIX)


# Samples.


def _of_samples(
    files: Mapping[str, Sequence[Path]], step_s: int, tell: Callable[[str], None]
) -> list[History]:
    parts, errors = _parts(files, tell)
    read = {host: _joined(own) for host, own in parts.items()}
    if not read:
        if errors:
            raise errors[0]
        return []
    first = min(float(each.t_ns.min()) for each in read.values()) / 1e9
    last = max(float(each.t_ns.max()) for each in read.values()) / 1e9
    slowest = max(_distance_s(each) for each in read.values())
    step_s = math.ceil((step_s or _step_of(last - first)) / slowest) * slowest
    start_s = math.floor(first)
    steps = int((last - start_s) // step_s)
    _check(steps * _minutes(step_s))
    if steps < 1:
        raise NothingMeasured(
            f"{last - first:.0f} s of samples hold no whole step of {step_s} s", hint="sample for longer"
        )
    edges = start_s + step_s * np.arange(steps + 1, dtype=np.float64)
    return [of_samples(host, samples, edges + _phase_s(samples, start_s)) for host, samples in read.items()]


def _ticks_s(samples: Samples) -> Floats:
    """When calls were counted: digests every 10 s, commands with everything else."""
    for sampler in ("statements", "mysql_status", "cpu"):
        if (sampler, SUCCESS, "") in samples.names:
            number = samples.names.index((sampler, SUCCESS, ""))
            return samples.t_ns[samples.starts[number] : samples.ends[number]] / 1e9
    return np.empty(0)


def _distance_s(samples: Samples) -> int:
    """Whole seconds between two counts of calls."""
    ticks = _ticks_s(samples)
    return max(round(usual(ticks)), 1)


def _phase_s(samples: Samples, start_s: int) -> float:
    """By how much a host's steps start later, so that they end when its calls were counted.

    Otherwise calls of one step would be read in its neighbour, and seem to cost less than they do.
    """
    ticks = _ticks_s(samples)
    later = ticks[ticks >= start_s]
    return float(later[0] - start_s) % _distance_s(samples) if len(later) else 0.0


def _check(steps: int) -> None:
    if steps > MOST_STEPS:
        raise StoreError(
            f"{steps:,} steps: a clock was wrong, or the steps are too short",
            hint=f"at most {MOST_STEPS:,} steps: a longer --step",
        )


def _parts(
    files: Mapping[str, Sequence[Path]], tell: Callable[[str], None]
) -> tuple[dict[str, list[Samples]], list[StoreError]]:
    """Host -> what its files hold, up to the last whole line of each; files that hold something else."""
    parts: dict[str, list[Samples]] = {}
    errors = []
    for host, paths in files.items():
        for path in paths:
            try:
                found = Samples.read(path)
            except (OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                errors.append(StoreError(f"these are not samples: {error!r}", place=str(path)))
                tell(f"left out: {path}: these are not samples")
                continue
            if len(found):
                parts.setdefault(host, []).append(found)
            else:
                tell(f"left out: {path}: {_why_nothing(path)}")
    return parts, errors


def _why_nothing(path: Path) -> str:
    with plain_file(path) as file:
        start = file.read(len(ZSTD))
    if not start:
        return "it is empty"
    return "no whole sample is in it" if start == ZSTD else "these are not samples"


def _joined(parts: Sequence[Samples]) -> Samples:
    return parts[0] if len(parts) == 1 else Samples.of(row for part in parts for row in part.rows())


def _minutes(step_s: float) -> int:
    """Pieces of about a minute of which a step consists."""
    return max(round(step_s / MINUTE_S), 1)


def _step_of(seconds: float) -> int:
    nice = (LEAST_STEP_S, 10, 15, 30, MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, HOUR_S)
    return max((step for step in nice if seconds / step >= SAMPLE_STEPS), default=LEAST_STEP_S)


def of_samples(host: str, samples: Samples, edges_s: Floats) -> History:
    """``edges_s``: whole seconds apart."""
    over = OverTime(samples, edges_s)
    found = used(over)
    calls, lock_s, source = _calls(over)
    start_s, step_s = int(edges_s[0]), round(edges_s[1] - edges_s[0])
    means = {r: found[r] for r in Resource if r in found}
    demand = Demand(host, start_s, step_s, means, most=_most(samples, edges_s, means))
    overall = {r: whole for r, values in means.items() if (whole := overall_of(values)) is not None}
    return History(
        demand,
        calls,
        lock_s=lock_s,
        parts={part: found[part] for part in Part if part in found},
        limits=limits(over),
        peaks={r: peaks_of(demand.most.get(r, means[r]), start_s, step_s) for r in means},
        overall=overall,
        source=source,
        notes=tuple(_gaps(overall)),
        queries=over.rate("mysql_status", QUESTIONS),
    )


def _most(samples: Samples, edges_s: Floats, means: Mapping[Resource, Floats]) -> dict[Resource, Floats]:
    """The highest minute of each step; {} if steps are no longer than minutes."""
    steps = len(edges_s) - 1
    pieces = _minutes(edges_s[1] - edges_s[0])
    if pieces == 1:
        return {}
    at = np.arange(steps * pieces + 1) / pieces
    found = used(OverTime(samples, np.interp(at, np.arange(steps + 1), edges_s)))
    most = {}
    for resource, mean in means.items():
        highest = np.fmax.reduce(found[resource].reshape(steps, pieces), axis=1)
        # No minute may be known of a step that is, if its samples are far apart.
        most[resource] = np.where(np.isfinite(mean), np.fmax(highest, mean), np.nan)
    return most


def _calls(over: OverTime) -> tuple[dict[str, Floats], dict[str, Floats], str]:
    """By digest if the server counted any, otherwise by kind of command."""
    counted = {name: _counted(over, "count", name) for name in over.labels("statements", "count")}
    rates = {name: rate for name, rate in counted.items() if rate is not None}
    if any(_any(rate) for rate in rates.values()):
        blind = np.isnan(np.array(list(rates.values()))).all(axis=0)
        # A class that is not among the busiest has no samples: it ran rarely, or not at all.
        calls = {n: np.where(blind, np.nan, np.nan_to_num(r)) for n, r in rates.items() if _any(r)}
        waited = {name: _counted(over, "lock_ns", name) for name in calls}
        locks = {
            n: np.where(blind, np.nan, np.nan_to_num(ns)) / 1e9 for n, ns in waited.items() if ns is not None
        }
        return calls, locks, "digests"
    commands: dict[str, Floats] = {}
    for metric in (name for sampler, name in over.metrics if sampler == "mysql_status"):
        if metric.startswith("com_") and not metric.startswith(("com_stmt_", "com_show_")):
            grown = over.rate("mysql_status", metric)
            if grown is not None and _any(grown):
                commands[metric.removeprefix("com_")] = grown
    return commands, {}, "commands" if commands else ""


def _counted(over: OverTime, metric: str, digest: str) -> Floats | None:
    return over.counted("statements", metric, digest, MOST_DIGESTS)


def _any(rate: Floats) -> bool:
    return bool(np.nansum(rate) > 0)


def peaks_of(values: Floats, start_s: int, step_s: int, least: float = WHOLE_DAY) -> Peaks:
    """The highest of the steps of each day of which at least this share was watched."""
    day = (start_s + step_s * np.arange(len(values))) // DAY_S
    days, at = np.unique(day, return_inverse=True)
    known = np.isfinite(values)
    watched = np.bincount(at, weights=known * float(step_s), minlength=len(days))
    most = np.full(len(days), -np.inf)
    np.maximum.at(most, at[known], values[known])
    whole = (watched > 0) & (watched >= least * DAY_S)
    return Peaks(days[whole].astype(np.int64), most[whole])


def overall_of(values: Floats) -> Overall | None:
    """Of steps; None if nothing is known in any."""
    finite = values[np.isfinite(values)]
    return Overall(float(finite.mean()), len(finite) / len(values)) if len(finite) else None


def _gaps(overall: Mapping[Resource, Overall]) -> Iterator[str]:
    if Resource.CPU not in overall:
        yield "its CPU was not sampled"
        return
    missing = 1 - overall[Resource.CPU].watched
    if missing >= 0.01:
        # Rounded, the whole time would not have been watched.
        share = f"{missing:.0%}" if missing < 0.995 else "more than 99%"
        yield f"{share} of the time was not watched: a peak in it is not known"


# The history of `headrace serve`.


def of_archive(
    archive: Archive, step_s: int = 0, hosts: Sequence[str] = (), *, with_calls: bool = True
) -> list[History]:
    """``with_calls``: also the calls of query classes, which are most of a history.

    The steps of all hosts begin with the first that any host has rows for: what is older is days only, and has no
    time of day.
    """
    from headrace.history.archive.reader import Range, Reader

    files = archive.files("states")
    names = [name for name in archive.hosts() if not hosts or name in hosts]
    if not files or not names:
        return []
    whole = _exact(Reader(archive), names, Range(files[0].t_s, max(file.end_s for file in files)))
    first_s = {each: _first_s(archive, names, each) for each in _READ_S}
    is_short = whole.seconds <= IN_MINUTES_S and first_s[MINUTE_S] is not None
    step_s = step_s or (MINUTE_S if is_short else HOUR_S)
    if step_s not in first_s:
        raise StoreError(f"a history is read in steps of {' or '.join(f'{s} s' for s in _READ_S)}")
    if first_s[HOUR_S] is None:
        return []  # what stopped so long ago that only its days are left
    if (first := first_s[step_s]) is None:
        raise NothingMeasured("its minutes were deleted: they are kept for two days", hint="--step 1h")
    start_s = int(max(whole.since_s, first) // step_s * step_s)
    steps = math.ceil((whole.until_s - start_s) / step_s)
    _check(steps)
    reader = Reader(archive)
    return [
        _host_of(_Past(reader, name, whole, start_s, step_s, steps), with_calls=with_calls) for name in names
    ]


def _first_s(archive: Archive, names: Sequence[str], step_s: int) -> int | None:
    """From when on any host has rows that are no longer than a step."""
    kinds = "mM" if step_s == MINUTE_S else "mMh"
    files = (file for name in names for file in archive.files("metrics", name))
    return min((file.t_s for file in files if file.kind in kinds), default=None)


def _exact(reader: Reader, names: Sequence[str], whole: Range) -> Range:
    """From the first day to the last: the file of a week is named after its Monday, whichever day it began."""
    if whole.rows_s != DAY_S:
        return whole
    [row] = reader.rows("states", "SELECT MIN(t_s) AS first, MAX(t_s) AS last FROM rows", names, whole)
    if row["first"] is None:
        return whole
    return type(whole)(max(whole.since_s, row["first"]), min(whole.until_s, row["last"] + DAY_S))


@dataclass(frozen=True)
class _Past:
    """One host's rows in the history, and the steps that they are read in, from ``start_s`` on."""

    reader: Reader
    host: str
    whole: Range
    start_s: int
    step_s: int
    steps: int

    def rows(self, table: str, chosen: str, where: str, **values: Any) -> Iterator[list[dict[str, Any]]]:
        """Span after span; ``t`` of a row is the start of its step."""
        query = (
            f"SELECT {chosen}, t_s - t_s % {self.step_s} AS t FROM rows WHERE {where} GROUP BY ALL ORDER BY t"
        )
        width_s = _READ_S[self.step_s]
        at: float = self.start_s // width_s * width_s
        while at < self.whole.until_s:
            span = type(self.whole)(at, min(at + width_s, self.whole.until_s))
            yield self.reader.rows(table, query, self.host, span, **values)
            at += width_s

    def step_of(self, row: Mapping[str, Any]) -> int | None:
        step = (row["t"] - self.start_s) // self.step_s
        return int(step) if 0 <= step < self.steps else None

    def empty(self) -> Floats:
        return np.full(self.steps, np.nan)


def _host_of(past: _Past, *, with_calls: bool) -> History:
    means, mosts, seen = _metrics(past)
    watched_s = means.pop(_WATCHED, past.empty())
    queries = means.pop(QUESTIONS, None)
    notes = []
    scale = 0.0
    if Resource.CPU not in means:
        share, cores = means.get("busy"), seen.get("cores", 0.0)
        if share is not None and cores:
            scale = cores
            means[Resource.CPU], seen[Resource.CPU] = share * cores, cores
            mosts[Resource.CPU] = mosts["busy"] * cores
            notes.append(
                "its history has no demands yet, only the CPU's share: packets and devices are unknown"
            )
    demand = Demand(
        past.host, past.start_s, past.step_s, {r: means[r] for r in Resource if r in means},
        most={r: mosts[r] for r in Resource if r in mosts},
    )  # fmt: skip
    peaks, overall, damaged = _days(past, scale)
    if damaged:
        notes.append(f"{damaged} of its values are not amounts (infinite or negative): they count as unknown")
    calls, lock_s, texts, source = _classes(past, watched_s) if with_calls else ({}, {}, {}, "")
    if with_calls and not calls:
        calls = _requests(past)
        source = "memcached" if calls else ""
    return History(
        demand,
        calls,
        texts,
        lock_s,
        {part: means[part] for part in Part if part in means},
        {r: seen[r] for r in Resource if r in seen},
        peaks,
        overall,
        source,
        (*notes, *_gaps(overall)),
        queries,
    )


def _metrics(past: _Past) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, float]]:
    """Means and highest minutes of each step; and the newest limits."""
    means: dict[str, Floats] = {}
    mosts: dict[str, Floats] = {}
    seen: dict[str, float] = {}
    for rows in past.rows(
        "metrics",
        "metric, label, SUM(sum) / SUM(n) AS mean, MAX(most) AS most, SUM(n) AS n, "
        "arg_max(sum / n, t_s) AS newest",
        # A row of more minutes than a step has is of a whole day, whose hours were deleted.
        f"n <= $most_n AND {_SOUND} AND (metric IN ($demand, $limit) OR metric = 'cpu' AND label = 'busy' "
        "OR metric = 'cores' OR metric = 'server rates' AND label = $questions)",
        demand=DEMAND, limit=LIMIT, most_n=past.step_s // MINUTE_S, questions=QUESTIONS,
    ):  # fmt: skip
        cores = {row["label"] for row in rows if row["metric"] == "cores"}
        seen["cores"] = max(seen.get("cores", 0.0), float(len(cores)))
        for row in rows:
            at = past.step_of(row)
            if row["metric"] == LIMIT:
                seen[row["label"]] = float(row["newest"])
            elif row["metric"] != "cores" and at is not None and row["mean"] is not None:
                means.setdefault(row["label"], past.empty())[at] = row["mean"]
                mosts.setdefault(row["label"], past.empty())[at] = row["most"]
                if row["label"] == "busy":
                    means.setdefault(_WATCHED, past.empty())[at] = row["n"] * MINUTE_S
    return means, mosts, seen


def _days(past: _Past, scale: float) -> tuple[dict[Resource, Peaks], dict[Resource, Overall], int]:
    """``scale``: cores, for a history without demands. Also how many rows are damaged."""
    rows = past.reader.rows(
        "metrics",
        f"SELECT label, t_s // {DAY_S} AS day, {_SOUND} AS sound, COUNT(*) AS rows, SUM(n) AS n, SUM(sum) AS sum, "
        "MAX(most) AS most FROM rows "
        "WHERE metric = $demand OR metric = 'cpu' AND label = 'busy' GROUP BY ALL ORDER BY day",
        past.host,
        past.whole,
        demand=DEMAND,
    )
    damaged = sum(row["rows"] for row in rows if row["sound"] is False)
    rows = [row for row in rows if row["sound"]]
    peaks, overall = {}, {}
    for resource in Resource:
        label = "busy" if scale and resource is Resource.CPU else str(resource)
        own = [r for r in rows if r["label"] == label and r["sum"] is not None]
        minutes = sum(r["n"] for r in own)
        if minutes:
            mean = sum(r["sum"] for r in own) / minutes * (scale or 1.0)
            overall[resource] = Overall(mean, min(minutes * MINUTE_S / past.whole.seconds, 1.0))
        whole = [r for r in own if r["n"] >= WHOLE_DAY * DAY_S / MINUTE_S]
        if whole:
            most = np.array([r["most"] for r in whole], dtype=np.float64) * (scale or 1.0)
            peaks[resource] = Peaks(np.array([r["day"] for r in whole], dtype=np.int64), most)
    return peaks, overall, damaged


def _classes(
    past: _Past, watched_s: Floats
) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, str], str]:
    """Calls, and their lock time, per second of the time that was watched."""
    from headrace.history import questions

    known = questions.sources(past.reader, [past.host], past.whole)
    source = next((each for each in _COUNTING if each in known), "")
    if not source:
        return {}, {}, {}, ""
    calls: dict[str, Floats] = {}
    lock_ns: dict[str, Floats] = {}
    chosen = "class, SUM(calls) AS calls, SUM(lock_ns) AS lock_ns"
    for rows in past.rows("classes", chosen, "source = $source", source=source):
        for row in rows:
            at = past.step_of(row)
            if at is not None and row["calls"] is not None:
                calls.setdefault(row["class"], np.zeros(past.steps))[at] = row["calls"]
                if row["lock_ns"] is not None:
                    lock_ns.setdefault(row["class"], np.zeros(past.steps))[at] = row["lock_ns"]
    calls = {name: count / watched_s for name, count in calls.items()}
    locks = {name: ns / 1e9 / watched_s for name, ns in lock_ns.items()}
    texts = {
        name: str(row["text"])
        for name, row in questions.texts(past.reader, [past.host], past.whole, source).items()
    }
    return calls, locks, texts, source


def _requests(past: _Past) -> dict[str, Floats]:
    """Requests of a memcached host per second, by command; of several servers, each by itself."""
    rates: dict[str, dict[str, Floats]] = {}
    for rows in past.rows(
        "metrics",
        "metric, label, SUM(sum) / SUM(n) AS mean",
        f"n <= $most_n AND {_SOUND} AND metric IN (SELECT unnest($names))",
        most_n=past.step_s // MINUTE_S,
        names=sorted(REQUESTS),
    ):
        for row in rows:
            at = past.step_of(row)
            if at is not None and row["mean"] is not None:
                own = rates.setdefault(row["label"], {})
                own.setdefault(REQUESTS[row["metric"]], past.empty())[at] = row["mean"]
    return {
        command if len(rates) == 1 else f"{command} ({server})": rate
        for server, own in sorted(rates.items())
        for command, rate in own.items()
    }
