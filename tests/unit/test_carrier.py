"""A rollout carried out on modelled hosts: the order, what trips, what is left aside, and a controller that is
killed before and after each line of its log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.analysis.guards import Window
from headrace.analysis.judge import Outcome
from headrace.cli.rollout import rollout_app
from headrace.errors import DiskFull, PlanError, Refused, TargetError
from headrace.model import Facts
from headrace.report import rollout as report
from headrace.staged import carrier, hands, pairs
from headrace.staged.book import Book
from headrace.staged.carrier import Carrier
from headrace.staged.hands import Moved, Site, TrippedLimit
from headrace.staged.plan import Member, Plan, Seen, make
from headrace.staged.rules import JudgeRule, Rules
from headrace.staged.watch import Follower
from tests.unit.test_staged import SETTINGS, status, topology
from tests.unit.test_staged_restart import RESTART, equal, plan_of


class Killed(BaseException):
    """As by SIGKILL: nothing that follows in this process reaches a host or a disk."""


@dataclass
class World:
    """``open`` and ``kept``: what each host's journal knows. ``effect``: of the change on time per query."""

    plan: Plan
    open: dict[str, set[str]] = field(default_factory=dict)
    kept: dict[str, set[str]] = field(default_factory=dict)
    effect: float = 1.0
    trips: str = ""
    stays_slow: bool = False
    has_tripped: bool = False
    dies_with_it: bool = False
    unreachable: set[str] = field(default_factory=set)
    #: Hosts whose SSH answers and whose server does not, and those with a full disk.
    down: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)
    #: Whose samples stop after a tenth of a block, as often as it says.
    mute: dict[str, int] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    is_dead: bool = False
    notes: int = 0
    kill_at: int = 0
    kill_before: bool = False
    blocks: int = 0

    def must_live(self) -> None:
        if self.is_dead:
            raise Killed

    def passes(self) -> None:
        """The controller is gone, and every deadline passes."""
        self.open.clear()
        self.is_dead = False
        self.kill_at = 0

    def is_on(self, name: str) -> bool:
        return bool(self.open.get(name) or self.kept.get(name))

    @property
    def on(self) -> set[str]:
        return {name for name in self.plan.members if self.is_on(name)}


@dataclass
class Modelled:
    """Stands for ``hands.Site``."""

    world: World
    book: Book
    member: Member

    async def check(self) -> None:
        self.world.must_live()

    async def watch(self, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        await asyncio.sleep(0)
        self.world.must_live()
        world, name = self.world, self.member.name
        if change and world.dies_with_it:
            raise TargetError("no sample for 20 s", place=name)
        if change and name == world.trips:
            world.has_tripped = True
            raise TrippedLimit("it trips")
        slow = 10.0 if world.stays_slow and world.has_tripped and name == world.trips else 1.0
        world.blocks += 1
        if world.mute.get(name):
            world.mute[name] -= 1
            return Window(seconds / 10, 0.0, 0.0)
        if name in world.idle:
            return Window(seconds, 0.0, 0.0)
        # No two blocks are alike.
        noise = 1 + 0.01 * (world.blocks * 7 % 5)
        factor = (world.effect if world.is_on(name) else 1.0) * noise * slow
        return Window(seconds, 1000 * seconds, factor * seconds)

    async def warm(self) -> None:
        """Nothing was restarted."""

    async def must_be_ours(self) -> None:
        self.world.must_live()
        if self.member.name in self.world.foreign:
            raise TargetError("changes of apply/other are open there", place=self.member.name)

    async def must_be_the_same(self) -> None:
        if self.member.name in self.world.moved:
            raise Moved("its source was changed", place=self.member.name)

    async def apply(self, *, lasting: str = "") -> str:
        change = f"{self.book.plan.id}-{len(self.book.events)}"
        self.book.note("applying", host=self.member.name, change=change)
        self.world.must_live()
        if self.member.name in self.world.full:
            raise DiskFull("No space left on device", place=self.member.name)
        others = [m.name for m in self.book.plan.members.values() if m.group == self.member.group]
        assert not any(self.world.open.get(name) for name in others), "two of one group at a time"
        self.world.open.setdefault(self.member.name, set()).add(change)
        return change

    async def keep(self, change: str) -> None:
        self.world.must_live()
        self.world.open.pop(self.member.name)
        self.world.kept.setdefault(self.member.name, set()).add(change)
        self.book.note("kept", host=self.member.name, change=change)

    async def undo(self, change: str) -> None:
        self.world.must_live()
        for held in (self.world.open, self.world.kept):
            held.get(self.member.name, set()).discard(change)
            if not held.get(self.member.name):
                held.pop(self.member.name, None)
        self.book.note("undone", host=self.member.name, change=change)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    rules = Rules(stage=carrier_stages(), judge=JudgeRule(looks=(4, 8), margin=0.1))
    world = World(make(SETTINGS, [*topology("a", 3), *topology("b", 2)], rules, 1))
    noted = Book.note

    def note(self: Book, kind: str, **more: Any) -> None:
        world.must_live()
        world.notes += 1
        is_last = world.notes == world.kill_at
        if not (is_last and world.kill_before):
            noted(self, kind, **more)
        if is_last:
            world.is_dead = True
            raise Killed

    @contextlib.asynccontextmanager
    async def visit(book: Book, member: Member, kind: type[Site]) -> AsyncIterator[Modelled]:
        world.must_live()
        if member.name in world.unreachable:
            raise TargetError("no route", place=member.name)
        site = Modelled(world, book, member)
        for change in list(book.state.open.get(member.name, ())):
            await site.undo(change)
        yield site

    async def restore(book: Book, member: Member, changes: Sequence[str], kind: type[Site]) -> None:
        if member.name in world.unreachable:
            raise TargetError("no route", place=member.name)
        for change in reversed(changes):
            await Modelled(world, book, member).undo(change)

    monkeypatch.setattr(Book, "note", note)
    monkeypatch.setattr(hands, "visit", visit)
    monkeypatch.setattr(hands, "restore", restore)
    ask(world, monkeypatch)
    monkeypatch.setattr(carrier, "PAUSE_S", 0.0)
    return world


def ask(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only asked of hosts."""

    async def behind_there(book: Book, member: Member) -> str:
        if member.name in world.unreachable:
            raise TargetError("no route", place=member.name)
        return ""

    async def must_answer(book: Book, member: Member) -> None:
        if member.name in world.down:
            raise TargetError("its server does not answer", place=member.name)

    async def is_reached(book: Book, member: Member) -> bool:
        return member.name not in world.unreachable

    monkeypatch.setattr(hands, "must_answer", must_answer)
    monkeypatch.setattr(hands, "is_reached", is_reached)
    monkeypatch.setattr(hands, "behind_there", behind_there)


def carrier_stages() -> Any:
    from headrace.staged.rules import StageRule

    return (StageRule(name="one", take="one"), StageRule(name="replicas", take="replicas"))


def go(book: Book) -> Book:
    with book.hold():
        asyncio.run(Carrier(book).go())
    return Book.open(book.plan.id)


REPLICAS = {"ar1", "ar2", "ar3", "br1", "br2"}


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
    (_, replicas) = carrier_stages()
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


def give_up(book: Book, name: str) -> None:
    with book.hold():
        asyncio.run(Carrier(book).give_up(name, "ann"))


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


def test_an_abort_restores_what_it_can_reach_and_says_what_it_cannot(world: World) -> None:
    book = go(Book.make(world.plan))
    world.unreachable = {"br1"}
    with book.hold():
        asyncio.run(Carrier(book).abort("a person said so"))
    assert world.on == {"br1"}
    assert not book.state.is_aborted
    world.unreachable = set()
    with book.hold():
        asyncio.run(Carrier(book).abort("again"))
    assert world.on == set()
    assert Book.open(book.plan.id).state.is_aborted


def test_a_host_that_is_lost_for_good_is_given_up_by_a_person(world: World) -> None:
    """Otherwise it would keep the rollout from its end for ever, and every abort, too."""
    world.dies_with_it = True
    book = go(Book.make(world.plan))
    world.unreachable, world.dies_with_it = {"ar1"}, False
    book.note("applying", host="ar1", change="x-9")
    book = go(book)
    assert f"headrace rollout give-up {book.plan.id} ar1" in book.state.paused
    give_up(book, "ar1")
    assert book.state.host("ar1") == "given up"
    state = Book.open(book.plan.id).state
    assert "given up by ann: no route" in state.why_left("ar1")
    assert not state.aside
    # Its stage was only its own: without another host nobody knows whether the change is good.
    assert "no host is left to try it on (ar1: given up by ann" in go(book).state.paused


def test_a_rollout_ends_without_a_host_that_was_given_up(world: World) -> None:
    world.unreachable = {"br1"}
    book = go(Book.make(world.plan))
    assert "br1: no route" in book.state.paused
    done = CliRunner().invoke(rollout_app, ["give-up", book.plan.id, "br1", "--by", "ann"])
    assert done.exit_code == 0, done.output
    assert "given up by ann: no route" in " ".join(done.output.split())
    book = go(Book.open(book.plan.id))
    assert book.state.is_finished
    assert world.on == REPLICAS - {"br1"}


def test_an_abort_ends_without_a_host_that_was_given_up(world: World) -> None:
    book = go(Book.make(world.plan))
    world.unreachable = {"br1"}
    with book.hold():
        asyncio.run(Carrier(book).abort("a person said so"))
    kept = book.state.kept["br1"]
    give_up(book, "br1")
    assert book.state.is_aborted
    assert [event["changes"] for event in book.events if event["kind"] == "given_up"] == [[kept]]


def test_a_host_that_answers_is_not_given_up(world: World) -> None:
    book = go(Book.make(world.plan))
    with pytest.raises(Refused, match="it answers"):
        give_up(book, "br1")
    assert "br1" in book.state.kept
    with pytest.raises(PlanError, match="no such host"):
        give_up(book, "nobody")


def test_a_host_whose_server_only_is_down_is_given_up_by_force(world: World) -> None:
    """With SSH its journal can be asked, and its server may be back in a minute."""
    book = go(Book.make(world.plan))
    world.down = {"br1"}
    with pytest.raises(Refused, match=r"its SSH answers.*its server does not answer") as refused:
        give_up(book, "br1")
    assert f"give-up {book.plan.id} br1 --force" in (refused.value.hint or "")
    assert "br1" in book.state.kept
    done = CliRunner().invoke(rollout_app, ["give-up", book.plan.id, "br1", "--by", "ann", "--force"])
    assert done.exit_code == 0, done.output
    assert Book.open(book.plan.id).state.host("br1") == "given up"
    done = CliRunner().invoke(rollout_app, ["give-up", book.plan.id, "br2", "--force"])
    assert isinstance(done.exception, Refused)
    assert "br2" in Book.open(book.plan.id).state.kept


def test_whether_its_ssh_answers_is_asked_while_it_is_restored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other would take twice as long as a connection may."""
    book = go(Book.make(world.plan))
    is_asked = asyncio.Event()

    async def is_reached(book: Book, member: Member) -> bool:
        is_asked.set()
        return False

    async def restore(book: Book, member: Member, changes: Sequence[str], kind: type[Site]) -> None:
        await asyncio.wait_for(is_asked.wait(), 60)
        raise TargetError("no answer", place=member.name)

    monkeypatch.setattr(hands, "is_reached", is_reached)
    monkeypatch.setattr(hands, "restore", restore)
    give_up(book, "br1")
    assert book.state.host("br1") == "given up"


def test_a_host_with_a_full_disk_is_asked_once(world: World) -> None:
    world.full = {"br1"}
    book = go(Book.make(world.plan))
    assert "br1: No space left on device" in book.state.paused
    assert sum(each["kind"] == "applying" and each["host"] == "br1" for each in book.events) == 1
    assert world.on == REPLICAS - {"br1"}


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
    rules = world.plan.rules.model_copy(update={"stage": (carrier_stages()[1],)})
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


def freezes_in_the_first_block(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Modelled.watch

    async def begins(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        monkeypatch.setattr(carrier, "frozen", lambda window, now: True)
        return await watch(self, seconds, usual, change)

    monkeypatch.setattr(Modelled, "watch", begins)


def killed_at(world: World, number: int, before: bool, work: Callable[[], object]) -> bool:
    """Whether the controller was killed at that line of the log."""
    world.notes, world.kill_at, world.kill_before = 0, number, before
    try:
        work()
    except Killed:
        world.passes()
        return True
    world.kill_at = 0
    return False


def continues(world: World, number: int, before: bool) -> bool:
    """Killed at that line of a rollout, and of its abort, both end as if nothing had been. Whether it was."""
    world.plan = make(SETTINGS, [*topology("a", 2), *topology("b", 1)], world.plan.rules, number)
    book = Book.make(world.plan)
    was_killed = killed_at(world, number, before, lambda: go(book))
    known = Book.open(world.plan.id).state
    for name in world.on:
        assert known.open.get(name) or name in known.kept, "a changed host that the log does not know"
    again = go(Book.open(world.plan.id))
    assert again.state.is_finished, again.state.paused
    assert world.on == {"ar1", "ar2", "br1"}
    assert {name: {change} for name, change in again.state.kept.items()} == world.kept
    was_killed |= killed_at(world, number, before, lambda: abort(again))
    abort(Book.open(world.plan.id))
    assert world.on == set()
    return was_killed


@pytest.mark.parametrize("before", [True, False])
def test_killed_at_a_line_of_its_log_it_continues_to_the_same_end(world: World, before: bool) -> None:
    assert all(continues(world, number, before) for number in (2, 4, 17))


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
def test_killed_at_every_line_of_its_log_it_continues_to_the_same_end(world: World, before: bool) -> None:
    number = 1
    while continues(world, number, before):
        number += 1
    assert number > 20, "this tested nothing"


def abort(book: Book) -> None:
    with book.hold():
        asyncio.run(Carrier(book).abort("a person said so"))


async def test_a_request_to_stop_reaches_the_command_that_carries_it_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "ASK_S", 0.01)
    book = Book.make(world.plan)
    watch = Modelled.watch
    begun = asyncio.Event()

    async def slow(self: Modelled, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        if world.on:
            begun.set()
            await asyncio.sleep(60)
        return await watch(self, seconds, usual, change)

    monkeypatch.setattr(Modelled, "watch", slow)
    monkeypatch.setattr(pairs, "ASK_S", 0.01)
    said: list[str] = []
    with book.hold():
        task = asyncio.create_task(Carrier(book).go())
        await asyncio.wait_for(begun.wait(), 30)
        asked = asyncio.create_task(pairs.taken_back(Book.open(world.plan.id), "ann", said.append))
        await asyncio.wait_for(task, 30)
    await asyncio.wait_for(asked, 30)
    assert len(said) == 1
    assert "asked to restore" in said[0]
    assert book.state.aborting == "aborted by ann"
    assert book.state.is_aborted
    assert world.on == set()


async def test_an_abort_waits_for_a_command_only_so_long_and_names_the_hosts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "ASK_S", 0.01)
    book = Book.make(world.plan)
    with book.hold():
        book.note("applying", host="ar1", change="x-1")
        book.note("kept", host="ar1", change="x-1")
        book.note("applying", host="br1", change="x-2")
        # Opened before the other command changed anything: what is not restored is read again.
        asked = pairs.taken_back(Book(book.folder, book.plan), "ann", lambda text: None, wait_s=0.05)
        with pytest.raises(pairs.NotRestored) as raised:
            await asyncio.wait_for(asked, 10)
    assert "ar1 (changed), br1 (changing)" in raised.value.message
    assert f"headrace rollout abort {book.plan.id} continues" in (raised.value.hint or "")
    assert raised.value.exit_code == 6
    assert book.stop_asked() == "ann"


def test_the_command_that_aborts_has_the_limit_too(world: World) -> None:
    book = Book.make(world.plan)
    with book.hold():
        book.note("applying", host="ar1", change="x-1")
        raised = CliRunner().invoke(rollout_app, ["abort", book.plan.id, "--wait", "0"]).exception
    assert isinstance(raised, pairs.NotRestored)
    assert "after 0 s another command still works on this rollout; not restored: ar1 (changing)" in str(
        raised
    )
