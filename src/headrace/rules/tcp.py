"""Rules about connections: how they are accepted, kept and closed."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.analysis.resources import REFUSED_S, RETRANSMITTED
from headrace.model import Value
from headrace.rules.evidence import Evidence, number, share, size
from headrace.rules.rule import Confidence, Match, Remedy, Severity, rule

#: The default of somaxconn since Linux 5.4: listen(2).
LONG_QUEUE = 4_096
#: Refused connections per second that are more than one burst per minute.
SOME_REFUSED_S = 0.1
#: Below this many segments per second a share of them means nothing.
FEW_SEGMENTS_S = 100.0
#: Ten segments of 1,460 bytes: what a connection may send at once after it was idle (RFC 6928).
INITIAL_WINDOW_BYTES = 14_600
#: Connections are kept, and so idle between requests, if a new one comes less than once in this many requests.
REQUESTS_A_CONNECTION = 100.0
#: How long a closed connection holds its port: TCP_TIMEWAIT_LEN of the kernel, which no setting changes.
TIME_WAIT_S = 60.0
#: Share of the ports to one destination above which the next burst may find none.
PORTS_HELD = 0.5


@rule(
    "TCP01",
    severity=Severity.ADVICE,
    confidence=Confidence.HIGH,
    source="Linux listen(2): a larger backlog is silently capped to net.core.somaxconn",
    refute="In a storm of new connections, with somaxconn raised, as many are refused or retried as before.",
)
def queue_is_capped(evidence: Evidence) -> Iterator[Match]:
    """The kernel caps the server's queue of new connections below what the server asked for.

    A client that connects while the queue is full is ignored, and retries after a second. Storms of connections
    come when an application restarts or a proxy fails over, not during a measurement.
    """
    asked = evidence.number("back_log")
    allowed = int(evidence.sysctl("net.core.somaxconn"))
    if allowed >= asked:
        return
    yield Match(
        "",
        f"back_log is {asked:,.0f}, but net.core.somaxconn allows {allowed:,}.",
        (number("back_log", f"{asked:,.0f}"), number("net.core.somaxconn", f"{allowed:,}")),
        (
            Remedy(
                {"host.net.core.somaxconn": max(LONG_QUEUE, int(asked))},
                ("The queue length is set when the server starts to listen: restart it.",),
            ),
        ),
    )


@rule(
    "TCP02",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux listen(2); Documentation/networking/snmp_counter.rst, TcpExtListenOverflows",
    refute="With a longer queue, ListenOverflows grows as fast: accepting is too slow.",
)
def connections_refused(evidence: Evidence) -> Iterator[Match]:
    """New connections are dropped because a server's accept queue is full.

    The client gets no answer, and retries after one second, then two: that is the connect time that users see.
    """
    overflows = evidence.rate("snmp", "TcpExt.ListenOverflows")
    if overflows < SOME_REFUSED_S:
        return
    allowed = int(evidence.sysctl("net.core.somaxconn"))
    settings: dict[str, Value] = {"host.net.core.somaxconn": max(LONG_QUEUE, 4 * allowed)}
    asked = None
    if evidence.has_variable("back_log"):
        asked = int(evidence.number("back_log"))
        settings["server.back_log"] = max(LONG_QUEUE, 4 * asked)
    yield Match(
        "",
        f"{overflows:,.1f} connections/s found a full queue; somaxconn is {allowed:,}, back_log "
        f"{f'{asked:,}' if asked is not None else 'unknown'}.",
        (
            number("ListenOverflows/s", f"{overflows:,.2f}"),
            number("net.core.somaxconn", allowed),
            number("back_log", asked if asked is not None else "unknown"),
        ),
        (
            Remedy(settings, label="a longer queue"),
            Remedy(
                steps=("Keep connections in the application, or put a pool in front of the server.",),
                label="fewer new connections",
            ),
        ),
        None if overflows >= REFUSED_S else Severity.COST,
    )


@rule(
    "TCP03",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/snmp_counter.rst; RFC 6298, the retransmission timer",
    refute="On a path without loss, throughput and p99 are equivalent.",
)
def segments_lost(evidence: Evidence) -> Iterator[Match]:
    """Segments are retransmitted: the network loses packets.

    A small response has too few segments behind it to reveal its loss immediately, so it waits for a timeout. One
    lost segment in a hundred is enough to dominate the p99 of short statements.
    """
    sent = evidence.rate("snmp", "Tcp.OutSegs")
    again = evidence.rate("snmp", "Tcp.RetransSegs")
    if sent < FEW_SEGMENTS_S or again < RETRANSMITTED * sent:
        return
    timeouts = evidence.window.rate("snmp", "TcpExt.TCPTimeouts")
    yield Match(
        "",
        f"{share(again / sent)} of {sent:,.0f} segments/s are retransmitted.",
        (
            number("segments sent/s", f"{sent:,.0f}"),
            number("retransmitted/s", f"{again:,.1f}"),
            number("timeouts/s", f"{timeouts:,.1f}" if timeouts is not None else "unknown"),
        ),
        (
            Remedy(
                steps=(
                    "Find where: ip -s link and ethtool -S at both ends, ss -ti for the peers that lose "
                    "most.",
                    "Check drops on this host first (NET02, NET06), then the path, its MTU and its switches.",
                )
            ),
        ),
    )


@rule(
    "TCP04",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux tcp(7), tcp_slow_start_after_idle; RFC 6928",
    refute="With tcp_slow_start_after_idle 0, p99 of large responses is equivalent over the real path.",
)
def slow_start_after_idle(evidence: Evidence) -> Iterator[Match]:
    """Idle connections return to slow start, and responses exceed the initial window.

    After a pause a connection may send ten segments and then waits a round trip for more. On persistent
    connections with large responses that is one or more round trips per response; inside one rack they are too
    short to see.
    """
    if evidence.sysctl("net.ipv4.tcp_slow_start_after_idle") != "1":
        return
    statements = evidence.status_rate("questions")
    fresh = evidence.status_rate("connections")
    if statements <= 0 or fresh * REQUESTS_A_CONNECTION > statements:
        return
    answer = evidence.status_rate("bytes_sent") / statements
    if answer < INITIAL_WINDOW_BYTES:
        return
    yield Match(
        "",
        f"the mean response is {size(answer)}, {answer / INITIAL_WINDOW_BYTES:.1f} times the initial window, "
        f"and a connection serves {statements / max(fresh, 1e-9):,.0f} statements or more.",
        (
            number("bytes an answer", f"{answer:,.0f}"),
            number("first window, bytes", f"{INITIAL_WINDOW_BYTES:,}"),
            number("new connections/s", f"{fresh:,.2f}"),
        ),
        (Remedy({"host.net.ipv4.tcp_slow_start_after_idle": 0}),),
    )


@rule(
    "TCP05",
    severity=Severity.RISK,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/ip-sysctl.rst, ip_local_port_range and tcp_tw_reuse",
    refute="At twice this rate to one destination, no connect fails with EADDRNOTAVAIL.",
)
def ports_run_out(evidence: Evidence) -> Iterator[Match]:
    """This host opens so many connections that ports to one destination may run out.

    The side that closes first holds the port for a minute. If all ports of the range are held, the next connect to
    the same address and port fails. This concerns the side that connects: an application, a proxy.
    """
    opened = evidence.rate("snmp", "Tcp.ActiveOpens")
    low, high = (int(text) for text in evidence.sysctl("net.ipv4.ip_local_port_range").split())
    ports = high - low + 1
    held = opened * TIME_WAIT_S
    if held < PORTS_HELD * ports:
        return
    yield Match(
        "",
        f"{opened:,.0f} connects/s hold up to {held:,.0f} of {ports:,} ports for a minute, if all go to one "
        "destination.",
        (
            number("connects/s", f"{opened:,.0f}"),
            number("ports", f"{ports:,}"),
            number("net.ipv4.tcp_tw_reuse", evidence.facts.sysctl("net.ipv4.tcp_tw_reuse") or "unknown"),
        ),
        (
            Remedy(
                steps=("Keep connections: a pool in the application, persistent ones in the proxy.",),
                label="pool",
            ),
            Remedy({"host.net.ipv4.ip_local_port_range": "1024 65535"}, label="more ports"),
            Remedy({"host.net.ipv4.tcp_tw_reuse": 1}, label="reuse"),
        ),
    )


@rule(
    "TCP06",
    severity=Severity.RISK,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/ip-sysctl.rst, tcp_max_syn_backlog and tcp_syncookies",
    refute="With a longer queue, as many connection requests are dropped or answered with cookies.",
)
def half_open_queue_full(evidence: Evidence) -> Iterator[Match]:
    """The queue of half-open connections is full.

    With cookies the connection still succeeds, but without some of its options; without them it is dropped and
    retried a second later. The cause may be a storm of clients, or an attack.
    """
    dropped = evidence.rate("snmp", "TcpExt.TCPReqQFullDrop")
    cookies = evidence.rate("snmp", "TcpExt.TCPReqQFullDoCookies")
    if dropped + cookies <= 0:
        return
    queue = int(evidence.sysctl("net.ipv4.tcp_max_syn_backlog"))
    yield Match(
        "",
        f"{dropped:,.1f} connection requests/s are dropped and {cookies:,.1f} answered with cookies; "
        f"tcp_max_syn_backlog is {queue:,}.",
        (
            number("TCPReqQFullDrop/s", f"{dropped:,.2f}"),
            number("TCPReqQFullDoCookies/s", f"{cookies:,.2f}"),
            number("net.ipv4.tcp_max_syn_backlog", queue),
        ),
        (
            Remedy(
                {
                    "host.net.ipv4.tcp_max_syn_backlog": max(LONG_QUEUE, 4 * queue),
                    "host.net.core.somaxconn": max(LONG_QUEUE, int(evidence.sysctl("net.core.somaxconn"))),
                },
                ("The listener's own backlog also bounds this queue: raise back_log, then restart.",),
            ),
        ),
    )
