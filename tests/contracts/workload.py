"""What every workload does, whatever it drives. A suite for an implementation subclasses ``WorkloadContract``."""

from __future__ import annotations

import asyncio
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from headrace.base.buckets import bucket_value
from headrace.base.errors import PlanError, WorkloadFailed
from headrace.base.model import Option, ServerEndpoint
from headrace.experiment.workloads import Context, Measurement, Workload, make_workload, option_docs
from headrace.host.arrow import INTERVALS, LATENCY
from headrace.host.target.local import LocalTarget
from tests.traces import processes_of

SECONDS = 2.0
WARMUP_S = 1.0


def column(table: Any, name: str) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    return values


def window_rows(measured: Measurement) -> list[dict[str, Any]]:
    return [row for row in measured.intervals.to_pylist() if row["t_s"] >= 0]


def make_context(tmp_path: Path, endpoint: ServerEndpoint | None = None) -> Context:
    raw = tmp_path / "raw"
    raw.mkdir()
    owner = f"test-{os.getpid()}-{time.monotonic_ns()}"
    folder = str(tmp_path / "volume" / "files")
    return Context(LocalTarget(), owner, folder, endpoint, SECONDS, WARMUP_S, raw)


class WorkloadContract:
    """Fixtures to give: ``context``, for a run of SECONDS after WARMUP_S."""

    kind: str
    #: Small and quick; the load must keep ``concurrency`` requests in flight all the time.
    options: ClassVar[dict[str, Option]]
    concurrency: int
    bad_option: ClassVar[tuple[str, Option]]
    #: Options under which ``run`` cannot work, after the ``prepare`` of ``options``; or see ``spoil``.
    impossible: ClassVar[dict[str, Option]]

    async def leftovers(self, context: Context) -> list[str]:
        """What ``prepare`` made and is still there."""
        raise NotImplementedError

    def spoil(self, context: Context) -> None:
        """Break what ``prepare`` made, where no option makes ``run`` fail."""

    @pytest.fixture
    def workload(self) -> Workload:
        return make_workload(self.kind, self.options)

    async def test_the_tables_hold_together(self, workload: Workload, context: Context) -> None:
        before_ns = time.time_ns()
        await workload.prepare(context)
        assert await self.leftovers(context)
        measured = await workload.run(context)
        after_ns = time.time_ns()
        await workload.cleanup(context)
        assert await self.leftovers(context) == []

        assert measured.intervals.schema == INTERVALS
        assert measured.latency.schema == LATENCY
        self._window_is_inside(measured, before_ns, after_ns)
        self._rows_tile_the_window(measured)
        self._counts_agree(measured)
        self._latencies_are_in_nanoseconds(measured)
        self._warm_up_is_kept_apart(measured)
        assert processes_of(context.owner) == []
        assert any("window" in path.name and path.stat().st_size for path in context.raw.iterdir())

    def _window_is_inside(self, measured: Measurement, before_ns: int, after_ns: int) -> None:
        assert before_ns + WARMUP_S * 1e9 < measured.window_start_ns < measured.window_end_ns <= after_ns
        assert SECONDS * 0.95 < (measured.window_end_ns - measured.window_start_ns) / 1e9 < SECONDS + 1

    def _rows_tile_the_window(self, measured: Measurement) -> None:
        window_s = (measured.window_end_ns - measured.window_start_ns) / 1e9
        for operation in set(column(measured.intervals, "operation")):
            rows = [r for r in window_rows(measured) if r["operation"] == operation]
            assert rows[0]["t_s"] == 0
            for row, following in pairwise(rows):
                assert row["t_s"] + row["duration_s"] == pytest.approx(following["t_s"], abs=1e-6)
                assert row["duration_s"] > 0.4
            assert rows[-1]["t_s"] + rows[-1]["duration_s"] == pytest.approx(window_s, abs=1e-6)

    def _counts_agree(self, measured: Measurement) -> None:
        for operation in set(column(measured.intervals, "operation")):
            counted = sum(r["count"] for r in window_rows(measured) if r["operation"] == operation)
            held: dict[str, int] = {}
            for row in measured.latency.to_pylist():
                if row["operation"] == operation:
                    held[row["kind"]] = held.get(row["kind"], 0) + row["count"]
            # Each kind of latency holds every operation that ended well; beside them stand those that did not.
            held.pop("failed", 0)
            assert set(held) in ({"service"}, {"response"}, {"service", "response"})
            # What was at work when the window ended is in the latencies only.
            assert all(0 < counted <= number <= counted + self.concurrency for number in held.values())
        assert all(r["errors"] >= 0 for r in window_rows(measured))

    def _latencies_are_in_nanoseconds(self, measured: Measurement) -> None:
        """Little's law: with n requests always in flight the latencies sum to n times the window."""
        service = [r for r in measured.latency.to_pylist() if r["kind"] == "service"]
        buckets = np.array([r["bucket"] for r in service], dtype=np.int32)
        counts = np.array([r["count"] for r in service])
        busy = (bucket_value(buckets) * counts).sum() / self.concurrency
        window_ns = measured.window_end_ns - measured.window_start_ns
        assert 0.3 < busy / window_ns < 1.2
        smallest = min(r["min_ns"] for r in window_rows(measured) if r["min_ns"] is not None)
        largest = max(r["max_ns"] for r in window_rows(measured) if r["max_ns"] is not None)
        mean_ns = busy * self.concurrency / counts.sum()
        assert 0 <= smallest < mean_ns < largest < window_ns
        for row in window_rows(measured):
            assert row["p99_ns"] is None or smallest <= row["p99_ns"] <= largest * 1.02

    def _warm_up_is_kept_apart(self, measured: Measurement) -> None:
        warmup = [r for r in measured.intervals.to_pylist() if r["t_s"] < 0]
        assert warmup
        assert all(r["t_s"] + r["duration_s"] <= 1e-6 for r in warmup)
        assert all(t_s is None or t_s >= 0 for t_s in column(measured.latency, "t_s"))

    async def test_cancelled_it_leaves_no_process(self, workload: Workload, context: Context) -> None:
        await workload.prepare(context)
        own = processes_of(context.owner)  # a server that the workload brought
        running = asyncio.create_task(workload.run(context))
        while processes_of(context.owner) == own:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert processes_of(context.owner) == own
        await workload.cleanup(context)
        assert processes_of(context.owner) == []

    async def test_a_tool_that_fails_is_quoted(self, workload: Workload, context: Context) -> None:
        await workload.prepare(context)
        self.spoil(context)
        own = processes_of(context.owner)
        with pytest.raises(WorkloadFailed, match=r"ended with -?\d+: .*\w"):
            await make_workload(self.kind, {**self.options, **self.impossible}).run(context)
        assert processes_of(context.owner) == own
        await workload.cleanup(context)
        assert processes_of(context.owner) == []

    async def test_the_version_is_read(self, workload: Workload, context: Context) -> None:
        version = await workload.version(context.target)
        assert all(part.isdigit() for part in version.split("."))
        assert all(tool.package for tool in workload.tools)

    def test_a_bad_value_names_key_value_and_what_is_allowed(self) -> None:
        key, value = self.bad_option
        with pytest.raises(PlanError) as caught:
            make_workload(self.kind, {key: value})
        assert f"workload.{key} = {value!r}" in str(caught.value)
        assert "must be" in str(caught.value)

    def test_an_unknown_option_names_the_known(self) -> None:
        with pytest.raises(PlanError, match=r"workload\.nonsense = 1") as caught:
            make_workload(self.kind, {"nonsense": 1})
        names = [doc.name for doc in option_docs(self.kind)]
        assert all(name in str(caught.value) for name in names if not name.startswith(" "))

    def test_a_hyphen_is_an_underscore(self) -> None:
        hyphened = {name.replace("_", "-"): value for name, value in self.options.items()}
        assert (
            make_workload(self.kind, hyphened).dataset() == make_workload(self.kind, self.options).dataset()
        )

    def test_every_option_is_documented(self) -> None:
        assert all(doc.type and doc.doc for doc in option_docs(self.kind))
