"""The runner for real: whole experiments on loop devices, killed at every stage, continued, restored."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.base.errors import EXIT_CODES, NothingMeasured
from headrace.base.model import OWNER_VARIABLE
from tests import sshd
from tests.bench import FIO, Bench
from tests.traces import read_each
from tests.waiting import until

pytestmark = pytest.mark.needs("root")

OLTP = """
name = "ladder"
[target]
scratch = "{scratch}"
[design]
kind = "cumulative"
baseline = "STOCK"
blocks = 2
[design.rungs]
STOCK = []
JE = ["je"]
BROKEN = ["broken"]
[workload]
kind = "sysbench-oltp"
seconds = 2
warmup_s = 1
script = "oltp_point_select"
tables = 1
table_size = 1000
threads = 2
[volume]
device = "directory"
[bundles.je]
"server.allocator" = "jemalloc"
[bundles.broken]
"server.innodb_no_such_thing" = 1
"""


def stages(bench: Bench) -> dict[str, Callable[[], bool]]:
    """Where only a real host has something to say: ``tests/unit/test_loops.py`` kills at every step."""
    trials = bench.output / "trials"

    def mounted() -> bool:
        return str(bench.scratch) in Path("/proc/self/mounts").read_text()

    def measuring() -> bool:
        return bool(_running("fio", "headrace-killed"))

    return {
        "after mount": mounted,
        "during the workload": measuring,
        "during the store's write": lambda: any(trials.glob(".*.part/intervals.parquet")),
    }


def _running(program: str, owner: str) -> list[int]:
    """The processes of a program whose mark of an owner begins like this."""
    mark, name = f"{OWNER_VARIABLE}={owner}".encode(), f"{program}\n".encode()
    names = {path.parent: text for path, text in read_each("proc/[0-9]*/comm")}
    marked = [path.parent for path, text in read_each("proc/[0-9]*/environ") if mark in text]
    return [int(folder.name) for folder in marked if names.get(folder) == name]


@pytest.mark.parametrize("stage", list(stages(Bench(Path(), Path(), Path(), Path()))))
def test_a_killed_runner_continues_and_restores_the_host(stage: str, bench: Callable[[str], Bench]) -> None:
    lab = bench(FIO)
    process = lab.start()
    until(stages(lab)[stage], process, pause_s=0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    survivors = {n: (lab.output / f"trials/{n:04d}/trial.json").stat().st_mtime_ns for n in lab.trials()}
    code, _, err = lab.finish()
    # On a busy machine every trial may be invalid: that is no matter of restoring and continuing.
    assert code == 0 or (code == NothingMeasured.exit_code and "another program" in err), err
    assert sorted(lab.trials()) == [1, 2, 3]
    assert {t["state"] for t in lab.trials().values()} <= {"complete", "invalid"}
    assert not list(lab.output.glob("trials/.*"))
    for number, modified in survivors.items():
        assert (lab.output / f"trials/{number:04d}/trial.json").stat().st_mtime_ns == modified
    # Undone by the next run, or before it by the host itself once its controller was gone.
    assert lab.traces() == []


def test_ctrl_c_restores_the_host_at_once_and_the_next_run_continues(bench: Callable[[str], Bench]) -> None:
    lab = bench(FIO)
    process = lab.start()
    until((lab.output / "trials/0001").exists, process)
    until(stages(lab)["after mount"], process, pause_s=0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert lab.traces() == []
    assert out == ""
    assert "Traceback" not in err
    assert list(lab.trials()) == [1]
    assert lab.finish()[0] == 0
    assert len(lab.trials()) == 3


@pytest.mark.path
def test_a_ladder_with_a_treatment_that_does_not_start(bench: Callable[[str], Bench]) -> None:
    lab = bench(OLTP)
    code, out, err = lab.finish("--json")
    assert code == 0, err
    trials = lab.trials().values()
    assert len(trials) == 8
    failed = {t["treatment"] for t in trials if t["state"] == "failed"}
    assert failed == {"BROKEN"}
    assert all("innodb_no_such_thing" in str(t["reason"]) for t in trials if t["state"] == "failed")
    report = json.loads(out)
    assert {t["treatment"] for t in report["treatments"] if t["trials"]} <= {"STOCK", "JE"}
    assert (lab.output / "report.html").exists()
    assert "jemalloc" in json.dumps([t["knobs"] for t in trials if t["treatment"] == "JE"])


def test_a_server_that_dies_under_load_is_a_failed_trial_with_its_last_words(
    bench: Callable[[str], Bench],
) -> None:
    lab = bench(OLTP)
    process = lab.start()
    # The data set is loaded by sysbench, too, but before the first trial's folder exists.
    until(lambda: any(lab.output.glob("trials/.*.part")), process, pause_s=0.002)
    until(lambda: bool(_running("sysbench", "headrace-ladder")), process)
    number = int(next(lab.output.glob("trials/.*.part")).name[1:5])
    os.kill(_running("mariadbd", "headrace-ladder")[0], signal.SIGKILL)
    until((lab.output / f"trials/{number:04d}").exists, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    trial = lab.trials()[number]
    assert trial["state"] == "failed"
    assert "the server died" in str(trial["reason"])


def test_two_runners_of_one_host_do_not_meet(bench: Callable[[str], Bench]) -> None:
    lab = bench(FIO)
    first = lab.start()
    until(stages(lab)["after mount"], first, pause_s=0.002)
    lab.output = lab.folder / "other"
    code, _, err = lab.finish()
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    assert code == 7, EXIT_CODES[code]
    assert "holds this host for headrace-killed" in err


def test_a_changed_plan_is_refused_in_the_same_folder(bench: Callable[[str], Bench]) -> None:
    lab = bench(FIO)
    first = lab.start()
    until((lab.output / "design.json").exists, first)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    lab.plan.write_text(lab.plan.read_text().replace("seconds = 2", "seconds = 3"))
    code, _, err = lab.finish()
    assert code == 7
    assert "a different design" in err


def test_a_full_disk_is_one_clear_line(bench: Callable[[str], Bench]) -> None:
    lab = bench(FIO.replace('"400M"', '"60T"'))
    code, _, err = lab.finish()
    assert code == 8, err
    assert "Traceback" not in err
    assert lab.trials() == {}


def test_a_taken_port_is_one_clear_line(bench: Callable[[str], Bench]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lab = bench(OLTP.replace("[volume]", f"[server]\nport = {port}\n[volume]"))
        code, _, err = lab.finish()
    assert code == 7, err
    assert str(port) in err
    assert "Traceback" not in err


def test_a_scratch_folder_that_others_may_write_is_refused(bench: Callable[[str], Bench]) -> None:
    lab = bench(FIO)
    lab.scratch.chmod(0o777)
    code, _, err = lab.finish()
    lab.scratch.chmod(0o755)
    assert code == 5, err
    assert "must be owned and writable only by this user" in err


def test_a_missing_tool_is_named_with_the_command_that_brings_it(
    bench: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = bench(FIO)
    programs = lab.folder / "bin"
    programs.mkdir()
    for directory in ("/usr/sbin", "/sbin", "/usr/bin", "/bin"):
        for program in Path(directory).iterdir():
            if program.name != "fio" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    code, _, err = lab.finish()
    assert code == 4, err
    assert "apt-get install -y fio" in err


@pytest.mark.needs("sshd")
@pytest.mark.path
def test_the_same_plan_runs_on_a_host_behind_ssh(bench: Callable[[str], Bench], tmp_path: Path) -> None:
    folder = tmp_path / "ssh"
    folder.mkdir()
    with sshd.running_sshd(folder) as host:
        login = (
            f'address = "{sshd.user()}@127.0.0.1:{host.port}"\n'
            f'identity_file = "{host.key}"\nknown_hosts = "{host.known_hosts}"'
        )
        lab = bench(OLTP.replace("[target]", f"[target]\n{login}").replace("blocks = 2", "blocks = 1"))
        code, _, err = lab.finish()
    assert code in (0, NothingMeasured.exit_code), err
    states = {t["treatment"]: t["state"] for t in lab.trials().values()}
    assert states["BROKEN"] == "failed"
    assert {states["STOCK"], states["JE"]} <= {"complete", "invalid"}
