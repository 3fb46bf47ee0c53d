"""The driver's pre-flight: limits of the server and of the drivers' machines that a load would hit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import WorkloadFailed

#: What concerns the machine that drives, and not the server; each driver has its part of the connections there.
_OF_THE_DRIVER = frozenset({"open_files", "ephemeral_ports"})

#: Compares the data with the buffer pool, which is no limit: it depends on data that only a trial has.
_BUFFER_POOL = "buffer_pool"


@dataclass(frozen=True)
class Finding:
    """A limit, ``check``, that is too low on the target called ``place``, and the command that raises it.

    ``needed``: what it must be, a number of things.
    ``is_blocking``: the load cannot run; otherwise it may measure something else than it seems to.
    """

    place: str
    check: str
    needed: int
    is_blocking: bool
    message: str
    fix: str


def read_findings(output: bytes, place: str, *, of_server: bool, of_driver: bool) -> list[Finding]:
    """What is not as it should be, of what ``drive check`` wrote. Raises WorkloadFailed for what it did not."""
    try:
        return [
            Finding(
                place,
                found["check"],
                found["needed"],
                found["severity"] == "error",
                found["message"],
                found["fix"] or "",
            )
            for found in _entries(json.loads(output))
            if not found["ok"]
            and found["check"] != _BUFFER_POOL
            and (of_driver if found["check"] in _OF_THE_DRIVER else of_server)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise WorkloadFailed(f"`drive check` cannot be read: {error!r}", place=place) from error


def _entries(content: object) -> Sequence[dict[str, Any]]:
    if not isinstance(content, list):
        raise ValueError("no list")
    return content
