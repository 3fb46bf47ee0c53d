"""Sentences of pages about where statements come from, in every state in which they can stand."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, PROCESS_LIST, SLOW_LOG
from headrace.web import said

DENIED = "/a.log is not there, or the account that headrace uses may not read it"
SOURCES = (PERFORMANCE_SCHEMA, PROCESS_LIST, SLOW_LOG)


@dataclass(frozen=True)
class State:
    """``limit`` and ``schema`` are variables, None if unknown; ``problem`` is the reader's."""

    log: str
    asked: str
    limit: str | None
    schema: str | None
    problem: str
    with_examples: bool

    @property
    def facts(self) -> Facts | None:
        if self.log == "unknown":
            return None
        variables = {
            "slow_query_log": "OFF" if self.log == "off" else "ON",
            "log_output": "TABLE" if self.log == "TABLE" else "FILE",
            "slow_query_log_file": "/a.log",
        }
        if self.limit is not None:
            variables["long_query_time"] = self.limit
        if self.schema is not None:
            variables["performance_schema"] = self.schema
        return Facts("", {"server_settings": {"variables": variables}})

    @property
    def is_read(self) -> bool:
        """A file that was named is read, whatever the server writes."""
        if self.asked == "off" or self.log == "unknown" or self.problem:
            return False
        return self.asked != "auto" or self.log == "on"

    @property
    def knows(self) -> bool:
        return self.log != "unknown"

    def logged(self) -> said.Logged:
        return said.logged("db1", self.facts, self.asked, self.problem)


STATES = [
    State(*each)
    for each in itertools.product(
        ("on", "off", "TABLE", "unknown"), ("auto", "off", "/a.log", "/b.log"), (None, "0.000000", "10.000000"),
        (None, "ON", "OFF"), ("", DENIED), (True, False),
    )
]  # fmt: skip


def sentences(state: State) -> Iterator[str]:
    hosts = [state.logged()]
    yield " ".join(said.unread(hosts))
    yield said.no_example(hosts, with_examples=state.with_examples)
    for source in SOURCES:
        yield said.note(source, hosts)
        yield said.no_latencies(source, hosts)


#: What a sentence says -> in which states that is true.
CLAIMS: dict[str, Callable[[State], bool]] = {
    r"slow log is not read": lambda s: not s.is_read,
    r"[Tt]he slow log is read": lambda s: s.is_read,
    r"the slow log is off": lambda s: s.log == "off",
    r"log_output is TABLE": lambda s: s.log == "TABLE",
    r"may not read it": lambda s: bool(s.problem),
    r"started with --slow-log off": lambda s: s.asked == "off",
    r"settings are not known": lambda s: not s.knows,
    r"/b\.log is read, as asked": lambda s: s.asked == "/b.log" and s.is_read,
    r"but the server writes /a\.log": lambda s: s.asked == "/b.log" and s.log == "on",
    r"long_query_time is 0 now": lambda s: s.knows and s.limit == "0.000000",
    r"long_query_time is 10 s now": lambda s: s.knows and s.limit == "10.000000",
    r"performance_schema is on": lambda s: s.knows and s.schema == "ON",
    r"turn on performance_schema": lambda s: not (s.knows and s.schema == "ON"),
    r"turn on [a-z_]+ or the slow log": lambda s: not s.is_read,
    r"`headrace serve --examples` keeps": lambda s: not s.with_examples,
    r"The slow log had no call of this class": lambda s: s.with_examples and s.is_read,
}


def test_every_sentence_is_true_in_the_state_in_which_it_stands() -> None:
    made: set[str] = set()
    for state in STATES:
        for sentence in sentences(state):
            for claim, is_true in CLAIMS.items():
                if re.search(claim, sentence):
                    made.add(claim)
                    assert is_true(state), f"{state}: {sentence}"
    assert made == set(CLAIMS), "a claim that no state makes"


def test_what_is_not_read_is_said_in_every_state() -> None:
    for state in STATES:
        text = " ".join(said.unread([state.logged()]))
        assert ("slow log is not read" in text) is not state.is_read, state
        for source in (PERFORMANCE_SCHEMA, PROCESS_LIST):
            assert ("is not read" in said.no_latencies(source, [state.logged()])) is not state.is_read


def test_hosts_of_several_kinds_get_no_sentence_of_one() -> None:
    on, off = said.Logged("a", "", "", 0.0, True), said.Logged("b", "off", "", 10.0, False)
    assert "With long_query_time above 0" in said.note(SLOW_LOG, [on, off])
    assert "turn on" in said.note(PROCESS_LIST, [on, off])
    assert "is on" not in said.note(PROCESS_LIST, [])
    assert "With long_query_time above 0" in said.note(SLOW_LOG, [])


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"words": "x", "has_classes": True}, said.NO_MATCH),
        ({"words": "", "has_classes": True}, said.ONLY_OWN),
        (
            {"words": "", "has_classes": False},
            "There are no statements from slow log in this range. There are some",
        ),
        ({"words": "", "has_classes": False, "with_own": True}, "There are no statements from slow log"),
    ],
)
def test_why_a_list_is_empty(state: dict[str, Any], text: str) -> None:
    found = said.empty(SLOW_LOG, (SLOW_LOG, PROCESS_LIST), **{"with_own": False, **state})
    assert found.startswith(text)
