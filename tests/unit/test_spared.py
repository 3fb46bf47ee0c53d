"""What is left out to spare a big server is said, with the option that brings it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headrace.base.errors import NotReady
from headrace.base.model import ServerLogin
from headrace.host.activity import Activity
from headrace.host.agent import Agent
from headrace.host.command import on_one_screen
from headrace.host.samples import Samples
from headrace.host.spared import OPTION, left_out, of_facts, resting
from headrace.host.window import Window
from headrace.hunt import hunt
from headrace.hunt.report.page import page_of
from headrace.hunt.top import overview
from headrace.hunt.top.jsonform import overview as as_json
from headrace.show import jsonform, terminal
from tests.rules.hosts import saved
from tests.unit.test_top_views import feed_of, shot_of
from tests.written import printed

MANY = "sizes of the tables: not read, because 100000 tables would have to be opened; --thorough reads them"
MUTEX = "SHOW ENGINE INNODB MUTEX was not asked: it walks the locks of all pages; --thorough asks it"


def window(skipped: dict[str, list[int]], seconds: int = 60) -> Window:
    rows = [(0, "agent", "cpu_ns", "", 1.0), (seconds * 10**9, "agent", "cpu_ns", "", 2.0)]
    for sampler, counts in skipped.items():
        step = seconds / (len(counts) - 1)
        rows += [
            (int(at * step * 10**9), "agent", "spared_ticks", sampler, float(count))
            for at, count in enumerate(counts)
        ]
    return Window(Samples.of(rows))


def test_samples_looks_and_reads_that_were_left_out() -> None:
    facts = saved().facts
    facts = replace(
        facts, data={**facts.data, "errors": [{"path": "/x", "error": MANY}, {"error": "denied"}]}
    )
    seen = window({"processlist": [10, 56], "mysql_status": [0, 2]})
    found = left_out(seen, facts, {"innodb_mutex": MUTEX, "psi": "gone"}, Activity(looks=20, spared=40))
    assert found == (
        "processlist: due, but not sampled, in 56 of 61 s",
        "running statements and lock waits: 40 of 60 looks",
        "innodb_mutex: SHOW ENGINE INNODB MUTEX was not asked: it walks the locks of all pages",
        "sizes of the tables: not read, because 100000 tables would have to be opened",
    )
    assert left_out(window({}), saved().facts, {}, Activity(looks=60)) == ()
    assert resting(window({"processlist": [10, 56], "mysql_status": [2, 2]})) == ("processlist",)


def test_a_hunt_names_what_it_left_out_and_the_option() -> None:
    snapshot = saved()
    quiet = page_of(hunt.examine(snapshot))
    assert jsonform.render(quiet)["spared"] == []
    page = page_of(hunt.examine(replace(snapshot, errors={"innodb_mutex": MUTEX})))
    text = printed(terminal.render(page), width=200)
    assert (
        "Left out to limit the load on the host and its server; headrace hunt --thorough collects all of it:"
    ) in text
    assert "innodb_mutex: SHOW ENGINE INNODB MUTEX was not asked" in text
    assert len(jsonform.render(page)["spared"]) == 1


def test_facts_name_what_they_left_out() -> None:
    facts = saved().facts
    facts = replace(facts, data={**facts.data, "errors": [{"path": "/x", "error": MANY}]})
    assert of_facts(facts) == (MANY.partition(";")[0],)
    assert "would have to be opened. headrace facts --thorough reads all" in printed(
        on_one_screen(facts), width=200
    )


def test_top_says_what_rests() -> None:
    feed = feed_of()
    shot = shot_of(feed)
    assert as_json(shot)["spared"] == []
    newest = feed.ring.newest_s
    for second in range(5):
        values = {"spared_ticks": {"processlist": float(second)}}
        feed.ring.add(
            {"t_ns": int((newest - 4 + second) * 1e9), "sampler": "agent", "ok": True, "values": values}
        )
    shot = shot_of(feed)
    assert as_json(shot)["spared"] == ["processlist"]
    drawn = "\n".join(line.plain for line in overview.server_lines(shot, 120))
    assert "processlist sampled less often: headrace top --thorough samples every second" in drawn


class Asked:
    """An agent that notes how it was called."""

    def __init__(self) -> None:
        self.words: list[tuple[str, ...]] = []

    async def answer(self, *words: str, **_: Any) -> dict[str, Any]:
        self.words.append(words)
        return {}

    async def spawn(self, *words: str, **_: Any) -> None:
        self.words.append(words)
        raise NotReady("enough seen")


@pytest.mark.parametrize("thorough", [False, True])
def test_the_agent_is_asked_thoroughly_only_on_request(thorough: bool) -> None:
    asked: Any = Asked()
    asyncio.run(Agent.facts(asked, ServerLogin(socket="/s"), thorough=thorough))
    more = ["--thorough"] if thorough else []
    with pytest.raises(NotReady):
        asyncio.run(hunt._sample(asked, "out", 2, None, lambda done, total: None, more))
    assert [OPTION in words for words in asked.words] == [thorough, thorough]
