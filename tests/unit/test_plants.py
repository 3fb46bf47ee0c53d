"""The plants of ``benches/planted.py``: what they expect can come true, and rules of live servers have one.

The bench itself takes servers and half a minute a plant; this only reads it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benches.plants import PLANTS
from benches.plants.plant import Plant

from headrace.base.model import Vendor
from headrace.hunt.rules import all_rules

RULES = {rule.code: rule for rule in all_rules()}
#: The servers that the bench is run on, the oldest and the newest.
SERVERS = {"mariadb": (Vendor.MARIADB, ("10.11.6", "11.8.3")), "mysql": (Vendor.MYSQL, ("8.0.31", "9.7.0"))}
REAL = Path(__file__).parents[1] / "real"

#: Rules about queues, limits and losses: a fixture does not show that a live server gives the signal.
LIVE = (
    *(
        "SESS15",
        "SESS16",
        "SESS18",
        "SESS19",
        "LOCK03",
        "LOCK11",
        "LOCK12",
        "LOCK13",
        "LOCK16",
        "LOCK19",
        "CPU10",
        "CPU12",
    ),
    *("MEM16", "MEM17", "MEM19", "LIM06", "LIM08", "LIM09", "FS11", "FS12", "FS13"),
    *("CPU13", "FS14", "HOST04", "MEM21", "NET12", "TCP07"),
    *("BLK15", "BLK16", "HOST05", "HOST06", "HOST07", "NET13", "NET14"),
    *("REPL06", "REPL07", "REPL08", "REPL09", "REPL12", "REPL14", "STMT07", "STMT08"),
    *("LOCK20", "POOL13", "POOL14", "SESS21"),
    *("STAT09", "SESS20", "STMT09", "STMT10", "POOL11", "POOL12", "FLUSH10", "FLUSH11"),
)
#: What a bench on one small machine cannot be given: these rules have only found their cause in fixtures.
NEVER_PLANTED = {
    "LOCK14": "a device that does not answer for a minute, under a server whose threads hold latches",
    "LIM07": "memory.high, which control groups of version 1 do not have",
    "REPL11": "a second node of a cluster that is slower than the first",
    "CPU11": "heat",
    "LOCK07": "more cores than two",
    "MEM06": "two NUMA nodes",
    "MEM20": "two NUMA nodes",
    "MEM18": "a host of its own, whose memory may run out",
    "MEM22": "a host of its own, whose memory may run out",
    "CPU14": "processors whose frequency can be set",
    "CPU15": "a processor that other programs can spare",
    "BLK17": "device-mapper, which its kernel does not have",
    "BLK18": "device-mapper, which its kernel does not have",
    "BLK21": "a device that is slow by itself, and not by a limit",
    "BLK20": "a volume of a cloud",
    "NET15": "an instance of a cloud",
    "BLK19": "device-mapper, and arrays, which its kernel does not have",
    "HOST08": "a host of its own: once the kernel audits, it looks at every system call until the next boot",
    "NET10": "a card with a bad cable",
    "NET11": "a card with a bad cable",
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name.replace(" ", "-"))
def test_a_plant_can_be_found_on_each_of_its_servers(plant: Plant) -> None:
    assert {*plant.finds, *plant.also} <= RULES.keys()
    re.compile(plant.says)
    re.compile(plant.adviser)
    for kind in plant.servers:
        vendor, versions = SERVERS[kind]
        there = [version for version in versions if version in plant.versions]
        assert there, f"no {kind} has it"
        for version in there:
            assert any(
                not RULES[code].applies_to
                or (vendor in RULES[code].applies_to and version in RULES[code].applies_to[vendor])
                for code in plant.finds
            ), f"{kind} {version} has no rule of {plant.finds}"


def test_names_of_plants_are_unique() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)


def test_what_shows_only_on_a_live_server_is_planted_in_one_or_said_not_to_be() -> None:
    planted = {code for plant in PLANTS for code in plant.finds}
    tested = {code for path in REAL.rglob("*.py") for code in re.findall(r'"([A-Z]+\d\d)"', path.read_text())}
    assert {*LIVE} <= planted | tested
    assert planted.isdisjoint(NEVER_PLANTED), "remove what is planted now"
    assert tested.isdisjoint(NEVER_PLANTED), "remove what is tested now"
    assert NEVER_PLANTED.keys() <= RULES.keys()
