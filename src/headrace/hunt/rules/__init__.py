"""The rules: one function each, one file a resource. Importing a file adds its rules."""

from __future__ import annotations

import importlib

from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import RULES, Finding, Judgement, Rule, judge

__all__ = ["Evidence", "Finding", "Judgement", "Rule", "all_rules", "judge"]

#: The files of rules: a new one is a line here.
AREAS = (
    "allocator",
    "binlog",
    "block",
    "capacity",
    "changes",
    "cloud",
    "cluster",
    "membership",
    "memcached",
    "memcached_server",
    "connections",
    "cpu",
    "filesystems",
    "flush",
    "hardware",
    "innodb",
    "interrupts",
    "kernel",
    "limits",
    "locks",
    "md",
    "memory",
    "names",
    "neighbours",
    "network",
    "offloads",
    "pages",
    "planning",
    "pool",
    "pressure",
    "queues",
    "readahead",
    "redo",
    "replication",
    "session",
    "spins",
    "states",
    "statements",
    "stats",
    "tcp",
    "temporary",
    "transformed",
    "upkeep",
    "waits",
    "zfs",
)


def all_rules() -> list[Rule]:
    """Every rule, by its code."""
    for area in AREAS:
        importlib.import_module(f"headrace.hunt.rules.{area}")
    return [RULES[code] for code in sorted(RULES)]
