"""A planted missing index: a hunt under load names it, and `prove` takes the finding and drops what it built."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import commands, programs
from tests.real.server.test_hunt_planted import sessions
from tests.servers import Server, started

PLACE = "shop.orders(customer,state)"
LOAD = (
    "SELECT note FROM orders WHERE customer = 77 AND state = 3",
    "SELECT note FROM orders WHERE customer = 78 AND state = 2 UNION SELECT note FROM orders WHERE customer = 9",
    "SELECT note FROM orders WHERE id = 7",
)


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=pytest.mark.thorough)])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    with started(request.param, folder / f"lacking-{request.param}", "--performance-schema=ON") as running:
        running.sql(
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, state INT, note VARCHAR(80))",
            "INSERT INTO orders (customer, state, note) VALUES (1, 1, 'a note')",
            *["INSERT INTO orders (customer, state, note) SELECT id % 997, id % 1009, note FROM orders"] * 15,
            "ANALYZE TABLE orders",
        )
        yield running


def headrace(server: Server, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"XDG_STATE_HOME": str(folder), "HEADRACE_AGENT": programs.agent_path()}
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    return commands.headrace(*words, "--json", *login, env=env)


def hunted(server: Server, folder: Path) -> list[dict[str, Any]]:
    """What it says of classes that examine many rows."""
    done = headrace(server, folder, "hunt", "--duration", "5s")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return [finding for finding in found if finding["id"].startswith("STMT02@")]


def test_the_hunt_names_the_index_and_prove_takes_the_finding(server: Server, tmp_path: Path) -> None:
    with sessions(server, 2, *LOAD):
        found = hunted(server, tmp_path)
        assert found
        for finding in found:
            said = " ".join(finding["remedies"][0]["steps"])
            assert f"Candidate: an index on {PLACE}, to find rows by customer" in said
            assert f"`headrace prove 'index:{PLACE}' --live`" in said
            login = f"--mysql-socket {server.socket} --mysql-user root"
            assert finding["next"] == f"headrace prove 'index:{PLACE}' --live {login}"
        words = ("--live", "--duration", "2s", "--warmup", "200ms", "--blocks", "4")
        proof = headrace(server, tmp_path, "prove", found[0]["id"], *words)
    assert f"{found[0]['id']} lacks an index on {PLACE}: that is tested" in proof.stderr
    assert proof.returncode == 0, proof.stderr
    assert json.loads(proof.stdout)["whole"]["verdict"] == "faster"
    assert not server.sql("SHOW INDEX FROM shop.orders WHERE Key_name <> 'PRIMARY'")


@pytest.mark.thorough
def test_with_its_index_the_class_is_no_finding(server: Server, tmp_path: Path) -> None:
    server.sql("ALTER TABLE shop.orders ADD INDEX k (customer, state)")
    try:
        with sessions(server, 2, *LOAD[::2]):
            assert not hunted(server, tmp_path)
    finally:
        server.sql("ALTER TABLE shop.orders DROP INDEX k")
