"""Every rule fires, is silent and says what it lacks where it must; a healthy host hears nothing."""

from __future__ import annotations

import importlib
import random

import pytest

from headrace.base.model import Facts
from headrace.host.samples import Samples
from headrace.host.window import Window
from headrace.hunt.rules import AREAS, all_rules, judge
from headrace.hunt.rules.cause import conclude
from headrace.hunt.rules.evidence import Evidence, NotEnough
from headrace.hunt.rules.rule import Confidence, Rule, Severity
from headrace.knobs import catalogue as knobs
from tests.json_numbers import is_number
from tests.rules.case import Case
from tests.rules.hosts import healthy
from tests.rules.well import COUNT, well
from tests.totals import faults

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
    if case.sets is not None:
        assert tuple(dict(remedy.settings) for remedy in hits[0].remedies) == case.sets
    if case.severity is not None:
        assert (hits[0].severity or rule.severity) is case.severity
    steps = " ".join(step for hit in hits[:1] for remedy in hit.remedies for step in remedy.steps)
    for part in case.steps:
        assert part in steps
        steps = steps.partition(part)[2]
    for hit in hits:
        said = [hit.summary, *(f"{each.what}: {each.value}" for each in hit.evidence)]
        assert [fault for text in said for fault in faults(text)] == []
        assert hit.evidence, "a finding without numbers"
        as_text = [
            each
            for each in hit.evidence
            # A version is a text.
            if each.exact is None
            and is_number(each.value)
            and each.what not in ("gone since", "deprecated since")
        ]
        assert not as_text, "give `number` the number and its format: programs get text otherwise"
        assert hit.remedies, "a finding without a remedy"
        for remedy in hit.remedies:
            assert remedy.settings or remedy.steps
            for name, value in remedy.settings.items():
                knobs.check(name.partition("@")[0], value)
                refused = knobs.find(name.partition("@")[0]).never
                assert not refused, f"{name}: apply refuses it, so it is a step for a person: {refused}"


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


@pytest.mark.parametrize("number", range(COUNT))
def test_hosts_with_nothing_wrong_hear_of_no_bottleneck_risk_or_cost(number: int) -> None:
    """A suggestion may stand if its rule has little confidence in it, and what is to be tidied up some day."""
    host = well(number)
    judgement = judge(host.evidence, RULES.values())
    cries = [
        f"{finding.id} ({severity}, {finding.rule.confidence}): {finding.hit.summary}"
        for finding in judgement.findings
        if (severity := finding.hit.severity or finding.rule.severity) is not Severity.HOUSEKEEPING
        and not (severity is Severity.ADVICE and finding.rule.confidence is Confidence.LOW)
    ]
    assert cries == [], host.name
    assert host.evidence.verdict.limiting is None, host.name
    assert len(judgement.blind) < len(RULES) / 4, "they were silent for want of data"


def test_the_same_hosts_with_a_fault_hear_of_it() -> None:
    """What makes them ill is seen at each load, so their silence is no deafness."""
    for number in range(0, COUNT, 5):
        ill = well(number, {"cgroup.nr_throttled.system.slice/mysql.service": 8.0})
        found = {finding.rule.code for finding in judge(ill.evidence, RULES.values()).findings}
        assert "CPU03" in found, ill.name


def test_a_rule_that_lacks_data_never_stops_the_others() -> None:
    evidence = healthy(has_server=False, without=["softirqs", "psi", "softnet", "disk"])
    judgement = judge(evidence, RULES.values())
    assert {"NET01", "NET02"} <= {blind.rule.code for blind in judgement.blind}
    assert not judgement.findings


def shaken(evidence: Evidence, dice: random.Random) -> Evidence:
    """With an eighth of its counters and gauges many times as large, or as small."""
    own = evidence.window.samples
    value = own.value.copy()
    for number in dice.sample(range(len(own.names)), len(own.names) // 8):
        part = slice(own.starts[number], own.ends[number])
        factor, first = dice.choice((0.0, 0.01, 0.1, 3.0, 10.0, 100.0)), value[own.starts[number]]
        is_counter = dice.random() < 0.7
        value[part] = first + (value[part] - first) * factor if is_counter else value[part] * factor
    window = Window(Samples(own.names, own.starts, own.t_ns, value), evidence.window.errors)
    return Evidence(Facts("0" * 16, dict(evidence.raw)), window, activity=evidence.activity)


@pytest.mark.parametrize("count", [12, pytest.param(600, marks=pytest.mark.thorough)])
def test_counters_that_lie_make_no_total_below_its_part(count: int) -> None:
    dice = random.Random(46)
    for case in dice.choices([each for each in CASES if not each.missing], k=count):
        evidence = shaken(case.host(), dice)
        judgement = judge(evidence, RULES.values())
        said = [conclude(evidence, judgement).sentence]
        said += [f"{use.load}; {use.saturation}; {use.errors}" for use in evidence.verdict.uses]
        said += [finding.hit.summary for finding in judgement.findings]
        assert [(case.name, fault, text) for text in said for fault in faults(text)] == []
