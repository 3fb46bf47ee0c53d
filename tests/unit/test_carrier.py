"""A rollout carried out on modelled hosts: the order, what trips, and what is left aside."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.base.errors import Refused, TargetError
from headrace.base.model import Facts
from headrace.rollout import carrier, hands, pairs
from headrace.rollout.book import Book
from headrace.rollout.carrier import Carrier
from headrace.rollout.command import rollout_app
from headrace.rollout.guards import Window
from headrace.rollout.hands import Site, TrippedLimit
from headrace.rollout.judge import Outcome
from headrace.rollout.plan import Member, Role, Seen, make
from headrace.rollout.report import rollout as report
from headrace.rollout.watch import Follower
from tests.rollout_world import REPLICAS, Modelled, World, abort, give_up, go, modelled, stages
from tests.unit.test_staged import SETTINGS, seen, status, topology
from tests.unit.test_staged_restart import RESTART, equal, plan_of


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return modelled(tmp_path, monkeypatch)


def test_all_replicas_keep_it_and_nobody_else(world: World) -> None:
    book = go(Book.make(world.plan))
    assert book.state.is_finished
    assert world.on == REPLICAS
    assert world.open == {}
    assert [verdict["outcome"] for verdict in book.state.verdicts.values()] == ["pass", "pass"]


def test_harm_in_the_second_stage_takes_back_the_first_one_too(world: World) -> None:
    book = Book.make(world.plan)
    world.trips = "br2"
    book = go(book)
    assert "br2: it trips; without the change it recovered" in book.state.aborting
    assert book.state.is_harmful
    assert book.state.is_aborted
    assert world.on == set()


def test_proven_harm_never_reaches_the_second_stage(world: World) -> None:
    world.effect = 2.0
    book = go(Book.make(world.plan))
    assert book.state.is_harmful
    assert world.on == set()
    assert {event["host"] for event in book.events if event["kind"] == "applying"} == {"ar1"}


def test_once_harm_is_proven_no_other_group_gets_the_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """br1 is in a block without the change when the pairs of ar1 prove the harm."""
    (_, replicas) = stages()
    rules = world.plan.rules.model_copy(update={"stage": (replicas,)})
    world.plan = make(SETTINGS, [*topology("a", 1), *topology("b", 1)], rules, 1)
    world.effect = 2.0
    watch = Modelled.watch

    async def waits(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        stage = self.book.plan.stages[0]
        for _ in range(10**6 if self.member.name == "br1" else 0):
            if self.book.judged(stage).outcome is not Outcome.CONTINUE:
                break
            await asyncio.sleep(0)
        return await watch(self, seconds, usual, change)

    monkeypatch.setattr(Modelled, "watch", waits)
    book = go(Book.make(world.plan))
    assert book.state.is_harmful
    assert "fail" in book.state.verdicts["replicas"]["outcome"]
    assert {event["host"] for event in book.events if event["kind"] == "applying"} == {"ar1"}
    assert world.on == set()


def test_a_host_that_stays_slow_without_the_change_is_left_aside(world: World) -> None:
    world.trips, world.stays_slow = "br2", True
    book = go(Book.make(world.plan))
    assert not book.state.aborting
    assert "br2" in book.state.aside
    assert "problems of its own" in book.state.paused
    assert world.on == REPLICAS - {"br2"}


def test_a_host_that_is_lost_again_with_the_change_stops_it_everywhere(world: World) -> None:
    world.dies_with_it = True
    book = go(Book.make(world.plan))
    assert "ar1 was lost 2 times while it had the change" in book.state.paused
    assert world.on == set()
    assert {event["host"] for event in book.events if event["kind"] == "applying"} == {"ar1"}


def test_while_a_host_may_still_be_changed_no_other_of_its_group_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost in a block with the change, ar2 has it until its deadline, however soon it is set aside."""
    watch, undo = Modelled.watch, Modelled.undo

    async def lost(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        if change and self.member.name == "ar2" and not world.has_tripped:
            world.has_tripped = True
            world.unreachable.add("ar2")
            raise TargetError("no sample for 20 s", place="ar2")
        return await watch(self, seconds, usual, change)

    async def undone(self: Modelled, change: str) -> None:
        if self.member.name in world.unreachable:
            raise TargetError("no route", place=self.member.name)
        await undo(self, change)

    monkeypatch.setattr(Modelled, "watch", lost)
    monkeypatch.setattr(Modelled, "undo", undone)
    book = go(Book.make(world.plan))
    assert "ar3: ar2 of the same group may still be changed" in book.state.paused
    assert set(world.open) == {"ar2"}
    assert "ar3" not in {event["host"] for event in book.events if event["kind"] == "applying"}
    world.unreachable = set()
    book = go(book)
    assert book.state.is_finished
    assert world.on == REPLICAS


async def test_a_server_that_stops_answering_or_restarts_with_the_change_passes_a_limit(world: World) -> None:
    book = Book.make(world.plan)
    for answer, expected in (
        (
            {"t_ns": 9 * 10**9, "sampler": "mysql_status", "ok": False, "error": "gone"},
            "does not answer: gone",
        ),
        (status(9, 5.0, uptime=1), "restarted"),
    ):
        follower = Follower()
        for t_s in range(1, 9):
            follower.take(status(t_s, 1000.0 * t_s))
        site: Any = hands.Site(book, world.plan.members["ar1"], None, None, follower)  # type: ignore[arg-type]
        watching = asyncio.create_task(site.watch(5.0, [], "change"))
        await asyncio.sleep(0)
        follower.take(answer)
        with pytest.raises(TrippedLimit, match=expected):
            await watching


def test_a_host_that_is_away_is_waited_for_and_then_changed(world: World) -> None:
    world.unreachable = {"ar2"}
    book = go(Book.make(world.plan))
    assert "ar2: no route" in book.state.paused
    assert world.on == REPLICAS - {"ar2"}
    world.unreachable = set()
    book = go(book)
    assert book.state.is_finished
    assert world.on == REPLICAS


@pytest.mark.parametrize("is_gone", [False, True], ids=["away", "given up"])
def test_no_member_of_a_cluster_is_changed_while_another_one_is_away(world: World, is_gone: bool) -> None:
    """Of other groups a replica that is away is not waited for; one that a person gave up never is."""
    hosts = [replace(each, cluster="group a", cluster_size=4) for each in topology("a", 3)]
    world.plan = make(SETTINGS, [*hosts, *topology("b", 2)], world.plan.rules, 1)
    world.unreachable = {"ar3", "br2"}
    book = Book.make(world.plan)
    if is_gone:
        give_up(book, "ar3")
    go(book)
    assert world.on == ({"ar1", "ar2", "br1"} if is_gone else set())


def test_an_inconclusive_stage_is_not_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        return Window(seconds, 1000 * seconds, 0.0)

    monkeypatch.setattr(Modelled, "watch", silent)
    book = go(Book.make(world.plan))
    assert "had data" in book.state.paused
    pairs = len(book.state.pairs["one"])
    assert len(go(book).state.pairs["one"]) == pairs
    assert world.on == set()
    # No data never passes; a person may answer for it.
    with book.hold():
        book.approve("one", "ann", unjudged=True)
    book = go(book)
    assert "one" in book.state.passed
    assert "stage replicas is inconclusive" in book.state.paused
    said = report.standing(book, book.plan.stages[0])[1]
    assert said.startswith("promoted by ann without a verdict; inconclusive: only 0 of")


def test_idle_hosts_are_changed_after_the_verdict_of_those_that_serve(world: World) -> None:
    world.idle = {"ar2", "ar3"}
    book = go(Book.make(world.plan))
    assert book.state.is_finished, book.state.paused
    assert world.on == REPLICAS
    assert {pair.host for pair in book.state.pairs["replicas"]} == {"br1", "br2"}
    assert "idle, only watched: ar2, ar3" in book.state.verdicts["replicas"]["reason"]
    kinds = [event["kind"] for event in book.events if event.get("host") == "ar2"]
    assert kinds == ["before", "idle", "applying", "kept"]


@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
def test_a_block_with_too_few_samples_is_lost_not_idle(world: World, blocks: int) -> None:
    """Which block it is depends on the lot: before, with the change, without it."""
    world.mute = {"ar1": blocks}
    book = go(Book.make(world.plan))
    lost = [event["why"] for event in book.events if event["kind"] == "lost"]
    assert lost, book.events
    assert all("too few samples" in why for why in lost)
    assert not book.state.idle
    if blocks < carrier.MOST_FAILURES:
        assert book.state.is_finished, book.state.paused
        assert "ar1" in world.on
    else:
        assert "ar1: too few samples" in book.state.paused


def test_a_stage_without_any_query_waits_for_queries_or_a_person(world: World) -> None:
    world.idle = {"ar1"}
    book = go(Book.make(world.plan))
    assert "ar1: idle, 0 queries/s" in book.state.paused
    assert "approve" in book.state.paused
    assert "one" not in book.state.verdicts
    # Those who serve again are tried again, by what they do then.
    world.idle = set()
    book = go(book)
    assert book.state.verdicts["one"]["outcome"] == "pass"
    assert book.state.is_finished


def test_a_host_that_was_idle_when_planned_and_serves_now_is_not_changed_unjudged(world: World) -> None:
    first, *others = world.plan.stages
    plan = replace(world.plan, stages=(replace(first, is_judged=False), *others))
    book = go(Book.make(plan))
    assert "ar1 serves" in book.state.paused
    assert "--unjudged" in book.state.paused
    assert world.on == set()
    with book.hold():
        book.approve("one", "ann", unjudged=True)
    book = go(book)
    assert book.state.is_finished, book.state.paused
    assert "one" not in book.state.verdicts


def test_a_host_that_begins_to_serve_while_it_is_watched_does_not_keep_what_nobody_judged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = world.plan.stages
    world.idle = {"ar1"}
    apply = Modelled.apply

    async def then_serves(self: Modelled, *, lasting: str = "") -> str:
        self.world.idle.clear()
        return await apply(self, lasting=lasting)

    monkeypatch.setattr(Modelled, "apply", then_serves)
    book = go(Book.make(replace(world.plan, stages=(replace(first, is_judged=False), *others))))
    assert "applying" in {event["kind"] for event in book.events}
    assert "ar1 serves" in book.state.paused
    assert world.on == set()


def test_pairs_that_do_not_count_say_why_and_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many queries, none of which is seen at work once a sample."""
    told: list[str] = []
    watch = Modelled.watch

    async def unseen(self: Modelled, *words: Any, **more: Any) -> Window:
        return replace(await watch(self, *words, **more), busy_s=0.0)

    monkeypatch.setattr(Modelled, "watch", unseen)
    book = Book.make(world.plan)
    with book.hold():
        asyncio.run(Carrier(book, told.append).go())
    assert any("none of" in line and "sample_s" in line and "pairs do not count" in line for line in told)
    assert "do not count" in book.state.paused
    first = world.plan.question().looks[0]
    assert len(book.state.pairs["one"]) == 4 * first


def test_a_person_may_promote_a_stage_that_was_tried_and_has_no_verdict(world: World) -> None:
    world.idle = set(REPLICAS)
    book = Book.make(world.plan)
    with book.hold(), pytest.raises(Refused, match="not tried yet"):
        book.approve("one", "ann", unjudged=True)
    book = go(book)
    with book.hold():
        book.approve("one", "ann", unjudged=True)
    book = go(book)
    assert world.on == {"ar1"}
    assert report.standing(book, book.plan.stages[0])[:2] == (
        "watched",
        "promoted by ann without a verdict",
    )
    assert "replicas" not in book.state.passed
    world.idle = set()
    book = go(book)
    with book.hold(), pytest.raises(Refused, match="over"):
        book.approve("replicas", "ann", unjudged=True)


def test_a_block_without_the_change_is_measured_without_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host does not undo it at once: another program has set the value meanwhile."""
    watch, undo = Modelled.watch, Modelled.undo
    refused: list[str] = []
    wrong: list[str] = []

    async def undone(self: Modelled, change: str) -> None:
        if len(refused) < 2:
            refused.append(change)
            raise TargetError("not undone", place=self.member.name)
        await undo(self, change)

    async def looked(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        if not change and world.open.get(self.member.name):
            wrong.append(self.member.name)
        return await watch(self, seconds, usual, change)

    monkeypatch.setattr(Modelled, "undo", undone)
    monkeypatch.setattr(Modelled, "watch", looked)
    book = go(Book.make(world.plan))
    assert refused
    assert wrong == []
    assert book.state.is_finished, book.state.paused


def test_a_failover_while_the_change_is_on_trial_is_not_its_harm(world: World) -> None:
    world.trips, world.moved = "br2", {"br2"}
    book = go(Book.make(world.plan))
    assert not book.state.aborting
    assert "its source was changed" in book.state.aside["br2"]
    assert world.on == REPLICAS - {"br2"}


@pytest.mark.parametrize("what", ["foreign", "moved"])
def test_a_block_in_which_another_command_changes_the_host_is_no_evidence(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """In the block without the change, which nothing else looks at."""
    watch = Modelled.watch

    async def changed(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        if not change and self.member.name == "ar1" and len(self.book.state.pairs.get("one", ())) == 2:
            getattr(world, what).add("ar1")
        return await watch(self, seconds, usual, change)

    monkeypatch.setattr(Modelled, "watch", changed)
    book = go(Book.make(world.plan))
    assert len(book.state.pairs["one"]) == 2
    expected = "changes of apply/other are open there" if what == "foreign" else "its source was changed"
    assert f"ar1: {expected}" in book.state.paused
    assert world.on == set()


def test_harm_with_a_host_that_is_not_restored_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Modelled.watch
    world.trips = "br2"

    async def cut(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        if self.member.name == "br2":
            world.unreachable = {"ar1"}
        return await watch(self, seconds, usual, change)

    monkeypatch.setattr(Modelled, "watch", cut)
    book = Book.make(world.plan)
    raised = CliRunner().invoke(rollout_app, ["go", book.plan.id]).exception
    assert isinstance(raised, pairs.NotRestored)
    assert "not restored: ar1 (changed)" in str(raised)
    assert world.on == {"ar1"}
    world.unreachable = set()
    assert CliRunner().invoke(rollout_app, ["go", book.plan.id]).exit_code == 13
    assert world.on == set()


@pytest.mark.parametrize(("jump", "most"), [("", 6), ("gate", 2)])
def test_groups_take_turns_within_the_limits_of_the_fleet(
    world: World, monkeypatch: pytest.MonkeyPatch, jump: str, most: int
) -> None:
    open_now, seen_open = Counter[str](), Counter[str]()
    visit, restore = hands.visit, hands.restore

    async def counted(what: str) -> None:
        open_now[what] += 1
        seen_open[what] = max(seen_open[what], open_now[what])
        for _ in range(5):
            await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def visited(book: Book, member: Member, kind: type[Site]) -> AsyncIterator[Site]:
        await counted("visits")
        try:
            async with visit(book, member, kind) as site:
                yield site
        finally:
            open_now["visits"] -= 1

    async def restored(book: Book, member: Member, changes: Sequence[str], kind: type[Site]) -> None:
        await counted("restored")
        await restore(book, member, changes, kind)
        open_now["restored"] -= 1

    monkeypatch.setattr(hands, "visit", visited)
    monkeypatch.setattr(hands, "restore", restored)
    hosts = [through(each, jump) for name in "abcdefghijkl" for each in topology(name, 1)]
    rules = world.plan.rules.model_copy(update={"stage": (stages()[1],)})
    world.plan = make(SETTINGS, hosts, rules, 1, fan_out=(6, 2))
    book = go(Book.make(world.plan))
    assert book.state.is_finished, book.state.paused
    abort(book)
    assert seen_open == {"visits": most, "restored": most}


def through(seen: Seen, jump: str) -> Seen:
    spec = replace(seen.host.spec, jump=jump)
    return replace(seen, host=replace(seen.host, spec=spec))


async def test_logins_have_the_limits_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's replicas are all asked for their lag at the same time."""
    now = most = 0

    class Gate:
        async def connect(self) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)

        async def close(self) -> None:
            pass

    async def login(agent: Any, given: Any) -> tuple[Any, str]:
        nonlocal now
        now -= 1
        return given, ""

    async def install(target: Any) -> Any:
        return SimpleNamespace(facts=facts)

    async def facts(login: Any) -> Facts:
        return Facts("", {})

    monkeypatch.undo()
    monkeypatch.setattr(hands, "open_target", lambda spec: Gate())
    monkeypatch.setattr(hands, "usual_login", login)
    monkeypatch.setattr(hands, "Agent", SimpleNamespace(install=install))
    hosts = [through(each, "gate") for each in topology("a", 12)]
    plan = make(SETTINGS, hosts, world.plan.rules, 1, fan_out=(64, 3))
    book = Book(Path("/nonexistent"), plan)
    await asyncio.gather(*(hands.behind_there(book, member) for member in plan.members.values()))
    assert most == 3


def test_a_change_that_is_broken_off_while_it_is_made_is_taken_back_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when the host has the change, and nobody here knows yet."""
    apply = Modelled.apply

    async def interrupted(self: Modelled, *, lasting: str = "") -> str:
        await apply(self, lasting=lasting)
        raise asyncio.CancelledError

    monkeypatch.setattr(Modelled, "apply", interrupted)
    book = Book.make(world.plan)
    with book.hold(), pytest.raises(asyncio.CancelledError):
        asyncio.run(Carrier(book).go())
    assert "applying" in {event["kind"] for event in book.events}
    assert world.on == set()


def test_nothing_is_changed_in_a_freeze(world: World) -> None:
    rules = world.plan.rules.model_copy(update={"freeze": ("00:00-24:00",)})
    book = go(Book.make(make(SETTINGS, topology("a", 3), rules, 1)))
    assert "freeze" in book.state.paused
    assert world.on == set()


def test_a_freeze_that_begins_in_the_block_before_the_change_stops_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = world.plan.rules.model_copy(update={"freeze": ("2099-01-01",)})
    freezes_in_the_first_block(monkeypatch)
    book = go(Book.make(make(SETTINGS, topology("a", 3), rules, 1)))
    assert "freeze" in book.state.paused
    assert "applying" not in {event["kind"] for event in book.events}


def test_a_freeze_that_begins_in_the_blocks_before_a_restart_keeps_the_server_in_service(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.plan = plan_of(tmp_path, equal(*topology("a", 2)), 'freeze = ["2099-01-01"]\n' + RESTART)
    freezes_in_the_first_block(monkeypatch)
    book = Book.make(world.plan)
    with book.hold():
        asyncio.run(pairs.PairCarrier(book).go())
    assert "freeze" in book.state.paused
    assert "applying" not in {event["kind"] for event in book.events}


def test_an_approval_that_expires_in_the_blocks_before_a_restart_is_none(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = RESTART + '[[stage]]\nname = "one"\ntake = "one"\napproval = true\n'
    world.plan = plan_of(tmp_path, equal(*topology("a", 2)), text)
    book = Book.make(world.plan)
    watch = Modelled.watch

    async def expires(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        book.state.approvals["one"]["until"] = 0.0
        return await watch(self, seconds, usual, change)

    monkeypatch.setattr(Modelled, "watch", expires)
    with book.hold():
        book.approve("one", "ann")
        asyncio.run(pairs.PairCarrier(book).go())
    assert "by ann has expired" in book.state.paused
    assert "applying" not in {event["kind"] for event in book.events}


def test_a_host_that_was_idle_when_planned_and_serves_now_is_not_restarted_unjudged(
    world: World, tmp_path: Path
) -> None:
    idle = replace(seen("ar0", Role.REPLICA, "a", per_s=1.0), kind="k", restarts=True)
    text = RESTART + '[[stage]]\nname = "idle"\ntake = "idle"\n[[stage]]\nname = "all"\ntake = "replicas"\n'
    world.plan = plan_of(tmp_path, [idle, *equal(*topology("a", 2))], text)
    book = Book.make(world.plan)
    with book.hold():
        asyncio.run(pairs.PairCarrier(book).go())
    assert "ar0 serves" in book.state.paused
    assert "applying" not in {event["kind"] for event in book.events}


def test_no_server_is_restarted_for_blocks_that_cannot_be_compared(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many queries, none of which is seen at work once a sample, on the partner only."""
    world.plan = plan_of(tmp_path, equal(*topology("a", 2)))
    (changed, partner), *_ = world.plan.stages[0].pairs
    watch = Modelled.watch

    async def unseen(self: Modelled, *words: Any, **more: Any) -> Window:
        window = await watch(self, *words, **more)
        return replace(window, busy_s=0.0) if self.member.name == partner else window

    monkeypatch.setattr(Modelled, "watch", unseen)
    book = Book.make(world.plan)
    with book.hold():
        asyncio.run(pairs.PairCarrier(book).go())
    assert "only 0 of 48 blocks before the restart had data" in book.state.aside[changed]
    assert f"{partner}: none of" in book.state.aside[changed]
    assert "applying" not in {event["kind"] for event in book.events}


def test_blocks_after_a_restart_that_do_not_count_say_why(world: World, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, equal(*topology("a", 2)))
    stage = plan.stages[0]
    (changed, partner) = stage.pairs[0]
    book = Book.make(plan)
    for is_after, queries in ((False, 6000.0), (True, 6000.0), (True, 7.0)):
        did = vars(Window(60.0, queries, 60.0))
        known = {"stage": stage.name, "host": changed, "partner": partner, "is_after": is_after}
        book.note("moment", **known, changed=vars(Window(60.0, 6000.0, 60.0)), partner_did=did)
    assert f"1 of 2 blocks do not count: {partner}: 7 queries" in book.judged(stage).reason
    book.note("discarded", host=changed)
    assert "do not count" not in book.judged(stage).reason


def freezes_in_the_first_block(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Modelled.watch

    async def begins(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        monkeypatch.setattr(carrier, "frozen", lambda window, now: True)
        return await watch(self, seconds, usual, change)

    monkeypatch.setattr(Modelled, "watch", begins)
