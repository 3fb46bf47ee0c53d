"""How a rollout on modelled hosts ends: given up, aborted, or killed before and after each line of its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.base.errors import PlanError, Refused, TargetError
from headrace.rollout import carrier, hands, pairs
from headrace.rollout.book import Book
from headrace.rollout.carrier import Carrier
from headrace.rollout.command import rollout_app
from headrace.rollout.guards import Window
from headrace.rollout.hands import Site
from headrace.rollout.plan import Member, make
from tests.rollout_world import REPLICAS, Killed, Modelled, World, abort, give_up, go, modelled
from tests.unit.test_staged import SETTINGS, topology


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return modelled(tmp_path, monkeypatch)


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
        raised = CliRunner().invoke(rollout_app, ["abort", book.plan.id, "--wait", "0s"]).exception
    assert isinstance(raised, pairs.NotRestored)
    assert "after 0 s another command still works on this rollout; not restored: ar1 (changing)" in str(
        raised
    )
