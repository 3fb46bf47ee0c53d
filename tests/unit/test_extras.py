"""Packages that an extra brings: without one, a command says which, and nothing else suffers."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headrace import extras

ROOT = Path(extras.__file__).parents[2]


def headrace_without(*packages: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The command line in an interpreter to which these packages are not installed."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"
        f"sys.argv = {['headrace', *arguments]!r}\n"
        "from headrace.cli import main\n"
        "main()"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_every_package_is_in_the_extra_that_is_named_and_in_no_lean_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for package, extra in extras.EXTRAS.items():
        brought = project["optional-dependencies"][extra]
        assert any(line.startswith(package) for line in brought), (package, brought)
        assert not any(line.startswith(package) for line in project["dependencies"])


def test_a_search_without_optuna_names_the_extra_before_anything_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "search"
    answer = headrace_without("optuna", arguments=["tune", "tune", "--output", str(output)])
    assert answer.returncode == 4, answer.stderr
    assert "optuna" in answer.stderr
    assert "pip install 'headrace[tune]'" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not output.exists()


def test_a_package_that_no_extra_brings_is_a_fault_of_ours_and_shows_where() -> None:
    answer = headrace_without("tomllib", arguments=["plan", "list"])
    assert answer.returncode == 1
    assert "Traceback" in answer.stderr


@pytest.mark.parametrize("package", ["optuna.distributions", "ray"])
def test_what_is_missing_is_known_by_its_top_package(package: str) -> None:
    error = extras.missing(package)
    assert error is not None
    assert error.exit_code == 4
    assert extras.missing("numpy") is None
