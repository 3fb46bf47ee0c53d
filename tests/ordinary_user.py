"""An ordinary user of this machine, with a home of their own. As root only; the home is gone when the block ends.

The interpreter and this checkout may lie in a folder that only root may enter, as /root is. Each command of the
user runs in a mount namespace where such folders hold nothing but these.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.folders import ROOT
from tests.traces import FORGET_MOUNTS

#: nobody, whom every Debian has.
USER_ID = 65534
NAME = "nobody"
#: What `adduser` writes for a new user; uidmap's programs read it.
SUBORDINATE = f"{NAME}:100000:65536\n"
EVERYBODY = 0o001


@dataclass(frozen=True)
class User:
    """``home`` is theirs; ``prefix`` goes before a command of theirs."""

    home: Path
    prefix: tuple[str, ...]

    @property
    def env(self) -> dict[str, str]:
        """What a login gives, and nothing of ours."""
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        return {"HOME": str(self.home), "USER": NAME, "PATH": path, "LANG": "C.UTF-8", "NO_COLOR": "1"}

    def run(self, *argv: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        words = [*self.prefix, *argv]
        return subprocess.run(
            words, capture_output=True, text=True, env=self.env, cwd=self.home, timeout=timeout_s, check=False
        )


@contextlib.contextmanager
def ordinary_user(*, subordinate_ids: bool) -> Iterator[User]:
    """``subordinate_ids``: with lines in /etc/subuid and /etc/subgid."""
    # Not below pytest's folder, which only root may enter.
    home = Path(tempfile.mkdtemp(prefix="hr-home-", dir="/var/tmp"))
    beside = Path(tempfile.mkdtemp(prefix="hr-user-", dir="/var/tmp"))
    try:
        os.chown(home, USER_ID, USER_ID)
        (beside / "ids").write_text(SUBORDINATE if subordinate_ids else "")
        script = beside / "become"
        script.write_text(FORGET_MOUNTS + _reachable(beside) + _identity(beside))
        yield User(home, ("unshare", "--mount", "sh", "-e", str(script)))
    finally:
        shutil.rmtree(beside)
        shutil.rmtree(home)


def _identity(beside: Path) -> str:
    ids = "".join(
        f"[ ! -e {file} ] || mount --bind {beside}/ids {file}\n" for file in ("/etc/subuid", "/etc/subgid")
    )
    return f'{ids}exec setpriv --reuid={USER_ID} --regid={USER_ID} --clear-groups -- "$@"\n'


def _reachable(beside: Path) -> str:
    """Empty folders over those that only root may enter, and in them what the user needs to run headrace."""
    behind = {path: closed for path in (ROOT, Path(sys.base_prefix)) if (closed := _closed_above(path))}
    script = ""
    for number, path in enumerate(behind):
        kept = beside / str(number)
        kept.mkdir()
        script += f"mount --bind {path} {kept}\n"
    for closed in set(behind.values()):
        script += f"mount -t tmpfs -o mode=755 tmpfs {closed}\n"
    for number, path in enumerate(behind):
        script += f"mkdir -p {path}; mount --move {beside}/{number} {path}\n"
    return script


def _closed_above(path: Path) -> Path | None:
    """The topmost folder on the way to the path that not everybody may enter."""
    way = [*reversed(path.parents), path]
    return next((folder for folder in way if not folder.stat().st_mode & EVERYBODY), None)
