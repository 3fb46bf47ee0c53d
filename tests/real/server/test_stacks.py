"""Stacks of a real server under load, by perf and by debuggers that pause it; flame graphs in Chromium."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.host.stacks import parse, profile
from tests import browser
from tests.driver import drive
from tests.programs import agent_path, has
from tests.servers import Server, mariadb

WORKLOAD = {"kind": "oltp", "tables": 1, "table_size": 2000, "script": "read_write"}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server that works while the tests look at it."""
    with mariadb(folder / "m") as server:
        server.sql("CREATE DATABASE sbtest")
        login = ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"]
        drive(login, {"workload": WORKLOAD}, verb="load")
        spec = json.dumps({"workload": WORKLOAD, "connections": 4, "seconds": 120, "warmup_s": 0})
        load = subprocess.Popen(
            [agent_path(), "drive", "run", "-", *login],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert load.stdin is not None
        load.stdin.write(spec)
        load.stdin.close()
        try:
            yield server
        finally:
            load.terminate()
            load.wait(30)


def stacks(*options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    argv = [agent_path(), "stacks", *options]
    return subprocess.run(argv, capture_output=True, text=True, check=check, timeout=120)


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stderr.splitlines()[0])
    return found


@pytest.mark.needs("perf")
def test_perf_sees_what_the_server_does(server: Server, tmp_path: Path) -> None:
    done = stacks("--pid", str(server.pid), "--seconds", "4")
    said = summary(done)
    found = profile(parse(done.stdout), most=1000)
    assert found.samples == said["samples"] > 20
    assert said["pauses"] is None
    names = {function.name for function in found.functions}
    # A statement is parsed, and its answer goes through the kernel's sockets.
    assert any("dispatch_command" in name or "MYSQLparse" in name for name in names), names
    assert any(function.is_kernel for function in found.functions)
    assert found.kernel_share
    # Only threads of this process: the driver's are not there.
    assert not any("headrace" in line for line in done.stdout.splitlines())

    svg = subprocess.run(
        [agent_path(), "flamegraph", "--title", "a server"],
        input=done.stdout, capture_output=True, text=True, check=True,
    )  # fmt: skip
    path = tmp_path / "flames.svg"
    path.write_text(svg.stdout)
    look(path)


def look(path: Path, screenshot: Path | None = None) -> None:
    """Opens it in a browser: no script error, nothing from elsewhere, frames to see."""
    if browser.chromium_path() is None:
        pytest.skip("chromium is not installed")
    with browser.page() as page:
        page.look()
        page.open(path)
        assert page.evaluate("document.querySelectorAll('#frames rect').length") > 0
        assert page.evaluate("window.hacked === undefined")
        assert page.seen.errors == []
        assert page.seen.network == []
        if screenshot:
            page.screenshot(screenshot)


def test_hostile_names_do_nothing_in_a_browser(tmp_path: Path) -> None:
    names = [
        "<script>window.hacked=1</script>",
        "</title><image href='x' onerror='window.hacked=1'/>",
        "\x1b[2J]]>",
    ]
    folded = "".join(f"thread;{name};f_[k] 5\n" for name in names)
    svg = subprocess.run(
        [agent_path(), "flamegraph"], input=folded, capture_output=True, text=True, check=True
    ).stdout
    assert "\x1b" not in svg
    path = tmp_path / "hostile.svg"
    path.write_text(svg)
    look(path)


@pytest.mark.parametrize("method", ["eu-stack", "gdb"])
def test_a_pause_is_measured(server: Server, method: str) -> None:
    if not has(method):
        pytest.skip(f"{method} is not installed")
    options = ("--pid", str(server.pid), "--method", method, "--seconds", "2", "--max-pause", "20s")
    done = stacks(*options, "--allow-pause")
    pauses = summary(done)["pauses"]
    assert pauses["count"] >= 1
    assert 0 < pauses["median_ms"] <= pauses["max_ms"]
    assert 0 < pauses["thread_max_ms"] <= pauses["max_ms"] + pauses["resolution_ms"]
    found = profile(parse(done.stdout), most=1000)
    threads = len(list(Path(f"/proc/{server.pid}/task").iterdir()))
    # Every thread in every sample, also those that sleep.
    assert found.samples >= pauses["count"] * 5
    assert threads >= 5
    assert any("poll" in f.name or "pthread_cond" in f.name or "futex" in f.name for f in found.functions)
    assert server.sql("SELECT 1") == [(1,)]


def test_a_debugger_needs_to_be_allowed(server: Server) -> None:
    done = stacks("--pid", str(server.pid), "--method", "eu-stack", check=False)
    assert done.returncode == 5
    assert "--allow-pause" in done.stderr


@pytest.mark.needs("gdb")
def test_a_long_pause_is_the_last(server: Server) -> None:
    """gdb stops a server for much longer than 5 ms: it is killed, and the server goes on."""
    options = ("--pid", str(server.pid), "--method", "gdb", "--seconds", "5", "--max-pause", "5ms")
    done = stacks(*options, "--allow-pause", check=False)
    assert done.returncode == 5
    assert "--max-pause" in done.stderr
    assert summary(done)["pauses"]["count"] <= 1
    before = server.status("Com_select")
    assert server.status("Com_select") >= before
    states = {Path(f"/proc/{server.pid}/task/{t.name}/stat").read_text().rpartition(")")[2].split()[0]
              for t in Path(f"/proc/{server.pid}/task").iterdir()}  # fmt: skip
    assert not states & {"t", "T"}


def test_a_program_that_is_missing_is_named(server: Server) -> None:
    argv = [agent_path(), "stacks", "--pid", str(server.pid)]
    done = subprocess.run(argv, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "linux-perf" in done.stderr


@pytest.mark.needs("perf")
def test_a_thread_that_ends_does_not_hold_perf_up() -> None:
    code = """if True:
        import threading
        for _ in range(3000):
            thread = threading.Thread(target=sum, args=(range(20000),))
            thread.start()
            thread.join()
    """
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        done = stacks("--pid", str(process.pid), "--seconds", "1")
        process.kill()
    assert summary(done)["elapsed_s"] < 15


@pytest.mark.needs("perf")
def test_ctrl_c_leaves_no_file(server: Server) -> None:
    argv = [agent_path(), "stacks", "--pid", str(server.pid), "--seconds", "60"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        folder = Path(tempfile.gettempdir()) / f"headrace-stacks-{process.pid}"
        appeared = threading.Event()
        for _ in range(100):
            if (folder / "perf.data").exists():
                appeared.set()
                break
            appeared.wait(0.05)
        process.terminate()
        assert process.wait(20) == 1
        assert appeared.is_set()
    assert not folder.exists()
