"""A merge from what was measured: histories and samples become demands, and what they cannot tell is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from typer.testing import CliRunner

from headrace.base.errors import NothingMeasured, PlanError, StoreError
from headrace.capacity import history
from headrace.capacity.commands.size import size_app
from headrace.capacity.history import ZSTD
from headrace.capacity.measured import table_of
from headrace.capacity.model import Resource
from headrace.history.archive.files import DAY_S, HOUR_S
from tests.unit.test_size_demand import lines_of
from tests.unit.test_size_demand import write as write_samples
from tests.unit.test_size_full import DAY, archive_of, write

#: A host carries 8 of 10 cores; each host of the history has about 2 at noon.
HOSTS = "name,cpu,cpu_knee,price,currency\nsmall,10,0.8,500,USD\n"


def merged(*words: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(size_app, ["merge", *words, "--budget", "1s"])
    return ran.exit_code, ran.stdout, ran.output


@pytest.fixture
def catalogue(tmp_path: Path) -> str:
    path = tmp_path / "hosts.csv"
    path.write_text(HOSTS)
    return str(path)


def test_each_hour_of_a_history_counts_with_its_highest_minute(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "history", days=15)
    table = table_of(history.read(archive.root, with_calls=False))
    first, _ = table.demands
    assert (first.host, first.start_s, first.step_s) == ("db0", DAY * DAY_S, HOUR_S)
    [read, _] = history.read(archive.root, with_calls=False)
    assert first.used[Resource.CPU] == pytest.approx(1.2 * read.demand.used[Resource.CPU])
    said = " ".join(table.notes)
    assert "highest minute" in said
    assert "--group" in said
    assert "memory" not in said  # it was not recorded


def test_what_is_known_better_replaces_what_is_in_use(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "history", hosts=1, days=8)
    for hour in range(8 * 24):
        rows = [
            ("demand", "cpu", 1.0, 1.2),
            ("demand", "memory", 60e9, 60e9),
            ("server rates", "questions", 500.0, 900.0),
        ]
        write(archive, "db1", (DAY * 24 + hour) * HOUR_S, rows)
    histories = history.read(archive.root, with_calls=False)
    full = table_of(histories)
    assert any(note.startswith("db1: the memory in use counts") for note in full.notes)
    needed = table_of(histories, needs={"db1": {Resource.MEMORY: 8e9}})
    [_, second] = needed.demands
    assert set(second.used[Resource.MEMORY]) == {8e9}
    assert not any("memory in use" in note for note in needed.notes)
    assert np.nanmean(needed.queries["db1"]) == pytest.approx(500)
    assert "db0" not in needed.queries


def test_a_host_whose_cpu_was_never_watched_is_not_planned_for(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "history", hosts=1, days=8)
    for hour in range(8 * 24):
        write(archive, "db1", (DAY * 24 + hour) * HOUR_S, [("demand", "memory", 60e9, 60e9)])
    histories = history.read(archive.root, with_calls=False)
    with pytest.raises(NothingMeasured, match="db1: its CPU was not watched"):
        table_of(histories)
    assert len(table_of(histories, needs={"db1": {Resource.CPU: 2.0}}).demands) == 2


def test_members_of_a_group_do_not_share_a_host(tmp_path: Path, catalogue: str) -> None:
    """Two hosts with little load: onto one, unless they are replicas of each other."""
    archive = archive_of(tmp_path / "history", days=15)
    for words, hosts in (((), 1), (("--group", "db0,db1", "--none-may-fail"), 2)):
        code, out, output = merged(str(archive.root), "-c", catalogue, "--json", *words)
        assert code == 0, output
        assert len(json.loads(out)["hosts"]) == hosts, output


def test_the_types_of_today_give_the_price_of_today(tmp_path: Path, catalogue: str) -> None:
    archive = archive_of(tmp_path / "history", days=15)
    code, _, output = merged(str(archive.root), "-c", catalogue, "--type", "small")
    assert code == 0, output
    assert "1,000 USD" in output
    assert "500 USD" in output


def test_samples_that_are_there_twice_are_the_same_samples(tmp_path: Path) -> None:
    """A copied file, or a file whose lines are there twice."""
    once, twice = tmp_path / "once.jsonl.zst", tmp_path / "hosts" / "once" / "1.jsonl.zst"
    lines = [line for line in lines_of(601) if line["t_ns"] // 10**9 % 10 == 0]
    write_samples(once, lines)
    write_samples(twice, lines)
    write_samples(twice.with_name("2.jsonl.zst"), lines)
    [one] = history.read(once)
    [other] = history.read(tmp_path / "hosts")
    assert other.demand.step_s == one.demand.step_s
    for resource, values in one.demand.used.items():
        np.testing.assert_allclose(other.demand.used[resource], values, err_msg=resource)


def test_the_power_of_today_is_measured_where_every_host_measures_it(tmp_path: Path, catalogue: str) -> None:
    """Two packages of 40 and 60 W; another host has no counter, and then nothing is said."""
    energy = [
        {
            "t_ns": (1_700_000_000 + t) * 10**9, "sampler": "powercap", "ok": True, "cost_ns": 1,
            "values": {"energy_uj": {"package-0": 40e6 * t, "package-1": 60e6 * t}},
        }
        for t in range(121)
    ]  # fmt: skip
    lines = sorted([*lines_of(121), *energy], key=lambda line: line["t_ns"])
    write_samples(tmp_path / "s" / "db1.jsonl.zst", lines)
    code, out, output = merged(str(tmp_path / "s"), "-c", catalogue, "--json")
    assert code == 0, output
    assert json.loads(out)["watts_today"] == {"mean": pytest.approx(100), "most": pytest.approx(100)}
    _, out, _ = merged(str(tmp_path / "s"), "-c", catalogue)
    assert "100 W on average, at most 100 W (processors and memory, measured)" in " ".join(out.split())
    write_samples(tmp_path / "s" / "db2.jsonl.zst", lines_of(121))
    code, out, output = merged(str(tmp_path / "s"), "-c", catalogue, "--json")
    assert code == 0, output
    assert json.loads(out)["watts_today"] is None


@pytest.mark.parametrize("command", ["full", "demand", "merge"])
def test_a_file_without_samples_is_left_out_and_said(tmp_path: Path, catalogue: str, command: str) -> None:
    """Between good ones; of another host, of nothing but a start, and of a host that also has good files."""
    folder = tmp_path / "s"
    write_samples(folder / "db1.jsonl.zst", lines_of(121))
    write_samples(folder / "db2" / "1.jsonl.zst", lines_of(121))
    bad = {
        "db3": b"garbage" * 9,
        "db4": b"",
        "db5": zstandard.compress(b'{"a": 1}'),
        "db6": ZSTD,
        "db2/2": b"x",
    }
    for name, content in bad.items():
        (folder / f"{name}.jsonl.zst").write_bytes(content)
    offers = ["-c", catalogue, "--budget", "1s"] if command == "merge" else []
    ran = CliRunner().invoke(size_app, [command, str(folder), "--json", *offers])
    assert ran.exit_code == 0, ran.output
    content = json.loads(ran.stdout)
    assert len(content["hosts"]) > 0
    said = [each for each in content.get("left_out") or content["notes"] if each.startswith("left out: ")]
    why = dict(each.removeprefix(f"left out: {folder}/").split(".jsonl.zst: ") for each in said)
    assert why == {
        "db2/2": "these are not samples", "db3": "these are not samples", "db4": "it is empty",
        "db5": "these are not samples", "db6": "no whole sample is in it",
    }  # fmt: skip
    shown = CliRunner().invoke(size_app, [command, str(folder), *offers])
    assert "db4.jsonl.zst:itisempty" in "".join(shown.stdout.split())
    with pytest.raises(StoreError, match="these are not samples"):
        history.read(folder / "db5.jsonl.zst")


def test_a_group_that_cannot_be_is_said(tmp_path: Path, catalogue: str) -> None:
    archive = archive_of(tmp_path / "history", days=2)
    histories = history.read(archive.root, with_calls=False)
    with pytest.raises(PlanError, match="db0 is in two"):
        table_of(histories, [["db0", "db1"], ["db0", "db2"]])
    with pytest.raises(PlanError, match="db0 is twice in one group"):
        table_of(histories, [["db0", "db0"]])
    with pytest.raises(PlanError, match="db1 alone is not a replication group"):
        table_of(histories, [["db1"]])
    ran = CliRunner().invoke(size_app, ["merge", str(archive.root), "-c", catalogue, "--group", "db0,db9"])
    assert "no host is named db9" in str(ran.exception)


def test_a_table_has_its_own_columns(tmp_path: Path, catalogue: str) -> None:
    path = tmp_path / "demands.csv"
    path.write_text("host,time,resource,value\n")
    code, _, output = merged(str(path), "-c", catalogue, "--group", "a,b")
    assert code == 2
    assert "--group is for measured hosts" in " ".join(output.replace("│", " ").split())
