"""Every rule fires, is silent and says what it lacks where it must; a healthy host hears nothing."""

from __future__ import annotations

import importlib

import pytest

from headrace import knobs
from headrace.rules import AREAS, all_rules, judge
from headrace.rules.evidence import NotEnough
from headrace.rules.rule import Rule
from tests.rules.case import Case
from tests.rules.hosts import healthy

RULES = {rule.code: rule for rule in all_rules()}
CASES: list[Case] = [
    case for area in AREAS for case in importlib.import_module(f"tests.rules.{area}_cases").CASES
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name.replace(' ', '-')}")
def test_case(case: Case) -> None:
    evidence = case.host()
    rule = RULES[case.rule]
    if case.missing:
        with pytest.raises(NotEnough, match=case.missing):
            list(rule.check(evidence))
        return
    assert evidence.is_for(rule.applies_to)
    hits = list(rule.check(evidence))
    assert tuple(hit.subject for hit in hits) == case.subjects
    for part in case.says:
        assert part in hits[0].summary
    for hit in hits:
        assert hit.evidence, "a finding without numbers"
        assert hit.remedies, "a finding without a remedy"
        for remedy in hit.remedies:
            assert remedy.settings or remedy.steps
            for name, value in remedy.settings.items():
                knobs.check(name.partition("@")[0], value)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_a_rule_is_whole(rule: Rule) -> None:
    own = [case for case in CASES if case.rule == rule.code]
    assert any(case.subjects for case in own), "no case in which it fires"
    assert any(not case.subjects and not case.missing for case in own), "no case in which it is silent"
    assert all((rule.title, rule.why, rule.source, rule.refute))
    assert rule.title[0].isupper()
    assert not rule.title.endswith(".")


@pytest.mark.parametrize("vendor", ["mariadb", "mysql"])
def test_a_healthy_host_gives_no_warning(vendor: str) -> None:
    evidence = healthy(vendor)
    judgement = judge(evidence, RULES.values())
    assert [f"{finding.id}: {finding.hit.summary}" for finding in judgement.findings] == []
    assert evidence.verdict.limiting is None
    assert "Nothing limits this host" in evidence.verdict.sentence


def test_a_rule_that_lacks_data_never_stops_the_others() -> None:
    evidence = healthy(has_server=False, without=["softirqs", "psi", "softnet", "disk"])
    judgement = judge(evidence, RULES.values())
    assert {"NET01", "NET02"} <= {blind.rule.code for blind in judgement.blind}
    assert not judgement.findings
