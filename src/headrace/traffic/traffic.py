"""Traffic on hosts: digested there, recorded and copied here, replayed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base import received
from headrace.base.errors import CommandFailed, HeadraceError, PlanError, StoreError, write_error
from headrace.base.model import ServerLogin
from headrace.base.temporary import temporary_folder
from headrace.host.agent import Agent
from headrace.host.target import (
    FOLDER_VARIABLE,
    Process,
    Target,
    TargetSpec,
    leased_folder,
    open_target,
    to_the_end,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: How many hosts digest concurrently: each takes a connection here and its own CPU there.
MOST_AT_ONCE = 32
#: How long a stopped recorder may take to write what it has.
STOP_LIMIT_S = 60.0
#: Recordings are large, so not in /tmp, which may be in memory.
RECORDING_FOLDER = "/var/tmp"

Line = Mapping[str, Any]


# -- Digests ----------------------------------------------------------------------------------------------------


async def digest_hosts(
    addresses: Sequence[str], sources: Sequence[str], options: Sequence[str]
) -> list[pa.Table]:
    """Every host digests its own files and sends the small result; results are in the order of ``addresses``."""
    specs = [TargetSpec.parse(address) for address in addresses]
    room = asyncio.Semaphore(MOST_AT_ONCE)

    async def one(spec: TargetSpec) -> pa.Table:
        async with room:
            host = open_target(spec)
            await host.connect()
            try:
                return await digest(host, sources, options)
            finally:
                await host.close()

    return await asyncio.gather(*(one(spec) for spec in specs))


async def digest(host: Target, sources: Sequence[str], options: Sequence[str]) -> pa.Table:
    """Digest sources on one host; ``-`` is this process's standard input."""
    from headrace.traffic.digests.lines import read_rows

    agent = await Agent.install(host)
    stdin = _standard_input() if "-" in sources else None
    async with agent.lines("digest", *options, "--", *sources, stdin=stdin) as lines:
        rows = [row async for row in lines]
    return await asyncio.to_thread(read_rows, rows, host.name)


async def _standard_input() -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(os.read, 0, 1 << 20):
        yield piece


async def memcached(host: Target, arguments: Sequence[str]) -> dict[str, Any]:
    """What clients ask of memcached, by its captured packets: also if nothing could be read, which it says."""
    agent = await Agent.install(host)
    requests: dict[str, Any] = await agent.answer(
        "memcached", *arguments, timeout_s=None, even_if_it_failed=True
    )
    return requests


async def plans(host: Target, samples: Iterable[tuple[str, Line]], login: ServerLogin) -> dict[str, str]:
    """Class -> the plan of its sample, or why there is none. Only EXPLAIN of reads; nothing is executed."""
    agent = await Agent.install(host)
    found = {}
    for name, sample in samples:
        text = str(sample.get("text") or "")
        if not text:
            found[name] = "no sample"
        elif sample.get("text_bytes", 0) > len(text.encode()) or sample.get("is_redacted"):
            found[name] = "its sample is incomplete"
        else:
            found[name] = await agent.explain(text, str(sample.get("database") or ""), login)
    return found


# -- Recordings -------------------------------------------------------------------------------------------------


async def record(
    host: Target, arguments: Sequence[str], output: Path | None, listen: Callable[[Line], None]
) -> tuple[dict[str, Any], HeadraceError | None]:
    """Record into a private folder of the target; copy the file to ``output``, if given.

    Returns the recorder's summary, and its error if it failed after recording something. ``listen`` hears its
    progress. The first Ctrl-C stops only the recorder: its recording is copied, and ``was_stopped`` is true.
    """
    agent = await Agent.install(host)
    async with leased_folder(host, RECORDING_FOLDER) as folder:
        file = f"{folder}/recording"
        # In a file, so that the summary survives a broken connection.
        printed = f"{folder}/summary"
        # The recorder must not go on for ever when nobody waits for it.
        process = await agent.spawn(
            *("record", "--progress", "1s", "-o", file, *arguments),
            env={FOLDER_VARIABLE: folder},
            stdout_path=printed,
        )
        await process.close_stdin()
        stopped = await _watch(process, listen)
        code = await to_the_end(process.wait(STOP_LIMIT_S))
        lines = received.lines((await host.read(printed)).decode())
        try:
            summary: dict[str, Any] = agent.document("record", lines[-1] if lines else "")
        except CommandFailed:
            await agent.ended(process, code)
            raise
        if not summary["totals"]["events"]:
            await agent.ended(process, code)
        if output is not None:
            await to_the_end(_bring(host, file, output))
        found = {**summary, "was_stopped": stopped, "target": host.name}
        try:
            await agent.ended(process, code)
        except HeadraceError as error:
            return found, error
        return found, None


async def _watch(process: Process, listen: Callable[[Line], None]) -> bool:
    """Listen until it ends; the first cancellation asks it to finish. Returns whether that happened."""
    waiting = asyncio.ensure_future(process.wait())
    try:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=1.0)
            if line := _last_progress(await process.error_text()):
                listen(line)
        return False
    except asyncio.CancelledError:
        await process.signal("INT")
        task = asyncio.current_task()
        if task is not None:
            # The cancellation only ends the recording.
            task.uncancel()
        return True
    finally:
        waiting.cancel()


def _last_progress(text: str) -> Line | None:
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found: dict[str, Any] = json.loads(line)
                return found
    return None


async def _bring(host: Target, file: str, output: Path) -> None:
    """Copy the recording here; it is kept only if the checksums match."""
    said = (await host.run(["sha256sum", "--", file], timeout_s=None)).text.split()[0].lstrip("\\")
    try:
        with temporary_folder(output.parent) as folder:
            part = folder / "recording"
            await host.get(file, part)
            with part.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()
            if found != said:
                raise StoreError(f"arrived damaged: sha256 is {found} instead of {said}", place=str(output))
            part.replace(output)
    except OSError as error:
        raise write_error(error, output, PlanError) from error


async def recording(
    host: Target, arguments: Sequence[str], *, even_if_damaged: bool = False
) -> dict[str, Any]:
    """Run one of the agent's commands on recordings; returns its result."""
    agent = await Agent.install(host)
    found: dict[str, Any] = await agent.answer(
        "recording", *arguments, timeout_s=None, even_if_it_failed=even_if_damaged
    )
    return found


# -- Replays ----------------------------------------------------------------------------------------------------


async def play(host: Target, arguments: Sequence[str], listen: Callable[[Line], None]) -> None:
    """Replay a recording; ``listen`` hears every line as it comes."""
    agent = await Agent.install(host)
    is_whole = False
    async with agent.lines("replay", *arguments) as lines:
        async for line in lines:
            is_whole = is_whole or line.get("kind") == "end"
            listen(line)
    if not is_whole:
        raise StoreError("the replay's lines end before the last one", place=host.name)


async def play_on_both(
    host: Target,
    arguments: Sequence[str],
    logins: tuple[ServerLogin, ServerLogin],
    listeners: tuple[Callable[[Line], None], Callable[[Line], None]],
) -> None:
    """Replay on one server, then on the other, so that they do not affect each other.

    The first one's answers stay on the target until then.
    """
    async with leased_folder(host) as folder:
        answers = f"{folder}/answers"
        await play(host, [*arguments, *logins[0].argv, "--keep-answers", answers], listeners[0])
        await play(host, [*arguments, *logins[1].argv, "--answers", answers], listeners[1])
