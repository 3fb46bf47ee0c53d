"""Digests as ``headrace-agent digest`` writes them, by a plain and slow counter (docs/reference/digest-format.md).

It counts one event at a time, so that the merge of parts can be held against the digest of the whole.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from headrace.base.buckets import bucket_of

SECOND_NS = 1_000_000_000
#: 2026-03-01 00:00 UTC, and a whole slice of any width used here.
START_NS = 1_772_323_200 * SECOND_NS


@dataclass(frozen=True)
class Event:
    """``klass`` is the number of a class: ``fingerprint`` and ``id`` follow from it, unless ``text`` says more."""

    start_ns: int
    klass: int = 0
    response_ns: int | None = 1_000_000
    user: str = "app"
    host: str = "10.0.0.1"
    database: str = "shop"
    error: int | None = None
    is_judged: bool = True
    rows_sent: int | None = 1
    rows_examined: int | None = 10
    text: str = ""


@dataclass
class Shape:
    """A digest's header; what it has no events for."""

    mode: str = "strict"
    inputs: Sequence[str] = ("slow.log",)
    host: str = "db1"
    slice_s: int = 1
    coverage: dict[str, Any] = field(default_factory=dict)
    filtered: int = 0
    fingerprint: str = "select * from t{0} where id = ?"


def lines(events: Iterable[Event], shape: Shape | None = None) -> list[str]:
    """The JSON lines of one digest."""
    shape = shape or Shape()
    events = list(events)
    by_class: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        by_class[event.klass].append(event)
    starts = [event.start_ns for event in events]
    heat: dict[int, Counter[int]] = defaultdict(Counter)
    timed = [event for event in events if event.response_ns is not None]
    for event, bucket in zip(timed, _buckets([event.response_ns or 0 for event in timed]), strict=True):
        heat[_slice_s(event.start_ns, shape)][bucket] += 1
    told = [
        {
            "type": "digest", "version": 1, "mode": shape.mode, "group": ["class"], "inputs": list(shape.inputs),
            "measures": ["lock_ns", "rows_sent", "rows_examined", "request_bytes"],
            "filter": {"since_ns": None, "until_ns": None, "filters": []}, "host": shape.host, "agent": "0.1.0",
            "first_ns": min(starts, default=None), "last_ns": max(starts, default=None),
            "slice_ns": shape.slice_s * SECOND_NS, "heat_slice_ns": shape.slice_s * SECOND_NS,
            "coverage": {"events": len(events), "bytes": 100 * len(events), "places": [], **shape.coverage},
            "events": len(events), "filtered": shape.filtered, "undated": 0, "others": 0,
        },
        {"type": "totals", **_counts(events, 1024)},
        {"type": "heat", "slices": [[at, sorted(found.items())] for at, found in sorted(heat.items())]},
    ]  # fmt: skip
    classes = sorted(by_class.items(), key=lambda pair: -sum(e.response_ns or 0 for e in pair[1]))
    told += [_class(number, found, shape) for number, found in classes]
    told.append({"type": "end", "classes": len(classes)})
    return [json.dumps(line, ensure_ascii=False) for line in told]


def _buckets(values_ns: Sequence[int]) -> list[int]:
    """All at a time: one by one, NumPy takes most of a test's time."""
    return [int(bucket) for bucket in bucket_of(np.array(values_ns, dtype=np.uint64))]


def _slice_s(start_ns: int, shape: Shape) -> int:
    whole_s = start_ns // SECOND_NS
    return whole_s - whole_s % shape.slice_s


def _counts(events: Sequence[Event], most_names: int) -> dict[str, Any]:
    times = [event.response_ns for event in events if event.response_ns is not None]
    buckets = Counter(_buckets(times))
    errors = Counter(str(event.error) for event in events if event.error)
    starts = [event.start_ns for event in events]
    return {
        "count": len(events), "timed": len(times), "errors": dict(errors), "failed": sum(errors.values()),
        "unanswered": 0, "unjudged": sum(not event.is_judged for event in events),
        "response_sum_ns": sum(times), "response_sum_squares": str(sum(t * t for t in times)),
        "response_min_ns": min(times, default=None), "response_max_ns": max(times, default=None),
        "buckets": sorted(buckets.items()), "first_byte": None, "lock_ns": None,
        "rows_sent": _told([e.rows_sent for e in events]),
        "rows_examined": _told([e.rows_examined for e in events]),
        "request_bytes": None,
        "first_ns": min(starts, default=None), "last_ns": max(starts, default=None),
        **{
            key: _names([(getattr(e, name), e.response_ns or 0) for e in events], most_names)
            for key, name in (("users", "user"), ("hosts", "host"), ("databases", "database"))
        },
    }  # fmt: skip


def _told(values: Sequence[int | None]) -> dict[str, Any] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    buckets = Counter(_buckets([_coarse(value) for value in known]))
    return {
        "known": len(known), "sum": sum(known), "sum_squares": str(sum(value * value for value in known)),
        "min": min(known), "max": max(known), "buckets": sorted(buckets.items()),
    }  # fmt: skip


def _coarse(value: int) -> int:
    """The middle of a range: 16 ranges per power of two."""
    shift = max(value.bit_length() - 5, 0)
    return (value >> shift << shift) + ((1 << shift) >> 1)


@cache
def hash_of(name: str) -> int:
    """Any number that depends on the name alone and fills 64 bits will do here."""
    return random.Random(name).getrandbits(64)


def _names(pairs: Sequence[tuple[str, int]], most: int) -> list[list[Any]]:
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for name, took_ns in pairs:
        counts[name] += 1
        sums[name] += took_ns
    kept = sorted((name for name in counts if name), key=hash_of)[:most]
    return [
        [name, counts[name], sums[name], hash_of(name)] for name in sorted(kept, key=lambda n: -counts[n])
    ]


def _class(number: int, events: Sequence[Event], shape: Shape) -> dict[str, Any]:
    name = f"{number:016x}"
    slices: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for event in events:
        at = slices[_slice_s(event.start_ns, shape)]
        at[0] += 1
        at[1] += event.response_ns or 0
        at[2] = max(at[2], event.response_ns or 0)
        at[3] += bool(event.error)
    # As the merge chooses: the slowest, then the earliest, then the smallest as JSON with the text first.
    samples = [_sample(number, event) for event in events]
    best = min(samples, key=lambda s: (-_or(s["response_ns"], -1), s["start_ns"], json.dumps(s)))
    return {
        "type": "class", "id": name, "key": {"class": name}, "is_others": False,
        "fingerprint": shape.fingerprint.format(number), "verb": "select", "tables": [f"t{number}"],
        **_counts(events, 32),
        "slices": [[at, *found] for at, found in sorted(slices.items())],
        "sample": best,
    }  # fmt: skip


def _or(value: int | None, instead: int) -> int:
    return instead if value is None else value


def _sample(number: int, event: Event) -> dict[str, Any]:
    text = event.text or f"SELECT * FROM t{number} WHERE id = {event.start_ns % 97}"
    return {
        "text": text, "text_bytes": len(text.encode()), "is_redacted": False, "start_ns": event.start_ns,
        "response_ns": event.response_ns, "session": 1, "user": event.user, "host": event.host,
        "database": event.database, "command": "query", "error": event.error,
        "rows_sent": event.rows_sent, "rows_examined": event.rows_examined, "rows_affected": None,
    }  # fmt: skip


def traffic(
    seed: int, n: int = 2_000, classes: int = 12, seconds: int = 60, slower: float = 1.0
) -> list[Event]:
    """Some traffic: a few classes do most of it, latencies are log-normal, one call in 500 fails."""
    draw = random.Random(seed)
    found = []
    for _ in range(n):
        klass = min(int(draw.expovariate(0.5)), classes - 1)
        found.append(
            Event(
                START_NS + draw.randrange(seconds * SECOND_NS),
                klass,
                int(draw.lognormvariate(13 + klass / 3, 0.9) * slower),
                user=draw.choice(("app", "report", "cron")),
                host=f"10.0.0.{draw.randrange(60)}",
                error=draw.choice((1062, 1213)) if draw.random() < 0.002 else None,
                rows_examined=draw.randrange(1, 10 ** (1 + klass % 4)),
            )
        )
    return found
