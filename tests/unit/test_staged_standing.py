"""How a member of a group or cluster stands, from its facts and its samples."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.rollout.plan import Member, Role
from headrace.rollout.standing import members_away, why_behind
from headrace.rollout.watch import Follower
from tests.unit.test_staged import status


def node(component: str = "Primary", name: str = "Synced", size: int = 3, *, is_synced: bool = True) -> Facts:
    galera = {"component": component, "state_name": name, "size": size, "is_synced": is_synced}
    return Facts("", {"server_settings": {"galera": galera}})


def member(state: str, *, is_own: bool = False) -> dict[str, Any]:
    return {"id": state, "host": "db", "port": 3306, "state": state, "role": "SECONDARY", "is_own": is_own}


def test_a_node_that_is_not_synced_is_behind() -> None:
    assert why_behind(node(), 30) == ""
    assert why_behind(Facts("", {"server_settings": {"galera": None}}), 30) == ""
    donor = node(name="Donor/Desynced", is_synced=False)
    assert why_behind(donor, 30) == "is not synced with its cluster (Donor/Desynced)"
    alone = node("non-Primary", "Initialized", 1, is_synced=False)
    assert why_behind(alone, 30) == "is in no primary component of its cluster (non-Primary)"


@pytest.mark.parametrize(
    ("lag_s", "why"), [(3, ""), (31, "lags 31 s (limit 30 s)"), (None, "does not replicate")]
)
def test_a_channel_that_lags_is_behind(lag_s: int | None, why: str) -> None:
    assert why_behind(Facts("", {"server_settings": {"replication": [{"lag_s": lag_s}]}}), 30) == why


def test_members_that_left_are_away_also_if_nobody_names_them_any_more() -> None:
    assert members_away(node(size=3), 3) == []
    assert members_away(node(size=2), 3) == ["only 2 of 3 members are there"]
    both = {"members": [member("ONLINE", is_own=True), member("RECOVERING")]}
    assert members_away(Facts("", {"server_settings": {"group": both}}), 3) == ["db:3306 is RECOVERING"]
    own = {"members": [member("ONLINE", is_own=True)]}
    assert members_away(Facts("", {"server_settings": {"group": own}}), 2) == [
        "only 1 of 2 members are there"
    ]
    assert members_away(Facts("", {"server_settings": {}})) == []


@pytest.mark.parametrize(
    ("state", "component", "broken", "is_donor"),
    [
        (4, 1, "", False),
        (2, 1, "", True),
        (3, 1, "it is not synced with its cluster", False),
        (0, 0, "it is in no primary component of its cluster", False),
    ],
)
def test_the_state_of_a_node_is_its_replication(
    state: int, component: int, broken: str, is_donor: bool
) -> None:
    words = {"wsrep_local_state": state, "wsrep_cluster_status": component}
    for is_node in (True, False):
        follower = Follower(is_node=is_node)
        for t_s in range(3):
            follower.take(status(t_s, 1000 * t_s, **words))
        assert follower.since(0).broken == (broken if is_node else "")
        assert follower.is_donor == (is_donor and is_node)


def test_a_plan_that_was_made_before_there_were_clusters_keeps_its_id() -> None:
    from headrace.rollout.plan import _member_json

    before = Member("a", "a", Role.REPLICA, "a", 1.0, {}, {}, {})
    assert not {"identity", "cluster", "cluster_size"} & set(_member_json(before))
