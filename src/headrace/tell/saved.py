"""The notice of what was saved: an experiment's folder, or a report's JSON."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from headrace.base.errors import StoreError
from headrace.base.received import BadContent, Bound, parsed
from headrace.base.whole import at_most, plain_file
from headrace.experiment import report
from headrace.experiment.store import ExperimentFolder
from headrace.show.notice import Notice

#: A report's JSON is smaller; something that never ends must not fill the memory.
MOST_BYTES = 256 << 20


def notice_of(what: str, link: str = "") -> Notice:
    """``what`` is a folder, a file of JSON or ``-``. Raises StoreError."""
    is_folder = what != "-" and Path(what).is_dir()
    found = _of_folder(Path(what)) if is_folder else Notice.from_json(_json(what), what)
    return replace(found, link=link) if link else found


def _of_folder(path: Path) -> Notice:
    # A tuning's folder is two experiments, and a report of both.
    if not (path / "design.json").exists() and (path / "report.json").exists():
        return Notice.from_json(_json(str(path / "report.json")), str(path / "report.json"))
    found = report.of(ExperimentFolder.open(path)).notice
    if found is None:
        raise StoreError("it has no verdict to send", place=str(path))
    return found


def _json(what: str) -> object:
    try:
        if what == "-":
            content = at_most(sys.stdin.buffer, MOST_BYTES + 1)
        else:
            with plain_file(Path(what), may_be_pipe=True) as file:
                content = at_most(file, MOST_BYTES + 1)
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror or error}", place=what) from error
    if len(content) > MOST_BYTES:
        raise StoreError(f"larger than {MOST_BYTES >> 20} MiB: this is not a report", place=what)
    try:
        return parsed(content, Bound(MOST_BYTES, 10_000_000))
    except BadContent as error:
        raise StoreError("not the JSON of a report", place=what) from error
