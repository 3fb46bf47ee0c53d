"""The latency ladder: measured for real, beside the published one; what is out of balance, by rules."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import StoreError
from headrace.hunt.ladder.published import RUNGS, Ladder, duration, imbalances, read
from headrace.hunt.ladder.report.ladder import bar, terminal, to_json
from tests.programs import agent_path
from tests.servers import mariadb
from tests.written import printed


def start(**changes: Any) -> dict[str, Any]:
    line: dict[str, Any] = {
        "kind": "start",
        "spoiled_by": [],
        "memory": {"available_bytes": 64 << 30},
        "server": None,
    }
    return {**line, "file_system": "ext4", "device": "/dev/x", **changes}


def ladder(medians_ns: dict[str, float], p99_ns: dict[str, float] | None = None, **of_start: Any) -> Ladder:
    rows: list[dict[str, Any]] = [start(**of_start)]
    for rung, median_ns in medians_ns.items():
        tail = (p99_ns or {}).get(rung, 2 * median_ns)
        row = {"median_ns": median_ns, "p99_ns": tail, "min_ns": median_ns, "low_ns": median_ns}
        row |= {"high_ns": median_ns, "confidence": 0.98, "repetitions": 1000}
        rows.append({"kind": "rung", "rung": rung, "method": "m", "spoiled_by": [], **row})
    return read([*rows, {"kind": "end", "elapsed_s": 1.0}])


POOL = {"is_local": True, "buffer_pool_bytes": 128 << 20, "data_bytes": 2 << 30}
DURABLE = {"is_local": True, "flush_log_at_trx_commit": 1, "log_bin": 1, "sync_binlog": 1}

#: What is named, the medians, what else is known; and the same, changed so that it must not be named.
CASES: dict[str, tuple[dict[str, float], dict[str, Any], dict[str, float], dict[str, Any]]] = {
    "flash-behind-one-lock": (
        {"device_read": 80_000, "device_read_32": 4_000, "mutex_handover": 8_000}, {},
        {"device_read": 80_000, "device_read_32": 79_000, "mutex_handover": 8_000}, {},
    ),
    "memory-idle-beside-a-small-pool": (
        {"device_read": 80_000, "memory": 100}, {"server": POOL},
        {"device_read": 80_000, "memory": 100}, {"server": {**POOL, "buffer_pool_bytes": 4 << 30}},
    ),
    "commit-dominates": (
        {"commit_512": 1e6, "server": 5e4}, {"server": DURABLE},
        {"commit_512": 1e6, "server": 5e4}, {"server": {**DURABLE, "flush_log_at_trx_commit": 2}},
    ),
    "sync-slower-than-network": (
        {"commit_512": 1e6, "network_2kb": 2e5}, {}, {"commit_512": 1e5, "network_2kb": 2e5}, {},
    ),
    "loopback-slower-than-device": (
        {"loopback_2kb": 5e4, "device_read": 1e4}, {}, {"loopback_2kb": 1e4, "device_read": 5e4}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", CASES)
def test_a_pair_out_of_balance_is_named_with_its_numbers(code: str) -> None:
    medians, known, balanced, otherwise = CASES[code]
    (found,) = imbalances(ladder(medians, **known))
    assert found.code == code
    assert any(duration(medians[rung]) in found.sentence for rung in found.rungs if rung in medians)
    assert imbalances(ladder(balanced, **otherwise)) == []
    # Without one of its numbers the rule says nothing, or says it without that number.
    for rung in medians:
        imbalances(ladder({r: v for r, v in medians.items() if r != rung}, **known))


def test_a_server_elsewhere_does_not_use_this_memory() -> None:
    assert imbalances(ladder({"device_read": 8e4, "memory": 100}, server={**POOL, "is_local": False})) == []


def test_a_tail_of_commits() -> None:
    (found,) = imbalances(ladder({"commit_512": 1e5}, {"commit_512": 4e6}))
    assert found.code == "uneven-sync"
    assert "40 times" in found.sentence


@pytest.mark.parametrize("rows", [[], [{}], [{"kind": "rung"}], [start()]])
def test_half_a_ladder_is_refused(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(StoreError, match="not the lines of a ladder"):
        read(rows)


def test_durations_and_bars() -> None:
    shown = [duration(value) for value in (0.5, 104.2, 999, 1350, 2.5e6, 3e9)]
    assert shown == ["0.5 ns", "104 ns", "999 ns", "1.35 us", "2.5 ms", "3 s"]
    assert bar(0.1) == bar(-5) == ""
    assert len(bar(1e8)) == len(bar(1e12)) == 27
    assert len(bar(1e4)) - len(bar(1e3)) == 3


def measured(*options: str) -> subprocess.CompletedProcess[str]:
    argv = [agent_path(), "ladder", "--seconds", "1", "--file-size", "16", *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def test_every_rung_of_this_machine(folder: Path) -> None:
    with mariadb(folder / "m") as server:
        login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
        address = f"127.0.0.1:{server.port}"
        done = measured("--file", str(folder), "--target-address", address, *login)
        assert done.returncode == 0, done.stderr
        # One connection to see that it is a MySQL server, none after it.
        assert server.status("Aborted_connects") <= 1
    assert sorted(path.name for path in folder.iterdir()) == []
    found = read(map(json.loads, done.stdout.splitlines()))
    here, missing = {rung.rung for rung in found.rungs}, found.missing
    assert here | set(missing) >= set(RUNGS) - {"network_2kb"}
    assert "--mysql-host" in missing["network_connect"]
    # Caches depend on the machine; these do not.
    assert {"mutex", "loopback_2kb", "server", "branch_mispredict"} <= here
    assert {"device_read", "commit_512", "append_fsync", "device_1mb"} <= here, missing
    for rung in found.rungs:
        if rung.rung != "branch_mispredict":  # a difference
            assert 0 < rung.min_ns <= rung.median_ns <= rung.p99_ns
        assert rung.low_ns <= rung.high_ns
        assert rung.method
    assert found.server is not None
    assert found.server["is_local"]
    assert found.server["buffer_pool_bytes"] == 32 << 20
    assert found.server["data_bytes"] > 0
    assert found.server["flush_log_at_trx_commit"] == 1
    memory, page = found.median_ns("memory"), found.median_ns("device_read")
    assert memory is None or page is None or memory < page
    assert "Jeff Dean" in printed(terminal(found), width=160)
    assert json.loads(json.dumps(to_json(found)))["rungs"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_behind(tmp_path: Path, number: int) -> None:
    argv = [agent_path(), "ladder", "--seconds", "60", "--file-size", "16", "--file", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["kind"] == "start"
        links = [os.readlink(path) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
        assert sum(link.startswith(str(tmp_path)) and link.endswith("(deleted)") for link in links) == 3
        asked = time.monotonic()
        process.send_signal(number)
        code = process.wait(20)
        assert time.monotonic() - asked < 10
    assert code == (-9 if number == signal.SIGKILL else 1)
    assert list(tmp_path.iterdir()) == []


def test_only_a_file_of_its_own_is_written(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("mine")
    assert measured("--file", str(file)).returncode == 5
    assert file.read_text() == "mine"
    assert measured("--file", str(tmp_path / "none")).returncode == 2
