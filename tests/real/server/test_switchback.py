"""Switchbacks for real: one private MariaDB, whose variables and whose host change under one load; killed, too."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.bench import SWAPPINESS, Bench
from tests.waiting import until

pytestmark = pytest.mark.needs("root")

PLAN = """
name = "switchback"
[target]
scratch = "{scratch}"
[design]
kind = "switchback"
baseline = "STOCK"
blocks = 2
blocks_per_start = 2
washout_s = 1
[design.rungs]
STOCK = []
BOTH = ["both"]
[workload]
kind = "oltp"
seconds = 2
warmup_s = 1
script = "update_index"
table_size = 2000
connections = 2
[bundles.both]
"server.innodb_io_capacity" = 777
"host.vm.swappiness" = {swappiness}
"""


def test_settings_change_under_one_load_and_return(bench: Callable[[str], Bench]) -> None:
    lab = bench(PLAN)
    before = SWAPPINESS.read_text().strip()
    process = lab.start("--json")
    # Killed while a treatment is in force: nothing restores the host but the next run.
    until(lambda: SWAPPINESS.read_text().strip() != before, process)
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not lab.trials()

    code, _, err = lab.finish("--json")
    assert code == 0, err
    assert SWAPPINESS.read_text().strip() == before
    trials: dict[int, Any] = lab.trials()
    assert [t["state"] for t in trials.values()] == ["complete"] * 6, err
    # One start of the server, and turn after turn at its time.
    windows = [(t["window_start_ns"], t["window_end_ns"]) for t in trials.values()]
    assert all(end - start == 2 * 10**9 for start, end in windows)
    assert all(b[0] - a[1] == 10**9 for a, b in itertools.pairwise(windows))
    for trial in trials.values():
        is_both = trial["treatment"] == "BOTH"
        for name, value in (("innodb_io_capacity", "777"), (str(SWAPPINESS), None)):
            change = trial["knobs"].get(name)
            # Before its first change a setting is as it was.
            assert change or not is_both
            if change:
                assert (change["after"] != change["before"]) == is_both
                assert value is None or change["after"] == value or not is_both
