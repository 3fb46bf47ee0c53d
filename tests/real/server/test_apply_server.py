"""Variables of real servers: changed, confirmed, rolled back from the journal alone; and whole rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import PlanError, Refused
from headrace.base.model import ServerLogin
from headrace.change import apply as rollout
from headrace.host.agent import Agent
from headrace.host.target.local import LocalTarget
from tests.agent.test_journal import Host
from tests.servers import Server, started
from tests.waiting import until

OWNER = "apply/test"


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    with started(request.param, folder / request.param) as running:
        yield running


def value(server: Server, name: str) -> str:
    return str(server.sql(f"SELECT @@GLOBAL.{name}")[0][0])


def call(host: Host, server: Server, verb: str, stdin: Any = None, *options: str, code: int = 0) -> Any:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"] if verb == "apply" else []
    return host.call(verb, *login, *options, owner=OWNER, stdin=stdin, code=code)


def test_a_variable_is_set_confirmed_and_rolled_back(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    before = value(server, "long_query_time")
    changes = [
        {"variable": "long_query_time", "value": "3.5"},
        {"variable": "slow_query_log", "value": "OFF"},
    ]
    applied = call(host, server, "apply", changes)
    assert applied[0]["path"] == "long_query_time"
    assert (float(applied[0]["before"]), float(applied[0]["after"])) == (float(before), 3.5)
    call(host, server, "confirm")
    assert float(value(server, "long_query_time")) == 3.5
    undone = call(host, server, "rollback", None, "--kept", "last")
    assert [u["kind"] for u in undone] == ["variable"]
    assert value(server, "long_query_time") == before
    journal = (host.state / "history.jsonl").read_text() + (host.state / "journal.jsonl").read_text()
    assert "password" not in journal.replace("mysql_password_file", "")


def test_coupled_variables_come_back_as_a_pair(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    names = ("innodb_io_capacity", "innodb_io_capacity_max")
    before = [value(server, name) for name in names]
    if "MariaDB" in str(server.sql("SELECT VERSION()")):
        [applied] = call(host, server, "apply", [{"variable": names[0], "value": "9000"}])
        [also] = applied["also"]
        assert (also["path"], also["before"], also["after"]) == (names[1], before[1], value(server, names[1]))
        assert int(value(server, names[1])) >= 9000 > int(before[1]), "the server takes the other along"
    else:
        message = call(host, server, "apply", [{"variable": names[0], "value": "9000"}], code=5)
        assert f'the server made it "{before[1]}"' in message
        assert [value(server, name) for name in names] == before
    call(host, server, "rollback")
    assert [value(server, name) for name in names] == before
    for low, high in (("9000", "18000"), ("300", "400"), ("9000", "9000")):
        changes = [{"variable": names[0], "value": low}, {"variable": names[1], "value": high}]
        applied = call(host, server, "apply", changes)
        assert [a["after"] for a in applied] == [low, high], "in the order of the call, whatever came first"
        assert all("also" not in a for a in applied), "both were asked for"
    call(host, server, "rollback")
    assert [value(server, name) for name in names] == before


def test_what_the_server_adjusts_or_refuses_is_put_back(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    before = {name: value(server, name) for name in ("max_connections", "table_open_cache", "wait_timeout")}
    good = {"variable": "wait_timeout", "value": "1234"}
    for bad, why in (
        ({"variable": "max_connections", "value": "999999999"}, "the server made it"),
        ({"variable": "innodb_log_buffer_size_x", "value": "1"}, "server error 1193"),
        ({"variable": "port", "value": "1"}, "server error 1238"),
        ({"variable": "wait_timeout x", "value": "1"}, "no name of a variable"),
        ({"variable": "binlog_format", "value": "R'OW"}, "server error 1231"),
    ):
        message = call(host, server, "apply", [good, bad], code=2 if "name" in why else 5)
        assert why in message, message
        assert {name: value(server, name) for name in before} == before
        assert host.open_entries() == []


def test_a_value_in_other_words_is_the_same(server: Server, tmp_path: Path) -> None:
    """By number, by a mode that stands for others, by switches of which only some are named."""
    host = Host(tmp_path)
    before = {name: value(server, name) for name in ("sql_mode", "optimizer_switch")}
    # MariaDB refuses to have neither materialization nor in_to_exists.
    bits = sum(1 << at for at, one in enumerate(before["optimizer_switch"].split(",")) if one.endswith("=on"))
    for name, told in (
        ("sql_mode", "3"),
        ("sql_mode", "0"),
        ("sql_mode", "ANSI"),
        ("sql_mode", "TRADITIONAL"),
        ("optimizer_switch", str(bits - 1)),
        ("optimizer_switch", "mrr=default,index_merge=off"),
    ):
        (done,) = call(host, server, "apply", [{"variable": name, "value": told}])
        assert (done["path"], done["before"]) == (name, before[name])
        # It has it already: no second entry, which would make the confirmation a refusal.
        call(host, server, "apply", [{"variable": name, "value": told}])
        call(host, server, "rollback")
        assert value(server, name) == before[name]


def test_originals_of_every_form_come_back(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    server.sql(
        "CREATE DATABASE IF NOT EXISTS forms",
        "CREATE TABLE IF NOT EXISTS forms.stop (value VARCHAR(30)) ENGINE=InnoDB",
        r"SET GLOBAL init_connect = 'set @a=''x\\\\'', @b=1'",
        "SET GLOBAL max_binlog_cache_size = 18446744073709547520",
    )
    changes = {
        "max_binlog_cache_size": "1073741824",
        "init_connect": "SET @c = 'it''s'",
        "innodb_ft_server_stopword_table": "forms/stop",
        "optimizer_switch": "mrr=on",
    }
    before = {name: server.sql(f"SELECT @@GLOBAL.{name}")[0][0] for name in changes}
    assert before["innodb_ft_server_stopword_table"] is None
    assert "\\" in str(before["init_connect"])
    call(host, server, "apply", [{"variable": name, "value": text} for name, text in changes.items()])
    assert value(server, "init_connect") == changes["init_connect"]
    call(host, server, "rollback")
    assert {name: server.sql(f"SELECT @@GLOBAL.{name}")[0][0] for name in changes} == before
    server.sql("SET GLOBAL init_connect = ''")


def test_an_original_that_cannot_be_set_again_is_refused_before_the_first_step(
    server: Server, tmp_path: Path
) -> None:
    host = Host(tmp_path)
    before = value(server, "wait_timeout")
    # An account that may set the one, and may only read the other.
    server.sql("CREATE USER IF NOT EXISTS few@localhost")
    login = ["--mysql-socket", server.socket, "--mysql-user", "few"]
    changes = [{"variable": "wait_timeout", "value": "1234"}]
    message = host.call("apply", *login, owner=OWNER, stdin=changes, code=5)
    assert "could not be restored, so nothing was changed" in message
    assert value(server, "wait_timeout") == before
    assert host.open_entries() == []
    assert (host.state / "journal.jsonl").read_text() == "", "nothing was even journaled"


def test_a_buffer_pool_is_resized_and_back(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    before = value(server, "innodb_buffer_pool_size")
    call(host, server, "apply", [{"variable": "innodb_buffer_pool_size", "value": str(2 * int(before))}])
    assert int(value(server, "innodb_buffer_pool_size")) == 2 * int(before)
    call(host, server, "rollback")
    assert value(server, "innodb_buffer_pool_size") == before


def test_a_server_that_is_gone_keeps_the_entry_open_until_it_is_back(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    argv = server.argv
    call(host, server, "apply", [{"variable": "wait_timeout", "value": "777"}], "--confirm-within", "5s")
    server.stop()
    try:
        assert "could not be undone" in call(host, server, "rollback", code=1)
        assert [entry["kind"] for entry in host.open_entries()] == ["variable"]
        # What a server starts with is its administrator's, even where it is what we had set.
        server.argv = [*argv, "--wait-timeout=777"]
        server.start()
        # No command is run: the watcher tries again.
        until(lambda: host.open_entries() == [])
        assert value(server, "wait_timeout") == "777"
    finally:
        server.stop()
        server.argv = argv
        server.start()


def test_an_undo_belongs_to_one_start_of_a_server(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    argv = server.argv
    # Servers know the second of their start.
    until(lambda: server.status("Uptime") >= 2)
    call(host, server, "apply", [{"variable": "wait_timeout", "value": "777"}])
    try:
        server.argv = [*argv, "--wait-timeout=1010"]
        server.restart()
        [undone] = call(host, server, "rollback")
        assert "the server was restarted since" in undone["what"]
        assert value(server, "wait_timeout") == "1010"
        assert host.open_entries() == []
    finally:
        server.argv = argv
        server.restart()


def test_what_a_server_started_with_from_our_own_file_is_undone(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    argv, before = server.argv, value(server, "wait_timeout")
    (tmp_path / "etc/mysql/conf.d").mkdir(parents=True)
    option_file = {"file": "/etc/mysql/conf.d/zz-headrace.cnf", "content": "[mysqld]\nwait_timeout = 777\n"}
    changes = [{"variable": "wait_timeout", "value": "777"}, option_file]
    until(lambda: server.status("Uptime") >= 2)
    call(host, server, "apply", changes, "--keep", "--root", str(tmp_path))
    assert (tmp_path / "etc/mysql/conf.d/zz-headrace.cnf").exists()
    try:
        server.argv = [*argv, "--wait-timeout=777"]
        server.restart()
        call(host, server, "rollback", None, "--kept", "last", "--root", str(tmp_path))
        assert value(server, "wait_timeout") == before
        assert not (tmp_path / "etc/mysql/conf.d/zz-headrace.cnf").exists()
    finally:
        server.argv = argv
        server.restart()


def test_a_value_that_somebody_else_set_meanwhile_is_left(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    before = value(server, "wait_timeout")
    call(host, server, "apply", [{"variable": "wait_timeout", "value": "777"}])
    server.sql("SET GLOBAL wait_timeout = 888")
    call(host, server, "rollback", code=1)
    assert value(server, "wait_timeout") == "888"
    server.sql("SET GLOBAL wait_timeout = 777")
    call(host, server, "rollback")
    assert value(server, "wait_timeout") == before


def test_after_a_failover_the_undo_does_not_go_to_another_server(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    call(host, server, "apply", [{"variable": "wait_timeout", "value": "777"}])
    journal = host.state / "journal.jsonl"
    start = host.open_entries()[0]["start"]
    journal.write_text(journal.read_text().replace(start["server"], "the-primary-of-yesterday"))
    call(host, server, "rollback", code=1)
    assert value(server, "wait_timeout") == "777"
    [undone] = call(host, server, "rollback", None, "--accept-foreign")
    assert "another server answers" in undone["what"]
    server.sql("SET GLOBAL wait_timeout = 28800")


def rolled(
    server: Server, state: Path, settings: dict[str, Any], *, lasting: str = "", **options: Any
) -> tuple[rollout.Plan, rollout.Rollout]:
    async def work() -> tuple[rollout.Plan, rollout.Rollout]:
        target = LocalTarget()
        await target.connect()
        agent = await Agent.install(target)
        login = ServerLogin(socket=server.socket, user="root")
        plan = await rollout.prepare(agent, settings, login, lasting=lasting, **options)
        return plan, await rollout.carry_out(agent, plan, login, state=str(state))

    return asyncio.run(work())


def test_a_rollout_says_what_stood_there_and_what_stands_now(server: Server, tmp_path: Path) -> None:
    before = value(server, "join_buffer_size")
    plan, done = rolled(server, tmp_path / "state", {"server.join_buffer_size": "512K"})
    assert (plan.steps[0].before, plan.steps[0].value) == (before, "524288")
    assert [(r.before, r.after) for r in done.results] == [(before, "524288")]
    assert done.confirmed
    host = Host(tmp_path)
    host.call("rollback", "--kept", f"apply/{done.id}", owner="apply")
    assert value(server, "join_buffer_size") == before


@pytest.mark.parametrize(
    ("settings", "error", "why"),
    [
        ({"server.innodb_flush_log_at_trx_commit": 2}, Refused, "last second are lost"),
        ({"server.innodb_log_buffer_size_unheard": 2}, Refused, "no record of it"),
        ({"server.back_log": 200}, Refused, "takes a restart"),
        ({"server.innodb_page_size": 8192}, Refused, "data directory is made"),
        ({"server.wait_timeout": "soon"}, PlanError, "a whole number"),
        ({"server.wait_timeout@x": 5}, PlanError, "no instances"),
        ({"volume.filesystem": "xfs"}, Refused, "live host"),
        ({"volume.scheduler": "none"}, PlanError, "needs an instance"),
        ({"volume.write_cache@vda": "write through"}, Refused, "flush"),
        ({"workload.threads": 5}, PlanError, "option of a workload"),
    ],
)
def test_what_may_not_be_done_is_refused_before_anything_is_written(
    server: Server, tmp_path: Path, settings: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        rolled(server, tmp_path / "state", settings)
    assert not (tmp_path / "state").exists()


def test_weaker_is_possible_by_name(server: Server, tmp_path: Path) -> None:
    name = "innodb_flush_log_at_trx_commit"
    _, done = rolled(server, tmp_path / "state", {f"server.{name}": 2}, allow_weaker=[f"server.{name}"])
    assert value(server, name) == "2"
    Host(tmp_path).call("rollback", "--kept", "last", owner="apply")
    assert value(server, name) == "1"
    assert done.results[0].before == "1"


def test_settings_are_knobs_or_findings() -> None:
    findings = {"NET01@eth0": {"host.rps_cpus@eth0": "3"}}
    texts = ["NET01@eth0", "host.vm.swappiness=1", "volume.mount_options@/mnt/x=noatime,lazytime"]
    assert rollout.settings_of(texts, findings.get) == {
        "host.rps_cpus@eth0": "3",
        "host.vm.swappiness": "1",
        "volume.mount_options@/mnt/x": ["noatime", "lazytime"],
    }
    with pytest.raises(PlanError, match="no such finding"):
        rollout.settings_of(["NET99"], findings.get)
    with pytest.raises(PlanError, match="asked for as"):
        rollout.settings_of(["host.thp=never", "host.thp=always"], findings.get)
