"""A variable that a server sets in the background: its old value is no refusal while the server is at work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agent.test_journal import Host
from tests.scripted_mysql import Conversation, ScriptedMysql

POOL = "innodb_buffer_pool_size"
SMALL, LARGE, ROUNDED = 1 << 25, 1 << 26, 3 << 25


class Pool:
    """Of a server that tells its old size for so many reads after a change. ``becomes``: what it makes of it."""

    def __init__(self, reads: int, becomes: int = 0) -> None:
        self.size, self.wanted = SMALL, SMALL
        self.reads, self.left, self.becomes = reads, 0, becomes

    def answer(self, conversation: Conversation, _: int) -> None:
        sql = conversation.sql
        if match := re.fullmatch(rf"SET GLOBAL {POOL} = (\d+)", sql):
            wanted = int(match[1])
            self.wanted = self.becomes if self.becomes and wanted == LARGE else wanted
            self.left = self.reads
            conversation.ok()
        elif sql.startswith("SET"):
            conversation.ok()
        elif POOL in sql:
            self.left -= 1
            if self.left < 0:
                self.size = self.wanted
            conversation.rows([str(self.size).encode()])
        elif "Uptime" in sql:
            conversation.row(b"Uptime", b"10")
        else:
            conversation.rows([b"1000"])


def apply(pool: Pool, tmp_path: Path, code: int) -> str:
    with ScriptedMysql(pool.answer) as server:
        login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "root"]
        changes = [{"variable": POOL, "value": str(LARGE)}]
        return str(Host(tmp_path).call("apply", *login, owner="apply/test", stdin=changes, code=code))


def test_a_pool_that_grows_in_the_background_is_waited_for(tmp_path: Path) -> None:
    pool = Pool(reads=9)
    assert str(LARGE) in apply(pool, tmp_path, 0)
    assert pool.size == LARGE


@pytest.mark.parametrize("reads", [0, 9])
def test_a_pool_that_becomes_something_else_is_refused(tmp_path: Path, reads: int) -> None:
    message = apply(Pool(reads, becomes=ROUNDED), tmp_path, 5)
    assert f'the server made it "{ROUNDED}"' in message
