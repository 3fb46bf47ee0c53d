"""How long a surplus index stays hidden: no clock that is wrong drops it early."""

from __future__ import annotations

import pytest

from headrace.base.clocks import Clocks
from headrace.indexes import dropping

DAY_S, YEARS_S = 86400.0, 3650 * 86400.0
HIDDEN_AT, WEEK_S = Clocks(1.8e9, 1000.0, "boot"), 7 * DAY_S
SERVER_S = 1.8e9 + 3


def entry(is_old: bool = False) -> dropping.Surplus:
    row = {
        "database": "shop", "table": "t", "name": "k", "definition": "KEY `k` (`a`)", "state": "hidden",
        "server": "db1", "at_s": HIDDEN_AT.wall_s, "until_s": HIDDEN_AT.wall_s + WEEK_S,
    }  # fmt: skip
    clocks = {"boot_s": HIDDEN_AT.boot_s, "boot": HIDDEN_AT.boot, "server_s": SERVER_S}
    return dropping._surplus(row if is_old else {**row, **clocks})


@pytest.mark.parametrize(
    ("days", "set_s", "boot", "server_set_s", "is_early"),
    [
        (1, 0.0, "boot", 0.0, True),
        (8, 0.0, "boot", 0.0, False),
        # A clock that runs ahead, here or there, or both.
        (1, YEARS_S, "boot", 0.0, True),
        (1, YEARS_S, "boot", YEARS_S, True),
        (6.99, 3600.0, "boot", 0.0, True),
        # Set back, or of half the speed: what has passed has passed.
        (8, -YEARS_S, "boot", 0.0, False),
        (8, -4 * DAY_S, "boot", 0.0, False),
        # Behind a reboot both clocks must say so.
        (8, 0.0, "another", 0.0, False),
        (1, YEARS_S, "another", 0.0, True),
        (1, 0.0, "another", YEARS_S, True),
        (8, -YEARS_S, "another", 0.0, True),
    ],
)
def test_an_index_is_hidden_for_as_long_as_was_said(
    monkeypatch: pytest.MonkeyPatch, days: float, set_s: float, boot: str, server_set_s: float, is_early: bool
) -> None:
    passed_s = days * DAY_S
    boot_s = HIDDEN_AT.boot_s + passed_s if boot == HIDDEN_AT.boot else passed_s / 2
    now = Clocks(HIDDEN_AT.wall_s + passed_s + set_s, boot_s, boot)
    monkeypatch.setattr(Clocks, "now", lambda: now)
    assert (dropping._left_s(entry(), SERVER_S + passed_s + server_set_s) > 0) == is_early


def test_an_entry_of_before_the_other_clocks_goes_by_the_one_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for days, is_early in ((1, True), (8, False)):
        now = Clocks(HIDDEN_AT.wall_s + days * DAY_S, 5.0, "another")
        monkeypatch.setattr(Clocks, "now", lambda now=now: now)
        assert (dropping._left_s(entry(is_old=True), now.wall_s) > 0) == is_early
