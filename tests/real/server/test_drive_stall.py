"""A server that stands still for two seconds: an open loop sees what users would, a closed one asks nothing.

In an open loop of rate r over T seconds, an operation that is due u seconds into a stall of S seconds waits for
the rest of the stall, and then for those before it: r x u operations, which the server works off at its capacity
C. Its response time is S - u x (1 - r / C), and so it is for those that come while the queue shrinks. Above x lie
r x (S - x) / (1 - r / C) of r x T operations, so the response time above which 1% of them lie is

    p99 = S - 0.01 x T x (1 - r / C)

which is 1.9 s for S = 2, T = 10 and a server that catches up in no time, and 1.95 s for one that is but twice as
fast as it has to be.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.base.buckets import bucket_value
from headrace.experiment.workloads.tables import percentile_ns
from tests.driver import Driven, drive, driven
from tests.servers import Server, mariadb

SECONDS = 10
STALL_S = 2.0
#: When the server stops, after the driver was started: connecting takes some of it.
STALL_AFTER_S = 3.0
RATE_OPS_S = 2000
CONNECTIONS = 8
POINT_SELECT = {"kind": "oltp", "script": "point_select", "tables": 1, "table_size": 10_000}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m") as server:
        server.sql("CREATE DATABASE sbtest")
        drive(login(server), {"workload": POINT_SELECT}, verb="load")
        yield server


def login(server: Server) -> list[str]:
    return ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"]


def stalled(server: Server, spec: dict[str, Any]) -> tuple[Driven, float]:
    """A run in which the server stands still once; and for how many seconds it really did."""
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(driven, login(server), spec)
        time.sleep(STALL_AFTER_S)
        begin_s = time.monotonic()
        server.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(STALL_S)
        finally:
            server.process.send_signal(signal.SIGCONT)
            stall_s = time.monotonic() - begin_s
        return run.result(), stall_s


def quantile_s(run: Driven, share: float) -> float:
    value_ns = percentile_ns(run.histogram("response"), share)
    assert value_ns is not None, "no operation ended"
    return value_ns / 1e9


def spec(seconds: float, pacing: dict[str, Any]) -> dict[str, Any]:
    return {"workload": POINT_SELECT, "connections": CONNECTIONS, "seconds": seconds, "pacing": pacing}


def test_an_open_loop_sees_what_arithmetic_predicts(server: Server) -> None:
    undisturbed = driven(login(server), spec(1, {"kind": "closed"}))
    capacity_ops_s = undisturbed.sum("count")
    assert capacity_ops_s > 2 * RATE_OPS_S, "this machine is too slow for the test"
    pacing = {"kind": "open", "arrivals": "constant", "rate_ops_s": RATE_OPS_S}
    run, stall_s = stalled(server, spec(SECONDS, pacing))
    assert run.start["pacing"] == "open"
    # Nothing that was due was left out, and nothing failed: that alone makes the rest worth something.
    assert run.sum("count") == RATE_OPS_S * SECONDS
    assert run.sum("errors") == 0
    catch_up = 1 - RATE_OPS_S / capacity_ops_s
    assert quantile_s(run, 0.99) == pytest.approx(stall_s - 0.01 * SECONDS * catch_up, rel=0.03)
    # Wider: the larger the share, the more of it is how fast the server worked the queue off.
    assert quantile_s(run, 0.9) == pytest.approx(stall_s - 0.1 * SECONDS * catch_up, rel=0.2)
    # From the send there was nothing but one stall a connection.
    sent = [count for bucket, count in run.histogram("service").items() if bucket_value(bucket) > 1e9]
    assert sum(sent) <= CONNECTIONS


def test_a_closed_loop_reports_one_long_request_a_connection_and_says_that_it_is_closed(
    server: Server,
) -> None:
    run, stall_s = stalled(server, spec(6, {"kind": "closed"}))
    assert run.start["pacing"] == "closed"
    assert run.sum("errors") == 0
    long = {
        bucket: count for bucket, count in run.histogram("response").items() if bucket_value(bucket) > 1e9
    }
    assert sum(long.values()) == CONNECTIONS
    for bucket in long:
        assert float(bucket_value(bucket)) / 1e9 == pytest.approx(stall_s, rel=0.03)
    # Which is why its p99 must not be taken for what users saw.
    assert quantile_s(run, 0.99) < 0.05 * stall_s
