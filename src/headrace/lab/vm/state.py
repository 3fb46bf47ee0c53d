"""A machine's state between processes: a file, checked against /proc."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from headrace.base.errors import PlanError
from headrace.lab.vm import processes
from headrace.lab.vm.cache import folder, is_locked
from headrace.lab.vm.qemu import Accel
from headrace.lab.vm.spec import VmSpec

__all__ = ["Record", "Status", "machine_folder", "namespace_of", "read", "statuses", "write"]

STATE = "state.json"
MOST_STATE_BYTES = 1 << 20
Phase = Literal["booting", "running"]


@dataclass(frozen=True)
class Record:
    """A machine as its state file has it. ``pid`` is 0 until QEMU is started.

    A pid may be reused: ``start_ticks`` and ``boot_id`` identify the process. ``steps`` are those of its last
    start, with their seconds.
    """

    spec: VmSpec
    phase: Phase
    owner: str
    release: str
    image: str
    accel: Accel
    port: int
    machine_id: str
    namespace: str
    started_at: float
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    steps: tuple[tuple[str, float], ...] = ()

    @property
    def alive(self) -> bool:
        return self.pid > 0 and processes.alive(self.pid, self.start_ticks, self.boot_id)


@dataclass(frozen=True)
class Status:
    """What exists of a machine.

    ``dead``: its QEMU ended or was killed; ``unfinished``: the process that booted it was. ``leftover`` is a
    network namespace without a machine. ``disk_bytes`` is the size of its files.
    """

    name: str
    state: Literal["running", "booting", "dead", "unfinished", "leftover"]
    record: Record | None
    disk_bytes: int = 0


def machine_folder(name: str) -> Path:
    """The folder of a machine's files; not created here."""
    return folder("machines") / name


def read(place: Path) -> Record | None:
    """The record of the machine in this folder; None if there is no readable one."""
    try:
        with (place / STATE).open("rb") as file:
            content: dict[str, Any] = json.loads(file.read(MOST_STATE_BYTES))
        spec = VmSpec.from_json(content.pop("spec"))
        spec.check()
        content["steps"] = tuple((str(what), float(took_s)) for what, took_s in content["steps"])
        record = Record(spec=spec, **content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, PlanError):
        return None
    numbers = (record.port, record.pid, record.start_ticks)
    return record if all(type(number) is int for number in numbers) else None


def write(place: Path, record: Record) -> None:
    """Write the record atomically."""
    descriptor, draft = tempfile.mkstemp(prefix=".state.", dir=place)
    with open(descriptor, "w") as file:
        json.dump(asdict(record), file, indent=2)
    os.replace(draft, place / STATE)


def namespace_of(name: str) -> str:
    """The network namespace of a machine: other users, with other caches, may have machines with the same name."""
    return f"{_namespace_prefix()}{name}"


def _namespace_prefix() -> str:
    return f"headrace-{hashlib.sha256(str(folder('machines')).encode()).hexdigest()[:6]}-"


def namespaces() -> dict[str, str]:
    """Machine name -> namespace, of all that belong to this cache, with or without a machine."""
    prefix = _namespace_prefix()
    try:
        names = [entry.name for entry in Path("/run/netns").iterdir()]
    except OSError:
        return {}
    return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


def statuses() -> list[Status]:
    """Everything that exists, by name."""
    found = {place.name: _status(place) for place in folder("machines").iterdir() if place.is_dir()}
    for name in namespaces():
        found.setdefault(name, Status(name, "leftover", None))
    return [found[name] for name in sorted(found)]


def _status(place: Path) -> Status:
    record = read(place)
    # A sparse file's blocks, not its length.
    size = sum(file.stat().st_blocks * 512 for file in place.iterdir() if file.is_file())
    if is_locked(place) and (record is None or record.phase == "booting"):
        return Status(place.name, "booting", record, size)
    if record is None or record.phase == "booting":
        return Status(place.name, "unfinished", record, size)
    return Status(place.name, "running" if record.alive else "dead", record, size)
