"""Every verb of the agent x every way it can end: one error class, exit code, place and hint."""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.base.errors import (
    Busy,
    CommandFailed,
    DiskFull,
    HeadraceError,
    NotAsAsked,
    NotReady,
    PlanError,
    Refused,
    StoreError,
    WorkloadFailed,
    WrongArguments,
)
from headrace.experiment.workloads.tool import agent_failed
from headrace.host.agent import Agent, Journal, door, stop
from headrace.host.agent.failures import failure
from headrace.host.target import Target
from headrace.host.target.local import LocalTarget
from headrace.hunt import hunt
from headrace.hunt.ladder import ladder
from headrace.traffic import traffic

Work = Callable[[Target, Path], Awaitable[object]]


async def _follow(host: Target, _: Path) -> None:
    async with (await Agent.install(host)).samples() as lines:
        async for _line in lines:
            pass


async def _hold(host: Target, folder: Path) -> None:
    async with Journal(await Agent.install(host), "test-door", str(folder)).hold():
        pass


async def _sample(host: Target, folder: Path) -> None:
    await hunt._sample(await Agent.install(host), f"{folder}/samples", 2, None, lambda done, total: None)


async def _journal(host: Target, folder: Path) -> Journal:
    return Journal(await Agent.install(host), "test-door", str(folder))


async def _stacks(host: Target, _: Path) -> None:
    await (await Agent.install(host)).text("stacks", "--pid", "1")


async def _facts(host: Target, _: Path) -> None:
    await (await Agent.install(host)).facts()


async def _entries(host: Target, folder: Path) -> None:
    await (await _journal(host, folder)).entries()


async def _rollback(host: Target, folder: Path) -> None:
    await (await _journal(host, folder)).rollback()


async def _confirm(host: Target, folder: Path) -> None:
    await (await _journal(host, folder)).confirm()


def _nothing(_: object) -> None:
    pass


#: Those that read JSON, and those that do not.
READING: dict[str, Work] = {
    "facts": _facts,
    "sample (top)": _follow,
    "digest": lambda host, _: traffic.digest(host, ["slow.log"], []),
    "record": lambda host, folder: traffic.record(host, ["slow.log"], folder / "out.rec", _nothing),
    "recording info": lambda host, _: traffic.recording(host, ["info", "x.rec"]),
    "recording verify": lambda host, _: traffic.recording(host, ["verify", "x.rec"], even_if_damaged=True),
    "replay": lambda host, _: traffic.play(host, ["x.rec"], _nothing),
    "ladder": lambda host, _: ladder.measure(host, [], _nothing),
    "journal show": _entries,
    "journal rollback": _rollback,
}
OTHERS: dict[str, Work] = {
    "sample (hunt)": _sample,
    "stacks": _stacks,
    "journal confirm": _confirm,
    "journal hold": _hold,
}

HINT = "run the same command again, which installs it; `headrace doctor` looks closer"
#: What the agent does -> class, exit code, hint and message of our error.
ENDS: dict[str, tuple[type[HeadraceError], int, str | None, str]] = {
    "echo 'headrace-agent: no such thing' >&2; exit 1": (CommandFailed, 6, None, "no such thing"),
    "echo 'headrace-agent: bad input: --x' >&2; exit 2": (PlanError, 3, None, "--x"),
    "printf 'error: no such --x\\n\\nUsage: headrace-agent digest [OPTIONS]\\n' >&2; exit 2": (
        WrongArguments, 2, None, "no such --x",
    ),
    "echo 'headrace-agent: bad input: no such file' >&2; exit 3": (PlanError, 3, None, "no such file"),
    "echo 'headrace-agent: not ready: needs root' >&2; exit 4": (NotReady, 4, None, "needs root"),
    "echo 'headrace-agent: x is damaged' >&2; exit 9": (StoreError, 9, None, "x is damaged"),
    "echo 'headrace-agent: refused: no' >&2; exit 5": (Refused, 5, None, "no"),
    "exit 6": (CommandFailed, 6, None, "headrace-agent ended with exit code 6"),
    "echo 'headrace-agent: busy: x works' >&2; exit 7": (
        Busy, 7, "wait until it ends, or stop that process", "x works",
    ),
    "echo 'headrace-agent: write: No space left on device' >&2; exit 8": (
        DiskFull, 8, "free some space there", "write: No space left on device",
    ),
    "kill -KILL $$": (CommandFailed, 6, None, "headrace-agent was ended by SIGKILL"),
    "printf '{\"kind\": \"sta'; kill -KILL $$": (CommandFailed, 6, None, "headrace-agent was ended by SIGKILL"),
}  # fmt: skip
BROKEN = ["echo nonsense", 'printf \'{"kind": "sta\'']


def _agent(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "headrace-agent"
    program.write_text(script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("HEADRACE_AGENT", str(program))


async def _error(work: Work, folder: Path) -> HeadraceError:
    host = LocalTarget()
    await host.connect()
    try:
        with pytest.raises(HeadraceError) as caught:
            await work(host, folder)
        return caught.value
    finally:
        await host.close()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("verb", [*READING, *OTHERS])
async def test_an_end_is_one_error_for_every_verb(
    verb: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _agent(tmp_path, f"#!/bin/sh\n{end}\n", monkeypatch)
    error = await _error({**READING, **OTHERS}[verb], tmp_path)
    expected, code, hint, message = ENDS[end]
    # A host that somebody holds is a kind of Busy, so that a lease can wait for it.
    assert isinstance(error, expected)
    assert (error.exit_code, error.place, error.hint, error.message) == (code, "local", hint, message)


@pytest.mark.parametrize("script", BROKEN)
@pytest.mark.parametrize("verb", READING)
async def test_what_is_not_json_is_one_error_for_every_verb(
    verb: str, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _agent(tmp_path, f"#!/bin/sh\n{script}\n", monkeypatch)
    error = await _error(READING[verb], tmp_path)
    assert type(error) is CommandFailed
    assert (error.exit_code, error.place, error.hint) == (6, "local", None)
    assert f"{verb.split()[0]} printed what is not JSON" in error.message


@pytest.mark.parametrize("verb", [*READING, *OTHERS])
async def test_a_missing_program_is_one_error_for_every_verb(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _agent(tmp_path, "#!/no/such/interpreter\n", monkeypatch)
    error = await _error({**READING, **OTHERS}[verb], tmp_path)
    assert type(error) is NotReady
    assert (error.exit_code, error.place, error.hint) == (4, "local", HINT)
    assert error.message == "headrace-agent cannot be started"


async def test_who_leaves_the_lines_ends_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _agent(
        tmp_path,
        "#!/bin/sh\ntrap 'echo >ended; exit 0' TERM\necho '{}'\nwhile :; do sleep 0.1; done\n",
        monkeypatch,
    )
    monkeypatch.chdir(tmp_path)
    host = LocalTarget()
    await host.connect()
    async with (await Agent.install(host)).lines("sample") as lines:
        assert await anext(lines) == {}
    assert (tmp_path / "ended").exists()
    await host.close()


async def test_a_sampler_hears_of_us_until_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = '#!/bin/sh\nwhile read -r _; do echo "{\\"words\\": \\"$*\\"}"; done\n'
    _agent(tmp_path, script, monkeypatch)
    monkeypatch.setattr(door, "BEAT_S", 0.02)
    host = LocalTarget()
    await host.connect()
    async with (await Agent.install(host)).samples("--interval", "1s") as lines:
        heard = [await anext(lines) for _ in range(3)]
    assert heard == 3 * [{"words": f"sample --lease {door.LEASE_S:.0f}s --interval 1s"}]
    await host.close()


async def test_what_ends_by_itself_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _agent(tmp_path, "#!/bin/sh\nexit 3\n", monkeypatch)
    host = LocalTarget()
    await host.connect()
    process = await (await Agent.install(host)).spawn("sample")
    assert await process.wait() == 3
    await stop(process)
    assert await process.wait() == 3
    await host.close()


@pytest.mark.parametrize(
    ("code", "expected"),
    [(4, NotReady), (5, Refused), (7, Busy), (8, DiskFull), (14, NotAsAsked), (127, NotReady)],
)
def test_a_trial_says_the_same_of_the_host(code: int, expected: type[HeadraceError]) -> None:
    asked, trial = failure(code, "x", "db1"), agent_failed("drive", code, "x", "db1")
    assert type(asked) is type(trial) is expected
    assert (asked.place, asked.hint) == (trial.place, trial.hint)


@pytest.mark.parametrize("code", [1, 2, 3, 6, -9])
def test_the_rest_is_a_failed_workload(code: int) -> None:
    assert type(agent_failed("drive", code, "x", "db1")) is WorkloadFailed
