"""Approvals under clocks that are set: none lasts longer than was said, or is taken from another time."""

from __future__ import annotations

import pytest

from headrace.base.clocks import Clocks
from headrace.rollout import approvals

HOUR_S, YEAR_S = 3600.0, 365 * 86400.0
GIVEN = Clocks(1.8e9, 1000.0, "boot")


@pytest.mark.parametrize(
    ("passed_s", "set_s", "boot", "why"),
    [
        (HOUR_S, 0.0, "boot", ""),
        (25 * HOUR_S, 0.0, "boot", "has expired"),
        # The clock was set back, or runs at half its speed: what passed since the boot says how long it was.
        (25 * HOUR_S, -2 * HOUR_S, "boot", "has expired"),
        (25 * HOUR_S, -12.5 * HOUR_S, "boot", "has expired"),
        (HOUR_S, 10 * YEAR_S, "boot", "has expired"),
        # A service that corrects seconds.
        (HOUR_S, -30.0, "boot", ""),
        (0.0, -HOUR_S, "boot", "was set back since"),
        # Behind a reboot there is only the clock.
        (HOUR_S, 0.0, "another", ""),
        (25 * HOUR_S, 0.0, "another", "has expired"),
        (0.0, -HOUR_S, "another", "was set back since"),
    ],
)
def test_an_approval_holds_for_as_long_as_was_said(
    passed_s: float, set_s: float, boot: str, why: str
) -> None:
    approval = approvals.given(24 * HOUR_S, GIVEN)
    now = Clocks(GIVEN.wall_s + passed_s + set_s, (GIVEN.boot_s if boot == "boot" else 0.0) + passed_s, boot)
    found = approvals.why_over(approval, now)
    assert (why in found) if why else not found


def test_an_approval_that_was_given_ten_years_ahead_is_asked_for_again() -> None:
    ahead = Clocks(GIVEN.wall_s + 10 * YEAR_S, GIVEN.boot_s, "boot")
    approval = approvals.given(24 * HOUR_S, ahead)
    assert not approvals.why_over(approval, ahead)
    assert "set back" in approvals.why_over(approval, Clocks(GIVEN.wall_s, GIVEN.boot_s + 10, "boot"))
