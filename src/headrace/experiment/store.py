"""The experiment folder: the only module that knows the file formats.

    <experiment>/plan.toml  design.json  facts/<hash>.json
    <experiment>/trials/<NNNN>/trial.json  intervals.parquet  latency.parquet  samples.parquet  raw/
    <experiment>/set-aside/<NNNN>.<K>      trials of blocks that a machine gave back; not analysed

A trial is written into ``trials/.<NNNN>.part`` and renamed when it is complete, so a killed runner leaves either a
complete trial or none. Any Parquet reader can read the tables; headrace uses DuckDB.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import resource
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base.door import held, is_ours_alone
from headrace.base.errors import Busy, StoreError, write_error
from headrace.base.model import Facts, Role, TrialSpec, TrialState
from headrace.base.received import OF_SNAPSHOT, BadContent, an_object, parsed
from headrace.base.whole import (
    held_folder,
    make_folder,
    read_plain,
    remove_tree,
    replace_whole,
    sync,
    whole_file,
)
from headrace.experiment.frozen import Design

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from headrace.host.arrow import TrialData

FORMAT_VERSION = 2

#: fcntl.h and linux/fs.h, for renameat2(2).
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

#: A file of a trial that goes to another machine.
MOST_PACKED_BYTES = 4 << 30

#: The operation for a driver's reconnections: not work, so excluded from throughput and percentiles.
RECONNECT = "connect"


@dataclass(frozen=True)
class TrialRecord:
    """``trial.json``.

    Times are ns since the epoch on the target's clock; the window is the measured part. ``earlier`` has the state
    and reason of each earlier attempt of this trial that did not count.
    """

    number: int
    block: int
    position: int
    treatment: str
    role: Role
    state: TrialState
    reason: str = ""
    window_start_ns: int = 0
    window_end_ns: int = 0
    times_ns: dict[str, int] = field(default_factory=dict)
    facts_hash: str = ""
    knobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    cpus: int = 0
    #: ``tcg`` if the machine's CPUs were emulated, ``kvm`` if a hypervisor ran them; empty: unknown.
    accel: str = ""
    #: The machine it was measured on, as named in the plan.
    machine: str = ""
    earlier: list[str] = field(default_factory=list)
    #: The share of CPU time that the hypervisor and other programs took in the window, if verdicts account for it.
    lost_share: float = 0.0
    #: Of a device's time, what other programs' reads and writes took.
    lost_device_share: float = 0.0
    #: Load before the plan's warm-up, until it was steady; 0 without ``steady_within_s``.
    settled_s: float = 0.0
    #: Machine -> ``offset_ns`` by which its clock is ahead of the controller's, and its uncertainty ``error_ns``:
    #: of the target and of each client, at the start of the trial.
    clocks: dict[str, dict[str, int]] = field(default_factory=dict)
    #: What power cuts took, as in ``workloads.Cut``.
    cuts: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, spec: TrialSpec, state: TrialState, reason: str = "") -> TrialRecord:
        """The record of a planned trial, before anything about its run is said."""
        return cls(spec.number, spec.block, spec.position, spec.treatment, spec.role, state, reason)

    @property
    def duration_s(self) -> float | None:
        """How long it took including set-up; None without a start or an end."""
        times = self.times_ns
        if "started" not in times or "finished" not in times:
            return None
        return (times["finished"] - times["started"]) / 1e9


class TrialDraft:
    """A trial being written, invisible until ``commit``."""

    def __init__(self, name: Path, final: Path, folder: Path, descriptor: int | None) -> None:
        """``folder`` is what ``held_folder`` says of ``name``, which was just made."""
        self._name = name
        self._final = final
        self._folder = folder
        if descriptor is not None:
            weakref.finalize(self, os.close, descriptor)

    @property
    def raw(self) -> Path:
        """Folder for the tools' unmodified output."""
        return self._folder / "raw"

    def commit(self, record: TrialRecord, data: TrialData) -> None:
        """Write the tables and ``trial.json``, then make the trial visible in one rename."""
        import pyarrow.parquet as pq

        try:
            # Latency and intervals are small: one row group. Samples are pruned by (sampler, metric) statistics.
            for name, table in (("intervals", data.intervals), ("latency", data.latency)):
                pq.write_table(table, self._folder / f"{name}.parquet", compression="zstd")
            pq.write_table(
                data.samples, self._folder / "samples.parquet", compression="zstd", row_group_size=65536
            )
            _write_record(self._folder / "trial.json", record)
            _sync_tree(self._folder)
            _make_visible(self._name, self._final)
        except OSError as error:
            raise write_error(error, self._name) from error

    def take(self, source: Path, record: TrialRecord) -> None:
        """Commit the content of another folder, with this record instead of its own."""
        try:
            with contextlib.ExitStack() as kept:
                own, descriptor = held_folder(source)
                if descriptor is not None:
                    kept.callback(os.close, descriptor)
                shutil.copytree(own, self._folder, copy_function=_link_or_copy, dirs_exist_ok=True)
            (self._folder / "trial.json").unlink()
            _write_record(self._folder / "trial.json", record)
            _sync_tree(self._folder)
            _make_visible(self._name, self._final)
        except OSError as error:
            raise write_error(error, self._name) from error

    def discard(self) -> None:
        remove_tree(self._name)


class ExperimentFolder:
    """One experiment on disk."""

    def __init__(self, path: Path, design: Design) -> None:
        self.path = path
        self.design = design

    @staticmethod
    def create(path: Path, plan_text: str, design: Design) -> ExperimentFolder:
        """Create the folder with its frozen plan and design; an existing one is refused."""
        try:
            make_folder(path.parent)
            with held(path) as place, contextlib.ExitStack() as kept:
                draft = place.with_name(f".{path.name}.part")
                shutil.rmtree(draft, ignore_errors=True)
                if draft.is_symlink():
                    draft.unlink()  # another user's, perhaps: it leads elsewhere
                draft.mkdir()
                own, descriptor = held_folder(draft)
                if descriptor is not None:
                    kept.callback(os.close, descriptor)
                (own / "trials").mkdir()
                (own / "facts").mkdir()
                (own / "plan.toml").write_text(plan_text)
                (own / "design.json").write_text(_design_text(design))
                _sync_tree(own)
                draft.rename(place)
                sync(place.parent)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise Busy("an experiment already exists here", place=str(path)) from error
            raise write_error(error, path) from error
        return ExperimentFolder.open(path)

    @staticmethod
    def open(path: Path) -> ExperimentFolder:
        """Open an experiment for reading (and, by the runner, for adding trials)."""
        try:
            content = parsed(read_plain(path / "design.json"))
        except (FileNotFoundError, NotADirectoryError) as error:
            what = "it is a file" if path.is_file() else "it has no design.json"
            raise StoreError(
                f"this is not an experiment directory: {what}",
                place=str(path),
                hint="name the directory that `headrace run` printed; a new one needs a new directory",
            ) from error
        except (OSError, BadContent) as error:
            raise StoreError(f"design.json cannot be read: {error}", place=str(path)) from error
        written = content.pop("format", None) if isinstance(content, dict) else None
        if written != FORMAT_VERSION:
            raise StoreError(f"format {written!r}; this headrace reads {FORMAT_VERSION}", place=str(path))
        return ExperimentFolder(path, Design.from_json(content, str(path / "design.json")))

    def renew(self, design: Design) -> None:
        """Replace the design with one of the same trials, with other machines."""
        self.design = design
        self.write_output("design.json", _design_text(design))

    def plan_text(self) -> str:
        try:
            return read_plain(self.path / "plan.toml").decode()
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot be read: {error}", place=str(self.path / "plan.toml")) from error

    def trial_path(self, number: int) -> Path:
        return self.path / "trials" / f"{number:04d}"

    def begin_trial(self, number: int) -> TrialDraft:
        final = self.trial_path(number)
        draft = final.with_name(f".{final.name}.part")
        try:
            make_folder(draft.parent)
            with held(draft) as own:
                shutil.rmtree(own, ignore_errors=True)
                own.mkdir()
                folder, descriptor = held_folder(own)
            made = TrialDraft(draft, final, folder if descriptor is not None else draft, descriptor)
            made.raw.mkdir()
        except OSError as error:
            raise write_error(error, draft) from error
        return made

    def adopt_trial(
        self, other: ExperimentFolder, number: int, told: Callable[[TrialRecord], TrialRecord]
    ) -> TrialRecord:
        """Add a trial of another folder, by one rename, with its host's facts.

        ``told`` makes the record what it is in this folder.
        """
        source, draft = other.trial_path(number), self.begin_trial(number)
        record = told(_read_record(source / "trial.json"))
        if record.facts_hash:
            self.save_facts(other.facts(record.facts_hash))
        draft.take(source, record)
        return record

    def set_aside(self, number: int) -> Path:
        """Set a trial aside, by one rename; returns its new path."""
        aside = self.path / "set-aside"
        try:
            make_folder(aside)
            path = next(p for k in itertools.count(1) if not (p := aside / f"{number:04d}.{k}").exists())
            with held(path) as own, held(self.trial_path(number)) as trial:
                trial.rename(own)
                sync(own.parent)
                sync(trial.parent)
        except OSError as error:
            raise write_error(error, self.trial_path(number)) from error
        return path

    def set_aside_count(self) -> int:
        """How many trials are set aside, because their machine gave their block back."""
        return sum(1 for _ in (self.path / "set-aside").glob("[0-9]*"))

    def pack_trial(self, number: int) -> dict[str, bytes]:
        """The files of a trial and its host's facts, by their names within the folder."""
        trial = self.trial_path(number)
        record = _read_record(trial / "trial.json")
        files = [path for path in sorted(trial.rglob("*")) if path.is_file()]
        if record.facts_hash:
            files.append(self.path / "facts" / f"{record.facts_hash}.json")
        return {str(path.relative_to(self.path)): read_plain(path, MOST_PACKED_BYTES) for path in files}

    def unpack_trial(self, number: int, files: Mapping[str, bytes]) -> None:
        """Store a trial from ``files_of``; it is complete on disk when this returns.

        Raises StoreError for a name that leads out of the trial.
        """
        trial = self.trial_path(number)
        inside = (trial.relative_to(self.path).parts, ("facts",))
        try:
            make_folder(trial / "raw")
            for name, content in files.items():
                parts = Path(name).parts
                if not any(parts[: len(own)] == own for own in inside) or ".." in parts:
                    raise StoreError(f"invalid name for a file of a trial: {name!r}", place=str(trial))
                path = self.path / name
                if any(self.path.joinpath(*parts[:n]).is_symlink() for n in range(1, len(parts))):
                    raise StoreError("one of its directories is a link", place=str(path))
                make_folder(path.parent)
                with whole_file(path) as file:
                    file.write(content)
            with held(trial) as own:
                _sync_tree(own)
        except OSError as error:
            raise write_error(error, trial) from error

    def discard_drafts(self) -> int:
        """Remove what a killed runner left half written; what it had completed is on the disk when this returns.

        Returns the number of trials that were removed.
        """
        # A host's facts change: what has this name may never be written again.
        drafts = list((self.path / "trials").glob(".*.part"))
        try:
            for draft in (self.path / "facts").glob(".*.part"):
                with held(draft) as own:
                    own.unlink()
            for draft in drafts:
                with held(draft) as own:
                    shutil.rmtree(own)
            # It may have been killed after a rename and before its sync.
            sync(self.path.parent)
            sync(self.path / "trials")
        except OSError as error:
            raise write_error(error, self.path) from error
        return len(drafts)

    def trials(self) -> list[TrialRecord]:
        """Every trial on disk, by number."""
        return [_read_record(p / "trial.json") for p in sorted((self.path / "trials").glob("[0-9]*"))]

    def trial(self, number: int) -> TrialRecord | None:
        """One trial, if it is on disk."""
        path = self.trial_path(number) / "trial.json"
        return _read_record(path) if path.exists() else None

    def remove_trial(self, number: int) -> None:
        """Remove a trial, by one rename, so that a repeated pair is never half new and half old."""
        final = self.trial_path(number)
        if not final.exists():
            return
        try:
            with held(final) as own:
                old = own.with_name(f".{final.name}.old.part")
                own.rename(old)
                # Otherwise a power cut could leave the name, and not all of what is removed below.
                sync(own.parent)
                shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            raise write_error(error, final) from error

    def save_facts(self, facts: Facts) -> None:
        name = f"facts/{facts.hash}.json"
        if not (self.path / name).exists():
            self.write_output(name, json.dumps(facts.data, indent=1, sort_keys=True) + "\n")

    def facts(self, facts_hash: str) -> Facts:
        """The host's facts; raises StoreError if they are not in the folder or cannot be read."""
        path = self.path / "facts" / f"{facts_hash}.json"
        try:
            return Facts(facts_hash, an_object(read_plain(path), OF_SNAPSHOT))
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot be read: {error}", place=str(path)) from error

    def write_output(self, name: str, content: str) -> Path:
        """Write a file of the folder (``report.html``, ``report.json``) atomically."""
        path = self.path / name
        try:
            replace_whole(path, content)
        except OSError as error:
            raise write_error(error, path) from error
        return path

    def latency_rows(self, number: int) -> pa.Table:
        """The LATENCY of one trial, with dictionary-encoded strings. Raises StoreError if it cannot be read."""
        import pyarrow.parquet as pq

        from headrace.experiment.trial_tables import table_file

        with table_file("latency", self.trial_path(number) / "latency.parquet") as path:
            return pq.read_table(path, read_dictionary=["operation", "kind"])

    def database(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with the views ``intervals``, ``latency`` and ``samples`` over all trials.

        Each view has the columns of its schema and ``trial``, the trial's number. Filters on ``trial``
        and ``sampler`` are pushed down, so a query reads only the row groups it needs.
        """
        from headrace.experiment.trial_tables import check_table
        from headrace.host.arrow import INTERVALS, LATENCY, SAMPLES

        connection = _engine(os.getpid()).cursor()
        # What others may write is read by what was checked: the engine opens names, and each view anew.
        is_safe = os.geteuid() != 0 or is_ours_alone(self.path.absolute())
        for name, schema in (("intervals", INTERVALS), ("latency", LATENCY), ("samples", SAMPLES)):
            files = sorted((self.path / "trials").glob(f"[0-9]*/{name}.parquet"))
            if not is_safe:
                files = _kept_open(connection, name, files)
            for path in files if is_safe else ():
                check_table(name, path)
            if files:
                connection.execute(_view_sql(name, [str(path) for path in files]))
            else:
                columns = ", ".join(f"NULL::{_SQL_TYPES[str(f.type)]} AS {f.name}" for f in schema)
                connection.execute(
                    f"CREATE TEMP VIEW {name} AS SELECT {columns}, NULL::INTEGER AS trial WHERE false"
                )
        return connection


def _kept_open(connection: duckdb.DuckDBPyConnection, name: str, files: list[Path]) -> list[Path]:
    """Names of our own for the tables, which lead to open files as long as the connection is there."""
    from headrace.experiment.trial_tables import table_file

    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if len(files) + 256 > limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kept = contextlib.ExitStack()
    weakref.finalize(connection, kept.close)
    own = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
    links = []
    for path in files:
        links.append(own / path.parent.name / path.name)
        links[-1].parent.mkdir()
        links[-1].symlink_to(kept.enter_context(table_file(name, path)))
    return links


@cache
def _engine(pid: int) -> duckdb.DuckDBPyConnection:
    """What all connections of this process run on: a new engine takes longer than most questions to it.

    Temporary views and tables belong to one connection. A forked process has none of its parent's threads.
    """
    import duckdb

    # More threads only cost memory: reading is bound by decoding.
    return duckdb.connect(":memory:", config={"memory_limit": "1GB", "threads": 2})


#: Arrow's name of a type -> DuckDB's.
_SQL_TYPES = {"double": "DOUBLE", "int64": "BIGINT", "int32": "INTEGER", "string": "VARCHAR"}


def _design_text(design: Design) -> str:
    return json.dumps({"format": FORMAT_VERSION, **design.to_json()}, indent=2) + "\n"


def _view_sql(name: str, files: list[str]) -> str:
    listed = ", ".join("'" + f.replace("'", "''") + "'" for f in files)
    return (
        f"CREATE TEMP VIEW {name} AS SELECT * EXCLUDE (filename), "
        f"CAST(parse_filename(parse_dirpath(filename)) AS INTEGER) AS trial "
        f"FROM read_parquet([{listed}], filename = true)"
    )


def _read_record(path: Path) -> TrialRecord:
    try:
        record = TrialRecord(**an_object(read_plain(path), OF_SNAPSHOT))
        return replace(record, role=Role(record.role), state=TrialState(record.state))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"cannot be read: {error}",
            place=str(path),
            hint="move the trial's directory away and rerun `headrace run`, which repeats the trial",
        ) from error


def _write_record(path: Path, record: TrialRecord) -> None:
    path.write_text(json.dumps(asdict(record), indent=2, sort_keys=True) + "\n")


def _link_or_copy(source: str, path: str) -> None:
    try:
        os.link(source, path)
    except OSError:  # not every file system supports links
        shutil.copyfile(source, path)


def _make_visible(name: Path, final: Path) -> None:
    with held(final) as own:
        _put(own.with_name(name.name), own)


def _put(draft: Path, final: Path) -> None:
    # A trial that was repeated is replaced in one step if possible, so that there is always one; otherwise the old
    # one is moved away first, so that there is never a mixture.
    old = draft
    if not (final.exists() and _exchange(draft, final)):
        old = final.with_name(f".{final.name}.old.part")
        if final.exists():
            final.rename(old)
        draft.rename(final)
    sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step. False if the system has no such call, or the file system refuses it."""
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    places = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
    return bool(renameat2(*places, _RENAME_EXCHANGE) == 0)


def _sync_tree(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            sync(Path(root, name))
        sync(Path(root))
