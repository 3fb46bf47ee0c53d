"""The capture proxy and the decoder of the wire, against what real servers count themselves."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from tests.driver import drive, driven
from tests.programs import agent_path
from tests.proxies import proxy
from tests.servers import Server, mariadb, open_folder, started
from tests.waiting import until

PASSWORD = "pass word#'1"
NOBODY = 65_534
DENIED = (1045, 1698)
COUNTED = ("Com_select", "Com_stmt_prepare", "Com_stmt_execute", "Com_stmt_close", "Com_insert", "Com_update")


@pytest.fixture(scope="module")
def certificate(folder: Path) -> tuple[Path, Path]:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=proxy",
         "-keyout", "p.key", "-out", "p.pem"], cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    for name in ("p.key", "p.pem"):
        (folder / name).chmod(0o644)
    return folder / "p.pem", folder / "p.key"


@pytest.fixture(scope="module")
def maria(folder: Path, certificate: tuple[Path, Path]) -> Iterator[Server]:
    tls = (f"--ssl-cert={certificate[0]}", f"--ssl-key={certificate[1]}")
    with mariadb(folder / "m", "--local-infile=1", "--plugin-maturity=beta", *tls) as server:
        secret = PASSWORD.replace("'", "\\'")
        server.sql(
            "INSTALL SONAME 'auth_ed25519'",
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, name TEXT)",
            "INSERT INTO shop.t (name) VALUES ('one'), ('two'), (NULL)",
            f"CREATE USER app IDENTIFIED VIA mysql_native_password USING PASSWORD('{secret}')",
            f"CREATE USER curve IDENTIFIED VIA ed25519 USING PASSWORD('{secret}')",
            "GRANT ALL ON shop.* TO app",
            "GRANT ALL ON shop.* TO curve",
        )
        yield server


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Iterator[Server]:
    with started("mysql", folder / "o", "--local-infile=1") as server:
        secret = PASSWORD.replace("'", "\\'")
        server.sql(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, name TEXT)"
        )
        for user, plugin in (("app", "mysql_native_password"), ("cached", "caching_sha2_password")):
            server.sql(
                f"CREATE USER {user} IDENTIFIED WITH {plugin} BY '{secret}'", f"GRANT ALL ON shop.* TO {user}"
            )
        yield server


def connect(port: int, user: str = "app", **options: Any) -> Any:
    options = {"ssl_disabled": True, **options}
    return contextlib.closing(
        pymysql.connect(
            host="127.0.0.1", port=port, user=user, password=PASSWORD, database="shop", autocommit=True,
            local_infile=True, **options,
        )
    )  # fmt: skip


def session_status(cursor: Any) -> dict[str, int]:
    cursor.execute("SHOW SESSION STATUS")
    return {name: int(value) for name, value in cursor.fetchall() if value.isdigit()}


def target(server: Server) -> tuple[str, str]:
    return "--server", f"127.0.0.1:{server.port}"


def test_a_session_is_what_the_server_counted(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("7,seven\n8,eight\n")
    with (
        proxy(tmp_path, *target(server), "--checksums") as seen,
        connect(seen.port, client_flag=CLIENT.MULTI_STATEMENTS) as connection,
        connection.cursor() as cursor,
    ):
        before = session_status(cursor)
        for number in range(20):
            cursor.execute("INSERT INTO t (name) VALUES (%s)", (f"row {number}",))
        cursor.execute("SELECT * FROM t WHERE id < %s", (10,))
        first = len(cursor.fetchall())
        cursor.execute("SELECT 1; SELECT 2 UNION SELECT 3; UPDATE t SET name = 'x' WHERE id = 1")
        while cursor.nextset():
            pass
        with pytest.raises(pymysql.Error):
            cursor.execute("SELECT * FROM missing")
        cursor.execute("SELECT CAST('a' AS SIGNED)")
        cursor.execute("SELECT REPEAT('x', 3000000) UNION ALL SELECT REPEAT('y', 3000000)")
        cursor.execute(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE t FIELDS TERMINATED BY ',' (@a, name)")
        connection.select_db("shop")
        connection.ping(reconnect=False)
        after = session_status(cursor)
    assert seen.summary["gaps"] == 0
    assert seen.summary["coverage"]["damaged"] == 0
    queries = seen.of("Query")
    starts = [number for number, event in enumerate(seen.events) if event["text"] == "SHOW SESSION STATUS"]
    between = seen.events[starts[0] + 1 : starts[1]]
    received = sum(event["request_bytes"] for event in [*between, seen.events[starts[1]]])
    assert received == after["Bytes_received"] - before["Bytes_received"]
    sent = sum(event["response_bytes"] for event in [seen.events[starts[0]], *between])
    # The server looks at its counter while it writes the answer: what it buffers then is sent later.
    assert abs(sent - (after["Bytes_sent"] - before["Bytes_sent"])) < 32768
    assert len([event for event in queries if event["text"].startswith("INSERT")]) == 20
    assert after["Com_insert"] - before["Com_insert"] == 20
    (multi,) = seen.texts("SELECT 1;")
    assert (multi["rows_sent"], multi["rows_affected"], multi["outcome"]) == (3, 1, "ok")
    assert [(event["outcome"], event["errno"]) for event in seen.texts("SELECT * FROM missing")] == [
        ("error", 1146)
    ]
    assert seen.texts("SELECT CAST")[0]["warnings"] == 1
    assert seen.texts("SELECT * FROM t")[0]["rows_sent"] == first
    assert seen.texts("SELECT REPEAT")[0]["rows_sent"] == 2
    assert seen.texts("LOAD")[0]["rows_affected"] == 2
    assert [event["database"] for event in seen.of("Init DB")] == ["shop"]
    assert len(seen.of("Ping")) == len(seen.of("Connect")) == len(seen.of("Quit")) == 1
    assert {event["user"] for event in seen.events} == {"app"}


def sysbench(port: int, *options: str) -> None:
    argv = [
        "sysbench",
        "oltp_read_write",
        "--db-driver=mysql",
        "--mysql-host=127.0.0.1",
        f"--mysql-port={port}",
    ]
    argv += [
        "--mysql-user=app",
        f"--mysql-password={PASSWORD}",
        "--mysql-db=shop",
        "--tables=1",
        "--table-size=200",
    ]
    for verb in ("prepare", "run", "cleanup"):
        done = subprocess.run([*argv, "--threads=2", "--time=0", "--events=200", *options, verb],
                              capture_output=True, check=False, text=True)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def global_status(server: Server) -> dict[str, int]:
    rows = server.sql("SHOW GLOBAL STATUS LIKE 'Com\\_%'")
    return {str(name): int(str(value)) for name, value in rows}


@pytest.mark.needs("sysbench")
@pytest.mark.parametrize("mode", ["auto", "disable"])
def test_sysbench_is_counted_as_the_server_counts_it(maria: Server, tmp_path: Path, mode: str) -> None:
    before = global_status(maria)
    with proxy(tmp_path, *target(maria)) as seen:
        sysbench(seen.port, f"--db-ps-mode={mode}")
    after = global_status(maria)
    counted = {name: after[name] - before[name] for name in COUNTED}
    texts = Counter(event["text"].lstrip().split()[0].lower() for event in seen.of("Query"))
    executed = Counter(event["text"].lstrip().split()[0].lower() for event in seen.of("Execute"))
    assert seen.summary["coverage"]["unknown_statements"] == 0
    assert seen.summary["coverage"]["damaged"] == 0
    for verb in ("select", "insert", "update"):
        assert counted[f"Com_{verb}"] == texts[verb] + executed[verb], verb
    assert counted["Com_stmt_prepare"] == len(seen.of("Prepare"))
    assert counted["Com_stmt_execute"] == len(seen.of("Execute"))
    assert counted["Com_stmt_close"] == len(seen.of("Close stmt"))
    assert (len(seen.of("Execute")) > 1000) == (mode == "auto")


@pytest.mark.needs("mariadb")
@pytest.mark.parametrize("options", [(), ("--compress",)])
def test_the_command_line_client(server: Server, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "my.cnf").write_text(f'[client]\nuser=app\npassword="{PASSWORD}"\n')
    with proxy(tmp_path, *target(server)) as seen:
        done = subprocess.run(
            ["mariadb", f"--defaults-file={tmp_path}/my.cnf", "--skip-ssl", "-h127.0.0.1", f"-P{seen.port}",
             *options, "shop", "-e", "SELECT COUNT(*) FROM t; SELECT REPEAT('abc', 100000) AS a; SELECT nope"],
            capture_output=True, check=False, text=True,
        )  # fmt: skip
    assert "1054" in done.stderr
    outcomes = {event["text"]: (event["errno"], event["rows_sent"]) for event in seen.of("Query")}
    assert outcomes["SELECT COUNT(*) FROM t"] == (None, 1)
    assert outcomes["SELECT nope"] == (1054, 0)
    long = seen.texts("SELECT REPEAT")[0]["response_bytes"]
    assert long < 50_000 if options else long > 300_000
    assert seen.summary["coverage"]["damaged"] == 0


@pytest.mark.needs("mariadb")
@pytest.mark.parametrize("options", [(), ("--compress",)])
def test_several_statements_in_one_request(server: Server, tmp_path: Path, options: tuple[str, ...]) -> None:
    """MariaDB numbers the packets behind each flush as the frames of the compression are numbered."""
    (tmp_path / "my.cnf").write_text(f'[client]\nuser=app\npassword="{PASSWORD}"\n')
    several = "SELECT 1; SELECT REPEAT('abc', 100000); DO 1; SELECT 2; SELECT REPEAT('x', 70000) FROM t"
    script = f"delimiter //\n{several}//\nSELECT 'between'//\n{several}; SELECT nope//\nSELECT 'the last'//\n"
    with proxy(tmp_path, *target(server)) as seen:
        subprocess.run(
            ["mariadb", f"--defaults-file={tmp_path}/my.cnf", "--skip-ssl", "-h127.0.0.1", f"-P{seen.port}",
             *options, "--force", "shop"], input=script, capture_output=True, check=False, text=True,
        )  # fmt: skip
    rows = {event["text"]: (event["errno"], event["rows_sent"]) for event in seen.of("Query")}
    count = rows[several][1]
    assert count >= 3
    assert rows[f"{several}; SELECT nope"] == (1054, count)
    assert rows["SELECT 'between'"] == rows["SELECT 'the last'"] == (None, 1)
    assert seen.summary["coverage"]["damaged"] == 0
    assert seen.summary["coverage"]["skipped_bytes"] == 0


def admits(user: str, **options: Any) -> bool:
    """Whether a login without a password is let in."""
    try:
        link = pymysql.connect(user=user, autocommit=True, **{"ssl_disabled": True, **options})
    except pymysql.err.OperationalError as error:
        if error.args[0] not in DENIED:
            raise
        return False
    link.close()
    return True


@pytest.mark.needs("root", "mariadb")
def test_over_a_socket_nobody_gets_an_account_of_the_system(maria: Server, tmp_path: Path) -> None:
    """unix_socket accounts took every client for the proxy's user: nobody became root@localhost so."""
    maria.sql(
        "ALTER USER root@localhost IDENTIFIED VIA unix_socket",
        "CREATE USER daemon IDENTIFIED VIA unix_socket",
        "CREATE USER `4294967280` IDENTIFIED VIA unix_socket",
    )
    try:
        assert admits("root", unix_socket=maria.socket)
        with proxy(tmp_path, "--server-socket", maria.socket, lines=False) as seen:
            for user in ("root", "daemon", "4294967280"):
                assert not admits(user, host="127.0.0.1", port=seen.port), user
            with connect(seen.port) as connection:
                connection.ping(reconnect=False)
                # A login within a session is one, too.
                with pytest.raises(pymysql.Error) as refused:
                    change_user(connection, "root")
            assert refused.value.args[0] in DENIED
    finally:
        maria.sql("ALTER USER root@localhost IDENTIFIED BY ''", "DROP USER daemon", "DROP USER `4294967280`")


def change_user(connection: Any, user: str) -> None:
    """COM_CHANGE_USER with no password, no database and no attributes; PyMySQL has no call for it."""
    nothing = b"\0"
    request = [user.encode(), b"\0", nothing, nothing, b"\x2d\0", b"mysql_native_password\0", nothing]
    connection._execute_command(0x11, b"".join(request))
    connection._read_ok_packet()


@pytest.mark.needs("root")
@pytest.mark.parametrize("who", ["an ordinary user", "the server's own user"])
def test_a_socket_is_refused_to_who_would_lend_an_account(server: Server, who: str) -> None:
    owner = Path(server.socket).stat().st_uid
    if who != "an ordinary user" and owner == 0:
        pytest.skip("the server runs as root")
    user = NOBODY if who == "an ordinary user" else owner
    with open_folder() as folder:
        program = shutil.copy(agent_path(), folder)
        argv = [program, "proxy", "--listen", "127.0.0.1:0", "--server-socket", str(server.socket)]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, user=user, group=user, extra_groups=[]
        )
    assert done.returncode == 5
    assert "without a password" in done.stderr
    assert "--server HOST:PORT" in done.stderr
    assert done.stdout == ""


@pytest.mark.needs("root")
def test_a_socket_that_is_not_open_to_everybody_is_told(server: Server) -> None:
    socket_path = Path(server.socket)
    mode = socket_path.stat().st_mode & 0o777
    socket_path.chmod(0o770)
    try:
        argv = [agent_path(), "proxy", "--listen", "127.0.0.1:0", "--server-socket", str(socket_path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    finally:
        socket_path.chmod(mode)
    assert done.returncode == 4
    assert "may not open it" in done.stderr
    assert done.stdout == ""


def test_encryption_ends_at_the_proxy(server: Server, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    context.check_hostname = False
    ends = ("--tls-cert", certificate[0], "--tls-key", certificate[1])
    users = ("app", "curve") if "mariadb" in str(server.argv[0]) else ("app", "cached")
    ways: list[tuple[str, ...]] = [(*target(server), "--server-tls", "required")]
    if os.geteuid() == 0:
        ways.append(("--server-socket", server.socket))
    for way in ways:
        with proxy(tmp_path, *way, *ends) as seen:
            for user in users[: 1 if "curve" in users else 2]:
                with (
                    connect(seen.port, user, ssl_disabled=False, ssl=context) as connection,
                    connection.cursor() as cursor,
                ):
                    cursor.execute("SELECT %s", ("x" * 100_000,))
                    assert cursor.fetchall() == (("x" * 100_000,),)
            with connect(seen.port) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT 'plain'")
        assert seen.summary["coverage"]["tls_sessions"] == 0
        assert len(seen.texts("SELECT 'xxx")) == len(users[: 1 if "curve" in users else 2])
        assert len(seen.texts("SELECT 'plain'")) == 1
        assert {event["outcome"] for event in seen.of("Connect")} == {"ok"}


def test_ed25519_goes_through(maria: Server, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    with proxy(tmp_path, *target(maria), "--tls-cert", certificate[0], "--tls-key", certificate[1]) as seen:
        for mode in ("required", "disabled"):
            done = subprocess.run(
                [agent_path(), "sample", "--duration", "0s", "--samplers", "mysql_status", "--mysql-user", "curve",
                 "--mysql-host", "127.0.0.1", "--mysql-port", str(seen.port), "--mysql-tls", mode,
                 "--mysql-password-file", str(tmp_path / "password")], capture_output=True, check=False, text=True,
            )  # fmt: skip
            assert '"error"' not in done.stdout, done.stdout
    assert [event["outcome"] for event in seen.of("Connect")] == ["ok", "ok"]


def test_what_is_encrypted_is_passed_on_and_counted(maria: Server, tmp_path: Path) -> None:
    with (
        proxy(tmp_path, *target(maria)) as seen,
        connect(seen.port, ssl_disabled=False, ssl={"ca": None}) as link,
    ):
        link.ping(reconnect=False)
    assert seen.summary["coverage"]["tls_sessions"] == 1
    assert seen.events == []
    with proxy(tmp_path, *target(maria), "--no-tls") as hidden, connect(hidden.port) as link:
        link.ping(reconnect=False)
    assert len(hidden.of("Ping")) == 1


def test_limits_and_servers_that_are_away(maria: Server, tmp_path: Path) -> None:
    with proxy(tmp_path, *target(maria), "--max-sessions", "1") as seen, connect(seen.port):
        with pytest.raises(pymysql.Error) as refused:
            connect(seen.port)
        assert refused.value.args[0] == 1040
    assert seen.summary["refused"] == 1
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with proxy(tmp_path, "--server", f"127.0.0.1:{nobody.getsockname()[1]}") as seen:
            with pytest.raises(pymysql.Error) as away:
                connect(seen.port)
            assert away.value.args[0] == 1105
    assert seen.summary["unreachable"] == 1


def test_the_limit_of_open_files_refuses_and_hangs_nobody(maria: Server, tmp_path: Path) -> None:
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -n 90; exec {agent_path()} "$@"\n')
    limited.chmod(0o755)
    with proxy(tmp_path, *target(maria), program=limited) as seen, contextlib.ExitStack() as stack:
        told = []
        for _ in range(40):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", seen.port), timeout=30))
            told.append(client.recv(7))
    refused = [answer for answer in told if answer[4:7] == b"\xff\x10\x04"]
    assert len(told) - len(refused) == (90 - 64) // 2
    assert seen.summary["refused"] == len(refused)
    argv = [str(limited), "proxy", "--listen", "127.0.0.1:0", *target(maria), "--max-sessions", "100"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.returncode, "the limit is 90" in done.stderr) == (5, True)


def test_five_thousand_clients_at_the_usual_limit_are_served_or_refused(
    maria: Server, tmp_path: Path
) -> None:
    """1,024 open files, as shells have them: 480 sessions, and each client hears something."""
    clients = 5000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * clients:
        pytest.skip(f"needs {2 * clients} open files, the limit is {hard}")
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -n 1024; exec {agent_path()} "$@"\n')
    limited.chmod(0o755)
    maria.sql("SET GLOBAL max_connections = 1000", "SET GLOBAL connect_timeout = 600")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * clients), hard))
    try:
        with proxy(tmp_path, *target(maria), program=limited) as seen:
            with contextlib.ExitStack() as stack:
                told = []
                for _ in range(clients):
                    link = stack.enter_context(socket.create_connection(("127.0.0.1", seen.port), timeout=60))
                    told.append(link.recv(7)[4:])
            until(lambda: serves(seen.port), what="room for the next")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        maria.sql("SET GLOBAL max_connections = 151", "SET GLOBAL connect_timeout = 10")
    refused = told.count(b"\xff\x10\x04")
    assert len(told) - refused == (1024 - 64) // 2
    assert seen.summary["refused"] >= refused
    assert all(told), "one that hears nothing hangs"


@pytest.mark.needs("ss")
def test_peers_that_vanish_are_looked_for_on_both_sides(maria: Server, tmp_path: Path) -> None:
    argv = ["ss", "--tcp", "--numeric", "--options", "--processes", "--no-header", "state", "established"]

    def timers(pid: int) -> list[bool]:
        lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        return ["timer:(keepalive" in line for line in lines if f"pid={pid}," in line]

    with proxy(tmp_path, *target(maria)) as seen, connect(seen.port):
        # Until all is acknowledged there is another timer.
        until(lambda: timers(seen.pid) == [True, True], what="keepalive of client and server")


def serves(port: int) -> bool:
    try:
        with connect(port) as link:
            link.ping(reconnect=False)
    except pymysql.Error:
        return False
    return True


def test_a_proxy_that_was_stopped_goes_on_where_it_was(maria: Server, tmp_path: Path) -> None:
    with proxy(tmp_path, *target(maria)) as seen, connect(seen.port) as link, link.cursor() as cursor:
        os.kill(seen.pid, signal.SIGSTOP)
        later = threading.Timer(1.5, os.kill, (seen.pid, signal.SIGCONT))
        later.start()
        cursor.execute("SELECT 'meanwhile'")
        assert cursor.fetchall() == (("meanwhile",),)
        later.join()
    assert len(seen.texts("SELECT 'meanwhile'")) == 1
    assert seen.summary["coverage"]["damaged"] == 0


def test_recording_never_holds_up_the_traffic(maria: Server, tmp_path: Path) -> None:
    """With room for nothing, all sessions have gaps, and every answer comes all the same."""
    with (
        proxy(tmp_path, *target(maria), "--queue-mib", "0") as seen,
        connect(seen.port) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)
    assert seen.summary["gaps"] >= 1
    assert seen.summary["gap_bytes"] == seen.summary["client_bytes"] + seen.summary["server_bytes"]
    assert seen.events == []


def test_the_driver_through_the_proxy(maria: Server, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    table = {"kind": "oltp", "tables": 1, "table_size": 1000}
    with proxy(tmp_path, *target(maria)) as seen:
        login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(seen.port), "--mysql-user", "app"]
        login += [
            "--mysql-password-file",
            str(tmp_path / "password"),
            "--mysql-database",
            "shop",
            "--mysql-tls",
            "disabled",
        ]
        drive(login, {"workload": table}, verb="load")
        before = maria.status("Com_stmt_execute")
        run = driven(login, {"workload": {**table, "script": "point_select"}, "connections": 4, "seconds": 1})
        executed = maria.status("Com_stmt_execute") - before
        drive(login, {"workload": table}, verb="clean")
    assert seen.summary["coverage"]["damaged"] == 0
    executions = seen.of("Execute")
    assert len(executions) == executed >= run.sum("count") > 100
    assert all(event["rows_sent"] == 1 and event["parameter_count"] == 1 for event in executions)


@contextlib.contextmanager
def tcpdump(port: int, path: Path) -> Iterator[None]:
    argv = ["tcpdump", "-i", "lo", "-U", "-B", "32768", "-s", "0", "-w", str(path), f"tcp port {port}"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any("listening" in line for line in process.stderr)
    yield
    # The kernel hands packets over in blocks.
    time.sleep(1)
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert "\n0 packets dropped by kernel" in said


def classes(path: Path, port: int) -> dict[tuple[str, str], tuple[int, ...]]:
    """Of a digest, by command and class: calls, rows, affected rows, failed, and bytes of requests and answers."""
    argv = [agent_path(), "digest", str(path), "--group", "command,class", "--port", str(port)]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    sums = ("rows_sent", "rows_affected", "request_bytes", "response_bytes")
    return {
        (line["key"]["command"], line["fingerprint"]): (
            line["count"],
            line["failed"],
            line["unanswered"],
            *((line[name] or {}).get("sum", 0) for name in sums),
        )
        for line in lines
        if line["type"] == "class"
    }


@pytest.mark.needs("sysbench", "tcpdump")
@pytest.mark.needs("root")
@pytest.mark.parametrize("mode", ["auto", "disable"])
def test_a_capture_and_the_proxy_see_the_same(maria: Server, tmp_path: Path, mode: str) -> None:
    recording, capture = tmp_path / "proxy.recording", tmp_path / "capture.pcap"
    with (
        proxy(tmp_path, *target(maria), "-o", recording, "--checksums", lines=False) as seen,
        tcpdump(maria.port, capture),
    ):
        sysbench(seen.port, f"--db-ps-mode={mode}")
    assert seen.summary["gaps"] == 0
    assert recording.stat().st_mode & 0o777 == 0o600
    by_proxy, by_capture = classes(recording, maria.port), classes(capture, maria.port)
    assert by_proxy == by_capture
    assert sum(counts[0] for counts in by_proxy.values()) > 4000


class Silent:
    """A server that takes connections and says ``says`` for ever, or nothing; it never reads."""

    def __init__(self, says: bytes = b"") -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.says = says
        self.links: list[socket.socket] = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    @property
    def target(self) -> tuple[str, str]:
        return "--server", f"127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.listener.accept()
                self.links.append(link)
                fill(link, self.says)

    def close(self) -> None:
        # Closing alone does not wake who accepts.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        for each in (self.listener, *self.links):
            each.close()


def fill(link: socket.socket, says: bytes) -> None:
    """Send until nothing more goes through."""
    link.settimeout(0.5)
    with contextlib.suppress(OSError):
        while says:
            link.sendall(says)


#: Answers without end, and statements without end.
ROW, QUERY = b"\x01\x00\x00\x05x" * 20_000, b"\x09\x00\x00\x00\x03SELECT 1" * 8_000


@pytest.mark.parametrize("signal_of_the_end", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("says", "asks"),
    [(b"", b""), (b"", QUERY), (ROW, b""), (ROW, QUERY)],
    ids=["silent", "asks", "tells", "both"],
)
@pytest.mark.parametrize("way", [(), ("--no-tls",)], ids=["plain", "login"])
def test_wedged_on_both_sides_it_ends_in_time_and_leaves_nothing(
    says: bytes, asks: bytes, signal_of_the_end: signal.Signals, way: tuple[str, ...], tmp_path: Path
) -> None:
    """A client that never reads, a server that never answers: after the grace both connections are closed."""
    server = Silent(says)
    argv = [agent_path(), "proxy", "--listen", "127.0.0.1:0", *server.target, *way, "--grace", "1s"]
    argv += ["-o", str(tmp_path / "t.recording")]
    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        process = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        assert process.stdout
        port = int(json.loads(process.stdout.readline())["address"].rpartition(":")[2])
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3)]
        for client in clients:
            fill(client, asks)
        until(lambda: len(server.links) == len(clients), limit_s=30, what="the proxy connects to the server")
        started = time.monotonic()
        process.send_signal(signal_of_the_end)
        rest, _ = process.communicate(timeout=60)
        took_s = time.monotonic() - started
        assert process.returncode == 0
        assert json.loads(rest)["sessions"] == 3
        # The grace, and on a busy machine what a process takes to end.
        assert took_s < 1 + 10
        for each in (*clients, *server.links):
            assert is_over(each)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def is_over(link: socket.socket) -> bool:
    link.settimeout(10)
    try:
        while link.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True
