"""What is missing never makes a rule fire, and never stops one with anything but what it lacks."""

from __future__ import annotations

import copy
import functools
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.host.shape import shaped
from headrace.host.snapshot import load, save
from headrace.host.window import Window
from headrace.hunt.hunt import examine
from headrace.hunt.rules import AREAS, all_rules, judge
from headrace.hunt.rules.cause import conclude
from headrace.hunt.rules.evidence import Evidence
from tests.rules.case import Case
from tests.rules.hosts import GAUGES, RATES, healthy, saved

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
#: Nor without these.
NEVER_NULL = {*NAMES, "options", "super_options", "changed", "rows"}


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


GONE = object()
#: Values of other shapes than any fact's, and no value at all.
ODD: list[Any] = [GONE, "text", -1, 2.5, True, [], ["x"], {}, {"a": 1}]


def with_odd(raw: dict[str, Any], path: Sequence[str | int], value: Any) -> dict[str, Any]:
    """The facts with another value at one place, as they are read from a file."""
    *folders, last = path
    changed: Any = copy.deepcopy(raw)
    place: Any = functools.reduce(lambda place, part: place[part], folders, changed)
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return shaped(changed)[0]


def test_facts_of_another_shape_reach_no_rule() -> None:
    """A file that another program wrote: each place in turn, of all that the agent writes."""
    raw = json.loads(json.dumps(dict(healthy().raw)))
    assert shaped(raw) == (raw, ())
    window, rules = healthy().window, all_rules()
    for turn, path in enumerate(paths(raw)):
        for number, value in enumerate(ODD):
            if (turn + number) % 53:  # each takes milliseconds
                continue
            evidence = Evidence(Facts("0" * 16, with_odd(raw, path, value)), window)
            assert conclude(evidence, judge(evidence, rules)).sentence, (path, value)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            ["cpu", "online_count"],
            "eight",
            "taken for unknown, because no agent writes them so: cpu.online_count",
        ),
        (["servers", 0, "pid"], None, "because no agent writes them so: servers.0 without pid"),
        (
            ["server_settings", "vendor"],
            "oracle",
            "so: server_settings.vendor, server_settings without vendor",
        ),
        (["sysctls", "vm.swappiness"], 60, "sysctls.vm.swappiness"),
        (["memory"], [], "memory"),
    ],
)
def test_what_a_saved_hunt_has_of_another_shape_is_named(
    path: list[str | int], value: Any, said: str, tmp_path: Path
) -> None:
    raw = json.loads(json.dumps(dict(healthy().raw)))
    *folders, last = path
    place: Any = functools.reduce(lambda place, part: place[part], folders, raw)
    place[last] = value
    save(replace(saved(), facts=Facts("0" * 16, raw)), tmp_path / "odd.hunt")
    read = load(tmp_path / "odd.hunt")
    assert said in read.errors["facts"]
    assert examine(read).verdict.sentence


def test_nothing_at_all() -> None:
    every = [*SAMPLERS, *FACTS]
    judgement = judge(healthy(without=every, has_server=False, gauges={"agent.missed.": 0.0}), all_rules())
    assert not judgement.findings
    assert judgement.blind


class Noted(dict[Any, Any]):
    """Remembers which of its keys were looked up, and which in the dictionaries within."""

    def __init__(self, content: Mapping[Any, Any], asked: set[tuple[Any, ...]], *at: str | int) -> None:
        super().__init__({key: noted(value, asked, *at, key) for key, value in content.items()})
        self.asked, self.at = asked, at

    def __getitem__(self, key: Any) -> Any:
        self.asked.add((*self.at, key))
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.asked.add((*self.at, key))
        return super().get(key, default)


def noted(content: Any, asked: set[tuple[Any, ...]], *at: str | int) -> Any:
    if isinstance(content, dict):
        return Noted(content, asked, *at)
    if isinstance(content, list):
        return [noted(value, asked, *at, number) for number, value in enumerate(content)]
    return content


def changed(evidence: Evidence, raw: Mapping[str, Any], window: Window | None = None) -> Evidence:
    found = Evidence(Facts("0" * 16, raw), window or evidence.window, activity=evidence.activity)
    found.limits, found.alone_ms = evidence.limits, evidence.alone_ms
    return found


def lacking(evidence: Evidence, metric: tuple[str, str], label: str | None) -> Evidence:
    """The same evidence without one label of a metric; without the metric if that is None."""
    window = copy.copy(evidence.window)
    index = dict(window._index)
    left = {name: number for name, number in index.pop(metric).items() if label is not None and name != label}
    window._index = {**index, metric: left} if left else index
    window._samplers = frozenset(name for name, _ in window._index)
    return changed(evidence, evidence.raw, window)


FIRING = [
    case
    for area in AREAS
    for case in importlib.import_module(f"tests.rules.{area}_cases").CASES
    if case.subjects
]


def each_rule_first(cases: Sequence[Case]) -> Iterator[Any]:
    """The first case of each rule, and the others marked: they read much the same."""
    seen: set[str] = set()
    for case in cases:
        marks = [pytest.mark.thorough] if case.rule in seen else []
        yield pytest.param(case, marks=marks, id=f"{case.rule}-{case.name.replace(' ', '-')}")
        seen.add(case.rule)


@pytest.mark.parametrize("case", each_rule_first(FIRING))
def test_each_thing_that_a_rule_reads_where_it_fires(case: Case) -> None:
    """The agent leaves out what it cannot read, and a label of which there is none."""
    evidence = case.host()
    [own] = [rule for rule in all_rules() if rule.code == case.rule]
    asked: set[tuple[Any, ...]] = set()
    evidence.window._index = Noted(evidence.window._index, set())
    list(own.check(evidence))
    for (metric,) in evidence.window._index.asked & {(key,) for key in evidence.window._index}:
        for label in (None, *evidence.window._index[metric]):
            judge(lacking(evidence, metric, label), [own])
    raw = json.loads(json.dumps(dict(evidence.raw)))
    list(own.check(changed(evidence, Noted(raw, asked))))
    for path in asked:
        *folders, last = path
        place = functools.reduce(lambda place, part: place[part], folders, raw)
        if last not in place or last in NEVER_NULL or "variables" in path:
            continue
        kept, place[last] = place[last], None
        judge(changed(evidence, raw), [own])
        place[last] = kept
    for turn, path in enumerate(sorted(asked, key=str)):
        *folders, last = path
        place = functools.reduce(lambda place, part: place[part], folders, raw)
        if last in place and "variables" not in path and (turn + len(case.name)) % 5 == 0:
            judge(changed(evidence, with_odd(raw, path, ODD[turn % len(ODD)])), [own])
