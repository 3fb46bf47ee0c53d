"""A rollout's plan, rules and log, without any host."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.errors import Busy, PlanError, Refused, StoreError
from headrace.base.model import Facts
from headrace.base.received import BadContent
from headrace.fleet.host import Host
from headrace.host.facts import HostFacts
from headrace.host.target import TargetSpec
from headrace.rollout import book as books
from headrace.rollout import look, rules
from headrace.rollout.book import Book
from headrace.rollout.guards import Limits, Window, tripped
from headrace.rollout.hands import Moved, Site
from headrace.rollout.plan import HAS_IT, Plan, Role, Seen, make, seen_of
from headrace.rollout.report.rollout import _method, sentence
from headrace.rollout.service import RestartSite
from headrace.rollout.watch import CountersReset, Follower, Restarted

SETTINGS = {"server.innodb_io_capacity": "2000"}


def seen(name: str, role: Role = Role.REPLICA, *links: str, per_s: float = 500.0) -> Seen:
    host = Host(name, TargetSpec("ssh", host=name, user="root"))
    return Seen(host, role, f"uuid of {name}", links, per_s, {"server.innodb_io_capacity": "200"})


def topology(name: str, replicas: int, idle: int = 0) -> list[Seen]:
    """A source that knows its replicas by name; the last of them are idle."""
    names = [f"{name}r{number}" for number in range(1, replicas + 1)]
    source = seen(name, Role.SOURCE, *names)
    loads = [500.0] * (replicas - idle) + [1.0] * idle
    return [source, *(seen(each, per_s=load) for each, load in zip(names, loads, strict=True))]


def plan_of(*hosts: Seen, text: str = "", folder: Path | None = None) -> Plan:
    path = None
    if folder is not None:
        path = folder / "stages.toml"
        path.write_text(text)
    return make(SETTINGS, hosts, rules.load(path), 1)


def stages(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {stage.name: stage.hosts for stage in plan.stages}


def test_the_order_is_idle_one_a_tenth_all_replicas_and_sources_last() -> None:
    plan = plan_of(*topology("a", 12, idle=1), *topology("b", 12))
    found = stages(plan)
    assert found["idle"] == ("ar12",)
    assert found["one"] == ("ar1",)
    assert len(found["10%"]) == 3
    assert len(found["replicas"]) == 19
    assert found["sources"] == ("a", "b")
    assert [stage.needs_approval for stage in plan.stages] == [False, False, False, False, True]
    assert [stage.is_judged for stage in plan.stages] == [False, True, True, True, True]
    assert sum(len(hosts) for hosts in found.values()) == 26


def test_who_replicates_with_whom_is_one_group_and_nobody_else() -> None:
    plan = plan_of(*topology("a", 2), *topology("b", 1), seen("c", Role.ALONE))
    groups = {name: member.group for name, member in plan.members.items()}
    assert groups == {"a": "a", "ar1": "a", "ar2": "a", "b": "b", "br1": "b", "c": "c"}


def member(own: int, role: str = "SECONDARY", state: str = "ONLINE", **more: Any) -> dict[str, Any]:
    """The facts of a member of a group of three, whose names lead nowhere."""
    members = [
        {
            "id": f"u{n}",
            "host": "localhost",
            "port": 3306,
            "state": "ONLINE",
            "role": "SECONDARY",
            "is_own": False,
        }
        for n in (1, 2, 3)
    ]
    members[own - 1] |= {"is_own": True, "role": role, "state": state}
    name = {"group_replication_group_name": "5ca1ab1e", "server_uuid": f"u{own}"}
    replication = [] if role == "PRIMARY" else [{"channel": "group_replication_applier", "lag_s": 0}]
    settings = {"variables": name, "group": {"members": members}, "replication": replication, **more}
    return {"hostname": f"db{own}", "server_settings": settings}


def of(name: str, facts: dict[str, Any]) -> Seen:
    host = Host(name, TargetSpec("ssh", host=f"10.0.0.{ord(name)}", user="root"))
    answer = seen_of(host, facts, 500.0, {"server.innodb_io_capacity": "200"})
    return look.seen(host, {"kind": "", **answer})


def test_members_of_a_mysql_group_are_one_group_and_its_primary_is_a_source() -> None:
    copying = [{"server_id": 3, "uuid": "u3"}]
    hosts = [
        of("a", member(1, "PRIMARY")),
        # A member that joins copies its log from this one.
        of("b", member(2, replicas=copying, replica_addresses=["10.0.0.3"])),
        of("c", member(3)),
    ]
    assert [each.role for each in hosts] == [Role.SOURCE, Role.REPLICA, Role.REPLICA]
    plan = make(SETTINGS, hosts, rules.load(None), 1)
    assert {each.group for each in plan.members.values()} == {"a"}
    assert {stage.name: stage.needs_approval for stage in plan.stages} == {
        "one": False, "replicas": False, "sources": True,
    }  # fmt: skip


def test_every_primary_of_a_group_is_a_source_and_so_is_a_member_that_others_copy() -> None:
    assert of("a", member(1, "PRIMARY")).role is of("b", member(2, "PRIMARY")).role is Role.SOURCE
    assert of("a", member(1, replicas=[{"server_id": 9, "uuid": "u9"}])).role is Role.SOURCE
    # One that the others have expelled takes no writes, but is still of the group.
    assert of("a", member(1, "PRIMARY", "ERROR", replication=[{"lag_s": None}])).role is Role.REPLICA


def test_nodes_of_a_galera_cluster_are_one_group() -> None:
    def node(name: str, cluster: str, wsrep: str = "ON") -> Seen:
        variables = {"wsrep_on": wsrep, "wsrep_cluster_name": cluster, "server_uid": name}
        return of(name, {"hostname": name, "server_settings": {"variables": variables}})

    nodes = [node("a", "east"), node("b", "east"), node("c", "west"), node("d", "west", "OFF")]
    plan = make(SETTINGS, nodes, rules.load(None), 1)
    assert [each.group for each in plan.members.values()] == ["a", "a", "c", "d"]
    assert [stage.needs_approval for stage in plan.stages] == [True]


def test_what_takes_writes_needs_an_approval_whatever_the_file_says(tmp_path: Path) -> None:
    text = '[[stage]]\nname = "all"\nhosts = "a,ar1"\n'
    plan = plan_of(*topology("a", 2), text=text, folder=tmp_path)
    assert [stage.needs_approval for stage in plan.stages] == [True]
    assert plan.left_out == {"ar2": "no stage takes it"}
    alone = plan_of(seen("c", Role.ALONE))
    assert [stage.needs_approval for stage in alone.stages] == [True]


def test_the_id_is_a_hash_of_all_of_it() -> None:
    plan = plan_of(*topology("a", 2))
    assert Plan.of(json.loads(json.dumps(plan.to_json()))).id == plan.id
    assert plan_of(*topology("a", 3)).id != plan.id
    other = make({"server.innodb_io_capacity": "2001"}, topology("a", 2), rules.load(None), 1)
    assert other.id != plan.id


def test_the_lot_is_the_same_whenever_it_is_continued_and_fair() -> None:
    plan = plan_of(*topology("a", 2))
    lots = [plan.is_on_first("one", "ar1", attempt) for attempt in range(400)]
    assert lots == [plan.is_on_first("one", "ar1", attempt) for attempt in range(400)]
    assert 150 < sum(lots) < 250


def test_a_stage_of_unknown_hosts_and_a_plan_of_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="not in the fleet"):
        plan_of(seen("a"), text='[[stage]]\nname = "x"\nhosts = "b"\n', folder=tmp_path)
    with pytest.raises(Refused, match="no stage has a host"):
        plan_of()
    with pytest.raises(Refused, match="no stage has a host: a: cannot connect") as refused:
        make({"server.innodb_io_capacity": "2001"}, (), rules.load(None), 1, left_out={"a": "cannot connect"})
    assert "fleet status" in str(refused.value.hint)


def test_servers_of_one_machine_are_one_group_and_a_setting_of_the_machine_is_refused() -> None:
    spec = TargetSpec("ssh", host="db1", user="root")
    own = [
        replace(each, host=replace(each.host, spec=spec))
        for each in (seen("orders"), seen("users", Role.ALONE))
    ]
    assert len({member.group for member in plan_of(*own).members.values()}) == 1
    apart = [replace(each, files=(f"/etc/mysql/{each.host.name}.d/zz-headrace.cnf",)) for each in own]
    assert len(plan_of(*apart).members) == 2
    with pytest.raises(Refused, match="orders and users run on one machine and both read /etc/mysql/"):
        plan_of(*(replace(each, files=("/etc/mysql/conf.d/zz-headrace.cnf",)) for each in own))
    with pytest.raises(Refused, match="a setting of the machine, and both orders and users run on it"):
        make({"host.vm.swappiness": "1"}, own, rules.load(None), 1)


def test_a_stage_says_why_a_host_cannot_take_part_and_goes_on_without_those_that_have_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stages.toml"
    path.write_text('[[stage]]\nname = "x"\nhosts = "a,ar1,ar2"\n')
    hosts = topology("a", 1)
    with pytest.raises(PlanError, match="ar2: no answer within 30 s"):
        make(SETTINGS, hosts, rules.load(path), 1, left_out={"ar2": "no answer within 30 s"})
    plan = make(SETTINGS, hosts, rules.load(path), 1, left_out={"ar2": HAS_IT})
    assert stages(plan) == {"x": ("a", "ar1")}
    assert plan.left_out == {"ar2": HAS_IT}


def test_a_host_that_a_stage_names_twice_is_changed_once(tmp_path: Path) -> None:
    path = tmp_path / "stages.toml"
    path.write_text('[[stage]]\nname = "x"\nhosts = "ar1,ar[1-2]"\n')
    assert stages(make(SETTINGS, topology("a", 2), rules.load(path), 1)) == {"x": ("ar1", "ar2")}


@pytest.mark.parametrize(
    "text",
    [
        "[timing]\nblock_s = -1\n",
        "[judge]\nlooks = [6, 6]\n",
        "[judge]\nlooks = []\n",
        "[judge]\nalpha = 0\n",
        'freeze = ["sometimes"]\n',
        '[[stage]]\nname = "x"\n',
        '[[stage]]\nname = "x"\ntake = "one"\nhosts = "a"\n',
        '[[stage]]\nname = "x"\ntake = "0%"\n',
        '[[stage]]\nname = "x"\ntake = "one"\n[[stage]]\nname = "x"\ntake = "idle"\n',
        '[[stage]]\nname = "../x"\ntake = "one"\n',
        "blocks = 3\n",
        "not toml",
    ],
)
def test_a_file_that_says_something_else_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stages.toml"
    path.write_text(text)
    with pytest.raises(PlanError):
        rules.load(path)


@pytest.mark.parametrize("name", ["nowhere.toml", "."])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(PlanError, match=r"cannot be read: (No such file|Is a directory)"):
        rules.load(tmp_path / name)


@pytest.mark.parametrize(
    ("window", "time", "expected"),
    [
        ("Fri-Sun", "2026-11-20T12:00", True),  # a Friday
        ("Fri-Sun", "2026-11-23T00:00", False),
        ("Sun-Tue", "2026-11-23T12:00", True),
        ("Mon-Fri 08:00-18:00", "2026-11-23T08:00", True),
        ("Mon-Fri 08:00-18:00", "2026-11-23T18:00", False),
        ("22:00-06:00", "2026-11-23T23:00", True),
        ("22:00-06:00", "2026-11-23T05:59", True),
        ("22:00-06:00", "2026-11-23T06:00", False),
        ("Fri 22:00-06:00", "2026-11-21T05:00", True),
        ("Fri 22:00-06:00", "2026-11-20T05:00", False),
        ("Fri 16:00-24:00", "2026-11-20T23:59", True),
        ("2026-12-20..2027-01-03", "2027-01-03T23:59", True),
        ("2026-12-20..2027-01-03", "2027-01-04T00:00", False),
        ("2026-12-24", "2026-12-24T12:00", True),
    ],
)
def test_freezes(window: str, time: str, expected: bool) -> None:
    now = datetime.fromisoformat(time).replace(tzinfo=UTC)
    assert rules.frozen(window, now) is expected


@pytest.mark.parametrize(
    "window",
    [
        "2026-12-20..2027-13-45",
        "2027-01-03..2026-12-20",
        "2026-02-30",
        "Someday",
        "",
        "25:00-26:00",
        "Mon 29:00-23:59",
        "24:00-06:00",
        "08:00-24:30",
    ],
)
def test_no_freezes(window: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        rules.frozen(window, datetime(2026, 11, 23, tzinfo=UTC))


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Book:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Book.make(plan_of(*topology("a", 2)))


def window(time_ms: float) -> dict[str, Any]:
    return vars(Window(60.0, 60_000.0, 60.0 * time_ms))


def test_the_state_follows_from_the_log_cut_off_anywhere(book: Book) -> None:
    book.note("go")
    book.note("applying", host="ar1", change="x-1")
    book.note("undone", host="ar1", change="x-1")
    book.note("attempt", stage="one", host="ar1")
    book.note("pair", stage="one", host="ar1", on=window(1.0), off=window(2.0))
    book.note("applying", host="ar1", change="x-2")
    book.note("kept", host="ar1", change="x-2")
    again = Book.open(book.plan.id[:5])
    assert again.state == book.state
    assert again.state.kept == {"ar1": "x-2"}
    assert again.state.host("ar1") == "changed"
    assert [pair.host for pair in again.state.pairs["one"]] == ["ar1"]
    path = book.folder / "log.jsonl"
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with Book.open(book.plan.id).hold():
            pass
        cut_off = Book.open(book.plan.id)
        cut_off.note("paused", why="x")
        assert Book.open(book.plan.id).state == cut_off.state
        assert len(cut_off.events) == whole[:cut].count(b"\n") + 1


def test_a_restored_host_with_other_values_than_before_is_not_said_to_be_as_before(book: Book) -> None:
    """What starts the server was changed meanwhile: its restart with the old file brought a third value."""
    site = SimpleNamespace(member=SimpleNamespace(now={"server.back_log": "80", "server.flush_time": "0"}))
    facts = HostFacts(
        Facts(
            "",
            {"server_settings": {"vendor": "mariadb", "variables": {"back_log": "130", "flush_time": "0"}}},
        )
    )
    assert RestartSite._unlike_before(site, facts) == ["back_log = 130, and had 80 before"]  # type: ignore[arg-type]
    book.note("aborting", why="aborted by me")
    book.note("other", host="a0", why="it has back_log = 130")
    assert book.state.host("a0") == "restored"
    assert "not every host is restored yet" in sentence(book.state)
    book.note("aborted")
    assert sentence(book.state).endswith("every host is restored, but a0: it has back_log = 130")


def test_a_value_that_somebody_has_changed_since_the_plan_is_not_overruled() -> None:
    site = SimpleNamespace(member=SimpleNamespace(name="a", now={"server.innodb_io_capacity": "200"}))

    def facts(value: str) -> Facts:
        return Facts(
            "", {"server_settings": {"vendor": "mariadb", "variables": {"innodb_io_capacity": value}}}
        )

    Site.values_must_fit(site, facts("200"))  # type: ignore[arg-type]
    with pytest.raises(Moved, match="somebody has changed innodb_io_capacity: it is 333, and was 200"):
        Site.values_must_fit(site, facts("333"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("has", "is_kept"), [("90", True), ("130", False)])
def test_a_restarted_server_keeps_only_what_was_asked(
    has: str, is_kept: bool, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever returns it to service may restart it once more, by other files."""
    confirmed = []

    async def facts(login: object) -> Facts:
        return Facts("", {"server_settings": {"vendor": "mariadb", "variables": {"back_log": has}}})

    async def confirm(self: Site, change: str) -> None:
        confirmed.append(change)

    monkeypatch.setattr(Site, "keep", confirm)
    asked = Book(book.folder, replace(book.plan, settings={"server.back_log": "90"}))
    agent = SimpleNamespace(facts=facts)
    site = RestartSite(asked, next(iter(asked.plan.members.values())), agent, None, None)  # type: ignore[arg-type]
    with contextlib.nullcontext() if is_kept else pytest.raises(Moved, match="back_log = 130, not 90"):
        asyncio.run(site.keep("c"))
    assert confirmed == (["c"] if is_kept else [])


def test_a_plan_names_what_only_new_connections_get(book: Book) -> None:
    plan = replace(book.plan, settings={"server.sort_buffer_size": "1M", "server.innodb_io_capacity": 300})
    assert plan.of_sessions == ("server.sort_buffer_size",)
    (said,) = [text for text in _method(plan) if "until they reconnect" in text]
    assert said.startswith("server.sort_buffer_size: ")
    assert not any("until they reconnect" in text for text in _method(book.plan))


def test_a_line_that_is_damaged_in_the_middle_is_no_state(book: Book) -> None:
    book.note("go")
    book.note("finished")
    path = book.folder / "log.jsonl"
    path.write_bytes(b"{half\n" + path.read_bytes())
    with pytest.raises(StoreError, match="line 1"):
        Book.open(book.plan.id)
    assert books.every() == []


@pytest.mark.parametrize("line", ["[]", "7", '{"kind": "pair"}', '{"kind": "kept", "host": []}', "{}"])
def test_a_line_that_is_something_else_is_no_state(book: Book, line: str) -> None:
    (book.folder / "log.jsonl").write_text(line + "\n")
    with pytest.raises(StoreError, match="line 1"):
        Book.open(book.plan.id)


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"format": 1, "members": []}', "\x00"])
def test_a_plan_that_is_something_else_is_not_run(book: Book, text: str) -> None:
    (book.folder / "plan.json").write_text(text)
    with pytest.raises(StoreError):
        Book.open(book.plan.id)


def test_a_plan_that_was_changed_is_not_run(book: Book) -> None:
    path = book.folder / "plan.json"
    path.write_text(path.read_text().replace('"2000"', '"9000"'))
    with pytest.raises(StoreError, match="changed after"):
        Book.open(book.plan.id)
    with pytest.raises(PlanError, match="no such rollout"):
        Book.open("")


def test_two_rollouts_never_share_a_host(book: Book) -> None:
    other = Book.make(plan_of(*topology("a", 2), seen("z")))
    with book.hold():
        with pytest.raises(Busy, match=book.plan.id), other.hold():
            pass
        with pytest.raises(Busy), Book.open(book.plan.id).hold():
            pass
    with other.hold():
        pass


def status(t_s: int, questions: float, **more: float) -> dict[str, Any]:
    values = {"questions": questions, "uptime": 100 + t_s, **more}
    return {
        "t_ns": t_s * 10**9,
        "sampler": "mysql_status",
        "ok": True,
        "values": {name: {"": number} for name, number in values.items()},
    }


def test_a_stretch_is_queries_threads_and_errors() -> None:
    follower = Follower()
    for t_s in range(11):
        # Two of them are the samples here.
        follower.take(status(t_s, 1002 * t_s, aborted_clients=t_s))
        follower.take(processlist(t_s, 4))
    window = follower.since(0)
    assert (window.seconds, window.queries, window.errors) == (10, 10_000, 10)
    assert window.time_s == pytest.approx(0.004)
    assert follower.since(5 * 10**9).queries == 5000
    assert follower.since(11 * 10**9).time_s is None


def test_a_server_that_only_we_ask_has_no_queries() -> None:
    follower = Follower()
    for t_s in range(4):
        follower.take(status(t_s, 3 * t_s + 1))
        follower.take(processlist(t_s, 0))
        follower.take({"t_ns": t_s * 10**9, "sampler": "replication", "ok": True, "values": {}})
    assert follower.since(0).queries == 0


def processlist(t_s: int, serving: int) -> dict[str, Any]:
    values = {"threads": {"Sleep": 90, "Query": 9}, "serving": {"": serving}}
    return {"t_ns": t_s * 10**9, "sampler": "processlist", "ok": True, "values": values}


def test_of_a_sample_that_takes_two_questions_both_are_ours() -> None:
    """A member of a MySQL group is asked for its channels and for its group."""
    follower = Follower()
    for t_s in range(4):
        follower.take(status(t_s, 4 * t_s + 1))
        follower.take(processlist(t_s, 0))
        values = {"lag_s": {"group_replication_applier": 0}, "statements": {"": 2}}
        follower.take({"t_ns": t_s * 10**9, "sampler": "replication", "ok": True, "values": values})
    assert follower.since(0).queries == 0
    assert follower.lag_s == 0


def test_without_the_process_list_there_is_no_time() -> None:
    follower = Follower()
    for t_s in range(11):
        follower.take(status(t_s, 1000 * t_s))
    assert follower.since(0).block.time_s is None


def test_a_restart_in_a_stretch_is_no_measurement() -> None:
    from headrace.base.errors import TargetError

    follower = Follower()
    follower.take(status(1, 1000))
    follower.take(status(2, 10, uptime=1))
    with pytest.raises(TargetError, match="restarted"):
        follower.since(0)


@pytest.mark.parametrize(("uptime", "kind"), [(1.0, Restarted), (150.0, CountersReset)])
def test_a_reset_that_the_last_reading_has_made_up_for_is_seen(
    uptime: float, kind: type[CountersReset]
) -> None:
    """A young server; and a reset of its counters, which is no restart and so no harm."""
    follower = Follower()
    for t_s, questions, up in ((1, 100, 101), (2, 10, uptime), (3, 5000, uptime + 200)):
        follower.take(status(t_s, questions, uptime=up))
    with pytest.raises(CountersReset) as raised:
        follower.since(0)
    assert type(raised.value) is kind


def test_a_reset_is_one_whichever_counter_shows_it_and_hides_no_errors() -> None:
    """A monitor's FLUSH STATUS: some counters begin again, and others, in the sum, make up for them."""
    follower = Follower()
    for t_s, clients, connects in ((1, 500, 7), (2, 520, 7), (3, 0, 700), (4, 30, 700)):
        follower.take(status(t_s, 1000 * t_s, aborted_clients=clients, aborted_connects=connects))
    with pytest.raises(CountersReset) as raised:
        follower.since(0)
    assert type(raised.value) is CountersReset
    assert follower.since(0, through_resets=True).errors == 20 + 693 + 30
    follower.take(status(5, 5000, aborted_clients=30))
    with pytest.raises(CountersReset):
        follower.since(4 * 10**9)
    follower.take(status(6, 100, uptime=1))
    with pytest.raises(Restarted):
        follower.since(0, through_resets=True)


#: Counters at two seconds, and the one with FLUSH STATUS between; the server's own age is ``100 + t_s``.
FLUSHED: list[tuple[dict[str, float], dict[str, float]]] = [
    ({"aborted_clients": 0}, {"aborted_clients": 0}),  # 50 in between: nothing shows them
    ({"aborted_clients": 5}, {"aborted_clients": 5}),
    ({"aborted_clients": 5}, {"aborted_clients": 7}),  # 25, then a reset, then 7
    ({}, {}),
]


@pytest.mark.parametrize(("before", "after"), FLUSHED)
def test_a_reset_that_no_counter_shows_is_one(before: dict[str, float], after: dict[str, float]) -> None:
    """Measured on MariaDB 10.11 and 11.8, and MySQL 8.0 and 9.7: queries go on, and some errors begin again."""
    follower = Follower()
    follower.take(status(1, 1000, uptime_since_flush_status=101, **before))
    follower.take(status(2, 2000, uptime_since_flush_status=102, **before))
    assert follower.since(0).errors == 0
    follower.take(status(3, 3000, uptime_since_flush_status=1, **after))
    with pytest.raises(CountersReset) as raised:
        follower.since(0)
    assert type(raised.value) is CountersReset
    assert follower.since(0, through_resets=True).queries > 0
    # The clock was set back to before the reset: it is shown as an unsigned number, and says nothing.
    follower.take(status(4, 4000, uptime_since_flush_status=2**64 - 3600, **after))
    assert follower.since(3 * 10**9).queries > 0


@pytest.mark.parametrize(
    ("ages", "is_restart"),
    [
        # A crash just after the start: the next server has answered more since.
        ((5, 1), True),
        ((3, 4), False),
        ((9, 0), True),
        ((7, 8), False),
        # The clock was set back, by an hour, and to before the start.
        ((9000, 5401), False),
        ((100, -3499), False),
        # Of the same age, to the second.
        ((1, 1), False),
    ],
)
def test_a_server_that_is_younger_than_the_time_between_was_restarted(
    ages: tuple[float, float], is_restart: bool
) -> None:
    follower = Follower()
    for t_s, (questions, age) in enumerate(zip((100, 90_000), ages, strict=True), 1):
        follower.take(status(t_s, questions, uptime=age))
    if is_restart:
        with pytest.raises(Restarted):
            follower.since(0, through_resets=True)
        assert follower.pool(60) == (0, None)
    else:
        assert follower.since(0).queries > 0


def test_a_server_that_takes_long_to_answer_was_not_restarted() -> None:
    """Its age is of when it began to answer, half a minute after it was asked."""
    follower = Follower()
    follower.take({**status(1, 100, uptime=31), "cost_ns": 30 * 10**9})
    follower.take(status(32, 200, uptime=32))
    assert follower.since(0, through_resets=True).queries > 0


def test_a_counter_that_was_not_there_is_neither_an_error_nor_none() -> None:
    follower = Follower()
    follower.take(status(1, 1000))
    follower.take(status(2, 2000, innodb_deadlocks=5000))
    assert follower.since(0, through_resets=True).errors == 0
    with pytest.raises(CountersReset):
        follower.since(0)


def test_threads_that_are_not_seen_any_more_are_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the process list a slow server has no time per query, and would pass its limit."""
    ours = 0
    monkeypatch.setattr("headrace.rollout.watch.time.monotonic_ns", lambda: ours)
    follower = Follower()
    for number in range(40):
        ours = number * 10**9
        follower.take(status(number, 1000.0 * number))
        if number < 20:
            follower.take(processlist(number, 4))
        else:
            record = {"t_ns": ours, "sampler": "processlist", "ok": False, "error": "Access denied"}
            follower.take(record)
        window = follower.since((number - 5) * 10**9)
        assert bool(window.broken) == (number >= 30), number
    assert window.broken == "its process list is unknown for 20 s: Access denied"
    assert tripped(window, [], Limits()) == window.broken


NO_COUNTERS: list[Any] = [math.nan, math.inf, -1, "7", "nan", None, [], 2**70]
NO_RECORDS: list[dict[str, Any]] = [
    *({"values": each} for each in (7, {"questions": 7})),
    *({"t_ns": each} for each in (None, "x", math.nan, -1)),
    *({"values": {"questions": {"": each}, "uptime": {"": 1}}} for each in NO_COUNTERS),
    *(
        {"values": {"questions": {"": 9}, "aborted_clients": {"": each}, "uptime": {"": 1}}}
        for each in NO_COUNTERS
    ),
    # A server without its count of queries would be an idle one, which is only watched.
    {"values": {"uptime": {"": 1}}},
    {"values": {"questions": {"": 7}}},
    {"values": {"questions": {}, "uptime": {"": 1}}},
    *({"values": {"questions": {"": 9}, "uptime": {"": each}}} for each in (math.nan, "x", None)),
    *(
        {"values": {"questions": {"": 9}, "uptime": {"": 1}, "uptime_since_flush_status": {"": each}}}
        for each in (math.nan, math.inf, "x", None, 2**70)
    ),
    {"values": {"questions": {"": 9}, "uptime": {"": 1}, "aborted_clients": {}}},
    {"cost_ns": math.nan},
    {"sampler": "processlist", "values": {}},
    {"sampler": "replication", "values": {"lag_s": {"": math.nan}}},
    {"sampler": "replication", "values": {"lag_s": {"": "7"}}},
    {"sampler": "processlist", "values": {"serving": {"": []}}},
]


@pytest.mark.parametrize("record", NO_RECORDS)
def test_what_cannot_be_is_no_data_and_does_not_end_the_watch(record: dict[str, Any]) -> None:
    follower = Follower()

    async def lines() -> AsyncIterator[dict[str, Any]]:
        yield status(1, 100)
        yield {**status(2, 200), **record}
        assert "cannot be read" in follower.problem
        assert len(follower.readings) == 1
        yield status(3, 300)
        assert follower.problem == ""

    asyncio.run(follower.read(lines()))
    assert follower.problem == "the sampler ended"
    assert len(follower.readings) == 2


def test_an_event_that_this_version_does_not_know_is_an_error(book: Book) -> None:
    """It was passed over: a host could be changed, and the log's reader did not know."""
    for kind in books.FOR_PEOPLE:
        book.note(kind, host="a1")
    with (book.folder / books.LOG).open("a") as file:
        file.write('{"t":1,"kind":"changed_elsewhere","host":"a1"}\n')
    with pytest.raises(StoreError, match="no event is called 'changed_elsewhere'"):
        Book(book.folder, book.plan)


def test_every_event_that_is_noted_is_known() -> None:
    noted = set()
    for path in Path(books.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "note"
            ):
                noted |= {each.value for each in call.args[:1] if isinstance(each, ast.Constant)}
    taken = {name.removeprefix("_take_") for name in vars(books.State) if name.startswith("_take_")}
    assert {*taken, *books.FOR_PEOPLE} == noted


@pytest.mark.parametrize("field", ["seconds", "queries", "busy_s", "errors", "lag_s", "sightings"])
def test_no_number_passes_no_limit(field: str) -> None:
    good = Window(60.0, 60_000.0, 60.0, 0.0, 0.0, "", 60.0)
    assert tripped(good, [good], Limits()) == ""
    bad = replace(good, **{field: math.nan})  # type: ignore[arg-type]
    assert tripped(bad, [good], Limits()) == "its count is not a number"
    slow = replace(good, busy_s=6000.0)
    assert tripped(slow, [bad, good], Limits()) == tripped(slow, [good], Limits()) != ""


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_a_clock_that_is_set_is_neither_a_slow_server_nor_a_blind_watch(
    step_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes its uptime from that clock, too."""
    ours = 0
    monkeypatch.setattr("headrace.rollout.watch.time.monotonic_ns", lambda: ours)
    follower = Follower()
    for number in range(40):
        t_s = number + (step_s if number >= 20 else 0) + 10_000
        ours = number * 10**9
        follower.take(status(t_s, 1001 * number))
        follower.take(processlist(t_s, 2))
    window = follower.since(follower.last_ns - 30 * 10**9)
    assert window.seconds == pytest.approx(30)
    assert window.per_s == pytest.approx(1000, rel=0.01)
    assert window.time_s == pytest.approx(0.002, rel=0.01)


def test_samples_that_come_late_and_all_at_the_same_time_keep_their_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = 0
    monkeypatch.setattr("headrace.rollout.watch.time.monotonic_ns", lambda: ours)
    follower = Follower()
    for number in range(40):
        # The connection stalls for 15 s.
        ours = (25 if 10 <= number < 25 else number) * 10**9
        follower.take(status(number, 1000.0 * number))
    assert [reading.t_ns for reading in follower.readings] == [t_s * 10**9 for t_s in range(40)]


def test_replication_that_stands_is_seen() -> None:
    follower = Follower()
    record: dict[str, Any] = {"t_ns": 1, "sampler": "replication", "ok": True}
    follower.take({**record, "values": {"lag_s": {"": 3}, "io_running": {"": 1}, "sql_running": {"": 1}}})
    assert (follower.lag_s, follower.broken) == (3.0, "")
    follower.take({**record, "values": {"lag_s": {}, "io_running": {"": 1}, "sql_running": {"": 0}}})
    assert "sql thread" in follower.broken
    follower.take({"t_ns": 2, "sampler": "mysql_status", "ok": False, "error": "gone away"})
    assert follower.problem == "gone away"


@pytest.mark.parametrize("said", ["No", math.nan, [0], -1, True, None])
def test_a_thread_that_runs_in_no_known_way_does_not_run(said: object) -> None:
    values = {"lag_s": {"": 0}, "io_running": {"": 1}, "sql_running": {"": said}}
    record = {"t_ns": 1, "sampler": "replication", "ok": True, "values": values}
    with pytest.raises(BadContent):
        Follower().take(record)


def test_a_lag_is_not_used_long_after_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = 0
    monkeypatch.setattr("headrace.rollout.watch.time.monotonic_ns", lambda: ours)
    follower = Follower()

    def second(number: int, **replication: Any) -> Window:
        nonlocal ours
        ours = number * 10**9
        follower.take(status(number, 1000.0 * number))
        follower.take({"t_ns": ours, "sampler": "replication", **replication})
        return follower.since(0)

    said = {"lag_s": {"": 3}, "io_running": {"": 1}, "sql_running": {"": 1}}
    assert second(0, ok=True, values=said).lag_s == 3
    for number in range(1, 10):
        window = second(number, ok=False, error="lost connection")
    assert (window.lag_s, window.broken) == (3, "")  # a sample or two may be lost
    for number in range(10, 20):
        window = second(number, ok=False, error="lost connection")
    assert window.lag_s is None
    assert window.broken == "its replication is unknown for 19 s: lost connection"
    assert tripped(window, [], Limits()) == window.broken
    assert second(20, ok=True, values=said).broken == ""
    # Its source was taken from it: a lag that nobody has would pass whatever happens.
    assert second(21, ok=True, values={}).broken == "it replicates no more by its 1 channel the default"
    # A server that replicates from nobody has no lag to be unknown.
    follower = Follower()
    second(22, ok=True, values={})
    for number in range(23, 50):
        window = second(number, ok=False, error="lost connection")
    assert (window.lag_s, window.broken) == (None, "")
