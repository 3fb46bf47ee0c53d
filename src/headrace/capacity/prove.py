"""`headrace size prove`: recordings played alone and together on one server, and the prediction between.

Each block plays every recording alone and leaves the host idle once, in random order. Then each is played alone
once more, so fast that the host is as busy as with all of them, or full. From that the joint run is predicted, and
the predictions are written before anything is played together.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from headrace.base.counted import counted
from headrace.base.errors import NothingMeasured, PlanError, WorkloadFailed
from headrace.base.intervals import Interval, arithmetic
from headrace.base.model import ServerLogin
from headrace.capacity import predictions
from headrace.capacity.foresee import (
    ADDING,
    FULL,
    HOST,
    P99,
    THROUGHPUT,
    Alone,
    Busy,
    Prediction,
    foresee,
    summed,
)
from headrace.capacity.model import Resource
from headrace.capacity.used import OverTime, Part, of_process, used
from headrace.change.apply import new_id
from headrace.experiment.plan.tables import disturbed_here
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.samples import Samples
from headrace.host.target import Target
from headrace.traffic import traffic
from headrace.traffic.replayed import Replayed

SAMPLERS = "cpu,network,disk,memory,file_systems,process,mysql_status"
#: Shorter windows hold too few samples of a second.
LEAST_S = 5
RETRIES = 1
#: Invalidates a replay through no fault of the server, whose use is counted nevertheless.
OWN_DELAY = "the driver was late"
#: Statements this late mean that the server cannot keep up.
MAX_LAG = "1s"
#: Times what fills the host, by what a statement costs alone: on a full host it costs less.
TOO_FAST = 1.5
#: A recording that is nearly all of the load is as busy alone.
HARDLY_FASTER = 1.1
Listener = Callable[[str, float], None]


@dataclass(frozen=True)
class Asked:
    """``seconds`` 0: as long as the shortest recording. ``copies``: of each session in the joint plays."""

    recordings: tuple[str, ...]
    blocks: int = 3
    seconds: float = 0.0
    warmup_s: float = 5.0
    copies: int = 1
    objective_s: float | None = None
    reset: str = ""
    options: tuple[str, ...] = ()
    seed: int = 1
    speed: float = 1.0


@dataclass(frozen=True)
class Played:
    """One play: what the host used; of each recording its p99 (s), statements/s, errors, why it is invalid, and
    how late the replay itself was, where that is more than it should be.
    """

    used: Mapping[str, float]
    p99_s: Mapping[str, float]
    per_s: Mapping[str, float]
    errors: Mapping[str, int]
    invalid: Mapping[str, str]
    own_delay: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    prediction: Prediction
    measured: Interval


@dataclass(frozen=True)
class Proof:
    """``late``: recording -> why its joint play is invalid; ``slow``: those above the objective; ``unknown``:
    those with too few statements to say so; ``busy``: recording -> its faster play alone.
    """

    id: str
    host: str
    asked: Asked
    cores: float
    seconds: float
    alone: Sequence[Mapping[str, Played]]
    together: Sequence[Played]
    outcomes: Sequence[Outcome]
    late: Mapping[str, str] = field(default_factory=dict)
    slow: Sequence[str] = ()
    unknown: Sequence[str] = ()
    notes: Sequence[str] = ()
    busy: Mapping[str, Busy] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return not self.late and not self.slow and not self.unknown


async def prove(target: Target, asked: Asked, login: ServerLogin, listen: Listener) -> Proof:
    """Raises PlanError for recordings that cannot be played together, WorkloadFailed if one fails alone."""
    # Before minutes are spent on what could not be kept.
    allowances = predictions.allowances(predictions.every())
    agent = await Agent.install(target)
    facts = HostFacts(await agent.facts(login))
    seconds, lasts_s = await _check(target, asked)
    player = Player(target, agent, login, asked, seconds, listen, pid=facts.server_pid, lasts_s=lasts_s)
    alone = await player.alone()
    proof_id = new_id()
    blocks = [block_of(plays) for plays in alone]
    busy, too_short_s = await player.busy(blocks, float(facts.cpu_count))
    foreseen = foresee(blocks, asked.copies, float(facts.cpu_count), allowances, busy)
    plan = [f"{asked.copies} x {name}" for name in asked.recordings]
    predictions.keep(proof_id, time.time(), target.name, plan, foreseen)
    together = [await player.settled(asked.recordings, asked.copies) for _ in range(asked.blocks)]
    outcomes = [Outcome(each, measured(each, together)) for each in foreseen]
    predictions.came_true(proof_id, ((each.prediction, each.measured.estimate) for each in outcomes))
    late = {name: why for each in together for name, why in each.invalid.items()}
    slow, unknown = _against(asked, together)
    return Proof(
        proof_id, target.name, asked, float(facts.cpu_count), seconds, alone, together, outcomes, late, slow,
        unknown, [*_notes(asked, alone, together), *_of_too_short(too_short_s)], busy,
    )  # fmt: skip


async def _check(target: Target, asked: Asked) -> tuple[float, float]:
    """The length of a play, and that of the shortest recording as it is played."""
    if asked.copies > 1 and not {"--read-only", "--scale-writes"} & set(asked.options):
        raise PlanError(
            "copies of a session write to the same rows, and wait for each other",
            place=f"--sessions x{asked.copies}",
            hint="--read-only, or --scale-writes if that is meant",
        )
    infos = await infos_of(target, asked)
    databases: dict[str, str] = {}
    for name, info in infos.items():
        for each in info["databases"]["names"]:
            other = databases.setdefault(each["name"], name)
            if other != name and "--read-only" not in asked.options:
                raise PlanError(
                    f"database {each['name']} is also in {other}: they would write to the same rows",
                    place=name,
                    hint="--read-only plays what only reads",
                )
    return length_s(asked, infos), lasts_s(asked, infos)


async def infos_of(target: Target, asked: Asked) -> dict[str, dict[str, Any]]:
    """What the recordings say of themselves. Raises PlanError for one that cannot be played."""
    infos = {}
    for name in asked.recordings:
        info = infos[name] = await traffic.recording(target, ["info", name])
        if not info["events"] or not all(each["with_literals"] for each in info["segments"]):
            raise PlanError("a recording with literals is needed", place=name, hint="record --with-literals")
    return infos


def lasts_s(asked: Asked, infos: Mapping[str, Mapping[str, Any]]) -> float:
    """The shortest recording at the speed that is asked."""
    shortest_ns = min(float(info["last_end_ns"] - info["first_start_ns"]) for info in infos.values())
    return shortest_ns / 1e9 / asked.speed


def length_s(asked: Asked, infos: Mapping[str, Mapping[str, Any]]) -> float:
    """Of a play: as asked, or as the shortest recording allows. Raises PlanError."""
    shortest = lasts_s(asked, infos)
    seconds = asked.seconds or math.floor(shortest - asked.warmup_s)
    if seconds < LEAST_S or seconds + asked.warmup_s > shortest + 1:
        raise PlanError(
            f"the shortest recording has {shortest:.0f} s: too short for {asked.warmup_s:g} s of warm-up and "
            f"{max(seconds, LEAST_S):g} s that count",
            hint="a shorter --duration or --warmup, at least 5s in all, or longer recordings",
        )
    return seconds


@dataclass
class Player:
    """Plays recordings on a server, and samples its host meanwhile. ``listen`` hears what is played and how many
    seconds are left; ``done`` counts plays.
    """

    target: Target
    agent: Agent
    login: ServerLogin
    asked: Asked
    seconds: float
    listen: Listener
    #: Whether all are also played together, after they were alone.
    joint: bool = True
    #: What a recording is called, where its path says nothing.
    names: Mapping[str, str] = field(default_factory=dict)
    #: The server's process, if it is on the target.
    pid: int | None = None
    #: The shortest recording; faster it ends sooner.
    lasts_s: float = math.inf
    done: int = 0

    async def alone(self) -> list[dict[str, Played]]:
        """By block: each recording by its name, and HOST for the idle host."""
        dice = random.Random(self.asked.seed)
        blocks = []
        for _ in range(self.asked.blocks):
            order = [HOST, *self.asked.recordings]
            dice.shuffle(order)
            found = {}
            for name in order:
                found[name] = await self.settled([name] if name else [], 1)
                if name and (why := found[name].invalid.get(name)):
                    raise WorkloadFailed(f"cannot be played even alone: {why}", place=name)
            blocks.append(found)
        return blocks

    async def busy(self, blocks: Sequence[Alone], cores: float) -> tuple[dict[str, Busy], dict[str, float]]:
        """Replay each alone, with as many copies as in the joint replay, sped up until the host is as busy as with
        all of them, or full. Also return those too short for that, with the length (s) that they would need.
        """
        copies = self.asked.copies
        idle = fmean(block.idle[Resource.CPU] for block in blocks)
        together = fmean(summed(block, Resource.CPU, copies) for block in blocks)
        is_full = together > FULL * cores
        wanted = TOO_FAST * cores if is_full else together - idle
        found, too_short_s = {}, {}
        for name in self.asked.recordings:
            own = fmean(block.used[name][Resource.CPU] for block in blocks) - idle
            times = max(1.0, wanted / (copies * max(own, idle, 0.01)))
            if times < HARDLY_FASTER and not is_full:
                continue
            left_s = self.lasts_s / times - self.asked.warmup_s
            seconds = self.seconds if left_s >= self.seconds else math.floor(left_s)
            least_s = (LEAST_S + self.asked.warmup_s) * times * self.asked.speed
            if seconds < LEAST_S:
                too_short_s[name] = least_s
                continue
            quick = replace(self, asked=replace(self.asked, speed=self.asked.speed * times), seconds=seconds)
            try:
                played = await quick.play([name], copies)
            except NothingMeasured:
                too_short_s[name] = least_s  # it ended sooner than its length said
                continue
            if (per_s := played.per_s[name]) > 0:
                used = played.used[Resource.CPU]
                p99_s = None if name in played.invalid else played.p99_s.get(name)
                found[name] = Busy(max(used - idle, 0.0) / per_s, used / cores, p99_s)
        return found, too_short_s

    async def settled(self, names: Sequence[str], copies: int) -> Played:
        """A replay, repeated if it was invalid: other work on the machine may have disturbed it. Where
        HEADRACE_DISTURBED keeps what that spoils, a late driver is no reason to play again.
        """
        is_kept = disturbed_here() == "keep"
        played = await self.play(names, copies)
        for _ in range(RETRIES):
            if not played.invalid and (is_kept or not played.own_delay):
                break
            self.done -= 1
            played = await self.play(names, copies)
        return played

    async def play(self, names: Sequence[str], copies: int) -> Played:
        """All of them at once."""
        each_s = self.seconds + self.asked.warmup_s
        plays = self.asked.blocks * (len(self.asked.recordings) + 1 + self.joint)
        shown = [self.names.get(name, name) for name in names]
        self.listen(" and ".join(shown) or "the idle host", each_s * (plays - self.done))
        self.done += 1
        if names and self.asked.reset:
            await self._reset()
        replayed = {name: Replayed() for name in names}
        async with self._sampled() as records:
            if names:
                await _all_of(self.one(name, copies, replayed[name].add) for name in names)
            else:
                await asyncio.sleep(self.seconds + 2)
        return _played(replayed, records, self.pid)

    async def one(self, name: str, copies: int, add: Callable[[Mapping[str, Any]], None]) -> None:
        """Play one of them; ``add`` takes its lines."""
        words = [
            "--warmup",
            f"{self.asked.warmup_s:g}s",
            "--duration",
            f"{self.seconds:g}s",
            *self.asked.options,
        ]
        words += ["--speed", f"{self.asked.speed:g}"] if self.asked.speed != 1 else []
        words += ["--sessions", f"x{copies}"] if copies > 1 else []
        await traffic.play(self.target, [name, *words, *self.login.argv], add)

    async def _reset(self) -> None:
        done = await self.target.run(["sh", "-c", self.asked.reset], timeout_s=None, check=False)
        if done.exit_code:
            said = " ".join(done.error_text.split())[-300:] or "no output"
            raise WorkloadFailed(f"the reset command failed with exit code {done.exit_code}: {said}")

    @contextlib.asynccontextmanager
    async def _sampled(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Samples of the host, as long as this lasts, from the first on."""
        records: list[dict[str, Any]] = []
        has_begun = asyncio.Event()

        async def read() -> None:
            options = ["--interval", "1s", "--samplers", SAMPLERS, *self.login.argv]
            async with self.agent.samples(*options) as lines:
                async for record in lines:
                    records.append(record)
                    has_begun.set()

        reading = asyncio.create_task(read())
        try:
            waiting = asyncio.create_task(has_begun.wait())
            await asyncio.wait([reading, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if reading.done():
                await reading
            yield records
            # The sample after the end.
            await asyncio.sleep(1.2)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _all_of(plays: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all concurrently; on failure cancel all."""
    tasks = [asyncio.create_task(each) for each in plays]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _played(
    replayed: Mapping[str, Replayed], records: Sequence[Mapping[str, Any]], pid: int | None
) -> Played:
    samples = Samples.of_records(records)
    if len(samples) < 2:
        raise NothingMeasured("the host was not sampled")
    ends = [each.end for each in replayed.values()]
    # While all of them played.
    start = max((end["window_start_ns"] for end in ends), default=int(samples.t_ns.min()))
    stop = min((end["window_end_ns"] for end in ends), default=int(samples.t_ns.max()))
    if stop - start < LEAST_S * 0.8e9:
        raise NothingMeasured(f"the recordings were played together for only {(stop - start) / 1e9:.1f} s")
    over = OverTime(samples, np.array([start, stop]) / 1e9)
    found = used(over)
    if pid is not None and (own := of_process(over, pid)) is not None:
        found[Part.SERVER] = own
    return Played(
        {
            each: float(found[each][0])
            for each in (*ADDING, Part.SERVER)
            if each in found and math.isfinite(found[each][0])
        },
        {name: ns / 1e9 for name, each in replayed.items() if (ns := each.percentile_ns("p99")) is not None},
        {name: each.statements / each.length_s for name, each in replayed.items()},
        {name: each.errors for name, each in replayed.items()},
        _why(replayed, is_own=False),
        _why(replayed, is_own=True),
    )


def _why(replayed: Mapping[str, Replayed], *, is_own: bool) -> dict[str, str]:
    found = {
        name: [why for why in each.end.get("invalid", ()) if why.startswith(OWN_DELAY) == is_own]
        for name, each in replayed.items()
    }
    return {name: "; ".join(why) for name, why in found.items() if why}


def block_of(plays: Mapping[str, Played]) -> Alone:
    alone = {name: play for name, play in plays.items() if name != HOST}
    return Alone(
        plays[HOST].used,
        {name: play.used for name, play in alone.items()},
        {name: play.p99_s[name] for name, play in alone.items() if name in play.p99_s},
        {name: play.per_s[name] for name, play in alone.items()},
    )


def measured(prediction: Prediction, together: Sequence[Played]) -> Interval:
    """The mean over the joint plays with its t interval."""
    name, quantity = prediction.what, prediction.quantity
    if quantity == P99:
        values = [play.p99_s.get(name, math.nan) for play in together]
    elif quantity == THROUGHPUT:
        values = [play.per_s[name] for play in together]
    else:
        values = [play.used.get(Resource(quantity), math.nan) for play in together]
    return arithmetic(values)


def _against(asked: Asked, together: Sequence[Played]) -> tuple[list[str], list[str]]:
    """Return the recordings above the objective, and those lacking a p99."""
    slow: list[str] = []
    unknown: list[str] = []
    for name in asked.recordings if asked.objective_s is not None else ():
        p99_s = [play.p99_s[name] for play in together if name in play.p99_s]
        if len(p99_s) < len(together):
            unknown.append(name)
        elif asked.objective_s is not None and math.fsum(p99_s) / len(p99_s) > asked.objective_s:
            slow.append(name)
    return slow, unknown


def _of_too_short(too_short_s: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: too short for the sped-up solo replay, which needs about {seconds:.0f} s: its cost when alone "
        "is used instead, with the wait in a queue"
        for name, seconds in too_short_s.items()
    ]


def _notes(asked: Asked, alone: Sequence[Mapping[str, Played]], together: Sequence[Played]) -> list[str]:
    notes = []
    for name in asked.recordings:
        first = alone[0][name].errors[name]
        last = max(play.errors[name] for play in together) / asked.copies
        statements = alone[0][name].per_s[name]
        if last > first + max(statements, 10):
            notes.append(
                f"{name}: {last:.0f} statements failed together, {first:.0f} alone: the data had changed, or the "
                "databases disturb each other; --reset restores the copy before each play"
            )
    plays = [play for block in alone for play in block.values()]
    for name in asked.recordings:
        if delayed := [play.own_delay[name] for play in (*plays, *together) if name in play.own_delay]:
            notes.append(
                f"{name}: {delayed[-1]}, in {counted(len(delayed), 'play')}: its p99 includes that. "
                "Look for other work"
            )
    if asked.blocks < 3:
        notes.append(f"{counted(asked.blocks, 'block')}: intervals over so few say little")
    return notes
