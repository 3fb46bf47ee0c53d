"""Settings that a run's output states: repeats must agree on them, and a factor may change them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign
from tests import outputs

HAMMERDB = outputs.HAMMERDB.replace(
    "Vuser 1:TEST",
    "Vuser 1:Beginning rampup time of 2 minutes\nVuser 1:Timing test period of 5 in minutes\n"
    "Vuser 2:VU 2 : Assigning WID=1 based on VU count 4, Warehouses = 10 (1 out of 1)\nVuser 1:TEST",
)
YCSB = f"Command line: -db site.ycsb.Client -P workloads/workloada -p recordcount=1000 -t\n\n{outputs.YCSB}"
MEMTIER = json.dumps({**outputs.MEMTIER_JSON, "configuration": {"pipeline": 1, "ratio": "1:10"}})
FIO = json.dumps(outputs.FIO).replace('"bs": "4k"', '"bs": "4k", "direct": "1", "numjobs": "2"')
JMH = json.dumps([{**outputs.JMH[0], "jdkVersion": "17", "warmupIterations": 5}])
GOOGLE = json.dumps({**outputs.GOOGLE, "context": {"library_build_type": "release", "num_cpus": 8}})
PYTEST = json.dumps({**outputs.PYTEST, "machine_info": {"python_version": "3.11", "node": "a"}})
BENCHBASE = json.dumps({**outputs.BENCHBASE, "DBMS Type": "MYSQL", "isolation": "SERIALIZABLE"})
AB = outputs.AB.replace("Concurrency", "Document Path:          /\nConcurrency")
PERF = outputs.PERF
UNLIKE = [
    (FIO, '"direct": "1"', '"direct": "0"', "direct"),
    (FIO, '"numjobs": "2"', '"numjobs": "8", "group_reporting": "1"', "jobs"),
    (FIO, "fio-3.33", "fio-2.1", "fio_version"),
    (HAMMERDB, "period of 5", "period of 1", "duration_s"),
    (HAMMERDB, "rampup time of 2", "rampup time of 0", "rampup_minutes"),
    (HAMMERDB, "Warehouses = 10", "Warehouses = 500", "warehouses"),
    (outputs.SLAP, "Benchmark\n", "Benchmark\n\tRunning for engine myisam\n", "engine"),
    (BENCHBASE, "MYSQL", "POSTGRES", "dbms"),
    (BENCHBASE, "SERIALIZABLE", "READ_COMMITTED", "isolation"),
    (YCSB, "workloada", "workloadc", "workload_file"),
    (YCSB, "recordcount=1000", "recordcount=99999", "recordcount"),
    (YCSB, " -t\n", " -target 10 -t\n", "target"),
    (outputs.YCSB, "[READ]", "[INSERT]", "operations"),
    (outputs.GO_YCSB, '"threadcount"="8"', '"threadcount"="8"\n"target"="100"', "target"),
    (MEMTIER, '"pipeline": 1', '"pipeline": 16', "pipeline"),
    (MEMTIER, "1:10", "1:0", "ratio"),
    (JMH, '"17"', '"21"', "jdkVersion"),
    (JMH, '"warmupIterations": 5', '"warmupIterations": 0', "warmupIterations"),
    (GOOGLE, "release", "debug", "build"),
    (PYTEST, '"3.11"', '"3.13"', "python_version"),
    (outputs.WRK, "8080/", "8080/heavy", "url"),
    (AB, "/\nConc", "/big\nConc", "path"),
    (AB, "Failed", "Keep-Alive requests:    1000\nFailed", "keep_alive"),
    (outputs.STRESS, "1 cpu", "8 cpu", "instances"),
    (outputs.REDIS, "keep alive: 1", "keep alive: 0", "keep_alive"),
    (outputs.PGBENCH, "latency average", "rate limit schedule lag: avg 0.1\nlatency average", "rate_limited"),
    (outputs.SYSBENCH, "sysbench 1.0.20", "sysbench 1.1.0", "sysbench_version"),
    (outputs.SYSBENCH, "queries:                             100000", "queries: 5000", "queries_per_transaction"),
    (outputs.TPCC, "MEASURING", "  [rampup]: 600 (sec.)\nMEASURING", "rampup_s"),
    (outputs.GO, "goos: linux", "goos: linux\ncpu: Intel Atom", "cpu"),
]  # fmt: skip


def read(folder: Path, levels: str, texts: tuple[str, ...], mixed: tuple[str, ...] = ()) -> foreign.Table:
    paths = []
    for number, (level, text) in enumerate(zip(levels, texts, strict=True)):
        paths.append(folder / f"{level}-{number}.out")
        paths[-1].write_text(text)
    return foreign.read_outputs(paths, "{a}-{run}.out", [], ["a"], ["run", *mixed])


@pytest.mark.parametrize(("text", "part", "other", "name"), UNLIKE, ids=lambda part: part[:20])
def test_repeats_that_differ_in_how_they_were_made_are_refused(
    tmp_path: Path, text: str, part: str, other: str, name: str
) -> None:
    assert part in text
    pair = (text, text.replace(part, other))
    with pytest.raises(PlanError, match=rf"differ in {name}: .*") as error:
        read(tmp_path, "xx", pair)
    assert f"--mixed {name}" in str(error.value)
    assert len(read(tmp_path, "xx", pair, (name, "read_share")).rows) == 2


def test_what_a_factor_brings_along_is_named(tmp_path: Path) -> None:
    new = BENCHBASE.replace("MYSQL", "POSTGRES")
    table = read(tmp_path, "xxyy", (BENCHBASE, BENCHBASE, new, new))
    assert len(table.rows) == 4
    (note,) = [note for note in table.notes if "dbms" in note]
    assert note.startswith("dbms changes with a (MYSQL in ")
    assert [row.levels["dbms"] for row in table.rows] == ["MYSQL", "MYSQL", "POSTGRES", "POSTGRES"]


def test_what_a_factor_says_itself_needs_no_note(tmp_path: Path) -> None:
    other = FIO.replace('"direct": "1"', '"direct": "0"')
    assert not [
        note for note in read(tmp_path, "1100", (FIO, FIO, other, other)).notes if "copies" not in note
    ]


def test_runs_of_so_much_work_may_last_as_long_as_they_do(tmp_path: Path) -> None:
    """Their time was refused as a difference, and is what was measured."""
    slow = outputs.YCSB.replace("10110", "20220").replace("99.3945", "49.69725")
    assert len(read(tmp_path, "xy", (outputs.YCSB, slow)).rows) == 2
    less = outputs.YCSB.replace("10110", "20220")
    with pytest.raises(PlanError, match="differ in duration_s"):
        read(tmp_path, "xy", (outputs.YCSB, less))


def test_a_file_under_two_names_is_named(tmp_path: Path) -> None:
    (note,) = read(
        tmp_path, "0011", (FIO, FIO.replace("1000000", "1000001"), FIO, FIO.replace("1000000", "1000002"))
    ).notes
    assert "1 run has every number of an earlier one" in note
    assert "1-2.out that of " in note
