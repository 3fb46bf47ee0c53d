"""The agent's MySQL client against real servers: every way to log in, over every channel."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mysqld import find_mysqld
from tests.programs import agent_path
from tests.servers import Server, free_port, mariadb, mysql

PASSWORD = "pass wörd#'1"


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    (folder / "password").write_text(PASSWORD + "\n")
    (folder / "wrong").write_text("wrong\n")
    return folder


@pytest.fixture(scope="module")
def certificates(folder: Path) -> Path:
    """An authority, a certificate of it for 127.0.0.1, and an authority that signed nothing."""
    path = folder / "tls"
    path.mkdir()

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=path, check=True, capture_output=True)

    for name in ("ca", "stranger"):
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.pem",
        )  # fmt: skip
    openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server", "-keyout", "s.key", "-out", "s.csr"
    )
    (path / "extensions").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    openssl(
        "x509", "-req", "-in", "s.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "extensions", "-out", "s.pem",
    )  # fmt: skip
    for file in path.iterdir():
        file.chmod(0o644)
    return path


@pytest.fixture(scope="module")
def maria(folder: Path, certificates: Path) -> Iterator[Server]:
    tls = [
        f"--ssl-{key}={certificates / name}"
        for key, name in (("ca", "ca.pem"), ("cert", "s.pem"), ("key", "s.key"))
    ]
    with mariadb(folder / "m", *tls, "--innodb-monitor-enable=all", "--performance-schema=ON") as server:
        secret = PASSWORD.replace("'", "\\'")
        server.sql(
            "INSTALL SONAME 'auth_ed25519'",
            f"CREATE USER native IDENTIFIED VIA mysql_native_password USING PASSWORD('{secret}')",
            f"CREATE USER curve IDENTIFIED VIA ed25519 USING PASSWORD('{secret}')",
            f"CREATE USER encrypted IDENTIFIED BY '{secret}' REQUIRE SSL",
            "CREATE USER nobody",
            "GRANT PROCESS, SLAVE MONITOR ON *.* TO native, curve, encrypted",
        )
        yield server


@pytest.fixture(scope="module")
def mysqld(folder: Path) -> Path:
    found = find_mysqld()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def oracle(mysqld: Path, folder: Path) -> Iterator[Server]:
    with mysql(mysqld, folder / "o") as server:
        create_mysql_users(server)
        yield server


def create_mysql_users(server: Server) -> None:
    secret = PASSWORD.replace("'", "\\'")
    for user in ("caching_sha2_password", "sha256_password", "mysql_native_password"):
        server.sql(
            f"CREATE USER {user} IDENTIFIED WITH {user} BY '{secret}'",
            f"GRANT PROCESS, REPLICATION CLIENT ON *.* TO {user}",
        )
    server.sql("CREATE USER nobody IDENTIFIED WITH caching_sha2_password BY ''")


def sample(
    server: Server, user: str, *options: str | Path, tcp: bool = False, samplers: str = "mysql_status"
) -> Any:
    """The values of each sampler, or its error as text."""
    argv = [agent_path(), "sample", "--duration", "0s", "--samplers", samplers, "--mysql-user", user]
    if tcp:
        argv += ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port)]
    else:
        argv += ["--mysql-socket", server.socket]
    done = subprocess.run(
        [*argv, *map(str, options)], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    found = {record["sampler"]: record.get("values", record.get("error")) for record in records}
    return found if "," in samplers else found[samplers]


@pytest.mark.parametrize("user", ["native", "curve"])
@pytest.mark.parametrize("tls", [None, "disabled", "required"])
@pytest.mark.parametrize("tcp", [False, True])
def test_plugins_of_mariadb(maria: Server, folder: Path, user: str, tls: str | None, tcp: bool) -> None:
    options = ["--mysql-tls", tls] if tls else []
    encrypted = maria.status("Ssl_finished_accepts")
    values = sample(maria, user, "--mysql-password-file", folder / "password", *options, tcp=tcp)
    assert values["uptime"][""] >= 0
    # Without a choice TCP is encrypted and the socket is not.
    expected = tls == "required" or (tls is None and tcp)
    assert (maria.status("Ssl_finished_accepts") > encrypted) == expected
    wrong = sample(maria, user, "--mysql-password-file", folder / "wrong", *options, tcp=tcp)
    assert "server error 1045" in wrong
    assert "tried again" in wrong


def test_a_user_without_a_password(maria: Server) -> None:
    for tcp in (False, True):
        assert sample(maria, "nobody", tcp=tcp)["uptime"][""] >= 0


@pytest.mark.needs("root")
def test_root_as_debian_sets_it_up(maria: Server) -> None:
    """The plugin unix_socket asks the client for nothing: the kernel says who it is."""
    maria.sql("ALTER USER root@localhost IDENTIFIED VIA unix_socket")
    try:
        assert sample(maria, "root")["uptime"][""] >= 0
        assert "server error 1698" in sample(maria, "root", tcp=True)
    finally:
        maria.sql("ALTER USER root@localhost IDENTIFIED BY ''")


def test_a_user_that_must_encrypt(maria: Server, folder: Path) -> None:
    secret: list[str | Path] = ["--mysql-password-file", folder / "password"]
    assert sample(maria, "encrypted", *secret, tcp=True)["uptime"][""] >= 0
    assert "1045" in sample(maria, "encrypted", *secret, "--mysql-tls", "disabled", tcp=True)
    assert "1045" in sample(maria, "encrypted", *secret)
    assert sample(maria, "encrypted", *secret, "--mysql-tls", "required")["uptime"][""] >= 0


def test_certificates_are_checked(maria: Server, folder: Path, certificates: Path) -> None:
    def values(*options: str | Path, host: str = "127.0.0.1") -> Any:
        secret: list[str | Path] = ["--mysql-password-file", folder / "password", "--mysql-host", host]
        argv = [
            agent_path(),
            "sample",
            "--duration",
            "0s",
            "--samplers",
            "mysql_status",
            "--mysql-user",
            "native",
        ]
        argv += ["--mysql-port", str(maria.port), *map(str, [*secret, *options])]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
        record = json.loads(done.stdout)
        return record.get("values", record.get("error"))

    ours, stranger = certificates / "ca.pem", certificates / "stranger.pem"
    for mode in ("verify-ca", "verify-identity"):
        assert values("--mysql-tls", mode, "--mysql-tls-ca", ours)["uptime"][""] >= 0
        assert "UnknownIssuer" in values("--mysql-tls", mode, "--mysql-tls-ca", stranger)
    # The certificate does not name `localhost`.
    assert values("--mysql-tls", "verify-ca", "--mysql-tls-ca", ours, host="localhost")["uptime"][""] >= 0
    assert "not valid for name" in values(
        "--mysql-tls", "verify-identity", "--mysql-tls-ca", ours, host="localhost"
    )
    assert "no such file" in values("--mysql-tls", "verify-ca", "--mysql-tls-ca", "/nowhere").lower()
    assert "no certificate" in values("--mysql-tls", "verify-ca", "--mysql-tls-ca", folder / "password")


def test_a_defaults_file_names_server_and_user(maria: Server, folder: Path) -> None:
    file = folder / "client.cnf"
    file.write_text(
        f'[client]\nuser=native\npassword="{PASSWORD}"\nsocket={maria.socket}\n[mysqld]\nuser=mysql\n'
    )
    argv = [agent_path(), "sample", "--duration", "0s", "--samplers", "mysql_status"]
    done = subprocess.run(
        [*argv, "--mysql-defaults-file", str(file)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["ok"], done.stdout


def test_the_counters_of_mariadb(maria: Server, folder: Path) -> None:
    samplers = "mysql_status,innodb_metrics,replication"
    questions = maria.status("Questions")
    found = sample(maria, "native", "--mysql-password-file", folder / "password", samplers=samplers)
    status = found["mysql_status"]
    assert len(status) > 300
    assert status["questions"][""] > questions
    assert "rsa_public_key" not in status, "text is no counter"
    assert all(name == name.lower() for name in status)
    assert found["innodb_metrics"]["buffer_pool_reads"][""] >= 0
    assert len(found["innodb_metrics"]) > 150
    assert found["replication"] == {}


def test_a_privilege_that_is_missing_fails_its_sampler_only(maria: Server) -> None:
    found = sample(maria, "nobody", samplers="mysql_status,innodb_metrics,replication")
    assert found["mysql_status"]["uptime"][""] >= 0
    assert "server error 1227" in found["innodb_metrics"]
    assert "server error 1227" in found["replication"]


def test_replicas_of_mariadb(maria: Server, folder: Path) -> None:
    for name in ("", "second"):
        maria.sql(
            f"CHANGE MASTER '{name}' TO MASTER_HOST='127.0.0.1', MASTER_PORT={free_port()}, MASTER_USER='r'",
            f"START SLAVE '{name}'",
        )
    try:
        values = sample(maria, "native", "--mysql-password-file", folder / "password", samplers="replication")
    finally:
        maria.sql("STOP ALL SLAVES", "RESET SLAVE '' ALL", "RESET SLAVE 'second' ALL")
    # Nobody answers there: the lag is unknown, which is not zero.
    assert "lag_s" not in values
    assert (values["io_running"], values["sql_running"]) == ({"": 0, "second": 0}, {"": 1, "second": 1})


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password", "mysql_native_password"])
@pytest.mark.parametrize("tls", ["disabled", "required"])
@pytest.mark.parametrize("tcp", [False, True])
def test_plugins_of_mysql(oracle: Server, folder: Path, plugin: str, tls: str, tcp: bool) -> None:
    """Twice: caching_sha2_password first logs in fully (over plain TCP with the server's RSA key), then fast."""
    oracle.sql("FLUSH PRIVILEGES")
    options: list[str | Path] = ["--mysql-password-file", folder / "password", "--mysql-tls", tls]
    for _ in range(2):
        assert sample(oracle, plugin, *options, tcp=tcp)["uptime"][""] >= 0
    wrong: list[str | Path] = ["--mysql-password-file", folder / "wrong", "--mysql-tls", tls]
    assert "server error 1045" in sample(oracle, plugin, *wrong, tcp=tcp)


def test_the_fast_login_needs_no_key(mysqld: Path, folder: Path) -> None:
    """Without TLS and RSA keys a plain login works only from the server's cache."""
    options = ["--tls-version=", "--auto-generate-certs=OFF"]
    options += [
        "--sha256-password-auto-generate-rsa-keys=OFF",
        "--caching-sha2-password-auto-generate-rsa-keys=OFF",
    ]
    secret: list[str | Path] = ["--mysql-password-file", folder / "password"]
    user = "caching_sha2_password"
    with mysql(mysqld, folder / "k", *options) as server:
        create_mysql_users(server)
        for _ in range(2):
            assert "server error" in sample(server, user, *secret, tcp=True)
            assert sample(server, user, *secret)["uptime"][""] >= 0, "in clear over the socket"
            assert sample(server, user, *secret, tcp=True)["uptime"][""] >= 0, "from the cache"
            server.sql("FLUSH PRIVILEGES")
        assert "TLS: the server does not offer it" in sample(
            server, user, *secret, "--mysql-tls", "required", tcp=True
        )


def test_an_empty_password_on_mysql(oracle: Server) -> None:
    for tcp in (False, True):
        assert sample(oracle, "nobody", tcp=tcp)["uptime"][""] >= 0


def test_the_counters_of_mysql(oracle: Server, folder: Path) -> None:
    samplers = "mysql_status,innodb_metrics,replication"
    user = "caching_sha2_password"
    found = sample(oracle, user, "--mysql-password-file", folder / "password", samplers=samplers)
    assert len(found["mysql_status"]) > 250
    assert len(found["innodb_metrics"]) > 50
    assert found["replication"] == {}
    oracle.sql(
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={free_port()} FOR CHANNEL 'one'"
    )
    found = sample(oracle, user, "--mysql-password-file", folder / "password", samplers="replication")
    oracle.sql("RESET REPLICA ALL")
    assert {name: found[name] for name in ("io_running", "sql_running")} == {
        "io_running": {"one": 0},
        "sql_running": {"one": 0},
    }
    assert "lag_s" not in found
    assert found["relay_space_bytes"]["one"] > 0


def test_nobody_at_the_address(folder: Path) -> None:
    argv = [agent_path(), "sample", "--duration", "0s", "--samplers", "mysql_status,replication"]
    for options, message in (
        (["--mysql-host", "127.0.0.1", "--mysql-port", str(free_port())], "Connection refused"),
        (["--mysql-socket", str(folder / "nothing.sock")], "No such file or directory"),
        (["--mysql-socket", "/" + "x" * 200], "cannot connect"),
    ):
        done = subprocess.run([*argv, *options], capture_output=True, text=True, check=True, timeout=30)
        records = [json.loads(line) for line in done.stdout.splitlines()]
        assert [record["ok"] for record in records] == [False, False]
        assert message in records[0]["error"]
        assert "tried again in 1 s" in records[0]["error"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n" * 4, "out of order"),
        (b"\x05\x00\x00\x00\x0a8.0\x00", "malformed packet: the greeting"),
        (b"\x17\x00\x00\x00\xff\x10\x04Too many connections", "server error 1040"),
    ],
)
def test_something_else_at_the_address(answer: bytes, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            # A server that is full is asked again.
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(OSError):
                        client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        argv = [
            agent_path(),
            "sample",
            "--duration",
            "0s",
            "--samplers",
            "mysql_status",
            "--mysql-host",
            "127.0.0.1",
        ]
        argv += ["--mysql-port", str(listener.getsockname()[1])]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert message in json.loads(done.stdout)["error"]


def test_an_address_that_never_answers_costs_five_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        argv = [agent_path(), "sample", "--duration", "0s", "--mysql-host", "127.0.0.1"]
        argv += ["--mysql-port", str(listener.getsockname()[1]), "--samplers", "cpu,mysql_status"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30)
    cpu, status = (json.loads(line) for line in done.stdout.splitlines())
    assert cpu["ok"]
    assert "did not answer within 5 s" in status["error"]
    assert 4.9e9 < status["cost_ns"] < 8e9
