"""What the server itself tells is found without its host, too: only what nobody but the host knows is unknown."""

from __future__ import annotations

import pytest

from headrace.base.errors import HostUnknown
from headrace.base.model import Facts
from headrace.hunt.hunt import SqlOnly
from headrace.hunt.rules.evidence import Evidence
from tests.rules.case import Case
from tests.unit.test_rules import CASES, RULES
from tests.whereabouts import OF_A_HOST

#: Areas of rules about the host; two of the server's own are among them.
OF_HOSTS = ("ALLOC", "BLK", "CPU", "FS", "HOST", "IRQ", "LIM", "MEM", "NET", "RAID", "TCP")
#: Rules, or one case of a rule, that need the host -> what for.
NEEDS_THE_HOST = {
    "LOCK20 counted, with the defaults": "how many CPUs there are: pauses as a share of them",
    "LOCK01": "idle CPUs; the sessions' waits say it",
    "NAME01": "option files",
    "POOL01": "idle memory; WAIT03 says the rest",
    "POOL02": "memory",
    "POOL08": "idle memory; WAIT03 says the rest",
    "REDO05": "the log's device; WAIT01 says the rest",
    "STAT05": "huge pages",
    "STAT06": "memory of other programs",
    "STMT05": "what is saturated, where little is executed",
}
#: Rule -> its cases that may hold by SQL alone. Hosts are made by the tests: every process collects them.
OWN: dict[str, list[Case]] = {}
for _case in CASES:
    if (
        _case.subjects
        and not _case.rule.startswith(OF_HOSTS)
        and {_case.rule, f"{_case.rule} {_case.name}"}.isdisjoint(NEEDS_THE_HOST)
    ):
        OWN.setdefault(_case.rule, []).append(_case)


@pytest.mark.parametrize("code", OWN)
def test_a_rule_of_the_server_finds_its_causes_without_the_host(code: str) -> None:
    for case in OWN[code]:
        whole = case.host()
        if not (whole.has_server and whole.has_host):
            continue
        facts = SqlOnly().facts(Facts("0" * 16, dict(whole.raw)))
        try:
            hits = list(RULES[code].check(Evidence(facts, whole.window, activity=whole.activity)))
        except HostUnknown as error:
            pytest.fail(f"{case.name} needs a host: {error}")
        assert tuple(hit.subject for hit in hits) == case.subjects, case.name
        for hit in hits:
            assert not OF_A_HOST.search(hit.summary), case.name
