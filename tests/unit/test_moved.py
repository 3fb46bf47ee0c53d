"""What changed between a hunt and a proof on the live host: then the baseline is not what the finding saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.experiment import prove
from headrace.experiment.commands import prove as commands
from headrace.host.moved import Difference, differences, moved, unlike
from headrace.host.snapshot import save
from headrace.hunt.hunt import examine
from tests.commands import headrace
from tests.rules.hosts import healthy, saved, unwell


def facts(**changes: Any) -> Facts:
    return Facts("0" * 16, unwell(**changes).raw)


def switches(without: str) -> str:
    """Those of the healthy server, but one."""
    every = str(facts().data["server_settings"]["variables"]["optimizer_switch"]).split(",")
    return ",".join(each for each in every if not each.startswith(f"{without}="))


def test_a_host_that_stayed_as_it_was() -> None:
    assert moved(facts(), facts()) == []
    assert moved(facts(), facts(variables={"gtid_binlog_pos": "0-1-42"})) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"variables": {"sort_buffer_size": "4194304"}}, "sort_buffer_size is 4194304, the finding saw "),
        (
            {"variables": {"optimizer_switch": f"{switches('mrr')},mrr=on"}},
            "optimizer_switch is mrr=on, the finding saw mrr=off",
        ),
        ({"facts": {"sysctls.vm.swappiness": "37"}}, "vm.swappiness is 37, the finding saw "),
        ({"facts": {"hostname": "db2"}}, "this host is db2, the finding is from "),
        ({"version": "11.4.2"}, "the server's version is 11.4.2, not "),
        ({"has_server": False}, "the server cannot be asked"),
        (
            {"facts": {"block_devices.nvme1n1.queue.scheduler": "bfq"}},
            "nvme1n1 scheduler is bfq, the finding",
        ),
        ({"facts": {"file_systems./var/lib/mysql.super_options": ["rw", "nodiscard"]}}, "/var/lib/mysql: "),
    ],
    ids=["variable", "switch", "sysctl", "host", "version", "no server", "queue", "mount"],
)
def test_a_difference_is_named(changes: dict[str, Any], said: str) -> None:
    found = moved(facts(), facts(**changes))
    assert len(found) == 1
    assert found[0].startswith(said)


def test_of_two_mounts_on_one_path_the_upper_is_compared() -> None:
    def stacked(**upper: list[str]) -> Facts:
        data = facts().data
        row = data["file_systems"][0]
        lower = {**row, "super_options": ["rw", "size=64k"]}
        return Facts("0" * 16, {**data, "file_systems": [lower, {**row, **upper}]})

    assert moved(stacked(), stacked()) == []
    assert len(moved(stacked(), stacked(super_options=["ro"]))) == 1


def test_a_change_has_its_values_before_and_after() -> None:
    changed = facts(variables={"sort_buffer_size": "4194304"})
    [found] = differences(facts(), changed)
    assert found == Difference("sort_buffer_size", "2097152", "4194304", found.said)


def test_a_hunt_without_a_server_needs_none() -> None:
    assert moved(facts(has_server=False), Facts("0" * 16, healthy().raw)) == []


def test_a_proof_on_another_host_is_refused_before_it_starts(tmp_path: Path) -> None:
    scheduler = {"block_devices.nvme1n1.queue.scheduler": "bfq", "hostname": "elsewhere"}
    save(saved(has_server=False, facts=scheduler), tmp_path / "a.hunt")
    options = ["--from", str(tmp_path / "a.hunt"), "--output", str(tmp_path / "x")]
    done = headrace("prove", "--live", "BLK01@nvme1n1", *options)
    assert done.returncode != 0
    assert "the host has changed since the finding" in done.stderr
    assert "the finding is from elsewhere" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_live_proof_has_its_budget_and_no_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both options were ignored."""
    facts = {"block_devices.nvme1n1.queue.scheduler": "bfq"}
    save(saved(has_server=False, facts=facts), tmp_path / "a.hunt")
    benches: list[prove.Bench] = []

    async def proof(bench: prove.Bench, *_: object) -> prove.Proof:
        benches.append(bench)
        return prove.Proof((), {}, None, None, ())

    monkeypatch.setattr(commands, "_refuse_if_moved", lambda *_: None)
    monkeypatch.setattr(prove, "prove_live", proof)
    words = ["prove", "--live", "BLK01@nvme1n1", "--from", str(tmp_path / "a.hunt"), "--mysql-socket", "/s"]
    done = headrace(*words, "--output", str(tmp_path / "x"), "--budget", "8m")
    assert done.returncode == 0, done.stderr
    assert [bench.minutes for bench in benches] == [8.0]
    refused = headrace(*words, "--response", "p99")
    assert (refused.returncode, "sees no latency" in refused.stderr) == (2, True)
    # Without --live it would have run on a private server here.
    elsewhere = headrace("prove", "BLK01@nvme1n1", "--target", "root@db1")
    assert (elsewhere.returncode, "only with --live" in elsewhere.stderr) == (2, True)
    assert len(benches) == 1


@pytest.mark.parametrize(
    ("then", "now", "shown"),
    [
        ("a=on,b=off,c=on", "b=on", ("b=off", "b=on")),
        ("a=on,b=off", "a=on,b=on,new=on", ("b=off", "b=on,new=on")),
        ("200", "2000", ("200", "2000")),
        ("ibdata1:12M:autoextend", "ibdata1:12M", ("ibdata1:12M:autoextend", "ibdata1:12M")),
        ("a=on", "", ("a=on", "")),
    ],
)
def test_of_switches_those_that_differ_are_shown(then: str, now: str, shown: tuple[str, str]) -> None:
    assert unlike(then, now) == shown


def test_where_nothing_can_be_proved_no_plan_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran an example plan on a private server, without a word."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prove, "prove_all", lambda *_, **__: pytest.fail("a plan was run"))
    facts = {"block_devices.nvme1n1.queue.scheduler": "bfq"}
    found = saved(facts=facts, status_rates={"select_full_join": 500.0, "questions": 1e3})
    save(found, tmp_path / "headrace" / "last.hunt")
    for words in (["BLK01@nvme1n1"], ["POOL01"], ["--auto"]):
        done = headrace("prove", *words)
        assert (done.returncode, "on which workload?" in done.stderr) == (2, True), done.stderr
    unknown = headrace("prove", "STMT99", "--plan", "stock-to-all")
    assert (unknown.returncode, "no rule is called STMT99" in unknown.stderr) == (3, True), unknown.stderr
    by_hand = next(f for f in examine(found).judgement.findings if not f.proof and f.hit.remedies)
    done = headrace("prove", by_hand.id)
    assert (done.returncode, "nothing to prove" in done.stderr) == (5, True), done.stderr
    assert not (tmp_path / "experiments").exists()
