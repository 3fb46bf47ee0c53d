"""The copy of the history in an object store. Here a directory is the store: the interface is the same."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.errors import PlanError, Refused, StoreError
from headrace.history.archive.files import DAY_S, Archive
from headrace.history.archive.mirror import Mirror
from headrace.history.archive.rollup import roll_up, weekly
from headrace.history.archive.tables import TABLES
from headrace.history.collect.minute import table_of
from tests.history import SLOW
from tests.weeks import MONDAY, fill_days, is_right

pytestmark = pytest.mark.usefixtures("quick_disk")

DAYS = 9


def empty(folder: Path) -> Archive:
    found = Archive(folder)
    found.create()
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def mirror(archive: Archive, store: Path) -> Mirror:
    return Mirror(archive, f"file://{store}")


def objects(store: Path) -> set[str]:
    return {path.name for path in store.rglob("*.parquet")}


def test_an_empty_directory_is_filled_from_the_copy(archive: Archive, store: Path, tmp_path: Path) -> None:
    fill_days(archive, DAYS)
    weekly(archive, MONDAY + DAYS * DAY_S)
    copied = mirror(archive, store).copy()
    assert copied == 3 * (2 + 2)  # tables x (the week twice, and two days)
    assert mirror(archive, store).copy() == 0
    new = empty(tmp_path / "new")
    assert mirror(new, store).restore() == copied
    is_right(new, DAYS)
    assert mirror(new, store).copy() == 0


def test_hours_are_copied_until_their_day_is_and_minutes_never(archive: Archive, store: Path) -> None:
    for kind in "mh":
        fill_days(archive, 1, kind=kind)
    assert mirror(archive, store).copy() == 3
    assert objects(store) == {f"h-{MONDAY}.parquet"}
    roll_up(archive, "db1", MONDAY + 2 * DAY_S)
    mirror(archive, store).copy()
    assert objects(store) == {f"d-{MONDAY}.parquet"}
    fill_days(archive, 7)
    weekly(archive, MONDAY + 8 * DAY_S)
    mirror(archive, store).copy()
    assert objects(store) == {f"D-{MONDAY}.parquet", f"w-{MONDAY}.parquet"}


def test_a_file_that_was_renewed_is_copied_again(archive: Archive, store: Path, tmp_path: Path) -> None:
    fill_days(archive, 3)
    mirror(archive, store).copy()
    fill_days(archive, 1, first=1)
    assert mirror(archive, store).copy() == 3
    new = empty(tmp_path / "new")
    mirror(new, store).restore()
    is_right(new, 3)


def test_values_of_statements_are_not_copied(archive: Archive, store: Path) -> None:
    rows = [{"source": SLOW, "class": "a", "text": "select 'secret'", "database": "shop", "took_ns": 1}]
    archive.write(TABLES["examples"], "db1", "d", MONDAY, table_of(TABLES["examples"], rows, MONDAY))
    (archive.root / "users").write_text("ann operator $argon2id$\n")
    assert mirror(archive, store).copy() == 0
    assert [path.name for path in store.rglob("*") if path.is_file()] == ["owner"]


def test_what_cannot_be_read_here_is_not_deleted_there(
    archive: Archive, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_days(archive, 2)
    mirror(archive, store).copy()
    before = objects(store)

    def failing(path: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        with pytest.raises(StoreError, match="Input/output error"):
            mirror(Archive(archive.root), store).copy()
    assert objects(store) == before != set()


def test_two_histories_in_one_place_are_refused(archive: Archive, store: Path, tmp_path: Path) -> None:
    fill_days(archive, 2)
    mirror(archive, store).copy()
    other = empty(tmp_path / "other")
    fill_days(other, 1)
    with pytest.raises(Refused, match="another directory"):
        mirror(other, store).copy()
    assert mirror(other, store).restore() == 0
    # One that continues the history is its owner from then on.
    new = empty(tmp_path / "new")
    mirror(new, store).restore()
    with pytest.raises(Refused, match="another directory"):
        mirror(archive, store).copy()
    fill_days(new, 1, first=2)
    assert mirror(new, store).copy() == 3


@pytest.mark.parametrize("left", range(0, 7, 2))
def test_a_restore_that_was_killed_goes_on(
    archive: Archive, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    fill_days(archive, 2)
    mirror(archive, store).copy()
    new = empty(tmp_path / "new")
    pieces, asked = Mirror._pieces, 0

    def killed(self: Mirror, name: str, *_: bytes) -> Iterator[bytes]:
        nonlocal asked
        asked += 1
        if asked > left:
            raise KeyboardInterrupt
        return pieces(self, name)

    for step in ("_pieces", "_write"):  # the last is to claim the store
        monkeypatch.setattr(Mirror, step, killed)
    with pytest.raises(KeyboardInterrupt):
        mirror(new, store).restore()
    monkeypatch.undo()
    assert mirror(new, store).restore() == 6
    is_right(new, 2)
    assert mirror(new, store).copy() == 0


def test_a_copy_that_was_killed_goes_on(
    archive: Archive, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_days(archive, DAYS)
    write, asked = Mirror._write, 0

    def killed(self: Mirror, name: str, content: bytes) -> None:
        nonlocal asked
        asked += 1
        if asked > 5:
            raise KeyboardInterrupt
        write(self, name, content)

    monkeypatch.setattr(Mirror, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        mirror(archive, store).copy()
    monkeypatch.undo()
    weekly(archive, MONDAY + DAYS * DAY_S)
    mirror(archive, store).copy()
    new = empty(tmp_path / "new")
    mirror(new, store).restore()
    is_right(new, DAYS)


def test_only_names_of_the_history_are_brought_back(store: Path, tmp_path: Path) -> None:
    day = "month=2026-11/host=db1"
    for name in (
        "users", "mirror.json", f"examples/{day}/d-1.parquet", f"classes/{day}/d-1.parquet.sh",
        f"other/{day}/d-1.parquet", f"classes/{day}/.d-1.parquet.part", "classes/month=../host=db1/d-1.parquet",
    ):  # fmt: skip
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text("x")
    new = empty(tmp_path / "new")
    assert mirror(new, store).restore() == 0
    assert not list(new.root.iterdir())


def test_what_this_history_would_not_name_so_is_not_brought_back(
    archive: Archive, store: Path, tmp_path: Path
) -> None:
    """A file dated in the future would block collection for years."""
    fill_days(archive, 2)
    mirror(archive, store).copy()
    [good] = store.glob(f"states/*/host=db1/d-{MONDAY}.parquet")
    later = int(time.time()) // DAY_S * DAY_S + 10 * DAY_S
    for path in (
        archive.path("states", "db1", "d", later).relative_to(archive.root),
        f"states/day=2026-11-02/host=db1/d-{MONDAY}.parquet",
        f"states/month=2001-01/host=db1/d-{MONDAY}.parquet",
        f"{good.parent.relative_to(store)}/d-0{MONDAY}.parquet",
        f"{good.parent.parent.relative_to(store)}/host=%64b1/d-{MONDAY}.parquet",
    ):
        (store / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(good, store / path)
    new = empty(tmp_path / "new")
    assert mirror(new, store).restore() == 6
    is_right(new, 2)
    assert new.last_minute_s("db1") < MONDAY + 3 * DAY_S


def test_a_large_object_is_brought_back_in_pieces(
    archive: Archive, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_days(archive, 2)
    mirror(archive, store).copy()
    monkeypatch.setattr("headrace.history.archive.mirror.PIECE_BYTES", 100)
    new = empty(tmp_path / "new")
    found = mirror(new, store)
    sizes = [len(piece) for name in found._objects() for piece in found._pieces(name)]
    assert max(sizes) == 100
    assert found.restore() == 6
    is_right(new, 2)


def test_a_store_that_is_away_is_an_error_with_its_address(archive: Archive, store: Path) -> None:
    fill_days(archive, 1)
    store.write_text("not a directory")
    with pytest.raises(StoreError, match="copy of the history") as caught:
        mirror(archive, store).copy()
    assert caught.value.place == f"file://{store}"
    store.unlink()
    assert mirror(archive, store).copy() == 3


def test_a_deleted_note_copies_all_again(archive: Archive, store: Path) -> None:
    fill_days(archive, 1)
    mirror(archive, store).copy()
    (archive.root / "mirror.json").write_text("{")
    with pytest.raises(StoreError, match="not readable"):
        mirror(archive, store).copy()
    shutil.rmtree(store)
    (archive.root / "mirror.json").unlink()
    assert mirror(archive, store).copy() == 3
    assert (
        json.loads((archive.root / "mirror.json").read_text())["owner"]
        == (store / "owner").read_text().strip()
    )


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://key:hunter2@bucket/prefix", "credentials"),
        ("s3://key:a/hunter2@bucket/prefix", "credentials"),
        ("abfs://box:hunter2@team.dfs.core.windows.net/x", "credentials"),
        ("abfs://team.dfs.core.windows.net/x?client_id=1&client_secret=hunter2", "credentials"),
        ("abfs://team.dfs.core.windows.net/x?sv=2024&sig=hunter2", "credentials"),
        ("/var/tmp/x", "not the address of an object store"),
        ("ftp://x/y", "not the address of an object store"),
        ("file:///", "no bucket or directory"),
    ],
)
def test_what_is_no_address(archive: Archive, address: str, said: str) -> None:
    with pytest.raises(PlanError, match=said) as caught:
        Mirror(archive, address)
    assert "hunter2" not in str(caught.value)
