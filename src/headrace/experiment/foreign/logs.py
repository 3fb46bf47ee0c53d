"""What stands around a benchmark's output: what a terminal, a container, a journal or a shell added to it."""

from __future__ import annotations

import re
import textwrap

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\n]*\x07")
_STAMP = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?[ \t]?"
#: In the order in which programs put them before a line.
_PREFIXES = tuple(
    re.compile(each)
    for each in (
        r"[\w.-]+ +\| ?",
        _STAMP,
        r"\d\d:\d\d:\d\d(?:[.,]\d+)?[ \t]",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s\[:]+(?:\[\d+\])?: ?",
        r"(?:> )+",
    )
)
_ENDED = re.compile(
    r"^(?:\S+: line \d+: +\d+ +)?(?:Killed|Terminated|Aborted|Segmentation fault|Bus error|Hangup|Quit)\b(?!:)"
    r"[^\n]{0,80}$"
    r"|command terminated with exit code [1-9]\d*|Command (?:terminated by signal|exited with non-zero status) \d+"
    r"|^Connection to \S+ closed by remote host\.?|^client_loop: send disconnect[^\n]*"
    r"|Out of memory: Killed process[^\n]*|^\W*(?:exit|return)(?:ed)?(?: with)?[ _](?:status|code)\W+[1-9]\d*\W*$"
    r"|^make(?:\[\d+\])?: \*\*\* [^\n]*|^\^C"
    r"|^\W*(?:rc|ret|retval|exit|exitcode)\W{1,3}[1-9]\d{0,2}\W*$|\bexited with code [1-9]\d*"
    r"|Process completed with exit code [1-9]\d*|Main process exited, code=(?!exited, status=0)[^\n]*"
    r"|^(?:slurmstepd|srun|mpirun|timeout): [^\n]*|\bCANCELLED\b[^\n]*|\bOOM-?Killed\b|\boom-kill\b[^\n]*"
    r"|^(?:\[\d+\][+-]? +|\w*sh: )(?:Killed|Terminated|Aborted|Exit [1-9]\d*|Segmentation fault)\b[^\n]*",
    re.MULTILINE | re.IGNORECASE,
)
#: Lines at the end of a file in which a shell tells how its program ended.
_LAST = 6


def plain(text: str) -> str:
    """The text without colours, carriage returns before line ends, and what all lines begin with."""
    text = _COLOUR.sub("", text.replace("\r\n", "\n"))
    for prefix in _PREFIXES:
        lines = text.split("\n")
        filled = [line for line in lines if line.strip()]
        if filled and all(prefix.match(line) for line in filled):
            text = "\n".join(prefix.sub("", line, count=1) for line in lines)
    return text


def flush(text: str) -> str:
    """The text without what all of its lines are indented by, or those of a block of it: notes have outputs below
    a title.
    """
    blocks = re.split(r"(?m)(^(?! *$)\S.*\n?)", textwrap.dedent(text))
    return "".join(textwrap.dedent(block) for block in blocks)


def parted(text: str) -> tuple[str, str]:
    """The text, and what a shell, a container or a connection said below it of a bad end, if one did."""
    lines = text.rstrip().split("\n")
    said = [line for line in lines[-_LAST:] if _ENDED.search(line.strip())]
    if not said:
        return text, ""
    kept = [*lines[:-_LAST], *(line for line in lines[-_LAST:] if line not in said)]
    return "\n".join([*kept, ""]), said[0].strip()[:80]
