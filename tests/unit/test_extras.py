"""Packages that an extra brings: without one, a command says which, and nothing else suffers."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headrace.base import extras

ROOT = Path(extras.__file__).parents[3]


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
        # Names of modules and of packages differ: pyyaml is imported as yaml.
        assert any(package in line.replace("-", "_") for line in brought), (package, brought)
        assert not any(line.startswith(package) for line in project["dependencies"])


def test_a_search_without_optuna_names_the_extra_before_anything_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "search"
    answer = headrace_without("optuna", arguments=["tune", "tune", "--output", str(output)])
    assert answer.returncode == 4, answer.stderr
    assert "optuna" in answer.stderr
    assert "pip install 'headrace[tune]'" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not output.exists()


#: What `headrace[analysis]` brings: experiments, reports and digests.
ANALYSIS = tuple(package for package, extra in extras.EXTRAS.items() if extra == "analysis")


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "--json"],
        ["facts", "--json"],
        ["hunt", "--host-only", "--duration", "2s", "--json"],
        ["top", "--once"],
        ["plan", "list"],
        ["plan", "options", "fio"],
        ["rules"],
        ["knobs", "--json"],
        ["rollback", "--last"],
    ],
    ids=" ".join,
)
def test_a_host_is_looked_at_without_what_analyses_experiments(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    answer = headrace_without(*ANALYSIS, arguments=arguments)
    assert answer.returncode == 0, answer.stderr


def test_a_saved_hunt_is_read_without_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    saved = str(tmp_path / "a.hunt")
    first = headrace_without(
        *ANALYSIS, arguments=["hunt", "--host-only", "--duration", "2s", "--save", saved]
    )
    assert first.returncode == 0, first.stderr
    again = headrace_without(*ANALYSIS, arguments=["hunt", "--from", saved, "--json"])
    assert again.returncode == 0, again.stderr
    (found,) = json.loads(again.stdout)
    assert found["resources"]


def test_an_experiment_without_it_is_refused_before_the_host_is_touched(tmp_path: Path) -> None:
    output = tmp_path / "out"
    answer = headrace_without(*ANALYSIS, arguments=["run", "stock-to-all", "--output", str(output)])
    assert answer.returncode == 4, answer.stderr
    assert "pip install 'headrace[analysis]'" in answer.stderr
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
