"""Packets: digest of a capture in MB/s, bytes of a recorded event, and what a live capture costs at 20,000
queries/s.

Targets: 300 MB of capture a second; at most 60 bytes an event of sysbench's read-write mix; live on loopback no
drop and under 25% of one core. The traffic is sysbench's and the driver's against a private MariaDB, captured
by tcpdump."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.driver import drive, driven
from tests.replays import captured
from tests.servers import Server, mariadb, open_folder
from tests.traces import cpu_s

MINUTES = 2
NEEDS = {"tcpdump": "tcpdump", "sysbench": "sysbench", "mariadbd": "mariadb-server"}
NEEDS_ROOT = True

AGENT = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")
SECONDS = int(os.environ.get("HEADRACE_BENCH_SECONDS", "10"))
RATE = 20_000
DIGEST_MB_S, EVENT_BYTES, CORE_SHARE = 300.0, 60.0, 0.25
TABLE = {"kind": "oltp", "tables": 1, "table_size": 10_000, "script": "point_select"}


def main() -> None:
    with (
        open_folder() as folder,
        mariadb(
            folder / "m", "--innodb-buffer-pool-size=256M", "--innodb-flush-log-at-trx-commit=2"
        ) as server,
    ):
        server.sql(
            "CREATE DATABASE sbtest",
            "CREATE USER bench@'127.0.0.1'",
            "GRANT ALL ON *.* TO bench@'127.0.0.1'",
        )
        sysbench(server, "prepare", "auto")
        for mode in ("auto", "disable"):
            pcap = folder / f"{mode}.pcap"
            with captured(server.port, pcap):
                sysbench(server, "run", mode)
            files(server, pcap, {"auto": "prepared", "disable": "text"}[mode])
            pcap.unlink()
        drive(login(server), {"workload": {**TABLE}}, verb="clean")
        drive(login(server), {"workload": TABLE}, verb="load")
        live(server, folder)


def login(server: Server) -> list[str]:
    where = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port)]
    return [*where, "--mysql-user", "bench", "--mysql-database", "sbtest", "--mysql-tls", "disabled"]


def sysbench(server: Server, command: str, prepared: str) -> None:
    argv = ["sysbench", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}", "--mysql-user=bench"]
    argv += [
        f"--db-ps-mode={prepared}",
        "--tables=2",
        "--table-size=10000",
        "--threads=4",
        f"--time={SECONDS}",
    ]
    subprocess.run([*argv, "oltp_read_write", command], check=True, capture_output=True)


def timed(*argv: str) -> tuple[str, float, float]:
    """Output, wall time and CPU time."""
    before, start = os.times(), time.monotonic()
    done = subprocess.run([AGENT, *argv], check=True, capture_output=True, text=True)
    wall_s, after = time.monotonic() - start, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, wall_s, cpu_s


def files(server: Server, pcap: Path, name: str) -> None:
    size_mb, port = pcap.stat().st_size / 1e6, str(server.port)
    runs = [timed("digest", str(pcap), "--port", port, "--format", "lines") for _ in range(3)]
    text, wall_s, cpu_s = min(runs, key=lambda run: run[1])
    coverage = json.loads(text.splitlines()[0])["coverage"]
    rate = size_mb / wall_s
    print(
        f"sysbench read-write, {name}: digest of {size_mb:.0f} MB, {coverage['events']:,} events: "
        f"{rate:.0f} MB/s, {size_mb / cpu_s:.0f} MB per s of CPU "
        f"(target {DIGEST_MB_S:.0f}: {met(rate >= DIGEST_MB_S)})"
    )
    for literals in ((), ("--with-literals",)):
        out = pcap.with_suffix(".rec")
        timed("record", str(pcap), "--port", port, "--output", str(out), "--force", *literals)
        each = out.stat().st_size / coverage["events"]
        words = "with literals" if literals else "fingerprints"
        verdict = met(each <= EVENT_BYTES)
        print(f"  recorded, {words}: {each:.1f} bytes an event (target {EVENT_BYTES:.0f}: {verdict})")
        out.unlink()


def live(server: Server, folder: Path) -> None:
    out = folder / "live.rec"
    argv = [AGENT, "record", "--interface", "lo", "--port", str(server.port), "--output", str(out)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        time.sleep(1)
        spec: dict[str, Any] = {"workload": TABLE, "connections": 8, "seconds": SECONDS}
        spec["pacing"] = {"kind": "open", "arrivals": "poisson", "rate_ops_s": RATE}
        run = driven(login(server), spec)
        time.sleep(1)
        used_s = cpu_s(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    coverage = json.loads(text)["totals"]["coverage"]
    share = used_s / SECONDS
    executed = run.sum("count")
    print(
        f"live on lo, {executed / SECONDS:,.0f} queries/s: {100 * share:.1f}% of a core (target 25%: "
        f"{met(share < CORE_SHARE)}), {coverage['dropped_packets']} packets dropped, "
        f"{coverage['events']:,} events of {executed:,} executions"
    )


def met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


if __name__ == "__main__":
    main()
