"""The wheel and the source distribution, installed where nothing of this project is, and used."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

import pytest

from headrace import __version__
from headrace.base import extras
from tests import synthetic, wheels
from tests.folders import ROOT

MACHINE = platform.machine()
UV = Path(sys.executable).with_name("uv")
#: A fresh environment with nothing but headrace in it.
MOST_BYTES = 250_000_000
#: What a package of ours must not bring by way of another: each is larger than headrace.
NOT_BROUGHT = {*extras.EXTRAS, "pandas", "scikit-learn", "matplotlib", "plotly", "sqlalchemy"}


@dataclass(frozen=True)
class Installed:
    """An environment of its own, and a folder to work in."""

    python: Path
    folder: Path
    source: Path

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What a command printed; on standard error if it was to fail."""
        done = subprocess.run(
            [self.python.with_name("headrace"), *arguments],
            cwd=self.folder,
            env={**clean(), "HEADRACE_STATE": str(self.folder / "state")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout


def clean() -> Mapping[str, str]:
    """Nothing by which this project's own environment could be found."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def building() -> Mapping[str, str]:
    """The dependencies' crates are compiled already; from the source distribution ours are compiled again.

    Without optimisation, as for the tests: a fifth of the time, and a file that is missing is missing either way.
    """
    return {"CARGO_TARGET_DIR": str(ROOT / "target"), "MATURIN_PEP517_ARGS": "--profile dev", **clean()}


def why_not_static(program: bytes) -> str:
    """As `make wheel` asks before it claims that the agent needs no C library."""
    made = wheels.load()
    return str(made.why_not_static(program, made.PROCESSORS[MACHINE]))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, made as `make wheel` makes them. The agent is built already: `make setup` did it.

    For this machine only: the wheel for another processor takes minutes more, and does not run here.
    """
    folder = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, str(ROOT / "scripts" / "wheels.py"), "--target", MACHINE, "--out", str(folder)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("*.whl", id="wheel"),
        # It compiles the agent once more.
        pytest.param("*.tar.gz", id="sdist", marks=pytest.mark.thorough),
    ],
)
def headrace(
    built: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    (source,) = built.glob(request.param)
    folder = tmp_path_factory.mktemp("bare")
    python = folder / "env" / "bin" / "python"
    for argv in (
        ["venv", "-q", "--python", sys.executable, "env"],
        ["pip", "install", "-q", "--python", python, source],
    ):
        subprocess.run([UV, *argv], cwd=folder, env=building(), check=True)
    return Installed(python, folder, source)


def test_it_runs_from_its_own_environment_with_its_own_agent(headrace: Installed) -> None:
    assert headrace("--version") == f"headrace {__version__}\n"
    code = "import headrace; print(headrace.__file__)"
    where = subprocess.run(
        [headrace.python, "-c", code], env=clean(), capture_output=True, text=True, check=True
    )
    assert where.stdout.startswith(str(headrace.folder))
    agent = headrace.python.with_name("headrace-agent")
    answer = subprocess.run([agent, "--version"], capture_output=True, text=True, check=True)
    assert __version__ in answer.stdout
    assert why_not_static(agent.read_bytes()) == ""


def test_a_bare_environment_looks_at_hosts_and_plans(headrace: Installed) -> None:
    assert json.loads(headrace("facts", "--json"))["kernel"]
    assert "agent" in headrace("doctor", "--json")
    assert "filesystems" in headrace("plan", "list")
    assert "POOL" in headrace("rules")
    found = json.loads(headrace("hunt", "--duration", "3s", "--host-only", "--json"))
    assert found


def test_what_only_some_need_is_not_brought_and_named_when_it_is_needed(headrace: Installed) -> None:
    listed = subprocess.run(
        [UV, "pip", "list", "--python", headrace.python, "--format", "json"], capture_output=True, check=True
    )
    there = {package["name"] for package in json.loads(listed.stdout)}
    assert not there & NOT_BROUGHT
    shape = synthetic.Shape(effects={"STOCK": 1.0, "FAST": 1.3}, blocks=3, seconds=20, warmup_s=2, cores=2)
    synthetic.make(headrace.folder / "experiment", shape)
    assert "pip install 'headrace[analysis]'" in headrace("report", "experiment", code=4)
    assert "pip install 'headrace[tune]'" in headrace("tune", "tune", code=4)


def test_a_bare_environment_is_small(headrace: Installed) -> None:
    files = (
        path for path in headrace.python.parents[1].rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


def test_with_its_extra_it_analyses_and_reports(headrace: Installed) -> None:
    argv = ["pip", "install", "-q", "--python", str(headrace.python), f"{headrace.source}[analysis]"]
    subprocess.run([UV, *argv], cwd=headrace.folder, env=building(), check=True)
    rows = [
        f"{a},{b},{100 + 10 * i + j}" for i, a in enumerate("xy") for j, b in enumerate("pq") for _ in "12"
    ]
    (headrace.folder / "table.csv").write_text("\n".join(["kernel,mount,tps", *rows]))
    headrace(
        "import",
        "table.csv",
        "--factor",
        "kernel",
        "--factor",
        "mount",
        "--response",
        "tps",
        "--html",
        "page.html",
    )
    assert "kernel" in (headrace.folder / "page.html").read_text()
    assert "FAST" in headrace("report", "experiment")
    assert "Plotly" in (headrace.folder / "experiment" / "report.html").read_text()


def test_both_carry_what_an_installer_and_a_reader_need(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    tags = ".".join(f"{oldest}_{MACHINE}" for oldest in ("manylinux2014", "manylinux_2_17", "musllinux_1_1"))
    assert wheel.name.endswith(f"-py3-none-{tags}.whl")
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(path).decode())
        assert "headrace/show/vendored/plotly.LICENSE" in archive.namelist()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    assert set(metadata.get_all("Provides-Extra", [])) >= set(extras.EXTRAS.values())
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    # Without its settings cargo would link the agent to the C library of the machine that builds.
    assert {".cargo/config.toml", "Cargo.lock", "LICENSE", "README.md"} <= inside
