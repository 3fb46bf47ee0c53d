"""`headrace top` shows a host within two seconds, or says what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.errors import NothingMeasured
from headrace.base.model import Facts
from headrace.host.target import TargetSpec
from headrace.hunt import live
from headrace.hunt.commands import top
from headrace.hunt.commands.live import Live
from headrace.hunt.live import Feed
from tests.rules.hosts import unwell

#: Two seconds, counted in turns of the loop: on a busy machine each takes longer, as all else does.
TURN_S, TURNS = 0.05, 40
STEPS = {
    "connect": "connecting to db1 ...",
    "agent": "starting the agent on db1 ...",
    "login": "looking for the server of db1 ...",
    "samples": "waiting for the settings and the second sample of db1 ...",
    "facts": "waiting for the settings and the second sample of db1 ...",
}


async def _for_ever() -> Any:
    await asyncio.Event().wait()


def _host(monkeypatch: pytest.MonkeyPatch, hangs: str = "", samples_s: float = 1.0) -> Feed:
    """A feed of a host that answers each step until this one, and then hangs."""

    async def close() -> None:
        pass

    def at(step: str, answer: Any = None) -> Callable[..., Any]:
        async def reply(*_: Any) -> Any:
            return await _for_ever() if step == hangs else answer

        return reply

    @contextlib.asynccontextmanager
    async def samples(*_: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        async def ticks() -> AsyncIterator[dict[str, Any]]:
            for n in range(100):
                if hangs == "samples":
                    await _for_ever()
                values = {"idle": {"all": n * 100, "cpu0": n * 100}, "user": {"all": n, "cpu0": n}}
                yield {"t_ns": n * 10**9, "sampler": "cpu", "ok": True, "values": values}
                yield {"t_ns": n * 10**9, "sampler": "agent", "ok": True, "values": {}}
                await asyncio.sleep(samples_s)

        yield ticks()

    facts = Facts("0" * 16, dict(unwell(has_server=False).raw))
    agent = SimpleNamespace(facts=at("facts", facts), samples=samples)
    target = SimpleNamespace(name="db1", connect=at("connect"), close=close)
    monkeypatch.setattr(live, "open_target", lambda _: target)
    monkeypatch.setattr("headrace.hunt.live.Agent.install", at("agent", agent))
    return Feed(TargetSpec.parse("root@db1"), find_login=at("login", (None, "")))


async def _soon(app: Live, wanted: str) -> None:
    for _ in range(TURNS):
        if wanted in "\n".join(line.plain for line in app.shown):
            return
        await asyncio.sleep(TURN_S)
    raise AssertionError("\n".join(line.plain for line in app.shown))


@pytest.mark.parametrize("hangs", STEPS)
async def test_what_it_waits_for_is_on_the_screen(hangs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Live(_host(monkeypatch, hangs))
    async with app.run_test(size=(100, 30)):
        await _soon(app, STEPS[hangs])


async def test_a_host_that_answers_is_on_the_screen_with_its_second_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Live(_host(monkeypatch))
    async with app.run_test(size=(100, 30)):
        await _soon(app, "▕")


@pytest.mark.parametrize("hangs", STEPS)
async def test_without_a_terminal_it_is_said_once_on_standard_error(
    hangs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "SILENT_S", 0.2)
    monkeypatch.setattr(top, "ONCE_SAMPLES", 1)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3.0):
            await top._one(_host(monkeypatch, hangs))
    said = capsys.readouterr()
    assert said.err.splitlines() == [STEPS[hangs]]
    assert said.out == ""


async def test_nothing_is_said_of_a_host_that_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shot = await top._one(_host(monkeypatch, samples_s=0.3))
    assert shot.target == "db1"
    assert capsys.readouterr().err == ""


async def test_a_host_without_settings_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "FACTS_S", 0.5)
    with pytest.raises(NothingMeasured, match="does not report its settings"):
        await top._one(_host(monkeypatch, "facts", samples_s=0.1))
