"""The client libraries of benches/clients.py: which versions, how each gets here, and how its driver is called.

What a registry has is fetched once into ``HEADRACE_CACHE`` (``~/.cache/headrace``), below ``clients``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

DRIVERS = Path(__file__).parent.parent / "clients"
CACHE = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace") / "clients"
TIMEOUT_S = 600

CONNECTOR_PYTHON = "mysql-connector-python==9.4.0"
MYSQL2 = "mysql2@3.14.1"
CONNECTOR_J = "com.mysql:mysql-connector-j:9.3.0"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


class Missing(Exception):
    """What this machine lacks, and what brings it."""


@dataclass(frozen=True)
class Driver:
    argv: list[str]
    version: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """``counts_found_rows``: the answer to an UPDATE counts the rows that it found, changed or not."""

    name: str
    title: str
    make: Callable[[], Driver]
    counts_found_rows: bool = False


def _called(argv: list[str], *, cwd: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        argv, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise Missing(f"{argv[0]} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout.strip()


def _program(name: str, package: str) -> None:
    if not shutil.which(name):
        raise Missing(f"needs {name}: apt-get install {package}")


def _once(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made once for each ``key``: the versions and sources in it."""
    folder = CACHE / name
    stamp = folder / "made-of"
    if not stamp.exists() or stamp.read_text() != key:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        stamp.write_text(key)
    return folder


def _pymysql() -> Driver:
    # Its own word for its version is mysqlclient's.
    return Driver([sys.executable, str(DRIVERS / "python_pymysql.py")], metadata.version("pymysql"))


def _connector_python() -> Driver:
    def make(folder: Path) -> None:
        _called([sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), CONNECTOR_PYTHON])

    folder = _once("python", CONNECTOR_PYTHON, make)
    argv = [sys.executable, str(DRIVERS / "python_connector.py")]
    return Driver(argv, CONNECTOR_PYTHON.partition("==")[2], {"PYTHONPATH": str(folder)})


def _mysql2() -> Driver:
    _program("npm", "nodejs npm")

    def make(folder: Path) -> None:
        argv = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            str(folder),
        ]
        _called([*argv, MYSQL2])

    modules = _once("node", MYSQL2, make) / "node_modules"
    version = json.loads((modules / "mysql2" / "package.json").read_text())["version"]
    return Driver(["node", str(DRIVERS / "node_mysql2.js")], version, {"NODE_PATH": str(modules)})


def _go_sql_driver() -> Driver:
    _program("go", "golang-go")
    source = DRIVERS / "go_sql_driver"
    requires = (source / "go.mod").read_text()

    def make(folder: Path) -> None:
        _called(
            ["go", "build", "-o", str(folder / "driver"), "."],
            cwd=source,
            GOTOOLCHAIN="local",
            GOMAXPROCS="1",
        )

    folder = _once("go", requires + (source / "main.go").read_text(), make)
    (version,) = (
        line.split()[-1] for line in requires.splitlines() if line.startswith("require github.com/go-sql")
    )
    return Driver([str(folder / "driver")], version.removeprefix("v"))


def _connector_j() -> Driver:
    _program("mvn", "maven")
    _program("javac", "default-jdk-headless")
    source = DRIVERS / "ConnectorJ.java"

    def make(folder: Path) -> None:
        _called(["mvn", "-q", "-B", COPY, f"-Dartifact={CONNECTOR_J}", f"-DoutputDirectory={folder}"])
        (jar,) = folder.glob("*.jar")
        _called(["javac", "-cp", str(jar), "-d", str(folder), str(source)])

    folder = _once("java", CONNECTOR_J + source.read_text(), make)
    (jar,) = folder.glob("*.jar")
    argv = ["java", "-Xmx1500m", "-XX:+UseSerialGC", "-cp", f"{jar}:{folder}", "ConnectorJ"]
    return Driver(argv, CONNECTOR_J.rpartition(":")[2])


def _mariadb() -> Driver:
    _program("mariadb", "mariadb-client")
    version = _called(["mariadb", "--version"]).partition("Distrib ")[2].partition(",")[0]
    return Driver(["sh", str(DRIVERS / "mariadb_cli.sh")], version.removesuffix("-MariaDB"))


LIBRARIES = (
    Library("pymysql", "PyMySQL", _pymysql),
    Library("connector_python", "Connector/Python", _connector_python),
    Library("mysql2", "mysql2 for Node", _mysql2, counts_found_rows=True),
    Library("go_sql_driver", "go-sql-driver", _go_sql_driver),
    Library("connector_j", "Connector/J", _connector_j, counts_found_rows=True),
    Library("mariadb_cli", "mariadb CLI", _mariadb),
)
