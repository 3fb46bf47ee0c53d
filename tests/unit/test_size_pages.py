"""The pages of sizing: what is the same of many hosts is said once, and nothing is only in the JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headrace.capacity import capacity, catalogue, full, table
from headrace.capacity.cost import Growth
from headrace.capacity.model import Resource
from headrace.capacity.plan import Asked, Merged, plan
from headrace.capacity.report.merge import page_of
from headrace.show import html
from tests.demands import written
from tests.unit.test_size_full import one_host, rendered

FAST = Asked(seconds=1.0, exact=False, growth=Growth())


def planned(folder: Path, hosts: str, **cpu: float) -> Merged:
    path = folder / "hosts.csv"
    path.write_text(hosts)
    used = {name: np.full(48 * 8, value) for name, value in cpu.items()}
    return plan(table.read(written(folder / "d.csv", used)), catalogue.read(path), FAST)


def test_what_a_host_has_for_a_while_is_in_the_plan(tmp_path: Path) -> None:
    burstable = planned(tmp_path, "name,cpu,cpu_knee,cpu_burst,price\nt,2,0.8,8,50\n", db1=1.0)
    page = html.render(page_of(burstable))
    assert "bursts to" in page
    assert "8.00 cores" in page
    steady = planned(tmp_path, "name,cpu,cpu_knee,price\nt,2,0.8,50\n", db1=1.0)
    assert "bursts to" not in html.render(page_of(steady))


def test_assumptions_are_no_cautions(tmp_path: Path) -> None:
    """What every plan assumes is a list on the page; what is wrong with what was given is above it."""
    found = planned(tmp_path, "name,cpu,price\nt,2,50\n", db1=1.0)
    assert any("knee of cpu was not measured" in each for each in found.assumptions)
    assert any("db1" in each and "no replica" in each for each in found.cautions)
    page = page_of(found)
    assert page.cautions == found.cautions
    said = html.render(page)
    assert "What does the plan assume?" in said
    assert "knee of cpu was not measured" in said


def test_what_a_database_needs_too_much_of_is_named(tmp_path: Path) -> None:
    found = planned(tmp_path, "name,cpu,cpu_knee,price\nt,2,0.8,50\n", db1=1.0, huge=3.0)
    assert "its own peak of cpu" in found.unplaced["huge"]


def test_what_is_the_same_of_many_hosts_is_said_once() -> None:
    hosts = []
    for number in range(7):
        history = one_host({Resource.CPU: [1.0, 2.0, float("nan")]}, f"db{number}")
        one = full.outlook(history, capacity.known(history.host, {Resource.CPU: 4.0}))
        hosts.append(full.Host(one.name, one.end_s, one.outlooks, notes=("2% was not watched",)))
    said = " ".join(rendered(hosts).split())
    assert said.count("was not watched") == 1
    assert "and 2 more: 2% was not watched" in said
    assert said.count("waiting takes as long as") == 1
