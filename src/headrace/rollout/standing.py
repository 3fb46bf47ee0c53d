"""How a server stands in its replication, from its facts: whom it replicates from, and whether it is in step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace.base.model import Facts


def sources_of(facts: Facts) -> frozenset[tuple[str, str]]:
    """Names and ids of the servers that it replicates from."""
    return frozenset(
        (
            str(each.get("source_host") or ""),
            str(each.get("source_uuid") or each.get("source_server_id") or ""),
        )
        for each in _settings(facts.data).get("replication") or ()
    )


def lag_of(facts: Facts) -> float:
    """The largest lag of its channels, s; infinite where replication does not run."""
    lags = [channel.get("lag_s") for channel in _settings(facts.data).get("replication") or ()]
    return max((float("inf") if lag is None else float(lag) for lag in lags), default=0.0)


def why_behind(facts: Facts, limit_s: float) -> str:
    """Why a server does not keep up with the others, to follow its name; empty if it does."""
    node = _settings(facts.data).get("galera")
    if node and not node["is_synced"]:
        if node["component"] != "Primary":
            return f"is in no primary component of its cluster ({node['component']})"
        return f"is not synced with its cluster ({node['state_name']})"
    lag = lag_of(facts)
    if math.isinf(lag):
        return "does not replicate"
    return f"lags {lag:.0f} s (limit {limit_s:g} s)" if lag > limit_s else ""


def members_away(facts: Facts, least: int = 0) -> list[str]:
    """Other members of its MySQL group that are not online, also those that are no part of the plan; or how many
    have left, of ``least`` that its group or cluster should have.
    """
    members = (_settings(facts.data).get("group") or {}).get("members") or ()
    away = [
        f"{each['host']}:{each['port']} is {each['state']}"
        for each in members
        if not each["is_own"] and each["state"] != "ONLINE"
    ]
    size = cluster_size(facts.data)
    return away or ([f"only {size} of {least} members are there"] if size < least else [])


def cluster_size(facts: Mapping[str, Any]) -> int:
    """How many members its MySQL group or its Galera cluster has by its own account; 0 without one."""
    settings = _settings(facts)
    node = settings.get("galera") or {}
    return int(node.get("size") or len((settings.get("group") or {}).get("members") or ()))


def _settings(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    return facts.get("server_settings") or {}
