"""What is missing never makes a rule fire, and never stops one with anything but what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.model import Facts
from headrace.rules import all_rules, judge
from headrace.rules.evidence import Evidence
from tests.rules.hosts import GAUGES, RATES, healthy

SAMPLERS = sorted({key.partition(".")[0] for key in (*RATES, *GAUGES)} | {"mysql_status"})
FACTS = sorted(healthy().raw)


def paths(content: Any, *before: str | int) -> Iterator[tuple[str | int, ...]]:
    """Every place in the facts, of a list the first three."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield (*before, key)
            yield from paths(value, *before, key)
    elif isinstance(content, list):
        for number, value in enumerate(content[:3]):
            yield from paths(value, *before, number)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("vendor", ["mariadb", "mysql"])
def test_a_sampler_without_values(sampler: str, vendor: str) -> None:
    judgement = judge(healthy(vendor, without=[sampler]), all_rules())
    assert [f"{finding.id}: {finding.hit.summary}" for finding in judgement.findings] == []


@pytest.mark.parametrize("key", FACTS)
@pytest.mark.parametrize("has_server", [True, False])
def test_a_part_of_the_facts_that_is_null(key: str, has_server: bool) -> None:
    judgement = judge(healthy(without=[key], has_server=has_server), all_rules())
    assert [f"{finding.id}: {finding.hit.summary}" for finding in judgement.findings] == []


#: What names a thing: without it the agent tells nothing of the thing.
NAMES = {"name", "mount_point", "pid", "program", "irq", "node", "vendor", "version", "engine"}


def test_every_single_fact_that_is_null() -> None:
    evidence = healthy()
    window, rules = evidence.window, all_rules()
    content: dict[str, Any] = dict(evidence.raw)
    for path in paths(content):
        if path[-1] in NAMES or "variables" in path:
            continue
        *folders, last = path
        place: Any = content
        for part in folders:
            place = place[part]
        kept, place[last] = place[last], None
        judgement = judge(Evidence(Facts("0" * 16, content), window), rules)
        found = [f"{finding.id}: {finding.hit.summary}" for finding in judgement.findings]
        assert found == [], f"without {path}"
        place[last] = kept


def test_nothing_at_all() -> None:
    every = [*SAMPLERS, *FACTS]
    judgement = judge(healthy(without=every, has_server=False, gauges={"agent.missed.": 0.0}), all_rules())
    assert not judgement.findings
    assert judgement.blind
