"""A file that a server is restarted with has a deadline like any change: then the host takes it back, and restarts
the server only with commands that the caller gave it for that. Never is it both taken back and kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.agent.test_apply import OWNER, Fake
from tests.servers import Server, mariadb, open_folder
from tests.waiting import until

MODE = "innodb_autoinc_lock_mode"
FILE = "/etc/mysql/conf.d/zz-headrace.cnf"
CONTENT = f"[mariadbd]\n{MODE} = 2\n"
SCRIPT = """#!/bin/sh
echo $HEADRACE_VERB $HEADRACE_HOST >>{folder}/service.log
[ $HEADRACE_VERB != drain ] || [ ! -e {folder}/stuck ] || {{ echo it is stuck; exit 3; }}
[ $HEADRACE_VERB = restart ] || exit 0
mariadb-admin --no-defaults --user=root --socket={socket} shutdown || rm -f {socket}
while [ -e {socket} ]; do sleep 0.05; done
setsid {server} >>{folder}/error.log 2>&1 &
until mariadb-admin --no-defaults --user=root --socket={socket} ping; do sleep 0.05; done
"""


class Restarted(Fake):
    """A host with a server that reads the file."""

    def __init__(self, folder: Path, server: Server) -> None:
        super().__init__(folder)
        self.server = server
        (self.folder / "etc/mysql/conf.d").mkdir(parents=True)
        words = server.argv
        whole = [words[0], f"--defaults-file={folder}/my.cnf", *words[2:]]
        if os.geteuid() == 0:
            whole.append("--user=mysql")
        (folder / "my.cnf").write_text(
            f"[mariadbd]\n{MODE} = 1\n!includedir {self.folder}/etc/mysql/conf.d\n"
        )
        self.script = folder / "service"
        self.script.write_text(SCRIPT.format(folder=folder, socket=server.socket, server=" ".join(whole)))
        self.script.chmod(0o755)
        self.run("restart")
        self.steps()

    @property
    def commands(self) -> dict[str, Any]:
        verbs = {verb: str(self.script) for verb in ("drain", "restart", "return")}
        limits = {"within_s": 2.0, "start_s": 60.0, "idle_per_s": 60.0, "lag_s": 5.0}
        return {**verbs, "environment": {"HEADRACE_HOST": "db1"}, **limits}

    def write(self, within: str, *, may_restart: bool = False, code: int = 0) -> Any:
        restart: dict[str, Any] = {"restart": [MODE]}
        if may_restart:
            restart["commands"] = self.commands
        options = ["--root", str(self.folder), "--mysql-socket", self.server.socket, "--mysql-user", "root"]
        options += ["--confirm-within", within]
        changes = [restart, {"file": FILE, "content": CONTENT}]
        return self.call("apply", *options, owner=OWNER, stdin=changes, code=code)

    def restart(self) -> None:
        """As its owner does it; a deadline that passes meanwhile has to wait, however busy the machine is."""
        with (self.state / "journal.jsonl").open("rb") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            self.run("restart")

    def run(self, verb: str) -> None:
        env = {**os.environ, "HEADRACE_VERB": verb, "HEADRACE_HOST": "us"}
        subprocess.run([str(self.script)], env=env, check=True, stdout=subprocess.DEVNULL)

    def steps(self) -> list[str]:
        """What the script was called for since the last time, and by whom."""
        path = self.folder / "service.log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    @property
    def has_file(self) -> bool:
        return (self.folder / FILE[1:]).exists()

    def mode(self) -> str:
        with contextlib.suppress(pymysql.Error):
            return str(self.server.sql(f"SELECT @@GLOBAL.{MODE}")[0][0])
        return ""

    def kinds(self) -> list[str]:
        return [entry["kind"] for entry in self.open_entries()]

    def kill_server(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.server.folder / "data" / "server.pid").read_text()), signal.SIGKILL)


HOST = ["drain db1", "restart db1", "return db1"]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m") as running:
        yield running


@pytest.fixture
def host(server: Server) -> Iterator[Restarted]:
    # The server's account reads its options there.
    with open_folder() as folder:
        found = Restarted(folder, server)
        yield found
        for pid in found.watchers():
            os.kill(pid, signal.SIGKILL)
        found.kill_server()


def test_the_host_takes_the_file_back_and_leaves_the_server_as_it_is(host: Restarted) -> None:
    host.write("2s")
    assert host.has_file
    assert host.kinds() == ["restart", "file"]
    host.restart()
    assert host.mode() == "2"
    until(lambda: not host.has_file)
    until(lambda: host.kinds() == ["restart"])
    assert host.mode() == "2"
    assert host.steps() == ["restart us"]
    assert "too late" in host.confirm(code=5)
    assert f"the server still has {MODE} = 2" in host.rollback(code=1)
    assert host.kinds() == ["restart"]
    # Whoever restarts it ends the matter.
    host.restart()
    host.rollback()
    assert host.open_entries() == []
    assert host.mode() == "1"


def test_with_commands_the_host_drains_restarts_and_returns(host: Restarted) -> None:
    host.write("2s", may_restart=True)
    host.restart()
    (host.folder / "stuck").touch()
    host.steps()
    until(lambda: host.steps()[:2] == ["drain db1", "return db1"], pause_s=0.5)
    assert (host.has_file, host.mode(), host.kinds()) == (False, "2", ["restart"])
    (host.folder / "stuck").unlink()
    until(lambda: not host.open_entries())
    assert host.mode() == "1"
    assert host.steps()[-3:] == HOST


def test_a_server_that_does_not_start_with_the_file_is_started_without_it(host: Restarted) -> None:
    host.write("1s", may_restart=True)
    host.kill_server()
    until(lambda: not host.open_entries())
    assert (host.has_file, host.mode()) == (False, "1")
    assert host.steps() == HOST


def test_a_server_that_was_never_restarted_is_only_returned(host: Restarted) -> None:
    host.write("1s", may_restart=True)
    until(lambda: not host.open_entries())
    assert (host.has_file, host.mode()) == (False, "1")
    assert host.steps() == ["return db1"]


def test_the_caller_takes_the_file_back_and_the_restart_is_its_own_unless_it_dies(host: Restarted) -> None:
    host.write("60s", may_restart=True)
    host.restart()
    host.steps()
    undone = host.rollback("--restart-within", "60s")
    assert [each["kind"] for each in undone] == ["file"]
    assert (host.has_file, host.kinds()) == (False, ["restart"])
    # What was taken back in part is never kept.
    assert "was undone already" in host.confirm(code=5)
    host.extend("60s")
    host.restart()
    host.rollback()
    assert (host.open_entries(), host.steps()) == ([], ["restart us"])
    host.write("60s", may_restart=True)
    host.restart()
    host.steps()
    host.rollback("--restart-within", "1s")
    until(lambda: not host.open_entries())
    assert (host.mode(), host.steps()) == ("1", HOST)


def test_a_killed_confirmation_is_kept_or_taken_back_never_both(host: Restarted) -> None:
    for wait_s in (*(random.uniform(0, 0.01) for _ in range(5)), None):
        host.write("1500ms" if wait_s is not None else "60s", may_restart=True)
        argv = host.argv("confirm", "--owner", OWNER, "--root", str(host.folder))
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            if wait_s is not None:
                time.sleep(wait_s)
                process.kill()
        until(lambda: not host.open_entries())
        is_kept = bool(host.history())
        assert host.has_file == is_kept
        assert is_kept or wait_s is not None
        assert host.steps() == ([] if is_kept else ["return db1"])
        if is_kept:
            assert [entry["kind"] for entry in host.history()[-1]["entries"]] == ["file"]
            host.rollback("--kept", OWNER)
            assert not host.has_file
