"""`headrace size measure`: what a call of a query class costs, by playing the class alone.

No statistics separate classes that always come together; an experiment does. A recording is split by class, and
each part is played on a copy, beside an idle host. Cost = (use with the class - use of the idle host) / calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.base.counted import counted
from headrace.base.errors import PlanError, WorkloadFailed
from headrace.base.intervals import Interval, arithmetic
from headrace.base.model import ServerLogin
from headrace.capacity.foresee import HOST
from headrace.capacity.model import Resource
from headrace.capacity.prove import Asked, Listener, Played, Player, infos_of, length_s
from headrace.capacity.used import Part
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.target import Target, leased_folder
from headrace.traffic import traffic
from headrace.traffic.digests.classes import QueryClass, open_digest
from headrace.traffic.digests.table import OTHERS

#: What a call costs: CPU of the server's process, because the replay uses that of the host, too.
COSTS = (
    Part.SERVER, Resource.READS, Resource.WRITES, Resource.READ_BYTES, Resource.WRITE_BYTES, Resource.LOG_BYTES,
    Resource.PACKETS,
)  # fmt: skip
#: Fewer calls in a play say little.
FEWEST_CALLS = 100


@dataclass(frozen=True)
class Class:
    """``share``: of the time of all calls in the recording; ``per_s`` calls while it was played."""

    name: str
    text: str
    share: float
    per_s: float
    costs: Mapping[str, Interval]


@dataclass(frozen=True)
class Measured:
    recording: str
    host: str
    seconds: float
    blocks: int
    classes: Sequence[Class]
    notes: Sequence[str] = ()


async def measure(
    target: Target, asked: Asked, login: ServerLogin, wanted: Sequence[str], most: int, listen: Listener
) -> Measured:
    """The ``wanted`` classes (prefixes of their ids), or the ``most`` with the most time. Raises PlanError."""
    [recording] = asked.recordings
    agent = await Agent.install(target)
    seconds = length_s(asked, await infos_of(target, asked))
    classes, total_ns = await _classes(target, recording, wanted, most)
    async with leased_folder(target, traffic.RECORDING_FOLDER) as folder:
        parts = {}
        for number, each in enumerate(classes):
            part = f"{folder}/{number}.rec"
            await traffic.recording(target, ["filter", "-o", part, recording, f"class={each.name}"])
            parts[part] = each
        player = Player(
            target, agent, login, replace(asked, recordings=tuple(parts)), seconds, listen, joint=False,
            names={part: each.name for part, each in parts.items()},
            pid=HostFacts(await agent.facts(login)).server_pid,
        )  # fmt: skip
        blocks = await player.alone()
    found = [_class(each, part, blocks, total_ns) for part, each in parts.items()]
    return Measured(
        recording,
        target.name,
        seconds,
        asked.blocks,
        found,
        list(_notes(asked, found, seconds, blocks, parts)),
    )


async def _classes(
    target: Target, recording: str, wanted: Sequence[str], most: int
) -> tuple[list[QueryClass], float]:
    table = await traffic.digest(target, [recording], [])
    known = [each for each in open_digest(table).classes if each.name != OTHERS]
    total = math.fsum(each.total_ns for each in known)
    if not wanted:
        return known[:most], total
    found = []
    for prefix in wanted:
        own = [each for each in known if each.name.startswith(prefix)]
        if len(own) != 1:
            said = "no class" if not own else f"{len(own)} classes"
            raise PlanError(
                f"{said} of {recording} with this id", place=prefix, hint=f"headrace digest {recording}"
            )
        found += own
    return found, total


def _class(found: QueryClass, part: str, blocks: Sequence[Mapping[str, Played]], total_ns: float) -> Class:
    per_s = [block[part].per_s[part] for block in blocks]
    if not all(per_s):
        raise WorkloadFailed("none of its calls was played", place=found.name)
    costs = {}
    for resource in COSTS:
        pairs = [(block[HOST].used.get(resource), block[part].used.get(resource)) for block in blocks]
        values = [
            (used - (idle or 0.0)) / rate
            for (idle, used), rate in zip(pairs, per_s, strict=True)
            if used is not None and (idle is not None or resource is Part.SERVER)
        ]
        if len(values) == len(blocks):
            costs[str(resource)] = _not_negative(arithmetic(values))
    share = found.total_ns / total_ns if total_ns else 0.0
    return Class(found.name, found.fingerprint, share, math.fsum(per_s) / len(per_s), costs)


def _not_negative(found: Interval) -> Interval:
    """A difference may be below 0; a cost is not."""
    low, high = (None if end is None else max(end, 0.0) for end in (found.low, found.high))
    return Interval(max(found.estimate, 0.0), low, high)


def _notes(
    asked: Asked,
    found: Sequence[Class],
    seconds: float,
    blocks: Sequence[Mapping[str, Played]],
    parts: Mapping[str, QueryClass],
) -> list[str]:
    notes = [
        f"{each.name}: only {each.per_s * seconds:.0f} calls in a play: a longer --duration, or a higher --speed"
        for each in found
        if each.per_s * seconds < FEWEST_CALLS
    ]
    for part, each in parts.items():
        errors = sum(block[part].errors[part] for block in blocks)
        if errors:
            notes.append(f"{each.name}: {counted(errors, 'call')} failed, and are in the cost")
    if asked.blocks < 3:
        notes.append(f"{counted(asked.blocks, 'block')}: intervals over so few say little")
    return notes
