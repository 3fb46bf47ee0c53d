"""Throwaway MariaDB and MySQL servers for tests, on a socket and a loopback port of their own.

    with mariadb(folder, "--plugin-maturity=beta") as server:
        server.sql("CREATE USER ...")

As root the server runs as the user mysql. It is stopped and gone when the block ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pymysql

from tests import traces
from tests.mysqld import find_mysql_8_0, find_mysqld
from tests.packages import find_packaged
from tests.shared import made_once

#: Every server that headrace is run with.
KINDS = ("mariadb-10.11", "mariadb-11.8", "mysql-8.0", "mysql-9.7")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
#: What a server gets by default: small, quiet, and reachable only from this machine.
SETTINGS = (
    "--no-defaults",
    "--bind-address=127.0.0.1",
    "--innodb-buffer-pool-size=32M",
    "--skip-log-bin",
    "--pid-file=server.pid",
)


@dataclass
class Server:
    """A running server. ``root`` has no password and may log in over the socket only."""

    process: subprocess.Popen[bytes]
    argv: Sequence[str]
    env: dict[str, str]
    folder: Path
    socket: str
    port: int
    #: What goes before its command: `nsenter` and its options.
    prefix: Sequence[str] = ()

    @property
    def pid(self) -> int:
        return self.process.pid

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements as root; the rows of the last."""
        with (
            contextlib.closing(
                # A server that was stopped answers nothing: better an error than a suite that never ends.
                pymysql.connect(unix_socket=self.socket, user="root", ssl_disabled=True, read_timeout=600)
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
            return list(cursor.fetchall())

    def status(self, name: str) -> int:
        return int(str(self.sql(f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1]))

    def start(self) -> None:
        with (self.folder / "error.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *_as_mysql(), *self.argv],
                env=self.env,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.sql("SELECT 1")
                return
            except pymysql.Error as error:
                tail = (self.folder / "error.log").read_text(errors="replace")[-2000:]
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"the server did not start:\n{tail}") from error
            time.sleep(0.05)

    def stop(self) -> None:
        """Terminate, then kill; also a server that a test has stopped with SIGSTOP."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_TIMEOUT_S)
            return
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()


def find_server(kind: str) -> Path | str:
    """The program of one of ``KINDS``, fetched where needed; or one line that says why it is not available."""
    if kind == "mariadb-10.11":
        found = shutil.which("mariadbd", path=PATH)
        return Path(found) if found else "no MariaDB: install mariadb-server"
    return find_mysql_8_0() if kind == "mysql-8.0" else find_packaged(kind)


def server(
    kind: str, program: Path, folder: Path, *options: str
) -> contextlib.AbstractContextManager[Server]:
    """A server of one of ``KINDS``, by the program that ``find_server`` found."""
    if kind.startswith("mysql"):
        return mysql(program, folder, *options)
    return mariadb(folder, *options, program=program)


def started(kind: str, folder: Path, *options: str) -> contextlib.AbstractContextManager[Server]:
    """A server of one of ``KINDS``, or the "mariadb" or "mysql" of most tests. Without it the test is skipped."""
    if kind == "mariadb":
        return mariadb(folder, *options)
    program = find_mysqld() if kind == "mysql" else find_server(kind)
    if isinstance(program, str):
        import pytest  # not above: benches, which skip nothing, measure their memory

        pytest.skip(program)
    return server(kind, program, folder, *options)


def own_mariadbd() -> Path | None:
    """``HEADRACE_MARIADBD``: the server that all tests of MariaDB run on, instead of the installed one."""
    found = os.environ.get("HEADRACE_MARIADBD")
    return Path(found) if found else None


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder on a disk that the server's account may enter, with a path short enough for a socket.

    Pytest's is neither.
    """
    with tempfile.TemporaryDirectory(prefix="hr-", dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@contextlib.contextmanager
def mariadb(folder: Path, *options: str, program: Path | None = None) -> Iterator[Server]:
    """A mariadbd with its data in ``folder``: a new one, of a short name because a socket lies in it.

    Debian's own, or one unpacked somewhere (see ``tests.packages``).
    """
    program = program or own_mariadbd()
    # An installed one knows where it is.
    base = [f"--basedir={program.parent.parent}"] if program else []
    installer = f"{program.parent.parent}/bin/mariadb-install-db" if program else _find("mariadb-install-db")
    install = [installer, "--no-defaults", "--skip-test-db", *base]
    install += ["--auth-root-authentication-method=normal"]
    folder = _with_data(folder, install, dict(os.environ))
    argv = [str(program or _find("mariadbd")), *SETTINGS, *base, f"--datadir={folder}/data", *options]
    with _running(argv, dict(os.environ), folder) as server:
        yield server


@contextlib.contextmanager
def mysql(program: Path, folder: Path, *options: str) -> Iterator[Server]:
    """A mysqld unpacked somewhere (see ``tests.mysqld`` and ``tests.packages``), with what it needs beside it."""
    base = program.parent.parent
    env = {**os.environ, "LD_LIBRARY_PATH": str(base / "lib")}
    argv = [str(program), *SETTINGS, f"--basedir={base}", "--mysqlx=OFF", "--secure-file-priv="]
    for option, share in (("lc-messages-dir", "share"), ("character-sets-dir", "share/charsets")):
        if (base / share).is_dir():
            argv.append(f"--{option}={base / share}")
    # Options hold for making the data, too, because that makes keys and certificates; where it logs is no matter.
    making = [*argv, *(option for option in options if "log" not in option), "--initialize-insecure"]
    folder = _with_data(folder, making, env)
    # Two servers of one name would refuse each other as replicas.
    (folder / "data" / "auto.cnf").unlink(missing_ok=True)
    with _running([*argv, f"--datadir={folder}/data", *options], env, folder) as server:
        yield server


@contextlib.contextmanager
def _running(argv: Sequence[str], env: dict[str, str], folder: Path) -> Iterator[Server]:
    path, port = f"{folder}/s.sock", free_port()
    # Not /tmp: a server that starts removes what another has there of temporary tables.
    tmp = folder / "tmp"
    tmp.mkdir(exist_ok=True)
    _own(tmp)
    whole = [*argv, f"--socket={path}", f"--port={port}", f"--tmpdir={tmp}"]
    # Never used before `start` replaced it, but the field has no other honest value.
    server = Server(None, whole, env, folder, path, port)  # type: ignore[arg-type]
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        _end_waiting_for(path)


def _end_waiting_for(path: str) -> None:
    """A guard of an index asks a server that is down again: this one never comes back."""
    for pid, words in traces.commands().items():
        if {b"rollback", b"--at", os.fsencode(path)} <= set(words):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as_mysql() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups", "--"]


def _with_data(folder: Path, install: Sequence[str], env: dict[str, str]) -> Path:
    """A new folder with the data of a new server: made once in a run, and copied."""

    def make(fresh: Path) -> None:
        _own(fresh)
        _check([*_as_mysql(), *install, f"--datadir={fresh}/data"], fresh, env)

    folder.mkdir(parents=True)  # first, because options may name files in it
    _own(folder)
    name = hashlib.sha256("\0".join(install).encode()).hexdigest()[:16]
    data = made_once(f"data-{name}", make) / "data"
    subprocess.run(["cp", "-a", "--sparse=always", str(data), str(folder)], check=True)
    return folder


def _own(folder: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(folder, "mysql", "mysql")


def _find(program: str) -> str:
    found = shutil.which(program, path=PATH)
    if found is None:
        raise FileNotFoundError(program)
    return found


def _check(argv: Sequence[str], folder: Path, env: dict[str, str]) -> None:
    env = {**env, "TMPDIR": str(folder)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
