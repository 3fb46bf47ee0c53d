"""Whole experiments with our own driver: the pre-flight, many clients, TPC-C's conditions in a trial."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
import zstandard

from headrace.base.errors import NothingMeasured, NotReady, WorkloadFailed
from headrace.experiment.workloads.drive.check import read_findings
from tests import sshd
from tests.bench import Bench
from tests.servers import free_port

PLAN = """
name = "driven"
[target]
scratch = "{scratch}"
@TARGET
[server]
port = @PORT
[design]
kind = "factorial"
baseline = "1"
blocks = 1
allow_weaker_durability = ["server.innodb_flush_log_at_trx_commit"]
[workload]
seconds = 2
warmup_s = 1
@WORKLOAD
[volume]
device = "directory"
[factors.flush]
knob = "server.innodb_flush_log_at_trx_commit"
levels = [1, 0]
"""

#: Clients that pause: those with a rate are late beside other tests, and each trial would be measured three times.
OLTP = 'kind = "oltp"\nscript = "point_select"\ntable_size = 1000\nthink_time_s = 0.5\n'


def plan(workload: str, *, target: str = "", port: int = 0) -> str:
    return PLAN.replace("@WORKLOAD", workload).replace("@TARGET", target).replace("@PORT", str(port))


def finding(check: str, *, ok: bool = False, severity: str = "error") -> dict[str, object]:
    return {
        "check": check,
        "ok": ok,
        "needed": 1,
        "severity": severity,
        "message": f"{check}!",
        "fix": f"mend {check}",
    }


def test_findings_that_are_none_are_left_out() -> None:
    output = json.dumps(
        [
            finding("max_connections"),
            finding("back_log", severity="warning"),
            finding("open_files"),
            finding("table_open_cache", ok=True),
            finding("buffer_pool", severity="warning"),
        ]
    ).encode()
    of_server = read_findings(output, "db1", of_server=True, of_driver=False)
    assert [(f.message, f.is_blocking, f.fix) for f in of_server] == [
        ("max_connections!", True, "mend max_connections"),
        ("back_log!", False, "mend back_log"),
    ]
    (own,) = read_findings(output, "lg1", of_server=False, of_driver=True)
    assert (own.place, own.message) == ("lg1", "open_files!")


@pytest.mark.parametrize("output", [b"", b"{}", b'[{"check": "x"}]', b"[1]", b"\xff"])
def test_findings_that_cannot_be_read_are_an_error(output: bytes) -> None:
    with pytest.raises(WorkloadFailed, match="cannot be read"):
        read_findings(output, "db1", of_server=True, of_driver=True)


class TestPlans:
    pytestmark = pytest.mark.needs("root")

    def test_a_load_that_does_not_fit_is_refused_before_anything_is_loaded(
        self, bench: Callable[[str], Bench]
    ) -> None:
        lab = bench(plan(OLTP + "connections = 300"))
        code, _, err = lab.finish()
        said = " ".join(err.split())
        assert code == NotReady.exit_code, err
        assert "the load does not fit: max_connections: 151 connections at most, but 300 are needed" in said
        assert '[base] "server.max_connections" = 300' in said
        assert "pre-flight: back_log" in said  # no reason to stop, but to know
        assert not lab.trials()
        assert not list(lab.scratch.glob("datasets/*"))
        assert not (lab.scratch / "preflight").exists()
        assert lab.traces() == []

    def test_what_its_remedy_says_makes_it_fit(self, bench: Callable[[str], Bench]) -> None:
        lab = bench(plan(OLTP + "connections = 300") + '\n[base]\n"server.max_connections" = 300\n')
        code, _, err = lab.finish()
        # Whether this machine is quiet enough is another matter.
        assert code in (0, NothingMeasured.exit_code), err
        assert "does not fit" not in err
        assert {trial["state"] for trial in lab.trials().values()} <= {"complete", "invalid"}

    def test_three_clients_of_which_one_is_reached_over_ssh(
        self, bench: Callable[[str], Bench], tmp_path: Path
    ) -> None:
        (tmp_path / "sshd").mkdir()
        with sshd.running_sshd(tmp_path / "sshd") as daemon:
            elsewhere = f"{sshd.user()}@127.0.0.1:{daemon.port}"
            options = (
                f'connections = 6\nclients = ["local", "{elsewhere}", "local"]\nserver_address = "127.0.0.1"'
            )
            keys = f'identity_file = "{daemon.key}"\nknown_hosts = "{daemon.known_hosts}"'
            lab = bench(plan(OLTP + options, target=keys, port=free_port()))
            code, _, err = lab.finish()
        assert code in (0, NothingMeasured.exit_code), err
        trials = lab.trials()
        assert len(trials) == 3
        for number, trial in trials.items():
            assert trial["state"] != "failed", trial
            raw = lab.output / "trials" / f"{number:04}" / "raw"
            ends = [lines(path)[-1] for path in sorted(raw.glob("drive-window-*.jsonl.zst"))]
            assert [end["kind"] for end in ends] == ["end"] * 3
            assert "a client was lost" not in str(trial["reason"])
        assert lab.traces() == []

    @pytest.mark.parametrize(
        ("options", "port", "message"),
        [
            ('clients = ["x@lg1"]\nserver_address = "127.0.0.1"', 0, "server.port = 0: clients on other"),
            ('clients = ["x@127.0.0.1:1"]\nserver_address = "db1"', 3399, "127.0.0.1"),
        ],
    )
    def test_clients_that_cannot_work_are_an_error_before_the_first_trial(
        self, bench: Callable[[str], Bench], options: str, port: int, message: str
    ) -> None:
        lab = bench(plan(OLTP + options, port=port))
        code, _, err = lab.finish()
        assert code not in (0, 1), err
        assert message in err
        assert not lab.trials()

    def test_an_inconsistent_database_fails_the_trial(self, bench: Callable[[str], Bench]) -> None:
        """Somebody takes from a warehouse while the load runs."""
        lab = bench(plan('kind = "tpcc"\nrate = 100\n'))
        process = lab.start()
        while process.poll() is None:
            with contextlib.suppress(pymysql.Error):
                rob(lab.scratch / "run" / "sock")
            time.sleep(0.2)
        _, err = process.communicate()
        assert process.returncode == NothingMeasured.exit_code, err
        reason = "the database is inconsistent after the trial: condition 1 of clause 3.3.2"
        assert reason in " ".join(err.split())


def rob(socket: Path) -> None:
    with (
        pymysql.connect(
            unix_socket=str(socket), user="root", database="headrace", autocommit=True
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("UPDATE tpcc_warehouse SET w_ytd = w_ytd - 1")


def lines(path: Path) -> list[dict[str, object]]:
    text = zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read()
    return [json.loads(line) for line in text.splitlines()]
