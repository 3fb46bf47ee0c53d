"""A rollout with restarts whose host is left alone, or that changes nothing: without any host."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from headrace.base.errors import PlanError, Refused, TargetError
from headrace.base.model import Facts
from headrace.change import apply as rollout
from headrace.rollout import dry, hands, rules
from headrace.rollout.book import Book
from headrace.rollout.command import rollout_app
from headrace.rollout.fleets import World, series, window
from headrace.rollout.guards import Window
from headrace.rollout.judge import Question
from headrace.rollout.paired import Moment
from headrace.rollout.paired_fleets import BLOCK, shifted
from headrace.rollout.plan import make
from headrace.rollout.report import rollout as report
from headrace.rollout.service import TOO_LATE, RestartSite
from headrace.rollout.watch import Follower
from headrace.show import terminal
from tests.unit.test_staged import SETTINGS, topology
from tests.unit.test_staged_restart import RESTART, equal, plan_of
from tests.written import printed

ALONE = RESTART + "host_restarts = true\n"
CHANGE = "x-1"


class Journal:
    """The host's: what is open, in the order in which it was asked."""

    def __init__(self, *kinds: str) -> None:
        self.open = list(kinds)
        self.asked: list[str] = []
        self.refuses = ""
        self.until_ns = 10**18

    owner = f"apply/{CHANGE}"

    async def entries(self) -> list[dict[str, Any]]:
        deadline = {"uptime_ns": self.until_ns}
        return [{"owner": self.owner, "kind": kind, "deadline": deadline} for kind in self.open]

    async def history(self) -> list[dict[str, Any]]:
        return []

    async def rollback(
        self, *, restart_within_s: float | None = None, accept_foreign: bool = False
    ) -> list[Any]:
        self.asked.append("files" if restart_within_s else "all")
        self.open = [kind for kind in self.open if restart_within_s and kind == "restart"]
        return []

    async def extend(self, within_s: float) -> None:
        self.asked.append("extend")
        if self.refuses:
            raise Refused(self.refuses)

    async def confirm(self) -> None:
        self.asked.append("confirm")


class Steps(RestartSite):
    """What it does with a server, in words."""

    did: list[str]
    is_server_old = False

    async def _leave(self) -> None:
        self.did.append("leave")
        self.book.note("out", host=self.member.name, pages=0.0, misses=0.0)

    async def _enter(self) -> None:
        self.did.append("enter")
        self.book.note("in", host=self.member.name)

    async def _restart_with_the_old(self) -> None:
        self.did.append("restart")
        await asyncio.sleep(0.05)

    async def _is_old(self) -> bool:
        return self.is_server_old


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Book:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plan = plan_of(tmp_path, equal(*topology("a", 2)), ALONE + "[timing]\nlease_s = 5\n")
    return Book.make(plan)


def site_of(book: Book, monkeypatch: pytest.MonkeyPatch, journal: Journal) -> Steps:
    monkeypatch.setattr("headrace.change.apply.journal_of", lambda *_: journal)
    nobody: Any = None
    agent: Any = SimpleNamespace(facts=replicating)
    site = Steps(book, book.plan.members["ar1"], agent, nobody, Follower())
    site.did = []
    return site


async def replicating(login: Any) -> Facts:
    return Facts("", {"server_settings": {"variables": {}, "replication": [{"source_host": "a"}]}})


async def promoted(login: Any) -> Facts:
    return Facts("", {"server_settings": {"variables": {}, "replicas": [{"server_id": 1}]}})


def restarted(book: Book, *, is_out: bool) -> None:
    book.note("out", host="ar1", pages=0.0, misses=0.0)
    book.note("applying", host="ar1", change=CHANGE)
    book.note("restarting", host="ar1", change=CHANGE)
    if not is_out:
        book.note("in", host="ar1")


def test_the_file_is_back_before_the_drain_and_the_restart_is_open_until_it_was_made(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted(book, is_out=False)
    journal = Journal("restart", "file")
    site = site_of(book, monkeypatch, journal)
    asyncio.run(site.undo_open())
    assert (journal.asked, site.did) == (["files", "all"], ["leave", "restart", "enter"])
    assert book.state.host("ar1") == "as before"


def test_a_replica_that_was_promoted_meanwhile_is_not_drained_and_restarted(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted(book, is_out=False)
    journal = Journal("restart", "file")
    site = site_of(book, monkeypatch, journal)
    site.agent = SimpleNamespace(facts=promoted)  # type: ignore[assignment]
    with pytest.raises(TargetError, match="is a source now: its option file is restored, but"):
        asyncio.run(site.undo_open())
    assert (journal.asked, site.did) == (["files"], [])
    assert book.state.host("ar1") == "changing"


@pytest.mark.parametrize("is_out", [True, False])
def test_what_the_host_has_undone_by_itself_is_not_restarted_again(
    book: Book, monkeypatch: pytest.MonkeyPatch, is_out: bool
) -> None:
    restarted(book, is_out=is_out)
    site = site_of(book, monkeypatch, Journal())
    site.is_server_old = True
    asyncio.run(site.undo_open())
    assert site.did == (["enter"] if is_out else [])
    assert book.state.host("ar1") == "as before"


def test_a_kept_change_that_the_journal_does_not_know_costs_no_restart(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another HEADRACE_STATE: the file stays as it is, so restarting the server would restore nothing."""
    restarted(book, is_out=False)
    book.note("kept", host="ar1", change=CHANGE)
    site = knowing(site_of(book, monkeypatch, Journal()), monkeypatch, "fsync")
    with pytest.raises(TargetError, match="does not know the change"):
        asyncio.run(site.undo_all([CHANGE]))
    assert site.did == []
    assert book.state.host("ar1") == "changed"


def test_a_kept_change_whose_file_is_back_is_continued_with_the_restart(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command had to leave the restart to a person, and the host's journal has forgotten the change."""
    restarted(book, is_out=False)
    book.note("kept", host="ar1", change=CHANGE)
    book.note("file_restored", host="ar1", change=CHANGE)
    site = site_of(book, monkeypatch, Journal())
    asyncio.run(site.undo_all([CHANGE]))
    assert site.did == ["leave", "restart", "enter"]
    assert book.state.host("ar1") == "as before"


def knowing(site: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> Any:
    """A site whose server has this value now."""

    async def prepare(*_: Any, **more: Any) -> Any:
        [(name, wanted)] = site.book.plan.settings.items()
        return SimpleNamespace(steps=[SimpleNamespace(name=name, before=value, value=wanted)])

    async def facts(login: Any) -> Facts:
        return Facts("", {"server_settings": {"variables": {}}})

    monkeypatch.setattr("headrace.change.apply.prepare", prepare)
    site.agent = SimpleNamespace(facts=facts)
    return site


@pytest.mark.parametrize(("value", "is_restored"), [("2000", False), ("200", True), ("3000", True)])
def test_a_host_is_not_restored_because_its_journal_knows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, is_restored: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    book = Book.make(make(SETTINGS, topology("a", 2), rules.load(None), 1))
    monkeypatch.setattr("headrace.change.apply.journal_of", lambda *_: Journal())
    nobody: Any = None
    site = hands.Site(book, book.plan.members["ar1"], nobody, nobody, Follower())
    book.note("applying", host="ar1", change=CHANGE)
    book.note("kept", host="ar1", change=CHANGE)
    undone = knowing(site, monkeypatch, value).undo(CHANGE)
    if is_restored:
        asyncio.run(undone)
    else:
        with pytest.raises(TargetError, match=r"nothing was undone: server.innodb_io_capacity = 2000"):
            asyncio.run(undone)
    assert book.state.host("ar1") == ("as before" if is_restored else "changed")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"server_uuid": "u9"}, "another server answers there: it was u1 and is u9"),
        ({"replication": []}, "it was a replica and is a alone now"),
        ({"replication": [{"source_host": "b", "source_uuid": "u2"}]}, "it replicates from b now"),
        ({}, ""),
    ],
)
def test_a_host_that_is_another_one_now_is_noticed(book: Book, now: dict[str, Any], said: str) -> None:
    answer: dict[str, Any] = {}

    async def facts(login: Any) -> Facts:
        channels = answer.get("replication", [{"source_host": "a", "source_uuid": "u0", "lag_s": 0}])
        variables = {"server_uuid": answer.get("server_uuid", "u1")}
        return Facts("", {"server_settings": {"variables": variables, "replication": channels}})

    nobody: Any = None
    member = dataclasses.replace(book.plan.members["ar1"], identity="u1")
    agent: Any = SimpleNamespace(facts=facts)
    site = hands.Site(book, member, agent, nobody, Follower())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.change.apply.journal_of", lambda *_: Journal())
        asyncio.run(site.check())
    answer.update(now)
    if said:
        with pytest.raises(hands.Moved, match=said):
            asyncio.run(site.must_be_the_same())
    else:
        asyncio.run(site.must_be_the_same())


def test_a_file_that_is_gone_says_nothing_of_the_server(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    restarted(book, is_out=False)
    site = site_of(book, monkeypatch, Journal())
    asyncio.run(site.undo_open())
    assert site.did == ["leave", "restart", "enter"]


def test_what_the_host_has_taken_back_ends_the_work(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = dataclasses.replace(
        book.plan,
        rules=book.plan.rules.model_copy(
            update={"timing": book.plan.rules.timing.model_copy(update={"lease_s": 0.03})}
        ),
    )
    book.plan = plan
    journal = Journal("restart", "file")
    site = site_of(book, monkeypatch, journal)
    ended = []

    async def work(seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
            ended.append("done")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    asyncio.run(site.leased([CHANGE], work(0.1)))
    assert len(journal.asked) > 2
    journal.refuses = "too late"
    with pytest.raises(Refused, match="too late"):
        asyncio.run(site.leased([CHANGE], work(60)))
    assert ended == ["done", "cancelled"]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_restart_that_comes_late_restarts_nothing(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    journal = Journal("restart", "file")
    journal.until_ns = 10**9 if is_late else 10**18
    site = site_of(book, monkeypatch, journal)
    command = asyncio.run(site._unless_late(CHANGE))
    command = command.replace(site.rule.restart, f"touch {tmp_path}/restarted")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (tmp_path / "restarted").exists() != is_late
    assert (TOO_LATE in done.stdout, done.returncode) == (is_late, int(is_late))
    assert journal.asked == ["extend"]


@pytest.mark.parametrize("state", ["ONLINE", "RECOVERING", "UNREACHABLE"])
def test_a_member_is_not_changed_while_another_one_of_its_group_is_away(
    book: Book, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The other one need not be part of the plan."""
    members = [
        {"host": f"db{n}", "port": 3306, "state": each, "role": "SECONDARY", "is_own": n == 1, "id": str(n)}
        for n, each in ((1, "ONLINE"), (2, state))
    ]

    async def facts(login: Any) -> Facts:
        settings = {"variables": {}, "replication": [{"lag_s": 0}], "group": {"members": members}}
        return Facts("", {"server_settings": settings})

    site = site_of(book, monkeypatch, Journal())
    site.agent = SimpleNamespace(facts=facts)  # type: ignore[assignment]
    if state == "ONLINE":
        asyncio.run(site.check())
        return
    with pytest.raises(TargetError, match=f"of its group db2:3306 is {state}"):
        asyncio.run(site.check())


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("200", "not heard from for 5 s and has taken the change back"),
        ("300", "has set these values meanwhile"),
    ],
)
def test_a_change_that_is_not_open_any_more_says_who_undid_it(
    book: Book, monkeypatch: pytest.MonkeyPatch, before: str, said: str
) -> None:
    """Cut off while it was made, the host undoes it before we hear that it was made."""

    async def prepared(*_: Any, **__: Any) -> None: ...

    async def done(*_: Any, **__: Any) -> rollout.Rollout:
        return rollout.Rollout(
            "x", (rollout.Result("server.innodb_io_capacity", before, "300", ""),), (), True
        )

    monkeypatch.setattr(rollout, "prepare", prepared)
    monkeypatch.setattr(rollout, "carry_out", done)
    nobody: Any = None
    site = hands.Site(book, book.plan.members["ar1"], nobody, nobody, Follower())
    with pytest.raises(TargetError, match=said) as raised:
        asyncio.run(site.apply())
    # One that only was away is tried again.
    assert isinstance(raised.value, hands.Moved) is (before == "300")
    assert book.state.host("ar1") == "as before"


def test_it_is_kept_on_the_host_before_the_log_says_so(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    restarted(book, is_out=False)
    journal = Journal("restart", "file")
    site = site_of(book, monkeypatch, journal)
    asyncio.run(site.keep(CHANGE))
    assert journal.asked == ["confirm"]
    assert book.state.kept == {"ar1": CHANGE}


def test_commands_that_run_elsewhere_are_none_of_the_host(tmp_path: Path) -> None:
    path = tmp_path / "stages.toml"
    path.write_text(ALONE + 'at = "controller"\n')
    with pytest.raises(PlanError, match="host_restarts needs commands that run on the host"):
        rules.load(path)


def test_plan_and_status_say_what_a_host_does_alone(book: Book, tmp_path: Path) -> None:
    def words(parts: Any) -> str:
        return printed(terminal.show(parts), width=2000)

    assert "runs these commands itself: drain, restart, return" in words(report.plan_parts(book.plan))
    other = plan_of(tmp_path, equal(*topology("a", 2)))
    assert "does not restart: a drained host stays out of service" in words(report.plan_parts(other))
    assert "does not hear" not in words(report.status_parts(book))
    restarted(book, is_out=True)
    assert "ar1: a host that does not hear from `go` or `abort` for 5 s" in words(report.status_parts(book))


class Quiet:
    """A site on which nothing may be changed."""

    def __init__(self, logs: Any) -> None:
        self.logs, self.place = logs, 0

    async def check(self) -> None:
        pass

    async def watch(self, seconds: float, usual: Any) -> Window:
        self.place += 1
        return window(self.logs[(self.place - 1) * BLOCK : self.place * BLOCK])


def test_a_dry_run_measures_the_pairs_and_touches_nothing(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = series(np.random.default_rng(1), 40 * BLOCK, World("nothing changed"))
    visited = []

    @contextlib.asynccontextmanager
    async def visit(_: Book, member: Any) -> AsyncIterator[Quiet]:
        visited.append(member.name)
        yield Quiet(logs[len(visited)])

    monkeypatch.setattr(hands, "visit", visit)
    found = asyncio.run(dry.measure_pairs(book, 8, lambda _: None))
    before = book.plan.restart.before if book.plan.restart else 0
    assert (len(found.moments), found.blocks) == (before + 8, before + 8)
    assert set(visited) == {"ar1", "ar2"}
    assert not any(moment.is_after for moment in found.moments)
    assert book.events == []
    book.note("out", host="ar1", pages=0.0, misses=0.0)
    with pytest.raises(Refused, match="ar1: changed, or out of service"):
        asyncio.run(dry.measure_pairs(book, 8, lambda _: None))


def test_the_dry_command_states_its_rates_and_what_it_does_not_cover(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = series(np.random.default_rng(1), 40 * BLOCK, World("nothing changed"))

    @contextlib.asynccontextmanager
    async def visit(_: Book, member: Any) -> AsyncIterator[Quiet]:
        yield Quiet(logs[int(member.name == "ar1")])

    monkeypatch.setattr(hands, "visit", visit)
    runner = CliRunner()
    shown = runner.invoke(rollout_app, ["dry", book.plan.id, "--pairs", "8"], env={"COLUMNS": "160"})
    words = " ".join(shown.output.split())
    assert "20 blocks of 1 pair of hosts, shifted and swapped" in words, shown.output
    assert "Nothing was restarted: the effects of a restart itself" in words
    found = json.loads(runner.invoke(rollout_app, ["dry", book.plan.id, "--pairs", "8", "--json"]).stdout)
    assert (len(found["moments"]), len(found["rates"])) == (20, 2)


def test_the_dry_judge_is_seldom_wrong_on_steady_pairs_and_often_where_one_changes_by_itself() -> None:
    question = Question((6, 12, 18, 24))
    rng = np.random.default_rng(3)
    before, blocks = 12, 36

    def moments(step: float) -> list[Moment]:
        logs = series(rng, blocks * BLOCK, World("nothing changed"))
        logs[0, blocks // 2 * BLOCK :] += step
        own = [[window(row[i * BLOCK : (i + 1) * BLOCK]).block for i in range(blocks)] for row in logs]
        return [
            Moment(str(pair), own[2 * pair][place], own[2 * pair + 1][place], is_after=False)
            for place in range(blocks)
            for pair in range(2)
        ]

    for rate in shifted(question, moments(0.0), before, shifts=200):
        assert rate.holds
    rolled_back, better = shifted(question, moments(1.0), before, shifts=200)
    assert not (rolled_back.holds and better.holds)


class Answering(Follower):
    """Of a server that always answers, at the same rate."""

    last_ns = 0
    silent_s = 0.0

    def since(self, t_ns: int, *, through_resets: bool = False) -> Window:
        return window(np.zeros(10))


def test_blocks_much_shorter_than_the_lease_put_the_deadline_off_too(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal()
    site = site_of(book, monkeypatch, journal)
    site.follower = Answering()

    async def blocks() -> None:
        for _ in range(3):
            await site.watch(0.01, [], CHANGE)
        await site.watch(0.01, [])

    asyncio.run(blocks())
    assert journal.asked == ["extend"] * 3
