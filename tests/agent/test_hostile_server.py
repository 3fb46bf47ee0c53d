"""What a server says is not trusted: neither its words nor its size."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests import programs
from tests.scripted_mysql import Conversation, ScriptedMysql

TABLES = 12_345


def facts(server: ScriptedMysql) -> tuple[dict[str, Any], str]:
    endpoint = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "root"]
    argv = [programs.agent_path(), "facts", *endpoint]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout), done.stdout + done.stderr


def test_many_tables_are_not_opened_for_their_sizes() -> None:
    asked = []

    def answer(conversation: Conversation, _: int) -> None:
        asked.append(conversation.sql)
        if conversation.sql.startswith("SET"):
            conversation.ok()
        elif "COUNT(*) FROM information_schema.TABLES" in conversation.sql:
            conversation.rows([str(TABLES).encode()])
        else:
            conversation.rows([b"GRANT ALL PRIVILEGES ON *.* TO root"])

    with ScriptedMysql(answer) as server:
        found, _ = facts(server)
    assert any(f"{TABLES} tables" in error["error"] for error in found["errors"])
    # InnoDB's own statistics and files are summed without opening a table.
    opening = [sql for sql in asked if "SUM(" in sql and "information_schema.TABLES" in sql]
    assert not opening + [sql for sql in asked if "information_schema.STATISTICS" in sql]


def test_errors_of_a_server_move_no_cursor() -> None:
    def answer(conversation: Conversation, _: int) -> None:
        conversation.error(1064, "42000", "\x1b]0;owned\x07 near \x1b[2J")

    with ScriptedMysql(answer) as server:
        found, said = facts(server)
    assert "owned" in json.dumps(found["errors"])
    assert "\x1b" not in said
    assert "\\u001b" not in said
