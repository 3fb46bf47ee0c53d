"""`headrace size prove` on a real server: two recordings alone, predicted, together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from headrace.base.errors import PlanError
from headrace.base.model import ServerLogin
from headrace.capacity import predictions
from headrace.capacity.measure import Measured, measure
from headrace.capacity.prove import Asked, prove
from headrace.capacity.report.prove import page_of
from headrace.host.target.local import LocalTarget
from headrace.show import html
from tests.commands import headrace
from tests.replays import Said, record, slow_log
from tests.servers import Server, mariadb

T = TypeVar("T")

#: Seconds of a recording: one of warm-up, and the fewest that a play may count.
SECONDS, SESSIONS, ROWS = 6, 4, 5000
#: Long enough to be played several times as fast.
LONG_S = 30
RATES = {"shop": 300, "blog": 60}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m") as found:
        for name in RATES:
            found.sql(
                f"CREATE DATABASE {name}",
                f"CREATE TABLE {name}.t (id INT PRIMARY KEY, k INT NOT NULL)",
                f"INSERT INTO {name}.t SELECT seq, seq % 97 FROM {name}.seq_1_to_{ROWS}",
            )
        yield found


def recorded(folder: Path, database: str, sql: Callable[[random.Random], str]) -> Path:
    dice = random.Random(database)
    times = sorted(dice.uniform(0, LONG_S) for _ in range(LONG_S * RATES[database]))
    said = [
        Said(n % SESSIONS, at_s, 1e-4, sql(dice), database) for n, at_s in enumerate([0.0, *times, LONG_S])
    ]
    return record(slow_log(folder / f"{database}.log", said), folder / f"{database}.rec")


async def on_here(work: Callable[[LocalTarget], Awaitable[T]]) -> T:
    target = LocalTarget()
    await target.connect()
    try:
        return await work(target)
    finally:
        await target.close()


@pytest.mark.thorough
def test_two_recordings_are_predicted_and_then_played_together(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shop = recorded(tmp_path, "shop", lambda dice: f"SELECT k FROM t WHERE id = {dice.randint(1, ROWS)}")
    blog = recorded(tmp_path, "blog", lambda dice: f"UPDATE t SET k = {dice.random():.4f} * 9 WHERE id < 9")
    asked = Asked((str(shop), str(blog)), blocks=2, seconds=5, warmup_s=1)
    login = ServerLogin(socket=server.socket, user="root")
    proof = asyncio.run(on_here(lambda target: prove(target, asked, login, lambda what, left_s: None)))
    assert proof.holds
    # The dearer of the two is played alone so fast that the host is as busy as with both.
    assert proof.busy
    outcomes = {
        (each.prediction.what, each.prediction.quantity): each.measured.estimate for each in proof.outcomes
    }
    assert outcomes["", "cpu"] > 0
    for path in (shop, blog):
        assert outcomes[str(path), "throughput"] == pytest.approx(RATES[path.stem], rel=0.25)
    assert 0 < outcomes[str(shop), "p99"] < 60
    # 300 statements are too few for a p99.
    assert (str(blog), "p99") not in outcomes
    kept = predictions.every()
    assert {(each.prediction.what, each.prediction.quantity): each.measured for each in kept} == outcomes
    assert server.sql("SELECT COUNT(*) FROM blog.t WHERE id < 9 AND k < 10")[0][0] == 8
    assert "Together on one host" in html.render(page_of(proof))
    told = headrace("size", "predictions")
    # On a busy machine a p99 has only a lower bound.
    tried = sum(each.prediction.is_interval for each in kept)
    assert f"of {tried} predictions lay in their 95% interval" in told.stdout


def test_classes_that_always_come_together_are_measured_apart(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cheap statement and a dear one after each other, in one session: no statistics can tell them apart."""
    dear = "SELECT SUM(a.k) FROM t a JOIN t b ON b.id < 9 WHERE a.k % 7 = {}"
    said = []
    for n in range(SECONDS * 40 + 1):
        said.append(Said(n % SESSIONS, n / 40, 1e-4, f"SELECT k FROM t WHERE id = {n + 1}", "shop"))
        said.append(Said(n % SESSIONS, n / 40 + 1e-3, 1e-4, dear.format(n % 7), "shop"))
    recording = record(slow_log(tmp_path / "both.log", said), tmp_path / "both.rec")
    asked = Asked((str(recording),), blocks=1, warmup_s=1)
    login = ServerLogin(socket=server.socket, user="root")

    def measured(*wanted: str) -> Measured:
        return asyncio.run(
            on_here(lambda target: measure(target, asked, login, wanted, 5, lambda what, left_s: None))
        )

    classes = measured().classes
    cost = {each.text: each.costs["cpu_server"].estimate for each in classes}
    assert len(cost) == 2
    by_dearness = sorted(cost, key=lambda text: cost[text])
    assert "sum" in by_dearness[1].lower()
    # 40,000 rows against one; on a busy machine the server's own work counts with both.
    assert cost[by_dearness[1]] > 2 * cost[by_dearness[0]]
    # Exactly what was recorded was played, and nothing is left of the parts.
    assert all(each.per_s == pytest.approx(40, rel=0.25) for each in classes)
    assert not list(Path("/var/tmp").glob("headrace-*/*.rec"))

    with pytest.raises(PlanError, match="no class of"):
        measured("nothing")
