"""Virtual machines of an ordinary user, who boots a kernel of their own."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.host.target.local import LocalTarget
from headrace.lab.vm import image, processes, state
from tests.debian_kernel import Files, debian_kernel
from tests.ordinary_user import USER_ID, User, ordinary_user

pytestmark = pytest.mark.needs("root")
#: An emulated CPU of a busy machine is slow; a stuck one never ends.
PATIENCE_S = 400
BUILD_PATIENCE_S = 1800
NAME = "mine"


def caches(user: User) -> Path:
    return user.home / ".cache/headrace/vm"


@pytest.fixture
def user(request: pytest.FixtureRequest) -> Iterator[User]:
    """With lines in /etc/subuid, unless the test's parameter is False."""
    with ordinary_user(subordinate_ids=getattr(request, "param", True)) as user:
        yield user
        place = caches(user) / "machines" / NAME
        user.run("headrace", "lab", "down", "--all", timeout_s=PATIENCE_S)
        asyncio.run(processes.end_marked(place))


def give_image(user: User) -> None:
    """As docs/howto/virtual-machines.md says: root builds it, and the user gets a copy."""
    made = asyncio.run(image.root_image(LocalTarget(), print))
    roots = caches(user) / "roots"
    roots.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-r", "--sparse=always", made.folder, roots], check=True)
    owner = f"{USER_ID}:{USER_ID}"
    subprocess.run(["chown", "-R", owner, user.home / ".cache"], check=True)


def give_kernel(user: User) -> Files:
    """A tree as `make modules_install INSTALL_MOD_PATH=` and a copy of the image make it."""
    kernel = debian_kernel()
    tree = user.home / "linux"
    own = Files(kernel.release, tree / "boot/vmlinuz", tree / "lib/modules" / kernel.release)
    own.vmlinuz.parent.mkdir(parents=True)
    shutil.copy(kernel.vmlinuz, own.vmlinuz)
    shutil.copytree(kernel.modules, own.modules, symlinks=True)
    (own.modules / "of-my-own").touch()
    subprocess.run(["chown", "-R", f"{USER_ID}:{USER_ID}", tree], check=True)
    return own


def lab(user: User, *arguments: str, timeout_s: float = PATIENCE_S) -> str:
    answer = user.run("headrace", "lab", *arguments, timeout_s=timeout_s)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def check_and_take_down(user: User) -> str:
    """The machine answers, is the user's alone, and leaves nothing; the release of its kernel."""
    release = lab(
        user, "ssh", "--name", NAME, "--", "uname -r; modprobe xfs && grep -q xfs /proc/filesystems"
    )
    (found,) = json.loads(lab(user, "status", "--json"))
    assert found["state"] == "running"
    assert Path(f"/proc/{found['pid']}").stat().st_uid == USER_ID
    assert NAME not in [one.name for one in state.statuses()], "root's machines are others"
    lab(user, "down", NAME)
    assert json.loads(lab(user, "status", "--json")) == []
    assert list((caches(user) / "machines").iterdir()) == []
    assert processes.marked(caches(user) / "machines" / NAME) == []
    return release


@pytest.mark.parametrize("user", [False], indirect=True, ids=["no subordinate ids"])
def test_a_user_boots_a_kernel_of_their_own_from_an_image_that_root_built(user: User) -> None:
    kernel = give_kernel(user)
    # Its file's name says nothing: the release is in the file.
    up = ("up", NAME, "--kernel", str(kernel.vmlinuz), "--memory", "512M")
    answer = user.run("headrace", "lab", *up, timeout_s=PATIENCE_S)
    assert answer.returncode == 4, answer.stderr
    assert "apt-get install -y uidmap, with lines for you in /etc/subuid" in " ".join(answer.stderr.split())
    give_image(user)
    lab(user, *up)
    assert (
        lab(user, "ssh", "--name", NAME, "--", "ls /lib/modules/*/of-my-own").split("/")[3] == kernel.release
    )
    assert check_and_take_down(user) == kernel.release


@pytest.mark.needs("newuidmap")
@pytest.mark.thorough
def test_a_user_builds_the_image_and_fetches_a_kernel(user: User) -> None:
    lab(user, "up", NAME, "--kernel", "6.12", "--memory", "512M", timeout_s=BUILD_PATIENCE_S)
    assert check_and_take_down(user).startswith("6.12.")
