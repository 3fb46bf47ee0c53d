"""A workload that only watches: the host's own traffic, counted by its own counters.

It allows an experiment on a live server: treatments that can be changed online are interleaved under the existing
load. The counter gives throughput; it has no latency. If clients wait for answers before sending again, a faster
server has more throughput; if the load is fixed, only resource usage changes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from headrace.base import received
from headrace.base.errors import HeadraceError, WorkloadFailed
from headrace.base.model import OWNER_VARIABLE, ServerLogin, Tool, Value
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.options import Options
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.agent import Agent
from headrace.host.target import Target, scratch_folder, to_the_end

#: The agent exits after its last sample; if it takes longer than this, it hangs.
ENDING_S = 20.0
OPERATION = "observed"


class ObserveOptions(Options):
    """The counter, and how to reach the server that has it."""

    counter: Annotated[str, Field(pattern=r"^[a-z_]+\.[A-Za-z0-9_.]+(/.+)?$")] = Field(
        "mysql_status.questions",
        description="sampler.metric, or sampler.metric/label, such as network.rx_packets/eth0",
    )
    mysql_socket: str = Field("", description="Unix socket of the server")
    mysql_host: str = Field("", description="its host")
    mysql_port: Annotated[int, Field(ge=0, le=65535)] = Field(0, description="its port; 0: 3306")
    mysql_user: str = Field("", description="user to log in as")
    mysql_password_file: str = Field("", description="file on the target that holds the password")
    mysql_defaults_file: str = Field("", description="file on the target as my.cnf")
    mysql_tls: str = Field("", description="as --mysql-tls of the agent")
    mysql_tls_ca: str = Field(
        "", description="file on the target with the authority that signed its certificate"
    )

    @model_validator(mode="after")
    def _can_be_counted(self) -> ObserveOptions:
        if self.counter.startswith("mysql_") and not self.login.is_named:
            raise ValueError("mysql_socket: a counter of the server needs mysql_socket or mysql_host")
        return self

    @property
    def login(self) -> ServerLogin:
        return ServerLogin(
            self.mysql_socket,
            self.mysql_host,
            self.mysql_port or None,
            self.mysql_user,
            self.mysql_password_file,
            self.mysql_defaults_file,
            self.mysql_tls,
            self.mysql_tls_ca,
        )


class Observe:
    """One operation, ``observed``: the growth of the counter."""

    kind = "observe"
    needs_server = False
    tools: tuple[Tool, ...] = ()
    Options = ObserveOptions

    def __init__(self, options: ObserveOptions) -> None:
        self._options = options

    @property
    def login(self) -> ServerLogin | None:
        """The live server whose variables treatments may set; None if none was given."""
        return self._options.login if self._options.login.is_named else None

    def dataset(self) -> Mapping[str, Value] | None:
        return None

    async def version(self, target: Target) -> str:
        agent = await Agent.install(target)
        return await agent.version()

    async def prepare(self, context: Context) -> None:
        """Nothing to do: the load is the host's own."""

    async def run(self, context: Context) -> Measurement:
        """Samples the counter during warm-up and window, once per second."""
        agent = await Agent.install(context.target)
        options = self._options
        sampler = options.counter.partition(".")[0]
        total = round(context.warmup_s + context.seconds)
        argv = [agent.path, "sample", "--samplers", sampler, "--interval", "1s", "--duration", f"{total}s"]
        # Into files, so that samples are not lost while the host is unreachable.
        async with scratch_folder(context.target, context.aside) as scratch:
            printed, said = f"{scratch}/observed.jsonl", f"{scratch}/observed.stderr"
            process = await context.target.spawn(
                [*argv, *options.login.argv],
                env={OWNER_VARIABLE: context.owner},
                stdout_path=printed,
                stderr_path=said,
            )
            try:
                code = await process.wait(total + ENDING_S)
            except TimeoutError as error:
                raise WorkloadFailed(f"the sampler did not end after {total} s", place="observe") from error
            finally:
                with contextlib.suppress(HeadraceError):
                    await to_the_end(process.signal("TERM"))
            path = context.raw / "observed.jsonl"
            await context.target.get(printed, path)
            words = (await context.target.read(said)).decode("utf-8", "replace").strip()
        lines = received.lines(path.read_text())
        if code != 0:
            raise tool.agent_failed("the sampler", code, words, context.target.name)
        return measured(lines, options.counter, context.warmup_s)

    async def cleanup(self, context: Context) -> None:
        """Nothing to remove."""


def measured(lines: list[str], counter: str, warmup_s: float) -> Measurement:
    """From the agent's lines to the tables. Raises WorkloadFailed if the counter is not in them."""
    import pyarrow as pa

    from headrace.host.arrow import INTERVALS, LATENCY

    _, _, rest = counter.partition(".")
    metric, _, label = rest.partition("/")
    points: list[tuple[int, float]] = []
    why = ""
    for line in lines:
        record = json.loads(line)
        if not record["ok"]:
            why = record["error"]
            continue
        values = record["values"].get(metric, {})
        found = [values[label]] if label in values else list(values.values()) if not label else []
        if found:
            points.append((record["t_ns"], float(sum(found))))
    if len(points) < 2:
        raise WorkloadFailed(f"{counter} was not counted{': ' + why if why else ''}", place="observe")
    start_ns = points[0][0] + round(warmup_s * 1e9)
    rows = []
    for (t_ns, value), (next_ns, after) in itertools.pairwise(points):
        # A restarted server counts from 0 again.
        grown = after - value if after >= value else after
        t_s = (t_ns - start_ns) / 1e9
        # Scheduling jitter must not move the window's first interval out of it.
        rows.append((0.0 if abs(t_s) < 0.1 else t_s, (next_ns - t_ns) / 1e9, OPERATION, round(grown), 0))
    names = ("t_s", "duration_s", "operation", "count", "errors")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    missing = {name: [None] * len(rows) for name in INTERVALS.names if name not in names}
    window_start = next((t for t, _ in points if t >= start_ns - 100_000_000), points[-1][0])
    table = pa.table(
        {name: [*columns.get(name, missing.get(name, ()))] for name in INTERVALS.names}, INTERVALS
    )
    return Measurement(table, LATENCY.empty_table(), window_start, points[-1][0])
