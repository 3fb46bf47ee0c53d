"""`headrace-agent sample` at 1 Hz with every sampler (targets: 0.5% of one core, 20 MB), beside sar and pidstat.

It is all that `headrace hunt` runs on a host while it watches (targets: 1% of one core, 30 MB); facts are read
once, after the window.

All run for the same minute on a machine with a MariaDB under sysbench. `sar -A` reads the host, `pidstat` its
processes; neither reads the server, so the agent is shown with and without its server samplers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers import Server, mariadb, open_folder

MINUTES = 2
NEEDS = {
    "sar": "sysstat",
    "pidstat": "sysstat",
    "mpstat": "sysstat",
    "sysbench": "sysbench",
    "mariadbd": "mariadb-server",
}

SECONDS = int(os.environ.get("HEADRACE_BENCH_SECONDS", "60"))
#: Transactions a second: busy, but the load is not what is measured.
RATE = 500
TARGET_PERCENT = 0.5
TARGET_MB = 20.0
HUNT_PERCENT, HUNT_MB = 1.0, 30.0


def main() -> None:
    agent = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")
    with open_folder() as folder:
        with mariadb(folder / "m", "--innodb-monitor-enable=all") as server, load(server):
            sample = [agent, "sample", "--interval", "1s", "--output"]
            login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
            costs = measure(
                {
                    "headrace-agent, host + server": [*sample, f"{folder}/a.jsonl.zst", *login],
                    "headrace-agent, host": [*sample, f"{folder}/b.jsonl.zst"],
                    "sar -A 1": ["sar", "-A", "1"],
                    "pidstat 1 (busy ones, CPU)": ["pidstat", "1"],
                    "pidstat -durw -p ALL 1": ["pidstat", "-durw", "-p", "ALL", "1"],
                    "mpstat -P ALL 1": ["mpstat", "-P", "ALL", "1"],
                }
            )
        for name, size in (("host + server", "a"), ("host", "b")):
            stored = Path(folder, f"{size}.jsonl.zst").stat().st_size / SECONDS
            print(f"  {name}: {stored / 1024:.1f} KiB/s on disk, {stored * 86400 / 2**20:.0f} MiB a day")
    for name, (cpu_s, memory_mb) in costs.items():
        print(f"  {name:30} {cpu_s:6.3f} s CPU  {cpu_s / SECONDS:7.3%} of a core  {memory_mb:5.1f} MB")
    everything, host, sar, pidstat, pidstat_all, mpstat = costs.values()
    print(f"host samplers / (sar + pidstat): {host[0] / (sar[0] + pidstat[0]):.2f}x CPU")
    print(
        f"host samplers / (sar + pidstat of what we record): {host[0] / (sar[0] + pidstat_all[0]):.2f}x CPU"
    )
    print(f"all samplers / (sar + pidstat): {everything[0] / (sar[0] + pidstat[0]):.2f}x CPU")
    print(f"all samplers / (sar + pidstat): {everything[1] / (sar[1] + pidstat[1]):.2f}x memory")
    is_met = everything[0] / SECONDS * 100 <= TARGET_PERCENT and everything[1] <= TARGET_MB
    together = sar[0] + pidstat[0] + mpstat[0]
    print(f"a hunt / (sar -A + pidstat + mpstat): {everything[0] / together:.2f}x CPU")
    is_hunt_met = everything[0] / SECONDS * 100 <= HUNT_PERCENT and everything[1] <= HUNT_MB
    print(
        f"a hunt's target of {HUNT_PERCENT}% of a core and {HUNT_MB:.0f} MB: {'met' if is_hunt_met else 'MISSED'}"
    )
    print(f"target of {TARGET_PERCENT}% of a core and {TARGET_MB:.0f} MB: {'met' if is_met else 'MISSED'}")


@contextlib.contextmanager
def load(server: Server) -> Iterator[None]:
    server.sql("CREATE DATABASE sbtest")
    sysbench = ["sysbench", "oltp_read_write", "--db-driver=mysql", f"--mysql-socket={server.socket}"]
    sysbench += ["--mysql-user=root", "--tables=1", "--table-size=10000", "--threads=16"]
    subprocess.run([*sysbench, "prepare"], check=True, stdout=subprocess.DEVNULL)
    work = subprocess.Popen([*sysbench, f"--rate={RATE}", "--time=0", "run"], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        work.terminate()
        work.wait()


def measure(commands: dict[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """CPU seconds and peak memory in MB of each command and its children over the same SECONDS."""
    processes = {
        name: subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "LC_ALL": "C"}
        )
        for name, argv in commands.items()
    }
    try:
        time.sleep(SECONDS + 0.5)
        # Before they end: sar does not wait for its child, whose usage would be lost.
        costs = {name: usage(process.pid) for name, process in processes.items()}
        for name, process in processes.items():
            if process.poll() is not None:
                raise SystemExit(f"{name} ended early with {process.returncode}")
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    return costs


def usage(session: int) -> tuple[float, float]:
    """CPU seconds, to the nanosecond, and peak memory in MB of the processes of a session."""
    cpu_ns, memory_kb = 0, 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) != session:
                continue
            for task in (folder / "task").iterdir():
                cpu_ns += int((task / "schedstat").read_text().split()[0])
            status = (folder / "status").read_text()
        except OSError:
            continue
        memory_kb += int(status.split("VmHWM:")[1].split()[0])
    return cpu_ns / 1e9, memory_kb / 1024


if __name__ == "__main__":
    main()
