"""The only mapping from the agent's exit codes to headrace's errors."""

from __future__ import annotations

from headrace.agent.program import PROGRAM
from headrace.errors import (
    Busy,
    CommandFailed,
    DiskFull,
    HeadraceError,
    NotAsAsked,
    NotReady,
    PlanError,
    Refused,
)
from headrace.target.command import signal_name

#: The agent's exit codes are those of ``headrace`` itself (docs/reference/exit-codes.md), except for wrong
#: arguments, because the agent's arguments come from a plan or from headrace's command line. 126 and 127 are a
#: shell's.
_ERRORS: dict[int, type[HeadraceError]] = {
    2: PlanError,
    5: Refused,
    7: Busy,
    8: DiskFull,
    14: NotAsAsked,
    126: NotReady,
    127: NotReady,
}
_HINTS = {
    7: "wait until it ends, or stop that process",
    8: "free some space there",
    126: "run the same command again, which installs it; `headrace doctor` looks closer",
    127: "run the same command again, which installs it; `headrace doctor` looks closer",
}
#: Prefix of the agent's errors, which headrace's error class already implies.
_MARKS = ("refused: ", "busy: ", "bad input: ", "too late: ", "error: ")


def words_of(error_text: str) -> str:
    """The agent's error message: standard error without progress lines and the program's name."""
    lines = [line for line in error_text.splitlines() if not line.startswith("{")]
    said = "\n".join(lines).strip().removeprefix(f"{PROGRAM}: ")
    for mark in _MARKS:
        said = said.removeprefix(mark)
    return said


def failure(
    exit_code: int,
    error_text: str,
    place: str,
    *,
    what: str = "",
    otherwise: type[HeadraceError] = CommandFailed,
) -> HeadraceError:
    """The error for an exit code other than 0; -N when signal N ended the agent.

    ``what`` starts the message. ``otherwise`` is the class of all errors except the host's state and refusals; a
    trial treats those as a failed workload, including wrong input.
    """
    words = words_of(error_text)
    if exit_code in (126, 127):
        words = f"{PROGRAM} cannot be started"
    elif exit_code < 0:
        words = f"{PROGRAM} was ended by {signal_name(-exit_code)}" + (f": {words}" if words else "")
    elif not words:
        words = f"{PROGRAM} ended with exit code {exit_code}"
    known = _ERRORS.get(exit_code, otherwise)
    if known is PlanError and otherwise is not CommandFailed:
        known = otherwise
    return known(f"{what}: {words}" if what else words, place=place, hint=_HINTS.get(exit_code))
