"""What ``headrace serve`` costs its own machine while it follows many hosts: CPU and memory of its process.

    python benches/serve_hosts.py [HOSTS MINUTES]

Each host is this one under another name, with streams, looks and facts of its own, and all have the same MariaDB.
They are followed over SSH, as a fleet is, and then without. What their agents and sshd cost is not counted: it
is spent on the hosts. A machine on which many processes come and go has more series per host than others, and so
takes more memory.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benches.serve import memory_mb  # noqa: E402
from tests import sshd  # noqa: E402
from tests.programs import agent_path  # noqa: E402
from tests.servers import mariadb, open_folder  # noqa: E402
from tests.traces import cpu_s  # noqa: E402

MINUTES = 12
NEEDS = {"mariadbd": "mariadb-server", "sshd": "openssh-server"}
EVERY_S = 15.0


def serve_as_many(count: int, ssh: str, words: list[str]) -> None:
    """``headrace serve`` of this host under ``count`` names: as a fleet it would be followed once. ``ssh``: how it
    is reached, as JSON; empty for this host itself.
    """
    from headrace.cli import load, main
    from headrace.fleet.host import Host
    from headrace.host.target import TargetSpec

    load("serve")
    command = importlib.import_module("headrace.web.command")
    spec = TargetSpec("ssh", **json.loads(ssh)) if ssh else TargetSpec("local")
    command._hosts = lambda _, login: [  # type: ignore[attr-defined]
        Host(f"db{i + 1:02}", spec, login=login) for i in range(count)
    ]
    sys.argv = ["headrace", *words]
    main()


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve_as_many(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
        return
    hosts, minutes = (int(word) for word in (sys.argv[1:] or ("20", "5")))
    with (
        open_folder() as folder,
        mariadb(folder / "db", "--performance-schema=ON") as server,
        sshd.running_sshd(folder, "MaxStartups 1000", "MaxSessions 100") as host,
    ):
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)")
        ssh = {"host": "127.0.0.1", "port": host.port, "user": sshd.user()}
        ssh |= {"identity_file": str(host.key), "known_hosts": str(host.known_hosts)}
        for how, reached in (("over SSH", json.dumps(ssh)), ("without SSH", "")):
            words = ["serve", "--mysql-socket", server.socket, "--mysql-user", "root", "--slow-log", "off"]
            words += ["--data", str(folder / how), "--listen", "127.0.0.1:0", "--experiments", str(folder)]
            argv = [sys.executable, __file__, "--serve", str(hosts), reached, *words]
            print(f"{hosts} hosts {how}, agent {agent_path()}", flush=True)
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                assert process.stdout
                assert process.stdout.readline().startswith("http")
                measure(process.pid, 60.0 * minutes)
            finally:
                process.terminate()
                process.wait(60)


def measure(pid: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    before, at = cpu_s(pid), time.monotonic()
    while time.monotonic() < end:
        time.sleep(EVERY_S)
        now, now_at = cpu_s(pid), time.monotonic()
        share = (now - before) / (now_at - at)
        used, most = (memory_mb(pid, name) for name in ("VmRSS", "VmHWM"))
        print(
            f"{time.strftime('%H:%M:%S')} {100 * share:5.1f}% of a core, {used:.0f} MB, at most {most:.0f} MB",
            flush=True,
        )
        before, at = now, now_at


if __name__ == "__main__":
    main()
