"""As ``test_power_cuts``, for what is written all the time: a rollout's log, and the history of ``serve``."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.history.archive.files import HOUR_S, MINUTE_S, Archive
from headrace.history.archive.rollup import roll_up
from headrace.rollout.book import LOG, Book
from tests.history import state, write
from tests.power_model import Promised
from tests.real.devices.test_power_cut import HOST, HOUR, minutes
from tests.unit.test_rollout_expected import plan


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "live").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "live" / "state"))
    return tmp_path / "live"


def events(place: Path, patch: pytest.MonkeyPatch) -> int:
    """How many there are in the log; -1: there is no rollout."""
    patch.setenv("XDG_STATE_HOME", str(place / "state"))
    if not list((place / "state").glob("headrace/rollouts/*/plan.json")):
        return -1
    book = Book.open(plan(None).id)
    for number, event in enumerate(book.events, start=1):
        assert event["why"] == f"{number} " * 20
    return len(book.events)


@pytest.mark.parametrize("was_killed", [False, True])
def test_no_event_of_a_rollout_is_lost(
    was_killed: bool, tmp_path: Path, live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = Promised(-1)
    with promised.cut(live, 8, monkeypatch):
        book = Book.make(plan(None))
        promised.now(0)
        if was_killed:
            # Before it synced the name of its log.
            (book.folder / LOG).write_text('{"half')
        for number in range(1, 4):
            with book.hold():
                book.note("paused", why=f"{number} " * 20)
            promised.now(number)
    for cut, place, known in promised.cuts(tmp_path):
        assert events(place, monkeypatch) in known, cut


def test_no_minute_of_the_history_is_lost_or_doubled(
    tmp_path: Path, live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [HOUR + n * MINUTE_S for n in (58, 59, 60)]
    promised = Promised[list[int]]([])
    with promised.cut(live, 3, monkeypatch):
        archive = Archive(live / "serve" / "history")
        archive.create()
        for number, t_s in enumerate(times, start=1):
            if t_s == HOUR + HOUR_S:
                roll_up(archive, HOST, HOUR + HOUR_S)
            write(archive, "states", HOST, t_s, [state()])
            promised.now(times[:number])
    for cut, place, known in promised.cuts(tmp_path):
        again = Archive(place / "serve" / "history")
        again.create()
        assert minutes(again) in known, cut
