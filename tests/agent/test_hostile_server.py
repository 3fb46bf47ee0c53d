"""What a server says is not trusted: neither its words nor its size."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import programs
from tests.scripted_mysql import Act, Answer, Conversation, ScriptedMysql, hear_login

TABLES = 12_345
#: An answer may have 64 MiB as it is kept; while it is read, its last packet is in memory again.
MOST_BYTES = 256 << 20
#: A row that is no text takes three times as much as such, and a variable's value is there twice.
MOST_BYTES_OF_LARGE_ROWS = 384 << 20
FULL_FRAME = 0xFF_FFFF
MOST_COLUMNS = 4096
#: Runs a command, and says last what the largest of its memory was, in KiB: that of a child of this process would
#: begin with this process's own.
MEASURED = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


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


def rows(conversation: Conversation, columns: int, row: bytes) -> Iterator[bytes]:
    """The same row again and again."""
    head = bytes([columns]) if columns < 251 else b"\xfc" + columns.to_bytes(2, "little")
    column, end = conversation.head_payloads()[1:]
    yield conversation.packets(head, *[column] * columns, end)
    # Packet numbers are of a byte: after so many they are the same again.
    again = conversation.packets(*[row] * 256)
    yield from itertools.repeat(again)


def one_packet(conversation: Conversation, content: bytes) -> Iterator[bytes]:
    """A packet that every frame continues."""
    while True:
        number, conversation.sequence = conversation.sequence, (conversation.sequence + 1) & 0xFF
        yield FULL_FRAME.to_bytes(3, "little") + bytes([number]) + content[:1] * FULL_FRAME


def one_row(conversation: Conversation) -> Iterator[bytes]:
    """Of bytes that are no text, each of which takes three as such."""
    yield conversation.packets(*conversation.head_payloads())
    length = (1 << 30).to_bytes(8, "little")
    first = b"\xfe" + length + b"\xff" * (FULL_FRAME - 9)
    yield FULL_FRAME.to_bytes(3, "little") + bytes([conversation.sequence]) + first
    conversation.sequence += 1
    yield from one_packet(conversation, b"\xff")


def names(conversation: Conversation) -> Iterator[bytes]:
    """Columns with names of a megabyte."""
    yield conversation.packets(b"\xfc" + MOST_COLUMNS.to_bytes(2, "little"))
    name = b"\xfd" + (1 << 20).to_bytes(3, "little") + b"n" * (1 << 20)
    while True:
        yield conversation.packets(b"\x00\x00\x00\x00" + name)


ANSWERS: dict[str, Callable[[Conversation], Iterator[bytes]]] = {
    "many rows": lambda one: rows(one, 1, one.row_payload(b"x")),
    "empty cells": lambda one: rows(one, MOST_COLUMNS, b"\xfb" * MOST_COLUMNS),
    "a row": one_row,
    "names": names,
    "an error": lambda one: one_packet(one, b"\xff"),
}


def without_end(kind: str) -> Answer:
    def answer(conversation: Conversation, _: int) -> None:
        if conversation.sql.startswith("SET"):
            conversation.ok()
            return
        for piece in ANSWERS[kind](conversation):
            conversation.raw(piece)

    return answer


def a_greeting(conversation: Conversation) -> None:
    for piece in one_packet(conversation, b"\x0a"):
        conversation.raw(piece)


def a_refusal(conversation: Conversation) -> None:
    hear_login(conversation)
    for piece in one_packet(conversation, b"\xff"):
        conversation.raw(piece)


def measured(server: ScriptedMysql, *words: str) -> tuple[str, int]:
    """What the agent said, and the most memory that it had, in bytes."""
    endpoint = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "root"]
    argv = [sys.executable, "-S", "-c", MEASURED, programs.agent_path(), *words, *endpoint]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    said, _, peak_kib = done.stdout.rstrip().rpartition("\n")
    return said, int(peak_kib) << 10


COMMANDS = {"facts": ["facts"], "sample": ["sample", "--interval", "200ms", "--duration", "600ms"]}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_without_end_does_not_fill_the_memory(command: str, kind: str) -> None:
    with ScriptedMysql(without_end(kind)) as server:
        said, peak_bytes = measured(server, *COMMANDS[command])
    assert "an answer of more than 64 MiB" in said
    assert peak_bytes < MOST_BYTES


def a_large_row(conversation: Conversation, size: int) -> None:
    conversation.raw(conversation.packets(*conversation.head_payloads()))
    content = b"\xfe" + size.to_bytes(8, "little") + b"\xff" * size
    for at in range(0, len(content) + 1, FULL_FRAME):
        frame = content[at : at + FULL_FRAME]
        conversation.raw(len(frame).to_bytes(3, "little") + bytes([conversation.sequence]) + frame)
        conversation.sequence += 1
    conversation.send(conversation.end_payload())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("size", [20 << 20, 60 << 20])
def test_large_rows_do_not_add_up(command: str, size: int) -> None:
    """Each answer has an end, and is within the limit as it is sent: but not as text, or not all of them."""

    def answer(conversation: Conversation, _: int) -> None:
        if conversation.sql.startswith("SET"):
            conversation.ok()
        else:
            a_large_row(conversation, size)

    with ScriptedMysql(answer) as server:
        _, peak_bytes = measured(server, *COMMANDS[command])
    assert peak_bytes < MOST_BYTES_OF_LARGE_ROWS


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("greet", [a_greeting, a_refusal])
def test_a_login_without_end_does_not_fill_the_memory(command: str, greet: Act) -> None:
    with ScriptedMysql(without_end("a row"), greet) as server:
        said, peak_bytes = measured(server, *COMMANDS[command])
    assert "an answer of more than 1 MiB" in said
    assert peak_bytes < MOST_BYTES
