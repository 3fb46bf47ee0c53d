"""What stands around a benchmark's output: what a terminal, a container, a journal or a shell added to it."""

from __future__ import annotations

import itertools
import re
import textwrap

_COLOUR = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[\]_P^][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[()][AB0]|\x1b[=>78]"
)
#: What a terminal shows at a line's start has overwritten nothing; blanks at its end are never seen.
_EDGES = re.compile(r"^\r+|[ \t]*\r+$|[ \t]+$", re.MULTILINE)
_STAMP = r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| UTC| ?[+-]\d\d:?\d\d)?\]?:?[ \t]?"
#: In the order in which programs put them before a line.
_PREFIXES = tuple(
    re.compile(each)
    for each in (
        r"[\w.-]+ +\| ?",
        # A job and its step, as their whole log has them.
        r"[^\t\n]+\t[^\t\n]+\t\ufeff?(?=\d{4}-\d\d-\d\dT)",
        r"\[[\w.-]+/[\w./-]+\](?: |$)",
        _STAMP,
        r"\d\d[OE](?:[+ ]|$)",
        r"(?:\[1\d{9}(?:\.\d+)?\]|1\d{9}\.\d+):?(?: |$)",
        r"\[ *\d+\.\d{3,6}\](?: |$)",
        r"\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?:[ \t]|$)",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [^\s\[:]+(?:\[\d+\])?:(?: |$)",
        r"[\w.-]+ [\w.@/-]+\[\d+\]:(?: |$)",
        r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: \d{4})?(?: |$)",
        r"\[?(?:DEBUG|INFO|NOTICE|stdout|stderr|out)\]?:?(?: |$)",
        r"(?:>(?: |$))+",
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
_NUMBERED = re.compile(r" *(\d{1,7})(?:[:\t]| *[|│] ?|(?=$))")
#: ``run1.log:`` of grep, ``[db1] out:`` of Fabric.
_FILE = re.compile(r"\[[\w.@-]+\] out:|[\w/@-]*[./][\w./@-]*:")
#: ``db1:`` of pdsh.
_NAME = re.compile(r"[\w.@-]+:(?= )")
#: So few lines may begin alike by chance.
LEAST_NUMBERED = 2
#: Programs that wrap another's output, one around the other.
MOST_AROUND = 4
#: Lines at the end of a file in which a shell tells how its program ended.
_LAST = 6


def plain(text: str) -> str:
    """The text without colours, carriage returns at line ends, and what all lines begin with."""
    text = _EDGES.sub("", _COLOUR.sub("", text.removeprefix("\ufeff")))
    # A program's prefix may stand behind that of another, whichever is the outer one.
    for _ in range(MOST_AROUND):
        before = text
        for prefix in _PREFIXES:
            text = _without(prefix, text)
        text = _unnumbered(text)
        text = _unnamed(_FILE, text)
        if text == before:
            break
    return text


def _without(prefix: re.Pattern[str], text: str) -> str:
    lines = text.split("\n")
    filled = [line for line in lines if line.strip()]
    if not filled or not all(prefix.match(line) for line in filled):
        return text
    return textwrap.dedent("\n".join(prefix.sub("", line, count=1) for line in lines))


def _unnumbered(text: str) -> str:
    """The text without the numbers of its lines, as ``cat -n`` and ``grep -n`` put them before each."""
    matches = [_NUMBERED.match(line) for line in text.split("\n") if line.strip()]
    numbers = [int(each[1]) for each in matches if each]
    if len(numbers) < max(len(matches), LEAST_NUMBERED) or {
        b - a for a, b in itertools.pairwise(numbers)
    } != {1}:
        return text
    return "\n".join(_NUMBERED.sub("", line, count=1) for line in text.split("\n"))


def unnamed(text: str) -> str:
    """The text without the host that each of its lines begins with, to be tried last: programs begin so, too."""
    without = _unnamed(_NAME, text)
    return plain(without) if without != text else text


def _unnamed(pattern: re.Pattern[str], text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    name = pattern.match(lines[0]) if len(lines) >= LEAST_NUMBERED else None
    if name is None or not all(line.startswith(name[0]) for line in lines):
        return text
    gap = " " if all(line[name.end() :][:1] in ("", " ") for line in lines) else ""
    return "\n".join(line.removeprefix(name[0]).removeprefix(gap) for line in text.split("\n"))


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
