"""A source's binary logs applied by a real replica of each vendor, without the source."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.errors import WorkloadFailed
from headrace.base.model import ServerEndpoint, Vendor
from headrace.experiment.workloads import Context, make_workload
from headrace.host.target.local import LocalTarget
from tests.servers import Server, started
from tests.vendors import OF_EACH_VENDOR

#: On its source it takes no time, on a replica a hundredth of a second: its rate is known.
PACED = "INSERT INTO shop.t (b) SELECT IF(@@GLOBAL.server_id = 1, 1, SLEEP(0.01))"
TABLE = "CREATE TABLE shop.t (a INT PRIMARY KEY AUTO_INCREMENT, b INT)"


@pytest.fixture(scope="module", params=OF_EACH_VENDOR)
def logs(request: pytest.FixtureRequest, folder: Path) -> tuple[str, list[str]]:
    """A kind of server, and binary logs of 1,600 transactions in two files."""
    options = ("--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT")
    place = folder / f"source-{request.param}"
    with started(request.param, place, *options) as source:
        source.sql("CREATE DATABASE shop", TABLE, "FLUSH BINARY LOGS")
        for _ in range(2):
            source.sql("SET autocommit = 1", *[PACED] * 800, "FLUSH BINARY LOGS")
        basename = Path(str(source.sql("SELECT @@log_bin_basename")[0][0]))
        names = [str(row[0]) for row in source.sql("SHOW BINARY LOGS")][-3:-1]
        # The source's own folder ends with it.
        copies = [shutil.copy(basename.with_name(name), folder / f"{request.param}.{name}") for name in names]
    return request.param, [str(copy) for copy in copies]


@pytest.fixture
def replica(logs: tuple[str, list[str]], folder: Path) -> Iterator[Server]:
    # The source had one session, so they apply one transaction after the other.
    parallel = ["--slave-parallel-threads=4", "--slave-parallel-mode=conservative"]
    if logs[0].startswith("mysql"):
        parallel = ["--replica-parallel-workers=4"]
    with started(logs[0], folder / f"replica-{time.monotonic_ns()}", *parallel) as server:
        server.sql("CREATE DATABASE trial")
        yield server


def context_of(server: Server, tmp_path: Path) -> Context:
    raw = tmp_path / "raw"
    raw.mkdir()
    vendor = Vendor.MARIADB if "MariaDB" in str(server.sql("SELECT VERSION()")[0][0]) else Vendor.MYSQL
    endpoint = ServerEndpoint(vendor, "", server.socket, 0, "root", "trial")
    return Context(LocalTarget(), f"apply-{time.monotonic_ns()}", str(tmp_path), endpoint, 4, 1, raw)


async def test_what_a_replica_applies_is_counted(
    logs: tuple[str, list[str]], replica: Server, tmp_path: Path
) -> None:
    context = context_of(replica, tmp_path)
    replica.sql("CREATE DATABASE shop", TABLE)
    workload = make_workload("apply", {"binlogs": logs[1]})
    await workload.prepare(context)
    # The data set is copied while its server is down.
    replica.restart()
    measured = await workload.run(context)

    rows = [row for row in measured.intervals.to_pylist() if row["t_s"] >= 0]
    number, seconds = sum(row["count"] for row in rows), sum(row["duration_s"] for row in rows)
    assert 3.5 < seconds < 8
    assert 20 < number / seconds <= 101
    applied = int(str(replica.sql("SELECT COUNT(*) FROM shop.t")[0][0]))
    assert sum(row["count"] for row in measured.intervals.to_pylist()) <= applied < 1600
    assert measured.warnings == ()

    await workload.cleanup(context)
    datadir = Path(str(replica.sql("SELECT @@datadir")[0][0]))
    assert [path.name for path in datadir.iterdir() if path.name.split(".")[-1] in ("001001", "001002")] == []


async def test_an_applier_that_stops_is_quoted(
    logs: tuple[str, list[str]], replica: Server, tmp_path: Path
) -> None:
    context = context_of(replica, tmp_path)
    workload = make_workload("apply", {"binlogs": logs[1]})
    await workload.prepare(context)
    with pytest.raises(WorkloadFailed, match=r"the applier stopped: .*shop"):
        await workload.run(context)


async def test_a_file_that_is_no_binary_log_is_named(
    logs: tuple[str, list[str]], replica: Server, tmp_path: Path
) -> None:
    text = tmp_path / "binlog.txt"
    text.write_text("BEGIN;\n")
    with pytest.raises(WorkloadFailed, match=rf"{text}: no binary log that can be read"):
        await make_workload("apply", {"binlogs": [*logs[1], str(text)]}).prepare(
            context_of(replica, tmp_path)
        )
