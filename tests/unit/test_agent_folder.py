"""The agent's copy on a host lies where nobody else may replace it: root runs it."""

from __future__ import annotations

import asyncio
import os
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from headrace.base.errors import Refused
from headrace.host.agent import program
from headrace.host.target.local import LocalTarget
from headrace.host.target.shell import SAFE
from headrace.host.target.ssh import _HELLO

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root gives folders to another account")


def why(folder: Path) -> str:
    """Why it is not safe; empty if it is."""
    argv = ["sh", "-c", f'{SAFE}\nsafe "$0"', str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert bool(done.stdout) == bool(done.returncode), done
    assert not done.stderr
    return done.stdout.strip()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home" / ".cache" / "headrace"
    found.mkdir(parents=True)
    return found


def test_a_folder_of_our_own_is_safe_also_below_one_where_all_may_put_names(home: Path) -> None:
    assert why(home) == ""
    home.parent.parent.chmod(0o1777)
    assert why(home) == ""
    link = home.parent / "link"
    link.symlink_to("headrace")
    assert why(link) == ""


LINK = "rmdir .cache/headrace; ln -s"
#: What is wrong -> what makes it so, in the home folder.
ATTACKS = {
    "all may write to it": "chmod 777 .cache/headrace",
    "all may write to it, none may rename": "chmod 1777 .cache/headrace",
    "its group may write to it": f"chgrp {OTHER} .cache/headrace; chmod 775 .cache/headrace",
    "another owns it": f"chown {OTHER} .cache/headrace",
    "another owns the folder above": f"chown {OTHER} .cache",
    "all may rename the folder above": "chmod 777 .",
    "another owns one where all may put names": f"chmod 1777 .; chown {OTHER} .",
    "a link to a folder of another": f"mkdir x; chown {OTHER} x; {LINK} $PWD/x .cache/headrace",
    "a link through one of another": f"mkdir -p x/y; chown {OTHER} x; {LINK} ../x/y .cache/headrace",
    "a link in one of another": f"mkdir x; ln -s ../.cache x/y; chown {OTHER} x; {LINK} $PWD/x/y .cache/headrace",
    "a file": "rmdir .cache/headrace; echo >.cache/headrace",
}


@as_root
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_folder_that_others_may_change_is_not(home: Path, attack: str) -> None:
    subprocess.run(["sh", "-c", ATTACKS[attack]], cwd=home.parent.parent, check=True)
    assert str(home.parent.parent) in why(home)


def _allow(folder: Path, user: int) -> None:
    """What ``setfacl -m u:USER:rwx`` does: for stat, only the group of the folder seems to get something."""
    everybody = 0xFFFFFFFF
    entries = ((1, 7, everybody), (2, 7, user), (4, 5, everybody), (16, 7, everybody), (32, 5, everybody))
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)
    os.setxattr(folder, "system.posix_acl_access", content)


@as_root
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_folder_whose_list_lets_another_write_is_not(home: Path, level: int) -> None:
    folder = [home, *home.parents][level]
    try:
        _allow(folder, OTHER)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o775
    assert folder.stat().st_gid == 0
    assert why(home) == f"{folder}: its access control list lets others write to it"
    if folder != home:
        folder.chmod(0o1775)
        assert why(home) == ""


@as_root
def test_root_does_not_run_a_copy_from_there(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binary = tmp_path / "headrace-agent"
    binary.write_bytes(b"\x7fELF" + bytes(16))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home.parent))
    home.chmod(0o777)
    with pytest.raises(Refused, match="others may change the program"):
        asyncio.run(program._copy_once(binary, LocalTarget()))
    assert not list(home.iterdir())


@as_root
@pytest.mark.parametrize("is_made", [True, False])
def test_a_connection_asks_before_anything_is_put_there(home: Path, is_made: bool) -> None:
    def said() -> list[str]:
        env = {**os.environ, "HOME": str(home.parent.parent)}
        env.pop("XDG_CACHE_HOME", None)
        done = subprocess.run(["sh", "-c", _HELLO], env=env, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    if not is_made:
        home.rmdir()
    assert said()[2] == "safe"
    home.parent.chmod(0o777)
    old = home / "ended" / "headrace-0"
    old.parent.mkdir(exist_ok=True)
    old.write_text("0\n")
    os.utime(old, (0, 0))
    assert said()[2:] == [f"{home.parent}: others may write to it"]
    assert old.exists()
    home.parent.chmod(0o755)
    assert said()[2] == "safe"
    assert not old.exists()
