"""Sessions for real: each loads its data anew, on a private MariaDB."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.bench import Bench

pytestmark = pytest.mark.needs("root")

PLAN = """
name = "sessions"
[target]
scratch = "{scratch}"
[design]
kind = "factorial"
baseline = "6M"
blocks = 2
sessions = 2
[workload]
kind = "oltp"
seconds = 1
warmup_s = 0.5
script = "point_select"
table_size = 2000
connections = 2
[base]
"host.vm.swappiness" = {swappiness}
[factors.pool]
knob = "server.innodb_buffer_pool_size"
levels = ["6M", "96M"]
"""


def test_each_session_loads_its_data_anew(bench: Callable[[str], Bench]) -> None:
    lab = bench(PLAN)
    process = lab.start("--json")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert len(lab.trials()) == 6
    found = [json.loads(path.read_text()) for path in (lab.scratch / "datasets").glob("*/manifest.json")]
    assert len(found) == 2
    assert found[0]["checksum"] != found[1]["checksum"]
