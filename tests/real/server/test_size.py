"""`headrace size` on samples of a real server: the calls that the driver made are the calls that are read."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.size import demand, history
from headrace.size.model import Resource
from tests.driver import driven
from tests.programs import agent_path, has
from tests.servers import Server, mariadb
from tests.waiting import until

#: How many in a second, for how long. Digests are sampled every 10 s: the first is over well before.
RATES = {"SELECT a FROM t WHERE a = ?": (150, 4), "SELECT SUM(a) FROM t WHERE a > ?": (40, 8)}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if not has("mariadbd"):
        pytest.skip("mariadbd is not installed")
    folder = Path(tempfile.mkdtemp(prefix="hr-size-"))
    folder.chmod(0o755)
    try:
        with mariadb(folder / "m", "--performance-schema=ON") as found:
            found.sql(
                "CREATE DATABASE shop",
                "CREATE TABLE shop.t (a INT PRIMARY KEY)",
                "INSERT INTO shop.t SELECT seq FROM shop.seq_1_to_1000",
            )
            yield found
    finally:
        shutil.rmtree(folder)


def test_the_calls_of_two_classes_are_read_from_samples(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "db1.jsonl.zst"
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    argv = [agent_path(), "sample", "--output", str(path), *login]
    made = []
    with subprocess.Popen(argv, text=True) as sampler:
        try:
            until(lambda: path.exists() and path.stat().st_size > 0, sampler)
            for sql, (rate, seconds) in RATES.items():
                statement = {"sql": sql, "parameters": [{"kind": "int", "min": 1, "max": 1000}]}
                operation = {"name": "work", "statements": [statement]}
                spec = {
                    "workload": {"kind": "sql", "prepared": False, "operations": [operation]},
                    "connections": 4,
                    "seconds": seconds,
                    "pacing": {"kind": "open", "arrivals": "constant", "rate_ops_s": rate},
                }
                made.append(driven([*login, "--mysql-database", "shop"], spec).sum("count"))
        finally:
            sampler.terminate()
    [found] = history.read(path)
    assert found.source == "digests"
    assert found.limits[Resource.CPU] == os.cpu_count()
    read = sorted((float(np.nansum(rate)) for rate in found.calls.values()), reverse=True)
    # The first of the two is complete within the one step between two samples of digests.
    assert found.demand.step_s == 10
    assert read[0] * 10 == pytest.approx(made[0], rel=0.3)
    # Beside other tests' servers nobody knows which one the CPU was for: only the host's is sure.
    assert np.nanmax(found.demand.used[Resource.CPU]) > 0
    # So few steps allow no cost, and that is said.
    assert demand.costs(found).refusal
