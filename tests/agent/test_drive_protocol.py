"""What the driver does when a server breaks the protocol: nothing hangs, and what began is accounted for."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.base.errors import NotAsAsked
from headrace.experiment.workloads.tool import agent_failed
from tests.driver import PING_CONNECTIONS, driven
from tests.faults import (
    CONNECTION_LOST,
    MALFORMED,
    NO_ANSWER,
    SLACK_S,
    asking,
    assert_adds_up,
    assert_refused,
    begun,
    errors,
    interrupted,
    tcp,
)
from tests.programs import agent_path
from tests.scripted_mysql import (
    IN_TRANSACTION,
    Conversation,
    ScriptedMysql,
    greeting,
    hear_login,
    let_in,
    shut_out,
    turn_away,
)
from tests.servers import free_port
from tests.waiting import until

#: The driver's own limit for a login.
LOGIN_LIMIT_S = 10.0


# Faults in an answer: what the server does, the code it is counted under, whether the connection is lost.


def cut_short(conversation: Conversation) -> None:
    whole = conversation.packets(*conversation.head_payloads(), conversation.row_payload(b"x" * 100))
    conversation.raw(whole[:-50])


def cut_short_then_close(conversation: Conversation) -> None:
    cut_short(conversation)
    conversation.close()


def cut_short_then_silence(conversation: Conversation) -> None:
    cut_short(conversation)
    conversation.hang()


def half_a_header(conversation: Conversation) -> None:
    conversation.raw(b"\x05\x00")
    conversation.close()


def trickle(conversation: Conversation) -> None:
    """A packet of 16 MB, of which something comes all the time."""
    conversation.raw(b"\xff\xff\xff" + bytes([conversation.sequence]))
    while not conversation.pause(0.02):
        conversation.raw(b"x")
    conversation.close()


def another_protocol(conversation: Conversation) -> None:
    conversation.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def wrong_sequence(conversation: Conversation) -> None:
    conversation.sequence += 1
    conversation.ok()


def error_among_rows(conversation: Conversation) -> None:
    conversation.send(*conversation.head_payloads(), *[conversation.row_payload(b"x")] * 3)
    conversation.error(1317, "70100", "Query execution was interrupted")


def twice(conversation: Conversation) -> None:
    conversation.raw(conversation.packets(*[conversation.ok_payload()] * 2))


def sending(*payloads: bytes) -> Callable[[Conversation], None]:
    return lambda conversation: conversation.send(*payloads)


COLUMN = b"\x03def\0\0\0\x01a\0\x0c\x2d\0\0\x01\0\0\xfd\0\0\0\0\0"
FAULTS: dict[str, tuple[Callable[[Conversation], None], int, bool]] = {
    "closed": (Conversation.close, CONNECTION_LOST, True),
    "reset": (Conversation.reset, CONNECTION_LOST, True),
    "half a header": (half_a_header, CONNECTION_LOST, True),
    "cut short, then closed": (cut_short_then_close, CONNECTION_LOST, True),
    "cut short, then silence": (cut_short_then_silence, NO_ANSWER, True),
    "silence": (Conversation.hang, NO_ANSWER, True),
    "a trickle": (trickle, NO_ANSWER, True),
    "another protocol": (another_protocol, MALFORMED, True),
    "a wrong sequence": (wrong_sequence, MALFORMED, True),
    "an empty packet": (sending(b""), MALFORMED, True),
    "OK without an end": (sending(b"\x00\x01"), MALFORMED, True),
    "an error without a code": (sending(b"\xff\x15"), MALFORMED, True),
    "65,535 columns": (sending(b"\xfc\xff\xff"), MALFORMED, True),
    "no columns": (sending(b"\xfc\x00\x00"), MALFORMED, True),
    "columns without an end": (sending(b"\x01", COLUMN, COLUMN), MALFORMED, True),
    "an end of MySQL 5.7's": (sending(b"\x01", COLUMN, b"\xfe\0\0\x02\0\0\0"), MALFORMED, True),
    "a request for a file": (sending(b"\xfb/etc/passwd"), MALFORMED, True),
    "two answers": (twice, MALFORMED, True),
    "an error": (lambda conversation: conversation.error(1146, "42S02", "No such table"), 1146, False),
    "an error among rows": (error_among_rows, 1317, False),
}


@pytest.mark.parametrize("is_prepared", [False, True], ids=["text", "prepared"])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_answer_with_a_fault(fault: str, is_prepared: bool) -> None:
    act, code, loses_connection = FAULTS[fault]
    faults = 0

    def answer(conversation: Conversation, number: int) -> None:
        nonlocal faults
        if number % 25 == 5:
            faults += 1
            act(conversation)
        else:
            conversation.rows([b"x", b"y"])

    # Each fault may keep a client for as long, and one is left for the rest.
    spec = asking(is_prepared=is_prepared, operation_timeout_s=1 if code == NO_ANSWER else 10)
    with ScriptedMysql(answer) as server:
        run = driven(tcp(server.port), spec)
    assert_adds_up(run, spec)
    assert errors(run) == {code: faults}
    # Every arrival began, and reached the server: none was lost, none was sent twice.
    assert begun(run) == server.executions == 60
    assert faults == 3
    assert run.sum("rows") == 2 * run.sum("count")
    if loses_connection:
        assert run.end["connections_lost"] == faults
        # They may still be on their way back when the trial is over.
        assert run.sum("count", "connect") <= faults
        assert server.connections > 4 + PING_CONNECTIONS
    else:
        assert run.end["connections_lost"] == 0
        assert server.connections == 4 + PING_CONNECTIONS


def test_what_ended_an_operation_counts_although_the_connection_goes_too() -> None:
    """A server that shuts down says so, and closes before the transaction is rolled back."""

    def answer(conversation: Conversation, number: int) -> None:
        if conversation.sql == "BEGIN":
            conversation.status |= IN_TRANSACTION
            conversation.ok()
        elif conversation.sql == "ROLLBACK":
            conversation.close()
        else:
            conversation.error(1053, "08S01", "Server shutdown in progress")

    spec = asking()
    spec["workload"]["operations"][0]["transaction"] = True
    with ScriptedMysql(answer) as server:
        run = driven(tcp(server.port), spec)
    assert_adds_up(run, spec)
    assert errors(run) == {1053: 60}
    assert run.end["connections_lost"] == 60


def test_one_operation_that_hangs_does_not_lengthen_the_window() -> None:
    def answer(conversation: Conversation, number: int) -> None:
        if number == 10:
            time.sleep(1.5)
        conversation.ok()

    spec = asking(seconds=0.6, pacing={"kind": "closed", "think_time_s": 0.01})
    with ScriptedMysql(answer) as server:
        run = driven(tcp(server.port), spec)
    assert_adds_up(run, spec)
    assert run.window_s == pytest.approx(0.6)
    assert run.end["drain_s"] > 0.6
    assert any("after the window" in text for text in run.end["warnings"]) == (run.end["drain_s"] > 1)
    drained = [row for row in run.intervals if row["kind"] == "drain"]
    assert sum(row["count"] for row in drained) >= 1
    assert max(row["response"]["max_ns"] for row in drained) > 1.4e9
    assert begun(run) == server.executions


def test_a_server_that_never_answers() -> None:
    """Operations run into their limit, those behind them find no client, and the trial still ends."""
    spec = asking(operation_timeout_s=0.5)
    with ScriptedMysql(lambda conversation, number: conversation.hang()) as server:
        run = driven(tcp(server.port), spec)
    assert_adds_up(run, spec)
    assert run.sum("count") == 0
    assert begun(run) == 60
    assert errors(run) == {NO_ANSWER: 60}
    assert 4 <= server.executions < 60


def test_reconnecting_backs_off() -> None:
    """A server that has no room for a second is asked now and then, not all the time."""
    turned_away = 0
    full_until_s = 0.0

    def answer(conversation: Conversation, number: int) -> None:
        nonlocal full_until_s
        if number == 20:
            full_until_s = time.monotonic() + 1.0
            conversation.close()
        conversation.ok()

    def greet(conversation: Conversation) -> None:
        nonlocal turned_away
        if time.monotonic() < full_until_s:
            turned_away += 1
            shut_out(1040, "Too many connections")(conversation)
        let_in(conversation)

    spec = asking(connections=1, seconds=3, pacing={"kind": "closed", "think_time_s": 0.01})
    with ScriptedMysql(answer, greet) as server:
        run = driven(tcp(server.port), spec)
    assert_adds_up(run, spec)
    # At once, after 10 ms, 20 ms, ... each shortened by up to a half: 7 to 9 attempts in a second.
    assert 3 <= turned_away <= 12
    assert errors(run, "connect") == {1040: turned_away}
    assert errors(run) == {CONNECTION_LOST: 1}
    assert run.sum("count", "connect") == run.end["connections_lost"] == 1
    assert begun(run) == server.executions > 20


# Faults before the trial: the driver says what the server did, and ends with an error.


def without_a_greeting(conversation: Conversation) -> None:
    conversation.close()


def greeting_cut_short(conversation: Conversation) -> None:
    conversation.raw(conversation.packets(greeting(conversation))[:40])
    conversation.close()


def no_verdict(conversation: Conversation) -> None:
    hear_login(conversation)
    conversation.close()


def reply_before_the_question(conversation: Conversation) -> None:
    hear_login(conversation)
    login = conversation.packets(conversation.ok_payload())
    conversation.sequence = 1
    conversation.raw(login + conversation.packets(conversation.ok_payload()))


LOGIN_FAULTS: dict[str, tuple[Callable[[Conversation], None], str]] = {
    "closed": (without_a_greeting, "(error 2013)"),
    "reset": (Conversation.reset, "Connection reset"),
    "greeting cut short": (greeting_cut_short, "(error 2013)"),
    "another protocol": (another_protocol, "malformed packet"),
    "an old protocol": (sending(b"\x095.0.0\0" + bytes(60)), "malformed packet"),
    "no room": (shut_out(1040, "Too many connections"), "Too many connections"),
    "turned away": (turn_away(1045, "28000", "Access denied for user 'driver'"), "Access denied"),
    "no verdict": (no_verdict, "(error 2013)"),
    "a reply before the question": (reply_before_the_question, "an unexpected packet"),
}


@pytest.mark.parametrize("fault", LOGIN_FAULTS)
def test_a_login_with_a_fault(fault: str) -> None:
    greet, words = LOGIN_FAULTS[fault]
    with ScriptedMysql(lambda conversation, number: conversation.ok(), greet) as server:
        assert_refused(tcp(server.port), asking(), words)
    assert server.executions == 0


PREPARE_FAULTS: dict[str, tuple[Callable[[Conversation], None], str]] = {
    "closed": (Conversation.close, "(error 2013)"),
    "refused": (
        lambda c: c.error(1461, "42000", "Can't create more than max_prepared_stmt_count"),
        "(error 1461)",
    ),
    "too short": (sending(b"\x00\x01"), "malformed packet"),
    "no end of the columns": (sending(b"\x00\x01\0\0\0\x01\0\0\0\0\0\0", COLUMN, COLUMN), "malformed packet"),
}


@pytest.mark.parametrize("fault", PREPARE_FAULTS)
def test_a_preparation_with_a_fault(fault: str) -> None:
    prepare, words = PREPARE_FAULTS[fault]
    with ScriptedMysql(lambda conversation, number: conversation.ok(), prepare=prepare) as server:
        assert_refused(tcp(server.port), asking(is_prepared=True), words)
    assert server.executions == 0


def test_silence_before_the_trial() -> None:
    """At every point of the way to the first operation; all at once, because the limit is ten seconds."""

    def answer(conversation: Conversation, number: int) -> None:
        conversation.ok()

    def silent_login(conversation: Conversation) -> None:
        hear_login(conversation)
        conversation.hang()

    def half_greeting(conversation: Conversation) -> None:
        conversation.raw(b"\xff\xff\x00\x00\x0a")
        conversation.hang()

    servers = [
        ScriptedMysql(answer, Conversation.hang),
        ScriptedMysql(answer, half_greeting),
        ScriptedMysql(answer, silent_login),
        ScriptedMysql(answer, prepare=Conversation.hang),
    ]

    def refused(server: ScriptedMysql) -> None:
        with server:
            spec = asking(is_prepared=True)
            words = "did not log us in within 10 s"
            assert_refused(tcp(server.port), spec, words, limit_s=LOGIN_LIMIT_S + SLACK_S)

    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(refused, servers))


def test_a_greeting_that_is_too_large_is_not_read() -> None:
    def huge_greeting(conversation: Conversation) -> None:
        conversation.raw(b"\xff\xff\xff\x00\x0a")
        conversation.hang()

    with ScriptedMysql(lambda conversation, _: conversation.ok(), huge_greeting) as server:
        assert_refused(tcp(server.port), asking(), "an answer of more than 1 MiB")


def test_nobody_listens() -> None:
    port = free_port()
    assert_refused(tcp(port), asking(), f"127.0.0.1:{port}: Connection refused", "(error 2002)")
    assert_refused(["--mysql-socket", "/nowhere/s.sock"], asking(), "No such file", "(error 2002)")


def test_a_door_for_one_at_a_time(tmp_path: Path) -> None:
    """A unix socket whose backlog is full says so at once: the driver tries again."""
    path = str(tmp_path / "s")
    with ScriptedMysql(lambda conversation, number: conversation.ok(), path=path) as server:
        run = driven(["--mysql-socket", path, "--mysql-user", "driver"], asking(connections=40))
    assert begun(run) == server.executions == run.sum("count") == 60
    assert server.connections == 40 + PING_CONNECTIONS


# Being stopped.


@pytest.mark.parametrize("pacing", ["closed", "open"])
def test_interrupted_while_the_server_is_silent(pacing: str) -> None:
    """What was asked for and not served is told, not dropped."""
    spec = asking(seconds=60, operation_timeout_s=60)
    if pacing == "closed":
        spec["pacing"] = {"kind": "closed"}
    with ScriptedMysql(lambda conversation, number: conversation.hang()) as server:

        def wait() -> None:
            until(lambda: server.executions == 4)
            time.sleep(0.7)

        run = interrupted(tcp(server.port), spec, wait)
    assert_adds_up(run, spec | {"seconds": 1})
    assert run.window_s > 0.5
    due = 4 if pacing == "closed" else 200 * run.window_s
    assert run.end["unfinished"] == begun(run) == pytest.approx(due, abs=1.5)


def test_interrupted_in_the_warm_up() -> None:
    spec = asking(seconds=60, warmup_s=60)
    with ScriptedMysql(lambda conversation, number: conversation.ok()) as server:
        run = interrupted(tcp(server.port), spec, lambda: until(lambda: server.executions >= 350))
    assert run.end["window_start_ns"] == run.end["window_end_ns"]
    # Those that were due with no client to take them are told, too.
    assert run.sum("count") <= server.executions <= begun(run)
    assert len(run.intervals) >= 2
    assert [row["t_s"] for row in run.intervals] == [-60 + second for second in range(len(run.intervals))]
    assert sum(row["duration_s"] for row in run.intervals) == pytest.approx(begun(run) / 200, abs=0.1)


def test_interrupted_before_the_start(tmp_path: Path) -> None:
    """A driver of several waits for the agreed instant; nobody has to close its input to end it."""
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(asking(waits_for_start=True)))
    pipe = subprocess.PIPE
    with ScriptedMysql(lambda conversation, number: conversation.ok()) as server:
        argv = [agent_path(), "drive", "run", str(spec), *tcp(server.port)]
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                assert json.loads(process.stdout.readline()) == {"kind": "ready"}
                process.send_signal(signal.SIGTERM)
                assert process.wait(SLACK_S) == 130
                assert "stopped before the start" in process.stderr.read()
            finally:
                process.kill()


def test_a_start_that_is_over_is_no_failure_of_the_server(tmp_path: Path) -> None:
    """Whoever was to send the instant in time was held up."""
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(asking(waits_for_start=True)))
    with ScriptedMysql(lambda conversation, number: conversation.ok()) as server:
        done = subprocess.run(
            [agent_path(), "drive", "run", str(spec), *tcp(server.port)],
            input=json.dumps({"start_at_ns": time.time_ns() - 1}) + "\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 14
    assert "was over when all clients stood" in done.stderr
    assert type(agent_failed("drive", done.returncode, done.stderr, "db1")) is NotAsAsked
