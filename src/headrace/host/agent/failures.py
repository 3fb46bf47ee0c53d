"""The only mapping from the agent's exit codes to headrace's errors."""

from __future__ import annotations

from headrace.base.errors import (
    Busy,
    CommandFailed,
    DiskFull,
    HeadraceError,
    NotAsAsked,
    NotReady,
    PlanError,
    Refused,
    StoreError,
    WrongArguments,
)
from headrace.host.agent.program import PROGRAM
from headrace.host.target.command import signal_name

#: The agent's exit codes are those of ``headrace`` itself (docs/reference/exit-codes.md), except for wrong
#: arguments: what the agent is given comes from a plan, or from headrace's command line. 126 and 127 are a
#: shell's.
_ERRORS: dict[int, type[HeadraceError]] = {
    2: PlanError,
    3: PlanError,
    4: NotReady,
    5: Refused,
    7: Busy,
    8: DiskFull,
    9: StoreError,
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
_MARKS = ("refused: ", "busy: ", "bad input: ", "not ready: ", "too late: ", "error: ")
#: Begins what the agent says of its command line, which ends with its own usage.
_OF_ARGUMENTS = "error: "


def words_of(error_text: str) -> str:
    """The agent's error message: standard error without progress lines, the program's name and its usage."""
    lines = [line for line in error_text.splitlines() if not line.startswith("{")]
    said = "\n".join(lines).strip().removeprefix(f"{PROGRAM}: ")
    if said.startswith(_OF_ARGUMENTS):
        said = said.partition("\n\n")[0]
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
    if known is PlanError and error_text.lstrip().startswith(_OF_ARGUMENTS):
        known = WrongArguments
    if issubclass(known, PlanError) and otherwise is not CommandFailed:
        known = otherwise
    return known(f"{what}: {words}" if what else words, place=place, hint=_HINTS.get(exit_code))
