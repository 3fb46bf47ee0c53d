"""A saved look at a host: whole round trips, and files that are none."""

from __future__ import annotations

import errno
import json
import zipfile
from pathlib import Path

import pytest

from headrace.base.errors import DiskFull, StoreError
from headrace.base.model import Facts
from headrace.host import snapshot
from headrace.host.snapshot import Snapshot, load, save
from headrace.hunt import hunt
from headrace.hunt.report.page import page_of
from headrace.show import html, jsonform
from tests.rules.hosts import saved
from tests.rules.network_cases import ONE_HOT_CORE


def ill() -> Snapshot:
    return saved(rates=ONE_HOT_CORE, without=["psi"])


def test_a_saved_host_is_judged_as_the_live_one(tmp_path: Path) -> None:
    before = ill()
    save(before, tmp_path / "db1.hunt", "<p>page</p>")
    after = load(tmp_path / "db1.hunt")
    assert jsonform.render(page_of(hunt.examine(after))) == jsonform.render(page_of(hunt.examine(before)))
    assert list(after.samples.rows()) == list(before.samples.rows())
    assert dict(after.errors) == dict(before.errors)
    with zipfile.ZipFile(tmp_path / "db1.hunt") as archive:
        assert archive.read("report.html") == b"<p>page</p>"
        assert json.loads(archive.read("facts.json")) == before.facts.data
    assert [path.name for path in tmp_path.iterdir()] == ["db1.hunt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_quota_or_file_that_is_full(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, "full")

    monkeypatch.setattr(snapshot, "whole_file", full)
    with pytest.raises(DiskFull, match="no room left"):
        save(ill(), tmp_path / "db1.hunt")


def test_limits_and_stacks_are_kept(tmp_path: Path) -> None:
    host = ill()
    more = Snapshot(
        host.target,
        host.started_at,
        host.seconds,
        host.facts,
        host.samples,
        limits={"nvme1n1": 85_000.0},
        stacks="mysqld;main 7\n",
    )
    save(more, tmp_path / "a.hunt")
    found = load(tmp_path / "a.hunt")
    assert (found.limits, found.stacks) == ({"nvme1n1": 85_000.0}, "mysqld;main 7\n")


def test_what_is_no_snapshot_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    whole = tmp_path / "whole.hunt"
    save(ill(), whole)
    (tmp_path / "cut").write_bytes(whole.read_bytes()[:-200])
    for name, said in (
        ("text", "not a headrace snapshot"),
        ("empty.zip", "not a headrace snapshot"),
        ("cut", "not a headrace snapshot"),
    ):
        with pytest.raises(StoreError, match=said):
            load(tmp_path / name)
    with pytest.raises(StoreError, match="no such file"):
        load(tmp_path / "absent")
    with pytest.raises(StoreError, match="a directory"):
        load(tmp_path)


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.hunt", "w") as archive:
        archive.writestr("snapshot.json", json.dumps({"format": 3}))
    with pytest.raises(StoreError, match="format 3"):
        load(tmp_path / "a.hunt")


def test_a_hostile_host_cannot_write_into_the_page(tmp_path: Path) -> None:
    host = ill()
    facts = Facts("0" * 16, {**host.facts.data, "hostname": "<script>alert(1)</script>\x1b[2J"})
    page = html.render(
        page_of(hunt.examine(Snapshot("x", host.started_at, host.seconds, facts, host.samples)))
    )
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J" in page
