"""A history of digests: one Parquet file per day, and reviews of classes.

    <history>/2026-03-01.parquet    digests that start on that day (UTC), merged
    <history>/review.json           class -> who reviewed it, when, and the comment

A whole digest belongs to the day of its first event, because histograms cannot be split. For exact days, digest
with ``--since`` and ``--until``.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.encode import json_text
from headrace.base.errors import Refused, StoreError
from headrace.base.received import OF_SNAPSHOT, an_object
from headrace.base.whole import read_plain, replace_whole
from headrace.traffic.digests import table as tables
from headrace.traffic.digests.merge import merge
from headrace.traffic.digests.table import ALL, Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.parquet")
_REVIEW = "review.json"


@dataclass(frozen=True)
class Review:
    """A person's review of a class, with its time (UTC)."""

    reviewed_by: str
    reviewed_on: str
    comment: str


def append(folder: Path, digest: pa.Table) -> Path:
    """Add a digest to its day; returns the day's file.

    Raises Refused if it already contains this digest, StoreError if the digest has no day.
    """
    spans = digest.filter(
        pc.and_(pc.equal(digest["part"], "header"), pc.equal(digest["name"], "start_ns"))
    ).to_pylist()
    first_ns = spans[0]["least"] if spans else None
    if first_ns is None:
        raise StoreError("none of its events has a time, so it belongs to no day", place=str(folder))
    path = folder / f"{datetime.fromtimestamp(first_ns / 1e9, UTC):%Y-%m-%d}.parquet"
    mark = _mark(digest)
    rows = Rows()
    rows.add("added", ALL, mark, count=1)
    parts, places = [pa.concat_tables([digest, rows.table()])], ["the new digest"]
    if path.exists():
        day = tables.read(path)
        known = day.filter(pc.equal(day["part"], "added"))["name"].to_pylist()
        if mark in known:
            raise Refused(
                "this digest is already in the history: adding it again would count its calls twice",
                place=str(path),
            )
        parts, places = [day, *parts], [str(path), *places]
    tables.write(merge(parts, places), path)
    return path


def _mark(digest: pa.Table) -> str:
    """A digest's identity: from its numbers and its span, regardless of its source."""
    told = digest.filter(pc.is_in(digest["part"], pa.array(["header", "number", "latency"])))
    return hashlib.sha256(json_text(told.to_pylist()).encode()).hexdigest()[:16]


def days(folder: Path) -> dict[str, pa.Table]:
    """Day -> its digest, oldest first. Raises StoreError if there is none."""
    paths = sorted(path for path in folder.glob("*.parquet") if _DAY.fullmatch(path.name))
    if not paths:
        raise StoreError(
            "it has no digest yet", place=str(folder), hint="headrace digest SOURCE --add-to " + str(folder)
        )
    return {path.stem: tables.read(path) for path in paths}


def reviews(folder: Path) -> dict[str, Review]:
    """Class -> its review."""
    path = folder / _REVIEW
    try:
        content = an_object(read_plain(path), OF_SNAPSHOT)
        return {name: Review(**fields) for name, fields in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"cannot be read: {error}", place=str(path)) from error


def review(folder: Path, name: str, noted: Review) -> None:
    """Store the review of a class; an earlier one is replaced."""
    content: Mapping[str, Review] = {**reviews(folder), name: noted}
    path = folder / _REVIEW
    text = json.dumps({key: asdict(each) for key, each in sorted(content.items())}, indent=1) + "\n"
    try:
        replace_whole(path, text)
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror or error}", place=str(path)) from error
