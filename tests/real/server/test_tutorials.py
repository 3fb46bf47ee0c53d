"""The tutorials, as a reader follows them: every file they show is saved, every command is run, in one shell.

Only the sockets differ: they are those of private servers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.folders import ROOT
from tests.servers import Server, mariadb

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
TIMEOUT_S = 400.0
#: What each tutorial must have shown in the end; the text says the same.
SHOWN = {
    "find-the-bottleneck": ("busy", "POOL01"),
    "prove-a-change": ("128M", "9 of 9", "samples.parquet"),
    "apply-and-roll-back": ("innodb_io_capacity", "400"),
    "saturation-point": ("knee",),
    "test-an-upgrade": ("shop", "update sbtest1", "commit"),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path that every account may enter: a server of another user lives below it."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def script(page: str) -> str:
    """The page's shell commands in order; ``json`` and ``toml`` blocks are saved under the names it gives."""
    parts = []
    for kind, text in re.findall(r"^```(sh|toml|json)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if kind == "sh":
            parts.append(text)
        else:
            [name] = re.findall(rf"[Ss]ave (?:this|it) as `([\w.]+\.{kind})`", page)
            parts.append(f"cat > {name} <<'END'\n{text}END\n")
    return "".join(parts)


def follow(page: str, folder: Path, sockets: dict[str, str]) -> subprocess.CompletedProcess[str]:
    commands = script(page)
    for shown, real in sockets.items():
        commands = commands.replace(shown, real)
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HEADRACE_STATE": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "160",
    }
    return subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", commands],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.beside
def test_every_tutorial_is_followed() -> None:
    assert {path.stem for path in TUTORIALS} == set(SHOWN)


@pytest.mark.parametrize(
    "name", [pytest.param("prove-a-change", marks=pytest.mark.beside), "saturation-point"]
)
def test_a_tutorial_with_a_private_server(name: str, folder: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text()
    # Not the default scratch directory, which another run on this machine may use.
    target = f'[target]\nscratch = "{folder / "scratch"}"\n\n[volume]'
    done = follow(page, folder, {"[volume]": target})
    assert done.returncode == 0, done.stdout[-4000:]
    for text in SHOWN[name]:
        assert text in done.stdout


@pytest.mark.parametrize(
    "name", ["find-the-bottleneck", pytest.param("apply-and-roll-back", marks=pytest.mark.beside)]
)
def test_a_tutorial_with_a_running_server(name: str, folder: Path) -> None:
    with mariadb(folder / "server") as server:
        before = server.sql("SELECT @@innodb_io_capacity")
        page = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text()
        done = follow(page, folder, {"/run/mysqld/mysqld.sock": server.socket})
        assert done.returncode == 0, done.stdout[-4000:]
        for text in SHOWN[name]:
            assert text in done.stdout
        assert server.sql("SELECT @@innodb_io_capacity") == before


@pytest.mark.beside
def test_the_tutorial_about_an_upgrade(folder: Path) -> None:
    with (
        mariadb(folder / "production") as production,
        mariadb(folder / "old") as old,
        mariadb(folder / "new") as new,
    ):
        servers: dict[str, Server] = {"mysqld": production, "old": old, "new": new}
        # The tutorial's loop names a socket by its folder.
        for name, server in servers.items():
            (folder / "run" / name).mkdir(parents=True)
            (folder / "run" / name / "mysqld.sock").symlink_to(server.socket)
        page = (ROOT / "docs" / "tutorials" / "test-an-upgrade.md").read_text()
        done = follow(page, folder, {"/run/": f"{folder}/run/"})
        assert done.returncode == 0, done.stdout[-4000:]
        for text in SHOWN["test-an-upgrade"]:
            assert text in done.stdout
        assert production.sql("SELECT @@slow_query_log") == [(0,)]
