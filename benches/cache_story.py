"""One core full of the packets of one queue: found, proved and rolled out over hosts with memcached.

    python benches/cache_story.py [HOSTS [REQUESTS_PER_S]]

HOSTS (8) are namespaces with a memcached each, behind a bridge whose port hands all packets to core 0, as a card
with one queue does. Each packet passes a chain of rules of tc on its host, so that receiving it costs what a long
firewall costs; no wait is planted. Clients ask at a fixed rate. The hunt looks at one host, `prove --live` tries
packet steering there, and `rollout` brings it to all, two at a time. Clients' times are taken before and after.

The hosts share the cores of this machine: what one of them gains is less than on cores of its own. If something
else is busy here, no core is full of packets beside idle ones, and the hunt says so. The shares of the cores are
printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests import lab  # noqa: E402
from tests.programs import agent_path  # noqa: E402
from tests.traces import FORGET_MOUNTS  # noqa: E402
from tests.waiting import until  # noqa: E402

from headrace.base.buckets import bucket_of  # noqa: E402
from headrace.base.percentiles import Histogram, jackknife  # noqa: E402
from headrace.host.memcached.probed import Gets, argv, parsed  # noqa: E402

MINUTES = 15
NEEDS = {"memcached": "memcached", "ip": "iproute2", "tc": "iproute2", "unshare": "util-linux"}
NEEDS_ROOT = True

NETWORK = "10.201.77"
#: Of each host, and what 0.1% of it makes: one get a second, of which 24 s show the middle.
RATE_OPS_S, CONNECTIONS, BLOCK_S = 1000.0, 16, 24
#: Longer than all of it, for the drivers.
LOAD_S = 3000.0
#: Rules to begin with, and how much of core 0 their packets shall take.
RULES, SHARE, MOST_RULES = 3000, 0.75, 3000
#: Clients' times before and after: blocks of gets of all hosts.
WATCH_BLOCKS, WATCH_BLOCK_S, WATCH_GETS_S = 5, 6, 25.0
SETTING = f"host.rps_cpus@eth0={(1 << (os.cpu_count() or 1)) - 1:x}"
STAGES = f"""
[timing]
block_s = {BLOCK_S}
wash_s = 2
soak_s = 5
lease_s = 60
[judge]
looks = [4, 6]
[[stage]]
name = "two"
hosts = "cache[1-2]"
[[stage]]
name = "caches"
take = "caches"
"""
HOST = """
hostname {name}
mount -t sysfs sysfs /sys
for place in /var/tmp /var/lib; do mount -t tmpfs -o mode=1777 headrace-test $place; done
ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip addr add {address}/24 dev eth0
ip link set eth0 up
tc qdisc add dev eth0 ingress
exec memcached -l {address} -p 11211 -m 16 -t 2 -u root
"""


@dataclass(frozen=True)
class Cache:
    name: str
    address: str
    pid: int

    @property
    def target(self) -> str:
        return f"exec:nsenter -t {self.pid} -n -m -u"

    def rules(self, count: int) -> None:
        """A chain that no packet matches."""
        inside = ["nsenter", "-t", str(self.pid), "-n"]
        env = {**os.environ, "PATH": lab.PATH}
        subprocess.run(
            [*inside, "tc", "filter", "del", "dev", "eth0", "parent", "ffff:"], check=False, env=env
        )
        lines = (
            "filter add dev eth0 parent ffff: protocol ip prio 1 u32 match ip src "
            f"192.0.{n >> 8 & 255}.{n & 255}/32 flowid 1:1\n"
            for n in range(count)
        )
        subprocess.run([*inside, "tc", "-batch", "-"], input="".join(lines), text=True, check=True, env=env)


@contextlib.contextmanager
def caches(count: int) -> Iterator[list[Cache]]:
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(namespace("hold", "exec sleep infinity"))
        lab.check("ip", "link", "add", "hrcli", "type", "veth", "peer", "name", "p0", "netns", switch)
        inside = ["nsenter", "-t", str(switch), "-n", "-m"]
        lab.check(*inside, "ip", "link", "add", "br0", "type", "bridge")
        lab.check(*inside, "mount", "-t", "sysfs", "sysfs", "/sys")
        found = []
        for number in range(1, count + 1):
            name, address = f"cache{number}", f"{NETWORK}.{10 + number}"
            pid = stack.enter_context(namespace(name, HOST.format(name=name, address=address)))
            lab.check(
                *inside,
                "ip",
                "link",
                "add",
                f"s{number}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                pid,
            )
            found.append(Cache(name, address, pid))
        for port in ("p0", *(f"s{number}" for number in range(1, count + 1))):
            lab.check(*inside, "ip", "link", "set", port, "master", "br0")
            lab.check(*inside, "ip", "link", "set", port, "up")
        lab.check(*inside, "ip", "link", "set", "br0", "up")
        # One queue, whose packets core 0 takes.
        lab.check(*inside, "sh", "-c", "echo 1 > /sys/class/net/p0/queues/rx-0/rps_cpus")
        lab.check("ip", "addr", "add", f"{NETWORK}.1/24", "dev", "hrcli")
        lab.check("ip", "link", "set", "hrcli", "up")
        yield found


@contextlib.contextmanager
def namespace(name: str, script: str) -> Iterator[int]:
    words = ["unshare", "-n", "-m", "-u", "sh", "-ec", FORGET_MOUNTS + script]
    with subprocess.Popen(words, env={**os.environ, "PATH": lab.PATH}) as process:
        own = os.stat("/proc/self/ns/net").st_ino
        until(lambda: os.stat(f"/proc/{process.pid}/ns/net").st_ino != own, what=name)
        try:
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def load(each: Cache, rate: float) -> Iterator[None]:
    spec = {
        "workload": {"kind": "memcached", "address": f"{each.address}:11211", "keys": 1000},
        "connections": CONNECTIONS,
        "threads": 1,
        "seconds": LOAD_S,
        "pacing": {"kind": "open", "arrivals": "poisson", "rate_ops_s": rate},
    }
    text = json.dumps(spec)
    for _ in range(100):
        done = subprocess.run(
            [agent_path(), "drive", "load", "-"], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            break
        time.sleep(0.1)
    with lab.running([agent_path(), "drive", "run", "-"], stdin=subprocess.PIPE) as driver:
        assert driver.stdin
        driver.stdin.write(text.encode())
        driver.stdin.close()
        yield


def cores(seconds: float) -> list[dict[str, float]]:
    """Of each core the shares of its time."""

    def counts() -> list[list[int]]:
        lines = Path("/proc/stat").read_text().splitlines()
        return [list(map(int, line.split()[1:9])) for line in lines if line[:3] == "cpu" and line[3] != " "]

    before = counts()
    time.sleep(seconds)
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    grown = [[b - a for a, b in zip(*both, strict=True)] for both in zip(before, counts(), strict=True)]
    return [{n: v / max(sum(own), 1) for n, v in zip(names, own, strict=True)} for own in grown]


def calibrated(hosts: Sequence[Cache]) -> int:
    """How many rules it takes for packets to use their share of core 0."""
    count = RULES
    for _ in range(4):
        for each in hosts:
            each.rules(count)
        share = cores(4.0)[0]["softirq"]
        print(f"  {count} rules a packet: core 0 spends {share:.0%} on packets", flush=True)
        if share >= SHARE - 0.1 or count == MOST_RULES:
            break
        count = min(round(count * min(SHARE / max(share, 0.02), 5.0)), MOST_RULES)
    return count


def watched(hosts: Sequence[Cache], words: str) -> None:
    """What clients of all hosts wait, with an interval over blocks of time."""
    seconds = WATCH_BLOCKS * WATCH_BLOCK_S
    own = [
        subprocess.Popen(
            argv(f"{each.address}:11211", WATCH_GETS_S, seconds), stdout=subprocess.PIPE, text=True
        )
        for each in hosts
    ]
    blocks: list[list[int]] = [[] for _ in range(WATCH_BLOCKS)]
    failed = 0
    for process in own:
        out, _ = process.communicate()
        said = [line for line in map(parsed, out.splitlines()) if isinstance(line, Gets)]
        for second, line in enumerate(said):
            blocks[min(second // WATCH_BLOCK_S, WATCH_BLOCKS - 1)] += line.answered_ns
            failed += len(line.failed_ns)
    parts = [
        Histogram.of(
            np.asarray(bucket_of(np.array(each)), dtype=np.int32), np.ones(len(each), dtype=np.int64)
        )
        for each in blocks
    ]
    shown = []
    for name in ("p50", "p90", "p99"):
        interval = jackknife(parts, name, 0.05)
        if interval is None or interval.low is None or interval.high is None:
            shown.append(f"{name} unknown")
            continue
        low, high = interval.low / 1e6, interval.high / 1e6
        shown.append(f"{name} {interval.estimate / 1e6:.2f} ms ({low:.2f} to {high:.2f})")
    print(f"{words}: {', '.join(shown)}; {sum(map(len, blocks))} gets, {failed} failed", flush=True)


def headrace(*words: str, env: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words], capture_output=True, text=True, check=False, env=env
    )
    if done.returncode not in (0, 13, 15):
        print(done.stderr[-2000:])
    return done.returncode, done.stdout


def found(host: Cache, env: dict[str, str]) -> None:
    _, out = headrace("hunt", "--host-only", "-t", host.target, "--duration", "8s", "--json", env=env)
    hunt = json.loads(out)
    named = [each["id"] for each in hunt["findings"]]
    print(f"hunt: {hunt['verdict']}\n  findings: {', '.join(named) or 'none'}", flush=True)
    for each in hunt["findings"]:
        if each["id"].startswith("NET01"):
            print(f"  {each['id']}: {each['summary']}", flush=True)


def proved(host: Cache, folder: Path, env: dict[str, str]) -> None:
    where = ["-t", host.target, "--memcached", f"{host.address}:11211", "-o", str(folder / "proof")]
    turns = ["--duration", f"{BLOCK_S}s", "--warmup", "2s", "--blocks", "2"]
    code, out = headrace("prove", "--live", SETTING, *where, *turns, "--json", env=env)
    if code:
        return
    for step in json.loads(out)["steps"]:
        effect: dict[str, Any] = step.get("effect") or {}
        print(
            f"prove --live {SETTING} on {host.name}: {effect.get('response')} x {effect.get('ratio')} "
            f"({effect.get('low')} to {effect.get('high')}), {effect.get('verdict')}; kept: {step.get('kept')} "
            f"{step.get('reason') or ''}",
            flush=True,
        )


def rolled_out(hosts: Sequence[Cache], folder: Path, env: dict[str, str]) -> None:
    groups = "".join(
        f'[[fleet.groups]]\nhosts = ["{each.name}={each.target}"]\nmemcached = "{each.address}:11211"\n'
        for each in hosts
    )
    (folder / "fleet.toml").write_text(f"[fleet]\nfan_out = 2\n{groups}")
    (folder / "stages.toml").write_text(STAGES)
    files = ("--fleet", str(folder / "fleet.toml"), "--stages", str(folder / "stages.toml"))
    _, out = headrace("rollout", "plan", SETTING, *files, "--json", env=env)
    plan = json.loads(out)
    shares = [each["gets_per_s"] / each["per_s"] for each in plan["members"].values()]
    print(f"the probe asks for {min(shares):.2%} to {max(shares):.2%} of a server's requests", flush=True)
    code, out = headrace("rollout", "go", plan["id"], "--json", env=env)
    status = json.loads(out)
    for name, stage in status["stages"].items():
        verdict = stage["verdict"] or {}
        print(f"  stage {name}: {verdict.get('outcome', 'none')}: {verdict.get('reason', '')}", flush=True)
    print(f"rollout: exit {code}; {status['state']}; {status['hosts']}", flush=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else RATE_OPS_S
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        env = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "HEADRACE_AGENT": agent_path(),
            "PATH": lab.PATH,
        }
        hosts = stack.enter_context(caches(count))
        for each in hosts:
            stack.enter_context(load(each, rate))
        print(f"{count} hosts, {rate:g} requests/s each, {os.cpu_count()} cores", flush=True)
        calibrated(hosts)
        print(
            "cores:",
            [f"softirq {each['softirq']:.0%} idle {each['idle']:.0%}" for each in cores(5.0)],
            flush=True,
        )
        found(hosts[0], env)
        watched(hosts, "before")
        proved(hosts[0], folder, env)
        rolled_out(hosts, folder, env)
        watched(hosts, "after")
        print(
            "cores:",
            [f"softirq {each['softirq']:.0%} idle {each['idle']:.0%}" for each in cores(5.0)],
            flush=True,
        )


if __name__ == "__main__":
    main()
