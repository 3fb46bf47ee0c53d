"""A saved look at a host: one file that a colleague can open, on any machine.

A ZIP archive that holds

    snapshot.json     format, what was watched, when and for how long, samplers that failed and why
    facts.json        what ``headrace-agent facts`` said
    samples.parquet   raw counters (store.SAMPLES)
    stacks.folded     one line a stack with its samples, where somebody profiled
    report.html       what was found then, to read without headrace

Passwords never reach it: the agent leaves them out of the facts. Statements stand in it as the server normalised
them, or not at all.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import DiskFull, StoreError
from headrace.model import Facts
from headrace.store import SAMPLES

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
#: The columns of SAMPLES that are text, and those that are not.
NAMES, NUMBERS = ["sampler", "metric", "label"], ["t_ns", "value"]
#: Larger than any honest part: what claims more is not unpacked.
MAX_PART_BYTES = 2 << 30


@dataclass(frozen=True)
class Snapshot:
    """``errors``: sampler -> why it has no values. ``limits``: device -> measured operations a second.
    ``stacks``: folded stacks as the agent writes them; empty where nobody profiled."""

    target: str
    started_at: str
    seconds: float
    facts: Facts
    samples: pa.Table
    errors: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    stacks: str = ""
    headrace_version: str = ""


def last_path() -> Path:
    """Where the last hunt of this user stands, so that other commands know what a finding's id means."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "headrace" / "last.hunt"


def save(snapshot: Snapshot, path: Path, page: str = "") -> None:
    """Writes the file whole or not at all. ``page`` is the report to put beside the numbers."""
    import pyarrow.parquet as pq

    header = {
        "format": FORMAT,
        **{
            key: value
            for key, value in asdict(_without_tables(snapshot)).items()
            if key not in ("facts", "samples", "stacks")
        },
    }
    table = io.BytesIO()
    pq.write_table(snapshot.samples.cast(SAMPLES), table, compression="zstd")
    draft = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("snapshot.json", json.dumps(header, indent=1))
            archive.writestr("facts.json", json.dumps(snapshot.facts.data))
            archive.writestr("samples.parquet", table.getvalue(), zipfile.ZIP_STORED)
            if snapshot.stacks:
                archive.writestr("stacks.folded", snapshot.stacks)
            if page:
                archive.writestr("report.html", page)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        if error.errno == 28:
            raise DiskFull("no room for the snapshot", place=str(path)) from error
        raise StoreError(f"cannot be written: {os.strerror(error.errno or 0)}", place=str(path)) from error


def _without_tables(snapshot: Snapshot) -> Snapshot:
    """``asdict`` copies what it meets: the table and the facts are written by themselves."""
    return Snapshot(
        snapshot.target,
        snapshot.started_at,
        snapshot.seconds,
        Facts(snapshot.facts.hash, {}),
        None,
        dict(snapshot.errors),
        dict(snapshot.limits),
        "",
        snapshot.headrace_version,
    )


def load(path: Path) -> Snapshot:
    """A saved file, or the folder of a trial.

    Raises StoreError for what is neither, is damaged, or was written by a newer headrace.
    """
    if (path / "trial.json").exists():
        return of_trial(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with zipfile.ZipFile(path) as archive:
            header = _json(archive, "snapshot.json")
            if header.get("format") != FORMAT:
                raise StoreError(
                    f"a snapshot of format {header.get('format')}, this headrace reads {FORMAT}",
                    place=str(path),
                    hint="use the headrace that wrote it, or a newer one",
                )
            facts = _json(archive, "facts.json")
            # A minute of a large host repeats a few thousand names a hundred times: kept as numbers, they are
            # read in half the time and grouped in a third.
            table = pq.read_table(pa.BufferReader(_part(archive, "samples.parquet")), read_dictionary=NAMES)
            folded = _part(archive, "stacks.folded").decode() if "stacks.folded" in archive.namelist() else ""
    except FileNotFoundError as error:
        raise StoreError("no such file", place=str(path)) from error
    except IsADirectoryError as error:
        raise StoreError("a folder, not a snapshot", place=str(path)) from error
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, pa.ArrowException) as error:
        raise StoreError(
            f"no snapshot of headrace, or a damaged one: {error}",
            place=str(path),
            hint="headrace hunt --save FILE writes one",
        ) from error
    if table.schema.names != SAMPLES.names or any(
        table.schema.field(c).type != SAMPLES.field(c).type for c in NUMBERS
    ):
        raise StoreError("its counters have other columns", place=str(path))
    return Snapshot(
        str(header.get("target", "")),
        str(header.get("started_at", "")),
        float(header.get("seconds", 0.0)),
        Facts(_hash(facts), facts),
        table,
        header.get("errors") or {},
        header.get("limits") or {},
        folded,
        str(header.get("headrace_version", "")),
    )


def of_trial(folder: Path) -> Snapshot:
    """A trial's measured window as a snapshot. Raises StoreError where there is no such trial, or it was written
    before trials kept the facts of their server."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        record = json.loads((folder / "trial.json").read_text())
        facts = json.loads((folder / "raw" / "facts.json").read_text())
        table = pq.read_table(folder / "samples.parquet").cast(SAMPLES)
    except (OSError, ValueError) as error:
        raise StoreError(f"no trial that can be looked at: {error}", place=str(folder)) from error
    start_ns, end_ns = record["window_start_ns"], record["window_end_ns"]
    inside = pc.and_(pc.greater_equal(table["t_ns"], start_ns), pc.less_equal(table["t_ns"], end_ns))
    started = datetime.fromtimestamp(start_ns / 1e9, UTC).isoformat(timespec="seconds")
    seconds = (end_ns - start_ns) / 1e9
    return Snapshot(
        f"trial {record['number']}, {record['treatment']}",
        started,
        seconds,
        Facts(_hash(facts), facts),
        table.filter(inside),
    )


def _hash(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    content = json.loads(_part(archive, name))
    if not isinstance(content, dict):
        raise ValueError(f"{name} is no object")
    return content


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MAX_PART_BYTES:
        raise ValueError(f"{name} is larger than any snapshot")
    return archive.read(name)
