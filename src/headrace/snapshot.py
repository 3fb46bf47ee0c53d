"""A saved snapshot of a host: one file that can be opened on any machine.

A ZIP archive with

    snapshot.json     format, target, time and duration, failed samplers and why
    facts.json        the output of ``headrace-agent facts``
    counters.json     sampler, metric and label of each counter, and its number of values
    t_ns.zst          times of the values, counter by counter: 64-bit integers, little-endian
    value.zst         the values: 64-bit floats
    stacks.folded     one line per stack with its samples, if the server was profiled
    report.html       the findings at that time, to read without headrace

It never has passwords: the agent leaves them out of the facts. Statements are normalised by the server, or
omitted.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from headrace.activity import Activity
from headrace.errors import StoreError, write_error
from headrace.model import Facts
from headrace.samples import Samples
from headrace.whole import whole_file

FORMAT = 2
#: Larger than any valid part: anything that claims more is not unpacked.
MAX_PART_BYTES = 2 << 30

NO_SAMPLES = Samples.of(())


@dataclass(frozen=True)
class Snapshot:
    """``errors``: sampler -> why it has no values.

    ``limits``: device -> measured operations per second; ``alone_ms``: device -> measured ms of a request without
    load. ``activity``: what the server executed, None if it was not asked. ``stacks``: folded stacks as the agent
    writes them; empty without a profile.
    """

    target: str
    started_at: str
    seconds: float
    facts: Facts
    samples: Samples
    errors: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    stacks: str = ""
    headrace_version: str = ""
    alone_ms: Mapping[str, float] = field(default_factory=dict)
    activity: Activity | None = None


def last_path() -> Path:
    """Path of this user's last hunt, which other commands use to resolve finding ids."""
    return state_path("last.hunt")


def state_path(name: str) -> Path:
    """A file that headrace keeps for this user between commands."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "headrace" / name


def save(snapshot: Snapshot, path: Path, page: str = "") -> None:
    """Writes the file atomically. ``page`` is the report to include."""
    header = {
        "format": FORMAT,
        **{
            key: value
            for key, value in asdict(_without_tables(snapshot)).items()
            if key not in ("facts", "samples", "stacks", "activity")
        },
    }
    samples = snapshot.samples
    counters = [[*name, int(n)] for name, n in zip(samples.names, samples.ends - samples.starts, strict=True)]
    numbers = {"t_ns.zst": samples.t_ns.astype("<i8"), "value.zst": samples.value.astype("<f8")}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("snapshot.json", json.dumps(header, indent=1))
            archive.writestr("facts.json", json.dumps(snapshot.facts.data))
            archive.writestr("counters.json", json.dumps(counters))
            for name, column in numbers.items():
                archive.writestr(name, zstandard.compress(column.tobytes()), zipfile.ZIP_STORED)
            if snapshot.stacks:
                archive.writestr("stacks.folded", snapshot.stacks)
            if snapshot.activity is not None:
                archive.writestr("activity.json", json.dumps(snapshot.activity.to_json()))
            if page:
                archive.writestr("report.html", page)
    except OSError as error:
        raise write_error(error, path) from error


def _without_tables(snapshot: Snapshot) -> Snapshot:
    """``asdict`` makes deep copies, so the table and the facts are written separately."""
    return Snapshot(
        snapshot.target,
        snapshot.started_at,
        snapshot.seconds,
        Facts(snapshot.facts.hash, {}),
        NO_SAMPLES,
        dict(snapshot.errors),
        dict(snapshot.limits),
        "",
        snapshot.headrace_version,
        dict(snapshot.alone_ms),
    )


def load(path: Path) -> Snapshot:
    """A saved file, or the folder of a trial.

    Raises StoreError if it is neither, is damaged, or was written by a newer headrace.
    """
    if (path / "trial.json").exists():
        return of_trial(path)
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
            samples = _samples(archive)
            folded = _part(archive, "stacks.folded").decode() if "stacks.folded" in archive.namelist() else ""
            seen = _json(archive, "activity.json") if "activity.json" in archive.namelist() else None
            activity = Activity.of_json(seen) if seen is not None else None
    except FileNotFoundError as error:
        raise StoreError("no such file", place=str(path)) from error
    except IsADirectoryError as error:
        raise StoreError("a directory, not a snapshot", place=str(path)) from error
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, zstandard.ZstdError) as error:
        raise StoreError(
            f"not a headrace snapshot, or a damaged one: {error}",
            place=str(path),
            hint="headrace hunt --save FILE writes one",
        ) from error
    return Snapshot(
        str(header.get("target", "")),
        str(header.get("started_at", "")),
        float(header.get("seconds", 0.0)),
        Facts(_hash(facts), facts),
        samples,
        header.get("errors") or {},
        header.get("limits") or {},
        folded,
        str(header.get("headrace_version", "")),
        header.get("alone_ms") or {},
        activity,
    )


def of_trial(folder: Path) -> Snapshot:
    """A trial's measured window as a snapshot.

    Raises StoreError if there is no such trial, or if it was written before trials had their server's facts.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from headrace.arrow import SAMPLES, samples_of

    try:
        record = json.loads((folder / "trial.json").read_text())
        facts = json.loads((folder / "raw" / "facts.json").read_text())
        table = pq.read_table(folder / "samples.parquet").cast(SAMPLES)
    except (OSError, ValueError) as error:
        raise StoreError(f"no trial that can be evaluated: {error}", place=str(folder)) from error
    start_ns, end_ns = record["window_start_ns"], record["window_end_ns"]
    inside = pc.and_(pc.greater_equal(table["t_ns"], start_ns), pc.less_equal(table["t_ns"], end_ns))
    started = datetime.fromtimestamp(start_ns / 1e9, UTC).isoformat(timespec="seconds")
    seconds = (end_ns - start_ns) / 1e9
    return Snapshot(
        f"trial {record['number']}, {record['treatment']}",
        started,
        seconds,
        Facts(_hash(facts), facts),
        samples_of(table.filter(inside)),
    )


def _samples(archive: zipfile.ZipFile) -> Samples:
    counters = json.loads(_part(archive, "counters.json"))
    names = [(str(sampler), str(metric), str(label)) for sampler, metric, label, _ in counters]
    counts = np.array([count for *_, count in counters], dtype=np.int64)
    t_ns = np.frombuffer(_unpacked(archive, "t_ns.zst"), dtype="<i8")
    value = np.frombuffer(_unpacked(archive, "value.zst"), dtype="<f8")
    if not len(t_ns) == len(value) == counts.sum() or (counts < 1).any():
        raise ValueError("its counters are inconsistent")
    return Samples(names, np.cumsum(counts) - counts, t_ns.astype(np.int64), value.astype(np.float64))


def _unpacked(archive: zipfile.ZipFile, name: str) -> bytes:
    packed = _part(archive, name)
    if not 0 <= zstandard.frame_content_size(packed) <= MAX_PART_BYTES:
        raise ValueError(f"{name} is larger than any snapshot")
    return zstandard.ZstdDecompressor().decompress(packed)


def _hash(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    content = json.loads(_part(archive, name))
    if not isinstance(content, dict):
        raise ValueError(f"{name} is not an object")
    return content


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MAX_PART_BYTES:
        raise ValueError(f"{name} is larger than any snapshot")
    return archive.read(name)
