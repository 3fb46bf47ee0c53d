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
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from headrace.base.errors import StoreError, write_error
from headrace.base.model import Facts
from headrace.base.received import OF_SNAPSHOT, BadContent, an_object, number, parsed
from headrace.base.state import state_path
from headrace.base.whole import make_folder, plain_file, read_plain, whole_file
from headrace.host.activity import Activity
from headrace.host.samples import Samples
from headrace.host.shape import shaped, told

FORMAT = 2
#: Larger than any valid part: anything that claims more is not unpacked. What is packed well is checked by the
#: parser, and columns of numbers become nothing larger.
MAX_PART_BYTES = 512 << 20

NO_SAMPLES = Samples.of(())
#: Samples of a trial that is evaluated at once: an hour of three thousand values a second.
MOST_SAMPLES = 12_000_000
#: How content of another shape shows.
WRONG = (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Origin:
    """What a snapshot was read from if no agent watched the host: ``read`` (what, where), what is ``missing``,
    ``cautions`` about what was read, and what was ``unread`` with the reason."""

    read: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Origin:
        """Raises one of ``WRONG`` if it is not what was written."""
        missing, cautions, unread = (
            tuple(str(text) for text in content[name]) for name in ("missing", "cautions", "unread")
        )
        return cls(
            tuple((str(what), str(where)) for what, where in content["read"]), missing, cautions, unread
        )


@dataclass(frozen=True)
class Snapshot:
    """``errors``: sampler -> why it has no values.

    ``limits``: device -> measured operations per second; ``alone_ms``: device -> measured ms of a request without
    load. ``activity``: what the server executed, None if it was not asked. ``stacks``: folded stacks as the agent
    writes them; empty without a profile. ``origin`` is that of a dump, None where the agent watched.
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
    origin: Origin | None = None


def last_path() -> Path:
    """Path of this user's last hunt, which other commands use to resolve finding ids."""
    return state_path("last.hunt")


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
        make_folder(path.parent)
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
        origin=snapshot.origin,
    )


def is_saved(path: Path) -> bool:
    """Whether it is one of headrace's own, perhaps damaged: an archive, or the folder of a trial."""
    if (path / "trial.json").exists() or path.suffix == ".hunt":
        return True
    try:
        with plain_file(path) as file, zipfile.ZipFile(file) as archive:
            return "snapshot.json" in archive.namelist()
    except (OSError, zipfile.BadZipFile, *WRONG):
        return False


def load(path: Path) -> Snapshot:
    """A saved file, or the folder of a trial.

    Raises StoreError if it is neither, is damaged, or was written by a newer headrace.
    """
    if (path / "trial.json").exists():
        return of_trial(path)
    try:
        with plain_file(path) as file, zipfile.ZipFile(file) as archive:
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
            return _assembled(header, facts, samples, folded, activity)
    except FileNotFoundError as error:
        raise StoreError("no such file", place=str(path)) from error
    except IsADirectoryError as error:
        raise StoreError("a directory, not a snapshot", place=str(path)) from error
    except (zipfile.BadZipFile, *WRONG, OSError, zstandard.ZstdError) as error:
        raise StoreError(
            f"not a headrace snapshot, or a damaged one: {error}",
            place=str(path),
            hint="headrace hunt --save FILE writes one",
        ) from error


def _assembled(
    header: Mapping[str, Any],
    facts: Mapping[str, Any],
    samples: Samples,
    folded: str,
    activity: Activity | None,
) -> Snapshot:
    """Raises one of ``WRONG`` if a part has another shape."""
    known, wrong = shaped(facts)
    left_out = {"facts": told(wrong)} if wrong else {}
    return Snapshot(
        str(header.get("target", "")),
        str(header.get("started_at", "")),
        number(header.get("seconds", 0.0), least=0),
        Facts(_hash(facts), known),
        samples,
        {str(name): str(why) for name, why in (header.get("errors") or {}).items()} | left_out,
        {str(name): number(value) for name, value in (header.get("limits") or {}).items()},
        folded,
        str(header.get("headrace_version", "")),
        {str(name): number(value) for name, value in (header.get("alone_ms") or {}).items()},
        activity,
        Origin.of_json(origin) if (origin := header.get("origin")) else None,
    )


def of_trial(folder: Path) -> Snapshot:
    """A trial's measured window as a snapshot.

    Raises StoreError if there is no such trial, or if it was written before trials had their server's facts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from headrace.base import parquet
    from headrace.host.arrow import SAMPLES, samples_of

    try:
        record = an_object(read_plain(folder / "trial.json"), OF_SNAPSHOT)
        facts = an_object(read_plain(folder / "raw" / "facts.json"), OF_SNAPSHOT)
        start_ns, end_ns = (int(number(record[key], least=0)) for key in ("window_start_ns", "window_end_ns"))
        table = parquet.read(folder / "samples.parquet", SAMPLES, most_rows=MOST_SAMPLES)
    except (OSError, pa.ArrowException, *WRONG) as error:
        raise StoreError(f"no trial that can be evaluated: {error}", place=str(folder)) from error
    inside = pc.and_(pc.greater_equal(table["t_ns"], start_ns), pc.less_equal(table["t_ns"], end_ns))
    started = datetime.fromtimestamp(start_ns / 1e9, UTC).isoformat(timespec="seconds")
    seconds = (end_ns - start_ns) / 1e9
    return Snapshot(
        f"trial {record['number']}, {record['treatment']}",
        started,
        seconds,
        Facts(_hash(facts), shaped(facts)[0]),
        samples_of(table.filter(inside)),
    )


def _samples(archive: zipfile.ZipFile) -> Samples:
    counters = parsed(_part(archive, "counters.json", OF_SNAPSHOT.size_bytes), OF_SNAPSHOT)
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
        raise BadContent(f"{name} is larger than any snapshot")
    return zstandard.ZstdDecompressor().decompress(packed)


def _hash(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    try:
        return an_object(_part(archive, name, OF_SNAPSHOT.size_bytes), OF_SNAPSHOT)
    except BadContent as error:
        raise BadContent(f"{name}: {error}") from None


def _part(archive: zipfile.ZipFile, name: str, most_bytes: int = MAX_PART_BYTES) -> bytes:
    """What it claims is not believed: reading stops at the limit."""
    with archive.open(name) as part:
        found = part.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise BadContent(f"{name} is too large: more than {most_bytes >> 20} MiB")
    return found
