"""Running a benchmark program on a target: its version, its output, its failure, its cancellation."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.base.errors import CommandFailed, DiskFull, HeadraceError, NotReady, WorkloadFailed
from headrace.base.model import OWNER_VARIABLE, Tool
from headrace.experiment.workloads.workload import Context
from headrace.host.agent import failure
from headrace.host.target import Completed, Process, Target, to_the_end

#: How much longer than planned a tool may take before it counts as hung.
GRACE_S = 300.0

#: The error for a program's end: its name, exit code, last output lines, and the host.
Ending = Callable[[str, int, str, str], HeadraceError]

#: Messages of a full disk: the kernel's, and a server's (ER_RECORD_FILE_FULL).
_DISK_FULL = ("No space left on device", "server error 1114")


@dataclass(frozen=True)
class Output:
    """A program's output, in the trial's raw folder. ``last_write_ns`` is on the target's clock."""

    stdout: Path
    stderr: Path
    last_write_ns: int


async def require_version(target: Target, tool: Tool, minimum: tuple[int, ...]) -> str:
    """The version the program prints; raises NotReady when it is missing, unreadable or below ``minimum``."""
    wanted = ".".join(map(str, minimum))
    install = f"apt-get install -y {tool.package}"
    answer = await target.run([tool.program, *tool.version_options], check=False)
    if answer.exit_code != 0:
        raise NotReady(f"{tool.program} is missing", place=target.name, hint=install)
    match = re.search(r"\d+(?:\.\d+)+", answer.text)
    if match is None:
        raise NotReady(f"{tool.program} printed no version: {answer.text.strip()!r}", place=target.name)
    if tuple(map(int, match[0].split("."))) < minimum:
        raise NotReady(
            f"{tool.program} is {match[0]}; {wanted} or newer is needed", place=target.name, hint=install
        )
    return match[0]


def program_failed(what: str, exit_code: int, words: str, place: str) -> HeadraceError:
    return WorkloadFailed(f"{what} ended with {exit_code}: {words}", place=place)


def agent_failed(what: str, exit_code: int, words: str, place: str) -> HeadraceError:
    """The common errors for exit codes that concern the host; others are a failed workload."""
    return failure(exit_code, words, place, what=f"{what} ended with {exit_code}", otherwise=WorkloadFailed)


async def run_measured(
    context: Context,
    argv: Sequence[str],
    *,
    name: str,
    scratch: str,
    cwd: str,
    seconds: float,
    failed: Ending = program_failed,
) -> Output:
    """Run a program that takes about ``seconds``, and bring its output to ``raw/<name>.{stdout,stderr}``.

    ``scratch`` is not on the volume under test: the output must neither load that volume nor wait for it.

    Raises WorkloadFailed with its last lines when it fails, or hangs. It is stopped on cancellation.
    """
    target = context.target
    paths = {stream: f"{scratch}/{name}.{stream}" for stream in ("stdout", "stderr")}
    local = {stream: context.raw / f"{name}.{stream}" for stream in paths}
    (context.raw / f"{name}.command").write_text(shlex.join(argv) + "\n")
    process = await target.spawn(
        pinned(context, ["env", f"--chdir={cwd}", *argv]),
        env=environment(context),
        stdout_path=paths["stdout"],
        stderr_path=paths["stderr"],
    )
    exit_code: int | None = None
    try:
        with contextlib.suppress(TimeoutError):
            exit_code = await process.wait(seconds * 2 + GRACE_S)
    finally:
        if exit_code is None:
            await to_the_end(stop(process))
    for stream, path in paths.items():
        await target.get(path, local[stream])
    if exit_code is None:
        raise WorkloadFailed(
            f"{argv[0]} did not end within {seconds * 2 + GRACE_S:.0f} s and was stopped", place=target.name
        )
    if exit_code != 0:
        words = last_lines(local["stderr"].read_text("utf-8", "replace"))
        words = words or last_lines(local["stdout"].read_text("utf-8", "replace"))
        raise failed(argv[0], exit_code, words, target.name)
    written = await target.run(["stat", "--format=%.9Y", paths["stdout"]])
    whole, _, fraction = written.text.strip().partition(".")
    return Output(local["stdout"], local["stderr"], int(whole) * 10**9 + int(fraction.ljust(9, "0")))


async def run_to_end(
    context: Context,
    argv: Sequence[str],
    *,
    name: str,
    cwd: str,
    what: str = "",
    failed: Ending = program_failed,
) -> Completed:
    """Run a preparation or cleanup step without a time limit; its output goes to ``raw/<name>.stdout``.

    ``what`` names it in errors, by default its program. Raises DiskFull, or WorkloadFailed with its last lines.
    """
    command = ["env", f"--chdir={cwd}", *argv]
    done = await context.target.run(command, env=environment(context), timeout_s=None, check=False)
    (context.raw / f"{name}.stdout").write_bytes(done.stdout + done.stderr)
    if done.exit_code == 0:
        return done
    words = last_lines(done.error_text) or last_lines(done.text)
    if any(sign in done.text + done.error_text for sign in _DISK_FULL):
        raise DiskFull(
            f"no room left for the workload's data: {words}",
            place=f"{context.target.name}:{cwd}",
            hint="reduce the data or enlarge the volume",
        )
    raise failed(what or argv[0], done.exit_code, words, context.target.name)


async def make_folder(context: Context) -> None:
    try:
        await context.target.run(["mkdir", "-p", "--", context.folder])
    except CommandFailed as error:
        raise WorkloadFailed(f"cannot create {context.folder}: {error.message}") from error


def pinned(context: Context, argv: Sequence[str]) -> list[str]:
    """The command, on the CPUs that the load may use."""
    return ["taskset", "-c", context.cpus, *argv] if context.cpus else list(argv)


def environment(context: Context) -> dict[str, str]:
    # The C locale, because a decimal comma in a report could not be parsed.
    return {OWNER_VARIABLE: context.owner, "LC_ALL": "C"}


def last_lines(text: str, number: int = 4) -> str:
    """The last non-empty lines, joined with semicolons."""
    said = [line.strip() for line in text.splitlines() if line.strip(" \t{}[]")]
    return "; ".join(said[-number:])


async def stop(process: Process) -> None:
    """Stop it gently, so that it can write its results, then kill it."""
    for name, patience_s in (("INT", 3.0), ("TERM", 2.0), ("KILL", 10.0)):
        await process.signal(name)
        with contextlib.suppress(TimeoutError):
            await process.wait(patience_s)
            return
