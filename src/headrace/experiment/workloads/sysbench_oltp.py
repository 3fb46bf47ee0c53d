"""sysbench's OLTP scripts, and the Pinterest 2015 study's mix, on a server on the target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import Field

from headrace.base.errors import HeadraceError, WorkloadFailed
from headrace.base.model import ServerEndpoint, Tool, Value
from headrace.experiment.workloads import sysbench, tool
from headrace.experiment.workloads.drive.workload import seed_of
from headrace.experiment.workloads.options import CommaList, Described, Options
from headrace.experiment.workloads.sysbench import SYSBENCH, Report
from headrace.experiment.workloads.tables import Phase, measurement, with_bounds
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.target import Target, scratch_folder

OPERATION = "transaction"

_MARK = "headrace: "
_STUDY = "study"
#: Of sysbench, which takes no larger ones.
_SEEDS = (1 << 31) - 1

_Count = Annotated[int | None, Field(ge=0)]


class OltpOptions(Options):
    """Names, meanings and defaults are sysbench's; an option left out is not passed."""

    script: Literal[
        "oltp_read_write",
        "oltp_read_only",
        "oltp_write_only",
        "oltp_point_select",
        "oltp_update_index",
        "oltp_update_non_index",
        "oltp_insert",
        "oltp_delete",
        "study",
    ] = Field(
        "oltp_read_write",
        description="sysbench's script; `study`: insert, select and update by key, each its own transaction",
    )
    threads: Annotated[int, Field(ge=1, le=4096)] = Field(1, description="connections, each with a thread")
    tables: Annotated[int, Field(ge=1, le=10000)] = Field(1, description="number of tables")
    table_size: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(10000, description="rows of each table")
    rand_type: Literal["uniform", "gaussian", "special", "pareto"] = Field(
        "special", description="which rows are hit"
    )
    rand_pareto_h: Annotated[float | None, Field(gt=0, lt=1)] = Field(
        None, description="parameter of the Pareto law"
    )
    rand_seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        0,
        description="seed of the load, from which each block gets its own; 0 is the time. A seed makes the "
        "warm-up hit the window's rows",
    )
    rate: Annotated[int, Field(ge=0)] = Field(0, description="transactions per second to offer; 0: no limit")
    skip_trx: bool = Field(False, description="no BEGIN and COMMIT: each statement is its own transaction")
    reconnect: Annotated[int, Field(ge=0)] = Field(
        0, description="reconnect after this many transactions; 0 is never"
    )
    db_ps_mode: Literal["auto", "disable"] = Field("auto", description="prepared statements")
    mysql_ignore_errors: Annotated[
        CommaList | None,
        Field(pattern=r"^(all|\d+(,\d+)*)?$"),
        Described("error numbers, or all"),
    ] = Field(
        None,
        description=(
            "server errors after which a transaction is retried, or all. By default 1213,1020,1205; with "
            "skip_trx also 1062, because a delete and its insert are then separate"
        ),
    )
    point_selects: _Count = Field(None, description="point selects per transaction")
    range_selects: bool | None = Field(None, description="whether there are range selects")
    range_size: _Count = Field(None, description="rows of a range select")
    simple_ranges: _Count = Field(None, description="simple range selects per transaction")
    sum_ranges: _Count = Field(None, description="SUM range selects per transaction")
    order_ranges: _Count = Field(None, description="ORDER BY range selects per transaction")
    distinct_ranges: _Count = Field(None, description="DISTINCT range selects per transaction")
    index_updates: _Count = Field(None, description="updates of the indexed column per transaction")
    non_index_updates: _Count = Field(None, description="updates of another column per transaction")
    delete_inserts: _Count = Field(None, description="pairs of delete and insert per transaction")
    secondary: bool = Field(False, description="a secondary index instead of the primary key")
    create_secondary: bool = Field(True, description="an index on column k")
    mysql_storage_engine: Annotated[str, Field(pattern=r"^\w+$"), Described("a storage engine's name")] = (
        Field("innodb", description="storage engine of the tables")
    )


#: Options that change the tables' bytes. Others only change the load.
_DATASET = ("tables", "table_size", "secondary", "create_secondary", "mysql_storage_engine")

_LOAD = (
    "point_selects",
    "range_selects",
    "range_size",
    "simple_ranges",
    "sum_ranges",
    "order_ranges",
    "distinct_ranges",
    "index_updates",
    "non_index_updates",
    "delete_inserts",
    "rand_pareto_h",
)


class SysbenchOltp:
    """The only operation is ``transaction``: a sysbench event, with one statement or many.

    ``errors`` counts the errors that sysbench ignores; the transaction is retried and its latency covers all
    attempts. ``rows`` and ``bytes`` are unknown. The reports come from sysbench's hooks, so counts and intervals
    are exact; only latencies pass through the histogram (1.8% wide bins).
    """

    kind = "sysbench-oltp"
    needs_server = True
    tools: tuple[Tool, ...] = (SYSBENCH,)
    Options = OltpOptions

    def __init__(self, options: OltpOptions) -> None:
        self._options = options

    def dataset(self) -> Mapping[str, Value] | None:
        return {"loader": "sysbench-oltp", **{name: getattr(self._options, name) for name in _DATASET}}

    async def version(self, target: Target) -> str:
        return await tool.require_version(target, SYSBENCH, sysbench.MINIMUM)

    async def prepare(self, context: Context) -> None:
        """Create and fill the tables concurrently: one thread per table, at most one per CPU."""
        cpus = int((await context.target.run(["nproc"])).text)
        # The plain script, not the mix: it loads the same data for all, and so does the key.
        argv = ["sysbench", "oltp_read_write", *self._connection(context), *self._tables()]
        argv.append(f"--threads={min(self._options.tables, cpus)}")
        await tool.run_to_end(context, [*argv, "prepare"], name="sysbench-prepare", cwd="/")

    async def run(self, context: Context) -> Measurement:
        warmup = await self._phase(context, "warmup", context.warmup_s) if context.warmup_s > 0 else None
        window = await self._phase(context, "window", context.seconds)
        return measurement(
            window,
            warmup,
            seconds=context.seconds,
            what=f"sysbench {self._options.script}",
            # With a rate, sysbench adds the time an event waited in its queue: sb_timer_stop in sb_timer.h.
            kind="response" if self._options.rate else "service",
        )

    async def cleanup(self, context: Context) -> None:
        argv = ["sysbench", "oltp_read_write", *self._connection(context), *self._tables(), "cleanup"]
        await tool.run_to_end(context, argv, name="sysbench-cleanup", cwd="/")

    def arguments(self, context: Context, seconds: float) -> list[str]:
        """The command line of one run, in the folder of the scripts."""
        o = self._options
        argv = [
            "sysbench",
            "./trial.lua",
            *self._connection(context),
            *self._tables(),
            f"--rand-type={o.rand_type}",
            f"--rand-seed={_seed(o.rand_seed, context.block)}",
            f"--rate={o.rate}",
            f"--skip_trx={_text(o.skip_trx)}",
            f"--reconnect={o.reconnect}",
            f"--db-ps-mode={o.db_ps_mode}",
            f"--mysql-ignore-errors={self._ignored_errors()}",
        ]
        for name in _LOAD:
            value = getattr(o, name)
            if value is not None:
                # sysbench knows its own options with hyphens only, a script's with either.
                argv.append(f"--{name.replace('_', '-')}={_text(value)}")
        return [*argv, *sysbench.general_arguments(seconds, o.threads), "run"]

    def _ignored_errors(self) -> str:
        if self._options.mysql_ignore_errors is not None:
            return self._options.mysql_ignore_errors
        # Without a transaction two threads may delete one row, then insert it twice: a run of oltp_read_write
        # or oltp_write_only would end within a second.
        return "1213,1020,1205,1062" if self._options.skip_trx else "1213,1020,1205"

    def _connection(self, context: Context) -> list[str]:
        endpoint = _endpoint(context)
        return [
            "--db-driver=mysql",
            f"--mysql-socket={endpoint.socket}",
            f"--mysql-user={endpoint.user}",
            f"--mysql-db={endpoint.database}",
        ]

    def _tables(self) -> list[str]:
        return [f"--{name}={_text(getattr(self._options, name))}" for name in _DATASET]

    async def _phase(self, context: Context, name: str, seconds: float) -> Phase:
        async with scratch_folder(context.target, context.aside) as scratch:
            await self._write_scripts(context.target, scratch)
            output = await tool.run_measured(
                context,
                self.arguments(context, seconds),
                name=f"sysbench-{name}",
                scratch=scratch,
                cwd=scratch,
                seconds=seconds,
            )
        return phase(output.stdout.read_text("utf-8", "replace"), str(output.stdout))

    async def _write_scripts(self, target: Target, folder: str) -> None:
        script = "headrace_study" if self._options.script == _STUDY else self._options.script
        files = {"trial.lua": f'require("{script}")\nrequire("headrace_report")\n'.encode()}
        for name in ("headrace_report.lua", "headrace_study.lua"):
            files[name] = resources.files("headrace.experiment.workloads").joinpath("lua", name).read_bytes()
        for name, content in files.items():
            await target.write(f"{folder}/{name}", content)


def _seed(seed: int, block: int) -> int:
    """sysbench's own for a block's trials; 0 stays the time."""
    return 1 + seed_of(seed, block) % _SEEDS if seed else 0


def phase(text: str, place: str) -> Phase:
    """The output of one run: a report per second, the histogram, the final report."""
    reports = _reports(text)
    if not reports or reports[-1]["report"] != "final":
        raise WorkloadFailed("sysbench printed no final report: its output is cut short", place=place)
    final = reports.pop()
    # A report may be printed late, never early: the earliest start is the most accurate.
    start_ns = min(_printed_ns(r) - round(r["elapsed_s"] * 1e9) for r in [*reports, final])
    total = _report(final, start_ns)
    slices = sysbench.slices(OPERATION, [_report(r, start_ns) for r in reports], total, start_ns)
    min_ns, max_ns = (round(final[name] * 1e9) for name in ("min_s", "max_s"))
    histogram = sysbench.read_histogram(text, max_ns, place)
    return Phase(start_ns, total.end_ns, with_bounds(slices, min_ns, max_ns), {OPERATION: histogram})


def _reports(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        _, mark, content = line.partition(_MARK)
        if mark:
            try:
                found.append(json.loads(content))
            except json.JSONDecodeError:
                continue  # the reporting thread was stopped in mid-line; its counts are in the final report
    return found


def _report(report: Mapping[str, Any], start_ns: int) -> Report:
    return Report(
        end_ns=start_ns + round(report["elapsed_s"] * 1e9),
        count=report["events"],
        errors=report["errors"],
        bytes=None,
        p99_ns=round(report["percentile_s"] * 1e9),
    )


def _printed_ns(report: Mapping[str, Any]) -> int:
    return int(report["sec"]) * 10**9 + int(report["nsec"])


def _endpoint(context: Context) -> ServerEndpoint:
    if context.endpoint is None:
        raise HeadraceError("sysbench-oltp needs a server, and the trial has none")
    return context.endpoint


def _text(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
