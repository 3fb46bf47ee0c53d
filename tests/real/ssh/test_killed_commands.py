"""Commands towards a host of its own on this machine, killed at random moments: nothing of them is left.

The rounds are those of ``test_conformance.py``, which compares all of a virtual machine, but emulates it: here a
thousand of them take an hour. ``HEADRACE_KILLS`` says how many, ``HEADRACE_SEED`` which is the first.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator

import pytest

from tests.conformance import Comparison, Kills, Kind, Settings
from tests.namespaced_host import LOGIN, PROGRAMS, TARGET, NamespacedHost, namespaced_host

ROUNDS = int(os.environ.get("HEADRACE_KILLS", "2"))
SEED = int(os.environ.get("HEADRACE_SEED", "0"))
#: What the kernel counts there.
COUNTERS = re.compile(r"dentry|inode|byte_queue_limits/limit$")
PLAN = f"""
name = "killed"
[target]
address = "{TARGET}"
scratch = "OWN/scratch"
[design]
kind = "factorial"
baseline = "stock"
blocks = 1
[workload]
kind = "fio"
seconds = 0.2
rw = "randwrite"
size = "1M"
ioengine = "psync"
iodepth = 1
[volume]
device = "loop"
size = "40M"
[base]
"volume.filesystem" = "ext4"
"host.net.ipv4.tcp_fin_timeout" = 34
[factors.kernel.levels]
stock = {{ "host.net.core.somaxconn" = 2001 }}
other = {{ "volume.scheduler" = "mq-deadline", "volume.nr_requests" = 32, "host.net.core.somaxconn" = 2002 }}
"""
SLOW_LOG = """# Time: 231114 22:13:20
# User@Host: app[app] @ localhost []
# Query_time: 0.000123  Lock_time: 0.000001  Rows_sent: 1  Rows_examined: 1
SET timestamp=1700000000;
SELECT c FROM t WHERE id = 1;
"""

pytestmark = pytest.mark.needs("root", *PROGRAMS)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespacedHost]:
    with namespaced_host(tmp_path_factory.mktemp("host")) as found:
        yield found


@pytest.fixture(scope="module")
def settings(host: NamespacedHost) -> Settings:
    lasting = ("host.net.core.somaxconn=2048", "host.net.ipv4.tcp_fin_timeout=33")
    some = (
        *lasting,
        "host.net.ipv4.tcp_keepalive_time=3600",
        "host.rps_cpus@eth0=1",
        f"volume.scheduler@{host.loop}=mq-deadline",
        "volume.mount_options@/srv/data=noatime",
    )
    return Settings(lasting, some, ("server.max_connections=321", "server.innodb_io_capacity=300"), LOGIN)


@pytest.fixture(scope="module")
def comparison(host: NamespacedHost, settings: Settings) -> Comparison:
    for _ in range(2):  # the first brings the agent
        host.done("apply", *settings.some, *settings.of_server, *LOGIN, "--confirm-within", "10m")
        host.done("rollback")
    return Comparison(host, COUNTERS.search, 700)


def kinds(host: NamespacedHost, settings: Settings) -> dict[str, Kind]:
    """Commands that only this host can do in little time."""
    numbers = itertools.count()
    plan = host.folder / "plan.toml"
    plan.write_text(PLAN.replace("OWN", host.own))
    (host.root / "srv/slow.log").write_text(SLOW_LOG)

    def new(name: str) -> str:
        return str(host.folder / f"{name}{next(numbers)}")

    def recording(*source: str) -> Kind:
        words = ["record", "--duration", "45s", *source]
        return Kind(lambda _: [*words, "--output", new("recording")], (), lasts=4.0, on_journal=False)

    everyone = (("rollback", "--everyone"),)
    return {
        "run": Kind(
            lambda _: ["run", str(plan), "--output", new("run")], everyone, lasts=5.0, on_journal=False
        ),
        "hunt": Kind(lambda _: ["hunt", "--seconds", "2", *LOGIN], (), lasts=4.0, on_journal=False),
        "record packets": recording("--interface", "lo"),
        "record a log": recording("--follow", "/srv/slow.log"),
    }


def test_killed_at_any_moment_nothing_is_left(
    host: NamespacedHost, settings: Settings, comparison: Comparison
) -> None:
    kills = Kills(host, comparison, settings, kinds(host, settings))
    for seed in range(SEED, SEED + ROUNDS):
        kills.round(seed)
    assert ROUNDS < 50 or kills.found["left something to undo"] > ROUNDS / 10, "this tested nothing"
