"""The kernel's log, as dmesg and journalctl -k print it: the events that hold up a server, with the last.

No rule judges them: a ring buffer keeps what happened weeks ago, and its clock is not that of what was watched.
"""

from __future__ import annotations

import re

from headrace.base.counted import counted
from headrace.hunt.dumps.piece import Piece, Said, Unread

NAME = "the kernel's log"

#: ``[12345.678901] text``, ``[Sun Nov 29 23:35:05 2026] text``, or a journal's line with the host before.
_LINE = re.compile(
    r"^(?:<\d+>)?(?:kern +:\w+ +: )?(?:\[ *\d+\.\d+\]|\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\]|"
    r"\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]{8}) +(?:\S+ kernel: +)?(\S.*)$"
)
_OF_KERNEL = re.compile(
    r"^(?:<\d+>)?(?:kern +:\w+ +: )?\[ *\d+\.\d+\] |^\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\] | kernel: "
)
_EVENTS = (
    ("of the OOM killer", r"Out of memory: Kill|oom-kill:|Memory cgroup out of memory"),
    ("of failed or aborted requests to a device", r"I/O error|timeout, (?:aborting|reset)|I/O timeout"),
    ("of errors of a file system", r"(?:EXT4|XFS|BTRFS)\S*.*(?:error|corrupt|shut ?down|remounting)"),
    ("of tasks that hung", r"blocked for more than \d+ seconds|soft lockup|rcu\S* (?:self-)?detected stall"),
    ("of connections that were refused", r"SYN flooding|nf_conntrack: table full|neighbor table overflow"),
    ("of CPUs slowed down by heat", r"temperature above threshold|clock throttled"),
    ("of a clock that is not trusted", r"clocksource.*unstable|Marking clocksource"),
    ("of links that went down", r"link is down|NETDEV WATCHDOG"),
    ("of a degraded array", r"md/raid\S*: .*(?:Disk failure|Operation continuing)"),
)
#: Lines at the start that all must be of the log, and characters of one that are shown.
FIRST, SHOWN = 5, 160


def read(text: str) -> list[Piece]:
    lines = text.splitlines()
    first = [line for line in lines if line.strip()][:FIRST]
    if not first or not all(_OF_KERNEL.search(line) and _LINE.match(line) for line in first):
        return []
    said = [match[1] for line in lines if (match := _LINE.match(line))]
    found: list[Piece] = []
    for what, pattern in _EVENTS:
        if matching := [each for each in said if re.search(pattern, each, re.IGNORECASE)]:
            found.append(
                Said(
                    f"the kernel's log has {counted(len(matching), 'line')} {what}, whether of the time "
                    f"watched or before; the last: {matching[-1][:SHOWN]}"
                )
            )
    # Of an event in it no rule judges, so the text as such is none that is read.
    return found or [Unread("the kernel's log: no event in it that holds up a server")]
