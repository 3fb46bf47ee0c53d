"""One error tree: every error says what is wrong, where, and what to do, and carries its exit code.

Only ``cli`` turns these into text and an exit status; nothing below prints or exits.
"""

from __future__ import annotations

import errno


def placed(place: str | None, message: str) -> str:
    """``place: message``. What others said of a place often begins with its name: it is not said twice."""
    if not place or message == place or message.startswith((f"{place}:", f"{place} ")):
        return message or place or ""
    return f"{place}: {message}"


class HeadraceError(Exception):
    """An error for a person to read.

    ``message`` says what is wrong, ``place`` where (file, key, host, path), ``hint`` what to do next.
    """

    exit_code = 1

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    @property
    def in_line(self) -> str:
        """All of it where there is one line: in a table, in a message."""
        text = placed(self.place, self.message)
        return f"{text} (try: {self.hint})" if self.hint else text

    def __str__(self) -> str:
        text = placed(self.place, self.message)
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class PlanError(HeadraceError):
    """The plan file, or a value in it, is wrong."""

    exit_code = 3


class WrongArguments(PlanError):
    """An option or an argument of the command line is wrong, as the agent found that it passes on."""

    exit_code = 2


class NotReady(HeadraceError):
    """A program, package or permission that the work needs is missing."""

    exit_code = 4


class Refused(HeadraceError):
    """Doing this could harm the host or its data, and it was not allowed by name."""

    exit_code = 5


class TargetError(HeadraceError):
    """A target cannot be reached, or a command on it failed."""

    exit_code = 6


class HostUnknown(TargetError):
    """A fact or counter of a host that was not examined, or is not the server's, was asked for."""


class ConnectionLost(TargetError):
    """The connection broke while the target was working; the outcome is unknown.

    This makes a trial invalid; the experiment continues as soon as the target is reachable again.
    """


class ConnectionNotRestored(TargetError):
    """A connection was lost, and the host did not answer again in time."""


class CommandFailed(TargetError):
    """A command on a target ended with an exit code other than 0, or ran out of time."""


class TookTooLong(CommandFailed):
    """A command on a target was killed because its time was over."""


class TreatmentFailed(CommandFailed):
    """The host rejects the treatment: mkfs or mount refused its options.

    In a trial this is an observation of the treatment (state ``failed``), not the end of the experiment.
    """


class Busy(HeadraceError):
    """Something that headrace needs is in use: a port, the host's lock, an experiment directory."""

    exit_code = 7


class Held(Busy):
    """Another command works on this very thing, not only on a host of it."""


class HostBusy(Busy):
    """Another process works on the host: it runs only one trial at a time."""


class DiskFull(HeadraceError):
    """No space left, on the target or in the experiment directory."""

    exit_code = 8


def no_room(error: OSError) -> bool:
    """Whether a disk is full, or what a user or a file may take of it is."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreError(HeadraceError):
    """An experiment directory is damaged, incomplete or of another format."""

    exit_code = 9


def write_error(
    error: OSError,
    place: object,
    kind: type[HeadraceError] = StoreError,
    *,
    hint: str = "free some space, then run the same command again",
) -> HeadraceError:
    """What to raise if ``place`` cannot be written: DiskFull if a disk or quota is full, otherwise ``kind``."""
    if no_room(error):
        return DiskFull("no room left", place=str(place), hint=hint)
    return kind(f"cannot be written: {error.strerror or error}", place=str(place))


class NothingMeasured(HeadraceError):
    """The experiment ended without a trial that can be analysed."""

    exit_code = 10


class ServerStartFailed(HeadraceError):
    """The private server did not start; the message ends with the last lines of its error log.

    In a trial this is an observation of the treatment (state ``failed``), not the end of the experiment.
    """

    exit_code = 11


class WorkloadFailed(HeadraceError):
    """The workload program failed, or printed something that cannot be read."""

    exit_code = 12


class NotAsAsked(HeadraceError):
    """A load or a replay ran, but not as asked: what it measured says nothing about the server.

    In a trial nothing of the treatment's own: it is invalid, and measured again.
    """

    exit_code = 14


#: What each exit code of ``headrace`` means; the documentation's table is checked against this.
EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "an unexpected error (please report it)",
    2: "wrong arguments",
    3: "a given plan, address or file is wrong",
    4: "this machine is not ready: something is missing",
    5: "refused: it could harm the host and was not explicitly allowed",
    6: "a target cannot be reached, or a command on it failed; `replay`: the server refused a login or a database",
    7: "a port, lock or directory is in use",
    8: "no space left on a disk",
    9: "an experiment directory is damaged or of another format",
    10: "no trial can be analysed",
    11: "the server did not start",
    12: "the workload failed",
    13: "`watch`: the latest change is for the worse; `verify`, `compare`, `tell`, `rollout`: it is worse; "
    "`size merge`: it does not fit",
    14: "a replay or a load is invalid: it did not run as asked",
    15: "`watch`, `verify`, `compare`, `tell`: the data allow no verdict; `apply --judge`: not better; "
    "`rollout`: inconclusive, or waiting",
    130: "stopped by Ctrl-C; the machine was restored",
}
