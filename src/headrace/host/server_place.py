"""Where a server that was asked runs, and how that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Answer(StrEnum):
    """Where a server that was asked runs."""

    HERE = "here"
    NAMESPACE = "namespace"  # on this host, in namespaces of its own
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ServerPlace:
    """Where a server that was asked runs, and how that is known.

    ``asked``: its socket, or host and port. ``namespaces``: its own, as /proc/PID/ns names them.
    ``answered_by``: the process of this host at the other end of the connection, if that is not the server.
    ``evidence``: sentences, the strongest first. ``missing``: what would give an answer.
    """

    answer: Answer
    asked: str = ""
    pid: int | None = None
    namespaces: tuple[str, ...] = ()
    answered_by: str = ""
    evidence: tuple[str, ...] = ()
    missing: str = ""

    @property
    def is_on_host(self) -> bool:
        """Whether it is one of the processes of the examined host."""
        return self.answer in (Answer.HERE, Answer.NAMESPACE)

    @property
    def sentence(self) -> str:
        """``The server at 127.0.0.1:3307 runs elsewhere: socat (pid 71) answers there.``"""
        where = {
            Answer.HERE: "runs on this host" + (f" (pid {self.pid})" if self.pid else ""),
            Answer.NAMESPACE: f"runs on this host (pid {self.pid}) with its own {self._kinds}",
            Answer.ELSEWHERE: "does not run on this host",
            Answer.UNKNOWN: "is not known to run on this host",
        }[self.answer]
        why = self.evidence[0] if self.evidence else ""
        if self.answered_by and not self.is_on_host:
            why = f"{self.answered_by} answers there"
        if self.missing:
            why = "; ".join(filter(None, (why, f"what would tell: {self.missing}")))
        place = f" at {self.asked}" if self.asked else ""
        return f"The server{place} {where}{': ' if why else ''}{why}."

    @property
    def _kinds(self) -> str:
        names = {"mnt": "mount", "net": "network", "pid": "PID", "uts": "UTS", "cgroup": "control group"}
        kinds = [names.get(kind, kind) for kind in self.namespaces]
        words = " and ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1]))) if kinds else "own"
        return f"{words} namespace{'s' * (len(kinds) > 1)}"


def is_of_server(
    pid: int, facts: Mapping[str, Any], hostname: str | None, variable: Callable[[str], str | None]
) -> bool:
    """Whether facts without a place have evidence that the server is this process. Older agents took the one that
    looked likely: behind a tunnel, in a container or beside another one that was another server's."""
    process = next((each for each in facts.get("servers") or () if each.get("pid") == pid), None)
    if process is None or hostname is None or variable("hostname") != hostname:
        return False
    works_in = process.get("datadir") or process.get("working_directory") or ""
    return str(works_in).rstrip("/") == str(variable("datadir") or "/").rstrip("/") != ""
