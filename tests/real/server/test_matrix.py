"""The tour of headrace on every server that it is said to work with: one is started, and each command meets it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.base.errors import PlanError
from headrace.base.model import Vendor
from headrace.knobs import catalogue as knobs
from headrace.knobs import servers
from headrace.knobs.catalogue import Cost
from tests.bench import Bench
from tests.commands import headrace
from tests.driver import driven
from tests.programs import agent_path
from tests.proxies import proxy
from tests.replays import captured, play, record
from tests.servers import KINDS, Server, find_server
from tests.servers import server as running

PASSWORD = "pass wörd#'1"
CLAUSE = {
    "mariadb": "IDENTIFIED VIA {} USING PASSWORD('{}')",
    "mysql": "IDENTIFIED WITH {} BY '{}'",
}
#: How each server may ask for a password, by its own list. The client refuses to show one.
PLUGINS = {
    "mariadb-10.11": {"mysql_native_password", "ed25519"},
    "mariadb-11.8": {"mysql_native_password", "ed25519", "parsec"},
    "mysql-8.0": {"mysql_native_password", "sha256_password", "caching_sha2_password"},
    "mysql-9.7": {"sha256_password", "caching_sha2_password"},
}
#: No password, one in clear, or of before 4.1.
OTHER_PLUGINS = {"mysql_old_password", "unix_socket", "pam"}
PLAN = """
name = "matrix"
[target]
scratch = "{scratch}"
[server]
vendor = "@VENDOR"
binary = "@BINARY"
[design]
kind = "cumulative"
baseline = "one"
blocks = 1
rungs = { one = [] }
allow_weaker_durability = ["server.innodb_flush_log_at_trx_commit"]
[workload]
kind = "oltp"
script = "point_select"
table_size = 500
seconds = 1
warmup_s = 0
threads = 1
[volume]
device = "directory"
[base]
"server.innodb_flush_log_at_trx_commit" = 2
"""


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    (folder / "password").write_text(PASSWORD + "\n")
    return folder


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def program(kind: str) -> Path:
    found = find_server(kind)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def server(kind: str, program: Path, folder: Path) -> Iterator[Server]:
    home = folder / kind
    # The driver's sessions write rows of their own; a server that locks the next one, too, would mix them up.
    options = ["--performance-schema=ON", "--loose-innodb-snapshot-isolation=OFF"]
    options += ["--slow-query-log=ON", "--long-query-time=0", f"--slow-query-log-file={home}/slow.log"]
    with running(kind, program, home, *options) as one:
        for plugin in {"ed25519", "parsec"} & PLUGINS[kind]:
            one.sql(f"INSTALL SONAME 'auth_{plugin}'")
        secret = PASSWORD.replace("'", "\\'")
        for plugin in PLUGINS[kind]:
            clause = CLAUSE[vendor_of(kind)].format(plugin, secret)
            one.sql(f"CREATE USER {plugin} {clause}", f"GRANT ALL ON *.* TO {plugin}")
        one.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, name TEXT)")
        yield one


def vendor_of(kind: str) -> str:
    return kind.split("-", maxsplit=1)[0]


def login(server: Server, folder: Path, user: str = "root", port: int | None = None) -> list[str]:
    if user == "root":
        return ["--mysql-socket", server.socket, "--mysql-user", user]
    place = ["--mysql-host", "127.0.0.1", "--mysql-port", str(port or server.port)]
    return [*place, "--mysql-user", user, "--mysql-password-file", str(folder / "password")]


def agent(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [str(agent_path()), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def test_facts_and_every_sampler(kind: str, server: Server, folder: Path) -> None:
    facts = json.loads(agent("facts", *login(server, folder)).stdout)
    settings = facts["server_settings"]
    assert settings["version"].startswith(kind.partition("-")[2])
    assert settings["privileges_missing"] == []
    lines = agent("sample", "--interval", "200ms", "--duration", "1s", *login(server, folder)).stdout
    records = [json.loads(line) for line in lines.splitlines()]
    asked = {each["sampler"] for each in records if each.get("sampler", "").startswith(("mysql", "innodb"))}
    assert len(asked) >= 3
    # Another table, column or counter than the sampler asks for would be one of these.
    wrong = [each for each in records if "server error" in str(each.get("error"))]
    assert wrong == []


def test_facts_have_whole_values_and_where_they_come_from(kind: str, server: Server, folder: Path) -> None:
    """MySQL's SHOW cuts a value at 1,024 characters."""
    is_mysql = vendor_of(kind) == "mysql"
    name = "mandatory_roles" if is_mysql else "replicate_do_table"
    words = [f"`role{n:04}`@`%`" if is_mysql else f"shop.table{n:04}" for n in range(200)]
    verb = "PERSIST" if is_mysql else "GLOBAL"
    server.sql(f"SET GLOBAL {name} = '{','.join(words)}'", f"SET {verb} max_connections = 77")
    try:
        shown = str(server.sql(f"SHOW GLOBAL VARIABLES LIKE '{name}'")[0][1])
        assert (len(shown) == 1024) == is_mysql
        settings = json.loads(agent("facts", *login(server, folder)).stdout)["server_settings"]
    finally:
        server.sql(f"SET GLOBAL {name} = ''", f"SET {verb} max_connections = DEFAULT")
        if is_mysql:
            server.sql("RESET PERSIST")
    assert len(settings["variables"][name].split(",")) == len(words)
    assert {name, "max_connections"} <= set(settings["set_since_start"])
    assert settings["persisted"] == ({"max_connections": "77"} if is_mysql else None)
    assert settings["replicas"] == []
    assert settings["replica_addresses"] == []


def test_statistics_older_than_their_rows_are_named_after_a_restart_too(server: Server, folder: Path) -> None:
    """The server counts changes until it closes the table. Then only the file shows what statistics do not say."""
    for table in ("grown", "kept"):
        server.sql(
            f"CREATE TABLE shop.{table} (id INT AUTO_INCREMENT PRIMARY KEY, k INT, KEY (k)) "
            "STATS_PERSISTENT=1 STATS_AUTO_RECALC=0",
            f"INSERT INTO shop.{table} (k) SELECT 1 FROM information_schema.COLUMNS LIMIT 100",
            f"ANALYZE TABLE shop.{table}",
        )

    def stale() -> dict[str, dict[str, Any]]:
        settings = json.loads(agent("facts", *login(server, folder)).stdout)["server_settings"]
        return {each["table"]: each for each in settings["stale_statistics"]}

    try:
        server.sql(*["INSERT INTO shop.grown (k) SELECT k + id FROM shop.grown"] * 12)
        before = stale()
        assert list(before) == ["shop.grown"]
        assert before["shop.grown"]["changed"] > 400_000
        server.restart()
        server.sql("SELECT COUNT(*) FROM shop.grown", "SELECT COUNT(*) FROM shop.kept")
        after = stale()
        assert list(after) == ["shop.grown"]
        assert (after["shop.grown"]["rows"], after["shop.grown"]["changed"]) == (100, 0)
        assert after["shop.grown"]["bytes"]["used"] > 100 * after["shop.grown"]["bytes"]["described"]
        server.sql("ANALYZE TABLE shop.grown")
        assert stale() == {}
    finally:
        server.sql("DROP TABLE shop.grown, shop.kept")


def test_hunt(kind: str, server: Server, folder: Path) -> None:
    done = headrace("hunt", "--duration", "2s", "--json", *login(server, folder))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["silent"]) + len(found["findings"]) > 120
    # Sampled in each of two seconds, some of it may be missed; but nothing of the server's is unknown.
    missing = [each for each in found["blind"] if "variable" in each["missing"] or "error" in each["missing"]]
    assert missing == []


def test_the_catalogue_of_knobs(kind: str, server: Server, program: Path, folder: Path) -> None:
    vendor = Vendor(vendor_of(kind))
    version = str(server.sql("SELECT VERSION()")[0][0]).split("-")[0]
    there = {str(row[0]) for row in server.sql("SHOW GLOBAL VARIABLES")}
    options = options_of(server, program)
    known = there | options  # a few options are not variables
    listed = {n: k for n, k in knobs.CATALOGUE.items() if k.applies_to}
    names = {n: k.variable_on(vendor, version) for n, k in listed.items()}
    assert [n for n, k in listed.items() if k.applies(vendor, version) != (names[n] in known)] == []
    done = headrace("knobs", "server", "--json", *login(server, folder))
    shown = {each["name"] for each in json.loads(done.stdout)}
    assert shown == {n for n in listed if names[n] in there}


def test_the_lists_of_knobs_are_what_this_server_says(kind: str, server: Server, program: Path) -> None:
    """If the machine's server is a newer release than the list: ``scripts/knobs_of_servers.py`` makes it again."""
    vendor = Vendor(vendor_of(kind))
    own = servers.of(vendor, kind.partition("-")[2])
    assert own
    there = {str(row[0]) for row in server.sql("SHOW GLOBAL VARIABLES")}
    options = options_of(server, program)
    ends = ends_of(server, vendor)
    wrong: list[tuple[object, ...]] = []
    for name, listed in own.variables.items():
        if listed.is_variable and name not in there:
            continue  # of a plugin that is not loaded here
        if listed.option and listed.option.replace("-", "_") not in options:
            wrong.append((name, listed.option, "is no option"))
        if not listed.is_variable:
            continue
        low, high, choices = ends.get(name, (None, None, None))
        if listed.kind == "integer" and low is not None and high is not None:
            now = server.sql(f"SELECT @@GLOBAL.{name}")[0][0]
            outside = isinstance(now, int) and not low <= now <= high
            wrong += (
                [] if outside or (listed.low, listed.high) == (low, high) else [(name, listed, low, high)]
            )
        if choices and listed.kind in ("choice", "set", "switch"):
            wrong += [] if list(listed.names) == choices else [(name, listed.names, choices)]
    assert wrong == []
    assert there - set(own.variables) == set()


def test_each_knob_is_set_as_the_catalogue_says(kind: str, server: Server) -> None:
    vendor, version = Vendor(vendor_of(kind)), kind.partition("-")[2]
    wrong: list[tuple[object, ...]] = []
    for knob in knobs.CATALOGUE.values():
        listed = knob.listed_on(vendor, version)
        if listed is None or not listed.is_variable:
            continue
        name, said = knob.variable_on(vendor, version), ""
        now = str(server.sql(f"SELECT @@GLOBAL.{name}")[0][0])
        try:
            server.sql(f"SET GLOBAL {name} = @@GLOBAL.{name}")
        except pymysql.Error as error:
            said = str(error)
        is_dynamic = knob.cost_on(vendor, version, now) is Cost.DYNAMIC
        # The server compares with what it was started with; headrace with what may change.
        wrong += [] if is_dynamic == (not said) or listed.refuses else [(name, is_dynamic, said)]
        if not now or now == "None":
            continue
        try:
            knob.check_on(vendor, version, now)
        except PlanError as error:
            wrong.append((name, now, error.message))
    assert wrong == []


def test_a_server_makes_a_number_beyond_its_range_what_the_catalogue_says(kind: str, server: Server) -> None:
    """The small ones only: no test asks a server for the largest buffer that it may have."""
    vendor, version = Vendor(vendor_of(kind)), kind.partition("-")[2]
    wrong: list[tuple[object, ...]] = []
    tried = 0
    for knob in knobs.CATALOGUE.values():
        own, listed = knob.on(vendor, version), knob.listed_on(vendor, version)
        if own.high is None or own.low is None or own.high > 100_000 or knob.never or not listed:
            continue
        name = knob.variable_on(vendor, version)
        now = server.sql(f"SELECT @@GLOBAL.{name}")[0][0] if listed.is_variable else None
        if not listed.is_dynamic or listed.refuses or now is None:
            continue
        try:
            server.sql("SET sql_mode = ''", f"SET GLOBAL {name} = {int(own.high) + 1}")
        except pymysql.Error:
            continue  # refused is as good as clamped
        tried += 1
        made = float(str(server.sql(f"SELECT @@GLOBAL.{name}")[0][0]))
        server.sql(f"SET GLOBAL {name} = {now}")
        wrong += [] if made <= own.high else [(name, made, own.high)]
    assert wrong == []
    assert tried > 20


def ends_of(server: Server, vendor: Vendor) -> dict[str, tuple[int | None, int | None, list[str] | None]]:
    """Variable -> the ends and names that the server's own table has."""
    if vendor is Vendor.MARIADB:
        sql = (
            "SELECT LOWER(VARIABLE_NAME), NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE, ENUM_VALUE_LIST "
            "FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_TYPE != 'DOUBLE'"
        )
        rows = [
            (n, low, high, str(names).split(",") if names else None)
            for n, low, high, names in server.sql(sql)
        ]
    else:
        sql = (
            "SELECT VARIABLE_NAME, MIN_VALUE, MAX_VALUE FROM performance_schema.variables_info "
            "WHERE NOT (MIN_VALUE = '0' AND MAX_VALUE = '0') AND MIN_VALUE NOT LIKE '%.%'"
        )
        rows = [(n, low, high, None) for n, low, high in server.sql(sql)]
    return {
        str(n): (int(str(low)) if low else None, int(str(high)) if high else None, names)
        for n, low, high, names in rows
    }


def options_of(server: Server, program: Path) -> set[str]:
    """Names of options, as the program lists them."""
    argv = [str(program), *server.argv[1:], "--verbose", "--help"]
    said = subprocess.run(argv, env=server.env, capture_output=True, text=True, check=False).stdout
    lines = (line.split() for line in said.splitlines() if line[:1].islower())
    return {words[0].replace("-", "_") for words in lines if words}


def test_no_plugin_is_forgotten(kind: str, server: Server) -> None:
    table = "all_plugins" if vendor_of(kind) == "mariadb" else "plugins"
    rows = server.sql(
        f"SELECT plugin_name FROM information_schema.{table} WHERE plugin_type = 'AUTHENTICATION'"
    )
    assert {row[0] for row in rows} - OTHER_PLUGINS == PLUGINS[kind]


@pytest.mark.parametrize("tls", ["disabled", "required"])
@pytest.mark.parametrize("over", ["tcp", "socket", "proxy"])
def test_logins(kind: str, server: Server, folder: Path, tmp_path: Path, tls: str, over: str) -> None:
    """Each twice: what a server keeps of the first login shortens the second."""
    if tls == "required" and kind == "mariadb-10.11":
        pytest.skip("it makes no certificate of its own")
    server.sql("FLUSH PRIVILEGES")
    with contextlib.ExitStack() as stack:
        place = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port)]
        if over == "socket":
            place = ["--mysql-socket", server.socket]
        if over == "proxy":
            seen = stack.enter_context(proxy(tmp_path, "--server", f"127.0.0.1:{server.port}"))
            place[3] = str(seen.port)
        for plugin in sorted(PLUGINS[kind]) * 2:
            options = [*place, "--mysql-user", plugin, "--mysql-password-file", str(folder / "password")]
            sample = ["sample", "--duration", "0s", "--samplers", "mysql_status", "--mysql-tls", tls]
            said = json.loads(agent(*sample, *options).stdout)
            assert said["ok"], (plugin, said)
    if over == "proxy" and tls == "disabled":
        logins = sorted(seen.of("Connect"), key=lambda event: event["start_ns"])
        outcomes = [(event["user"], event["outcome"]) for event in logins]
        assert outcomes == [(plugin, "ok") for plugin in sorted(PLUGINS[kind]) * 2]
        assert seen.summary["coverage"]["damaged"] == 0


@pytest.mark.needs("root")
@pytest.mark.parametrize("way", ["tcp", "socket"])
def test_nobody_gains_anything_through_the_proxy(
    kind: str, server: Server, folder: Path, tmp_path: Path, way: str
) -> None:
    """By every plugin: only the password opens an account, and none that belongs to a user of the system."""
    (tmp_path / "wrong").write_text("wrong")
    (tmp_path / "none").write_text("")
    of_the_system: list[str] = []
    plugin = "unix_socket" if vendor_of(kind) == "mariadb" else "auth_socket"
    if plugin == "auth_socket":
        with contextlib.suppress(pymysql.Error):  # not every package has it, and it may be there already
            server.sql("INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'")
    with contextlib.suppress(pymysql.Error):
        how = "VIA" if plugin == "unix_socket" else "WITH"
        for user in ("daemon", "mapped"):
            # The proxy runs as root, and so would "mapped" be let in if the server saw that.
            whose = " AS 'root'" if user == "mapped" else ""
            server.sql(f"DROP USER IF EXISTS {user}", f"CREATE USER {user} IDENTIFIED {how} {plugin}{whose}")
            of_the_system.append(user)
    to_server = ["--server", f"127.0.0.1:{server.port}"]
    if way == "socket":
        to_server = ["--server-socket", str(server.socket)]
    with proxy(tmp_path, *to_server, lines=False) as seen:

        def opens(user: str, secret: Path, port: int) -> bool:
            login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(port), "--mysql-user", user]
            sample = ["sample", "--duration", "0s", "--samplers", "mysql_status", *login]
            said = agent(*sample, "--mysql-password-file", str(secret), "--mysql-tls", "disabled")
            return bool(json.loads(said.stdout)["ok"])

        for user in sorted(PLUGINS[kind]):
            assert not opens(user, tmp_path / "wrong", seen.port), user
            assert not opens(user, tmp_path / "none", seen.port), user
            assert way == "socket" or opens(user, folder / "password", seen.port), user
        assert of_the_system or kind == "mysql-8.0"
        for user in of_the_system:
            assert not opens(user, tmp_path / "none", seen.port), user


def client(server: Server, number: int) -> None:
    with (
        contextlib.closing(
            pymysql.connect(
                unix_socket=None, host="127.0.0.1", port=server.port, user="app", password="secret",
                database="shop", ssl_disabled=True, autocommit=True,
            )
        ) as connection,
        connection.cursor() as cursor,
    ):  # fmt: skip
        for turn in range(30):
            cursor.execute("INSERT INTO t VALUES (%s, %s)", (1000 * number + turn, f"name {turn}"))
            cursor.execute("SELECT * FROM t WHERE id = %s", (1000 * number + turn,))
            cursor.fetchall()


@pytest.mark.needs("tcpdump")
def test_recorded_and_replayed(kind: str, server: Server, folder: Path, tmp_path: Path) -> None:
    plugin = "mysql_native_password" if "mysql_native_password" in PLUGINS[kind] else "caching_sha2_password"
    clause = CLAUSE[vendor_of(kind)].format(plugin, "secret")
    server.sql(f"CREATE USER app {clause}", "GRANT ALL ON shop.* TO app", "TRUNCATE shop.t")
    # The cache of caching_sha2_password answers over plain TCP once the password was seen.
    with contextlib.closing(pymysql.connect(unix_socket=server.socket, user="app", password="secret")):
        pass
    with captured(server.port, tmp_path / "a.pcap"):
        threads = [threading.Thread(target=client, args=(server, number)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recording = record(tmp_path / "a.pcap", tmp_path / "a.rec", "--port", str(server.port))
    server.sql("TRUNCATE shop.t")
    (tmp_path / "secret").write_text("secret\n")
    place = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "app"]
    played = play([*place, "--mysql-password-file", str(tmp_path / "secret")], recording, "--check")
    assert played.end["errors"] == []
    assert played.different == set()
    assert played.end["comparison"]["compared"] >= 120
    assert server.sql("SELECT COUNT(*) FROM shop.t") == [(60,)]


def test_the_driver_and_the_slow_log(kind: str, server: Server, folder: Path) -> None:
    tables = {"kind": "oltp", "tables": 1, "table_size": 500}
    for user in sorted(PLUGINS[kind]):
        server.sql("DROP DATABASE IF EXISTS sbtest", "CREATE DATABASE sbtest")
        place = [*login(server, folder, user), "--mysql-database", "sbtest"]
        subprocess.run(
            [agent_path(), "drive", "load", "-", *place],
            input=json.dumps({"workload": tables}), text=True, check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        spec = {"workload": {**tables, "script": "read_write"}, "connections": 2, "seconds": 0.5}
        run = driven(place, spec)
        assert run.sum("count") > 0
        assert run.end["errors"] == []
    log = next((folder / kind).glob("slow.log"))
    done = headrace("digest", str(log), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["coverage"]["damaged"] == 0
    assert any("sbtest" in str(each) for each in found["classes"])


@pytest.mark.needs("root")
def test_a_private_server_under_a_trial(kind: str, program: Path, bench: Callable[[str], Bench]) -> None:
    if kind not in ("mariadb-10.11", "mysql-9.7") and not os.environ.get("HEADRACE_TEST_ALL"):
        pytest.skip("one of each vendor, but in `make torture`")
    made = bench(PLAN.replace("@VENDOR", vendor_of(kind)).replace("@BINARY", str(program)))
    code, out, err = made.finish()
    assert code == 0, out + err
    trials = made.trials()
    assert [trial["state"] for trial in trials.values()] == ["complete", "complete"]
