"""netstat -s and nstat -a with the time of each, as pt-stalk keeps them: the kernel's counters of TCP.

Without times two of them are no rate. netstat leaves out most counters that are 0.
"""

from __future__ import annotations

import itertools
import re

from headrace.hunt.dumps.piece import Numbered, Piece, Unread, stamped

NAME = "netstat -s, nstat"

_SECTION = re.compile(r"^(Ip|Icmp|IcmpMsg|Tcp|Udp|UdpLite|TcpExt|IpExt|MPTcpExt|Sctp): *$", re.MULTILINE)
#: What netstat says in words, of old and new versions -> the kernel's name.
_SAID = (
    ("Tcp", "ActiveOpens", r"(\d+) active connections? openings?"),
    ("Tcp", "PassiveOpens", r"(\d+) passive connection openings"),
    ("Tcp", "InSegs", r"(\d+) segments received"),
    ("Tcp", "OutSegs", r"(\d+) segments sen[dt] out"),
    ("Tcp", "RetransSegs", r"(\d+) segments retransmitt?ed"),
    ("TcpExt", "ListenOverflows", r"(\d+) times the listen queue of a socket overflowed"),
    ("TcpExt", "ListenDrops", r"(\d+) SYNs to LISTEN sockets dropped"),
    ("TcpExt", "TCPTimeouts", r"(?:(\d+) other TCP timeouts|TCPTimeouts: (\d+))"),
    ("TcpExt", "TCPDSACKRecv", r"(?:(\d+) DSACKs received|TCPDSACKRecv: (\d+))"),
    (
        "TcpExt",
        "TCPDSACKOfoRecv",
        r"(?:(\d+) DSACKs for out of order packets received|TCPDSACKOfoRecv: (\d+))",
    ),
    ("TcpExt", "TCPReqQFullDrop", r"TCPReqQFullDrop: (\d+)"),
    ("TcpExt", "TCPReqQFullDoCookies", r"TCPReqQFullDoCookies: (\d+)"),
    ("TcpExt", "TCPTimeWaitOverflow", r"TCPTimeWaitOverflow: (\d+)"),
)
#: Of both of these a text has the counter also where it is 0.
_ALWAYS = ("ActiveOpens", "PassiveOpens", "InSegs", "OutSegs", "RetransSegs")
_NSTAT = re.compile(r"^(TcpExt|IpExt|Tcp|Udp|Ip)([A-Z]\w+) +(\d+) +\d+\.\d+ *$", re.MULTILINE)
_WITHOUT_TIMES = (
    "the output of {} without its times: /proc/net/snmp and /proc/net/netstat, twice, are read, or a line "
    "`TS SECONDS` before each"
)


def read(text: str) -> list[Piece]:
    pieces: list[Piece] = []
    for name, reader in (("netstat -s", _netstat), ("nstat", _nstat)):
        read_at = [(at_s, numbers) for at_s, part in stamped(text) if (numbers := reader(part))]
        if any(at_s is None for at_s, _ in read_at):
            pieces.append(Unread(_WITHOUT_TIMES.format(name)))
        elif name == "nstat" and any(
            after.get(key, 0.0) < n
            for (_, one), (_, after) in itertools.pairwise(read_at)
            for key, n in one.items()
        ):
            pieces.append(Unread("the output of nstat with differences; nstat -a prints what is read"))
        else:
            pieces += [
                Numbered("snmp", {key: {"": n} for key, n in numbers.items()}, at_s, name)
                for at_s, numbers in read_at
            ]
    return pieces


def _netstat(text: str) -> dict[str, float]:
    titles = list(_SECTION.finditer(text))
    if "Tcp" not in {title[1] for title in titles}:
        return {}
    ends = [*(title.start() for title in titles[1:]), -1]
    # The last section may be cut off.
    parts = {title[1]: text[title.end() : end] for title, end in zip(titles, ends, strict=True) if end >= 0}
    pieces: dict[str, float] = {}
    for section, name, pattern in _SAID:
        if section in parts:
            match = re.search(rf"^ +{pattern} *$", parts[section], re.MULTILINE)
            number = next((group for group in match.groups() if group), None) if match else None
            if number is not None or name not in _ALWAYS:
                pieces[f"{section}.{name}"] = float(number or 0)
    return pieces


def _nstat(text: str) -> dict[str, float]:
    if not re.search(r"^#(kernel|\d+\.\d+)", text, re.MULTILINE):
        return {}
    return {f"{match[1]}.{match[2]}": float(match[3]) for match in _NSTAT.finditer(text)}
