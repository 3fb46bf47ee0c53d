"""What many hosts have in common: one sentence per group with the same cause, before everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.fleet.causes import NOTHING, cause_of, groups, sentences
from headrace.fleet.findings import Findings, to_json
from headrace.fleet.report import findings as report
from headrace.fleet.report import hosts
from headrace.fleet.runner import Outcome, State
from headrace.host.snapshot import save
from headrace.hunt.hunt import examine
from headrace.hunt.rules import all_rules, judge
from headrace.hunt.rules.cause import conclude
from headrace.hunt.rules.evidence import Evidence
from tests.commands import headrace
from tests.golden_hosts import HOSTS
from tests.rules.hosts import cores, healthy, unwell

NIC = "enp1s0f0np0"


def answer(evidence: Evidence) -> dict[str, Any]:
    judgement = judge(evidence, all_rules())
    return to_json(judgement, conclude(evidence, judgement))


def cloud(packets_s: float) -> Evidence:
    return unwell(rates={f"allowance.bw_out_allowance_exceeded.{NIC}": packets_s})


def full() -> Evidence:
    rates = {**cores(user=93.0, idle=0.5), "psi.some_total_us.cpu": 800_000.0}
    return unwell(rates=rates, gauges={"cpu.procs_running.": 30.0}, has_server=False)


def fleet() -> Findings:
    found = Findings()
    for host, evidence in {
        "db1": cloud(900.0),
        "db2": healthy(),
        "db3": cloud(4_000.0),
        "db4": full(),
        "db5": cloud(77.0),
    }.items():
        found.add(host, answer(evidence))
    return found


def test_hosts_with_one_cause_are_one_sentence_and_the_largest_group_is_first() -> None:
    found = fleet()
    first, second, last = sentences(found.causes, found.verdicts)
    assert first.startswith(
        "db[1,3,5] (3 of 5): the cloud holds packets back, because the instance has reached"
    )
    assert "For example db1: The cloud holds back or drops 900 packets/s" in first
    assert second.startswith(
        "db4 (1 of 5): the CPUs are saturated. For example db4: CPU time limits this host"
    )
    assert last == f"db2 (1 of 5): {NOTHING}."


def test_a_whole_fleet_is_all_hosts() -> None:
    found = Findings()
    for host in ("a", "b"):
        found.add(host, answer(cloud(900.0)))
    (only,) = groups(found.causes, found.verdicts)
    assert only.sentence.startswith("All 2 hosts: the cloud holds packets back")


def test_unknown_is_no_cause_and_never_fine() -> None:
    blind = answer(unwell(without=["cpu"]))
    assert blind["cause"] == {"key": "unknown", "words": "what limits them is unknown"}
    found = Findings()
    for host, content in {"a": blind, "b": answer(healthy()), "c": answer(full())}.items():
        found.add(host, content)
    assert [group.hosts for group in groups(found.causes, found.verdicts)] == [("c",), ("a",), ("b",)]


def test_an_answer_of_an_older_version_is_in_no_group() -> None:
    old = answer(full())
    del old["cause"]
    found = Findings()
    found.add("old", old)
    assert list(sentences(found.causes, found.verdicts)) == []
    assert report.to_json(found)["groups"] == []


def test_the_page_of_a_fleet_begins_with_them() -> None:
    parts = list(report.parts(fleet()))
    texts = [str(part) for part in parts]
    table = next(n for n, text in enumerate(texts) if "for example" in text and "Table" in text)
    assert any("db[1,3,5] (3 of 5)" in text for text in texts[:table])
    (cloudy, *_) = report.to_json(fleet())["groups"]
    assert cloudy["hosts"] == ["db1", "db3", "db5"]


def test_an_index_that_a_class_lacks_is_named_with_its_host() -> None:
    row = {
        "code": "STMT02",
        "title": "A statement reads much",
        "severity": "cost",
        "summary": "It reads 9,000 rows.",
    }
    found = Findings()
    found.add("old", answer(healthy()) | {"findings": [row]})
    found.add("db7", answer(healthy()) | {"findings": [{**row, "index": "shop.orders(customer,total)"}]})
    assert report.to_json(found)["findings"][0]["indexes"] == {"db7": ["shop.orders(customer,total)"]}
    assert "On db7 try an index on shop.orders(customer,total)." in "".join(map(str, report.parts(found)))


def test_several_saved_hunts_are_told_together_first(tmp_path: Path) -> None:
    for name in ("xen-one-hot-core", "spindle-full", "idle"):
        (tmp_path / "tree").mkdir(exist_ok=True)
        save(HOSTS[name](tmp_path / "tree" / name), tmp_path / f"{name}.hunt")
    told = headrace("hunt", "--brief", "--from", str(tmp_path))
    assert told.returncode == 0, told.stderr
    before, _, table = told.stdout.partition("verdict")
    assert before.startswith("What limits them")
    assert "of 3)" in before
    assert table
    single = headrace("hunt", "--brief", "--from", str(tmp_path / "idle.hunt"))
    assert "What limits them" not in single.stdout


def test_a_cause_is_the_one_that_the_sentence_names_first(tmp_path: Path) -> None:
    for name in HOSTS:
        found = examine(HOSTS[name](tmp_path / name))
        cause = cause_of(found.verdict, found.judgement)
        if found.verdict.causes:
            assert cause["key"] == found.verdict.causes[0].partition("@")[0], name
        elif found.verdict.limiting is not None:
            assert cause["key"] == found.verdict.limiting.resource, name
        else:
            assert cause["key"] in ("", "io", "threads", "unknown"), name


def test_a_short_name_of_a_host_is_not_taken_out_of_other_words() -> None:
    said = "cannot connect: nobody at a:22 (`ssh -p 22 root@a true`)"
    outcome = Outcome("a", State.UNREACHABLE, said, address="a:22")
    assert hosts._general(said, outcome) == "cannot connect: nobody at HOST (`ssh -p PORT root@HOST true`)"
