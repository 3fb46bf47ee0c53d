"""A rollout of a setting that takes a restart, without any host: pairs, order, rules and the log."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import CommandFailed, PlanError, Refused, TargetError
from headrace.base.model import Facts
from headrace.change import apply as rollout
from headrace.host.facts import HostFacts
from headrace.host.target.local import LocalTarget
from headrace.knobs import catalogue as knobs
from headrace.rollout import rules
from headrace.rollout.book import Book
from headrace.rollout.guards import Window
from headrace.rollout.own_command import SCRIPT, run_alone
from headrace.rollout.plan import Plan, Role, Seen, make
from headrace.rollout.service import NotUp, RestartSite
from headrace.rollout.watch import Follower
from tests.unit.test_staged import seen, status, topology
from tests.waiting import until

SETTINGS = {"server.innodb_flush_method": "fsync"}
RESTART = '[restart]\ndrain = "lb drain"\nreturn = "lb enable"\nunit = "mariadb.service"\n'


def equal(*hosts: Seen, kind: str = "k") -> list[Seen]:
    return [dataclasses.replace(each, kind=kind, restarts=True) for each in hosts]


def plan_of(folder: Path, hosts: list[Seen], text: str = RESTART, seed: int = 1) -> Plan:
    path = folder / "stages.toml"
    path.write_text(text)
    return make(SETTINGS, hosts, rules.load(path), seed)


def test_one_pair_of_a_group_and_the_lot_says_which_of_it_is_changed(tmp_path: Path) -> None:
    text = RESTART + '[[stage]]\nname = "all"\ntake = "replicas"\n'
    hosts = equal(*topology("a", 4), *topology("b", 3))
    firsts = set()
    for seed in range(20):
        (stage,) = plan_of(tmp_path, hosts, text, seed).stages
        assert [set(pair) for pair in stage.pairs] == [{"ar1", "ar2"}, {"br1", "br2"}]
        assert set(stage.hosts) == {"ar1", "ar2", "ar3", "ar4", "br1", "br2", "br3"}
        firsts.add(stage.pairs[0][0])
    assert firsts == {"ar1", "ar2"}


def test_a_partner_that_a_later_stage_changes_may_go_first_unless_the_file_names_the_host(
    tmp_path: Path,
) -> None:
    hosts = equal(*topology("a", 3))
    by_lot = {plan_of(tmp_path, hosts, RESTART + ONE_THEN_ALL, seed).stages[0].hosts for seed in range(20)}
    assert by_lot == {("ar1",), ("ar2",)}
    for seed in range(20):
        plan = plan_of(tmp_path, hosts, RESTART + ONE_THEN_ALL, seed)
        names = [name for stage in plan.stages for name in stage.hosts]
        assert sorted(names) == ["ar1", "ar2", "ar3"]
        assert plan.stages[0].pairs[0][0] == plan.stages[0].hosts[0]
    named = RESTART + ONE_THEN_ALL.replace('take = "one"', 'hosts = "ar1"')
    assert {plan_of(tmp_path, hosts, named, seed).stages[0].hosts for seed in range(20)} == {("ar1",)}


ONE_THEN_ALL = '[[stage]]\nname = "one"\ntake = "one"\n[[stage]]\nname = "all"\nhosts = "ar1,ar2,ar3"\n'


@pytest.mark.parametrize("how", ["one host", "another machine", "another group", "idle", "unknown machine"])
def test_without_an_equal_partner_it_is_refused_unless_the_file_says_otherwise(
    tmp_path: Path, how: str
) -> None:
    hosts = equal(seen("a", Role.ALONE))
    if how == "another machine":
        hosts = [*equal(*topology("a", 1)), *equal(seen("ar2", Role.REPLICA, "a"), kind="other")]
    elif how == "another group":
        hosts = equal(*topology("a", 1), *topology("b", 1))
    elif how == "idle":
        hosts = equal(*topology("a", 1), seen("ar2", Role.REPLICA, "a", per_s=1.0))
    elif how == "unknown machine":
        hosts = equal(*topology("a", 2), kind="")
    text = RESTART + '[[stage]]\nname = "s"\nhosts = "' + hosts[-1].host.name + '"\n'
    if how == "idle":
        text = text.replace("ar2", "ar1")
    with pytest.raises(Refused, match="cannot be judged"):
        plan_of(tmp_path, hosts, text)
    (stage,) = plan_of(tmp_path, hosts, text.replace("unit =", "alone = true\nunit =")).stages
    assert (stage.is_judged, stage.pairs) == (False, ())
    if how in ("another machine", "unknown machine"):
        said = text.replace("unit =", 'equal = ["ar[1-2]"]\nunit =')
        assert plan_of(tmp_path, hosts, said).stages[0].pairs


def test_an_idle_host_is_in_no_pair(tmp_path: Path) -> None:
    """Without queries of its own it has no times that a partner's could be compared with."""
    idle = equal(seen("ar0", Role.REPLICA, "a", per_s=1.0))
    text = RESTART + '[[stage]]\nname = "all"\nhosts = "ar[0-2]"\n'
    (stage,) = plan_of(tmp_path, [*idle, *equal(*topology("a", 2))], text).stages
    assert [set(pair) for pair in stage.pairs] == [{"ar1", "ar2"}]
    with pytest.raises(Refused, match="no other host equals ar1"):
        plan_of(tmp_path, [*idle, *equal(*topology("a", 1))], text.replace("[0-2]", "[0-1]"))


def test_hosts_that_are_said_to_be_equal_are_never_out_together(tmp_path: Path) -> None:
    text = RESTART + 'equal = ["c,d"]\n[[stage]]\nname = "s"\nhosts = "c,d"\n'
    plan = plan_of(tmp_path, equal(seen("c", Role.ALONE), seen("d", Role.ALONE), kind=""), text)
    assert {member.group for member in plan.members.values()} == {"c"}
    assert len(plan.stages[0].pairs) == 1


def test_the_id_covers_how_it_is_restarted_and_other_plans_keep_theirs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, equal(*topology("a", 2)))
    assert Plan.of(json.loads(json.dumps(plan.to_json()))).id == plan.id
    other = plan_of(tmp_path, equal(*topology("a", 2)), RESTART.replace("lb drain", "true"))
    assert other.id != plan.id
    # A plan of what needs no restart is what it was before there were restarts.
    live = plan_of(tmp_path, topology("a", 2))
    assert live.restart is None
    assert "restart" not in live.to_json()["rules"]
    assert all("pairs" not in stage for stage in live.to_json()["stages"])


@pytest.mark.parametrize(
    "text",
    [
        RESTART.replace("unit", "units"),
        RESTART + 'command = "x"\n',
        RESTART.replace('unit = "mariadb.service"\n', ""),
        RESTART.replace('drain = "lb drain"\n', ""),
        RESTART.replace("mariadb.service", "x; rm -rf /"),
        RESTART + "before = 1\n",
        RESTART + 'at = "elsewhere"\n',
    ],
)
def test_a_restart_that_is_not_wholly_said_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stages.toml"
    path.write_text(text)
    with pytest.raises(PlanError):
        rules.load(path)


def test_the_state_of_a_restart_follows_from_the_log_cut_off_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    book = Book.make(plan_of(tmp_path, equal(*topology("a", 2))))
    window: dict[str, Any] = vars(Window(60.0, 60_000.0, 60.0))
    pair = {"stage": "one", "host": "ar1", "partner": "ar2", "changed": window, "partner_did": window}
    book.note("go")
    book.note("moment", **pair, is_after=False)
    book.note("out", host="ar1", pages=100.0, misses=0.1)
    assert book.state.host("ar1") == "out of service"
    book.note("applying", host="ar1", change="x-1")
    book.note("restarting", host="ar1", change="x-1")
    book.note("in", host="ar1")
    assert book.state.host("ar1") == "changing"
    book.note("moment", **pair, is_after=True)
    book.note("kept", host="ar1", change="x-1")
    again = Book.open(book.plan.id)
    assert again.state == book.state
    assert again.state.restarted == {"x-1"}
    assert again.state.warmth == {"ar1": (100.0, 0.1)}
    assert [moment.is_after for moment in again.state.moments["one"]] == [False, True]
    assert (len(again.state.usual["ar1"]), len(again.state.usual["ar2"])) == (1, 2)
    book.note("discarded", host="ar1")
    assert book.state.moments["one"] == []
    path = book.folder / "log.jsonl"
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        Book.open(book.plan.id)


def test_the_pool_is_read_from_the_samples_of_one_server() -> None:
    follower = Follower()
    assert follower.pool(5) == (0.0, None)
    for t_s in range(11):
        # One of them is the sample itself.
        follower.take(
            status(t_s, 101 * t_s, innodb_buffer_pool_pages_data=t_s, innodb_buffer_pool_reads=10 * t_s)
        )
    assert follower.pool(5) == (10, 0.1)
    follower.take({**status(-90, 0, innodb_buffer_pool_pages_data=3), "t_ns": 11 * 10**9})
    assert follower.pool(5) == (3, None)


OLD = "touch began; sleep 2; echo old >>log"


async def run(folder: Path, command: str, within_s: float = 60) -> None:
    lock = str(folder / "state" / "commands.lock")
    await run_alone(
        LocalTarget(),
        f"cd {folder}; {command}",
        verb="restart",
        lock=lock,
        env={"HEADRACE_OWNER": "us"},
        within_s=within_s,
        place="db1",
    )


@contextlib.contextmanager
def of_a_killed_controller(folder: Path, command: str) -> Iterator[None]:
    """A command that goes on after its controller."""
    lock = str(folder / "state" / "commands.lock")
    going = subprocess.Popen(["sh", "-c", SCRIPT, f"cd {folder}; {command}", lock, "60"])
    until((folder / "began").exists)
    yield
    going.kill()
    going.wait()


def test_a_command_waits_for_one_whose_controller_was_killed(tmp_path: Path) -> None:
    with of_a_killed_controller(tmp_path, OLD):
        asyncio.run(run(tmp_path, "echo new >>log"))
    assert (tmp_path / "log").read_text().split() == ["old", "new"]


def test_a_command_that_never_ends_is_said_and_nothing_is_run_beside_it(tmp_path: Path) -> None:
    with (
        of_a_killed_controller(tmp_path, "touch began; exec sleep 1000"),
        pytest.raises(CommandFailed, match=r"restart command failed.*an earlier command still runs"),
    ):
        asyncio.run(run(tmp_path, "echo new >>log", within_s=1))
    assert not (tmp_path / "log").exists()


def test_what_a_command_leaves_running_keeps_nobody_waiting_and_has_no_mark_of_ours(tmp_path: Path) -> None:
    asyncio.run(run(tmp_path, 'env >marks; sleep 1000 & echo "$!" >pid'))
    try:
        asyncio.run(run(tmp_path, "echo new >>log", within_s=20))
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    marks = (tmp_path / "marks").read_text()
    assert "HEADRACE_OWNER" not in marks
    assert "HEADRACE_COMMAND" not in marks


class Restarts(RestartSite):
    """A server that has each of these values in turn after a restart."""

    values: Iterator[str]

    async def _restart(self, change: str) -> HostFacts:
        assert not change
        variables = {"innodb_flush_method": next(self.values)}
        return HostFacts(Facts("ar1", {"server_settings": {"variables": variables}}))


@pytest.mark.parametrize(
    ("values", "left"),
    [
        (["O_DIRECT", "not asked"], 1),
        # The file may say another value than the server had: somebody had set it at run time.
        (["O_DSYNC", "not asked"], 1),
        (["fsync", "O_DIRECT", "not asked"], 1),
    ],
)
def test_a_server_that_was_restarted_beside_us_is_restarted_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[str], left: int
) -> None:
    site = site_of(tmp_path, monkeypatch, values)
    asyncio.run(site._restart_with_the_old())
    assert len(list(site.values)) == left


def test_a_server_that_keeps_the_new_value_is_not_called_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(tmp_path, monkeypatch, ["fsync", "FSYNC", "O_DIRECT"])
    with pytest.raises(TargetError, match=r"still has innodb_flush_method = FSYNC.*out of service"):
        asyncio.run(site._restart_with_the_old())


def test_an_allocator_is_no_variable_and_is_looked_up_in_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(tmp_path, monkeypatch, [])
    before = asyncio.run(_before("server.allocator", "jemalloc", of_process("system")))
    assert before == "system"
    now = {"server.allocator": before}
    hosts = [dataclasses.replace(each, now=now) for each in equal(*topology("a", 2))]
    path = tmp_path / "stages.toml"
    plan = make({"server.allocator": "jemalloc"}, hosts, rules.load(path), 1)
    site.book, site.member = Book.make(plan), plan.members["ar1"]
    site._must_differ(of_process("jemalloc"))
    # Not even its owner may read what a process has mapped: it was restarted, and that must do.
    site._must_differ(of_process(None))
    with pytest.raises(TargetError, match="has the old values"):
        site._must_differ(of_process("system"))
    assert site._still_new(of_process("jemalloc")) == ["allocator = jemalloc"]
    assert site._still_new(of_process("system")) == []


async def _before(name: str, value: str, facts: HostFacts) -> str:
    nobody: Any = None
    step = await rollout._step(nobody, name, knobs.find(name), None, value, facts, persisted=True)
    return step.before


def of_process(allocator: str | None) -> HostFacts:
    server = {"pid": 7, "program": "mariadbd", "allocator": {"name": allocator} if allocator else None}
    settings = {"vendor": "mariadb", "version": "10.11.6", "pid": 7, "place": {"answer": "here"}}
    settings["variables"] = {"port": "3306"}
    other = {"pid": 8, "program": "mariadbd", "allocator": {"name": "tcmalloc"}}
    return HostFacts(Facts("ar1", {"server_settings": settings, "servers": [other, server]}))


def site_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[str]) -> Restarts:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    now = {"server.innodb_flush_method": "O_DIRECT"}
    hosts = [dataclasses.replace(each, now=now) for each in equal(*topology("a", 2))]
    book = Book.make(plan_of(tmp_path, hosts))
    nobody: Any = None
    site = Restarts(book, book.plan.members["ar1"], nobody, nobody, Follower())
    site.values = iter(values)
    return site


@pytest.mark.parametrize(
    ("asked", "has", "is_so"),
    [
        ("1G", "67108864", False),
        ("64M", "67108864", True),
        ("1000001", "999424", True),
        ("2M", "1048576", False),
    ],
)
def test_another_value_after_the_restart_is_harm_and_never_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, has: str, is_so: bool
) -> None:
    site = site_of(tmp_path, monkeypatch, [])
    name = "server.innodb_sort_buffer_size"
    hosts = [dataclasses.replace(each, now={name: "1"}) for each in equal(*topology("a", 2))]
    plan = make({name: asked}, hosts, rules.load(tmp_path / "stages.toml"), 1)
    site.book, site.member = Book.make(plan), plan.members["ar1"]
    facts = HostFacts(Facts("", {"server_settings": {"variables": {"innodb_sort_buffer_size": has}}}))
    site._must_differ(facts)
    if is_so:
        site._must_be_as_asked(facts)
        return
    with pytest.raises(NotUp, match=rf"innodb_sort_buffer_size = {has}, not \d+: its start changed it"):
        site._must_be_as_asked(facts)
