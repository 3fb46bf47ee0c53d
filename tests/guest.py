"""A virtual machine as an SSH host of the command, with a server and a mounted disk; all its state at a glance."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

from headrace.lab import vm
from headrace.lab.vm import machine as vm_machine
from headrace.lab.vm import processes, state
from tests.commands import started
from tests.programs import agent_path

KERNEL = "6.12"
LOOK = Path(__file__).with_name("host_state.py")
#: The name of the host for the command, by its ~/.ssh/config.
NAME = "guest"
TARGET = f"root@{NAME}"
SOCKET = "/srv/server/socket"
LOGIN = ("--mysql-socket", SOCKET, "--mysql-user", "root")
#: A server whose tables of accounts would take an emulated CPU half a minute to make: it has none.
SERVER = f"""
mkdir -p /srv/server && chown mysql /srv/server
setsid mariadbd --no-defaults --user=mysql --datadir=/srv/server --skip-grant-tables --skip-networking \
    --socket={SOCKET} --innodb-buffer-pool-size=16M --innodb-log-file-size=4M --performance-schema=OFF \
    </dev/null >/srv/server/log 2>&1 &
until mariadb --socket={SOCKET} --execute='SELECT 1' >/dev/null 2>&1; do sleep 0.2; done
"""
VARIABLES = "SELECT variable_name, variable_value FROM information_schema.global_variables"
#: What a distribution does at every boot; the guest's own init does not.
BOOT = "mkdir -p /data && mount /dev/vda /data && sysctl --quiet --system >/dev/null"
#: What stays after it was needed once: modules, and limits of a loop device that is free again.
USED = """
modprobe -a ext4 loop mq-deadline kyber-iosched bfq
truncate -s 1M /run/image
losetup --direct-io=on /dev/loop0 /run/image
losetup --detach /dev/loop0
rm /run/image
"""
#: In the guest: what works there for a command, and how it is killed.
AGENT = "/headrace/agent-[0-9a-f]{16} "
AT_WORK = f"{AGENT}journal (apply|confirm|rollback|record)"
WAIT_FOR_AGENTS = f"""
end=$(($(date +%%s) + %d))
until pgrep -f '{AT_WORK}' >/dev/null || [ $(date +%%s) -gt $end ]; do usleep 10000; done
usleep %d
"""
KILL_AGENTS = f"pkill -KILL -f '{AGENT}' || :"
#: A command begins its work in the guest within this time, or was killed before that; its work takes so long.
AT_WORK_S, WORK_US = 8, 400_000
#: Once no agent works on the journal, whether it has anything to undo.
SETTLE = f"""
while pgrep -f '{AT_WORK}' >/dev/null; do usleep 50000; done
if [ -s /var/lib/headrace/journal.jsonl ]; then echo open; fi
"""
HISTORY = "if [ -s /var/lib/headrace/history.jsonl ]; then echo kept; fi"


class Guest:
    def __init__(self, machine: vm.Vm, folder: Path) -> None:
        self.machine, self.folder, self.home = machine, folder, folder / "home"
        #: How long a command took when nobody disturbed it, in seconds.
        self.took_s: dict[str, float] = {}
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        self._configure()
        self.inside(f"set -e; mkfs.ext4 -q /dev/vda\n{BOOT}\n{USED}")

    def _configure(self) -> None:
        spec = self.machine.target
        (self.home / ".ssh" / "config").write_text(
            f"Host {NAME}\n HostName {spec.host}\n Port {spec.port}\n User {spec.user}\n"
            f" IdentityFile {spec.identity_file}\n IdentitiesOnly yes\n UserKnownHostsFile {spec.known_hosts}\n"
        )

    @property
    def env(self) -> dict[str, str]:
        """The guest's journal is where a host's is, whatever the tests of this machine use."""
        own = {"HOME": str(self.home), "HEADRACE_AGENT": agent_path(), "HEADRACE_DISTURBED": "keep"}
        left_out = ("HEADRACE_STATE", "XDG_CACHE_HOME", "XDG_STATE_HOME")
        return {**{name: text for name, text in os.environ.items() if name not in left_out}, **own}

    def inside(self, script: str, stdin: str = "") -> str:
        """What a shell of the guest prints. One connection lasts for all of them."""
        config = str(self.home / ".ssh" / "config")
        control = [
            "-o",
            "ControlMaster=auto",
            "-o",
            "ControlPersist=yes",
            "-o",
            f"ControlPath={self._control}",
        ]
        argv = ["ssh", "-F", config, "-o", "LogLevel=ERROR", *control, NAME, script]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    @property
    def _control(self) -> Path:
        # A path of a socket has at most 107 bytes.
        return state.machine_folder(self.machine.name) / "control"

    def hang_up(self) -> None:
        """End the connection that lasts."""
        argv = ["ssh", "-o", f"ControlPath={self._control}", "-O", "exit", NAME]
        subprocess.run(argv, capture_output=True, check=False, timeout=60)

    def look(self) -> dict[str, Any]:
        """All that a command could have changed, and the server's variables if it runs."""
        sql = f"mariadb --socket={SOCKET} --batch --skip-column-names --execute='{VARIABLES}'"
        script = f"PYTHONHASHSEED=0 python3 -S -; {sql} </dev/null 2>/dev/null || :"
        first, *lines = self.inside(script, LOOK.read_text()).splitlines()
        found: dict[str, Any] = json.loads(first)
        for line in lines:
            name, _, value = line.partition("\t")
            found[f"@@{name.lower()}"] = value
        return found

    def serve(self) -> None:
        self.inside(SERVER)

    def kill_agents(self, part: float, at_work: bool, over: threading.Event) -> None:
        """To look after them takes an emulated CPU long: it happens there."""
        if at_work:
            self._shell(WAIT_FOR_AGENTS % (AT_WORK_S, int(part * WORK_US)))
        self._shell(KILL_AGENTS)

    def is_open(self) -> bool:
        return self._shell(SETTLE) == "open"

    def is_kept(self) -> bool:
        return bool(self._shell(HISTORY))

    def _shell(self, script: str) -> str:
        """From standard input: its own words are in no command line that it looks for. Busybox starts nothing."""
        return self.inside("busybox sh -s", script).strip()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command towards the guest, in a process group of its own. A plan names its target itself."""
        target = () if arguments[0] == "run" else ("--target", TARGET)
        return started(*arguments, *target, env=self.env)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Its exit code and all that it said."""
        begin = time.monotonic()
        with self.start(*arguments) as process:
            out, error = process.communicate(timeout=900)
        self.took_s[arguments[0]] = took_s = time.monotonic() - begin
        print(f"{took_s:.1f} s: {arguments} -> {process.returncode}", file=sys.stderr)
        return process.returncode, out + error

    def done(self, *arguments: str) -> str:
        """A command that succeeds."""
        code, said = self.run(*arguments)
        assert code == 0, (arguments, said)
        return said

    def cut_power(self) -> None:
        """Its QEMU is killed and started again with the same disks: what was not written to them is lost."""

        async def killed(record: state.Record, _: object) -> None:
            await processes.end([record.pid])

        self.hang_up()
        with mock.patch.object(vm_machine, "_halt", killed):
            asyncio.run(self.machine.reboot(KERNEL, lambda text: print(text, file=sys.stderr)))
        self._configure()
        self.inside(f"set -e; {BOOT}\n{USED}")
