"""Servers newer than this machine's Debian: unpacked from packages of a later suite, never installed.

mmdebstrap fetches them once, with the mirror that apt is configured for, into ``HEADRACE_CACHE``
(``~/.cache/headrace``). The programs then use the libraries that they came with, and run as installed ones do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.shared import alone, made_once

#: On a machine that is not new they are there already.
FETCH_TIMEOUT_S = 300
#: Where Debian keeps libraries, below the root and below a server's own folder.
LIBRARIES = "lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
WANTED = (
    "sbin/m*d", "bin/mariadb", "bin/mariadb-install-db", "bin/my_print_defaults", "bin/resolveip",
    LIBRARIES, "lib/mysql", "share/mariadb", "share/mysql",
)  # fmt: skip


@dataclass(frozen=True)
class Package:
    """A server of another suite. ``program`` is its path below /usr."""

    suite: str
    packages: str
    program: str


PACKAGES = {
    "mariadb-11.8": Package("trixie", "mariadb-server-core,mariadb-server", "sbin/mariadbd"),
    "mysql-9.7": Package("sid", "mysql-server-core", "sbin/mysqld"),
}


def find_packaged(name: str) -> Path | str:
    """The path of a server's program, unpacked where needed; or one line that says why it is not available."""
    missing = [program for program in ("mmdebstrap", "patchelf") if not shutil.which(program)]
    if missing:
        return f"no {name}: install {', '.join(missing)}"
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    archive = cache / f"{name}.tar.gz"
    with alone(f"fetching-{name}"):
        if not archive.exists() and (problem := _fetch(PACKAGES[name], archive)):
            return f"no {name}: {problem}"
    folder = made_once(name, lambda part: _unpack(archive, part, part.with_name(name)))
    return folder / PACKAGES[name].program


def _fetch(package: Package, archive: Path) -> str | None:
    mirror = _mirror()
    if mirror is None:
        return "apt has no mirror of Debian on this machine"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        part = Path(folder) / archive.name
        argv = ["mmdebstrap", "--variant=extract", f"--include={package.packages}"]
        argv += ['--aptopt=APT::Install-Recommends "false"']
        # Signatures are checked all the same: a mirror that is only renewed now and then has dates of the past.
        argv += ['--aptopt=Acquire::Check-Valid-Until "false"']
        argv += [package.suite, str(part), f"deb {mirror} {package.suite} main"]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"mmdebstrap needed more than {FETCH_TIMEOUT_S} s"
        if done.returncode:
            return f"mmdebstrap: {done.stderr.strip()[-300:]}"
        part.rename(archive)
    return None


def _mirror() -> str | None:
    """The mirror of Debian that apt uses here; another suite is beside the machine's own."""
    if not shutil.which("apt-get"):
        return None
    listed = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)"]
    done = subprocess.run(listed, capture_output=True, text=True, check=False)
    found = (line.split()[-1] for line in done.stdout.splitlines() if line.startswith("Debian Debian "))
    return next(found, None)


def _unpack(archive: Path, part: Path, whole: Path) -> None:
    """What the server needs, so that it runs from ``whole``, where ``part`` will be."""
    wanted = [f"./usr/{name}" for name in WANTED]
    tar = ["tar", "-xzf", str(archive), "-C", str(part), "--no-same-owner", "--strip-components=2"]
    # Some of these are missing in each package: the vendors use different names.
    subprocess.run([*tar, "--exclude=perl*", "--wildcards", *wanted], stderr=subprocess.DEVNULL, check=False)
    programs = [path for path in [*part.glob("sbin/*"), *part.glob("bin/*")] if not path.is_symlink()]
    for path in programs:
        with path.open("rb") as content:
            if content.read(4) != b"\x7fELF":
                continue
        patch = ["patchelf", "--set-interpreter", str(whole / LOADER)]
        # Not a runpath: plugins look for their libraries here, too.
        patch += ["--force-rpath", "--set-rpath", str(whole / LIBRARIES)]
        subprocess.run([*patch, str(path)], check=True)
