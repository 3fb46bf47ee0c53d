"""The experiment folder: whole trials or none, and tables that any reader of Parquet can use."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headrace.base import buckets, whole
from headrace.base.errors import Busy, DiskFull, StoreError
from headrace.base.model import Facts, Role, TrialState
from headrace.experiment import store
from headrace.host import arrow
from tests import synthetic
from tests.programs import agent_path

DESIGN = synthetic.bare_design("t", hash="abc")


def folder(tmp_path: Path) -> store.ExperimentFolder:
    return store.ExperimentFolder.create(tmp_path / "e", 'name = "t"\n', DESIGN)


def record(number: int = 1) -> store.TrialRecord:
    return store.TrialRecord(number, 1, 1, "STOCK", Role.BASELINE, TrialState.COMPLETE)


@given(st.lists(st.integers(min_value=0, max_value=2**62), min_size=1, max_size=50))
def test_a_value_lies_in_its_bucket_and_the_bucket_is_narrow(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    low, high = buckets.bucket_bounds(buckets.bucket_of(array))
    assert np.all(low <= array)
    assert np.all(array <= high)
    assert np.all((high - low) * 128 <= low)
    middle = buckets.bucket_value(buckets.bucket_of(array))
    assert np.all(np.abs(middle - array) * 250 <= array + 250)


def test_python_and_rust_agree_on_every_bucket() -> None:
    powers = [max(0, 2**p + d) for p in range(63) for d in (-1, 0, 1)]
    values = sorted({*powers, *np.random.default_rng(1).integers(0, 2**62, 2000).tolist()})
    text = "\n".join(map(str, values)) + "\n"
    answer = subprocess.run([agent_path(), "buckets"], input=text, capture_output=True, text=True, check=True)
    theirs = np.array([line.split() for line in answer.stdout.splitlines()], dtype=np.int64)
    array = np.array(values, dtype=np.int64)
    bucket = buckets.bucket_of(array)
    low, high = buckets.bucket_bounds(bucket)
    assert np.array_equal(theirs, np.stack([array, bucket, low, high], axis=1))


def test_a_trial_is_invisible_until_it_is_committed(tmp_path: Path) -> None:
    experiment = folder(tmp_path)
    draft = experiment.begin_trial(1)
    (draft.raw / "out.txt").write_text("untouched")
    assert experiment.trials() == []
    draft.commit(record(), arrow.empty_data())
    assert experiment.trials() == [record()]
    assert (experiment.trial_path(1) / "raw" / "out.txt").read_text() == "untouched"


def test_drafts_of_a_killed_runner_are_discarded(tmp_path: Path) -> None:
    experiment = folder(tmp_path)
    experiment.begin_trial(1)
    (experiment.path / "facts" / ".ffff.json.0a1b2c3d.part").write_text('{"host')
    assert experiment.discard_drafts() == 1
    assert list((experiment.path / "trials").iterdir()) == []
    assert list((experiment.path / "facts").iterdir()) == []


def test_a_trial_stays_where_it_was_begun_when_others_rename_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "is_ours_alone", lambda _: False)
    experiment = folder(tmp_path)
    draft = experiment.begin_trial(1)
    begun = experiment.path / "trials" / ".0001.part"
    begun.rename(tmp_path / "renamed")
    (tmp_path / "secret").write_text("kept")
    begun.mkdir()
    (begun / "raw").mkdir()
    for name in ("trial.json", "intervals.parquet", "raw/tool.stdout"):
        (begun / name).symlink_to(tmp_path / "secret")
    (draft.raw / "tool.stdout").write_text("said")
    draft.commit(record(), arrow.empty_data())
    assert (tmp_path / "secret").read_text() == "kept"
    assert (tmp_path / "renamed" / "raw" / "tool.stdout").read_text() == "said"


def test_a_trial_measured_again_replaces_the_old_one_whole(tmp_path: Path) -> None:
    experiment = folder(tmp_path)
    first = replace(record(), state=TrialState.INVALID, reason="disturbed")
    experiment.begin_trial(1).commit(first, arrow.empty_data())
    draft = experiment.begin_trial(1)
    assert experiment.trials() == [first]
    draft.commit(record(), arrow.empty_data())
    assert experiment.trials() == [record()]
    assert [p.name for p in (experiment.path / "trials").iterdir()] == ["0001"]


@pytest.mark.parametrize("has_exchange", [True, False])
def test_there_is_a_trial_at_every_moment_of_its_replacement(
    has_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = folder(tmp_path)
    first = replace(record(), state=TrialState.INVALID, reason="disturbed")
    experiment.begin_trial(1).commit(first, arrow.empty_data())
    draft = experiment.begin_trial(1)
    rename, seen = Path.rename, []

    def watched(path: Path, target: Path) -> Path:
        seen.append(len(experiment.trials()))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", watched)
    if not has_exchange:
        monkeypatch.setattr(store, "_exchange", lambda *_: False)
    draft.commit(record(), arrow.empty_data())
    # Killed before its second rename, a replacement in two would leave no trial.
    assert seen == ([] if has_exchange else [1, 0])
    assert experiment.trials() == [record()]
    assert [p.name for p in (experiment.path / "trials").iterdir()] == ["0001"]


def test_a_new_folder_is_on_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), (tmp_path / "e" / "design.json").exists()))

    monkeypatch.setattr(os, "fsync", watched)
    folder(tmp_path)
    assert synced[-1] == (str(tmp_path), True)


def test_facts_are_written_whole_and_a_damaged_file_is_said(tmp_path: Path) -> None:
    experiment = folder(tmp_path)
    experiment.save_facts(Facts("abc", {"hostname": "lab1"}))
    assert experiment.facts("abc").data == {"hostname": "lab1"}
    (experiment.path / "facts" / "abc.json").write_text("")
    with pytest.raises(StoreError, match="cannot be read"):
        experiment.facts("abc")


def test_a_full_disk_leaves_no_trial_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = folder(tmp_path)
    draft = experiment.begin_trial(1)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(DiskFull, match="no room left"):
        draft.commit(record(), arrow.empty_data())
    assert experiment.trials() == []


def test_views_have_the_trials_number_and_survive_no_trials(tmp_path: Path) -> None:
    experiment = folder(tmp_path)
    assert experiment.database().execute("SELECT count(*) FROM samples").fetchone() == (0,)
    for number in (1, 12):
        samples = pa.table(
            {
                "t_ns": [1],
                "sampler": ["cpu"],
                "metric": ["user"],
                "label": ["cpu0"],
                "value": [float(number)],
            },
            schema=arrow.SAMPLES,
        )
        data = arrow.TrialData(arrow.INTERVALS.empty_table(), arrow.LATENCY.empty_table(), samples)
        experiment.begin_trial(number).commit(record(number), data)
    rows = experiment.database().execute("SELECT trial, value FROM samples ORDER BY trial").fetchall()
    assert rows == [(1, 1.0), (12, 12.0)]


def test_connections_open_at_a_time_each_see_their_own_experiment(tmp_path: Path) -> None:
    """They share an engine, and a program that serves pages opens several."""
    whole = synthetic.make(
        tmp_path / "whole", synthetic.Shape(effects={"A": 1.0, "B": 2.0}, blocks=2, seconds=2)
    )
    empty = folder(tmp_path)
    count = "SELECT count(DISTINCT trial) FROM intervals"
    with whole.database() as one, empty.database() as other, whole.database() as third:
        other.execute("CREATE TEMP TABLE windows (trial INTEGER)")
        third.execute("CREATE TEMP TABLE windows (trial INTEGER)")
        found = [connection.execute(count).fetchone() for connection in (one, other, third)]
    trials = (len(whole.trials()),)
    assert trials > (3,)
    assert found == [trials, (0,), trials]
    with empty.database() as after:
        assert after.execute(count).fetchone() == (0,)


def test_a_second_experiment_does_not_overwrite_the_first(tmp_path: Path) -> None:
    folder(tmp_path)
    with pytest.raises(Busy):
        folder(tmp_path)


def test_what_is_no_experiment_is_said_clearly(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not an experiment directory"):
        store.ExperimentFolder.open(tmp_path)
    experiment = folder(tmp_path)
    experiment.begin_trial(3).commit(record(3), arrow.empty_data())
    (experiment.trial_path(3) / "trial.json").write_text("{")
    with pytest.raises(StoreError) as caught:
        experiment.trials()
    assert "0003" in str(caught.value)


@pytest.mark.parametrize("written", [None, 1, store.FORMAT_VERSION + 1])
def test_a_folder_of_another_format_is_not_read(written: int | None, tmp_path: Path) -> None:
    path = folder(tmp_path).path / "design.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": written}))
    with pytest.raises(StoreError, match=f"format {written}; this headrace reads {store.FORMAT_VERSION}"):
        store.ExperimentFolder.open(tmp_path / "e")


def test_a_trial_that_is_packed_is_the_same_where_it_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    here, there = folder(tmp_path), folder(tmp_path / "there")
    own = replace(record(2), facts_hash="abc")
    here.save_facts(Facts("abc", {"hostname": "lab1"}))
    draft = here.begin_trial(2)
    (draft.raw / "out.txt").write_text("untouched")
    draft.commit(own, arrow.empty_data())
    there.unpack_trial(2, here.pack_trial(2))
    assert there.trials() == [own]
    assert there.facts("abc").data == {"hostname": "lab1"}
    assert there.pack_trial(2) == here.pack_trial(2)


@pytest.mark.parametrize(
    "name",
    [
        "design.json",
        "trials/0003/trial.json",
        "trials/0002/../../design.json",
        "facts/../design.json",
        "../design.json",
        "/tmp/design.json",
    ],
)
def test_a_file_that_would_not_be_of_the_trial_is_not_unpacked(name: str, tmp_path: Path) -> None:
    experiment = folder(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="invalid name for a file of a trial"):
        experiment.unpack_trial(2, {name: b"{}"})
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def sample_lines(count: int) -> bytes:
    lines = [
        {"t_ns": t, "sampler": "cpu", "ok": True, "cost_ns": 5, "values": {"user": {"cpu0": t, "all": 2 * t}}}
        for t in range(count)
    ]
    lines.append({"t_ns": count, "sampler": "psi", "ok": False, "cost_ns": 7, "error": "no such file"})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_samples_become_rows_and_a_failed_sampler_is_a_row_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "s.zst"
    path.write_bytes(zstandard.compress(sample_lines(2)))
    rows = arrow.read_samples(path).to_pylist()
    assert {"t_ns": 1, "sampler": "cpu", "metric": "user", "label": "all", "value": 2.0} in rows
    failed = [row for row in rows if row["sampler"] == "psi"]
    assert {(row["metric"], row["value"]) for row in failed} == {
        ("headrace_ok", 0.0),
        ("headrace_cost_ns", 7.0),
    }


def test_a_stream_cut_anywhere_yields_what_was_whole(tmp_path: Path) -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    stream = b""
    for line in sample_lines(20).splitlines(keepends=True):
        stream += compressor.compress(line) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    path = tmp_path / "s.zst"
    path.write_bytes(stream + compressor.flush())
    whole = arrow.read_samples(path).num_rows
    previous = 0
    for cut in range(0, len(stream) + 1, 7):
        path.write_bytes(stream[:cut])
        rows = arrow.read_samples(path).num_rows
        assert previous <= rows <= whole
        previous = rows
    assert previous > whole // 2
