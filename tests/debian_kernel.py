"""A kernel's files as a user has them: Debian's, fetched once with apt into ``HEADRACE_CACHE``."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headrace.lab.vm.kernels import natural
from tests.lab import check
from tests.shared import made_once

SERIES = "6.12"
PACKAGE = re.compile(rf"linux-image-{re.escape(SERIES)}\.[\w.+]+-cloud-amd64")
FETCH_TIMEOUT_S = 300


@dataclass(frozen=True)
class Files:
    """``modules`` is the folder of this release. Both are shared by all tests: copy them to change anything."""

    release: str
    vmlinuz: Path
    modules: Path


def debian_kernel() -> Files:
    """The newest of ``SERIES`` that is kept, else that apt has."""
    tree = made_once(f"linux-{SERIES}", _unpack)
    modules = next(tree.glob("lib/modules/*"), None) or next(tree.glob("usr/lib/modules/*"))
    return Files(modules.name, tree / "boot" / f"vmlinuz-{modules.name}", modules)


def _unpack(folder: Path) -> None:
    check("dpkg-deb", "-x", _package(), folder)


def _package() -> Path:
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    kept = list(cache.glob(f"linux-image-{SERIES}.*-cloud-amd64_*.deb"))
    return max(kept, key=lambda file: natural(file.name)) if kept else _fetch(cache)


def _fetch(cache: Path) -> Path:
    if not _listed():
        _apt("update", cache)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        _apt("download", Path(folder), max(_listed(), key=natural))
        package = next(Path(folder).glob("*.deb"))
        return package.rename(cache / package.name)


def _listed() -> list[str]:
    names = check("apt-cache", "pkgnames", f"linux-image-{SERIES}.").split()
    return [name for name in names if PACKAGE.fullmatch(name)]


def _apt(command: str, folder: Path, *names: str) -> None:
    subprocess.run(["apt-get", "-qq", command, *names], cwd=folder, timeout=FETCH_TIMEOUT_S, check=True)
