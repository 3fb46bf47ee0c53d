"""The workload that replays a recording, on a real server."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from headrace.base.errors import PlanError
from headrace.base.model import Option, ServerEndpoint, Vendor
from headrace.experiment.workloads import Context, make_workload
from tests import servers
from tests.contracts.workload import WorkloadContract, make_context
from tests.replays import Said, record, slow_log
from tests.servers import Server


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with servers.mariadb(folder / "s", "--innodb-flush-log-at-trx-commit=2") as running:
        yield running


RECORDING = Path(tempfile.gettempdir()) / f"headrace-replay-{os.getpid()}.rec"


class TestReplay(WorkloadContract):
    kind = "replay"
    concurrency = 2
    options: ClassVar[dict[str, Option]] = {
        "recording": str(RECORDING),
        "speed": "max",
        "database": "shop",
        "setup": ["CREATE TABLE seen (n INT)"],
        "check": True,
    }
    bad_option: ClassVar[tuple[str, Option]] = ("recording", "a.rec")
    impossible: ClassVar[dict[str, Option]] = {"recording": "/nowhere.rec"}

    @pytest.fixture
    def context(self, server: Server, tmp_path: Path) -> Iterator[Context]:
        self.server = server
        said = [Said(1 + n % 2, (n // 2) * 0.01, 0.01, "SELECT SLEEP(0.01)") for n in range(1000)]
        record(slow_log(tmp_path / "slow.log", said), RECORDING)
        server.sql("DROP DATABASE IF EXISTS bench", "CREATE DATABASE bench")
        yield make_context(tmp_path, ServerEndpoint(Vendor.MARIADB, "", server.socket, 0, "root", "bench"))
        server.sql("DROP DATABASE bench")
        RECORDING.unlink()

    async def leftovers(self, context: Context) -> list[str]:
        return [str(row[0]) for row in self.server.sql("SHOW TABLES FROM bench")]

    async def test_a_dump_is_read(self, context: Context, tmp_path: Path) -> None:
        dump = Path(context.endpoint.socket).parent / "dump.sql" if context.endpoint else tmp_path
        dump.write_text("CREATE TABLE dumped (n INT);\nINSERT INTO dumped VALUES (1), (2);\n")
        workload = make_workload(self.kind, {**self.options, "dump": str(dump), "setup": []})
        await workload.prepare(context)
        assert await self.leftovers(context) == ["dumped"]
        await workload.cleanup(context)
        assert await self.leftovers(context) == []

    async def test_a_recording_that_is_too_short_is_said(self, context: Context, tmp_path: Path) -> None:
        record(slow_log(tmp_path / "slow.log", [Said(1, 0, 0.01, "SELECT 1")]), RECORDING)
        workload = make_workload(self.kind, {**self.options, "speed": 1.0})
        await workload.prepare(context)
        measured = await workload.run(replace(context, warmup_s=0))
        assert any("the recording ended" in words for words in measured.warnings)

    def test_copies_that_write_must_be_meant(self) -> None:
        with pytest.raises(PlanError, match="scale_writes"):
            make_workload(self.kind, {**self.options, "sessions": 2})
