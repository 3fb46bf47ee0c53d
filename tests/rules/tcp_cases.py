"""Cases of the rules about connections."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import unwell

#: 60 KB an answer on kept connections.
LARGE_ANSWERS = {"bytes_sent": 240e6}

CASES = [
    Case(
        "TCP01",
        "128 for 900",
        lambda: unwell(variables={"back_log": "900"}, facts={"sysctls.net.core.somaxconn": "128"}),
        ("",),
        ("back_log is 900, but net.core.somaxconn allows 128",),
    ),
    Case("TCP01", "enough", unwell),
    Case("TCP01", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "TCP01",
        "no sysctl",
        lambda: unwell(facts={"sysctls.net.core.somaxconn": None}),
        missing="net.core.somaxconn",
    ),
    Case(
        "TCP02",
        "a full queue",
        lambda: unwell(rates={"snmp.TcpExt.ListenOverflows.": 4.5}, variables={"back_log": "80"}),
        ("",),
        ("4.5 connections/s found a full queue; somaxconn is 4,096, back_log 80",),
    ),
    Case(
        "TCP02",
        "a full queue of another server",
        lambda: unwell(rates={"snmp.TcpExt.ListenOverflows.": 4.5}, has_server=False),
        ("",),
        ("back_log unknown",),
    ),
    Case("TCP02", "none", unwell),
    Case("TCP02", "not sampled", lambda: unwell(without=["snmp"]), missing="snmp.TcpExt.ListenOverflows"),
    Case(
        "TCP03",
        "two in a hundred",
        lambda: unwell(rates={"snmp.Tcp.RetransSegs.": 180.0}),
        ("",),
        ("2% of 9,000 segments/s are retransmitted",),
    ),
    Case("TCP03", "few", unwell),
    Case(
        "TCP03",
        "hardly any traffic",
        lambda: unwell(rates={"snmp.Tcp.RetransSegs.": 1.0, "snmp.Tcp.OutSegs.": 20.0}),
    ),
    Case("TCP03", "not sampled", lambda: unwell(without=["snmp"]), missing="snmp.Tcp.OutSegs"),
    Case(
        "TCP04",
        "large answers on kept connections",
        lambda: unwell(status_rates=LARGE_ANSWERS),
        ("",),
        ("4.1 times the initial window", "8,000 statements or more"),
    ),
    Case("TCP04", "small answers", unwell),
    Case(
        "TCP04",
        "a connection a statement",
        lambda: unwell(status_rates={**LARGE_ANSWERS, "connections": 4_000.0}),
    ),
    Case(
        "TCP04",
        "off already",
        lambda: unwell(status_rates=LARGE_ANSWERS, facts={"sysctls.net.ipv4.tcp_slow_start_after_idle": "0"}),
    ),
    Case("TCP04", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "TCP05",
        "400 a second",
        lambda: unwell(rates={"snmp.Tcp.ActiveOpens.": 400.0}),
        ("",),
        ("400 connects/s hold up to 24,000 of 28,232 ports",),
    ),
    Case("TCP05", "few", unwell),
    Case("TCP05", "not sampled", lambda: unwell(without=["snmp"]), missing="snmp.Tcp.ActiveOpens"),
    Case(
        "TCP06",
        "cookies",
        lambda: unwell(rates={"snmp.TcpExt.TCPReqQFullDoCookies.": 12.0}),
        ("",),
        ("12.0 answered with cookies",),
    ),
    Case("TCP06", "none", unwell),
    Case("TCP06", "not sampled", lambda: unwell(without=["snmp"]), missing="snmp.TcpExt.TCPReqQFullDrop"),
]
