"""Answers of Prometheus to range queries (api/v1/query_range), of raw counters: each time is one scrape.

A rate, a sum or a quantile has lost the metric's name, and nothing says which counter it was of: it is not read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from headrace.base.received import BadContent, Bound, parsed
from headrace.hunt.dumps.kinds.exporters import Page
from headrace.hunt.dumps.piece import Piece, Said, Unread, number_of

NAME = "Prometheus, query_range"

MOST = Bound(128 << 20, 8_000_000)
#: Times that are read: more are thinned out evenly.
MOST_TIMES = 300


def read(text: str) -> list[Piece]:
    if not re.search(r'"resultType"\s*:', text[: 64 << 10]):
        return []
    try:
        data = parsed(text, MOST)["data"]
        kind, rows = data["resultType"], data["result"]
    except BadContent as error:
        return [Unread(f"the JSON of Prometheus is damaged or cut off: {error}")]
    except (KeyError, TypeError, IndexError):
        return []
    if kind != "matrix" or not isinstance(rows, list):
        return [
            Unread(
                "an answer of Prometheus to a query of one time: ask query_range for a range of raw counters"
            )
        ]
    return list(_pieces([row for row in rows if isinstance(row, dict)]))


def _pieces(rows: list[dict[str, Any]]) -> Iterator[Piece]:
    named = [row for row in rows if re.match(r"node_|mysql_", str(_labels(row).get("__name__", "")))]
    if not named:
        yield Unread(
            "an answer of Prometheus without names of metrics: ask for the counters themselves, not for their "
            'rate (query={__name__=~"node_.*|mysql_.*",instance="HOST:PORT"})'
        )
        return
    if len(named) < len(rows):
        yield Said(
            f"{len(rows) - len(named)} series of Prometheus have another name or none, and are left out"
        )
    hosts = {str(_labels(row).get("instance", "")).rpartition(":")[0] for row in named}
    if len(hosts) > 1:
        some = ", ".join(sorted(hosts)[:4])
        yield Unread(
            f"series of {len(hosts)} hosts in one answer of Prometheus ({some}): give one file per host"
        )
        return
    pages: dict[float, Page] = defaultdict(Page)
    times = sorted({at for row in named for at, _ in _values(row)})
    if len(times) > MOST_TIMES:
        step = (len(times) - 1) / (MOST_TIMES - 1)
        times = [times[round(number * step)] for number in range(MOST_TIMES)]
    kept = set(times)
    for row in named:
        labels = _labels(row)
        system, _, name = str(labels["__name__"]).partition("_")
        for at_s, value in _values(row):
            if at_s in kept:
                page = pages[at_s]
                page.at_s = at_s
                (page.of_node if system == "node" else page.of_server)(name, labels, value)
    for at_s in times:
        if at_s in pages:
            # The clock of the scrapes is the server's: node_time_seconds may be of another.
            pages[at_s].at_s = at_s
            yield from pages[at_s].pieces()


def _labels(row: dict[str, Any]) -> dict[str, str]:
    metric = row.get("metric")
    return {str(k): str(v) for k, v in metric.items()} if isinstance(metric, dict) else {}


def _values(row: dict[str, Any]) -> Iterator[tuple[float, float]]:
    values = row.get("values")
    for pair in values if isinstance(values, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int | float):
            value = number_of(str(pair[1]))
            if value is not None:
                yield float(pair[0]), value
