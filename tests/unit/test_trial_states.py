"""What a trial is that ended without a result: a property of its treatment, or of its host."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

from headrace.base.errors import NotAsAsked, WorkloadFailed
from headrace.base.model import Facts, Role, Treatment, TrialSpec, TrialState, Vendor
from headrace.experiment import trial
from headrace.experiment.store import TrialRecord
from headrace.host.target.local import LocalTarget
from headrace.lab.server import ServerSpec


def write_samples(raw: Path, kills: int) -> None:
    """The kernel's count of processes that it killed, which begins at 5."""
    raw.mkdir(exist_ok=True)
    lines = [
        {
            "t_ns": n * 10**9,
            "sampler": "vmstat",
            "ok": True,
            "cost_ns": 1,
            "values": {"oom_kill": {"": 5 + n * kills}},
        }
        for n in range(2)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (raw / trial.SAMPLES_FILE).write_bytes(zstandard.compress(text.encode()))


async def measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kills: int
) -> TrialRecord:
    async def measure(self: Any) -> None:
        write_samples(tmp_path / "raw", kills)
        raise error

    async def nothing(*_: Any, **__: Any) -> list[str]:
        return []

    monkeypatch.setattr(trial._Steps, "measure", measure)
    monkeypatch.setattr(trial, "restore", nothing)
    clocks = SimpleNamespace(
        mark=lambda _: None, read=nothing, compare=nothing, times_ns=dict, warnings=list, offsets=dict
    )
    monkeypatch.setattr("headrace.experiment.connection.Clocks", lambda _: clocks)
    lab: Any = SimpleNamespace(
        design=SimpleNamespace(treatment=lambda name: Treatment(name, {}, {})),
        target=SimpleNamespace(name="db1"), clients={}, owner="x", side=None, versions={}, accel="",
        journal=SimpleNamespace(record=nothing), facts=Facts("0", {"cpu": {"online_count": 4}}),
    )  # fmt: skip
    draft: Any = SimpleNamespace(raw=tmp_path / "raw")
    spec = TrialSpec(1, 1, 1, "BIG", Role.CANDIDATE)
    record, _ = await trial.run_trial(lab, spec, draft, lambda _: None)
    return record


async def test_a_server_that_was_killed_for_lack_of_memory_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat would keep the good days of a buffer pool that is too large."""
    error = trial.ServerDied("the server died during the trial: it was killed by SIGKILL")
    record = await measured(tmp_path, monkeypatch, error, kills=1)
    assert record.state is TrialState.FAILED
    assert record.reason == f"{error.message}; the kernel killed 1 process(es) for lack of memory"


@pytest.mark.parametrize(("kills", "state"), [(1, TrialState.INVALID), (0, TrialState.FAILED)])
async def test_a_driver_that_was_killed_for_lack_of_memory_says_nothing_of_the_treatment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, state: TrialState
) -> None:
    record = await measured(tmp_path, monkeypatch, WorkloadFailed("the driver was killed by SIGKILL"), kills)
    assert record.state is state
    assert ("the kernel killed" in record.reason) == bool(kills)


@pytest.mark.parametrize(("is_alive", "kind"), [(True, NotAsAsked), (False, trial.ServerDied)])
async def test_a_load_without_its_server_is_not_the_drivers_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alive: bool, kind: type[Exception]
) -> None:
    class Server:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.settings: dict[str, Any] = {}

        async def start(self) -> Any:
            return SimpleNamespace(vendor="mariadb", version="1")

        async def alive(self) -> bool:
            return is_alive

        async def last_words(self) -> str:
            return "it was killed by SIGKILL"

        async def save_error_log(self, _: Path) -> None:
            pass

        async def stop(self, **_: Any) -> None:
            pass

    async def nothing(*_: Any, **__: Any) -> None:
        pass

    monkeypatch.setattr(trial, "PrivateServer", Server)
    for name in ("restore_dataset", "drop_cached"):
        monkeypatch.setattr(trial, name, nothing)
    monkeypatch.setattr(trial, "server_spec", lambda *_: ServerSpec(Vendor.MARIADB))
    lab: Any = SimpleNamespace(
        dataset="d",
        target=SimpleNamespace(get=nothing),
        owner="x",
        scratch="/s",
        network_host="",
        side=None,
        design=None,
    )
    draft: Any = SimpleNamespace(raw=tmp_path)
    clock: Any = SimpleNamespace(mark=lambda _: None)
    steps = trial._Steps(lab, Treatment("BIG", {}, {}), 1, draft, clock, lambda _: None)
    volume: Any = SimpleNamespace(path="/v")
    with pytest.raises(kind):
        async with steps._server(volume):
            raise NotAsAsked("2 of 4 clients were lost")


@pytest.mark.parametrize(("flags", "code"), [(0, 0), (12_416, 0), (128, 1)])
async def test_the_log_of_a_kernel_that_had_an_oops_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, code: int
) -> None:
    """12,416 is what a real one left: died, and a module from outside, unsigned."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in (("cat", f"echo {flags}"), ("dmesg", f"echo BUG; echo no >&2; exit {code}")):
        (programs / name).write_text(f"#!/bin/sh\n{words}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    warnings = await trial._keep_kernel_log(LocalTarget(), tmp_path)
    kept = tmp_path / "kernel.log"
    assert (kept.read_text() if kept.exists() else "") == ("BUG\n" if flags and not code else "")
    assert warnings == (["the log of the kernel's Oops could not be read: no"] if code else [])
