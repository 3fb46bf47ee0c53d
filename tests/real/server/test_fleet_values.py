"""Settings as people write them, on every server: what runs is what was asked for, so no drift is reported."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.fleet.drift import Between, own_drifts
from headrace.fleet.files import lasting
from headrace.host.target.local import LocalTarget
from tests.programs import agent_path
from tests.servers import KINDS, Server, started

#: Units, other spellings, sizes that servers round, lists in another order, and numbers for words.
OPTIONS = """
innodb-buffer-pool-size=100M innodb-log-buffer-size=8M max-allowed-packet=16777000 sort-buffer-size=300K
join-buffer-size=200001 key-buffer-size=10000000 table-open-cache=400 max-connections=50 long-query-time=0.5
sql-mode=STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION optimizer-switch=mrr=off character-set-server=utf8mb4
innodb-flush-method=O_DIRECT innodb-file-per-table skip-name-resolve binlog-format=row event-scheduler=1
general-log=0 tmp-table-size=33554433 max-heap-table-size=32M transaction-isolation=READ-COMMITTED
innodb-io-capacity=300 innodb-adaptive-hash-index=off wait-timeout=600 local-infile=on binlog-row-image=minimal
log-output=TABLE,FILE slow-query-log default-storage-engine=innodb innodb-autoinc-lock-mode=2
open-files-limit=5000 table-definition-cache=600 innodb-print-all-deadlocks sync-binlog=0 thread-stack=300000
read-buffer-size=200000 max-binlog-size=100M innodb-lru-scan-depth=512 net-buffer-length=9000 back-log=0
thread-cache-size=-1 innodb-open-files=0 max-connect-errors=1K group-concat-max-len=4K connect-timeout=5
innodb-stats-persistent=ON concurrent-insert=ALWAYS delay-key-write=2 completion-type=CHAIN
innodb-change-buffering=none innodb-strict-mode=FALSE low-priority-updates=true max-error-count=00100
binlog-expire-logs-seconds=604800 innodb-max-dirty-pages-pct=75 innodb-old-blocks-time=1000
"""


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    options = [f"--loose-{word}" for word in OPTIONS.split()]
    with started(request.param, folder / "server", *options) as one:
        yield one


def facts(server: Server) -> Any:
    argv = [str(agent_path()), "facts", "--mysql-socket", server.socket, "--mysql-user", "root"]
    return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


async def test_what_a_server_was_started_with_is_what_runs(server: Server) -> None:
    found = facts(server)
    kept = (await lasting(LocalTarget(), found)).to_json()
    assert len(set(kept["options"]) & set(found["server_settings"]["variables"])) > 40
    assert list(own_drifts(found, {**kept, "sysctls": {}})) == []


async def test_what_was_set_since_is_found(server: Server) -> None:
    server.sql("SET GLOBAL innodb_io_capacity = 301", "SET GLOBAL sort_buffer_size = 310000",
               "SET GLOBAL optimizer_switch = 'mrr=on'", "SET GLOBAL sql_mode = ''",
               "SET GLOBAL innodb_max_purge_lag = 1000", "SET SESSION max_sort_length = 2000")  # fmt: skip
    found = facts(server)
    kept = (await lasting(LocalTarget(), found)).to_json()
    names = {(between, name) for between, _, name, *_ in own_drifts(found, {**kept, "sysctls": {}})}
    assert names == {
        (Between.FILE, "innodb_io_capacity"),
        (Between.FILE, "sort_buffer_size"),
        (Between.FILE, "optimizer_switch"),
        (Between.FILE, "sql_mode"),
        (Between.NOWHERE, "innodb_max_purge_lag"),
    }
