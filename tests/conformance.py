"""A host is afterwards as it was before: what a command may change is compared around it, also if it is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

LASTS = ("--persist", "files")
DEADLINE = ("--confirm-within", "10m")
#: A log that is recorded.
SLOW_LOG = """# Time: 231114 22:13:20
# User@Host: app[app] @ localhost []
# Query_time: 0.000123  Lock_time: 0.000001  Rows_sent: 1  Rows_examined: 1
SET timestamp=1700000000;
SELECT c FROM t WHERE id = 1;
"""


class Running(Protocol):
    """A command in a process group of its own."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, str]: ...
    def kill(self) -> None: ...


class Host(Protocol):
    """A host that commands are run on. ``took_s``: how long each took undisturbed, in seconds."""

    took_s: dict[str, float]

    def look(self) -> dict[str, Any]:
        """All that a command could change: name -> value."""

    def start(self, *arguments: str) -> Running: ...

    def done(self, *arguments: str) -> str:
        """A command that succeeds, and what it said."""

    def kill_agents(self, part: float, at_work: bool, over: threading.Event) -> None:
        """Kill the agents on the host. With ``at_work`` at this part of their work on the journal, once they do.
        None begins when the command is ``over``.
        """

    def is_open(self) -> bool:
        """Once no agent works on the journal: whether it has anything to undo."""

    def is_kept(self) -> bool:
        """Whether the host has changes that were confirmed."""


@dataclass(frozen=True)
class Settings:
    """What is changed on a host: ``lasting`` can be made to last by files, ``of_server`` needs ``login``."""

    lasting: Sequence[str]
    some: Sequence[str]
    of_server: Sequence[str]
    login: Sequence[str]


def timed_as(words: Sequence[str]) -> str:
    """A command's name in ``took_s``."""
    return " ".join(words[:2]) if words[0] in ("lab", "rollout") else words[0]


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs, with its value before and now."""
    names = sorted({*before, *now})
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


class Comparison:
    """The host as it was, without what changes by itself between two looks at it (``is_counter``)."""

    def __init__(self, host: Host, is_counter: Callable[[str], object], at_least: int) -> None:
        self.host, self.is_counter = host, is_counter
        first, self.before = host.look(), host.look()
        self.left_out = set(changed(first, self.before))
        print(f"{len(self.before)} things are compared, but for {sorted(self.left_out)}")
        assert len(self.before) > at_least
        assert all(is_counter(name) for name in self.left_out), self.left_out

    def difference(self) -> dict[str, Any]:
        found = changed(self.before, self.host.look())
        return {
            name: values
            for name, values in found.items()
            if name not in self.left_out and not self.is_counter(name)
        }

    def check(self, *story: object) -> None:
        found = self.difference()
        assert not found, (found, story)


@dataclass(frozen=True)
class Kind:
    """A command that is killed, and those that the documentation names to clear up after it.

    ``lasts``: how many times as long as an ``apply`` it takes, where it was not timed yet. With ``on_journal`` its
    agents are killed in their work on the journal, otherwise at any moment. One that is ``endless`` gets Ctrl-C if
    only its agents were killed.
    """

    words: Callable[[random.Random], list[str]]
    undo: Callable[[Sequence[str]], Sequence[Sequence[str]]] = lambda words: [["rollback"]]
    lasts: float = 1.0
    on_journal: bool = True
    endless: bool = False
    victims: Sequence[tuple[str, ...]] = (("command",), ("agent",), ("command", "agent"))


@dataclass
class Kills:
    """Commands are killed, and nothing is left of them after what the documentation says to do."""

    host: Host
    comparison: Comparison
    settings: Settings
    more: Mapping[str, Kind] = field(default_factory=dict)
    found: Counter[str] = field(default_factory=Counter)

    @property
    def kinds(self) -> dict[str, Kind]:
        return {
            "keep": Kind(self.applying),
            "rollback --last": Kind(self.undoing_what_is_kept),
            "deadline": Kind(lambda chance: self.applying(chance, *DEADLINE)),
            "confirm": Kind(self.confirming),
            "rollback": Kind(self.undoing),
            **self.more,
        }

    def round(self, seed: int) -> None:
        chance = random.Random(seed)
        name = list(self.kinds)[seed % len(self.kinds)]
        kind = self.kinds[name]
        words = kind.words(chance)
        victims = chance.choice(kind.victims)
        story = [f"HEADRACE_SEED={seed}", name, words, victims, *self.fire(words, kind, victims, chance)]
        is_open = self.host.is_open()
        for undo in kind.undo(words):
            self.host.done(*undo)
        while self.host.is_kept():
            self.host.done("rollback", "--last")
        self.comparison.check(*story, "open" if is_open else "closed")
        self.found.update({"kills": 1, name: 1, "left something to undo": is_open})
        self.found[f"{name}: left something"] += is_open
        print(dict(self.found), story, flush=True)

    def some(self, chance: random.Random) -> list[str]:
        own = self.settings
        settings = [one for one in (*own.some, *own.of_server) if chance.random() < 0.6] or [*own.some]
        login = own.login if any(one in settings for one in own.of_server) else ()
        return ["apply", *settings, *login]

    def applying(self, chance: random.Random, *options: str) -> list[str]:
        if chance.random() < 0.4:
            return ["apply", *self.settings.lasting, *LASTS, *options]
        return [*self.some(chance), *options]

    def confirming(self, chance: random.Random) -> list[str]:
        self.host.done(*self.applying(chance, *DEADLINE))
        return ["apply", "--confirm"]

    def undoing(self, chance: random.Random) -> list[str]:
        self.host.done(*self.applying(chance, *DEADLINE))
        return ["rollback"]

    def undoing_what_is_kept(self, chance: random.Random) -> list[str]:
        self.host.done(*self.applying(chance))
        return ["rollback", "--last"]

    def fire(
        self, words: list[str], kind: Kind, victims: tuple[str, ...], chance: random.Random
    ) -> list[object]:
        """Start a command and kill it, its agents on the host, or both. What became of it."""
        took_s = self.host.took_s
        moment_s = chance.uniform(0, took_s.get(timed_as(words), took_s["apply"] * kind.lasts))
        process = self.host.start(*words)
        over = threading.Event()
        agents = threading.Thread(target=self.kill_agents, args=(moment_s, kind, chance.random(), over))
        if "agent" in victims:
            agents.start()
        try:
            if "command" in victims:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(moment_s)
                self.found["command was running"] += process.poll() is None
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            elif kind.endless:
                time.sleep(moment_s + 1)
                os.killpg(process.pid, signal.SIGINT)
            out, error = process.communicate(timeout=900)
        finally:
            process.kill()
            over.set()
            if "agent" in victims:
                agents.join()
        return [f"after {moment_s:.2f} s", process.poll(), out[-300:], error[-600:]]

    def kill_agents(self, moment_s: float, kind: Kind, part: float, over: threading.Event) -> None:
        if not kind.on_journal:
            over.wait(moment_s)
        self.host.kill_agents(part, kind.on_journal, over)
