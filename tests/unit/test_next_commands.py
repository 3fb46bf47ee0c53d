"""Each finding ends in a command that exists, and what nobody can prove is refused at once."""

from __future__ import annotations

import functools
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer.core
import typer.main

from headrace.cli import load
from headrace.cli.shell import app
from headrace.experiment import prove
from headrace.hunt.hunt import examine
from headrace.hunt.report.findings import to_json
from headrace.hunt.rules.by_hand import BY_HAND, NOT_FOR_SPEED
from headrace.hunt.rules.rule import Finding, at
from tests.commands import headrace
from tests.rules.hosts import saved
from tests.unit.test_rules import CASES, RULES


@functools.cache
def findings() -> tuple[Finding, ...]:
    """Every finding of every case in which a rule fires."""
    fire = [case for case in CASES if case.subjects]
    return tuple(
        Finding(RULES[case.rule], hit) for case in fire for hit in RULES[case.rule].check(case.host())
    )


@functools.cache
def commands() -> typer.core.TyperGroup:
    load()
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return group


def parsed(command: str) -> None:
    """Raises UsageError unless the command line is one of headrace's, with options that it has."""
    program, name, *words = shlex.split(command)
    assert program == "headrace"
    group = commands()
    sub = group.commands[name]
    if isinstance(sub, typer.core.TyperGroup):
        name, *words = words
        sub = sub.commands[name]
    with sub.make_context(name, list(words)):
        pass


def test_the_command_that_each_finding_ends_in_exists() -> None:
    for command in sorted({finding.next_command for finding in findings()}):
        parsed(command)
    with pytest.raises(Exception, match="No such option"):
        parsed("headrace prove POOL01 --alive")


def test_the_command_is_of_the_host_and_the_server_that_were_named() -> None:
    target, login = ("--target", "root@db1"), ("--mysql-host", "db 1", "--mysql-user", "dba")
    hunt = replace(
        examine(saved(gauges={"processlist.states.Waiting for table metadata lock": 9.0})),
        target=target,
        login=login,
    )
    finding = next(each for each in hunt.judgement.findings if "rules" not in each.next_command)
    assert to_json(hunt, finding)["next"] == at(finding.next_command, target, login)
    for command in sorted({finding.next_command for finding in findings()}):
        pasted = at(command, target, login)
        parsed(pasted)
        is_anywhere = command.startswith("headrace rules") or "--plan" in command
        assert ("root@db1" in pasted) is not is_anywhere
        assert ("--mysql-host 'db 1'" in pasted) is not (is_anywhere or "latencies" in command)


def test_rules_whose_fixes_nobody_can_test_are_those_of_the_table() -> None:
    kinds: dict[str, set[str]] = {}
    for finding in findings():
        is_set = any(remedy.settings for remedy in finding.hit.remedies)
        kinds.setdefault(finding.rule.code, set()).add(
            "proof" if finding.proof else "set" if is_set else "hand"
        )
    assert {code for code, found in kinds.items() if found == {"hand"}} == BY_HAND
    assert {code for code, found in kinds.items() if "set" in found and "proof" not in found} == NOT_FOR_SPEED


@pytest.mark.parametrize("code", sorted(BY_HAND | NOT_FOR_SPEED))
def test_what_nobody_can_prove_is_refused_at_once(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "prove_all", lambda *_, **__: pytest.fail("a plan was run"))
    done = headrace(
        "prove", code, "--plan", "stock-to-all", cwd=tmp_path, env={"XDG_STATE_HOME": str(tmp_path)}
    )
    assert (done.returncode, "nothing to prove" in done.stderr) == (5, True), done.stderr
    if code in NOT_FOR_SPEED:
        parsed(done.stderr.rpartition("try: ")[2])
    assert not (tmp_path / "experiments").exists()
