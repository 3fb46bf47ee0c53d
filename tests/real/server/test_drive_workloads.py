"""The driver's workloads: the contract suite on real servers, and what their options become."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.base.errors import Busy, HeadraceError, WorkloadFailed
from headrace.base.model import Option, ServerEndpoint, Vendor
from headrace.experiment.store import RECONNECT
from headrace.experiment.workloads import Context, Workload, driven_from, make_workload
from headrace.experiment.workloads.drive.workload import Driven
from headrace.host.target.local import LocalTarget
from tests import servers
from tests.contracts.workload import SECONDS, WARMUP_S, WorkloadContract, make_context, window_rows
from tests.traces import processes_of

needs_memcached = pytest.mark.needs("memcached")

BY_ID: dict[str, Any] = {"kind": "int", "min": 1, "max": 500, "distribution": "zipf"}
#: Two kinds of work, one of several statements, with every kind of parameter.
OPERATIONS: list[Any] = [
    {
        "name": "read",
        "weight": 3,
        "statements": [{"sql": "SELECT c FROM sbtest1 WHERE id = ?", "parameters": [BY_ID]}],
    },
    {
        "name": "sell",
        "transaction": True,
        "statements": [
            {
                "sql": "INSERT INTO sale (id, product, price, note, shop) VALUES (?, ?, ?, ?, ?)",
                "parameters": [
                    {"kind": "sequence"},
                    BY_ID,
                    {"kind": "float", "min": 0.5, "max": 99.5},
                    {"kind": "text", "min_length": 5, "max_length": 20},
                    {"kind": "choice", "values": ["north", "south"]},
                ],
            },
            {
                "sql": "UPDATE sbtest1 SET k = k + 1 WHERE id = ?",
                "parameters": [{"kind": "same", "as": 1}],
            },
        ],
    },
]
SETUP = [
    "CREATE TABLE sale (id BIGINT PRIMARY KEY, product INT, price DOUBLE, note VARCHAR(20), shop VARCHAR(9))"
]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[servers.Server]:
    with servers.mariadb(folder / "s", "--innodb-flush-log-at-trx-commit=2") as running:
        running.sql("CREATE DATABASE bench")
        yield running


def tables(server: servers.Server) -> list[str]:
    sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'bench'"
    return [str(row[0]) for row in server.sql(sql)]


class OnServer(WorkloadContract):
    concurrency = 2
    bad_option: ClassVar[tuple[str, Option]] = ("connections", "8")
    impossible: ClassVar[dict[str, Option]] = {"connections": 1000}  # the server admits 151

    @pytest.fixture
    def context(self, tmp_path: Path, server: servers.Server) -> Iterator[Context]:
        self.server = server
        endpoint = ServerEndpoint(Vendor.MARIADB, "", server.socket, 0, "root", "bench")
        yield make_context(tmp_path, endpoint)
        server.sql("DROP DATABASE bench", "CREATE DATABASE bench")

    async def leftovers(self, context: Context) -> list[str]:
        return tables(self.server)

    async def test_an_open_loop_keeps_its_rate(self, context: Context) -> None:
        workload = make_workload(self.kind, {**self.options, "rate": 40, "arrivals": "constant"})
        await workload.prepare(context)
        measured = await workload.run(context)
        rows = [r for r in measured.intervals.to_pylist() if r["operation"] != RECONNECT]
        ended = sum(r["count"] for r in rows)
        # An operation counts where it ends: what a busy machine holds back while warming up comes in the window,
        # so the rate is that of the whole run. One that is due as it opens or closes may count or not.
        assert abs(ended - 40 * (WARMUP_S + SECONDS)) <= 3, measured.warnings


class TestOltp(OnServer):
    kind = "oltp"
    options: ClassVar[dict[str, Option]] = {"connections": 2, "tables": 2, "table_size": 1000}
    bad_option: ClassVar[tuple[str, Option]] = ("script", "sideways")
    impossible: ClassVar[dict[str, Option]] = {"tables": 3}

    @pytest.mark.parametrize(
        "script",
        [
            "point_select",
            "read_only",
            "write_only",
            "update_index",
            "update_non_index",
            "insert",
            "delete",
            "study",
        ],
    )
    async def test_every_script_runs(self, script: str, context: Context) -> None:
        workload = make_workload(self.kind, {**self.options, "script": script})
        await workload.prepare(context)
        measured = await workload.run(replace(context, seconds=0.6, warmup_s=0))
        assert {r["operation"] for r in window_rows(measured)} == {script}
        assert sum(r["errors"] for r in window_rows(measured)) == 0, measured.warnings

    async def test_a_stall_shows_in_the_tail_and_in_errors(self, context: Context) -> None:
        """The server is stopped for 0.8 s, and nobody waits longer than 0.3 s for an answer."""
        options: dict[str, Option] = {
            "script": "point_select",
            "rate": 200,
            "operation_timeout_s": 0.3,
            "connections": 4,
        }
        workload = make_workload(self.kind, {**self.options, **options})
        await workload.prepare(context)
        # From when the driver is connected: a busy machine starts it late.
        stall = stopped(self.server, int(str(options["connections"])), WARMUP_S + 1.0, 0.8)
        measured, _ = await asyncio.gather(workload.run(context), stall)
        failed = [r for r in measured.latency.to_pylist() if r["kind"] == "failed"]
        assert sum(r["count"] for r in failed) == 4
        assert any("error 3024" in text for text in measured.warnings)
        work = [r for r in window_rows(measured) if r["operation"] != RECONNECT]
        assert sum(r["errors"] for r in work) == 4
        # Those that came due meanwhile waited for it, although nobody could send them.
        assert max(r["max_ns"] for r in work if r["max_ns"]) > 0.5e9


class TestSql(OnServer):
    kind = "sql"
    options: ClassVar[dict[str, Option]] = {
        "connections": 2,
        "tables": 1,
        "table_size": 500,
        "setup": SETUP,
        "operations": OPERATIONS,
    }

    async def test_operations_do_what_they_say(self, context: Context) -> None:
        workload = make_workload(self.kind, self.options)
        await workload.prepare(context)
        measured = await workload.run(context)
        done: dict[str, int] = {"read": 0, "sell": 0}
        for row in measured.intervals.to_pylist():
            done[row["operation"]] += row["count"]
            assert row["errors"] == 0, measured.warnings
        ((sold, *found),) = self.server.sql(
            "SELECT COUNT(*), MIN(price) >= 0.5, MAX(price) <= 99.5, MIN(LENGTH(note)) >= 5, "
            "MAX(LENGTH(note)) <= 20, GROUP_CONCAT(DISTINCT shop ORDER BY shop) FROM bench.sale"
        )
        # What is under way when the window ends is done, and no operation of the window.
        assert 0 <= int(str(sold)) - done["sell"] <= 2
        assert found == [1, 1, 1, 1, "north,south"]
        assert done["read"] == pytest.approx(3 * done["sell"], rel=0.15)

    async def test_without_prepared_statements(self, context: Context) -> None:
        workload = make_workload(self.kind, {**self.options, "prepared": False})
        await workload.prepare(context)
        before = self.server.status("Com_stmt_execute")
        measured = await workload.run(replace(context, seconds=0.6, warmup_s=0))
        assert self.server.status("Com_stmt_execute") == before
        assert sum(r["errors"] for r in window_rows(measured)) == 0, measured.warnings

    async def test_a_setup_that_fails_is_quoted(self, context: Context) -> None:
        workload = make_workload(self.kind, {**self.options, "setup": ["CREATE TABLE sale (id NONSENSE)"]})
        with pytest.raises(WorkloadFailed, match=r"headrace-agent drive load ended with \d+: .*NONSENSE"):
            await workload.prepare(context)


class TestTpcc(OnServer):
    kind = "tpcc"
    options: ClassVar[dict[str, Option]] = {"connections": 2, "warehouses": 1}
    bad_option: ClassVar[tuple[str, Option]] = ("times", "local")

    async def test_a_broken_database_fails_the_trial_and_says_which_condition(self, context: Context) -> None:
        workload = make_workload(self.kind, self.options)
        await workload.prepare(context)
        table = next(name for name in tables(self.server) if name.endswith("warehouse"))
        self.server.sql(f"UPDATE bench.{table} SET w_ytd = w_ytd + 1")
        with pytest.raises(
            WorkloadFailed, match=r"inconsistent after the trial: condition 1 of clause 3\.3\.2"
        ):
            await workload.run(replace(context, seconds=0.6, warmup_s=0))


@needs_memcached
class TestMemcached(WorkloadContract):
    kind = "memcached"
    options: ClassVar[dict[str, Option]] = {"connections": 2, "keys": 1000}
    concurrency = 2
    bad_option: ClassVar[tuple[str, Option]] = ("get_share", 1.5)
    impossible: ClassVar[dict[str, Option]] = {}

    @pytest.fixture
    def context(self, tmp_path: Path) -> Context:
        return make_context(tmp_path)

    async def leftovers(self, context: Context) -> list[str]:
        return [*map(str, processes_of(context.owner)), *os.listdir(context.folder)]

    def spoil(self, context: Context) -> None:
        for pid in processes_of(context.owner):
            os.kill(pid, signal.SIGKILL)
        while processes_of(context.owner):
            time.sleep(0.01)

    async def test_it_is_on_loopback_under_an_account_without_rights(self, context: Context) -> None:
        workload = make_workload(self.kind, self.options)
        await workload.prepare(context)
        (pid,) = processes_of(context.owner)
        account = Path(f"/proc/{pid}").stat().st_uid
        listening = await context.target.run(["ss", "-Hltnp"])
        own = [line.split()[3] for line in listening.text.splitlines() if f"pid={pid}," in line]
        await workload.cleanup(context)
        assert len(own) == 1
        assert own[0].startswith("127.0.0.1:")
        assert account != 0

    async def test_a_taken_port_is_an_error(self, context: Context) -> None:
        first = make_workload(self.kind, self.options)
        await first.prepare(context)
        port = int(Path(context.folder, "memcached.address").read_text().partition(":")[2])
        with pytest.raises(Busy, match=f"port {port} is in use"):
            await make_workload(self.kind, {**self.options, "port": port}).prepare(context)
        await first.cleanup(context)


# --- options ------------------------------------------------------------------------------------------


def driven(kind: str, **options: Option) -> Driven[Any]:
    workload = make_workload(kind, options)
    assert isinstance(workload, Driven)
    return workload


def test_pacing() -> None:
    def pacing(**options: Option) -> Mapping[str, Any]:
        found: Mapping[str, Any] = driven("oltp", **options).options.pacing()
        return found

    closed = {"kind": "closed", "think_time_s": 0.0, "think_distribution": "constant"}
    assert pacing() == closed
    assert pacing(think_time_s=0.5) == {**closed, "think_time_s": 0.5}
    assert pacing(rate=500) == {"kind": "open", "arrivals": "poisson", "rate_ops_s": 500}
    piece = {"seconds": 5, "from_ops_s": 0, "to_ops_s": 100}
    assert pacing(profile=[piece], arrivals="constant") == {
        "kind": "open",
        "arrivals": "constant",
        "profile": [piece],
    }


def test_keys() -> None:
    def law(**options: Option) -> Mapping[str, Any]:
        found: Mapping[str, Any] = driven("memcached", **options).load()["distribution"]
        return found

    assert law() == {"kind": "uniform"}
    # What belongs to another law is not said, so that the law can be a factor.
    assert law(distribution="pareto", zipf_exponent=2) == {"kind": "pareto", "h": 0.2}
    assert law(distribution="zipf", zipf_exponent=2) == {"kind": "zipf", "exponent": 2}
    assert law(distribution="hot", hot_keys=0.1) == {"kind": "hot", "keys": 0.1, "operations": 0.75}


def test_the_data_set_is_what_changes_the_rows() -> None:
    def dataset(kind: str, **options: Option) -> Mapping[str, Any] | None:
        return make_workload(kind, options).dataset()

    assert dataset("oltp") == dataset("oltp", connections=9, rate=5, script="study", seed=8, clients=[])
    assert dataset("oltp") != dataset("oltp", tables=2)
    assert dataset("oltp") != dataset("oltp", secondary=True)
    assert dataset("tpcc", times="specification") == dataset("tpcc") != dataset("tpcc", warehouses=2)
    assert dataset("sql", operations=OPERATIONS) == dataset("sql", operations=OPERATIONS[:1], table_size=5)
    assert dataset("sql", operations=OPERATIONS) != dataset("sql", operations=OPERATIONS, setup=SETUP)
    assert dataset("memcached") is None


def test_who_drives() -> None:
    assert driven_from(make_workload("fio", {})) == ((), "")
    clients = ["root@lg1", "local"]
    workload: Workload = make_workload(
        "tpcc", {"connections": 2, "clients": clients, "server_address": "10.0.0.5"}
    )
    assert driven_from(workload) == (tuple(clients), "10.0.0.5")


async def test_a_client_elsewhere_needs_a_server_with_a_network(tmp_path: Path) -> None:
    endpoint = ServerEndpoint(Vendor.MARIADB, "", "/nowhere", 0, "root", "bench")
    context = replace(make_context(tmp_path, endpoint), clients=(LocalTarget(),))
    with pytest.raises(HeadraceError, match="without network access"):
        await make_workload("oltp", {"clients": ["root@lg1"]}).run(context)


async def stopped(server: servers.Server, clients: int, delay_s: float, seconds: float) -> None:
    """Stop a server for a while, some time after so many clients beside us are connected."""
    for _ in range(400):
        if await asyncio.to_thread(server.status, "Threads_connected") > clients:
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(delay_s)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(server.pid, signal.SIGCONT)
