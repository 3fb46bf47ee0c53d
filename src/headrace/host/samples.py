"""Raw counters, as ``headrace-agent sample`` writes them: JSON lines, compressed by zstd, grouped by counter.

Nothing here needs Arrow, so that a host can be examined without it; ``store`` makes tables of the same data.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

from headrace.base.received import MOST_NUMBER

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Sampler, metric, label.
Name = tuple[str, str, str]


@dataclass(frozen=True)
class Samples:
    """Counters sorted by sampler, metric and label; the values of each by time.

    The values of ``names[i]`` start at ``starts[i]`` in ``t_ns`` and ``value`` and end where the next start. A
    failed sampler has only its own ``headrace_ok`` and ``headrace_cost_ns``.
    """

    names: Sequence[Name]
    starts: NDArray[np.int64]
    t_ns: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        """The number of values."""
        return len(self.t_ns)

    @property
    def ends(self) -> NDArray[np.int64]:
        return np.append(self.starts[1:], len(self.t_ns))[: len(self.starts)].astype(np.int64)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, str, str, str, float]]) -> Samples:
        """From rows (time in ns, sampler, metric, label, value) in any order."""
        columns = _Columns()
        for t_ns, sampler, metric, label, value in rows:
            columns.add(t_ns, sampler, metric, {label: value})
        return columns.samples()

    @classmethod
    def read(cls, stream: Path | bytes, more: Iterable[Mapping[str, Any]] = ()) -> Samples:
        """From a stream; one that was cut short by a kill is read up to its last complete line. ``more``: lines of
        the same form that another program wrote."""
        return cls.of_records(chain(_records(stream), more))

    @classmethod
    def of_records(cls, records: Iterable[Mapping[str, Any]]) -> Samples:
        """From the sampler's lines."""
        columns = _Columns()
        for record in records:
            t_ns, sampler = record["t_ns"], record["sampler"]
            for metric, by_label in (record.get("values") or {}).items():
                columns.add(t_ns, sampler, metric, by_label)
            columns.add(t_ns, sampler, "headrace_ok", {"": 1.0 if record["ok"] else 0.0})
            columns.add(t_ns, sampler, "headrace_cost_ns", {"": record["cost_ns"]})
        return columns.samples()

    def rows(self) -> Iterator[tuple[int, str, str, str, float]]:
        for (sampler, metric, label), start, end in zip(self.names, self.starts, self.ends, strict=True):
            for t_ns, value in zip(
                self.t_ns[start:end].tolist(), self.value[start:end].tolist(), strict=True
            ):
                yield t_ns, sampler, metric, label, value


class _Columns:
    """Collects values; each counter's name is stored once."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], dict[str, int]] = {}
        self._names: list[Name] = []
        self._code: list[int] = []
        self._t_ns: list[int] = []
        self._value: list[float] = []

    def add(self, t_ns: int, sampler: str, metric: str, by_label: Mapping[str, float]) -> None:
        codes = self._codes.setdefault((sampler, metric), {})
        for label in by_label:
            if label not in codes:
                codes[label] = len(self._names)
                self._names.append((sampler, metric, label))
        self._code += [codes[label] for label in by_label]
        self._t_ns += [t_ns] * len(by_label)
        self._value += map(float, by_label.values())

    def samples(self) -> Samples:
        """Without values that are no number, or larger than any: a sum or a comparison with one says nothing."""
        value = np.array(self._value, dtype=np.float64)
        if not (can_be := np.abs(value) <= MOST_NUMBER).all():
            good = _Columns()
            for i in np.flatnonzero(can_be).tolist():
                sampler, metric, label = self._names[self._code[i]]
                good.add(self._t_ns[i], sampler, metric, {label: self._value[i]})
            return good.samples()
        in_order = sorted(range(len(self._names)), key=self._names.__getitem__)
        rank = np.empty(len(in_order), dtype=np.int64)
        rank[in_order] = np.arange(len(in_order))
        t_ns = np.array(self._t_ns, dtype=np.int64)
        codes = rank[np.array(self._code, dtype=np.int64)]
        order = np.lexsort((t_ns, codes))
        counts = np.bincount(codes, minlength=len(in_order))
        starts = (np.cumsum(counts) - counts).astype(np.int64)
        return Samples([self._names[i] for i in in_order], starts, t_ns[order], value[order])


def lines_of(stream: Path | bytes) -> Iterator[str]:
    """The lines of a stream; the last one is cut if the sampler was killed while it wrote."""
    with io.BytesIO(stream) if isinstance(stream, bytes) else stream.open("rb") as compressed:
        reader = zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True)
        try:
            yield from io.TextIOWrapper(io.BufferedReader(reader), encoding="utf-8")
        except (zstandard.ZstdError, EOFError):
            return


def _records(stream: Path | bytes) -> Iterator[dict[str, Any]]:
    try:
        for line in lines_of(stream):
            yield json.loads(line)
    except json.JSONDecodeError:
        return
