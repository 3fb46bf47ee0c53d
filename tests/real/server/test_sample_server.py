"""What the agent tells of live servers: their facts, their samplers, their statements."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.base.model import ServerLogin
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.target.local import LocalTarget
from tests.programs import agent_path
from tests.servers import Server, mariadb, started

SECRET = "hunter2-and-more"


@pytest.fixture(scope="module")
def maria(folder: Path) -> Iterator[Server]:
    options = (
        "--performance-schema=ON",
        "--performance-schema-instrument=wait/%=ON",
        "--innodb-monitor-enable=all",
    )
    with mariadb(folder / "m", *options, f"--report-password={SECRET}") as server:
        yield fill(server)


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Iterator[Server]:
    with started("mysql", folder / "o", "--performance-schema=ON", f"--report-password={SECRET}") as server:
        yield fill(server)


def fill(server: Server) -> Server:
    server.sql(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.keyed (id INT PRIMARY KEY, v VARCHAR(100)) ENGINE=InnoDB",
        "CREATE TABLE shop.keyless (id INT, v VARCHAR(100)) ENGINE=InnoDB",
        "CREATE TABLE shop.old (id INT PRIMARY KEY) ENGINE=MyISAM",
        "CREATE VIEW shop.looks_keyed AS SELECT * FROM shop.keyed",
        f"SET GLOBAL init_connect = 'SET @token_of_init = \"{SECRET}\"'",
        "CREATE USER weak@localhost IDENTIFIED BY ''",
    )
    return server


def agent(server: Server, command: str, *options: str, user: str = "root") -> Any:
    login = ["--mysql-socket", server.socket, "--mysql-user", user]
    done = subprocess.run(
        [agent_path(), command, *options, *login], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_facts_of_a_server(server: Server) -> None:
    facts = agent(server, "facts")
    settings = facts["server_settings"]
    assert settings["vendor"] == ("mariadb" if "MariaDB" in settings["version_text"] else "mysql")
    assert settings["version_text"].startswith(settings["version"])
    assert settings["version"].count(".") == 2
    assert settings["variables"]["socket"] == server.socket
    assert settings["variables"]["innodb_buffer_pool_size"] == str(32 << 20)
    assert settings["variables"]["report_password"] == "<removed>"
    assert settings["variables"]["init_connect"] == "<removed>"
    assert SECRET not in json.dumps(facts)
    assert "InnoDB" in settings["plugins"]
    engines = {row["engine"]: row for row in settings["engines"]}
    assert (engines["InnoDB"]["tables"], engines["MyISAM"]["tables"]) == (2, 1)
    assert engines["InnoDB"]["data_bytes"] >= 2 * 16384
    assert settings["tables_without_primary_key"] == 1
    assert settings["replication"] == []
    assert settings["performance_schema"]["enabled"] is True
    assert settings["performance_schema"]["wait_instruments_enabled"] > 10
    assert settings["performance_schema"]["statement_digests"] is True
    assert "global_instrumentation" in settings["performance_schema"]["consumers"]
    assert settings["pid"] == server.pid
    assert settings["privileges_missing"] == []
    assert facts["errors"] == agent_errors()


def agent_errors() -> list[Any]:
    """What this host refuses whatever the server says."""
    done = subprocess.run([agent_path(), "facts"], capture_output=True, text=True, check=True, timeout=60)
    facts = json.loads(done.stdout)
    assert facts["server_settings"] is None
    return list(facts["errors"])


def test_sizes_and_indexes_of_named_tables(server: Server) -> None:
    odd = "a'b`c\\ ü"
    quoted = odd.replace("`", "``")
    server.sql(
        f"CREATE TABLE shop.`{quoted}` (id INT, a VARCHAR(40), b INT, UNIQUE KEY first (b, id), KEY start (a(7)))",
        f"INSERT INTO shop.`{quoted}` VALUES (1, 'x', 1), (2, 'y', 1), (3, 'y', 2), (4, 'z', 2)",
        f"ANALYZE TABLE shop.`{quoted}`",
    )
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    wanted = [f"shop.{odd}", "shop.looks_keyed", "shop.none", "none.keyed"]
    argv = [agent_path(), "tables", *login, "--", *wanted]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    table, view = (json.loads(line) for line in done.stdout.splitlines())
    assert (table["database"], table["table"], table["engine"]) == ("shop", odd, "InnoDB")
    assert table["rows"] == 4
    assert table["data_bytes"] >= 16384
    assert table["index_bytes"] >= 2 * 16384
    first, start = table["indexes"]
    assert (first["name"], first["is_unique"]) == ("first", True)
    assert [column["name"] for column in first["columns"]] == ["b", "id"]
    # InnoDB of MariaDB tells twice the distinct values, up to the number of rows.
    assert first["columns"][0]["cardinality"] in (2, 4)
    assert first["columns"][1]["cardinality"] == 4
    assert (start["is_unique"], start["columns"][0]["prefix"]) == (False, 7)
    assert (view["table"], view["engine"], view["indexes"]) == ("looks_keyed", None, [])
    server.sql(f"DROP TABLE shop.`{quoted}`")


def test_an_account_without_rights_is_told_what_it_lacks(server: Server) -> None:
    facts = agent(server, "facts", user="weak")
    settings = facts["server_settings"]
    assert {"PROCESS", "SELECT ON *.*", "SELECT ON performance_schema.*"} < set(
        settings["privileges_missing"]
    )
    assert settings["engines"] is None, "some of the tables would be a wrong number"
    assert settings["tables_without_primary_key"] is None
    assert settings["replication"] is None
    assert any("replication: " in error["error"] for error in facts["errors"])
    assert settings["variables"]["version"] == settings["version_text"]


def test_a_server_that_is_not_there_costs_only_its_own_facts(tmp_path: Path) -> None:
    argv = [agent_path(), "facts", "--mysql-socket", str(tmp_path / "none.sock"), "--mysql-user", "root"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    facts = json.loads(done.stdout)
    assert facts["server_settings"] is None
    assert facts["cpu"]["online_count"]
    assert any(
        "none.sock" in error["path"] and "cannot connect" in error["error"] for error in facts["errors"]
    )


def test_a_saved_host_has_no_server_to_ask(tmp_path: Path) -> None:
    argv = [agent_path(), "facts", "--root", str(tmp_path), "--mysql-socket", "/x", "--mysql-user", "root"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "a saved host" in done.stderr


async def test_the_hash_stays_while_a_server_works_and_goes_with_its_settings(server: Server) -> None:
    login = ServerLogin(socket=server.socket, user="root")
    reader = await Agent.install(LocalTarget())
    # Other tests mount and set up devices meanwhile, which are facts, too.
    for _ in range(20):
        before = await reader.facts(login)
        server.sql("INSERT INTO shop.keyed SELECT 1 + COALESCE(MAX(id), 0), 'x' FROM shop.keyed")
        same = await reader.facts(login)
        if same.hash == before.hash:
            break
    assert same.hash == before.hash
    server.sql("SET GLOBAL innodb_io_capacity = 321")
    after = await reader.facts(login)
    assert after.hash != before.hash
    facts = HostFacts(after)
    assert facts.variable("innodb_io_capacity") == "321"
    assert facts.variable("no_such") is None
    assert facts.server_vendor in ("mariadb", "mysql")
    assert (facts.server_version or "")[0].isdigit()
    assert (facts.data_bytes or 0) > 0
    assert HostFacts(await reader.facts()).data_bytes is None


def samples(server: Server, samplers: str, *options: str, user: str = "root") -> dict[str, list[Any]]:
    """Sampler -> its records, of two ticks."""
    argv = [
        agent_path(),
        "sample",
        "--samplers",
        samplers,
        *(options or ("--interval", "1s", "--duration", "1s")),
    ]
    argv += ["--mysql-socket", server.socket, "--mysql-user", user]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, list[Any]] = {}
    for line in done.stdout.splitlines():
        record = json.loads(line)
        found.setdefault(record["sampler"], []).append(record)
    return found


def values(records: list[Any], at: int = -1) -> dict[str, dict[str, float]]:
    assert records[at]["ok"], records[at]
    found: dict[str, dict[str, float]] = records[at]["values"]
    return found


@pytest.fixture
def waiter(server: Server) -> Iterator[str]:
    """A statement that waits for a row that another session holds; its text."""
    import pymysql

    server.sql("REPLACE INTO shop.keyed VALUES (4711, 'x')")
    sessions = [pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True) for _ in range(2)]
    text = f"UPDATE shop.keyed SET v = '{SECRET}' WHERE id = 4711"
    with sessions[0].cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM shop.keyed WHERE id = 4711 FOR UPDATE")
    thread = threading.Thread(target=lambda: sessions[1].cursor().execute(text))
    thread.start()
    time.sleep(1.2)
    yield text
    sessions[0].rollback()
    thread.join(20)
    sessions[1].rollback()
    for session in sessions:
        session.close()


def test_a_wait_for_a_row_shows_in_numbers_and_its_statement_in_none(server: Server, waiter: str) -> None:
    found = samples(server, "innodb_status,processlist")
    assert SECRET not in json.dumps(found)
    assert waiter not in json.dumps(found)
    status = values(found["innodb_status"])
    assert status["lock_wait_transactions"][""] == 1
    assert status["active_transactions"][""] == 2
    assert status["oldest_transaction_s"][""] >= 1
    assert status["lsn"][""] >= status["checkpoint_lsn"][""] > 0
    assert status["checkpoint_age_bytes"][""] == status["lsn"][""] - status["checkpoint_lsn"][""]
    assert "history_list_length" in status
    assert "pending_reads" in status
    assert "pending_fsyncs" in status
    threads = values(found["processlist"])
    assert threads["threads"]["Sleep"] >= 1
    assert threads["threads"]["Query"] == 1, "the agent does not count itself"
    assert threads["longest_s"]["Query"] >= 1
    assert sum(threads["states"].values()) == 1


def test_counters_of_waits_statements_and_latches_grow(server: Server) -> None:
    records: dict[str, list[Any]] = {name: [] for name in ("mysql_waits", "statements", "innodb_mutex")}
    for _ in range(2):
        for name, found in samples(server, ",".join(records), "--duration", "0s").items():
            records[name] += found
        server.sql(*["SELECT SUM(id) FROM shop.keyless WHERE v LIKE 'a%'"] * 20)
    for found in samples(server, "statements", "--duration", "0s").values():
        records["statements"] += found
    before, after = (values(records["mysql_waits"], at) for at in (0, 1))
    assert not any(event == "idle" or count == 0 for event, count in after["count"].items())
    file_io = [event for event in before["count"] if event.startswith("wait/io/file/")]
    assert file_io
    assert all(after["count"][event] >= before["count"][event] for event in file_io)
    assert all(after["time_ns"][event] >= before["time_ns"][event] for event in file_io)
    digests = [values(records["statements"], at) for at in (1, 2)]
    grown = [d for d, n in digests[1]["count"].items() if n - digests[0]["count"].get(d, 0) == 20]
    assert len(grown) == 1
    assert len(grown[0]) == 16
    assert digests[1]["no_index_used"][grown[0]] >= 20
    assert {grown[0]} <= digests[1]["full_joins"].keys() & digests[1]["range_joins"].keys()
    assert digests[1]["time_ns"][grown[0]] > 0
    assert set(values(records["innodb_mutex"])) <= {"waits", "os_waits"}


def test_samplers_that_may_not_say_so_once(server: Server) -> None:
    names = "mysql_waits,statements,innodb_status,innodb_mutex,processlist"
    found = samples(server, names, "--interval", "200ms", "--duration", "1s", user="weak")
    for name in ("mysql_waits", "statements", "innodb_status"):
        assert not any(record["ok"] for record in found[name])
        assert len(found[name]) == 1, name
        assert "denied" in found[name][0]["error"]
        assert "tried again every 60 s" in found[name][0]["error"]


def test_performance_schema_that_is_off_is_one_clear_line(folder: Path) -> None:
    with mariadb(folder / "off") as server:
        found = samples(server, "mysql_waits,statements,processlist")
        for name in ("mysql_waits", "statements"):
            assert "performance_schema=ON and a restart" in found[name][0]["error"]
        assert found["processlist"][0]["ok"]
        assert agent(server, "facts")["server_settings"]["performance_schema"] == {
            "enabled": False,
            "wait_instruments_enabled": None,
            "statement_digests": None,
            "consumers": None,
        }


@pytest.fixture
def long_query(server: Server) -> Iterator[str]:
    """A join that runs until it is killed; its text."""
    import pymysql

    rows = ", ".join(f"({n}, REPEAT('{n}', 20))" for n in range(3000))
    server.sql("TRUNCATE shop.keyless", f"INSERT INTO shop.keyless VALUES {rows}")
    session = pymysql.connect(unix_socket=server.socket, user="root", database="shop", ssl_disabled=True)
    condition = f"a.v LIKE CONCAT('%', b.v, c.v, '{SECRET}')"
    text = f"SELECT COUNT(*) FROM keyless a, keyless b, keyless c WHERE {condition}"

    def work() -> None:
        with contextlib.suppress(pymysql.Error), session.cursor() as cursor:
            cursor.execute(text)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(1.2)
    yield text
    server.sql(f"KILL {session.thread_id()}")
    thread.join(20)
    assert not thread.is_alive()


def test_running_statements_and_their_plans(server: Server, long_query: str) -> None:
    rows = agent(server, "statements")
    assert SECRET not in json.dumps(rows)
    running = [row for row in rows if "id" in row and row["db"] == "shop"]
    assert len(running) == 1
    assert set(running[0]) == {
        "id", "user", "host", "db", "command", "time_s", "state", "text", "class", "tables", "examined_rows"
    }  # fmt: skip
    assert running[0]["user"] == "root"
    assert running[0]["command"] == "Query"
    assert running[0]["time_s"] >= 1
    assert running[0]["text"] is None
    digests = [row for row in rows if "digest" in row]
    assert all(len(row["digest"]) >= 32 and row["count"] >= 1 for row in digests)
    assert any("`shop`" in (row["digest_text"] or "") for row in digests)
    with_text = agent(server, "statements", "--with-text", "--limit", "1")
    assert [row["text"] for row in with_text if row.get("id") == running[0]["id"]] == [long_query]
    assert len(with_text) == 2

    plan = agent(server, "explain", "--thread", str(running[0]["id"]))
    assert plan["format"] == "json"
    assert json.dumps(plan["plan"]).count('"access_type"') == 3


@contextlib.contextmanager
def blocked(server: Server, first: str, then: str) -> Iterator[int]:
    """Two sessions: one holds a lock in an open transaction, the other waits for it; the id of the first."""
    import pymysql

    login = {"unix_socket": server.socket, "user": "root", "database": "shop", "ssl_disabled": True}
    with (
        contextlib.closing(pymysql.connect(**login)) as holder,
        contextlib.closing(pymysql.connect(**login, autocommit=True)) as waiter,
    ):
        with holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(first)

        def work() -> None:
            with contextlib.suppress(pymysql.Error), waiter.cursor() as cursor:
                cursor.execute(then)

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(1.2)
        try:
            yield int(holder.thread_id())
        finally:
            holder.rollback()
            thread.join(20)


@contextlib.contextmanager
def far_east(server: Server) -> Iterator[None]:
    """A server whose sessions have another time zone than its host."""
    server.sql("SET GLOBAL time_zone = '+09:00'")
    try:
        yield
    finally:
        server.sql("SET GLOBAL time_zone = DEFAULT")


@pytest.mark.parametrize(("isolation", "keeps"), [("REPEATABLE READ", True), ("READ COMMITTED", False)])
def test_a_transaction_that_only_reads_is_seen_with_its_age(
    server: Server, isolation: str, keeps: bool
) -> None:
    """Between its statements only one of the two keeps row versions from purge."""
    import pymysql

    login = {"unix_socket": server.socket, "user": "root", "database": "shop", "ssl_disabled": True}
    with far_east(server), contextlib.closing(pymysql.connect(**login)) as reader, reader.cursor() as cursor:
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT COUNT(*) FROM keyed")
        time.sleep(2.2)
        values = samples(server, "innodb_status")["innodb_status"][-1]["values"]
    assert values["active_transactions"][""] >= 1
    assert 2 <= values["oldest_transaction_s"][""] < 3600
    assert (values["oldest_read_view_s"][""] >= 2) is keeps


@pytest.mark.parametrize(
    ("lock", "first", "then"),
    [
        ("row", "INSERT INTO keyed VALUES (-1, '{0}')", "DELETE FROM keyed WHERE id = -1 AND v <> '{0}'"),
        ("metadata", "SELECT v FROM keyed WHERE id = 7 AND v <> '{0}'", "ALTER TABLE keyed COMMENT = '{0}'"),
    ],
    ids=["row", "metadata"],
)
def test_who_waits_for_whose_lock(server: Server, lock: str, first: str, then: str) -> None:
    with far_east(server), blocked(server, first.format(SECRET), then.format(SECRET)) as holder:
        rows = agent(server, "statements")
    waits = [row for row in rows if row.get("lock")]
    assert [(wait["lock"], wait["table"], wait["holder"]) for wait in waits] == [(lock, "shop.keyed", holder)]
    assert waits[0]["holder_user"] == "root"
    assert 1 <= waits[0]["holder_open_s"] < 3600
    assert waits[0]["waiter_class"].split()[0] == then.split()[0].lower()
    assert SECRET not in json.dumps(rows)


def test_statements_are_followed_over_one_connection(server: Server, long_query: str) -> None:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    done = subprocess.run(
        [agent_path(), "statements", "--every", "200ms", "--duration", "1s", *login],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert long_query
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 2
    assert all("keyless" in json.dumps(line) for line in lines)
    assert not any("digest" in row for line in lines[:-1] for row in line["statements"])
    assert SECRET not in done.stdout


def explain_fails(server: Server, *options: str) -> str:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    done = subprocess.run(
        [agent_path(), "explain", *options, *login], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert done.stdout == ""
    return done.stderr


def test_what_has_no_plan_says_so(server: Server) -> None:
    import pymysql

    session = pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True)
    assert explain_fails(server, "--thread", str(session.thread_id()))
    session.close()
    assert "nknown thread id" in explain_fails(server, "--thread", "999999")
    assert "no whole statement of digest" in explain_fails(server, "--digest", "0" * 32)
    assert "hexadecimal" in explain_fails(server, "--digest", "x' OR '1'='1")


def test_the_plan_of_a_digest_is_that_of_the_statement_the_server_remembers(oracle: Server) -> None:
    oracle.sql("USE shop", "SELECT v FROM keyed WHERE id = 4711")
    rows = agent(oracle, "statements", "--limit", "1000")
    digest = next(
        row["digest"]
        for row in rows
        if (row.get("digest_text") or "").startswith("SELECT `v` FROM `keyed` WHERE `id`")
    )
    for name in (digest, digest[:16]):
        plan = agent(oracle, "explain", "--digest", name)["plan"]
        assert plan["query_block"]["select_id"] == 1
    before = oracle.status("Com_create_table")
    digest = next(
        row["digest"] for row in rows if (row.get("digest_text") or "").startswith("CREATE TABLE `shop`")
    )
    assert "refused" in explain_fails(oracle, "--digest", digest)
    assert oracle.status("Com_create_table") == before


def test_a_server_that_cannot_open_its_tables_for_us_still_tells_innodbs_size(server: Server) -> None:
    """Here because the account may not read them; under load because that takes too long."""
    server.sql(
        "CREATE OR REPLACE USER keeper@localhost"
        if "maria" in server.argv[0]
        else "CREATE USER keeper@localhost",
        "GRANT PROCESS ON *.* TO keeper@localhost",
    )
    try:
        by_files = agent(server, "facts", user="keeper")["server_settings"]
        server.sql("GRANT SELECT ON mysql.innodb_table_stats TO keeper@localhost")
        by_statistics = agent(server, "facts", user="keeper")["server_settings"]
    finally:
        server.sql("DROP USER keeper@localhost")
    for settings in (by_files, by_statistics):
        assert settings["engines"] is None
        assert settings["innodb_size"]["tables"] >= 2
        assert settings["innodb_size"]["data_bytes"] >= 2 * 16384
    assert agent(server, "facts")["server_settings"]["innodb_size"] is None


def test_what_the_host_tells_of_a_server(server: Server, long_query: str) -> None:
    names = "threads,server_process,listen,cgroup,file_systems"
    found = samples(server, names, "--interval", "250ms", "--duration", "4s")
    assert long_query
    label = f"{server.pid}/{Path(f'/proc/{server.pid}/comm').read_text().strip()}"
    opened = values(found["server_process"])
    fds = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    assert abs(opened["open_files"][label] - fds) <= 3
    assert opened["open_files_limit"][label] >= opened["open_files"][label]

    listening = values(found["listen"])
    port = [name for name in listening["queue_limit"] if name.endswith(f":{server.port}")]
    assert len(port) == 1
    assert listening["queue"][port[0]] == 0
    assert listening["queue_limit"][port[0]] >= 50

    tasks = {task.name for task in Path(f"/proc/{server.pid}/task").iterdir()}
    of_threads = [record["values"] for record in found["threads"]]
    # A thread that was idle is not listed; a tick in which all were has no such metric.
    used = [tick.get("utime_ticks", {}) for tick in of_threads]
    seen = {name.split("/")[0] for tick in used for name in tick}
    assert tasks & seen
    ticks: dict[str, list[int]] = {}
    for tick in used:
        for name, number in tick.items():
            ticks.setdefault(name, []).append(number)
    assert max(numbers[-1] - numbers[0] for numbers in ticks.values()) >= 3, "one thread joins"
    assert of_threads[-1]["states"]["R"] >= 1
    assert sum(of_threads[-1]["states"].values()) >= len(tasks) - 5
    assert sum(of_threads[-1]["waiting"].values()) > 3
    assert values(found["file_systems"])["size_bytes"]["/"] > 0
    assert found["cgroup"][0]["ok"]


def test_a_replica_that_applies_late_shows_what_it_read_and_has_not_applied(folder: Path) -> None:
    with (
        mariadb(folder / "source", "--log-bin=b", "--server-id=1") as source,
        mariadb(folder / "replica", "--server-id=2") as replica,
    ):
        source.sql(
            "CREATE USER r@'127.0.0.1' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'"
        )
        file, position = source.sql("SHOW MASTER STATUS")[0][:2]
        replica.sql(
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={source.port}, MASTER_USER='r', "
            f"MASTER_PASSWORD='x', MASTER_LOG_FILE='{file}', MASTER_LOG_POS={position}",
            "START SLAVE IO_THREAD",
        )
        source.sql(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (v INT)", *["INSERT INTO shop.t VALUES (1)"] * 50
        )
        time.sleep(1.5)
        channel = values(samples(replica, "replication", "--duration", "0s")["replication"])
        assert channel["io_running"][""] == 1
        assert channel["sql_running"][""] == 0
        assert "lag_s" not in channel, "not known, which is not zero"
        assert channel["read_file"][""] == channel["exec_file"][""] == 1
        assert channel["exec_position_bytes"][""] == position
        assert channel["read_position_bytes"][""] == source.sql("SHOW MASTER STATUS")[0][1]
        assert channel["relay_space_bytes"][""] > channel["read_position_bytes"][""] - int(str(position))
        assert any("Waiting for master" in state for state in channel["io_state"])
        row = agent(replica, "facts")["server_settings"]["replication"][0]
        assert (row["source_log_file"], row["exec_position"]) == (file, position)
        assert row["sql_running"] == "No"
        replica.sql("START SLAVE SQL_THREAD")
        time.sleep(1)
        channel = values(samples(replica, "replication", "--duration", "0s")["replication"])
        assert channel["exec_position_bytes"][""] == channel["read_position_bytes"][""]
        assert channel["lag_s"][""] == 0
        assert any("has read all relay log" in state for state in channel["sql_state"])
