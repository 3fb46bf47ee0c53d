"""Tables of demands and hosts that nobody has looked over."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.capacity import catalogue, table

ROW = "db1,2026-03-02T00:00Z,cpu,1"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (catalogue.read, "name,cpu,price,cpu\nbig,16,100,1\n"),
        (catalogue.read, "name,cpu,name\nbig,16,small\n"),
        (table.read, f"host,time,resource,value,value\n{ROW},9\n"),
    ],
)
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, read: object, text: str) -> None:
    """The last one was taken: a host of 16 cores had 1."""
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert callable(read)
    with pytest.raises(PlanError, match="is there 2 times"):
        read(path)


def test_a_column_of_notes_may_be_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text("name,cpu,note,note\nbig,16,old,rack 4\n")
    assert [each.capacity.name for each in catalogue.read(path).offers] == ["big"]
