"""Many hosts at a time: what becomes of each, on targets that fail in every way, and what a run's file keeps."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import Busy, CommandFailed, ConnectionLost, DiskFull, StoreError, TargetError
from headrace.fleet import runner
from headrace.fleet.host import Host
from headrace.fleet.runner import Limits, Outcome, Progress, State
from headrace.fleet.runs import RunFile, last_known, remember
from headrace.host.target import Target, TargetSpec


class FakeTarget:
    """``way`` is what happens: an error of the login or of the work, or a place where it hangs."""

    def __init__(self, way: object) -> None:
        self.name = "fake"
        self.way = way
        self.is_open = False

    async def connect(self) -> None:
        if self.way == "hangs at login":
            await asyncio.sleep(3600)
        if isinstance(self.way, tuple) and self.way[0] == "login":
            raise self.way[1]
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False
        if self.way == "hangs at close":
            await asyncio.sleep(3600)


class Fakes:
    """Hosts by name, each with its way; counts how many are open at a time."""

    def __init__(self, **ways: object) -> None:
        self.ways = ways
        self.targets: dict[str, FakeTarget] = {}
        self.open = self.most_open = 0
        self.outcomes: dict[str, Outcome] = {}
        self.kept = asyncio.Event()

    def hosts(self, **options: Any) -> list[Host]:
        return [Host(name, TargetSpec("ssh", host=name, **options)) for name in self.ways]

    def connect(self, spec: TargetSpec, tell: Callable[[str], None]) -> Target:
        if self.ways[spec.host] == "is lost again and again":
            tell("the connection was lost")
        target = self.targets[spec.host] = FakeTarget(self.ways[spec.host])
        return target  # type: ignore[return-value]

    async def work(self, target: Any, host: Host) -> Any:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            if target.way in ("hangs at work", "is lost again and again"):
                await asyncio.sleep(3600)
            if target.way == "hangs when cancelled":
                try:
                    await asyncio.sleep(3600)
                finally:
                    await asyncio.sleep(3600)
            if isinstance(target.way, Exception):
                raise target.way
            await asyncio.sleep(0.01)
        finally:
            self.open -= 1
        return {"of": host.name}

    def keep(self, outcome: Outcome) -> None:
        self.outcomes[outcome.host] = outcome
        self.kept.set()

    async def ask(self, hosts: list[Host] | None = None, **options: Any) -> bool:
        limits = Limits(timeout_s=0.3, **options)
        return await runner.ask(
            hosts or self.hosts(), self.work, self.keep, limits=limits, connect=self.connect
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CLOSE_S", 0.05)
    monkeypatch.setattr(runner, "JITTER_S", 0.01)


async def test_each_host_has_its_state_and_reason() -> None:
    fakes = Fakes(
        good="well",
        refuses=("login", TargetError("the host refuses this user or key", hint="try ssh")),
        hung="hangs at login",
        slow="hangs at work",
        stuck="hangs when cancelled",
        slow_to_close="hangs at close",
        loose="is lost again and again",
        broke=ConnectionLost("the connection was lost"),
        full=DiskFull("no room left"),
        odd=KeyError("servers"),
        wrong=CommandFailed("exit code 1"),
    )
    hosts = [*fakes.hosts(), Host("no", TargetSpec("ssh", host="no"), why_not="it is another")]
    assert await fakes.ask(hosts)
    states = {name: outcome.state for name, outcome in fakes.outcomes.items()}
    unreachable, failed = {"refuses", "hung", "broke", "loose"}, {"slow", "stuck", "full", "odd", "wrong"}
    assert {name for name, state in states.items() if state is State.UNREACHABLE} == unreachable
    assert {name for name, state in states.items() if state is State.FAILED} == failed
    assert {name for name, state in states.items() if state is State.OK} == {"good", "slow_to_close"}
    assert states["no"] is State.SKIPPED
    assert fakes.outcomes["no"].reason == "it is another"
    assert fakes.outcomes["good"].answer == {"of": "good"}
    assert fakes.outcomes["refuses"].hint == "try ssh"
    assert fakes.outcomes["hung"].reason == "no login within 0.3 s"
    assert fakes.outcomes["slow"].reason == "no answer within 0.3 s"
    assert fakes.outcomes["odd"].reason == "KeyError: 'servers'"
    assert not any(target.is_open for target in fakes.targets.values())


@pytest.mark.parametrize(("jump", "most"), [("", 6), ("gate", 2)])
async def test_no_more_than_so_many_are_asked_at_a_time(jump: str, most: int) -> None:
    fakes = Fakes(**{f"db{number}": "well" for number in range(30)})
    assert await fakes.ask(fakes.hosts(jump=jump), at_once=6, jump=2)
    assert len(fakes.outcomes) == 30
    assert fakes.most_open == most


async def test_cancelling_keeps_what_has_answered() -> None:
    fakes = Fakes(good="well", slow="hangs at work")
    task = asyncio.create_task(
        runner.ask(fakes.hosts(), fakes.work, fakes.keep, limits=Limits(), connect=fakes.connect)
    )
    await fakes.kept.wait()
    task.cancel()
    assert not await task
    assert set(fakes.outcomes) == {"good"}
    assert not any(target.is_open for target in fakes.targets.values())


async def test_a_full_disk_here_ends_the_run() -> None:
    fakes = Fakes(one="well", two="well")

    def keep(outcome: Outcome) -> None:
        raise DiskFull("no room for the fleet's answers")

    with pytest.raises(DiskFull):
        await runner.ask(fakes.hosts(), fakes.work, keep, connect=fakes.connect)


async def test_progress_counts_states_and_ends_with_no_time_left() -> None:
    fakes = Fakes(good="well", odd=KeyError("x"))
    seen: list[Progress] = []
    await runner.ask(
        fakes.hosts(), fakes.work, fakes.keep, connect=fakes.connect, listen=seen.append, expected_s=5
    )
    assert seen[0].left_s is not None
    assert 4 < seen[0].left_s <= 5
    assert dict(seen[-1].counts) == {State.OK: 1, State.FAILED: 1}
    assert (seen[-1].done, seen[-1].running, seen[-1].left_s) == (2, 0, 0)


def limits(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: found.append(pair))
    return found


def test_the_limit_of_open_files_is_raised_or_fewer_hosts_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [Host(f"db{n}", TargetSpec("ssh", host=f"db{n}", jump="a,b")) for n in range(1000)]
    changed = limits(monkeypatch, 1024, 4096)
    assert runner.within_descriptors(64, hosts) == (64, "")
    assert changed == []
    assert runner.within_descriptors(500, hosts) == (500, "")
    assert changed == [(128 + 500 * 6, 4096)]
    limits(monkeypatch, 256, 256)
    at_once, why = runner.within_descriptors(64, hosts)
    assert at_once == (256 - 128) // 6
    assert "256 files" in why


def outcome(host: str, state: State = State.OK, answer: Any = None) -> Outcome:
    return Outcome(host, state, at=1.0, answer=answer, address=f"{host}:22")


def test_a_runs_file_has_the_last_outcome_of_each_host(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "run.jsonl"
    with RunFile(path, {"verb": "facts"}) as file:
        file.keep(outcome("db1", State.FAILED))
        file.keep(outcome("db2", answer={"a": 1}))
        file.keep(outcome("db1", answer={"a": 2}))
        with pytest.raises(Busy):
            RunFile(path, {"verb": "facts"})
    assert path.stat().st_mode & 0o777 == 0o600
    with RunFile(path, {"verb": "facts"}) as file:
        assert file.states() == {"db1": State.OK, "db2": State.OK}
        known, other = (Host("db1", TargetSpec("ssh", host=host, port=22)) for host in ("db1", "10.0.0.9"))
        assert file.has_answered(known)
        assert not file.has_answered(other), "another machine of that name"
        assert not file.has_answered(Host("db3", TargetSpec("ssh", host="db3")))
        assert [found.answer for found in file.outcomes(["db3", "db2", "db1"])] == [{"a": 1}, {"a": 2}]


def test_a_line_that_was_cut_off_is_dropped_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunFile(path, {"verb": "facts"}) as file:
        file.keep(outcome("db1"))
        file.keep(outcome("db2", answer="x" * 100))
    whole = path.read_bytes()
    for cut in range(len(whole.splitlines(keepends=True)[0]) + 1, len(whole)):
        path.write_bytes(whole[:cut])
        with RunFile(path, {"verb": "facts"}) as file:
            assert set(file.states()) <= {"db1"}
            file.keep(outcome("db3"))
        assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            '{"format":1,"verb":"hunt","seconds":30}\n',
            "another question \\(hunt; it differs in seconds, verb\\)",
        ),
        ('{"format":1,"verb":"facts"}\n{"host": 1}\n', "line 2"),
        ("[]\n", "another question"),
        ("#!/bin/sh\nexit\n", "line 1"),
        ('{"what": "matters"}', "not a file of"),
        ("a note", "not a file of"),
    ],
)
def test_another_file_is_refused_and_not_changed(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(content)
    with pytest.raises(StoreError, match=said):
        RunFile(path, {"verb": "facts"})
    assert path.read_text() == content


def test_no_room_for_a_runs_file_says_how_to_go_on(tmp_path: Path, full: Callable[[RunFile], None]) -> None:
    with RunFile(tmp_path / "run.jsonl", {"verb": "facts"}) as file:
        full(file)
        with pytest.raises(DiskFull) as found:
            file.keep(outcome("db1"))
    assert "asks only the missing hosts" in str(found.value.hint)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[RunFile], None]:
    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, _: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    return lambda run: monkeypatch.setattr(run, "_file", Full(run._file))


def test_the_last_answer_is_of_the_same_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    remember("facts", outcome("../db1", answer={"a": 1}))
    lost = Outcome("../db1", State.UNREACHABLE, "no answer", at=99.0)
    found = last_known("facts", lost, "../db1:22")
    assert found is not None
    assert (found.state, found.reason, found.at, found.answer) == (
        State.UNREACHABLE, "no answer", 1.0, {"a": 1}
    )  # fmt: skip
    assert last_known("facts", lost, "10.0.0.9:22") is None
    assert last_known("hunt", lost, "../db1:22") is None
    [file] = (tmp_path / "headrace" / "fleet" / "facts").iterdir()
    file.write_bytes(b"broken")
    assert last_known("facts", lost, "../db1:22") is None
