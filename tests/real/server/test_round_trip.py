"""Every global variable that a server lets us set, from every value that it takes: applied, undone, compared.

``make torture`` takes all of them on every server; otherwise those that have shown something, or could.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pymysql
import pytest

from tests.agent.test_journal import Host
from tests.servers import KINDS, Server, started

ALL = bool(os.environ.get("HEADRACE_TEST_ALL"))
#: Positions and clocks, which move on their own; what a server does when told, and not what it is; what it would
#: take more memory, disk or patience for than a test has; limits below the sessions of this test; files.
LEFT_OUT = (
    "gtid", "timestamp", "rand_seed", "insert_id", "last_insert_id", "error_count", "warning_count", "pseudo",
    "_now", "_abort", "force_recovery", "buffer_pool_evict", "innodb_monitor", "innodb_status_output",
    "server_id", "offline_mode", "innodb_buffer_pool_size", "debug", "skip_replication", "identity", "wsrep",
    "innodb_defragment", "keyring", "_dump_pct", "secondary_engine", "proxy_protocol", "ssl_", "tls_",
    "caching_sha2", "sha256_password", "admin_", "mysqlx", "persist", "licens", "innodb_log_checkpoint",
    "innodb_saved_page", "slave_parallel_mode", "encryption_threads", "max_connections", "max_user_connections",
    # MariaDB crashes at the next login, with semisynchronous replication or a low limit of memory; with the
    # highest interval it takes no SET and no login for that long. The last is another test's.
    "rpl_semi_sync", "max_session_mem_used", "aria_checkpoint_interval", "default_password_lifetime",
)  # fmt: skip
#: Sizes that are taken at once: not at their limits.
ALLOCATED = (
    "innodb_redo_log_capacity", "innodb_log_file_size", "innodb_log_buffer_size", "key_buffer_size",
    "query_cache_size", "host_cache_size", "table_definition_cache", "table_open_cache",
    "innodb_fill_factor", "myisam_sort_buffer_size", "innodb_rollback_segments",
)  # fmt: skip
#: Changes of one call: it is all or none, and what a server refuses is tried again without it.
TOGETHER = 25
MOST_ALLOCATED = 64 << 20
#: What a new session meets, so the agent's own; coupled ones; every form of text.
SAMPLE = (
    "sql_select_limit", "max_statement_time", "wait_timeout",
    "max_execution_time", "init_connect", "max_binlog_cache_size", "binlog_cache_size", "sql_mode",
    "optimizer_switch",
    "innodb_io_capacity", "innodb_io_capacity_max", "innodb_max_dirty_pages_pct", "innodb_max_dirty_pages_pct_lwm",
    "character_set_server", "collation_server", "time_zone", "innodb_ft_server_stopword_table", "long_query_time",
    "default_tmp_storage_engine", "autocommit", "completion_type", "net_read_timeout", "max_allowed_packet",
    "big_tables", "sql_safe_updates", "max_join_size", "sql_big_selects", "low_priority_updates", "read_only",
    "super_read_only", "lc_messages", "log_output", "event_scheduler", "transaction_isolation", "tx_isolation",
)  # fmt: skip
TEXTS = ("NULL", "''", r"'it''s \"a\" \\\\ b'", "'x'", "'a,b'", "DEFAULT")
NUMBERS = ("0", "1", "2", "3", "4", "7", "1000", "-1", "0.5")


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    with started(request.param, folder / request.param) as one:
        yield one


class Variables:
    """A session that looks and sets, opened before anything was changed."""

    def __init__(self, server: Server) -> None:
        self.link = pymysql.connect(
            unix_socket=server.socket, user="root", ssl_disabled=True, autocommit=True, charset="utf8mb4"
        )
        self.cursor = self.link.cursor()
        self.cursor.execute("SET SESSION sql_mode = '', SESSION wait_timeout = 3600")

    def all(self) -> dict[str, str]:
        self.cursor.execute("SHOW GLOBAL VARIABLES")
        return {name: value for name, value in self.cursor.fetchall() if not left_out(name)}

    def read(self, name: str) -> str | None:
        self.cursor.execute(f"SELECT @@GLOBAL.{name}")
        ((value,),) = self.cursor.fetchall()
        return None if value is None else str(value)

    def set(self, name: str, literal: str) -> bool:
        try:
            self.cursor.execute(f"SET GLOBAL {name} = {literal}")
        except pymysql.Error:
            return False
        return True

    def put(self, name: str, value: str | None) -> bool:
        """As the server printed it."""
        if value is None:
            return self.set(name, "NULL")
        quoted = self.link.escape(value)
        return any(self.set(name, text) and self.read(name) == value for text in (value or "''", quoted))

    def limits(self) -> dict[str, list[str]]:
        """The lowest and the highest number, and the words of a choice, where the server tells."""
        with contextlib.suppress(pymysql.Error):
            self.cursor.execute(
                "SELECT LOWER(variable_name), numeric_min_value, numeric_max_value, enum_value_list"
                " FROM information_schema.system_variables"
            )
            return {
                name: [
                    *filter(None, (low, high)),
                    *(f"'{word}'" for word in (words or "").split(",") if word),
                ]
                for name, low, high, words in self.cursor.fetchall()
            }
        self.cursor.execute(
            "SELECT variable_name, min_value, max_value FROM performance_schema.variables_info"
        )
        return {name: [low, high] for name, low, high in self.cursor.fetchall()}

    def reachable(self, name: str, limits: Sequence[str]) -> list[str | None]:
        """Values it can be given, and from each of which a plain SET brings it back to what it was."""
        before = self.read(name)
        if not self.put(name, before):
            return []
        found = [before]
        for literal in [*limits, *NUMBERS, *TEXTS]:
            if name in ALLOCATED and (not literal.isdigit() or int(literal) > MOST_ALLOCATED):
                continue
            if self.set(name, literal) and (value := self.read(name)) not in found and self.put(name, value):
                found.append(value)
            if not self.put(name, before):
                return []
        return found


def left_out(name: str) -> bool:
    return any(part in name for part in LEFT_OUT)


def apply(host: Host, server: Server, changes: dict[str, str]) -> str | None:
    """Apply, and undo; or what was refused."""
    wanted = [{"variable": name, "value": value} for name, value in changes.items()]
    login = ("--mysql-socket", server.socket, "--mysql-user", "root")
    try:
        host.call("apply", *login, stdin=wanted)
    except AssertionError as refused:
        return str(refused)
    host.call("rollback")
    return None


def test_every_value_comes_back(server: Server, tmp_path: Path) -> None:
    host = Host(tmp_path)
    variables = Variables(server)
    server.sql(
        "CREATE DATABASE IF NOT EXISTS forms", "CREATE TABLE forms.x (value VARCHAR(30)) ENGINE=InnoDB"
    )
    limits = variables.limits()
    names = sorted(name for name in variables.all() if ALL or name in SAMPLE)
    values = {
        name: found for name in names if len(found := variables.reachable(name, limits.get(name, ()))) > 1
    }
    assert len(values) > (250 if ALL else 20)
    refused: dict[str, list[str]] = {}
    applied = 0
    known = list(values)
    groups = [known[at : at + TOGETHER] for at in range(0, len(known), TOGETHER)]
    turns = itertools.product(range(max(map(len, values.values()))), groups)
    for turn, group in turns:
        changes: dict[str, str] = {}
        for name in group:
            found = values[name]
            if turn < len(found) and variables.put(name, found[turn]):
                others = [value for value in found[turn + 1 :] + found[:turn] if value is not None]
                changes |= {name: others[0]} if others else {}
        while changes:
            before = variables.all()
            problem = apply(host, server, changes)
            after = variables.all()
            changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
            assert changed == {}, f"{changed} after {changes}: {problem}"
            assert host.open_entries() == [], f"{changes}: {problem}"
            if problem is None:
                applied += len(changes)
                break
            culprit = max((name for name in changes if f"{name}:" in problem), key=len, default=None)
            assert culprit, problem
            refused.setdefault(culprit, []).append(
                f"{before[culprit]} -> {changes[culprit]}: {problem[:300]}"
            )
            del changes[culprit]
        for name in group:
            variables.put(name, values[name][0])
    print(f"{len(values)} variables, {applied} changes undone", *refused.values(), sep="\n  ")
    # Those of a pair that the same call sets otherwise, and those that another one limits.
    assert len(refused) <= len(values) / 5


def test_a_change_that_locks_its_account_out(server: Server, tmp_path: Path) -> None:
    if "MariaDB" not in str(server.sql("SELECT VERSION()")):
        pytest.skip("root's password is of today")
    host = Host(tmp_path)
    said = apply(host, server, {"default_password_lifetime": "1"})
    assert said is not None
    assert "default_password_lifetime: it was undone, because a new session" in said
    assert server.sql("SELECT @@GLOBAL.default_password_lifetime") == [(0,)]
    assert host.open_entries() == []
