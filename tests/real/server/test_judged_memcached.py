"""A setting of hosts is judged by their memcached, alone and over a fleet: receive packet steering, which here is
worth 30 ms a get.

Commands wait for most of their time, so all of them run at once, each on hosts of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cache_hosts import PROGRAMS, CacheHost, cache_hosts
from tests.commands import headrace, started
from tests.programs import agent_path

pytestmark = pytest.mark.needs(*PROGRAMS)

SETTING = "host.rps_cpus@eth0=1"
TURN = ("--duration", "2s", "--warmup", "0s", "--gets", "20", "--blocks", "2")
TURNS = 2 * 3
#: 30 ms are no matter of chance, so two pairs and a wide alpha are enough; noise must not look like harm.
STAGES = """
[timing]
block_s = {block_s}
wash_s = 1
soak_s = 2
lease_s = 30
[judge]
looks = [2]
alpha = 0.2
harm = 1
gets_per_s = 30
[[stage]]
name = "all"
take = "caches"
"""


@dataclass
class Ended:
    code: int
    out: str
    said: str

    @property
    def step(self) -> dict[str, Any]:
        [step] = json.loads(self.out)["steps"]
        return dict(step)


@dataclass
class Rollout:
    """The command over hosts, with a state of its own."""

    folder: Path
    plan: str = ""

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.folder), "HEADRACE_AGENT": agent_path()}

    def here(self, verb: str, *words: str) -> str:
        done = headrace("rollout", verb, *words, env=self.env)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def planned(self, hosts: Sequence[CacheHost], block_s: float) -> Rollout:
        self.folder.mkdir()
        groups = "".join(
            f'[[fleet.groups]]\nhosts = ["{each.name}={each.target}"]\nmemcached = "127.0.0.1:{each.port}"\n'
            for each in hosts
        )
        (self.folder / "fleet.toml").write_text(f"[fleet]\nfan_out = 2\n{groups}")
        (self.folder / "stages.toml").write_text(STAGES.format(block_s=block_s))
        files = ("--fleet", str(self.folder / "fleet.toml"), "--stages", str(self.folder / "stages.toml"))
        self.plan = json.loads(self.here("plan", SETTING, *files, "--json"))["id"]
        return self

    @property
    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.here("status", self.plan, "--json")))


@dataclass
class Everything:
    """Each command's end, the hosts, and which of them were steered then."""

    folder: Path
    hosts: dict[str, CacheHost]
    ended: dict[str, Ended]
    rollouts: dict[str, Rollout]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    folder = tmp_path_factory.mktemp("judged")
    with cache_hosts(folder, ["kept", "misses", "one", "two", "slow"]) as running:
        hosts = {each.name: each for each in running}
        hosts["misses"].misses_when_steered = True
        hosts["slow"].slow_when_steered = True
        rollouts = {
            "helps": Rollout(folder / "helps").planned([hosts["one"], hosts["two"]], 3),
            # A limit is of a stretch of three readings at least.
            "harms": Rollout(folder / "harms").planned([hosts["slow"]], 4),
        }
        words = {
            "kept": judging(hosts["kept"], "apply", "--judge", folder=folder),
            "misses": judging(hosts["misses"], "prove", "--live", folder=folder),
            **{name: ("rollout", "go", each.plan) for name, each in rollouts.items()},
        }
        envs = {name: env_of(name, folder) for name in words} | {n: each.env for n, each in rollouts.items()}
        with contextlib.ExitStack() as stack:
            commands = {
                name: stack.enter_context(started(*each, env=envs[name])) for name, each in words.items()
            }
            ends = {name: (each.communicate(), each.returncode) for name, each in commands.items()}
        ended = {name: Ended(code, *texts) for name, (texts, code) in ends.items()}
        yield Everything(folder, hosts, ended, rollouts)


def judging(host: CacheHost, *words: str, folder: Path) -> Sequence[str]:
    where = ["--target", host.target, "--memcached", f"127.0.0.1:{host.port}"]
    return [*words, SETTING, *where, "-o", str(folder / f"of-{host.name}"), *TURN, "--json"]


def env_of(name: str, folder: Path) -> dict[str, str]:
    state = str(folder / f"state-{name}")
    return {**os.environ, "HEADRACE_STATE": state, "HEADRACE_AGENT": agent_path()}


def test_it_is_kept_if_clients_wait_less_and_nothing_else_is_lost(found: Everything) -> None:
    host, ended = found.hosts["kept"], found.ended["kept"]
    assert ended.code == 0, ended
    effect = ended.step["effect"]
    assert effect["verdict"] == "better"
    assert effect["response"] == "p50"
    assert effect["low"] < effect["ratio"] < effect["high"] < 0.5
    assert {each["name"]: each["holds"] for each in ended.step["guards"]} == dict.fromkeys(
        ("hit rate", "evictions", "refused connections", "failed gets"), "holds"
    )
    assert host.steers
    assert "requests/s; judged by the p50" in ended.said
    # Turns of two seconds and what is around them: nobody else asked for the probe's key.
    assert TURNS * 2 * 20 <= host.gets <= TURNS * 4 * 20
    env = env_of("kept", found.folder)
    headrace("rollback", "--last", "--target", host.target, env=env)
    assert not host.steers


def test_a_fall_of_the_hit_rate_is_no_price_for_latency(found: Everything) -> None:
    ended = found.ended["misses"]
    assert ended.code == 0, ended
    assert not ended.step["kept"]
    assert ended.step["effect"]["high"] < 0.5
    assert ended.step["reason"] == "not proven within its limit: hit rate"
    assert {each["name"]: each["holds"] for each in ended.step["guards"]}["hit rate"] == "broken"
    assert not found.hosts["misses"].steers


def test_over_a_fleet_what_helps_is_promoted_and_can_be_taken_back(found: Everything) -> None:
    assert found.ended["helps"].code == 0, found.ended["helps"]
    rollout, both = found.rollouts["helps"], [found.hosts["one"], found.hosts["two"]]
    status = rollout.status
    assert status["is_finished"]
    assert all(each.steers for each in both)
    verdict = status["stages"]["all"]["verdict"]
    assert verdict["is_win"]
    assert verdict["reason"].startswith("p50 of the probe's gets is lower: ")
    pair = next(each for each in status["events"] if each["kind"] == "pair")
    assert pair["on"]["watched"]["hit rate"] == 100
    assert pair["on"]["queries"] > 0
    rollout.here("abort", rollout.plan)
    assert not any(each.steers for each in both)


def test_over_a_fleet_what_harms_is_taken_back_at_once(found: Everything) -> None:
    assert found.ended["harms"].code == 13, found.ended["harms"]
    assert not found.hosts["slow"].steers
    why = found.rollouts["harms"].status["aborting"]
    assert "in the middle of the probe's gets" in why
    assert "recovered" in why
