"""get and set on the trial's own memcached, by headrace's driver."""

from __future__ import annotations

import contextlib
import random
import re
import shlex
import time
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from headrace.base.errors import Busy, NotReady, WorkloadFailed
from headrace.base.model import Tool
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.drive.options import DriveOptions, Keys
from headrace.experiment.workloads.drive.workload import Driven
from headrace.experiment.workloads.options import Options, Size, ascending
from headrace.experiment.workloads.workload import Context
from headrace.host.target import Process, Target, to_the_end

MEMCACHED = Tool("memcached", "memcached", ("--version",))

#: The account that Debian's package creates, and `nobody`, which every system has.
_ACCOUNTS = ("memcache", "memcached", "nobody")

#: Connections in addition to the driver's, for monitoring. memcached uses the number also as its limit of open
#: files, of which it needs some for itself and for each thread.
_SPARE_CONNECTIONS = 32
_FILES_A_THREAD = 4

START_LIMIT_S = 20.0

_PORTS = range(20_000, 32_000)  # below the ports that the kernel uses for outgoing connections: ip-sysctl.rst


class Range(Options):
    """Lengths, all equally likely."""

    min: Annotated[int, Field(ge=1, le=250)] = Field(description="the shortest key, in bytes")
    max: Annotated[int, Field(ge=1, le=250)] = Field(description="the longest; memcached takes up to 250")

    @model_validator(mode="after")
    def _ascends(self) -> Range:
        return ascending(self, "min", "max")


_Bytes = Annotated[int, Field(ge=1, le=1024**2)]


class FixedSize(Options):
    """all of one length"""

    kind: Literal["fixed"]
    bytes: _Bytes = Field(description="the length")


class UniformSize(Options):
    """lengths from `min` to `max`, all equally likely"""

    kind: Literal["uniform"]
    min: _Bytes = Field(description="the shortest, in bytes")
    max: _Bytes = Field(description="the longest")

    @model_validator(mode="after")
    def _ascends(self) -> UniformSize:
        return ascending(self, "min", "max")


class ExponentialSize(Options):
    """mostly short, a few long"""

    kind: Literal["exponential"]
    mean: Annotated[float, Field(gt=0, le=1024**2)] = Field(description="the mean length in bytes")
    max: _Bytes = Field(description="the longest")


class MemcachedOptions(DriveOptions, Keys):
    """The items, their access pattern, and the server."""

    keys: Annotated[int, Field(ge=1, le=2**40)] = Field(
        10_000, description="number of items, all loaded at the start"
    )
    key_bytes: Range = Field(Range(min=16, max=32), description="length of their keys")
    value_bytes: Annotated[FixedSize | UniformSize | ExponentialSize, Field(discriminator="kind")] = Field(
        FixedSize(kind="fixed", bytes=100), description="length of their values"
    )
    get_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.9, description="share of the operations that read; the others write"
    )
    memory: Size = Field(64 * 1024**2, description="memory for items; beyond that, items are evicted")
    server_threads: Annotated[int, Field(ge=1, le=1024)] = Field(4, description="threads of memcached")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(0, description="port on 127.0.0.1; 0: a free one")


class Memcached(Driven[MemcachedOptions]):
    """The operations are ``get`` and ``set``. The server runs from ``prepare`` to ``cleanup``, on loopback."""

    kind = "memcached"
    tools = (MEMCACHED,)
    Options = MemcachedOptions

    def __init__(self, options: MemcachedOptions) -> None:
        super().__init__(options)
        self._server: Process | None = None

    def dataset(self) -> None:
        return None

    def load(self) -> dict[str, Any]:
        o = self.options
        return {
            "keys": o.keys,
            "distribution": o.law(),
            "key_bytes": o.key_bytes.model_dump(),
            "value_bytes": o.value_bytes.model_dump(),
            "get_share": o.get_share,
        }

    async def version(self, target: Target) -> str:
        return await tool.require_version(target, MEMCACHED, (1, 4))

    async def prepare(self, context: Context) -> None:
        await tool.make_folder(context)
        await self._start(context)
        await super().prepare(context)

    async def cleanup(self, context: Context) -> None:
        if self._server is not None:
            await to_the_end(tool.stop(self._server))
        await context.target.run(["rm", "-f", "--", _address_file(context)])

    async def _subject(self, context: Context) -> dict[str, Any]:
        address = (await context.target.read(_address_file(context))).decode()
        return {"workload": {"kind": self.kind, "address": address, **self.load()}}

    async def _start(self, context: Context) -> None:
        target, o = context.target, self.options
        taken = await _listening(target)
        if o.port in taken:
            raise Busy(f"port {o.port} is in use", place=target.name, hint="workload.port = 0: a free one")
        port = o.port or random.choice([port for port in _PORTS if port not in taken])
        argv = [
            "memcached",
            "--listen=127.0.0.1",
            f"--port={port}",
            "--udp-port=0",
            f"--memory-limit={max(1, o.memory // 1024**2)}",
            f"--threads={o.server_threads}",
            f"--conn-limit={o.connections + _FILES_A_THREAD * o.server_threads + _SPARE_CONNECTIONS}",
        ]
        if target.is_root:
            argv.append(f"--user={await _account(target)}")
        self._server = await target.spawn(argv, env=tool.environment(context))
        (context.raw / "memcached.command").write_text(shlex.join(argv) + "\n")
        deadline = time.monotonic() + START_LIMIT_S
        while port not in await _listening(target):
            with contextlib.suppress(TimeoutError):
                exit_code = await self._server.wait(0.02)
                words = tool.last_lines(await self._server.error_text())
                raise WorkloadFailed(f"memcached ended with {exit_code}: {words}", place=target.name)
            if time.monotonic() > deadline:
                raise WorkloadFailed(
                    f"memcached did not listen within {START_LIMIT_S:g} s", place=target.name
                )
        await target.write(_address_file(context), f"127.0.0.1:{port}".encode())


def _address_file(context: Context) -> str:
    return f"{context.folder}/memcached.address"


async def _account(target: Target) -> str:
    script = 'for name; do id -u "$name" >/dev/null 2>&1 && echo "$name" && exit 0; done; exit 1'
    found = await target.run(["sh", "-c", script, "sh", *_ACCOUNTS], check=False)
    if found.exit_code != 0:
        raise NotReady(
            "no account for memcached, and it must not run as root",
            place=target.name,
            hint=f"useradd --system --shell /usr/sbin/nologin {_ACCOUNTS[0]}",
        )
    return found.text.strip()


async def _listening(target: Target) -> set[int]:
    """The TCP ports with a listener."""
    sockets = (await target.read("/proc/net/tcp")).decode()
    # Local address, remote address, state; 0A is LISTEN (net/tcp_states.h).
    return {
        int(port, 16)
        for port in re.findall(r"^ *\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:0000 0A ", sockets, re.M)
    }
