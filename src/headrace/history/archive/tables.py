"""The tables of the history, and how their rows add up.

Each row belongs to the unit that starts at ``t_s`` (seconds since 1970, UTC): a minute, an hour or a day. Rows
of the same key add up: SUM, MIN, MAX, and for words the newest. So an hour is exactly its minutes, a percentile
over a week is taken from the buckets of the week, and no percentile or mean is ever averaged.

What a row holds was written by a host, which may be broken or taken over. So no sum can overflow, a number that
cannot be is never added, and one host's rows cannot make a question to the others fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

#: A count of one minute, and a sum of counts. JSON and doubles are exact up to the first.
MOST_COUNT, MOST_SUM = 2**53, 2**62
#: Of any other number: so that no sum of a table's rows is infinite.
MOST_NUMBER = 1e24
#: Buckets end with that of the longest time in ns. Times lie between 1970 and 2096.
MOST_BUCKET, MOST_TIME_S = 7424, 4e9

_ADD = {"sum": "SUM", "least": "MIN", "most": "MAX", "newest": "arg_max"}


@dataclass(frozen=True)
class Table:
    """``key`` tells rows apart within a unit; ``added`` says of every other column how it adds up: sum, least,
    most or newest. ``is_private``: it may hold values of statements, so only its owner may read its files."""

    name: str
    key: Mapping[str, pa.DataType]
    added: Mapping[str, tuple[str, pa.DataType]]
    is_private: bool = False

    @property
    def schema(self) -> pa.Schema:
        rest = [(name, kind) for name, (_, kind) in self.added.items()]
        return pa.schema([("t_s", pa.int64()), *self.key.items(), *rest])

    def grouped(self, source: str, unit_s: int, start_s: int | None = None) -> str:
        """SQL: the rows of ``source`` added up to units of this many seconds, or to the one that has a start."""
        unit = f"t_s - t_s % {unit_s}" if start_s is None else f"t_s * 0 + {start_s}"
        columns = [f"{unit} AS t_s", *self.key, *self.sums()]
        groups = ", ".join([unit, *self.key])
        order = ", ".join([*self.key, "1"])
        return f"SELECT {', '.join(columns)} FROM {source} GROUP BY {groups} ORDER BY {order}"

    def sums(self) -> list[str]:
        """SQL of each added column, over a group."""
        return [self._sum(name, how, kind) for name, (how, kind) in self.added.items()]

    @staticmethod
    def _sum(name: str, how: str, kind: pa.DataType) -> str:
        if how == "newest":
            return f"arg_max({name}, t_s) AS {name}"
        total = (
            added(name, _ADD[how]) if pa.types.is_integer(kind) else f"CAST({_ADD[how]}({name}) AS DOUBLE)"
        )
        return f"{total} AS {name}"

    def possible(self) -> tuple[str, str]:
        """SQL for a SELECT list and a WHERE: numbers that cannot be are not known, and a row whose key cannot be
        is not there. A column that nobody asks for costs nothing.
        """
        ranges = {field.name: self._range(field, MOST_SUM) for field in self.schema if field.name != "t_s"}
        numbers = {field.name for field in self.schema if _is_number(field.type)} - {"t_s"}
        checked = [
            f"CASE WHEN {name} BETWEEN {ranges[name][0]!r} AND {ranges[name][1]!r} THEN {name} END AS {name}"
            for name in self.added
            if name in numbers
        ]
        keys = [
            f"{name} BETWEEN {ranges[name][0]!r} AND {ranges[name][1]!r}"
            for name in self.key
            if name in numbers
        ]
        return f"* REPLACE ({', '.join(checked)})" if checked else "*", " AND ".join(["TRUE", *keys])

    def impossible(self, rows: pa.Table, most: int = MOST_SUM) -> pa.ChunkedArray | None:
        """Which rows hold a number that cannot be, as a mask; None if no row does. ``most``: of a count."""
        found = None
        for field in self.schema:
            column = rows[field.name]
            if (
                field.name == "t_s"
                or not _is_number(field.type)
                or _lies_in(column, *self._range(field, most))
            ):
                continue
            low, high = self._range(field, most)
            fits = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
            wrong = pc.invert(pc.fill_null(fits, True))
            found = wrong if found is None else pc.or_(found, wrong)
        return found

    def _range(self, field: pa.Field, most: int) -> tuple[float, float]:
        if field.name == "bucket":
            return 0, MOST_BUCKET
        if field.name in self.key:
            return 0, MOST_TIME_S
        return (0, most) if pa.types.is_integer(field.type) else (-MOST_NUMBER, MOST_NUMBER)


def added(name: str, how: str = "SUM") -> str:
    """SQL: counts added up as a BIGINT, which never overflows: it stops at ``MOST_SUM``."""
    total = f"{how}({name})"
    return f"CAST(CASE WHEN {total} > {MOST_SUM} THEN {MOST_SUM} ELSE {total} END AS BIGINT)"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _lies_in(column: pa.ChunkedArray, low: float, high: float) -> bool:
    """Whether all known values do; the usual case, and quick."""
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return False
    ends = pc.min_max(column).as_py()
    return ends["min"] is None or (ends["min"] >= low and ends["max"] <= high)


#: Where classes come from: their ``source``. Only a slow log measures each call, and it has the slow ones alone.
PERFORMANCE_SCHEMA, PROCESS_LIST, SLOW_LOG = "performance_schema", "process list", "slow log"

#: Metrics that count what clients asked of memcached -> the command.
GETS = "memcached gets"
REQUESTS = {GETS: "get", "memcached sets": "set"}
#: Which share of the gets found their key.
HITS = "memcached hits"

_WORD, _COUNT, _NUMBER = pa.string(), pa.int64(), pa.float64()

#: What became of each minute. A minute that nobody watched has no row: that is a gap, never a zero.
STATES = Table(
    "states",
    {"state": _WORD, "limiting": _WORD},
    {
        "minutes": ("sum", _COUNT),
        "sampled_s": ("sum", _NUMBER),
        "sentence": ("newest", _WORD),
        "problem": ("newest", _WORD),
        "findings": ("newest", _WORD),
    },
)
#: Each resource. ``used_sum / used_minutes`` is the mean utilisation; the others count minutes at that level.
RESOURCES = Table(
    "resources",
    {"resource": _WORD, "instance": _WORD},
    {
        "minutes": ("sum", _COUNT),
        "used_minutes": ("sum", _COUNT),
        "used_sum": ("sum", _NUMBER),
        "used_most": ("most", _NUMBER),
        "saturated": ("sum", _COUNT),
        "busy": ("sum", _COUNT),
        "unknown": ("sum", _COUNT),
        "erring": ("sum", _COUNT),
        "load": ("newest", _WORD),
        "saturation": ("newest", _WORD),
        "errors": ("newest", _WORD),
    },
)
#: Rates and gauges, one value per minute: ``sum / n`` is their mean.
METRICS = Table(
    "metrics",
    {"metric": _WORD, "label": _WORD},
    {"n": ("sum", _COUNT), "sum": ("sum", _NUMBER), "least": ("least", _NUMBER), "most": ("most", _NUMBER)},
)
#: Query classes. A number that the source does not know is null. ``seen`` and ``looks`` are of the process list:
#: threads that were executing the class, over all looks of the minutes in which any was. Class "" has all looks.
CLASSES = Table(
    "classes",
    {"source": _WORD, "class": _WORD, "database": _WORD},
    {
        "calls": ("sum", _COUNT),
        "timed": ("sum", _COUNT),
        "time_ns": ("sum", _NUMBER),
        "lock_ns": ("sum", _NUMBER),
        "errors": ("sum", _COUNT),
        "rows_examined": ("sum", _COUNT),
        "rows_sent": ("sum", _COUNT),
        "tmp_disk_tables": ("sum", _COUNT),
        "seen": ("sum", _COUNT),
        "looks": ("sum", _COUNT),
        "most_ns": ("most", _COUNT),
    },
)
#: Sessions at work, as looks at the process list saw them: ``seen / looks`` of a time is how many were at it on
#: average. The looks are in the row whose names are all empty; those of a minute are of every other row of it.
SESSIONS = Table(
    "sessions",
    {"class": _WORD, "wait": _WORD, "state": _WORD, "user": _WORD, "client": _WORD},
    {"seen": ("sum", _NUMBER), "looks": ("sum", _COUNT)},
)
#: Calls by latency bucket (``headrace.base.buckets``), of sources that measure each call.
BUCKETS = Table(
    "buckets", {"source": _WORD, "class": _WORD, "bucket": pa.int32()}, {"count": ("sum", _COUNT)}
)
#: Calls by latency bucket as clients measured them (``collect.clients``): a bucket ends at its source's bound.
#: ``minutes`` is 1 in one row of each minute that was read, also of one without a call, which is no gap.
CLIENTS = Table(
    "clients",
    {"class": _WORD, "bucket": pa.int32()},
    {"count": ("sum", _COUNT), "minutes": ("sum", _COUNT)},
)
#: The text of a class, without values, and its tables.
TEXTS = Table(
    "texts", {"source": _WORD, "class": _WORD}, {"text": ("newest", _WORD), "tables": ("newest", _WORD)}
)
#: A call with its values.
EXAMPLES = Table(
    "examples",
    {"source": _WORD, "class": _WORD},
    {"text": ("newest", _WORD), "database": ("newest", _WORD), "took_ns": ("newest", _COUNT)},
    is_private=True,
)
#: A plan from the moment on at which its shape was seen to change. Without conditions: they hold values.
PLANS = Table(
    "plans", {"source": _WORD, "class": _WORD, "shape": _WORD, "at_s": _NUMBER}, {"plan": ("newest", _WORD)}
)
#: What changed on a host, or was changed there.
CHANGES = Table(
    "changes",
    {"kind": _WORD, "what": _WORD, "before": _WORD, "after": _WORD, "who": _WORD, "at_s": _NUMBER},
    {"times": ("sum", _COUNT)},
)

TABLES: Mapping[str, Table] = {
    each.name: each
    for each in (
        STATES,
        RESOURCES,
        METRICS,
        CLASSES,
        SESSIONS,
        BUCKETS,
        CLIENTS,
        TEXTS,
        EXAMPLES,
        PLANS,
        CHANGES,
    )
}
