"""Several sources of any kind as one, and when the change was made."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.errors import PlanError
from headrace.change.production import histograms, table
from headrace.change.production.prometheus import Question, read
from headrace.change.production.series import Observed, together
from headrace.history.archive import is_archive

if TYPE_CHECKING:
    from headrace.change.production.digested import Dated

#: A source ends this much after the change at most: a digest counts an event by its start.
SLACK_S = 1.0


@dataclass(frozen=True)
class Sources:
    """Files and directories, and the addresses of Prometheus-compatible servers."""

    paths: tuple[Path, ...]
    urls: tuple[str, ...]

    @staticmethod
    def of(words: Sequence[str]) -> Sources:
        urls = tuple(word for word in words if "://" in word)
        return Sources(tuple(Path(word) for word in words if "://" not in word), urls)


class _Opened:
    """The content of one side's files, each read once."""

    def __init__(self, sources: Sources) -> None:
        self.digests: list[Dated] = []
        self.tables: list[table.File] = []
        self.snapshots: list[histograms.Taken] = []
        self.histories = [path for path in sources.paths if is_archive(path)]
        digests = []
        for path in sources.paths:
            if path in self.histories:
                continue
            if path.is_dir() or _is_digest(path):
                digests.append(path)
            elif histograms.is_histograms(path):
                self.snapshots += histograms.load([path])
            else:
                self.tables.append(table.opened(path))
        if digests:
            # Lazy: it brings Arrow, which the answers of a server do not need.
            from headrace.change.production import digested

            self.digests = digested.load(digests)

    @property
    def start_s(self) -> float:
        found = [row[2] for file in self.tables for row in file.rows]
        found += [each.first_ns / 1e9 for _, each in self.digests if each.first_ns is not None]
        found += [each.t_s for each in self.snapshots]
        found += [start for start, _ in self._served()]
        return min(found, default=np.inf)

    @property
    def end_s(self) -> float:
        found = [row[3] for file in self.tables for row in file.rows]
        found += [each.last_ns / 1e9 for _, each in self.digests if each.last_ns is not None]
        found += [each.t_s for each in self.snapshots]
        found += [end for _, end in self._served()]
        return max(found, default=-np.inf)

    def _served(self) -> list[tuple[float, float]]:
        if not self.histories:
            return []
        from headrace.change.production import served

        return [served.ends(path) for path in self.histories]


def _is_digest(path: Path) -> bool:
    from headrace.traffic.digests.files import is_digest

    return is_digest(path)


def gather(
    whole: Sequence[str],
    before: Sequence[str],
    after: Sequence[str],
    at_s: float | None,
    ask: Question | None,
    *,
    weeks: bool = False,
) -> tuple[Observed, float]:
    """All that the sources have, and when the change was made: ``at_s``, or the start of the sources ``after``.

    ``ask`` is what to ask of each URL; ``weeks``: earlier weeks are needed, too. Raises PlanError if the sides
    overlap.
    """
    sides = [Sources.of(words) for words in (whole, before, after)]
    urls = [url for side in sides for url in side.urls]
    if urls and (sides[1].urls or sides[2].urls or at_s is None or ask is None):
        raise PlanError(
            "a server needs --query and --at, and is asked about both sides at once", place=urls[0],
            hint="headrace verify http://prometheus:9090 --query SELECTOR --at TIME",
        )  # fmt: skip
    opened = [_Opened(side) for side in sides]
    if at_s is None:
        at_s = opened[2].start_s
        if not np.isfinite(at_s):
            raise PlanError("the time of the change is unknown", hint="add --at, or sources with --after")
    if opened[1].end_s > at_s + SLACK_S or opened[2].start_s < at_s - SLACK_S:
        raise PlanError(
            "the sources of the two sides overlap in time, or are on the wrong side of --at",
            hint="--before needs sources that end before the change, --after those that start after it",
        )
    # Of each side, because the two may overlap a little.
    for side in opened[1:]:
        table.refuse_overlaps([*opened[0].tables, *side.tables])
    # Together, because files may leave empty buckets out.
    parts = {"tables": table.joined([file for each in opened for file in each.tables])}
    if snapshots := [taken for each in opened for taken in each.snapshots]:
        # Both sides at once: a file may begin where another one ends.
        parts["saved histograms"] = histograms.observe(snapshots)
    if histories := [path for each in opened for path in each.histories]:
        from headrace.change.production import served

        parts["histories of serve"] = served.observe(dict.fromkeys(histories), at_s, weeks=weeks)
    digests = [each for one in opened for each in one.digests]
    if digests:
        from headrace.change.production import digested

        parts["digests"] = digested.observe(digests, at_s)
    if ask is not None:
        parts |= {url: read(replace(ask, url=url)) for url in dict.fromkeys(urls)}
    _refuse_twice(parts)
    return together(parts.values()), at_s


def _refuse_twice(parts: Mapping[str, Observed]) -> None:
    """Raises PlanError if two kinds of sources, or two servers, cover the same host at the same time."""
    for (one, first), (other, second) in itertools.combinations(parts.items(), 2):
        for host in sorted(set(first.hosts) & set(second.hosts)):
            starts_s, ends_s = first.stretches(host)
            others_s, until_s = second.stretches(host)
            # Two stretches overlap if one begins before the other ends, and ends after it begins.
            before = np.searchsorted(others_s, ends_s - SLACK_S)
            if (before > 0).any() and (until_s[before - 1] > starts_s + SLACK_S)[before > 0].any():
                raise PlanError(
                    f"{host} is in {one} and in {other} at the same time",
                    hint="each host and time from one source only: its events would count twice",
                )
