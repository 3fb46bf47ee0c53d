"""A change that ``apply`` made is verified by its id: its time, its host and the way back come from the host."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import headrace
from tests.servers import Server, mariadb


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m") as server:
        yield server


def test_the_id_names_the_time_the_host_and_the_way_back(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    login = ("--mysql-socket", server.socket, "--mysql-user", "root")
    since = time.time()
    applied = headrace("apply", "server.long_query_time=3.5", *login, "--json")
    assert applied.returncode == 0, applied.stderr
    change = json.loads(applied.stdout)["id"]
    until = time.time()
    rows = ["time,seconds,host,le_ms,count"]
    for i in range(-20, 21):
        start = until + 300 * i + (400 if i >= 0 else -400)
        # Twice as slow afterwards, on the changed host only.
        for host, is_changed in ((socket.gethostname(), i >= 0), ("other", False)):
            counts = (5000 + 37 * (i % 5), 5000) if not is_changed else (100, 9900 + 37 * (i % 5))
            rows += [f"{start},300,{host},{le},{n}" for le, n in zip((1, 1.05), counts, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    verify = ("verify", str(tmp_path / "a.csv"), "--control", "other", "--json", "--change")
    found = headrace(*verify, "last")
    assert found.stdout, found.stderr
    content = json.loads(found.stdout)
    assert since - 1 <= content["notice"]["at_s"] <= until + 1
    assert (content["treated"], content["control"]) == ([socket.gethostname()], ["other"])
    assert content["notice"]["next"] == f"headrace rollback --id {change}\n"
    assert json.loads(headrace(*verify, change).stdout)["notice"] == content["notice"]
    wrong = headrace(*verify, "20200101-000000-beef")
    assert (wrong.returncode, "headrace rollback --list" in wrong.stderr) == (3, True)
    undone = headrace("rollback", "--id", change)
    assert undone.returncode == 0, undone.stderr
