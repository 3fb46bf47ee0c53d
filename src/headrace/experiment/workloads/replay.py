"""A recording of production traffic as the load, replayed by ``headrace-agent replay``.

Every session is replayed on its own connection, with the recorded timing. The plan sets the length of a trial, so
a recording should be at least as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from headrace.base.counted import counted
from headrace.base.model import Tool, Value
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.client import ask, endpoint_of, load_dump
from headrace.experiment.workloads.drive.clients import Seat
from headrace.experiment.workloads.drive.lines import Source, json_lines, measurement
from headrace.experiment.workloads.options import Described, Options
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.agent import Agent
from headrace.host.target import Target, scratch_folder

#: Maximum classes with different answers to list.
NAMED_CLASSES = 3

_Speed = Annotated[
    float | Literal["max"],
    Field(union_mode="left_to_right"),
    Described("a factor from 0.001 to 1000, or max"),
]


class ReplayOptions(Options):
    """The recording, its speed, and the data."""

    recording: Annotated[str, Field(pattern=r"^/.+"), Described("an absolute path")] = Field(
        description="the recording, made with literals: a file on the target"
    )
    speed: _Speed = Field(
        1.0, description="speed relative to the recording; max: each session as fast as it is answered"
    )
    skip_idle_s: Annotated[float, Field(ge=0, le=1e6)] = Field(
        0.0, description="idle periods are shortened to this; 0: they are kept"
    )
    sessions: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="concurrent copies of each session, each on its own connection"
    )
    scale_writes: bool = Field(False, description="let the copies write, although they collide")
    read_only: bool = Field(False, description="leave out statements that do more than read")
    commit_order: bool = Field(
        False, description="each write waits for the writes that had finished before it started"
    )
    since_s: Annotated[float, Field(ge=0, le=1e9)] = Field(
        0.0, description="start at this offset into the recording"
    )
    database: str = Field("", description="the recorded database that the trial's own database replaces")
    check: bool = Field(False, description="compare rows, checksums, errors and warnings with the recording")
    max_lag_ms: Annotated[float, Field(ge=0, le=1e6)] = Field(
        0.0,
        description=(
            "a trial is invalid if 1% of its statements are sent later than this, even if the server is the "
            "cause; 0: only if the driver is"
        ),
    )
    timeout_s: Annotated[float, Field(ge=0.001, le=1e6)] = Field(
        600.0, description="a statement without an answer for this long fails, and its connection is closed"
    )
    memory_mb: Annotated[int, Field(ge=104, le=1_000_000)] = Field(
        200, description="memory limit of the replay"
    )
    threads: Annotated[int, Field(ge=0, le=1024)] = Field(
        0, description="threads of the replay; 0: automatic"
    )
    dump: Annotated[str, Field(pattern=r"^(/.+)?$"), Described("an absolute path")] = Field(
        "",
        description="a mysqldump file on the target with the data; use another name for other data",
    )
    setup: list[str] = Field(
        [], description="statements that create the data, each once, in order, after the dump"
    )

    @field_validator("speed")
    @classmethod
    def _is_a_factor(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0.001 <= value <= 1000:
            raise ValueError("must be a factor from 0.001 to 1000, or max")
        return value

    @model_validator(mode="after")
    def _copies_may_write(self) -> ReplayOptions:
        if self.sessions > 1 and not (self.read_only or self.scale_writes):
            raise ValueError(
                f"sessions = {self.sessions}: copies that write collide; set read_only, or scale_writes to "
                "allow it"
            )
        return self


class Replay:
    """Operations are named after the first word of statements: select, insert, commit and so on."""

    kind = "replay"
    needs_server = True
    tools: tuple[Tool, ...] = ()  # the agent comes with headrace
    Options = ReplayOptions

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options

    def dataset(self) -> Mapping[str, Value]:
        o = self._options
        return {"loader": self.kind, "dump": o.dump, "setup": o.setup}

    async def version(self, target: Target) -> str:
        agent = await Agent.install(target)
        return await agent.version()

    async def prepare(self, context: Context) -> None:
        """Loads the dump with the server's client, and runs the statements with the driver's loader."""
        if self._options.dump:
            await load_dump(context, self._options.dump, "replay-dump")
        if self._options.setup:
            await self._load(context, "load")

    async def run(self, context: Context) -> Measurement:
        agent = await Agent.install(context.target)
        async with scratch_folder(context.target, context.aside) as scratch:
            lines = f"{scratch}/lines.jsonl.zst"
            await tool.run_measured(
                context,
                [agent.path, "replay", *self._arguments(context), "--output", lines],
                name="replay-window",
                scratch=scratch,
                cwd="/",
                seconds=context.warmup_s + context.seconds + self._options.timeout_s,
                failed=tool.agent_failed,
            )
            path = context.raw / "replay-window.jsonl.zst"
            await context.target.get(lines, path)
        return measured(path, context.seconds)

    async def cleanup(self, context: Context) -> None:
        """Drops the trial's database; other databases from a dump are removed with the server."""
        await self._load(context, "clean")
        database = f"`{endpoint_of(context).database}`"
        drop = f"DROP DATABASE {database}; CREATE DATABASE {database}"
        if self._options.dump:
            await ask(context, drop, "replay-dump")

    async def _load(self, context: Context, verb: str) -> None:
        nothing = {"name": "none", "statements": [{"sql": "SELECT 1", "parameters": []}]}
        spec = {
            "workload": {"kind": "sql", "setup": self._options.setup, "tables": 0, "operations": [nothing]}
        }
        seat = Seat(context.target, _login(context))
        async with scratch_folder(context.target, context.aside) as scratch:
            await tool.run_to_end(
                context,
                await seat.argv(verb, spec, f"{scratch}/drive"),
                name=f"replay-{verb}",
                cwd="/",
                what=f"headrace-agent drive {verb}",
                failed=tool.agent_failed,
            )

    def _arguments(self, context: Context) -> list[str]:
        o = self._options
        argv = [o.recording, *_login(context), "--speed", str(o.speed), "--memory", f"{o.memory_mb}MB"]
        argv += [
            "--warmup",
            _ms(context.warmup_s),
            "--duration",
            _ms(context.seconds),
            "--timeout",
            _ms(o.timeout_s),
        ]
        flags = {
            "--read-only": o.read_only,
            "--scale-writes": o.scale_writes,
            "--commit-order": o.commit_order,
            "--check": o.check,
        }
        argv += [flag for flag, is_set in flags.items() if is_set]
        values = {
            "--sessions": f"x{o.sessions}" if o.sessions > 1 else "",
            "--skip-idle": _ms(o.skip_idle_s) if o.skip_idle_s else "",
            "--since": f"+{_ms(o.since_s)}" if o.since_s else "",
            "--database-map": f"{o.database}={endpoint_of(context).database}" if o.database else "",
            "--max-lag": _ms(o.max_lag_ms / 1000) if o.max_lag_ms else "",
            "--threads": str(o.threads) if o.threads else "",
        }
        for name, value in values.items():
            argv += [name, value] if value else []
        return argv


def measured(path: Path, seconds: float) -> Measurement:
    """The tables from the agent's output, without operations that the window does not have.

    Raises WorkloadFailed like ``drive.lines.measurement``.
    """
    import pyarrow.compute as pc

    whole = measurement([Source(path)])
    window = whole.intervals.filter(pc.greater_equal(whole.intervals["t_s"], 0))
    counts = window.group_by("operation").aggregate([("count", "sum"), ("errors", "sum")])
    seen = pc.or_(pc.greater(counts["count_sum"], 0), pc.greater(counts["errors_sum"], 0))
    names = counts["operation"].filter(seen)
    warnings = list(whole.warnings)
    length_s = (whole.window_end_ns - whole.window_start_ns) / 1e9
    if length_s < 0.95 * seconds:
        warnings.append(f"the recording ended after {length_s:.1f} of {seconds:g} s")
    return replace(
        whole,
        intervals=whole.intervals.filter(pc.is_in(whole.intervals["operation"], names)),
        latency=whole.latency.filter(pc.is_in(whole.latency["operation"], names)),
        warnings=(*warnings, *differences(path)),
    )


def differences(path: Path) -> list[str]:
    """The differences from recorded answers, in words; empty without a comparison."""
    end: dict[str, Any] = {}
    worst: list[str] = []
    for line in json_lines(path):
        if line["kind"] == "end":
            end = line
        elif line["kind"] == "class" and line.get("different"):
            worst.append(f"{line['different']:,} times {line['fingerprint'][:80]}")
    comparison = end.get("comparison")
    if not comparison or not comparison["different"]:
        return []
    more = len(worst) - NAMED_CLASSES
    named = worst[:NAMED_CLASSES] + ([counted(more, "more class", "more classes")] if more > 0 else [])
    return [
        f"{comparison['different']:,} of {comparison['compared']:,} answers differ from the recorded ones: "
        f"{'; '.join(named)}"
    ]


def _login(context: Context) -> tuple[str, ...]:
    endpoint = endpoint_of(context)
    login = ("--mysql-socket", endpoint.socket, "--mysql-user", endpoint.user)
    return (*login, "--mysql-database", endpoint.database)


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
