"""``make bench``: what it skips, what a failure means, and that nothing is left behind, however a bench ends."""

from __future__ import annotations

import ast
import contextlib
import importlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHES = Path(__file__).parents[2] / "benches"
#: They take arguments, or longer than all others together.
BY_THEMSELVES = {
    "killed",
    "serve_strangers",
    "trust",
    "fuzz_readers",
    "agents",
    "advice",
    "planted",
    "propose",
    "boot_loaders",
    "serve_killed",
    "disturbed",
    "fleet8",
    "__main__",
}

#: Starts a process in a session of its own, as a bench starts its servers, and a file where benches put theirs.
STARTS = """
import subprocess, sys, tempfile, time
open(tempfile.mkdtemp() + "/large", "w").close()
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("child", child.pid, tempfile.gettempdir(), flush=True)
"""


def run(folder: Path, *names: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-u", str(folder), *names]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(BENCHES / "__main__.py", tmp_path)
    for name, text in {
        "fails": f"MINUTES = 1\n{STARTS}\nraise SystemExit(3)",
        "lacks": 'MINUTES = 1\nNEEDS = {"no-such-program": "some-package", "sh": "dash"}\nraise SystemExit(3)',
        "passes": "MINUTES = 1\nprint('measured')",
        "stands": f"MINUTES = 1\n{STARTS}\ntime.sleep(1000)",
        "takes_arguments": "raise SystemExit(3)",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_every_bench_says_how_long_it_takes_and_names_packages_of_what_it_needs() -> None:
    for path in BENCHES.glob("*.py"):
        names = {
            node.targets[0].id
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        assert ("MINUTES" in names) == (path.stem not in BY_THEMSELVES), path


def test_what_a_bench_takes_from_headrace_is_there() -> None:
    """Those that take hours run seldom: two of the attacks on clocks and kills had not begun for weeks."""
    missing: list[tuple[str, ...]] = []
    for path in BENCHES.glob("*.py"):
        tree, modules = ast.parse(path.read_text()), dict[str, ModuleType]()
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("headrace"):
                continue
            for name in (each.name for each in node.names):
                found = getattr(importlib.import_module(str(node.module)), name, None)
                if found is None:
                    with contextlib.suppress(ImportError):
                        found = importlib.import_module(f"{node.module}.{name}")
                missing += [] if found is not None else [(path.name, str(node.module), name)]
                modules |= {name: found} if isinstance(found, ModuleType) else {}
        missing += [
            (path.name, node.value.id, node.attr)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
            and not hasattr(modules[node.value.id], node.attr)
        ]
    assert not missing


def test_a_failure_stops_no_other_bench_and_shows_in_the_exit_code(folder: Path) -> None:
    process = run(folder, "fails", "lacks", "passes")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "2 benches, about 2 minutes" in output
    assert "fails: failed with exit code 3" in output
    assert "lacks: skipped, needs no-such-program: apt-get install some-package" in output
    assert "measured" in output
    assert output.splitlines()[-3:] == ["passed: passes", "failed: fails", "skipped: lacks"]
    child, scratch = next(line.split()[1:] for line in output.splitlines() if line.startswith("child "))
    assert not Path(f"/proc/{child}").exists()
    assert not Path(scratch).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bench_that_is_stopped_leaves_no_process_and_no_file(folder: Path, number: int) -> None:
    process = run(folder, "stands", "passes")
    assert process.stdout is not None
    child, scratch = next(line.split()[1:] for line in process.stdout if line.startswith("child "))
    assert Path(f"/proc/{child}").exists()
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "measured" not in output
    assert output.endswith("stopped: stands\n")
    assert not Path(f"/proc/{child}").exists()
    assert not Path(scratch).exists()


def test_a_name_that_is_no_bench_is_an_error_that_lists_them(folder: Path) -> None:
    process = run(folder, "takes_arguments")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "there are fails, lacks, passes, stands" in output
