"""Several faults at once: findings that stand beside each other do not contradict each other."""

from __future__ import annotations

import contextlib
import importlib
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from headrace.hunt.rules import AREAS, all_rules, judge
from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Finding, Severity
from headrace.knobs.knob import size_bytes
from tests.rules import hosts
from tests.rules.case import Case

RULES = all_rules()
#: The host has too little memory, whatever the cause.
SHORT = ("MEM01", "MEM11", "MEM18")
WORSE = (Severity.LIMIT, Severity.RISK, Severity.COST)
#: Sizes that are not memory, or some MiB of it: a stack for each thread.
NO_MEMORY = ("server.innodb_log_file_size", "server.innodb_redo_log_capacity", "server.max_binlog_size",
             "server.thread_cache_size", "server.thread_pool_size")  # fmt: skip
#: Parts of the names of settings that take memory, and prefixes of the codes of rules about memory.
MEMORY = re.compile("size|buffer|cache|connections|stmt_count")
OF_MEMORY = ("MEM", "SESS", "POOL", "STMT", "REDO", "BLOG")
Changes = Mapping[str, Any]


class Noted(Exception):
    """A case said what it changes; its host is not needed."""


@pytest.fixture(scope="module")
def changes() -> dict[str, list[Changes]]:
    """Rule -> what each of its cases changes of the healthy host."""
    areas = [importlib.import_module(f"tests.rules.{area}_cases") for area in AREAS]
    cases: list[Case] = [case for area in areas for case in area.CASES if case.subjects and not case.missing]
    kept: list[Changes] = []

    def noted(**given: Any) -> Evidence:
        kept.append(given)
        raise Noted

    real = hosts.unwell
    found: dict[str, list[Changes]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            is_area = name.startswith("tests.rules.") and module is not hosts
            if is_area and getattr(module, "unwell", None) is real:
                patch.setattr(module, "unwell", noted)
        for case in cases:
            kept.clear()
            with contextlib.suppress(Noted):
                case.host()
            if kept:
                found.setdefault(case.rule, []).append(kept[-1])
    return found


def merged(each: Sequence[Changes]) -> Evidence | None:
    """A host with all of these changes; None where they are of different servers, or one takes away another's."""
    if len({one.get("vendor", "mariadb") for one in each}) > 1:
        return None
    whole: dict[str, Any] = {}
    for one in each:
        for name, value in one.items():
            before = whole.get(name)
            whole[name] = {**before, **value} if isinstance(before, dict) else value
    try:
        return hosts.unwell(**whole)
    except KeyError:
        return None


def grown(evidence: Evidence, findings: Sequence[Finding]) -> Iterator[tuple[str, str, bool]]:
    """Rule, variable, and whether its remedy raises it; of variables that are numbers."""
    for finding in findings:
        for remedy in finding.hit.remedies:
            for knob, value in remedy.settings.items():
                name = knob.removeprefix("server.")
                if knob.startswith("server.") and evidence.has_variable(name):
                    try:
                        now, then = float(evidence.variable(name)), float(size_bytes(str(value)))
                    except ValueError:
                        continue
                    yield finding.rule.code, knob, then > now


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.thorough)])
def test_no_two_findings_pull_a_variable_both_ways(changes: Mapping[str, list[Changes]], count: int) -> None:
    dice, every = random.Random(44), [one for of_rule in changes.values() for one in of_rule]
    judged = 0
    for _ in range(count):
        evidence = merged(dice.sample(every, 3))
        if evidence is None:
            continue
        judged += 1
        ways: dict[str, dict[bool, str]] = {}
        for rule, knob, is_up in grown(evidence, judge(evidence, RULES).findings):
            ways.setdefault(knob, {})[is_up] = rule
        # A finding may offer two ways to choose from.
        assert not {knob: way for knob, way in ways.items() if len(set(way.values())) > 1}
    assert judged > count / 4


@pytest.mark.parametrize("count", [1, pytest.param(25, marks=pytest.mark.thorough)])
def test_where_memory_is_short_nothing_is_advised_that_takes_more(
    changes: Mapping[str, list[Changes]], count: int
) -> None:
    dice = random.Random(45)
    rules = [each for each in RULES if each.code.startswith(OF_MEMORY)]
    hungry = {code: each for code, each in changes.items() if code.startswith(OF_MEMORY[1:])}
    judged = 0
    for rule in SHORT:
        for of_rule in hungry.values():
            for _ in range(count):
                evidence = merged([dice.choice(of_rule), dice.choice(changes[rule])])
                if evidence is None:
                    continue
                findings = judge(evidence, rules).findings
                if not any(each.rule.code == rule and each.severity in WORSE for each in findings):
                    continue
                judged += 1
                up = [(code, knob) for code, knob, is_up in grown(evidence, findings) if is_up]
                assert not [knob for _, knob in up if MEMORY.search(knob) and knob not in NO_MEMORY], (
                    rule,
                    up,
                )
    assert judged > 20
