"""Cases of the rules about connections."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import healthy, unwell

#: 60 KB an answer on kept connections.
LARGE_ANSWERS = {"bytes_sent": 240e6}
SENT = {"network.tx_bytes.enp1s0f0np0": 250e6}


def queues(*ports: tuple[str, float, float]) -> dict[str, float]:
    """Accept queues: address and port, what waits, and the limit."""
    return {
        f"listen.{metric}.{label}": number
        for label, *numbers in ports
        for metric, number in zip(("queue", "queue_limit"), numbers, strict=True)
    }


#: A container's own accept queues, counters and settings, which the host does not see.
CONTAINER = {"servers.1322.namespaces": ["mnt", "net", "pid"]}

CASES = [
    Case(
        "TCP01",
        "128 for 900",
        lambda: unwell(variables={"back_log": "900"}, facts={"sysctls.net.core.somaxconn": "128"}),
        ("",),
        ("back_log is 900, but net.core.somaxconn allows 128",),
    ),
    Case(
        "TCP01",
        "of a host whose server has a network of its own",
        lambda: unwell(
            variables={"back_log": "900"}, facts={**CONTAINER, "sysctls.net.core.somaxconn": "128"}
        ),
        missing="own net.core.somaxconn is unknown: the server .pid 1322. has a network namespace of its own",
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
        lambda: unwell(
            rates={"snmp.TcpExt.ListenOverflows.": 4.5},
            variables={"back_log": "80", "port": "3306"},
            gauges=queues(("0.0.0.0:3306", 81, 80), ("[::]:22", 0, 128)),
        ),
        ("3306",),
        ("4.5 connections/s found a full queue on this host: the server's queue of 80 was full",),
        sets=({"server.back_log": 4_096}, {}),
        severity=Severity.LIMIT,
    ),
    Case(
        "TCP02",
        "a full queue of another program",
        lambda: unwell(
            rates={"snmp.TcpExt.ListenOverflows.": 4.5},
            variables={"port": "3306"},
            gauges=queues(("0.0.0.0:3306", 0, 80), ("0.0.0.0:8080", 6, 5)),
        ),
        ("8080",),
        ("the queue of another program, on port 8080, of 5 was full",),
        sets=({},),
        severity=Severity.COST,
    ),
    Case(
        "TCP02",
        "a full queue of a host whose server has a network of its own",
        lambda: unwell(
            rates={"snmp.TcpExt.ListenOverflows.": 4.5},
            facts=CONTAINER,
            gauges=queues(("0.0.0.0:3306", 81, 80)),
        ),
        missing="exec:nsenter --target 1322 --net",
    ),
    Case(
        "TCP02",
        "bursts between the samples",
        lambda: unwell(
            rates={"snmp.TcpExt.ListenOverflows.": 4.5},
            variables={"back_log": "8", "port": "3306"},
            status_rates={"connections": 40.0},
            gauges=queues(("0.0.0.0:3306", 0, 8), ("[::]:22", 0, 128)),
        ),
        ("3306",),
        ("probably the server's queue of 8, the shortest of all",),
        severity=Severity.LIMIT,
    ),
    Case(
        "TCP02",
        "nobody connects to the server",
        lambda: unwell(
            rates={"snmp.TcpExt.ListenOverflows.": 4.5},
            variables={"back_log": "8", "port": "3306"},
            status_rates={"connections": 0.1},
            gauges=queues(("0.0.0.0:3306", 0, 8), ("[::]:22", 0, 128)),
        ),
        ("",),
        ("which program's queue is unknown",),
    ),
    Case(
        "TCP02",
        "nobody knows whose",
        lambda: unwell(rates={"snmp.TcpExt.ListenOverflows.": 4.5}, has_server=False),
        ("",),
        ("which program's queue is unknown",),
        sets=({},),
    ),
    Case("TCP02", "none", unwell),
    Case("TCP02", "not sampled", lambda: unwell(without=["snmp"]), missing="snmp.TcpExt.ListenOverflows"),
    Case(
        "TCP03",
        "two in a hundred",
        lambda: unwell(rates={"snmp.Tcp.RetransSegs.": 180.0}),
        ("",),
        ("2% of 9,000 segments/s are lost and retransmitted",),
    ),
    Case(
        "TCP03",
        "sent again for nothing",
        # As on a busy host with 2 CPUs, over loopback: of 1,992 retransmitted segments 1,971 were duplicates.
        lambda: unwell(rates={"snmp.Tcp.RetransSegs.": 180.0, "snmp.TcpExt.TCPDSACKRecv.": 178.0}),
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
    Case(
        "TCP05",
        "more ports, but not those of services",
        lambda: unwell(
            rates={"snmp.Tcp.ActiveOpens.": 400.0},
            facts={"sysctls.net.ipv4.ip_local_reserved_ports": "4569-4570,50000"},
            variables={"port": "13306"},
            gauges=queues(("0.0.0.0:13306", 0, 80), ("[::]:9104", 0, 128)),
        ),
        ("",),
        sets=(
            {},
            {
                "host.net.ipv4.ip_local_reserved_ports": "3306,4444,4567-4570,9104,13306,33060,33062,50000",
                "host.net.ipv4.ip_local_port_range": "10000 65535",
            },
            {"host.net.ipv4.tcp_tw_reuse": 1},
        ),
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
    Case(
        "TCP07",
        "64 KiB for answers of 60 KB",
        lambda: unwell(
            facts={"sysctls.net.ipv4.tcp_wmem": "4096 16384 65536"}, status_rates=LARGE_ANSWERS, rates=SENT
        ),
        ("sent",),
        ("a response has 58.6 KiB on average", "32 KiB in flight: it takes 1.8 round trips"),
        sets=({"host.net.ipv4.tcp_wmem": "4096 16384 4194304"},),
        severity=Severity.ADVICE,
    ),
    Case(
        "TCP07",
        "the sessions that send wait",
        lambda: unwell(
            facts={"sysctls.net.ipv4.tcp_wmem": "4096 16384 65536"},
            status_rates=LARGE_ANSWERS,
            rates=SENT,
            gauges={"processlist.threads.Query": 8.0, "processlist.states.Writing to net": 6.0},
            status={"threads_running": 9.0},
        ),
        ("sent",),
        ("6.0 sessions wait in one",),
        severity=Severity.LIMIT,
    ),
    Case(
        "TCP07",
        "no window scaling",
        lambda: unwell(
            facts={"sysctls.net.ipv4.tcp_window_scaling": "0"},
            status_rates={"bytes_sent": 800e6},
            rates={"network.tx_bytes.enp1s0f0np0": 820e6},
        ),
        ("sent",),
        ("may have 64 KiB in flight",),
        sets=({"host.net.ipv4.tcp_window_scaling": 1},),
    ),
    Case(
        "TCP07",
        "large requests",
        lambda: unwell(
            facts={"sysctls.net.ipv4.tcp_rmem": "4096 16384 32768"},
            status_rates={"bytes_received": 200e6},
            rates={"network.rx_bytes.enp1s0f0np0": 210e6},
        ),
        ("received",),
        sets=({"host.net.ipv4.tcp_rmem": "4096 16384 6291456"},),
    ),
    Case(
        "TCP07",
        "small answers",
        lambda: unwell(facts={"sysctls.net.ipv4.tcp_wmem": "4096 16384 65536"}),
    ),
    Case(
        "TCP07",
        "over a socket file",
        lambda: unwell(facts={"sysctls.net.ipv4.tcp_wmem": "4096 16384 65536"}, status_rates=LARGE_ANSWERS),
    ),
    Case("TCP07", "as the kernel set them", lambda: unwell(status_rates=LARGE_ANSWERS, rates=SENT)),
    Case("TCP07", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "TCP08",
        "no room for more",
        lambda: unwell(
            rates={"snmp.TcpExt.TCPTimeWaitOverflow.": 80.0},
            gauges={"sockstat.TCP.tw.": 32_768.0},
            facts={"sysctls": {**healthy().raw["sysctls"], "net.ipv4.tcp_max_tw_buckets": "32768"}},
        ),
        ("",),
        ("32,768 closed connections are in TIME_WAIT, of 32768 that may be; 80/s more find no room",),
        steps=("a pool in the application", "tcp_max_tw_buckets"),
        severity=Severity.COST,
    ),
    Case(
        "TCP08",
        "nearly full",
        lambda: unwell(
            rates={"snmp.TcpExt.TCPTimeWaitOverflow.": 0.0},
            gauges={"sockstat.TCP.tw.": 31_000.0},
            facts={"sysctls": {**healthy().raw["sysctls"], "net.ipv4.tcp_max_tw_buckets": "32768"}},
        ),
        ("",),
        severity=Severity.RISK,
    ),
    Case("TCP08", "a few", lambda: unwell(rates={"snmp.TcpExt.TCPTimeWaitOverflow.": 0.0})),
    Case("TCP08", "not counted", lambda: unwell(without=["sockstat"]), missing="TIME_WAIT were not counted"),
]
