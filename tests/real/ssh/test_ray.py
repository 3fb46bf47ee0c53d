"""A Ray cluster of controllers, in a network namespace with the hosts it works with. We are another node.

we (.1) ── veth ── head (.2), hosts (127.0.0.1, so that we reach none of them)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.base.errors import NotReady, PlanError
from headrace.experiment.cluster import RayControllers
from tests import lab
from tests.fleet import PROGRAMS, Fleet, fleet
from tests.real.ssh.test_cluster import Lab, finish
from tests.waiting import until

NAMESPACE = "hrrayns"
NETWORK = "10.214.78"
HEAD = f"{NETWORK}.2"
PORT = 6397
#: Of a head for clients, unless it is told another.
CLIENT_PORT = 10001
RAY = Path(sys.executable).with_name("ray")

needs_ray = pytest.mark.needs("ray")
needs_cluster = pytest.mark.needs("ray", "root", *PROGRAMS)


def cluster_argv(folder: Path) -> list[str | Path]:
    return [
        "ip", "netns", "exec", NAMESPACE,
        "unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc",
        RAY, "start", "--head", "--block", f"--node-ip-address={HEAD}", f"--port={PORT}", "--num-cpus=4",
        "--include-dashboard=false", "--disable-usage-stats", "--object-store-memory=100000000",
        f"--temp-dir={folder}",
    ]  # fmt: skip


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[tuple[str, ...]]:
    """Running; what goes before a command that is to run inside. Its processes die with the namespace's first."""
    session = Path(f"/tmp/hr-ray-{os.getpid()}")  # short, because sockets lie below it
    with (folder / "ray.log").open("wb") as log:
        outer = subprocess.Popen(
            [str(word) for word in cluster_argv(session)],
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": lab.PATH},
        )
    try:
        deadline = time.monotonic() + 180
        while b"--block" not in (folder / "ray.log").read_bytes():
            assert outer.poll() is None, (folder / "ray.log").read_text()
            assert time.monotonic() < deadline, (folder / "ray.log").read_text()
            time.sleep(0.1)
        first = children(outer.pid)[0]
        yield ("nsenter", "--target", str(first), "--pid", "--mount", "--net")
    finally:
        outer.kill()
        outer.wait()
        shutil.rmtree(session, ignore_errors=True)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def controllers() -> list[int]:
    """The processes of the actors, here and now."""
    own = os.stat(f"/run/netns/{NAMESPACE}").st_ino
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_actor = (process / "cmdline").read_bytes().startswith(b"ray::Controller")
            if is_actor and os.stat(process / "ns" / "net").st_ino == own:
                found.append(int(process.name))
    return found


def restored(hosts: Fleet) -> bool:
    """Whether each host's disk has what stays between experiments and nothing else."""
    found = {path.name for host in hosts.hosts for path in (hosts.own_disk(host) / "scratch").glob("*")}
    return found <= {"datasets", "run"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, tuple[str, ...]]]:
    """Hosts under test, and what goes before a command that is to run inside the cluster."""
    folder = tmp_path_factory.mktemp("ray")
    inside = ("ip", "netns", "exec", NAMESPACE)
    # Each costs a process that imports Ray, in every run.
    with (
        lab.veth("hrray", NETWORK),
        fleet(folder / "hosts", ["lab1", "lab2"], inside) as hosts,
        ray_cluster(folder) as prefix,
    ):
        hosts.environment["RAY_ADDRESS"] = f"{HEAD}:{PORT}"
        yield hosts, prefix


@needs_cluster
@pytest.mark.thorough
def test_a_controller_that_is_killed_loses_no_trial_and_doubles_none(
    cluster: tuple[Fleet, tuple[str, ...]], tmp_path: Path
) -> None:
    hosts, prefix = cluster
    # With blocks to spare: a machine that has finished its own takes none whose machine waits for a new worker.
    bench = Lab(tmp_path, hosts, blocks=4)
    process = bench.start("--executor", "ray", prefix=prefix)
    until(lambda: len(bench.trials()) >= 2, process)
    workers = controllers()
    assert len(workers) == len(hosts.hosts)
    os.kill(workers[0], signal.SIGKILL)
    _, err = finish(process)
    bench.check_whole()
    assert {trial["machine"] for trial in bench.trials()} == {host.address for host in hosts.hosts}
    assert "its Ray worker is gone" in err
    # Its machine was fine, and went on with its own block.
    assert not (bench.output / "set-aside").exists()


@needs_cluster
def test_controllers_on_a_host_under_test_are_refused_and_ctrl_c_restores(
    cluster: tuple[Fleet, tuple[str, ...]], tmp_path: Path
) -> None:
    hosts, prefix = cluster
    bench = Lab(tmp_path, hosts)
    process = bench.start("--executor", "ray", prefix=prefix)
    until(lambda: len(bench.trials()) >= 1, process)
    # nsenter stands between: what it started is headrace.
    os.kill(children(process.pid)[0], signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert restored(hosts)
    # The hosts share the controller's kernel: without the plan's leave that is the same machine.
    bench.plan.write_text(bench.plan.read_text().replace("allow_shared = true\n", ""))
    process = bench.start("--executor", "ray", prefix=prefix)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 5, err
    assert "this host is the controller's own machine" in err


@needs_cluster
def test_a_driver_on_another_node_is_a_client(cluster: tuple[Fleet, tuple[str, ...]], tmp_path: Path) -> None:
    hosts, _ = cluster
    bench = Lab(tmp_path, replace(hosts, environment={}), blocks=2)
    on = ("--executor", f"ray://{HEAD}:{CLIENT_PORT}")
    process = bench.start(*on)
    until(lambda: len(bench.trials()) >= 1, process)
    assert len(controllers()) == len(hosts.hosts), "they are on the cluster, not here"
    connections = lab.check("ss", "--tcp", "--numeric", "--no-header", "dst", HEAD).splitlines()
    ports = {line.rpartition(":")[2].strip() for line in connections}
    assert ports == {str(CLIENT_PORT)}, "no other port is needed"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert restored(hosts)
    # The same command goes on.
    _, err = finish(bench.start(*on))
    bench.check_whole()
    until(lambda: not controllers(), what="the controllers outlive the experiment")


@needs_ray
def test_no_cluster_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="must be here, ray, or"):
        RayControllers("elsewhere", print)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    for where in ("ray", "ray://127.0.0.1:1"):
        with pytest.raises(NotReady, match="no Ray cluster answers"):
            RayControllers(where, print)


@needs_ray
def test_a_client_that_the_cluster_lost_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    lost = "Initialization failure from server:\nTraceback (most recent call last):\nRuntimeError: {}"
    answers = [
        lost.format("Starting Ray client server failed. See x.err"),
        "",
        lost.format("another version"),
    ]

    def init(**_: object) -> None:
        if answer := answers.pop(0):
            raise ConnectionAbortedError(answer)

    monkeypatch.setattr(ray, "init", init)
    with socket.create_server(("127.0.0.1", 0)) as head:
        on = f"ray://127.0.0.1:{head.getsockname()[1]}"
        RayControllers(on, print)
        assert len(answers) == 1
        # What would fail again is not tried again; and of what the cluster says it is the end that counts.
        with pytest.raises(
            NotReady, match="Initialization failure from server: RuntimeError: another version"
        ):
            RayControllers(on, print)


def test_without_ray_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NotReady, match="this needs ray") as refused:
        RayControllers("ray", print)
    assert refused.value.hint == "pip install 'headrace[cluster]'"
