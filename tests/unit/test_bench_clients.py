"""What ``benches/clients.py`` declares: a difference is explained only by reasons that add up to exactly it."""

from __future__ import annotations

from collections import Counter

import pytest
from benches.sources import declared
from benches.sources.declared import Difference, Rule, differences
from benches.sources.lab import Counts, Pass, case_of


def found(monkeypatch: pytest.MonkeyPatch, counted: Counts, recorded: Counts, more: int) -> list[Difference]:
    rule = Rule("why", ("capture",), ("statement",), lambda count, case, counts: more, cases=("multi",))
    monkeypatch.setattr(declared, "RULES", (rule,))
    return differences("a client", Pass("direct", counted, {}, {}), "capture", recorded)


@pytest.mark.parametrize(("recorded", "more", "reasons"), [(7, 2, {"why": 2}), (7, 1, {}), (5, 1, {})])
def test_a_difference_is_declared_if_its_reasons_add_up_to_it(
    monkeypatch: pytest.MonkeyPatch, recorded: int, more: int, reasons: dict[str, int]
) -> None:
    counted: Counts = Counter({("multi", "statement"): 5})
    (each,) = found(monkeypatch, counted, Counter({("multi", "statement"): recorded}), more)
    assert (each.more, each.reasons) == (recorded - 5, reasons)


def test_no_reason_covers_another_case_or_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: Counts = Counter({("text", "statement"): 1, ("multi", "Prepare"): 1, ("", "statement"): 9})
    each = found(monkeypatch, Counter(), recorded, 0)
    assert [(d.case, d.kind, d.reasons) for d in each] == [
        ("multi", "Prepare", {}),
        ("text", "statement", {}),
    ]


def test_the_case_of_an_account() -> None:
    assert (
        case_of("mysql2_change_user_b", "mysql2") == case_of("mysql2_change_user", "mysql2") == "change_user"
    )
    assert case_of("root", "mysql2") == case_of("mysql2_other", "mysql2") == ""
