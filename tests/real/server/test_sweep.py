"""Sweeps for real: a whole one against MariaDB, killed and continued, stopped by Ctrl-C, one that cannot start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from headrace.base.errors import NothingMeasured
from tests.bench import SWAPPINESS, Bench
from tests.waiting import until

pytestmark = pytest.mark.needs("root")

FIO = """
name = "swept"
[target]
scratch = "{scratch}"
[workload]
kind = "fio"
seconds = 1
rw = "randread"
size = "16M"
ioengine = "psync"
[volume]
device = "loop"
size = "400M"
[base]
"volume.filesystem" = "ext4"
"host.vm.swappiness" = {swappiness}
[sweep]
knob = "workload.numjobs"
max = 4
passes = 2
"""

OLTP = """
name = "swept-oltp"
[target]
scratch = "{scratch}"
[workload]
kind = "oltp"
seconds = 1
script = "point_select"
table_size = 1000
[sweep]
levels = [1, 2, 3, 4, 6, 8]
passes = 1
objective = ["p99=2s"]
"""


@dataclass
class Sweeping(Bench):
    def also(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "headrace", command, str(self.output), *options]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=120, check=False)


def sweeping(lab: Bench) -> Sweeping:
    return Sweeping(lab.folder, lab.plan, lab.output, lab.scratch)


def test_a_whole_sweep_against_a_server(bench: Callable[[str], Bench]) -> None:
    lab = sweeping(bench(OLTP))
    code, out, err = lab.finish("--json", "--objective", "p99=1s", "--objective", "p50=1us")
    if code == NothingMeasured.exit_code and "another program" in err:
        pytest.skip("the machine is too busy: every trial was disturbed")
    assert code == 0, err
    assert len(lab.trials()) == 6
    found = json.loads(out)
    assert [level["load"] for level in found["levels"]] == [1, 2, 3, 4, 6, 8]
    assert [(o["percentile"], o["limit_ns"]) for o in found["objectives"]] == [("p99", 1e9), ("p50", 1e3)]
    assert found["objectives"][1]["holds"] is None
    assert found["knee"] is not None
    assert (found["law"] is None) == bool(found["law_refusal"])
    assert found["sweep"]["latency_kind"] == "response"
    assert (lab.output / "report.html").exists()
    again = lab.also("report", "--json", "--objective", "p99=1s", "--objective", "p50=1us")
    assert json.loads(again.stdout) == found
    status = lab.also("status")
    assert "6 of 6 trials" in status.stdout
    assert "nothing is left to restore" in status.stdout
    records = {path: path.stat().st_mtime_ns for path in lab.output.glob("trials/*/trial.json")}
    code, out, err = lab.finish("--json")
    assert code == 0, err
    assert [(o["percentile"], o["limit_ns"]) for o in json.loads(out)["objectives"]] == [("p99", 2e9)]
    assert {path: path.stat().st_mtime_ns for path in lab.output.glob("trials/*/trial.json")} == records


def test_a_killed_sweep_continues_with_its_levels_and_restores_the_host(
    bench: Callable[[str], Bench],
) -> None:
    """Killed in the last trial of the search; ``tests/unit/test_loops.py`` kills everywhere else."""
    after = 2
    lab = sweeping(bench(FIO))
    before = SWAPPINESS.read_text()
    process = lab.start()
    until(lambda: len(lab.trials()) >= after and SWAPPINESS.read_text() != before, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    survivors = {n: (lab.output / f"trials/{n:04d}/trial.json").stat().st_mtime_ns for n in lab.trials()}
    assert len(survivors) >= after
    code, out, err = lab.finish("--json")
    assert code == 0 or (code == NothingMeasured.exit_code and "another program" in err), err
    assert SWAPPINESS.read_text() == before
    assert sorted(lab.trials()) == list(range(1, 10))
    blocks = [t["block"] for t in lab.trials().values()]
    assert blocks == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for number, modified in survivors.items():
        assert (lab.output / f"trials/{number:04d}/trial.json").stat().st_mtime_ns == modified
    if code == 0:
        assert "needs 6 distinct levels" in json.loads(out)["headline"]


def test_ctrl_c_restores_the_host_at_once_and_other_passes_are_another_design(
    bench: Callable[[str], Bench],
) -> None:
    lab = sweeping(bench(FIO))
    before = SWAPPINESS.read_text()
    process = lab.start()
    until(lambda: (lab.output / "trials/0001").exists() and SWAPPINESS.read_text() != before, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out == ""
    assert lab.traces() == []
    assert SWAPPINESS.read_text() == before
    assert "Traceback" not in err
    code, _, err = lab.finish("--passes", "3")
    assert code == 7
    assert "a different design" in err


def test_a_first_level_that_fails_ends_it_with_the_reason(bench: Callable[[str], Bench]) -> None:
    broken = OLTP.replace("levels = [1, 2, 3, 4, 6, 8]", "max = 64")
    lab = sweeping(bench(broken + '\n[base]\n"server.innodb_no_such_thing" = 1\n'))
    code, out, err = lab.finish()
    assert code in (NothingMeasured.exit_code, 11), err
    assert "innodb_no_such_thing" in err
    assert out == ""
    assert len(lab.trials()) <= 1
    assert "Traceback" not in err


def test_an_objective_that_cannot_be_read_ends_it_before_anything_is_touched(
    bench: Callable[[str], Bench],
) -> None:
    lab = sweeping(bench(FIO))
    code, _, err = lab.finish("--objective", "p99<10")
    assert code == 3
    assert "objective = 'p99<10': must be a percentile" in err
    assert not lab.output.exists()


def test_run_and_plan_show_know_a_plan_that_sweeps(bench: Callable[[str], Bench]) -> None:
    lab = sweeping(bench(FIO + 'objective = ["p99<10"]\n'))
    command = [sys.executable, "-m", "headrace"]
    argv = [*command, "run", str(lab.plan), "-o", str(lab.output)]
    ran = subprocess.run(argv, env=lab.env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 3
    assert "objective = 'p99<10': must be a percentile" in ran.stderr
    lab.plan.write_text(lab.plan.read_text().replace("p99<10", "p99=10ms"))
    argv = [*command, "plan", "show", str(lab.plan)]
    shown = subprocess.run(argv, env=lab.env, capture_output=True, text=True, timeout=60, check=True)
    assert "3 treatments, 2 blocks, 9 trials" in shown.stdout
    assert "baseline" not in shown.stdout
