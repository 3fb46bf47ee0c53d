"""The settings of a dump's server, in the form of the agent's facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.base.secret_names import announces_secret
from headrace.hunt.dumps.piece import Channels, Status, Variables

REMOVED = "<removed>"
#: They name no machine: the same on both sides is no evidence that it is one.
_OF_EVERY_MACHINE = ("localhost", "localhost4", "localhost6", "(none)")
NO_VARIABLES = "the dump has no SHOW GLOBAL VARIABLES: the server's version and settings are unknown"
NO_SERVER = (
    "the dump has neither counters nor settings of a server: SHOW GLOBAL STATUS (twice) and SHOW GLOBAL VARIABLES "
    "give them"
)
#: Status variables of one vendor only.
_OF_MARIADB = ("aria_pagecache_reads", "rows_tmp_read", "feature_subquery", "acl_users", "memory_used")
_OF_MYSQL = (
    "com_alter_instance",
    "com_group_replication_start",
    "mysqlx_connections_accepted",
    "locked_connects",
)


def settings_of(
    variables: Sequence[Variables], statuses: Sequence[Status], replicas: Sequence[Channels] = ()
) -> tuple[dict[str, Any] | None, str]:
    """``server_settings``, or None and why. Of several listings the last one counts; parts add to it."""
    whole = [piece for piece in variables if piece.is_whole]
    merged: dict[str, str] = {}
    for piece in [*(piece for piece in variables if not piece.is_whole), *whole[-1:]]:
        merged.update(piece.values)
    names = {name for status in statuses for name in status.values}
    if not merged and not names and not replicas:
        return None, NO_SERVER
    text, comment = merged.get("version", ""), merged.get("version_comment", "")
    vendor = _vendor(text, comment, names) or next((each.vendor for each in replicas if each.vendor), "")
    if not vendor:
        return None, NO_VARIABLES
    number = re.match(r"\d+(?:\.\d+){1,2}", text)
    return {
        "vendor": vendor,
        "version": number[0] if number else "",
        "version_text": text or None,
        "version_comment": comment or None,
        "variables": {name: _without_secrets(name, value) for name, value in merged.items()},
        "pid": None,
        **({"replication": list(replicas[-1].rows)} if replicas else {}),
    }, ""


def placed(settings: dict[str, Any], facts: Mapping[str, Any]) -> None:
    """Says where the server runs, as far as the names of its host and of the examined one tell.

    Only where they are the same do the host's numbers explain the server's, and the reverse.
    """
    variables = settings.get("variables") or {}
    own, host = (_short(name) for name in (variables.get("hostname"), facts.get("hostname")))
    if not own or not host:
        lacking = [
            *(() if own else (_lacking(variables, "SHOW GLOBAL VARIABLES, with the server's hostname"),)),
            *(() if host else (_lacking(facts, "the host's name: uname -a"),)),
        ]
        settings["place"] = {"answer": "unknown", "missing": " and ".join(lacking)}
        return
    if own != host:
        said = f"it calls its host {own}, and the host's data is of {host}"
        settings["place"] = {"answer": "unknown", "evidence": [said], "missing": "both of one machine"}
        return
    datadir = variables.get("datadir", "").rstrip("/")
    servers = [
        each
        for each in facts.get("servers") or ()
        if datadir and str(each.get("datadir") or "").rstrip("/") == datadir
    ]
    if len(servers) == 1:
        settings["pid"] = servers[0].get("pid")
    settings["place"] = {"answer": "here", "evidence": [f"both call the host {host}"]}


def _lacking(names: Mapping[str, Any], what: str) -> str:
    name = names.get("hostname")
    return f"another hostname than {name}, which every machine may have" if name else what


def _short(name: Any) -> str:
    """Empty for a name that every machine may have."""
    short = str(name or "").partition(".")[0].lower()
    return "" if short in _OF_EVERY_MACHINE else short


def _vendor(version: str, comment: str, status: set[str]) -> str:
    said = f"{version} {comment}".lower()
    if "mariadb" in said:
        return "mariadb"
    if "percona" in said:
        return "percona"
    if version:
        return "mysql"
    if status & set(_OF_MARIADB):
        return "mariadb"
    return "mysql" if status & set(_OF_MYSQL) else ""


def _without_secrets(name: str, value: str) -> str:
    if value in ("", "ON", "OFF"):
        return value
    has_option = any(
        announces_secret(part.partition("=")[0]) for part in re.split(r"[;,&? ]", value) if "=" in part
    )
    has_url = re.search(r"://[^/@\s]*:[^/@\s]*@", value) is not None
    return REMOVED if announces_secret(name) or has_option or has_url else value
