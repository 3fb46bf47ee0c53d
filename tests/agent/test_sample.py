"""``headrace-agent sample`` on this host: what it writes, and what it survives."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from headrace.experiment.stats.disturbance import RESTING
from headrace.host.arrow import read_samples
from tests.programs import agent_path, has
from tests.servers import Server, mariadb, open_folder
from tests.waiting import until

SERVER_SAMPLERS = {
    "mysql_status",
    "innodb_metrics",
    "innodb_cmp",
    "innodb_mutex",
    "innodb_status",
    "mysql_waits",
    "statements",
    "processlist",
    "replication",
    "temptable",
    "thread_pool",
}
Record = dict[str, Any]


def sample(*arguments: str | Path, code: int = 0) -> list[Record]:
    argv = [agent_path(), "sample", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def listed() -> dict[str, list[str]]:
    """Sampler -> the words that describe it."""
    argv = [agent_path(), "sample", "--samplers", "list"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return {name: words for name, *words in map(str.split, done.stdout.splitlines())}


def decode(path: Path) -> tuple[list[Record], bool]:
    """The records of a compressed stream, and whether it was ended properly."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    text = decompressor.decompress(path.read_bytes())
    return [json.loads(line) for line in io.BytesIO(text) if line.endswith(b"\n")], decompressor.eof


def wait_until(path: Path, ticks: int) -> None:
    """Wait until a stream has so many ticks."""
    until(
        lambda: (
            path.exists()
            and path.stat().st_size > 0
            and len(by_sampler(decode(path)[0]).get("cpu", [])) >= ticks
        )
    )


def by_sampler(records: list[Record]) -> dict[str, list[Record]]:
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record["sampler"], []).append(record)
    return grouped


@pytest.fixture
def spawned() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_every_sampler_of_the_host_reports_counters_that_grow() -> None:
    samples = by_sampler(sample("--interval", "200ms", "--duration", "400ms"))
    known = set(listed())
    assert known > SERVER_SAMPLERS
    assert set(samples) == known - SERVER_SAMPLERS
    cpus = {f"cpu{n}" for n in range(os.cpu_count() or 1)}
    for name, records in samples.items():
        # A virtual machine has no thermal and no energy counters, an old kernel no PSI.
        if name in ("thermal", "powercap", "psi") and not records[0]["ok"]:
            assert "tried again" in records[0]["error"]
            continue
        # What is not due on every tick is sampled on the first and the last.
        assert [record["ok"] for record in records] == [True] * (2 if name in RESTING else 3), records
        assert all(record["cost_ns"] > 0 for record in records)
        times = [record["t_ns"] for record in records]
        assert times == sorted(times)
        assert abs(times[0] / 1e9 - time.time()) < 60
    cpu = [record["values"] for record in samples["cpu"]]
    assert set(cpu[0]["user"]) == {"all", *cpus}
    busy = [sum(values[metric]["all"] for metric in ("user", "system", "idle")) for values in cpu]
    assert busy[2] > busy[0]
    assert cpu[2]["ctxt"][""] > cpu[0]["ctxt"][""]
    assert set(samples["softirqs"][0]["values"]["NET_RX"]) == cpus
    assert samples["memory"][0]["values"]["MemTotal"][""] % 1024 == 0
    assert samples["snmp"][0]["values"]["Tcp.RetransSegs"][""] >= 0
    assert "lo" in samples["network"][0]["values"]["rx_bytes"]
    name = Path(agent_path()).name[:15]
    own = [label for label in samples["process"][0]["values"]["threads"] if label.endswith(f"/{name}")]
    assert own, "the agent follows itself"
    assert samples["agent"][2]["values"]["cpu_ns"][""] > samples["agent"][0]["values"]["cpu_ns"][""]


def test_the_numbers_are_those_of_the_kernel() -> None:
    before = Path("/proc/diskstats").read_text().splitlines()
    records = by_sampler(sample("--samplers", "disk,memory", "--duration", "0s"))
    after = Path("/proc/diskstats").read_text().splitlines()
    low, high = (
        {line.split()[2]: list(map(int, line.split()[3:])) for line in lines} for lines in (before, after)
    )
    disk = records["disk"][0]["values"]
    for column, metric in enumerate(("reads", "reads_merged", "sectors_read", "read_ms", "writes")):
        for device, value in disk[metric].items():
            if device in low and device in high:
                assert low[device][column] <= value <= high[device][column], (metric, device)
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert records["memory"][0]["values"]["MemTotal"] == {"": total}


def test_a_busy_process_is_listed_and_an_idle_one_is_not(spawned: list[subprocess.Popen[bytes]]) -> None:
    spawned.append(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
    spawned.append(subprocess.Popen(["sleep", "60"]))
    busy, idle = spawned[0].pid, spawned[1].pid
    time.sleep(0.1)
    # 128 idle processes are looked at in a tick: this is long enough for a host with a thousand.
    records = sample("--interval", "200ms", "--duration", "3400ms", "--samplers", "process")
    listed = [{int(label.split("/")[0]) for label in record["values"]["utime_ticks"]} for record in records]
    assert sum(idle in pids for pids in listed) == 1, "everything is listed once, as the base of its counters"
    assert sum(busy in pids for pids in listed) > 1
    label = f"{busy}/sh"
    times = [r["values"]["utime_ticks"][label] for r in records if label in r["values"]["utime_ticks"]]
    assert times[-1] > times[0]
    followed = sample(
        "--duration", "0s", "--samplers", "process", "--processes", "followed", "--follow", "sleep"
    )
    assert f"{idle}/sleep" in followed[0]["values"]["threads"]
    assert label not in followed[0]["values"]["threads"]


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_the_stream_properly(
    name: signal.Signals, tmp_path: Path, spawned: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "samples.jsonl.zst"
    process = subprocess.Popen([agent_path(), "sample", "--interval", "100ms", "--output", str(path)])
    spawned.append(process)
    wait_until(path, 3)
    process.send_signal(name)
    assert process.wait(5) == 0
    records, is_ended = decode(path)
    assert is_ended
    counts = {name: len(records) for name, records in by_sampler(records).items() if name in ("cpu", "agent")}
    assert counts["cpu"] == counts["agent"] >= 3, "the last tick is whole"
    assert read_samples(path).num_rows > 1000


def test_a_kill_costs_at_most_the_last_tick(tmp_path: Path, spawned: list[subprocess.Popen[bytes]]) -> None:
    path = tmp_path / "samples.jsonl.zst"
    process = subprocess.Popen([agent_path(), "sample", "--interval", "100ms", "--output", str(path)])
    spawned.append(process)
    wait_until(path, 5)
    process.kill()
    process.wait()
    records, is_ended = decode(path)
    assert not is_ended
    assert len(by_sampler(records)["cpu"]) >= 5
    assert len(set(read_samples(path)["t_ns"].to_pylist())) >= 5


def test_a_missing_file_fails_its_sampler_only(tmp_path: Path) -> None:
    for name in ("stat", "softirqs", "meminfo", "vmstat"):
        (tmp_path / "proc").mkdir(exist_ok=True)
        (tmp_path / "proc" / name).write_text(Path("/proc", name).read_text())
    (tmp_path / "proc" / "vmstat").write_text("this is no vmstat\n")
    samples = by_sampler(
        sample(
            "--root", tmp_path, "--interval", "50ms", "--duration", "100ms", "--samplers",
            "cpu,softirqs,memory,disk,vmstat",
        )
    )  # fmt: skip
    for name in ("cpu", "softirqs", "memory"):
        assert [record["ok"] for record in samples[name]] == [True] * 3
    # What is absent is tried again rarely; what fails otherwise, on every tick.
    assert [record["ok"] for record in samples["disk"]] == [False]
    assert "proc/diskstats" in samples["disk"][0]["error"]
    assert "tried again every 60 s" in samples["disk"][0]["error"]
    assert [record["ok"] for record in samples["vmstat"]] == [False] * 3
    assert "this is no vmstat" in samples["vmstat"][0]["error"]


def test_late_ticks_are_counted_and_skipped(spawned: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    path = tmp_path / "samples.zst"
    argv = [agent_path(), "sample", "--interval", "100ms", "--output", str(path), "--samplers", "cpu,agent"]
    process = subprocess.Popen(argv)
    spawned.append(process)
    wait_until(path, 2)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.5)
    process.terminate()
    assert process.wait(5) == 0
    records = by_sampler(decode(path)[0])
    missed = records["agent"][-1]["values"]["missed_ticks"][""]
    assert missed >= 8
    times = [record["t_ns"] / 1e9 for record in records["cpu"]]
    assert max(b - a for a, b in itertools.pairwise(times)) >= 0.9
    # Every moment of the schedule was a tick or was missed: nothing was made up for, and nothing shifted.
    assert abs((times[-1] - times[0]) / 0.1 - (len(times) - 1 + missed)) < 1.5


def test_a_disk_without_room_is_one_clear_line() -> None:
    argv = [agent_path(), "sample", "--interval", "50ms", "--duration", "5s", "--output", "/dev/full"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 8
    assert "cannot write the samples: No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_went_away_is_no_error() -> None:
    script = f"{agent_path()} sample --interval 20ms --duration 20s | head -n 1"
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 10


#: Asked each 1, 2, 4 ... 30 s: seldom anything to write, and the host's loop has no line of its own.
NO_SERVER = ("--samplers", "mysql_status", "--mysql-socket", "/nonexistent")


def test_without_a_reader_it_ends_also_where_only_a_server_is_sampled() -> None:
    script = f"{agent_path()} sample --interval 20ms {' '.join(NO_SERVER)} | head -n 1"
    argv = ["bash", "-o", "pipefail", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "more", [NO_SERVER, ("--processes", "all", "--interval", "10ms")], ids=["quiet", "full"]
)
@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "closed"])
def test_a_leased_one_ends_by_itself_whether_it_has_nothing_to_write_or_no_room(
    more: tuple[str, ...], is_silent: bool
) -> None:
    # A busy machine may delay a line by a second; all lines together take longer than the lease.
    lease = "3s" if is_silent else "60s"
    argv = [agent_path(), "sample", "--lease", lease, *more]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        try:
            for _ in range(12 if is_silent else 1):
                process.stdin.write(b"\n")
                process.stdin.flush()
                time.sleep(0.3)
            assert process.poll() is None
            if not is_silent:
                process.stdin.close()
            # Nobody reads: where it writes much, it waits for room by now.
            assert process.wait(20) in (0, 1)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lease", "10ms"), "shortest lease"),
        (("--samplers", "cpu,gpu"), 'there is no sampler "gpu"'),
        (("--samplers", "mysql_status"), "needs a server"),
        (("--interval", "1ms"), "shortest interval"),
        (("--duration", "10"), "such as 500ms or 60s"),
        (("--mysql-host", "localhost", "--mysql-tls", "verify-ca"), "needs --mysql-tls-ca"),
        (("--mysql-socket", "/x", "--mysql-host", "y"), "cannot be used with"),
    ],
)
def test_wrong_arguments_are_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    argv = [agent_path(), "sample", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_list_describes_every_sampler() -> None:
    assert all(len(words) > 3 for words in listed().values())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if not has("mariadbd"):
        pytest.skip("mariadbd is not installed")
    with open_folder() as folder, mariadb(folder / "m") as server:
        yield server


def test_a_server_that_stands_still_makes_gaps_in_its_own_samples_only(
    server: Server, tmp_path: Path, spawned: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "samples.jsonl.zst"
    argv = [agent_path(), "sample", "--interval", "200ms", "--output", str(path)]
    argv += ["--mysql-socket", server.socket, "--mysql-user", "root"]
    spawned.append(subprocess.Popen(argv))
    wait_until(path, 3)
    names = ("mysql_status", "innodb_metrics", "replication")

    def asked(name: str) -> list[Record]:
        return by_sampler(decode(path)[0])[name]

    os.kill(server.pid, signal.SIGSTOP)
    stopped_ns = time.time_ns()
    try:
        time.sleep(6.5)
        # Where an answer takes long, the sampler may rest when the server stops.
        until(lambda: any("did not answer within 5 s" in each.get("error", "") for each in asked(names[0])))
    finally:
        os.kill(server.pid, signal.SIGCONT)
    continued_ns = time.time_ns()
    until(lambda: all(asked(name)[-1]["ok"] and asked(name)[-1]["t_ns"] > continued_ns for name in names))
    spawned[0].terminate()
    assert spawned[0].wait(5) == 0
    samples = by_sampler(decode(path)[0])

    def gap_s(name: str) -> float:
        times = [record["t_ns"] / 1e9 for record in samples[name] if record["ok"]]
        return float(max(b - a for a, b in itertools.pairwise(times)))

    # A sampler that waits for the server has at most one sample in this time; a busy machine only delays some.
    for name in ("cpu", "disk", "process", "agent"):
        assert sum(stopped_ns < record["t_ns"] < continued_ns for record in samples[name]) >= 5, name
    for name in names:
        assert gap_s(name) > 5, name
    failed = [record for record in samples["mysql_status"] if not record["ok"]]
    assert all(record["t_ns"] >= stopped_ns - 10**9 for record in failed)
    assert samples["agent"][-1]["values"]["missed_ticks"]["server"] >= 20


def test_a_stop_does_not_wait_for_a_server_that_stands_still(
    server: Server, tmp_path: Path, spawned: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "samples.jsonl.zst"
    argv = [agent_path(), "sample", "--interval", "100ms", "--output", str(path)]
    argv += ["--mysql-socket", server.socket, "--mysql-user", "root"]
    os.kill(server.pid, signal.SIGSTOP)
    try:
        spawned.append(subprocess.Popen(argv))
        wait_until(path, 3)
        began = time.monotonic()
        spawned[0].terminate()
        assert spawned[0].wait(5) == 0
        assert time.monotonic() - began < 3
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert decode(path)[1]


def test_a_server_that_is_restarted_is_found_again(
    server: Server, tmp_path: Path, spawned: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "samples.jsonl.zst"
    argv = [agent_path(), "sample", "--interval", "100ms", "--output", str(path)]
    argv += ["--mysql-socket", server.socket, "--mysql-user", "root"]
    spawned.append(subprocess.Popen(argv))
    wait_until(path, 3)
    server.restart()
    time.sleep(4)
    spawned[0].terminate()
    assert spawned[0].wait(5) == 0
    records = by_sampler(decode(path)[0])["mysql_status"]
    states = [record["ok"] for record in records]
    assert states[0]
    assert not all(states)
    assert states[-1]
    assert records[-1]["values"]["uptime"][""] < 60
