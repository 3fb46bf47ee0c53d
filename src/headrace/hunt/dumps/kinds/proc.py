"""Files of /proc, found out by what is in them: as pt-stalk and people save them, one or many times."""

from __future__ import annotations

import re

from headrace.hunt.dumps.piece import Kernel, Piece, stamped

NAME = "files of /proc"

#: Path -> the beginning of its content. Each is a line that no other file has.
_KNOWN = (
    ("proc/stat", re.compile(r"^cpu  ?\d+ \d+ \d+ \d+[ \d]*\ncpu0 \d+", re.MULTILINE)),
    ("proc/meminfo", re.compile(r"^MemTotal: +\d+ kB\nMemFree: +\d+ kB$", re.MULTILINE)),
    ("proc/vmstat", re.compile(r"^nr_free_pages \d+\n", re.MULTILINE)),
    ("proc/diskstats", re.compile(r"^ +\d+ +\d+ [\w!/-]+(?: \d+){11,}$", re.MULTILINE)),
    ("proc/interrupts", re.compile(r"^ +CPU0(?: +CPU\d+)* *\n +\S+: +\d+", re.MULTILINE)),
    ("proc/softirqs", re.compile(r"^ +CPU0(?: +CPU\d+)* *\n +HI: +\d+", re.MULTILINE)),
    ("proc/net/dev", re.compile(r"^Inter-\| +Receive .*\n face \|bytes", re.MULTILINE)),
    ("proc/net/snmp", re.compile(r"^Ip: Forwarding .*\nIp: \d", re.MULTILINE)),
    ("proc/net/netstat", re.compile(r"^TcpExt: SyncookiesSent .*\nTcpExt: \d", re.MULTILINE)),
    ("proc/net/sockstat", re.compile(r"^sockets: used \d+\nTCP: inuse \d+ ", re.MULTILINE)),
    ("proc/net/softnet_stat", re.compile(r"\A\s*[0-9a-f]{8}(?: [0-9a-f]{8}){8,}$", re.MULTILINE)),
    ("proc/cpuinfo", re.compile(r"^processor\s+: 0\n", re.MULTILINE)),
)
#: Of a text all of whose lines are one file's, with at most so many others: a message before, an empty line.
MOST_OTHERS = 3


def read(text: str) -> list[Piece]:
    found: list[Piece] = []
    for at_s, part in stamped(text):
        for path, pattern in _KNOWN:
            match = pattern.search(part)
            # Two files have a table of CPUs: that of soft interrupts begins with HI.
            if match is None or (
                path == "proc/interrupts" and re.search(r"\n +HI: ", match[0] + part[match.end() :][:9])
            ):
                continue
            if part.count("\n", 0, match.start()) <= MOST_OTHERS:
                found.append(Kernel(path, _whole(part[match.start() :]), at_s))
                break
    return found


def _whole(text: str) -> str:
    """Without a last line that is cut off."""
    return text if text.endswith("\n") else text[: text.rfind("\n") + 1]
