"""The agent's program: its path here, and an identical copy on a target."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import shutil
import sys
import sysconfig
import weakref
from pathlib import Path

from headrace import __version__
from headrace.base.errors import CommandFailed, NotReady, Refused
from headrace.host.target import Target
from headrace.host.target.fixture import FixtureTarget
from headrace.host.target.local import LocalTarget
from headrace.host.target.shell import CACHE_FOLDER, SAFE

PROGRAM = "headrace-agent"

#: e_machine of an ELF header -> what `uname -m` says there.
MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


async def install(target: Target) -> str:
    """Its path on the target: copied there if the target is another machine without this exact version.

    Raises NotReady if there is none here for the target's architecture.
    """
    binary = find_binary()
    if isinstance(target, LocalTarget | FixtureTarget):
        return str(binary)
    return await _copy_once(binary, target)


def find_binary() -> Path:
    """``HEADRACE_AGENT``, the one installed next to this Python, or the first on PATH. Raises NotReady."""
    named = os.environ.get("HEADRACE_AGENT")
    beside = [Path(sys.executable).parent / PROGRAM, Path(sysconfig.get_path("scripts")) / PROGRAM]
    on_path = shutil.which(PROGRAM)
    for path in [Path(named)] if named else [*beside, *([Path(on_path)] if on_path else [])]:
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
    if named:
        raise NotReady(
            "HEADRACE_AGENT is not a program", place=named, hint="unset it, or set it to a headrace-agent"
        )
    raise NotReady(f"{PROGRAM} is not installed", place=str(beside[0]), hint="make setup")


#: The agents already verified on a target object.
_verified: weakref.WeakKeyDictionary[Target, set[str]] = weakref.WeakKeyDictionary()


async def _copy_once(binary: Path, target: Target) -> str:
    """Its path on the target, named by its content's hash, in a folder that nobody else may change.

    The checksum is verified on first use. Raises Refused for such a folder of others.
    """
    status = binary.stat()
    digest, ours = await asyncio.to_thread(_identity, binary, status.st_mtime_ns, status.st_size)
    name = f"agent-{digest[:16]}"
    verified = _verified.setdefault(target, set())
    script = f"""{SAFE}
        folder={CACHE_FOLDER}
        umask 022
        mkdir -p -- "$folder" && uname -m && printf '%s\\n' "$folder" || exit 1
        safe "$folder" || exit 0
        [ -x "$folder/$0" ] || {{ echo missing; exit 0; }}
        [ "$1" ] && echo "$1" || sha256sum <"$folder/$0"
    """
    known = digest if name in verified else ""
    answer = (await target.run(["sh", "-c", script, name, known], repeatable=True)).text.splitlines()
    machine, folder, state = answer
    path = f"{folder}/{name}"
    if state.startswith("/"):
        raise Refused(
            f"others may change the program that would run there: {state}",
            place=target.name,
            hint="chmod go-w, or unset XDG_CACHE_HOME there",
        )
    if state.split()[0] == digest:
        verified.add(name)
        return path
    if machine != ours:
        other = _made_for(machine, binary, ours, target)
        path = await _copy_once(other, target)
        if path not in verified:
            await _same_version(path, other, target)
            verified.add(path)
        return path
    await target.put(binary, path, mode=0o755)
    try:
        await target.run([path, "--version"], repeatable=True)
    except CommandFailed as error:
        raise NotReady(
            f"the agent was copied but does not start: {error.message}",
            place=target.name,
            hint=f"is {folder} on a file system mounted noexec? Mount it without",
        ) from error
    verified.add(name)
    return path


def _made_for(machine: str, binary: Path, ours: str, target: Target) -> Path:
    """The agent for another architecture, which lies next to ours. Raises NotReady if it is not there."""
    other = binary.with_name(f"{PROGRAM}-{machine}")
    # The host's own answer is part of the name: only known ones become paths.
    if machine in MACHINES.values() and other != binary and other.is_file():
        return other
    raise NotReady(
        f"the agent at {binary} is for {ours}, the host is {machine}",
        place=target.name,
        hint=f"put the agent of headrace's wheel for {machine} at {binary.with_name(PROGRAM)}-{machine}",
    )


async def _same_version(path: str, binary: Path, target: Target) -> None:
    """Raises NotReady if an agent that did not come with this headrace is of another version."""
    version = (await target.run([path, "--version"], repeatable=True)).text.split()[-1:]
    if version != [__version__]:
        raise NotReady(
            f"the agent at {binary} is version {''.join(version) or 'unknown'}, headrace is {__version__}",
            place=target.name,
            hint="replace it with the agent from the wheel of the same version",
        )


@functools.lru_cache(maxsize=4)
def _identity(binary: Path, _mtime_ns: int, _size_bytes: int) -> tuple[str, str]:
    """The hash and architecture of the agent here; read again when the file changes."""
    content = binary.read_bytes()
    return hashlib.sha256(content).hexdigest(), _machine_of(content)


def _machine_of(content: bytes) -> str:
    """The architecture of an ELF program, as ``uname -m`` names it."""
    if content[:4] != b"\x7fELF":
        return "an unknown format (not ELF)"
    number = int.from_bytes(content[18:20], "little" if content[5] == 1 else "big")
    return MACHINES.get(number, f"ELF machine {number}")
