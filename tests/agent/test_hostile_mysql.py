"""A server that answers what no server should: what is kept of it is bounded, and what was wrong is named."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import agent_path
from tests.scripted_mysql import Conversation, ScriptedMysql

#: Of the 64 MiB that an answer may have, all are held for a moment.
MOST_KIB = 160 << 10
#: Five seconds for one answer, on a busy machine.
MOST_S = 20.0
NAME = b"Uptime\x1b[31m\x1b]0;x\x07\xe2\x80\xae"


def huge_count(talk: Conversation) -> None:
    talk.send(b"\xfe" + struct.pack("<Q", 2**63))


def cut_count(talk: Conversation) -> None:
    talk.send(b"\xfd\xff")


def wrong_length(talk: Conversation) -> None:
    talk.send(*talk.head_payloads(), b"\xfe" + struct.pack("<Q", 2**62) + b"x")


def endless_rows(talk: Conversation) -> None:
    talk.send(*talk.head_payloads())
    while True:
        talk.send(*[talk.row_payload(b"v" * 200)] * 500)


def endless_columns(talk: Conversation) -> None:
    head = talk.head_payloads()
    talk.send(b"\xfc\xff\xff")
    while True:
        talk.send(*head[1:2] * 500)


def out_of_order(talk: Conversation) -> None:
    talk.sequence = 77
    talk.ok()


def one_endless_packet(talk: Conversation) -> None:
    while True:
        sequence, talk.sequence = talk.sequence, (talk.sequence + 1) & 0xFF
        talk.raw(b"\xff\xff\xff" + bytes([sequence]) + b"x" * 0xFFFFFF)


def dribble(talk: Conversation) -> None:
    while True:
        talk.raw(b"\x01")
        if talk.pause(0.5):
            talk.close()


ATTACKS: dict[str, tuple[Callable[[Conversation], None], str]] = {
    "a count of 2^63 columns": (huge_count, "malformed packet: the number of columns"),
    "half a count": (cut_count, "malformed packet: the number of columns"),
    "a value of 2^62 bytes": (wrong_length, "malformed packet: a row"),
    "rows without end": (endless_rows, "more than 64 MiB"),
    "columns without end": (endless_columns, ""),
    "a packet out of order": (out_of_order, "malformed packet: a packet is out of order"),
    "a packet without end": (one_endless_packet, ""),
    "a byte every half second": (dribble, "did not answer within"),
    "nothing": (Conversation.hang, "did not answer within"),
}


#: Runs a command and prints its memory. A process begins with what the one that started it has: a small one must.
MEASURED = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:])
_, status, used = os.wait4(child.pid, 0)
print(used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def asked(attack: Callable[[Conversation], None], output: Path) -> tuple[str, float, int]:
    """What the agent printed, after how many seconds, and its memory in KiB."""

    def answer(talk: Conversation, _: int) -> None:
        talk.ok() if talk.sql.startswith("SET") else attack(talk)

    with ScriptedMysql(answer) as server, output.open("wb") as out:
        began = time.monotonic()
        words = ["facts", "--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "a"]
        words = [agent_path(), *words, "--mysql-tls", "disabled"]
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *words], stdout=out, stderr=subprocess.PIPE, check=True
        )
        return output.read_text(), time.monotonic() - began, int(done.stderr.split()[-1])


#: Each waits for as long as an answer may take.
WAITS = ("a byte every half second", "nothing")


@pytest.mark.parametrize(
    "attack", [pytest.param(each, marks=pytest.mark.thorough) if each in WAITS else each for each in ATTACKS]
)
def test_an_answer_that_cannot_be_is_bounded_and_named(attack: str, tmp_path: Path) -> None:
    do, why = ATTACKS[attack]
    text, seconds, kib = asked(do, tmp_path / "out")
    errors = [each["error"] for each in json.loads(text)["errors"] if each["error"].startswith("variables")]
    assert errors, "it is said that the variables are not known"
    assert why in errors[0]
    assert seconds < MOST_S
    assert kib < MOST_KIB


def test_names_and_numbers_of_a_server_are_text(tmp_path: Path) -> None:
    def strange(talk: Conversation) -> None:
        talk.row(NAME, b"nan") if "PROCESSLIST" not in talk.sql else talk.row(b"18446744073709551616")

    text, _, _ = asked(strange, tmp_path / "out")
    assert not any(ord(each) < 32 and each != "\n" for each in text)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
