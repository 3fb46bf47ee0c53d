"""Whose open changes a command is about: by server, by what tells it, and by what still waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from headrace.base.errors import Refused, TargetError
from headrace.base.model import ServerLogin
from headrace.change.commands import attempts, whose
from headrace.change.commands.whose import Moment, Named, choose
from headrace.change.outlook import of_variable
from headrace.change.persist.boot import other_at_boot
from headrace.change.persist.news import Ahead
from headrace.host.agent import Agent, Journal
from headrace.host.agent.journal import Undone
from tests.unit.test_persist import copies

A, B, FILE = "/run/a.sock", "/run/b.sock", "/etc/mysql/conf.d/zz-headrace.cnf"
ONE, TWO, ROLLOUT = "apply/20260101-000000-0001", "apply/20260102-000000-0002", "apply/spring-db1"
NOW = Moment("boot", 1000)
LOGIN, OTHER = ServerLogin(socket=A), ServerLogin(socket=B)


def entry(owner: str, socket: str = "", server: str = "", **more: Any) -> dict[str, Any]:
    if not socket:
        return {"owner": owner, "kind": "file", "path": FILE, "content": None, **more}
    own = {"login": {"mysql_socket": socket}, "start": {"server": server} if server else None}
    restore = [{"name": "back_log", "value": "80"}]
    return {"owner": owner, "kind": "variable", "restore": restore, "wrote": "90", **own, **more}


def named(socket: str = "", *identities: str) -> Named:
    return Named(ServerLogin(socket=socket), frozenset(identities))


def until(uptime_ns: int) -> dict[str, Any]:
    return {"boot_id": "boot", "deadline": {"uptime_ns": uptime_ns, "t_ns": 1}}


def test_a_server_is_told_by_its_identity_then_by_its_login() -> None:
    both = [entry(ONE, A, "uuid-a"), entry(TWO, B, "uuid-b")]
    assert choose(both, named(A, "uuid-a"), NOW).owners == (ONE,)
    # The same server by another socket, and another server with the same socket.
    assert choose(both, named("/run/link.sock", "uuid-a"), NOW).owners == (ONE,)
    assert choose(both, named(A, "uuid-new"), NOW).owners == ()
    # It is stopped, or an old journal does not say which it was.
    assert choose(both, named(B), NOW).owners == (TWO,)
    assert choose([entry(ONE, A), entry(TWO, B)], named(B, "uuid-b"), NOW).owners == (TWO,)
    (left,) = choose(both, named(B), NOW).left
    assert A in left
    assert "rollback --id 20260101-000000-0001" in left


def test_several_servers_need_a_name_and_the_host_s_own_changes_need_none() -> None:
    both = [entry(ONE, A, "uuid-a"), entry(TWO, B, "uuid-b")]
    with pytest.raises(Refused, match="several servers") as refused:
        choose(both, named(), NOW)
    assert A in refused.value.message
    assert B in refused.value.message
    assert choose(both[:1], named(), NOW).owners == (ONE,)
    assert set(choose([*both[:1], entry(TWO)], named(B), NOW).owners) == {TWO}


def test_what_a_rollout_has_on_trial_is_left_until_its_time_is_over() -> None:
    def chosen(**more: Any) -> tuple[str, ...]:
        return choose([entry(ROLLOUT, A, "uuid-a", **more)], named(), NOW).owners

    assert chosen(**until(1001)) == ()
    assert chosen(**until(1000)) == (ROLLOUT,)
    # Uptime begins anew with a boot.
    assert chosen(**{**until(1001), "boot_id": "the boot before"}) == (ROLLOUT,)


class FakeJournal:
    """Of the agent's journal: open entries, and what it was asked to close."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.open, self.closed = entries, list[str]()

    async def entries(self) -> list[dict[str, Any]]:
        return self.open


def asked(entries: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What ``release`` closes and says."""
    own, closed = FakeJournal(entries), list[str]()

    class Closing:
        def __init__(self, _: object, owner: str) -> None:
            self.owner = owner

        async def rollback(self, *, accept_foreign: bool) -> list[Undone]:
            assert accept_foreign
            closed.append(self.owner)
            return [Undone("file", f"remove {FILE}", done=True, error=None)]

    async def read(path: str) -> bytes:
        return {"/proc/uptime": b"0.000001 1\n", "/proc/sys/kernel/random/boot_id": b"boot\n"}[path]

    monkeypatch.setattr("headrace.host.agent.Journal", Closing)
    agent = cast(Agent, SimpleNamespace(target=SimpleNamespace(read=read)))
    said = asyncio.run(whose.release(agent, cast(Journal, own), [FILE]))
    return closed, said


def test_only_a_file_alone_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = entry(ONE, **until(1))
    assert asked([stuck], monkeypatch)[0] == [ONE]
    assert "closed 20260101-000000-0001" in asked([stuck], monkeypatch)[1][0]
    assert asked([entry(ONE, **until(1001))], monkeypatch)[0] == []
    assert asked([entry(ROLLOUT, **until(1))], monkeypatch)[0] == []
    assert asked([{**stuck, "path": "/etc/sysctl.d/a.conf"}], monkeypatch)[0] == []
    # A variable of the same set: of another server perhaps, and its value is somebody's.
    assert asked([stuck, entry(ONE, B, "uuid-b", **until(1))], monkeypatch)[0] == []


def test_an_attempt_is_remembered_with_its_fate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_STATE", raising=False)

    def kept(owner: str, at_s: float) -> dict[str, Any]:
        return {"owner": owner, "t_ns": int(at_s * 1e9), "entries": [entry(owner, A)]}

    def refused_by(error: Exception) -> None:
        with pytest.raises(type(error)), attempts.remembered("local", LOGIN, counts=True):
            raise error

    old = kept(ONE, time.time() - 60)
    attempts.must_be_last(old, "local", LOGIN)  # nothing is known
    for error, fate in (
        (Refused("no"), "was refused and changed nothing"),
        (typer.BadParameter("no"), "was refused and changed nothing"),
        (TargetError("lost"), "what it changed is not known"),
    ):
        refused_by(error)
        with pytest.raises(Refused, match=fate) as refused:
            attempts.must_be_last(old, "local", LOGIN)
        assert f"server at {A}" in refused.value.message
        assert "headrace rollback --id 20260101-000000-0001" in (refused.value.hint or "")
        attempts.must_be_last(old, "root@elsewhere", LOGIN)
        with monkeypatch.context() as other:
            other.setenv("HEADRACE_STATE", "/of/another/journal")
            attempts.must_be_last(old, "local", LOGIN)
    # Somebody else's, by the clock of a host that may be ahead of ours.
    with pytest.raises(Refused, match=r"what was kept last is another: 20260102-000000-0002"):
        attempts.must_be_last(kept(TWO, time.time() + 1), "local", LOGIN)
    with attempts.remembered("local", LOGIN, counts=True) as attempt:
        attempt.id, attempt.what = TWO.removeprefix("apply/"), "is not kept"
    attempts.must_be_last(kept(TWO, 1), "local", LOGIN)
    # Of another server, unless none is named.
    attempts.must_be_last(old, "local", OTHER)
    with pytest.raises(Refused, match="0002 is not kept"):
        attempts.must_be_last(old, "local", ServerLogin())
    with pytest.raises(Refused, match="0002 is not kept"):
        attempts.must_be_last(old, "local", LOGIN)
    with pytest.raises(Refused, match=r"0002 is not the newest any more; .* 20260101-000000-0001"):
        attempts.must_be_last(kept(ONE, 3), "local", LOGIN, [kept(TWO, 2), kept(ONE, 3)])
    attempts.forget("local", LOGIN)
    attempts.must_be_last(old, "local", LOGIN)


def test_commands_at_one_moment_lose_no_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_STATE", raising=False)
    targets = [f"root@db{number}" for number in range(40)]
    together = Barrier(8)

    def note(targets: Sequence[str]) -> None:
        together.wait()
        for target in targets:
            with attempts.remembered(target, LOGIN, counts=True) as attempt:
                attempt.what = "is not kept"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, [targets[start::8] for start in range(8)]))
    old = {"owner": ONE, "t_ns": 1, "entries": [entry(ONE, A)]}
    for target in targets:
        with pytest.raises(Refused, match="is not kept"):
            attempts.must_be_last(old, target, LOGIN)


@pytest.mark.parametrize(
    ("running", "next_", "done", "said"),
    [
        ("80", "80", True, ""),
        ("80", "-1", True, ""),  # the server chooses
        ("80", "95", True, "set back for now only: the next start makes it 95: SET PERSIST says so"),
        ("80", None, True, "set back, and what the next start makes of it is not known"),
        ("95", "80", True, "the server has 95, and the next start brings it back"),
        ("95", "95", False, "the next start makes it 95: SET PERSIST says so"),
        ("95", "80", False, ""),
    ],
)
def test_a_variable_that_was_set_back(running: str, next_: str | None, done: bool, said: str) -> None:
    undone = Undone("variable", "back_log = 80", done=done, error=None)
    seen = Ahead("back_log", running, next_, "SET PERSIST")
    assert of_variable(undone, "80", seen, {"back_log": running}) == said


def test_a_boot_that_decides_otherwise() -> None:
    path, scheduler = "/proc/sys/vm/swappiness", "/sys/block/sda/queue/scheduler"
    found = copies(
        {
            "/etc/sysctl.d/a.conf": "vm.swappiness = 33\n",
            "/etc/udev/rules.d/99-z.rules": 'SUBSYSTEM=="block", ATTR{queue/scheduler}="kyber"\n',
        }
    )
    assert (other_at_boot(found, path, "60") or [""])[0].startswith("/etc/sysctl.d/a.conf")
    assert other_at_boot(found, path, "33") is None
    assert (other_at_boot(found, scheduler, "none") or [""])[0].startswith("/etc/udev/rules.d/99-z.rules")
    assert other_at_boot(found, scheduler, "kyber") is None
