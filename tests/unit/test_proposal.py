"""A whole configuration: each line has a reason, none weakens durability, and all of them fit into the machine."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.experiment import plan as plans
from headrace.experiment.proposed import plan_of
from headrace.host.snapshot import save
from headrace.hunt.proposal import MACHINE, POOL, Proposal, propose
from headrace.hunt.rules import AREAS, all_rules, judge, sizes
from headrace.hunt.rules.evidence import Evidence
from headrace.knobs import catalogue
from headrace.knobs.knob import Cost
from tests.commands import headrace
from tests.rules.case import Case
from tests.rules.hosts import GIB, healthy, saved, unwell
from tests.rules.pool_cases import SMALL

CASES = [
    case
    for area in AREAS
    for case in importlib.import_module(f"tests.rules.{area}_cases").CASES
    if case.subjects
]


def proposed(evidence: Evidence) -> Proposal:
    return propose(evidence, judge(evidence, all_rules()))


def test_nothing_is_proposed_for_a_server_that_lacks_nothing() -> None:
    for vendor in ("mariadb", "mysql"):
        found = proposed(healthy(vendor))
        assert [(line.knob, line.why) for line in found.lines] == []
        assert found.durable["innodb_flush_log_at_trx_commit"] == "1"


def test_a_line_says_what_is_now_and_why() -> None:
    (line,) = proposed(unwell(**SMALL)).lines
    assert (line.knob, line.now, line.basis, line.cost) == (POOL, str(128 << 20), "POOL01", Cost.DYNAMIC)
    assert line.words == f"{POOL}={line.value}"
    assert line.why.startswith("The buffer pool is 128 MiB for 2 GiB of data")


def test_the_machine_asks_where_no_finding_does() -> None:
    """Nobody reads from files now: no finding, and memory lies idle beside data that the pool does not hold."""
    found = proposed(unwell(**{**SMALL, "status_rates": {"innodb_buffer_pool_reads": 1.0}}))
    (line,) = [line for line in found.lines if line.knob == POOL]
    assert line.basis == MACHINE
    assert line.why.startswith("2 GiB of data and indexes, and ")


def test_what_the_other_lines_take_is_not_given_to_the_pool() -> None:
    """Each alone was given the memory that is idle."""
    data: Any = [
        {"engine": "InnoDB", "tables": 9_000, "rows": 10**9, "data_bytes": 400 * GIB, "index_bytes": 0}
    ]
    host: dict[str, Any] = {
        **SMALL,
        "engines": data,
        "variables": {"innodb_buffer_pool_size": str(8 * GIB), "table_open_cache": "4000"},
        "status": {**SMALL["status"], "open_tables": 4_000.0},
        "gauges": {"memory.MemAvailable.": 20.0 * GIB},
    }
    alone = proposed(unwell(**{**host, "status": SMALL["status"]})).settings
    both = proposed(unwell(**host))
    taken = (int(str(both.settings["server.table_open_cache"])) - 4_000) * sizes.TABLE_BYTES
    assert int(str(both.settings[POOL])) <= int(str(alone[POOL])) - taken
    [line] = [line for line in both.lines if line.knob == POOL]
    assert line.why.endswith("of it is left for the other lines.")


def test_what_weakens_durability_or_only_shows_more_is_left_with_the_reason() -> None:
    cases = [case for case in CASES if case.rule in ("STAT01", "REPL14")]
    reasons = [why for case in cases for _, why in proposed(case.host()).left]
    assert any(why.startswith("would reduce durability: ") for why in reasons)
    assert any(
        why.startswith("makes nothing faster, and shows more: headrace apply STAT01") for why in reasons
    )


@pytest.mark.parametrize("case", CASES[::12], ids=lambda case: f"{case.rule}-{case.name.replace(' ', '-')}")
def test_what_is_proposed_can_be_set_and_is_safe(case: Case) -> None:
    evidence = case.host()
    if not evidence.has_server:
        return
    found = proposed(evidence)
    assert len(found.settings) == len(found.lines)
    for line in found.lines:
        catalogue.check(line.knob.partition("@")[0], line.value)
        assert catalogue.weakens_durability(line.knob.partition("@")[0], line.value) is None
        assert line.cost not in (Cost.REBOOT, Cost.REBUILD)
        assert line.why.strip()
        assert line.now != str(line.value)


def test_the_plan_has_all_and_all_but_each(tmp_path: Path) -> None:
    base = plans.load(Path("src/headrace/examples/stock-to-all.toml")).plan
    groups = [{POOL: 1 << 30}, {"server.innodb_io_capacity_max": 4000, "server.innodb_io_capacity": 2000}]
    path = tmp_path / "new.toml"
    path.write_text(plan_of(base, groups, {POOL: "134217728", "server.innodb_io_capacity": "200"}))
    made = plans.load(path).plan
    assert made.design.baseline == "NOW"
    assert made.bundles["now"] == {POOL: "134217728", "server.innodb_io_capacity": "200"}
    assert set(made.bundles["all"]) == {name for group in groups for name in group}
    assert made.bundles["all-innodb_buffer_pool_size"][POOL] == "134217728"
    assert made.bundles["all-innodb_io_capacity_max"] == {POOL: 1 << 30, "server.innodb_io_capacity": "200"}
    assert not set(made.base) & set(made.bundles["all"])


def test_the_command_reads_a_saved_hunt(tmp_path: Path) -> None:
    save(saved(**SMALL), tmp_path / "db1.hunt")
    done = headrace(
        "propose", "--from", str(tmp_path / "db1.hunt"), "-o", str(tmp_path / "new.toml"), "--json"
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert [line["knob"] for line in content["lines"]] == [POOL]
    assert content["lines"][0]["basis"] == "POOL01"
    assert content["plan"] == str(tmp_path / "new.toml")
    shown = headrace("propose", "--from", str(tmp_path / "db1.hunt"))
    assert f"headrace prove --live {POOL}=" in " ".join(shown.stdout.split())
    assert "Durability stays as it is: innodb_flush_log_at_trx_commit = 1" in shown.stdout


def test_without_a_server_there_is_no_proposal(tmp_path: Path) -> None:
    save(saved(has_server=False), tmp_path / "db1.hunt")
    done = headrace("propose", "--from", str(tmp_path / "db1.hunt"))
    assert done.returncode != 0
    assert "a proposal needs the server's settings" in done.stderr


def test_what_is_unknown_is_not_fine(tmp_path: Path) -> None:
    save(saved(without=["memory"]), tmp_path / "db1.hunt")
    done = headrace("propose", "--from", str(tmp_path / "db1.hunt"))
    assert done.returncode == 0, done.stderr
    assert "Nothing is proposed, and too little is known of server.innodb_buffer_pool_size" in " ".join(
        done.stdout.split()
    )


def test_a_plan_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    save(saved(**SMALL), tmp_path / "db1.hunt")
    (tmp_path / "my.toml").write_text("mine")
    done = headrace("propose", "--from", str(tmp_path / "db1.hunt"), "-o", str(tmp_path / "my.toml"))
    assert done.returncode != 0
    assert "exists already" in done.stderr
    assert (tmp_path / "my.toml").read_text() == "mine"


RDS = {"basedir": "/rdsdbbin/mariadb-10.11.6.R2/"}
AURORA = {**RDS, "aurora_version": "3.04.0"}


def test_what_a_provider_manages_is_proposed_in_its_own_form(tmp_path: Path) -> None:
    """`headrace apply` is refused there, and so is a test on the host."""
    small = {**SMALL, "variables": {**SMALL["variables"], **RDS}}
    (line,) = proposed(unwell(**small)).lines
    wanted = f"ParameterName=innodb_buffer_pool_size,ParameterValue={line.value},"
    assert wanted in line.way
    save(saved(**small), tmp_path / "db1.hunt")
    shown = " ".join(headrace("propose", "--from", str(tmp_path / "db1.hunt")).stdout.split())
    assert "aws rds modify-db-parameter-group" in shown
    assert "headrace apply" not in shown
    assert "--live" not in shown


def test_what_a_provider_replaces_is_left_with_the_whole_remedy() -> None:
    hosts = (host for host in (case.host() for case in CASES) if host.has_server)
    evidence = next(host for host in hosts if "server.innodb_io_capacity" in proposed(host).settings)
    assert proposed(evidence).way == ""
    evidence.raw["server_settings"]["variables"].update(AURORA)
    found = proposed(Evidence(Facts("", evidence.raw), evidence.window))
    assert not [name for name in found.settings if "io_capacity" in name]
    assert any("does not apply to Amazon Aurora" in why for name, why in found.left if "io_capacity" in name)
