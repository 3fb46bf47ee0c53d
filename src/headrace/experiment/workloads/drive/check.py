"""The driver's pre-flight: limits of the server and of the drivers' machines that a load would hit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import WorkloadFailed

#: Checks of the driving machine, not of the server; each driver has its share of the connections there.
_OF_THE_DRIVER = frozenset({"open_files", "ephemeral_ports"})

#: Compares the data with the buffer pool, which is not a limit and depends on data that only a trial has.
_BUFFER_POOL = "buffer_pool"


@dataclass(frozen=True)
class Finding:
    """A limit, ``check``, that is too low on the target called ``place``, and the command that raises it.

    ``needed``: the required value. ``is_blocking``: the load cannot run; otherwise its measurement may be
    misleading.
    """

    place: str
    check: str
    needed: int
    is_blocking: bool
    message: str
    fix: str


def read_findings(output: bytes, place: str, *, of_server: bool, of_driver: bool) -> list[Finding]:
    """The problems in the output of ``drive check``. Raises WorkloadFailed if it cannot be read."""
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
