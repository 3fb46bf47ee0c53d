"""A server on ext4 with data=journal, live: named, with a remedy, and no other file system beside it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from headrace.base.model import ServerLogin
from headrace.host.target.local import LocalTarget
from headrace.hunt.hunt import Hunt, examine, watch
from tests import lab, programs
from tests.driver import drive
from tests.servers import Server, mariadb

pytestmark = pytest.mark.needs("mariadbd")

SPEC = {
    "workload": {"kind": "oltp", "script": "update_index", "tables": 1, "table_size": 20_000},
    "connections": 4,
    "seconds": 60.0,
}


def hunt(server: Server) -> Hunt:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"]
    server.sql("CREATE DATABASE sbtest")
    drive(login, SPEC, verb="load")
    argv = [programs.agent_path(), "drive", "run", "-", *login]
    with lab.running(argv, stdin=subprocess.PIPE) as driver:
        assert driver.stdin
        driver.stdin.write(json.dumps(SPEC).encode())
        driver.stdin.close()
        return examine(asyncio.run(watch(LocalTarget(), 6, ServerLogin(socket=server.socket, user="root"))))


@pytest.mark.parametrize(
    ("options", "is_ill"), [(("data=journal",), True), (("data=ordered", "noatime"), False)]
)
def test_the_journal_of_data_is_named_where_it_is(
    tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...], is_ill: bool
) -> None:
    # A short path: a socket lies in it. The server's own user must be able to go there.
    folder = Path("/var/tmp") / f"hr-fs-{os.getpid()}-{is_ill:d}"
    folder.mkdir(mode=0o755)
    image = folder / "image"
    lab.check("truncate", "-s", "1G", image)
    try:
        with (
            lab.loop_device(image) as device,
            lab.mounted(device, folder / "mnt", "ext4", *options) as mount,
            mariadb(mount / "m", "--innodb-flush-log-at-trx-commit=1") as server,
        ):
            found = hunt(server)
    finally:
        image.unlink()
        (folder / "mnt").rmdir()
        folder.rmdir()
    named = {
        f.id for f in found.judgement.findings if f.rule.area == "FS" and f.hit.subject == str(folder / "mnt")
    }
    ours = [f for f in found.judgement.findings if f.rule.code == "FS01"]
    if not is_ill:
        assert not ours
        return
    (finding,) = ours
    assert "data=journal" in finding.hit.summary
    settings = [setting for remedy in finding.hit.remedies for setting in remedy.settings]
    assert any(setting.startswith("volume.mount_options") for setting in settings)
    # The two that its mount causes stay silent beside it.
    assert not {name for name in named if name.startswith(("FS05", "FS07"))}
