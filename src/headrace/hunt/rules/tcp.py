"""Rules about connections: how they are accepted, kept and closed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headrace.base.model import Value
from headrace.hunt.resources import REFUSED_S
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share, size
from headrace.hunt.rules.locks import states
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.segments import RETRANSMITTED, lost_segments

#: Share of the connections that may be in TIME_WAIT at once.
TIME_WAIT_FULL = 0.9
#: The default of somaxconn since Linux 5.4: listen(2).
LONG_QUEUE = 4_096
LONGEST_QUEUE = 65_535
ACCEPTS_SLOWLY = (
    "The queue is already at its maximum length: find what keeps the server from accepting connections.",
)
#: Ports that database servers and clusters listen on, which no outgoing connection may take.
#: MySQL, its X protocol and its administrative port; Galera: state transfer, replication, incremental transfer.
DATABASE_PORTS = (3306, 33060, 33062, 4444, 4567, 4568)
#: Above the ports that most services listen on.
FIRST_PORT, LAST_PORT = 10_000, 65_535
#: Refused connections per second that are more than one burst per minute.
SOME_REFUSED_S = 0.1
#: Logins per second of clients that connect all the time.
CONNECTING_S = 1.0
#: Below this many segments per second a share of them means nothing.
FEW_SEGMENTS_S = 100.0
#: Ten segments of 1,460 bytes: what a connection may send at once after it was idle (RFC 6928).
INITIAL_WINDOW_BYTES = 14_600
#: Connections are kept, and so idle between requests, if a new one comes less than once in this many requests.
REQUESTS_A_CONNECTION = 100.0
#: Of a buffer about half is data in flight: the kernel's records of received packets take the rest, and behind
#: what is sent waits as much again.
OF_A_BUFFER = 0.5
#: What a connection may have in flight without window scaling (RFC 7323).
UNSCALED_BYTES = 65_535
#: Direction -> the sysctl that bounds the buffer, and the maximum that the kernel sets on a host of 1 GiB or more.
BUFFERS = {"sent": ("tcp_wmem", 4 << 20), "received": ("tcp_rmem", 6 << 20)}
#: Bytes per second that are worth a larger buffer.
MUCH_TRAFFIC_S = 1e6
#: States of sessions that wait for the other end: MySQL's names and MariaDB's.
AT_THE_SOCKET = {
    "sent": ("sending to client", "writing to net"),
    "received": ("receiving from client", "reading from net"),
}
#: Sessions in them that are no chance, and their share of the active ones above which work mostly waits there.
SESSIONS_WAIT, MOSTLY = 1.0, 0.5
#: How long a closed connection holds its port: TCP_TIMEWAIT_LEN of the kernel, which no setting changes.
TIME_WAIT_S = 60.0
#: Share of the ports to one destination above which the next burst may find none.
PORTS_HELD = 0.5


@rule(
    "TCP01",
    severity=Severity.HOUSEKEEPING,
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
    allowed = evidence.sysctl_number("net.core.somaxconn")
    if allowed >= asked:
        return
    yield Match(
        "",
        f"back_log is {asked:,.0f}, but net.core.somaxconn allows {allowed:,}.",
        (number("back_log", asked, ",.0f"), number("net.core.somaxconn", allowed, ",")),
        (
            Remedy(
                {"host.net.core.somaxconn": _length(evidence)},
                ("The queue length is set when the server starts to listen: restart it.",),
            ),
        ),
    )


@rule(
    "TCP02",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux listen(2); Documentation/networking/snmp_counter.rst, TcpExtListenOverflows; sock_diag(7)",
    refute="With a longer queue, ListenOverflows grows as fast: accepting is too slow.",
)
def connections_refused(evidence: Evidence) -> Iterator[Match]:
    """New connections are dropped because an accept queue is full.

    The client gets no answer, and retries after one second, then two: that is the connect time that users see. The
    counter covers the whole host; the queues of the ports show which program is affected.
    """
    overflows = evidence.rate("snmp", "TcpExt.ListenOverflows")
    if overflows < SOME_REFUSED_S:
        return
    allowed = evidence.sysctl_number("net.core.somaxconn")
    own = evidence.variable("port") if evidence.has_variable("port") else ""
    # A burst fills a queue for milliseconds: samples may all miss it.
    full = _full_queues(evidence) or _shortest_queue(evidence, own)
    asked = int(evidence.number("back_log")) if evidence.has_variable("back_log") else None
    fewer = Remedy(
        steps=("Keep connections in the application, or put a pool in front of the server.",),
        label="fewer new connections",
    )
    numbers = (
        number("ListenOverflows/s", overflows, ",.2f"),
        number("net.core.somaxconn", allowed),
        number("back_log", asked if asked is not None else "unknown"),
        *(
            number(f"port {port}, queue and its limit", f"{was:.0f}, {most:.0f}")
            for port, (was, most) in full.items()
        ),
    )
    for port, (was, most) in full.items():
        is_own = port == own
        whose = "the server's queue" if is_own else f"the queue of another program, on port {port},"
        shown = f"{whose} of {most:.0f} was full"
        if was < most:
            shown = f"probably {whose} of {most:.0f}, the shortest of all"
        yield Match(
            port,
            f"{overflows:,.1f} connections/s found a full queue on this host: {shown}.",
            numbers,
            (_longer_queue(evidence, allowed, asked or 0), fewer)
            if is_own
            else (Remedy(steps=(f"Raise the backlog of the program that listens on port {port}.",)),),
            None if is_own and overflows >= REFUSED_S else Severity.COST,
        )
    if not full:
        yield Match(
            "",
            f"{overflows:,.1f} connections/s found a full accept queue on this host; which program's queue "
            "is unknown.",
            numbers,
            (Remedy(steps=("Find the port while it happens: ss -lnt, where Recv-Q exceeds Send-Q.",)),),
            Severity.COST,
        )


def _queues(evidence: Evidence) -> Iterator[tuple[str, tuple[float, float]]]:
    """Port, the longest accept queue seen, and its limit; a port may have several addresses."""
    for label in evidence.window.labels("listen", "queue"):
        queue, limit = (evidence.window.gauge("listen", metric, label) for metric in ("queue", "queue_limit"))
        if queue is not None and limit is not None:
            yield label.rpartition(":")[2], (queue.high, limit.high)


def _full_queues(evidence: Evidence) -> dict[str, tuple[float, float]]:
    """Those that were full in a sample."""
    return {port: (queue, limit) for port, (queue, limit) in _queues(evidence) if 0 < limit <= queue}


def _shortest_queue(evidence: Evidence, own: str) -> dict[str, tuple[float, float]]:
    """The server's, if clients connect to it all the time and no other program's limit is as low."""
    logins = evidence.window.rate("mysql_status", "connections") or 0.0
    mine = [queue for port, queue in _queues(evidence) if port == own]
    others = [limit for port, (_, limit) in _queues(evidence) if port != own]
    if not mine or logins < CONNECTING_S:
        return {}
    shortest = min(mine, key=lambda queue: queue[1])
    return {own: shortest} if shortest[1] < min(others, default=math.inf) else {}


def _length(evidence: Evidence) -> int:
    """The one length that every rule asks for: what the server asked for, and room for what is there and what was
    refused in a second; the server's back_log ends at 65,535."""
    allowed = evidence.sysctl_number("net.core.somaxconn")
    asked = int(evidence.number("back_log")) if evidence.has_variable("back_log") else 0
    refused = evidence.window.rate("snmp", "TcpExt.ListenOverflows") or 0.0
    room = 1 << int(min(allowed, asked or allowed) + refused).bit_length() if refused > 0 else 0
    return min(max(LONG_QUEUE, allowed, asked, room), LONGEST_QUEUE)


def _longer_queue(evidence: Evidence, allowed: int, asked: int) -> Remedy:
    wanted = _length(evidence)
    settings: dict[str, Value] = {}
    if wanted > allowed:
        settings["host.net.core.somaxconn"] = wanted
    if wanted > asked:
        settings["server.back_log"] = wanted
    restart = ("The queue length is set when the server starts to listen: restart it.",)
    return Remedy(settings, restart if settings else ACCEPTS_SLOWLY, label="a longer queue")


@rule(
    "TCP03",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/snmp_counter.rst; RFC 6298, the retransmission timer; RFC 2883, D-SACK",
    refute="On a path without loss, throughput and p99 are equivalent.",
)
def segments_lost(evidence: Evidence) -> Iterator[Match]:
    """Segments are retransmitted: the network loses packets.

    A small response has too few segments behind it to reveal its loss immediately, so it waits for a timeout. One
    lost segment in a hundred is enough to dominate the p99 of short statements. Segments that the peer received
    twice are not counted as lost.
    """
    sent = evidence.rate("snmp", "Tcp.OutSegs")
    again = evidence.rate("snmp", "Tcp.RetransSegs")
    lost = lost_segments(evidence.window) or 0.0
    if sent < FEW_SEGMENTS_S or lost < RETRANSMITTED * sent:
        return
    timeouts = evidence.window.rate("snmp", "TcpExt.TCPTimeouts")
    yield Match(
        "",
        f"{share(lost / sent)} of {sent:,.0f} segments/s are lost and retransmitted.",
        (
            number("segments sent/s", sent, ",.0f"),
            number("retransmitted/s", again, ",.1f"),
            number("of those received twice", share(1 - lost / again)),
            number("timeouts/s", "unknown" if timeouts is None else timeouts, ",.1f"),
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
            number("bytes per response", answer, ",.0f"),
            number("initial window, bytes", INITIAL_WINDOW_BYTES, ","),
            number("new connections/s", fresh, ",.2f"),
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
    low, high = evidence.sysctl_numbers("net.ipv4.ip_local_port_range", 2)
    ports = high - low + 1
    held = opened * TIME_WAIT_S
    if held < PORTS_HELD * ports:
        return
    yield Match(
        "",
        f"{opened:,.0f} connects/s hold up to {held:,.0f} of {ports:,} ports for a minute, if all go to one "
        "destination.",
        (
            number("connects/s", opened, ",.0f"),
            number("ports", ports, ","),
            number("net.ipv4.tcp_tw_reuse", evidence.facts.sysctl("net.ipv4.tcp_tw_reuse") or "unknown"),
        ),
        (
            Remedy(
                steps=(
                    "Keep connections open: a pool in the application, persistent connections in the proxy.",
                ),
                label="pool",
            ),
            *_more_ports(evidence, low, high),
            Remedy({"host.net.ipv4.tcp_tw_reuse": 1}, label="reuse"),
        ),
    )


def _more_ports(evidence: Evidence, low: int, high: int) -> tuple[Remedy, ...]:
    """A wider range, after the ports of services are taken out of it: an outgoing connection that holds one keeps
    its service from starting."""
    reserved = evidence.facts.sysctl("net.ipv4.ip_local_reserved_ports")
    if reserved is None or (low <= FIRST_PORT and high >= LAST_PORT):
        return ()
    ports = {int(label.rpartition(":")[2]) for label in evidence.window.labels("listen", "queue")}
    ports |= set(DATABASE_PORTS)
    if evidence.has_variable("port"):
        ports.add(int(evidence.number("port")))
    for part in filter(None, reserved.split(",")):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            ports |= set(range(int(first), min(int(last or first), LAST_PORT) + 1))
    return (
        Remedy(
            {
                "host.net.ipv4.ip_local_reserved_ports": _ranges(ports),
                "host.net.ipv4.ip_local_port_range": f"{min(low, FIRST_PORT)} {max(high, LAST_PORT)}",
            },
            label="more ports",
        ),
    )


def _ranges(ports: set[int]) -> str:
    """As the kernel prints them: ``{3306, 4567, 4568}`` -> ``3306,4567-4568``."""
    firsts = [port for port in sorted(ports) if port > 0 and port - 1 not in ports]
    lasts = [port for port in sorted(ports) if port > 0 and port + 1 not in ports]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


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
    queue = evidence.sysctl_number("net.ipv4.tcp_max_syn_backlog")
    yield Match(
        "",
        f"{dropped:,.1f} connection requests/s are dropped and {cookies:,.1f} answered with cookies; "
        f"tcp_max_syn_backlog is {queue:,}.",
        (
            number("TCPReqQFullDrop/s", dropped, ",.2f"),
            number("TCPReqQFullDoCookies/s", cookies, ",.2f"),
            number("net.ipv4.tcp_max_syn_backlog", queue),
        ),
        (
            Remedy(
                {
                    "host.net.ipv4.tcp_max_syn_backlog": max(LONG_QUEUE, 4 * queue),
                    "host.net.core.somaxconn": _length(evidence),
                },
                ("The listener's own backlog also bounds this queue: raise back_log, then restart.",),
            ),
        ),
    )


@rule(
    "TCP07",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/ip-sysctl.rst, tcp_wmem, tcp_rmem and tcp_window_scaling; RFC 7323",
    refute="With the kernel's own maximum, throughput and p99 of large responses are equivalent.",
)
def window_smaller_than_a_response(evidence: Evidence) -> Iterator[Match]:
    """Socket buffers are capped below the size of one response or request.

    The server's thread then sleeps in the middle of a response until the client has acknowledged its beginning:
    once per round trip, with its locks and snapshot held. The kernel sizes buffers by itself up to a maximum,
    which old guides for hosts with little memory lower; without window scaling it ends at 64 KiB.
    """
    statements = evidence.status_rate("questions")
    if statements <= 0:
        return
    has_scaling = evidence.facts.sysctl("net.ipv4.tcp_window_scaling") != "0"
    for way, (name, usual) in BUFFERS.items():
        bytes_s = evidence.status_rate(f"bytes_{way}")
        counter = "tx_bytes" if way == "sent" else "rx_bytes"
        carried = sum(evidence.window.rates("network", counter).values())
        least, default, most = evidence.sysctl_numbers(f"net.ipv4.{name}", 3)
        window = OF_A_BUFFER * most if has_scaling else min(OF_A_BUFFER * most, UNSCALED_BYTES)
        mean = bytes_s / statements
        # Most of it over a socket file needs no TCP.
        if (
            bytes_s < MUCH_TRAFFIC_S
            or carried < bytes_s / 2
            or window >= mean
            or window >= OF_A_BUFFER * usual
        ):
            continue
        wanted = max(usual, 1 << int(mean / OF_A_BUFFER).bit_length())
        settings: dict[str, Value] = {}
        if OF_A_BUFFER * most < mean:
            settings[f"host.net.ipv4.{name}"] = f"{least} {default} {wanted}"
        if not has_scaling:
            settings["host.net.ipv4.tcp_window_scaling"] = 1
        what = "response" if way == "sent" else "request"
        waiting = sum(mean for state, mean in states(evidence).items() if state.lower() in AT_THE_SOCKET[way])
        # One running thread is the sampler's own.
        is_most = waiting >= MOSTLY * (evidence.running - 1)
        yield Match(
            way,
            f"a {what} has {size(mean)} on average, and a connection may have {size(window)} in flight: it takes "
            f"{mean / window:,.1f} round trips; {waiting:.1f} sessions wait in one.",
            (
                number(f"bytes per {what}", mean, ",.0f"),
                number(f"net.ipv4.{name}", f"{least} {default} {most}"),
                number("net.ipv4.tcp_window_scaling", int(has_scaling)),
                number(f"Bytes_{way}/s", bytes_s, ",.0f"),
                number("sessions that wait for the other end, mean", waiting, ".1f"),
            ),
            (Remedy(settings, ("It takes effect for new connections.",)),),
            None if waiting < SESSIONS_WAIT else Severity.LIMIT if is_most else Severity.COST,
        )


@rule(
    "TCP08",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux Documentation/networking/ip-sysctl.rst, tcp_max_tw_buckets; net/ipv4/tcp_minisocks.c "
    "(TCPTimeWaitOverflow)",
    refute="With a higher tcp_max_tw_buckets no connection is refused or reset that was not before.",
)
def time_wait_is_full(evidence: Evidence) -> Iterator[Match]:
    """So many closed connections wait for stray packets that the kernel has no room for more.

    The side that closes first keeps the connection in TIME_WAIT for a minute. Beyond the limit the kernel forgets
    it at once, and a late packet of the old connection may reset a new one on the same ports.
    """
    over = evidence.window.rate("snmp", "TcpExt.TCPTimeWaitOverflow")
    waiting = evidence.window.gauge("sockstat", "TCP.tw")
    has_limit = evidence.facts.sysctl("net.ipv4.tcp_max_tw_buckets") is not None
    limit = evidence.sysctl_number("net.ipv4.tcp_max_tw_buckets") if has_limit else None
    if over is None and (waiting is None or limit is None):
        raise NotEnough("connections in TIME_WAIT were not counted")
    is_near = waiting is not None and limit is not None and waiting.high >= TIME_WAIT_FULL * limit
    if not (over or 0.0) >= REFUSED_S and not is_near:
        return
    held = "unknown" if waiting is None else f"{waiting.high:,.0f}"
    yield Match(
        "",
        f"{held} closed connections are in TIME_WAIT, of {limit or 'an unknown number'} that may be; "
        f"{over or 0.0:,.0f}/s more find no room.",
        (
            *(() if waiting is None else (number("in TIME_WAIT", waiting.high, ",.0f"),)),
            number("net.ipv4.tcp_max_tw_buckets", limit or "unknown"),
            number("without room, per second", over or 0.0, ",.1f"),
        ),
        (
            Remedy(
                steps=(
                    "Keep connections open: a pool in the application, persistent connections in the proxy. "
                    "Whoever closes first holds them.",
                    "Else raise net.ipv4.tcp_max_tw_buckets: each takes about a quarter of a KiB.",
                )
            ),
        ),
        None if (over or 0.0) >= REFUSED_S else Severity.RISK,
    )
