"""What differs between hosts and what does not: every planted difference, and nothing else."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.base.effect import Verdict
from headrace.base.errors import StoreError
from headrace.base.intervals import Interval
from headrace.base.model import Value, Vendor
from headrace.change.persist import last_word
from headrace.fleet import files
from headrace.fleet.drift import Area, Between, Collected, Drift, own_drifts
from headrace.fleet.evidence import Evidence, _Tested, ranked
from headrace.fleet.findings import Findings
from headrace.fleet.report import drift as report
from headrace.fleet.report import findings as findings_report
from headrace.fleet.report.hosts import Roll
from headrace.host.target.local import LocalTarget
from headrace.hunt.rules.rule import Severity
from headrace.knobs.values import is_own, means_the_same, plain_value
from headrace.lab.server import option_files
from headrace.lab.server.option_files import Copies, Start, meaning, quoted, reading
from headrace.lab.server.sources import included
from headrace.show import terminal
from headrace.tell import junit
from tests import synthetic
from tests.folders import TESTS
from tests.written import printed

HOST = json.loads((TESTS / "rules" / "host.json").read_text())
VARIABLES = json.loads((TESTS / "rules" / "mysql-8.0.json").read_text())["variables"]


def answer(number: int, **changes: Any) -> dict[str, Any]:
    """A MySQL host that differs from others only by what belongs to it; ``changes`` are of its variables."""
    facts = copy.deepcopy(HOST)
    facts["hostname"] = name = f"db{number}.example"
    facts["read_at_ns"] += number * 10**9
    facts["uptime_s"] = 1000.0 * number
    facts["memory"]["free_bytes"] = number
    facts["memory"]["total_bytes"] += number << 20
    facts["servers"][0]["pid"] = number
    variables = VARIABLES | {
        "server_id": str(number),
        "server_uuid": f"uuid-{number}",
        "hostname": name,
        "datadir": "/var/lib/mysql/",
        "general_log_file": f"/var/lib/mysql/db{number}.log",
        "relay_log_basename": f"/var/lib/mysql/db{number}-relay-bin",
        "report_host": f"10.0.0.{number}",
        "gtid_executed": f"uuid-{number}:1-{number}",
        "log_bin_basename": "/x",
        "innodb_undo_directory": f"./db{number}",
        "some_label": f"db{number}-a",
        "read_only": "OFF" if number == 1 else "ON",
        "super_read_only": "OFF" if number == 1 else "ON",
    }
    source = {"source_uuid": "uuid-1", "source_server_id": 1, "source_host": "db1", "lag_s": number}
    facts["server_settings"] = {
        "vendor": "mysql",
        "version": "8.0.31",
        "version_text": "8.0.31",
        "variables": variables | changes,
        "pid": number,
        "replication": [] if number == 1 else [source],
        "replicas": [{"server_id": n} for n in range(2, 6)] if number == 1 else [],
        "set_since_start": [],
        "persisted": {},
    }
    return {"facts": facts, "lasting": {"sysctls": {}, "options": {}}}


PROVIDER = "base_host = 10.0.0.1; gcache.size = 128M; gcs.fc_limit = 16"


def drift_of(answers: Mapping[str, Any]) -> Drift:
    collected = Collected()
    for name, found in answers.items():
        collected.add(name, found)
    return collected.drift()


def five(**changes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {f"db{n}": answer(n, **changes.get(f"db{n}", {})) for n in range(1, 6)}


def test_equal_hosts_do_not_differ() -> None:
    found = drift_of(five())
    assert found.differences == ()
    assert found.own == ()
    assert found.failovers == ()
    assert found.compared > 300
    assert {"server_id", "server_uuid", "hostname", "report_host"} <= set(found.masked)
    assert "innodb_data_file_path" not in found.masked


def test_every_kind_of_difference_is_found() -> None:
    answers = five(db3={"innodb_io_capacity": "4000"}, db4={"read_only": "OFF"})
    facts = {name: found["facts"] for name, found in answers.items()}
    facts["db2"]["sysctls"]["vm.swappiness"] = "42"
    facts["db2"]["kernel"]["release"] = "6.6.6"
    facts["db5"]["server_settings"]["version_text"] = "8.0.32"
    facts["db5"]["cpu"]["online_count"] = 4
    facts["db5"]["memory"]["total_bytes"] //= 2
    facts["db4"]["block_devices"][2]["queue"]["scheduler"] = "bfq"
    facts["db4"]["file_systems"][4]["options"].append("dirsync")
    facts["db4"]["servers"][0]["allocator"]["name"] = "jemalloc"
    found = drift_of(answers)
    odd = {difference.name: difference.odd for difference in found.differences}
    assert odd == {
        "innodb_io_capacity": ("db3",),
        "read_only of a replica": ("db4",),
        "vm.swappiness": ("db2",),
        "kernel": ("db2",),
        "server": ("db5",),
        "CPUs online": ("db5",),
        "memory": ("db5",),
        "data disk: scheduler": ("db4",),
        "data directory: options": ("db4",),
        "server's allocator": ("db4",),
    }
    [slower] = found.failovers
    assert (slower.replica, slower.source) == ("db5", "db1")
    assert slower.reasons[0] == "4 CPUs against 8"
    assert "memory" in slower.reasons[1]


def test_settings_of_memcached_are_compared_but_not_where_it_listens() -> None:
    answers = five()
    for number, each in enumerate(answers.values()):
        own = {
            "tcpport": "11211",
            "inter": f"10.0.0.{number}",
            "oldest": str(number),
            "domain_socket": "NULL",
        }
        settings = {**own, "maxbytes": "67108864" if number == 2 else "1073741824", "num_threads": "4"}
        row = {"pid": 1, "name": "m", "version": "1.6.18", "settings": settings}
        each["facts"]["memcached"] = {"instances": [row]}
    locked = {"pid": 2, "name": "n", "settings": {}, "why": "it speaks TLS alone (-Z), which is not read"}
    answers["db5"]["facts"]["memcached"]["instances"].append(locked)
    found = drift_of(answers)
    (difference,) = found.differences
    assert (difference.area, difference.name) == (Area.MEMCACHED, "11211: maxbytes")
    assert difference.odd == ("db3",)
    assert found.gaps["memcached was not compared: it speaks TLS alone (-Z), which is not read"] == ("db5",)


def test_a_tie_has_no_usual_value() -> None:
    found = drift_of(dict(list(five(db1={"x": "1"}, db2={"x": "2"}).items())[:2]))
    [difference] = [each for each in found.differences if each.name == "x"]
    assert difference.usual is None
    assert difference.odd == ("db1", "db2")


def test_one_host_is_compared_with_its_files_only() -> None:
    one = answer(1)
    one["lasting"]["sysctls"] = {"vm.swappiness": ["7", "/etc/sysctl.conf"]}
    text = shown(drift_of({"db1": one}), None)
    assert "not two hosts to compare" in text
    assert "7 (/etc/sysctl.conf)" in text
    assert "agree" not in text


def test_a_replica_whose_commits_wait_longer_is_found() -> None:
    cheap = {
        "sync_binlog": "0",
        "innodb_flush_log_at_trx_commit": "2",
        "innodb_buffer_pool_size": str(8 << 30),
    }
    dear = {
        "sync_binlog": "1",
        "innodb_flush_log_at_trx_commit": "1",
        "innodb_buffer_pool_size": str(1 << 30),
    }
    changes = {f"db{n}": cheap for n in (1, 2, 3, 4)}
    [found] = drift_of(five(**changes, db5=dear)).failovers
    assert found.reasons == (
        "innodb_buffer_pool_size 1 GiB against 8 GiB",
        "sync_binlog 1 against 0: each commit waits longer",
        "innodb_flush_log_at_trx_commit 1 against 2: each commit waits longer",
    )


def test_running_files_and_persisted_are_three_drifts() -> None:
    one = answer(1, max_connections="500", innodb_io_capacity="300", sort_buffer_size="262144")
    one["lasting"] = {
        "sysctls": {"vm.swappiness": ["7", "/etc/sysctl.conf"], "no.such": ["1", "x"]},
        "options": {
            "max_connections": ["151", "/etc/my.cnf"],
            "innodb_io_capacity": ["200", "/etc/my.cnf"],
            "innodb_buffer_pool_size": [VARIABLES["innodb_buffer_pool_size"], "/etc/my.cnf"],
            "server_id": ["99", "/etc/my.cnf"],
        },
    }
    settings = one["facts"]["server_settings"]
    settings["persisted"] = {"innodb_io_capacity": "400"}
    settings["set_since_start"] = ["sort_buffer_size", "max_connections", "server_id"]
    found = {(each.between, each.name): (each.running, each.named) for each in drift_of({"db1": one}).own}
    swappiness = str(HOST["sysctls"]["vm.swappiness"])
    assert found == {
        (Between.FILE, "vm.swappiness"): (swappiness, "7"),
        (Between.FILE, "max_connections"): ("500", "151"),
        (Between.PERSISTED, "innodb_io_capacity"): ("300", "400"),
        (Between.BOTH, "innodb_io_capacity"): ("400", "200"),
        (Between.NOWHERE, "sort_buffer_size"): ("262144", ""),
    }


TRADITIONAL = (
    "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,TRADITIONAL,"
    "NO_ENGINE_SUBSTITUTION"
)
#: As MariaDB 10.11 prints it.
ORACLE = (
    "PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ORACLE,NO_KEY_OPTIONS,NO_TABLE_OPTIONS,NO_FIELD_OPTIONS,"
    "NO_AUTO_CREATE_USER,SIMULTANEOUS_ASSIGNMENT"
)


@pytest.mark.parametrize(
    ("variable", "running", "named", "same"),
    [
        ("max_connections", "151", "151", True),
        ("max_connections", "151", "200", False),
        ("innodb_log_file_size", "1073741824", "1G", True),
        ("innodb_file_per_table", "ON", "1", True),
        ("innodb_file_per_table", "OFF", "1", False),
        ("long_query_time", "10.000000", "10", True),
        ("sql_mode", "STRICT_TRANS_TABLES,NO_ZERO_DATE", "no_zero_date, strict_trans_tables", True),
        ("sql_mode", "STRICT_TRANS_TABLES", "", False),
        ("optimizer_switch", "index_merge=on,mrr=off", "mrr=off", True),
        ("optimizer_switch", "index_merge=on,mrr=on", "mrr=off", False),
        ("character_set_server", "utf8mb3", "utf8", True),
        ("log_bin", "ON", "mysql-bin", True),
        ("log_bin", "OFF", "mysql-bin", False),
        ("thread_cache_size", "9", "-1", True),
        ("innodb_flush_method", "O_DIRECT", "4", True),
        ("query_cache_type", "OFF", "1", False),
        ("max_allowed_packet", "16776192", "16777000", True),
        ("innodb_buffer_pool_size", "134217728", "130M", True),
        ("innodb_buffer_pool_size", "134217728", "1G", False),
        ("init_connect", "<removed>", "SET x", True),
        ("open_files_limit", "65535", "1024", True),
        ("innodb_io_capacity", "1024", "1500", False),
        ("slow_query_log", "ON", "yes", False),
        ("slow_query_log", "OFF", "yes", True),
        ("slow_query_log", "ON", "", False),
        ("max_connections", "151", "+85", False),
        ("max_connections", "85", "+85", True),
        ("max_connections", "151", "", False),
        ("tmp_table_size", "10485760", "10MByte", True),
        ("tmp_table_size", "16777216", "10MByte", False),
        ("long_query_time", "10.000000", "2e0", False),
        ("long_query_time", "10.000000", "1e1", True),
        ("long_query_time", "0.500000", ".5", True),
        ("wsrep_provider_options", PROVIDER, "gcs.fc_limit=256", False),
        ("wsrep_provider_options", PROVIDER, "gcache.size=2G;gcs.fc_limit=16", False),
        ("wsrep_provider_options", PROVIDER, "gcache.size=131072K; gcs.fc_limit=16", True),
        ("wsrep_provider_options", "", "gcs.fc_limit=256", True),
        ("optimizer_switch", "index_merge=on,mrr=off", "mrr=default", True),
        ("init_slave", "SET GLOBAL a=1", "SET GLOBAL b=1", False),
        ("binlog_format", "STATEMENT", "2", False),
        ("binlog_format", "STATEMENT", "1", True),
        ("binlog_format", "ROW", "2", True),
        ("binlog_format", "ROW", "stat", False),
        ("binlog_format", "STATEMENT", "stat", True),
        ("sql_mode", "STRICT_TRANS_TABLES", "12345", False),
        ("sql_mode", "STRICT_TRANS_TABLES", "2097152", True),
        ("sql_mode", "", "0", True),
        ("sql_mode", TRADITIONAL, "TRADITIONAL", True),
        ("sql_mode", f"{TRADITIONAL},NO_AUTO_CREATE_USER", "traditional", True),
        ("sql_mode", f"{TRADITIONAL},PAD_CHAR_TO_FULL_LENGTH", "TRADITIONAL", False),
        ("sql_mode", "TRADITIONAL", "TRADITIONAL,ANSI", False),
        ("sql_mode", "REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ANSI", "ANSI", True),
        ("sql_mode", ORACLE, "ORACLE", True),
        ("sql_mode", ORACLE, "MSSQL", False),
        ("log_slow_verbosity", "query_plan", "9999999", False),
        ("secure_file_priv", "/var/lib/mysql-files/", "/var/lib/./mysql-files", True),
        ("secure_file_priv", "/var/lib/mysql-files/", "/tmp", False),
        # As MySQL 8.0 and MariaDB 10.11 print what SET GLOBAL optimizer_switch = 5 makes.
        ("optimizer_switch", "index_merge=on,mrr=off,bnl=on", "5", True),
        ("optimizer_switch", "index_merge=on,mrr=off,bnl=on", "4", False),
        ("optimizer_switch", "index_merge=on,mrr=off,bnl=on", "13", False),
        ("optimizer_switch", "index_merge=on,mrr=off,bnl=on", "mrr=off", True),
        ("optimizer_switch", "index_merge=on,mrr=off,bnl=on", "mrr=on,bnl=on", False),
        ("optimizer_search_depth", "62", "62", True),
    ],
)
def test_a_value_of_a_file_is_read_as_the_server_reads_it(
    variable: str, running: str, named: str, same: bool
) -> None:
    variables = {"innodb_buffer_pool_chunk_size": "134217728"}
    if named == "130M":
        running = "268435456"
    assert means_the_same(variable, running, named, variables) is same


@pytest.mark.parametrize(
    ("version", "variable", "named", "running"),
    [
        ("10.11.19-MariaDB", "max_allowed_packet", "2G", "1073741824"),
        ("8.0.36", "wait_timeout", "99999999", "31536000"),
        ("10.11.19-MariaDB", "long_query_time", "99999999", "31536000.000000"),
        ("10.11.19-MariaDB", "max_connections", "5", "10"),
        ("9.7.4", "slave_parallel_workers", "0", "1"),
        ("10.11.19-MariaDB", "tmp_table_size", "17000000", "16990208"),
        ("10.11.19-MariaDB", "innodb_buffer_pool_size", "100000000", "99614720"),
        ("10.11.19-MariaDB", "transaction_isolation", "1", "READ-COMMITTED"),
    ],
)
def test_a_value_that_a_server_brings_into_its_range_is_no_drift(
    version: str, variable: str, named: str, running: str
) -> None:
    """As these servers ran when they were given it."""
    variables = {"version": version, "innodb_buffer_pool_chunk_size": "0"}
    for now in (running, "SERIALIZABLE" if "-" in running else "20971520", "12"):
        facts = {"server_settings": {"variables": {**variables, variable: now}}}
        found = list(own_drifts(facts, {"options": {variable: (named, "/my.cnf")}}))
        assert (not found) is (now == running), now


def test_the_most_that_another_series_takes_is_a_value_like_another() -> None:
    variables = {"version": "8.0.36", "slave_parallel_workers": "1"}
    facts = {"server_settings": {"variables": variables}}
    assert list(own_drifts(facts, {"options": {"slave_parallel_workers": ("0", "/my.cnf")}}))


@pytest.mark.parametrize(
    ("written", "value"),
    [("skip_loose_x", "ON"), ("loose_skip_x", "OFF"), ("enable_skip_x", "OFF"), ("skip_enable_x", "ON")],
)
def test_of_several_prefixes_the_last_one_counts(written: str, value: str) -> None:
    assert meaning(option_files.Word("f", 1, written, None), {"x"}) == ("x", value)


NAMED, BESIDE = "/b.cnf", {"/b.cnf": b"[mysqld]\nmax_connections=75\n"}


@pytest.mark.parametrize(
    ("content", "others", "mariadb", "mysql"),
    [
        ("max_connections=73\u00a0", {}, "73\udcc2", "73\udcc2"),
        ("\u00a0max_connections=73", {}, None, None),
        ("\udca0max_connections=73\udca0", {}, "73", "73"),
        ("\x1cmax_connections=73", {}, None, None),
        ("\vmax_connections\f=\v73\f\r", {}, "73", "73"),
        ("max_connections=7\0003", {}, "7", "7"),
        (f"# {'x' * 4092}max_connections=74", {}, "74", None),
        (f"# {'x' * 4091}max_connections=74", {}, None, None),
        (f"! include {NAMED}", BESIDE, "75", "75"),
        (f"!include\t{NAMED} \r", BESIDE, "75", "75"),
        (f"!include {NAMED} #", BESIDE, None, None),
        ("!includedir /d/.//", {"/d/x.cnf": BESIDE[NAMED]}, "75", "75"),
        ("Loose_MAX-connections=83", {}, "83", None),
        ("max_connections=9\nMaximum-Max_Connections=8", {}, "9", "9"),
    ],
)
def test_a_line_is_taken_apart_as_the_servers_do(
    content: str, others: dict[str, bytes], mariadb: str | None, mysql: str | None
) -> None:
    text = f"[mysqld]\n{content}\n".encode("utf-8", "surrogateescape")
    for vendor, version, expected in ((Vendor.MARIADB, "10.11.6", mariadb), (Vendor.MYSQL, "8.0.36", mysql)):
        start = Start(vendor, version, ("--defaults-file=/my.cnf",))
        words = reading(Copies({"/my.cnf": text, **others}), start).words
        found = [meaning(word, {"max_connections"}, by_start=start.takes_starts) for word in words]
        values = [value for name, value in found if name == "max_connections" and value is not None]
        assert (values[-1] if values else None) == expected, vendor


@pytest.mark.parametrize(
    "value",
    [
        "a b",
        "a#b",
        " a",
        "a ",
        'q"q',
        "'q'",
        "b\\n",
        "\\",
        "é",
        "à",
        "",
        "a\nport=1",
        "a\tb",
        "#",
        "[x]",
        "x\r",
        "\u00a0",
    ],
)
def test_a_line_of_ours_is_read_as_it_was_meant(value: str) -> None:
    content = f"[mysqld]\ninit_connect = {quoted(value)}\n".encode()
    start = Start(Vendor.MARIADB, "10.11.6", ("--defaults-file=/my.cnf",))
    assert [word.value for word in reading(Copies({"/my.cnf": content}), start).words] == [value]


@pytest.mark.parametrize(
    ("end", "named"),
    [("/b.cnf", "/b.cn /b.cnf"), ("/b.cnf ", "/b.cnf"), ("/b.cnf\r", "/b.cnf"), ("/b.cnf\n", "/b.cnf")],
)
def test_the_last_letter_of_a_file_is_taken_for_the_end_of_its_line(end: str, named: str) -> None:
    assert included(f"[mysqld]\n!include {end}".encode()) == named.split()


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (
            "\ufeff[mysqld]\nmax_connections=9\n",
            "/my.cnf:1 (a line before the first group after a byte order mark: no start gets past it)",
        ),
        ("# x\nmax_connections=9\n", "/my.cnf:2 (a line before the first group: no start gets past it)"),
        (
            "[client]\n[mysqld\nmax_connections=9\n",
            "/my.cnf:2 (a group without its closing bracket: no start gets past it)",
        ),
        ("# x\n\n[client]\nx\n", ""),
    ],
)
def test_a_file_that_no_start_gets_past_is_named(content: str, place: str) -> None:
    start = Start(Vendor.MARIADB, "10.11.6", ("--defaults-file=/my.cnf",))
    found = reading(Copies({"/my.cnf": content.encode()}), start)
    assert found.broken == ((place,) if place else ())
    assert found.words == ()


def test_in_an_included_file_only_what_follows_is_lost() -> None:
    """Both families start with it, and say nothing."""
    files = {
        "/my.cnf": b"[mysqld]\n!includedir /d\nport=3\n",
        "/d/a.cnf": b"[mysqld]\nback_log=1\n!include\nback_log=2\n",
        "/d/b.cnf": b"\xef\xbb\xbf[mysqld]\nback_log=3\n",
        "/d/c.cnf": b"[mysqld]\n!includedir /gone/\nback_log=4\n",
    }
    start = Start(Vendor.MYSQL, "8.0.31", ("--defaults-file=/my.cnf",))
    found = reading(Copies(files, absent=frozenset({"/gone"})), start)
    assert [(word.option, word.value) for word in found.words] == [("back_log", "1"), ("port", "3")]
    after = "a start reads no further in this file"
    assert found.broken == (
        f"/d/a.cnf:3 (!include of nothing: {after})",
        f"/d/b.cnf:1 (a line before the first group after a byte order mark: {after})",
        f"/d/c.cnf:2 (it includes /gone, which is not there: {after})",
    )


def test_a_defaults_file_with_underscores_is_none() -> None:
    start = Start(Vendor.MARIADB, "10.11.19", ("--defaults_file=/my.cnf",))
    assert "/my.cnf" not in start.files()


def test_names_paths_and_addresses_belong_to_a_host() -> None:
    for name in ("server_id", "server_uuid", "server_uid", "pid_file", "log_error", "tmpdir", "wsrep_node_name",
                 "bind_address", "mysqlx_port", "ssl_key", "gtid_slave_pos", "slow_query_log_file"):  # fmt: skip
        assert is_own(name), name
    for name in ("innodb_io_capacity", "innodb_data_file_path", "log_bin", "sync_binlog", "innodb_file_per_table",
                 "port_open_timeout", "ssl_cipher", "tls_version", "gtid_mode", "gtid_strict_mode"):  # fmt: skip
        assert not is_own(name), name
    assert plain_value(" 1G ") == "1073741824"


#: The server that was asked is one of the host's processes.
HERE = {"answer": "here"}


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host's /etc below a folder."""
    folders = tuple(f"{tmp_path}{each}" for each in last_word.SYSCTL_FOLDERS)
    monkeypatch.setattr(last_word, "SYSCTL_FOLDERS", folders)
    monkeypatch.setattr(last_word, "SYSCTL_CONF", f"{tmp_path}/etc/sysctl.conf")
    script = files.SCRIPT
    for path in (
        "/etc/sysctl.d",
        "/run/sysctl.d",
        "/usr/local/lib/sysctl.d",
        "/usr/lib/sysctl.d",
        "/etc/sysctl.conf",
    ):
        script = script.replace(f" {path}", f" {tmp_path}{path}")
    monkeypatch.setattr(files, "SCRIPT", script)
    monkeypatch.setattr(option_files, "MAIN_FILES", ())
    return tmp_path


def write(place: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_the_files_of_a_host_are_read_in_the_order_in_which_they_count(place: Path) -> None:
    write(
        place,
        {
            "usr/lib/sysctl.d/50-a.conf": "vm.swappiness = 60\nnet.core.somaxconn=1\n",
            "usr/lib/sysctl.d/60-b.conf": "vm.swappiness = 50\n",
            "etc/sysctl.d/60-b.conf": "# in place of the other\n-vm/swappiness = 10\nnet.ipv4.conf.*.x = 1\n",
            "etc/sysctl.conf": "net/ipv4/conf/eth0.1/forwarding = 1\n; off\n",
            "my.cnf": f"[client]\npassword = secret\n[mysqld]\nmax_connections = 100\n"
            f"! includedir {place}/conf d/ \r\n"
            "[mysqld]\nsort-buffer-size = 1M # a comment\n",
            "conf d/a.cnf": "[mysqld]\nloose_max-connections = 200\nskip-log-bin\nwsrep_sst_auth=u:p\n",
            "conf d/b.cnf": f"[mysqld]\ninit_connect='SET x'\nsql_mode = ''\n!include {place}/last.cnf\n",
            "conf d/ignored.txt": "[mysqld]\nmax_connections = 1\n",
            "last.cnf": "[mysqld]\nskip-name-resolve\n",
        },
    )
    server = {
        "pid": 7,
        "command_line": ["mysqld", f"--defaults-file={place}/my.cnf", "--port=1", "--big-tables"],
    }
    facts = {"servers": [server], "server_settings": {"pid": 7, "place": HERE}}
    found = await files.lasting(LocalTarget(), facts)
    assert {name: value for name, (value, _) in found.sysctls.items()} == {
        "vm.swappiness": "10",
        "net.core.somaxconn": "1",
        "net.ipv4.conf.eth0/1.forwarding": "1",
    }
    assert {name: value for name, (value, _) in (found.options or {}).items()} == {
        "max_connections": "200",
        "skip_log_bin": "ON",
        "log_bin": "OFF",
        "sql_mode": "",
        "skip_name_resolve": "ON",
        "name_resolve": "OFF",
        "sort_buffer_size": "1M",
        "port": "1",
        "big_tables": "ON",
    }
    assert found.options is not None
    assert found.options["max_connections"][1] == f"{place}/conf d/a.cnf"
    assert found.options["port"][1] == "the command line"


async def test_relative_includes_begin_where_a_unit_starts_the_server(place: Path) -> None:
    relative = str(place).lstrip("/")
    write(
        place,
        {
            "my.cnf": f"[mysqld]\n!includedir {relative}/d\n!include {relative}/one.cnf\n"
            f"!includedir {place}/gone\n",
            "d/a.cnf": "[mysqld]\nmax_connections=200\ninnodb_buffer_pool=1G\n"
            "loose-innodb_buffer_pool=1G\nansi\nuser=mysql\ninnodb=FORCE\nssl\nserver-audit=FORCE\n",
            "one.cnf": "[mysqld]\ntransaction-isolation=READ-COMMITTED\ninnodb-io-capacity-m=9\n",
        },
    )
    server: dict[str, Any] = {"pid": 7, "command_line": ["mariadbd", f"--defaults-file={place}/my.cnf"]}
    settings = {
        "pid": 7,
        "place": HERE,
        "vendor": "mariadb",
        "version": "10.11.6",
        "variables": {
            "tx_isolation": "X",
            "sql_mode": "",
            "max_connections": "1",
            "innodb_io_capacity_max": "1",
        },
    }
    found = await files.lasting(LocalTarget(), {"servers": [server], "server_settings": settings})
    options = {name: value for name, (value, _) in (found.options or {}).items()}
    assert options["max_connections"] == "200"
    assert (options["sql_mode"], options["tx_isolation"]) == ("ANSI", "READ-COMMITTED")
    assert options["innodb_io_capacity_max"] == "9"
    said = "; ".join(found.unreadable)
    assert f"{relative}/d (relative: it begins where the server was started" in said
    assert f"{relative}/d/a.cnf:3 (innodb_buffer_pool may be several options)" in said
    assert said.count("may be several options") == 1, said
    assert f"(it includes {place}/gone, which is not there: no start gets past it)" in said
    server["cgroup"] = {"folders": {"": "/system.slice/mariadb.service"}}
    found = await files.lasting(LocalTarget(), {"servers": [server], "server_settings": settings})
    assert "(relative" not in "; ".join(found.unreadable)


async def test_a_host_without_files_or_server_has_nothing_lasting(place: Path) -> None:
    found = await files.lasting(LocalTarget(), {"servers": [], "server_settings": None})
    assert found.to_json() == {"sysctls": {}, "options": None, "unreadable": []}


async def test_a_file_that_is_too_large_is_named_and_not_read(place: Path) -> None:
    write(place, {"my.cnf": "[mysqld]\nmax_connections = 1\n" + "#" * files.MOST_BYTES})
    server = {"pid": 7, "command_line": ["mysqld", f"--defaults-file={place}/my.cnf"]}
    found = await files.lasting(
        LocalTarget(), {"servers": [server], "server_settings": {"pid": 7, "place": HERE}}
    )
    assert found.unreadable == (f"{place}/my.cnf",)
    assert "max_connections" not in (found.options or {})


def test_a_server_that_was_not_asked_does_not_look_like_one_that_agrees() -> None:
    answers = five()
    answers["db2"]["facts"]["server_settings"] = None
    answers["db2"]["why_no_server"] = "2 servers run on this host"
    answers["db3"]["facts"]["server_settings"] = None
    answers["db3"]["facts"]["errors"] = [{"path": "/s", "error": "log in: access denied"}]
    answers["db4"]["lasting"]["unreadable"] = ["/etc/my.cnf"]
    answers["db4"]["facts"]["server_settings"]["set_since_start"] = ["sort_buffer_size"]
    found = drift_of(answers)
    assert found.gaps == {
        "no server was compared: 2 servers run on this host": ("db2",),
        "no server was compared: log in: access denied": ("db3",),
        "files that could not be read: /etc/my.cnf": ("db4",),
    }
    assert found.own == ()
    assert "db2: no server was compared" in shown(found, None)


def effect(before: str, after: str, ratio: float, verdict: Verdict) -> _Tested:
    interval = Interval(ratio, ratio - 0.03, ratio + 0.03)
    return _Tested(
        "server.innodb_io_capacity", before, after, "throughput", interval, verdict, "io", "3 May 2026"
    )


class Known(Evidence):
    def __init__(self, *known: _Tested) -> None:
        self._tested = list(known)


@pytest.fixture
def differing() -> Drift:
    changes = {"db3": {"innodb_io_capacity": "4000"}}
    return drift_of(five(**changes, db2={"sort_buffer_size": "1"}, db1={"sort_buffer_size": "1"}))


def shown(drift: Drift, evidence: Evidence | None, *, everything: bool = False) -> str:
    parts = report.parts(drift, ranked(drift, evidence), everything=everything)
    return printed(terminal.show(parts), width=200)


def test_a_measured_cost_comes_first_with_its_interval(differing: Drift) -> None:
    usual = VARIABLES["innodb_io_capacity"]
    for known in (
        effect(usual, "4000", 0.91, Verdict.WORSE),
        effect("4000", usual, 1.0989, Verdict.BETTER),
    ):
        rows = ranked(differing, Known(known))
        assert rows[0].difference.name == "innodb_io_capacity"
        assert rows[0].loss_hosts == pytest.approx(0.09, abs=0.001)
        text = shown(differing, Known(known))
        assert "costs 9% (6 to 1" in text
        assert "of throughput in io of 3 May 2026" in text
    assert ranked(differing, None)[0].difference.name == "sort_buffer_size"


def test_a_host_loses_once_however_often_it_was_measured(differing: Drift) -> None:
    usual = VARIABLES["innodb_io_capacity"]
    twice = Known(
        effect(usual, "4000", 0.91, Verdict.WORSE),
        effect(usual, "4000", 0.95, Verdict.WORSE),
        effect("4000", usual, 1.05, Verdict.BETTER),
    )
    assert ranked(differing, twice)[0].loss_hosts == pytest.approx(0.09)
    two = drift_of(five(db3={"innodb_io_capacity": "4000"}, db2={"innodb_io_capacity": "3000"}))
    faster = Known(effect(usual, "4000", 1.25, Verdict.BETTER), effect(usual, "3000", 2.0, Verdict.BETTER))
    assert ranked(two, faster)[0].loss_hosts == pytest.approx(3 * 0.5)


@pytest.mark.parametrize("is_odd_faster", [False, True])
def test_a_measured_cost_fails_whichever_hosts_have_it(differing: Drift, is_odd_faster: bool) -> None:
    usual = VARIABLES["innodb_io_capacity"]
    verdict = Verdict.BETTER if is_odd_faster else Verdict.WORSE
    rows = ranked(differing, Known(effect(usual, "4000", 1.25 if is_odd_faster else 0.8, verdict)))
    said = junit.content(report.notice(differing, rows, Roll(5)))
    assert said.count("<failure") == 2, "the verdict, and the value that costs"
    slower, other = (usual, "4000") if is_odd_faster else ("4000", usual)
    assert f"throughput of innodb_io_capacity = {slower}, not {other}" in said
    equal = ranked(differing, Known(effect(usual, "4000", 1.0, Verdict.EQUIVALENT)))
    assert "<failure" not in junit.content(report.notice(differing, equal, Roll(5)))


def test_what_was_measured_to_cost_nothing_is_last_and_not_shown(differing: Drift) -> None:
    usual = VARIABLES["innodb_io_capacity"]
    known = Known(effect(usual, "4000", 1.0, Verdict.EQUIVALENT))
    assert ranked(differing, known)[-1].difference.name == "innodb_io_capacity"
    assert "no cost was measured for innodb_io_capacity" in shown(differing, known)
    assert "costs nothing that could be seen" in shown(differing, known, everything=True)
    other = Known(effect("1", "2", 0.5, Verdict.WORSE))
    assert all(row.loss_hosts is None for row in ranked(differing, other))


def test_of_equal_costs_the_more_certain_one_comes_first(differing: Drift) -> None:
    usual = VARIABLES["innodb_io_capacity"]

    def known(knob: str, before: str, after: str, ratio: Interval, verdict: Verdict) -> _Tested:
        plain = effect(before, after, ratio.estimate, verdict)
        return replace(plain, knob=knob, ratio=ratio)

    two = drift_of(five(db3={"innodb_io_capacity": "4000", "sort_buffer_size": "1"}))
    first, second = "server.innodb_io_capacity", "server.sort_buffer_size"
    sort = VARIABLES["sort_buffer_size"]
    wide, narrow = Interval(0.9, 0.82, 0.99), Interval(0.901, 0.89, 0.91)
    for sure, doubtful in ((first, second), (second, first)):
        values = {first: (usual, "4000"), second: (sort, "1")}
        evidence = Known(
            known(sure, *values[sure], narrow, Verdict.WORSE),
            known(doubtful, *values[doubtful], wide, Verdict.WORSE),
        )
        assert [f"server.{row.difference.name}" for row in ranked(two, evidence)[:2]] == [sure, doubtful]
        nothing = Known(
            known(sure, *values[sure], Interval(1.0, 0.99, 1.01), Verdict.EQUIVALENT),
            known(doubtful, *values[doubtful], Interval(1.0, 0.5, 2.0), Verdict.NOT_ENOUGH_DATA),
        )
        assert [f"server.{row.difference.name}" for row in ranked(two, nothing)[-2:]] == [doubtful, sure]
    # One value that was measured twice: what is shown is what is known best.
    twice = Known(
        known(first, usual, "4000", Interval(1.0, 0.5, 2.0), Verdict.NOT_ENOUGH_DATA),
        known(first, usual, "4000", Interval(1.0, 0.99, 1.01), Verdict.EQUIVALENT),
    )
    [row] = [row for row in ranked(differing, twice) if row.measured]
    assert row.measured[0].verdict is Verdict.EQUIVALENT


def test_an_experiment_knows_its_single_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the unit of the plan (4K), in both directions, and nothing where two settings changed at once."""
    levels: dict[str, dict[str, Value]] = {
        "low": {"server.innodb_io_capacity": 4000, "server.sort_buffer_size": "256K"},
        "high": {
            "server.innodb_io_capacity": VARIABLES["innodb_io_capacity"],
            "server.sort_buffer_size": "256K",
        },
        "both": {"server.innodb_io_capacity": 9, "server.sort_buffer_size": "1"},
    }
    monkeypatch.setattr(synthetic, "settings_of", lambda configuration, condition: levels[configuration])
    effects = {"low": 1.0, "high": 1.25, "both": 2.0}
    synthetic.make(tmp_path / "io", synthetic.Shape(effects=effects, blocks=8, noise=0.005))
    drift = drift_of(five(db3={"innodb_io_capacity": "4000"}, db2={"sort_buffer_size": "1"}))
    first, second = ranked(drift, Evidence([tmp_path / "io"]))
    [measured] = first.measured
    assert (first.difference.name, measured.value, measured.verdict) == (
        "innodb_io_capacity", "4000", Verdict.WORSE
    )  # fmt: skip
    assert measured.ratio.low is not None
    assert measured.ratio.high is not None
    assert measured.ratio.low < 0.8 < measured.ratio.high
    assert first.loss_hosts == pytest.approx(0.2, abs=0.02)
    assert second.measured == ()
    with pytest.raises(StoreError):
        Evidence([tmp_path / "other"])


def test_a_comparison_needs_no_extra() -> None:
    """Hosts are compared where neither SciPy nor Arrow is installed."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('scipy', 'pyarrow', 'duckdb', 'yaml')))\n"
        "import headrace.fleet.evidence, headrace.fleet.report.drift, headrace.fleet.inventory"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def finding(code: str, severity: Severity) -> dict[str, Any]:
    return {
        "id": code,
        "code": code,
        "title": f"About {code}",
        "severity": str(severity),
        "summary": "1 of 2",
    }


def hunts() -> Iterator[tuple[str, dict[str, Any]]]:
    for number in range(1, 11):
        rows = [finding("MEM01", Severity.ADVICE)]
        if number != 4:
            rows.append(finding("NET01", Severity.COST))
        if number == 7:
            rows += [finding("CPU01", Severity.LIMIT), finding("MEM01", Severity.RISK)]
        yield f"db{number}", {"verdict": "fine", "findings": rows}


def test_a_host_whose_server_was_not_asked_lacks_no_finding_of_servers() -> None:
    found = Findings()
    for host, one in hunts():
        if host == "db4":
            one |= {"not_evaluated": ["NET01"], "no_server": "the server did not answer"}
        found.add(host, one)
    assert [(common.code, hosts) for common, _, hosts in found.odd()] == [("CPU01", ("db7",))]
    assert findings_report.to_json(found)["no_server"] == {"db4": "the server did not answer"}
    assert "db4: the server did not answer" in printed(terminal.show(findings_report.parts(found)))


def test_findings_are_ranked_by_cost_then_by_hosts_and_the_odd_ones_are_named() -> None:
    found = Findings()
    for host, one in hunts():
        found.add(host, one)
    assert [(each.code, len(each.hosts)) for each in found.ranked()] == [
        ("CPU01", 1),
        ("MEM01", 10),
        ("NET01", 9),
    ]
    assert found.by_code["MEM01"].worst is Severity.RISK
    assert [(common.code, few_have, hosts) for common, few_have, hosts in found.odd()] == [
        ("CPU01", True, ("db7",)),
        ("NET01", False, ("db4",)),
    ]
    content = findings_report.to_json(found)
    assert content["findings"][0]["hosts"] == {"db7": "bottleneck"}
