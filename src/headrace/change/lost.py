"""What a setting destroys for good, in numbers: which files of the server, how many bytes, who needs them."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.knobs.losses import Loss, What


@dataclass(frozen=True)
class File:
    name: str
    size_bytes: int
    age_s: float


async def in_numbers(agent: Agent, loss: Loss, facts: HostFacts) -> str:
    """One sentence: the files that go, as far as they can be counted on the host, and the replicas."""
    files = await _files(agent, loss.what, facts)
    if files is None:
        return "how many files that is could not be counted on this host"
    if not files:
        return f"it has no {loss.what} now" if loss.what in _VARIABLES or loss.what is What.UNDO else ""
    gone = _gone(files, loss)
    total, before = (sum(each.size_bytes for each in some) for some in (gone, files))
    if loss.what is What.UNDO:
        words = f"{len(files)} {loss.what} have {_size(before)}"
    else:
        words = f"{len(gone)} of {len(files)} {loss.what} go ({_size(total)} of {_size(before)})"
    if loss.what is What.BINARY_LOGS:
        words = f"{words}; {_replicas(facts)}"
    return words


def _gone(files: Sequence[File], loss: Loss) -> list[File]:
    """The newest file is in use, and stays."""
    old_first = sorted(files, key=lambda each: each.name)
    if loss.what is What.UNDO:
        return old_first
    closed = old_first[:-1]
    if loss.oldest_s is not None:
        # A file may go as old as it is by then: the next rotation closes the one in use.
        return [each for each in closed if each.age_s > loss.oldest_s]
    if loss.most_bytes is not None:
        left = sum(each.size_bytes for each in old_first)
        gone = []
        for each in closed:
            if left <= loss.most_bytes:
                break
            gone.append(each)
            left -= each.size_bytes
        return gone
    return closed


def _replicas(facts: HostFacts) -> str:
    names = facts.replicas
    if names is None:
        return "whether replicas still need them is unknown: its login may not ask who they are"
    if not names:
        return "no replica is connected; one that is away, or a backup, may still need them"
    needed = "which files they have read only they know (SHOW REPLICA STATUS)"
    return f"connected replicas: {', '.join(names)}; {needed}"


_VARIABLES = {What.BINARY_LOGS: "log_bin_basename", What.RELAY_LOGS: "relay_log_basename"}


async def _files(agent: Agent, what: What, facts: HostFacts) -> list[File] | None:
    """None if they cannot be listed, or are no files."""
    if what not in (*_VARIABLES, What.UNDO):
        return []
    if facts.server_pid is None:
        return None  # the server is on another host, or hidden from us
    root = f"/proc/{facts.server_pid}/root"
    if what is What.UNDO:
        folder = facts.variable("innodb_undo_directory") or facts.variable("datadir") or ""
        if not folder.startswith("/"):
            folder = posixpath.join(facts.variable("datadir") or "", folder)
        patterns = [f"{root}{folder.rstrip('/')}/undo*"]
    else:
        base = facts.variable(_VARIABLES[what])
        if not base:
            return []
        patterns = [f"{root}{base}.[0-9]*"]
    # The pattern is not quoted by us: the shell gets it as an argument and splits nothing (IFS is empty).
    script = 'IFS=; for f in $1; do [ -f "$f" ] && stat -c \'%s %Y %n\' -- "$f"; done; date +%s'
    said = await agent.target.run(["sh", "-c", script, "sh", *patterns], check=False)
    lines = said.text.splitlines()
    if said.exit_code or not lines:
        return None
    now_s = float(lines[-1])
    found = []
    for line in lines[:-1]:
        size, made, name = line.split(" ", 2)
        found.append(File(posixpath.basename(name), int(size), max(now_s - float(made), 0.0)))
    return found


def _size(size_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"
