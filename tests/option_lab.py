"""A server whose option files are its own: /etc/mysql of a mount namespace, where headrace runs as well.

with option_lab("mariadb-10.11", folder) as lab:
    lab.write("conf.d/a.cnf", "[mysqld]\\nmax_connections = 77\\n")
    done = lab.headrace("apply", "server.max_connections=80", "--persist", "files")
    lab.restart()
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import Server, started

MAIN = "!includedir /etc/mysql/conf.d/\n"
OWN = "conf.d/zz-headrace.cnf"


@dataclass
class OptionLab:
    """``etc`` is what the namespace has as /etc/mysql; ``options`` are the last arguments of the server."""

    server: Server
    etc: Path
    state: Path
    base: Sequence[str]
    first: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)

    def write(self, name: str, text: str) -> None:
        path = self.etc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name: str = OWN) -> str | None:
        path = self.etc / name
        return path.read_text() if path.exists() else None

    def clear(self) -> None:
        """No option file but the main one, which includes a folder."""
        for path in sorted(self.etc.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.etc / "conf.d").mkdir()
        self.write("my.cnf", MAIN)
        self.first, self.options = [], []

    def restart(self, *options: str, first: Sequence[str] = ()) -> None:
        """With these options at the end of its command line, ``first`` at the beginning; or as before."""
        self.options = list(options) or self.options
        self.first = list(first) or self.first
        program, *rest = self.base
        self.server.argv = [program, *self.first, *rest, *self.options]
        self.server.restart()

    def value(self, name: str) -> str:
        return str(self.server.sql(f"SHOW GLOBAL VARIABLES LIKE '{name}'")[0][1])

    def headrace(self, *words: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
        """A command inside, with the server's login."""
        login = ["--mysql-socket", self.server.socket, "--mysql-user", "root"]
        takes_login = words[0] in ("apply", "knobs", "rollback")
        done = subprocess.run(
            [*self.server.prefix, sys.executable, "-m", "headrace", *words, *(login if takes_login else [])],
            env={**os.environ, "HEADRACE_STATE": str(self.state)},
            capture_output=True,
            text=True,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, done.stdout + done.stderr
        return done


@contextlib.contextmanager
def option_lab(kind: str, folder: Path) -> Iterator[OptionLab]:
    """A running server of a kind, started with its files' options; the test is skipped without it."""
    etc = folder / "etc"
    etc.mkdir(parents=True)
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-c",
         'mount --bind "$0" /etc/mysql && echo ready && exec sleep infinity', str(etc)],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        with started(kind, folder / "s") as server:
            kept = [
                w
                for w in server.argv
                if w != "--no-defaults" and "buffer-pool" not in w and "log-bin" not in w
            ]
            server.prefix = ["nsenter", f"--target={holder.pid}", "--mount", "--"]
            lab = OptionLab(server, etc, folder / "state", kept)
            lab.clear()
            lab.restart()
            yield lab
    finally:
        holder.kill()
        holder.wait()
