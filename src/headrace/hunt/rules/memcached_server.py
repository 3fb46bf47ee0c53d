"""Rules about memcached as a server: connections, threads, its queue, its limits, and who can reach it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.hunt.caches import (
    MANUAL,
    PROTOCOL,
    by_hand,
    growth,
    known,
    last,
    look,
    of_each,
    rate,
    setting,
    setting_number,
)
from headrace.hunt.memcached import Cache
from headrace.hunt.rules.evidence import Evidence, NotEnough, Number, number
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.users import TICKS_PER_SECOND

#: Share of the connections that may be open at which the next burst is refused.
NEAR = 0.9
#: The beginning of what ``ask`` says of a server that refuses us, too.
REFUSES = "it refuses connections"
#: How often a connection gives up its turn: per second, and per request. With turns of 20 requests it is at most
#: one in 20, and this where most come in batches of 50 and more.
YIELDS_S, YIELDS = 1.0, 0.03
#: New connections per second, and requests that each is used for, below which connecting costs more than asking.
CONNECTING_S, REQUESTS_A_CONNECTION = 50.0, 10.0
#: Share of its threads' time that a server works, from which on requests queue for a worker.
BUSY = 0.8
DEFAULT_THREADS = 4
#: CPUs of a worker thread that has no time left, and of the others beside it.
FULL_THREAD, IDLE_THREAD = 0.85, 0.5
#: The longest queue of new connections that is worth it.
LONGEST_QUEUE = 65_535
LOOPBACK = ("127.", "::1", "localhost")


@rule(
    "MEMC20",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=f"{PROTOCOL}: max_connections, rejected_connections, listen_disabled_num; {MANUAL}, -c, maxconns_fast",
    refute="With a larger -c, as many connections are refused.",
)
def connections_are_used_up(evidence: Evidence) -> Iterator[Match]:
    """Connections are refused, or nearly all are taken.

    Above -c a new connection is closed with an error, or with no_maxconns_fast waits until another one closes:
    clients see timeouts while the server itself is idle. The limit is for all worker threads together.
    """

    def check(cache: Cache) -> Iterator[Match]:
        # The files that it has open itself are taken off the limit: memcached.c, conn_new and drive_machine.
        most = (cache.last("max_connections") or setting_number(cache, "maxconns")) - 1
        most -= cache.last("reserved_fds") or 0.0
        gauge = cache.window.gauge("memcached", "curr_connections", cache.name)
        if gauge is None:
            raise NotEnough(f"{cache.name}: curr_connections was not read")
        rejected = cache.growth("rejected_connections") or 0.0
        disabled = cache.growth("listen_disabled_num") or 0.0
        is_refused = rejected > 0 or disabled > 0
        if not is_refused and gauge.high < NEAR * most:
            return
        said = f"{rejected + disabled:,.0f} were refused or had to wait in the window" if is_refused else ""
        yield Match(
            cache.name,
            f"{cache.name} has {gauge.last:,.0f} of {most:,.0f} connections open"
            + (f"; {said}." if said else "."),
            (
                number("curr_connections", gauge.last, ",.0f"),
                number("usable of max_connections", most, ",.0f"),
                number("rejected_connections", rejected, ",.0f"),
                number("listen_disabled_num", disabled, ",.0f"),
                *_of_clients(cache),
            ),
            _more_connections(cache),
            Severity.LIMIT if is_refused else None,
        )

    refusing = [cache for cache in known(evidence) if cache.why.startswith(REFUSES)]
    yield from of_each(evidence, check, known_already=map(_refusing, refusing))


def _refusing(cache: Cache) -> Match:
    """Of one that refused us, too."""
    files = cache.process.get("nofile_soft")
    return Match(
        cache.name,
        f"{cache.name} refuses connections: all of -c are taken.",
        (number("answer", cache.why), number("open files allowed", "unknown" if files is None else files)),
        _more_connections(cache),
        Severity.LIMIT,
    )


def _more_connections(cache: Cache) -> tuple[Remedy, ...]:
    return (
        by_hand(
            "Start it with a larger -c; LimitNOFILE of its unit must allow as many files.",
            f"See who holds them: {look(cache, 'conns')}",
            label="more connections",
        ),
        by_hand("Share connections in the client, or put mcrouter on the clients' hosts.", label="fewer"),
        by_hand("Close those of clients that are gone: -o idle_timeout=3600.", label="idle ones"),
    )


def _of_clients(cache: Cache) -> Iterator[Number]:
    """Who has most connections, and the longest silence of one."""
    peers = cache.connections.get("peers") or {}
    if peers:
        most = max(peers, key=lambda peer: peers[peer])
        yield number(f"from {most}", peers[most], ",.0f")
    idle = cache.connections.get("longest_idle_s")
    if idle is not None:
        yield number("longest silent, s", idle, ",.0f")


@rule(
    "MEMC21",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{PROTOCOL}: conn_yields; {MANUAL}, -R",
    refute="With a larger -R, conn_yields stop and p99 of the other connections is worse.",
)
def connections_yield(evidence: Evidence) -> Iterator[Match]:
    """Connections give up their turn because they send many requests at once.

    After reqs_per_event requests of one connection a worker serves its others first. A client that sends hundreds
    of requests in one go, or multigets as single gets, waits for several turns; with a larger -R the others wait.
    """

    def check(cache: Cache) -> Iterator[Match]:
        yields, requests = rate(cache, "conn_yields"), cache.requests_s or 0.0
        if yields < YIELDS_S or yields < YIELDS * requests:
            return
        turn = setting(cache, "reqs_per_event")
        yield Match(
            cache.name,
            f"{cache.name}: connections give up their turn {yields:,.0f} times/s, after {turn} requests each.",
            (
                number("conn_yields/s", yields, ",.1f"),
                number("requests/s", requests, ",.0f"),
                number("reqs_per_event", turn),
            ),
            (
                by_hand("Start it with a larger -R, such as -R 100, and compare p99.", label="longer turns"),
                by_hand("Ask for many keys with one multiget instead of many gets.", label="multiget"),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC22",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{PROTOCOL}: total_connections",
    refute="With connections kept, neither CPU per request nor p99 changes.",
)
def clients_connect_all_the_time(evidence: Evidence) -> Iterator[Match]:
    """Clients open a connection for a few requests.

    Opening one costs several times as much as a get on both hosts, one round trip more, and a port for a minute.
    New connections come through one thread of memcached.
    """

    def check(cache: Cache) -> Iterator[Match]:
        opened, requests = rate(cache, "total_connections"), cache.requests_s
        if requests is None or opened < CONNECTING_S or requests >= REQUESTS_A_CONNECTION * opened:
            return
        yield Match(
            cache.name,
            f"{cache.name}: {opened:,.0f} connections/s are opened, for {requests / opened:,.1f} requests each.",
            (
                number("connections opened/s", opened, ",.1f"),
                number("requests/s", requests, ",.1f"),
                number("curr_connections", last(cache, "curr_connections"), ",.0f"),
                *_of_clients(cache),
            ),
            (
                by_hand(
                    "Keep connections in the client: persistent connections in PHP, a pool elsewhere, or "
                    "mcrouter on the clients' hosts.",
                    f"See from where they come: {look(cache, 'conns')}",
                ),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC23",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{MANUAL}, -t; proc_pid_stat(5)",
    refute="With more threads, requests/s and p99 are equivalent.",
)
def threads_are_busy(evidence: Evidence) -> Iterator[Match]:
    """All worker threads are busy while CPUs are idle.

    memcached uses at most one CPU for each of its threads, of which it starts four. Requests wait for a thread,
    and no resource of the host shows it.
    """

    def check(cache: Cache) -> Iterator[Match]:
        threads, cpus = last(cache, "threads"), cache.cpus
        if cpus is None:
            raise NotEnough(f"{cache.name}: the CPU time of its process was not sampled")
        if cpus < BUSY * threads or threads >= len(evidence.cores):
            return
        requests = cache.requests_s
        yield Match(
            cache.name,
            f"{cache.name} uses {cpus:.1f} CPUs with {threads:.0f} threads, on {len(evidence.cores)} CPUs.",
            (
                number("CPUs used", cpus, ".2f"),
                number("threads", threads, ",.0f"),
                number("CPUs", len(evidence.cores)),
                number("requests/s", "unknown" if requests is None else requests, ",.0f"),
            ),
            (by_hand(f"Start it with -t {len(evidence.cores)}, and fewer if the interrupts need CPUs."),),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC24",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source=f"{MANUAL}, -t: more threads than CPUs are of no use; memcached, doc/threads.txt",
    refute="With as many threads as CPUs, p99 and requests/s are equivalent.",
)
def threads_outnumber_cpus(evidence: Evidence) -> Iterator[Match]:
    """There are more worker threads than CPUs that they may run on.

    A thread that is not running may hold the lock of an item or of a list that the others wait for. Where a CPU
    mask is the reason, as taskset or CPUAffinity of the unit set it, the other CPUs stay idle.
    """

    def check(cache: Cache) -> Iterator[Match]:
        threads, cpus = last(cache, "threads"), len(evidence.cores)
        allowed = _count(str(cache.process.get("cpus_allowed_list") or "")) or cpus
        most = min(allowed, cpus)
        used = cache.cpus
        # Four are started unless told otherwise: on a small host that costs nothing while they have little to do.
        if threads <= most or (threads <= DEFAULT_THREADS and (used is None or used < BUSY * most)):
            return
        mask = cache.process.get("cpus_allowed_list")
        is_pinned = allowed < cpus
        where = f"the {allowed} CPUs that it may use ({mask}), of {cpus}" if is_pinned else f"{cpus} CPUs"
        yield Match(
            cache.name,
            f"{cache.name} has {threads:.0f} threads for {where}.",
            (
                number("threads", threads, ",.0f"),
                number("CPUs", cpus),
                number("CPUs allowed", f"{allowed} ({mask})" if mask else "unknown"),
                number("CPUs used", "unknown" if used is None else used, ".2f"),
            ),
            (
                *(
                    (by_hand("Lift the mask: CPUAffinity of its unit, or taskset.", label="mask"),)
                    if is_pinned
                    else ()
                ),
                by_hand(f"Start it with -t {most}.", label="threads"),
            ),
            Severity.COST if is_pinned and used is not None and used >= BUSY * allowed else None,
        )

    yield from of_each(evidence, check)


def _count(listed: str) -> int:
    """CPUs of a list such as ``0-3,8``; 0 if it is none."""
    found = 0
    for part in listed.split(","):
        first, _, end = part.strip().partition("-")
        if not first.isdecimal() or not (end or first).isdecimal():
            return 0
        found += int(end or first) - int(first) + 1
    return found


@rule(
    "MEMC25",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="memcached, thread.c: a connection goes to the next worker thread and stays there; proc_pid_task(5)",
    refute="With that connection's requests spread over several, its thread is as busy.",
)
def one_thread_does_the_work(evidence: Evidence) -> Iterator[Match]:
    """One worker thread is full while the others are idle.

    A connection stays with the thread that it was given to. A client that sends everything over one connection,
    as for one hot key or one large multiget, has one thread, and whoever shares that thread waits.
    """
    ticks = _threads(evidence)

    def check(cache: Cache) -> Iterator[Match]:
        own = ticks.get(cache.name)
        if own is None:
            several = f"{len(known(evidence))} memcached servers run here, and the threads are not told apart"
            raise NotEnough(several if len(known(evidence)) > 1 else "memcached's threads were not sampled")
        busiest, *others = sorted(own, reverse=True) or [0.0]
        count = last(cache, "threads")
        rest = sum(others) / max(count - 1, 1)
        if count < 2 or busiest < FULL_THREAD or rest > IDLE_THREAD:
            return
        yield Match(
            cache.name,
            f"One of the {count:.0f} threads of {cache.name} uses {busiest:.2f} CPUs, the others {rest:.2f} each.",
            (
                number("busiest thread, CPUs", busiest, ".2f"),
                number("others, CPUs", rest, ".2f"),
                number("connections", last(cache, "curr_connections"), ",.0f"),
                *_of_clients(cache),
            ),
            (
                by_hand(
                    "Use several connections in the client that sends most.",
                    "See which keys it asks for: the memcached command `watch fetchers`. A hot key may be kept in "
                    "the client for a second, or under several names.",
                ),
            ),
        )

    yield from of_each(evidence, check)


def _threads(evidence: Evidence) -> dict[str, list[float]]:
    """Server -> CPUs of each of its threads, where one memcached alone runs: labels do not tell whose they are."""
    found = known(evidence)
    user = evidence.window.rates("threads", "utime_ticks")
    system = evidence.window.rates("threads", "stime_ticks")
    named = {label: label.partition("/")[2] for label in user}
    # Older versions give their threads no names.
    own = [label for label, name in named.items() if name == "mc-worker"]
    own = own or [label for label, name in named.items() if name == "memcached"]
    if len(found) != 1 or not own:
        return {}
    return {found[0].name: [(user[label] + system.get(label, 0.0)) / TICKS_PER_SECOND for label in own]}


@rule(
    "MEMC26",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source=f"Linux listen(2): a larger backlog is silently capped to net.core.somaxconn; {MANUAL}, -b",
    refute="In a storm of new connections, with somaxconn raised, as many are refused or retried as before.",
)
def queue_is_capped(evidence: Evidence) -> Iterator[Match]:
    """The kernel caps the queue of new connections below what memcached asked for.

    When an application restarts, hundreds of its processes connect in the same second; whoever finds a full queue
    tries again a second later.
    """

    def check(cache: Cache) -> Iterator[Match]:
        asked = setting_number(cache, "tcp_backlog")
        allowed = evidence.sysctl_number("net.core.somaxconn")
        if allowed >= asked or cache.name.startswith("/"):
            return
        yield Match(
            cache.name,
            f"{cache.name} asked for a queue of {asked:,.0f}, but net.core.somaxconn allows {allowed:,}.",
            (number("tcp_backlog", asked, ",.0f"), number("net.core.somaxconn", allowed, ",")),
            (
                Remedy(
                    {"host.net.core.somaxconn": int(min(asked, LONGEST_QUEUE))},
                    ("The queue's length is set when memcached starts to listen: restart it.",),
                ),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC27",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux listen(2); Documentation/networking/snmp_counter.rst, TcpExtListenOverflows; sock_diag(7)",
    refute="With a longer queue, ListenOverflows grows as fast: accepting is too slow.",
)
def queue_overflows(evidence: Evidence) -> Iterator[Match]:
    """New connections are dropped because the queue of memcached's port is full.

    The client hears nothing and tries again after one second. One thread of memcached accepts connections: it is
    late when the host's CPUs are full, or when more come than -c allows.
    """

    def check(cache: Cache) -> Iterator[Match]:
        port = cache.name.rpartition(":")[2]
        if not port.isdecimal():
            return
        overflows = evidence.rate("snmp", "TcpExt.ListenOverflows")
        if overflows <= 0:
            return
        for label in evidence.window.labels("listen", "queue"):
            if label.rpartition(":")[2] != port:
                continue
            queue = evidence.gauge("listen", "queue", label).high
            limit = evidence.gauge("listen", "queue_limit", label).high
            if 0 < limit <= queue:
                yield Match(
                    cache.name,
                    f"{overflows:,.1f} connections/s found a full queue on this host: that of {cache.name}, "
                    f"of {limit:.0f}, was full.",
                    (
                        number("ListenOverflows/s", overflows, ",.2f"),
                        number("queue", queue, ",.0f"),
                        number("its limit", limit, ",.0f"),
                    ),
                    (
                        by_hand(
                            f"Start it with -b {min(int(limit) * 8, LONGEST_QUEUE)}; net.core.somaxconn must "
                            "allow it.",
                            label="longer queue",
                        ),
                        by_hand("Keep connections in the client.", label="fewer new connections"),
                    ),
                )
                return

    yield from of_each(evidence, check)


@rule(
    "MEMC28",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="CVE-2018-1000115; memcached 1.5.6 release notes: UDP is off by default",
    refute="Clients use UDP, and no packet with a forged sender reaches the port.",
)
def udp_is_open(evidence: Evidence) -> Iterator[Match]:
    """UDP is answered on an address that others reach.

    UDP has no handshake: a packet of 15 bytes with a forged sender is answered with up to megabytes to somebody
    else. Open caches were used for the largest attacks of their time, and the host's own network was full.
    """

    def check(cache: Cache) -> Iterator[Match]:
        port, listen = setting_number(cache, "udpport"), setting(cache, "inter")
        hosts = [each.strip("[] ") for each in listen.split(",")]
        if not port or cache.name.startswith("/") or all(each.startswith(LOOPBACK) for each in hosts):
            return
        where = "all addresses" if listen in ("", "NULL") else listen
        yield Match(
            cache.name,
            f"{cache.name} answers UDP on port {port:.0f} of {where}.",
            (number("udpport", port, ".0f"), number("listens on", where)),
            (by_hand(f"Start it with -U 0. Until then: nft or iptables, drop UDP to port {port:.0f}."),),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC29",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=f"{MANUAL}, -c; getrlimit(2), RLIMIT_NOFILE",
    refute="With all of -c connections open, none is refused for want of a file descriptor.",
)
def files_limit_connections(evidence: Evidence) -> Iterator[Match]:
    """The limit of open files allows fewer connections than -c.

    Each connection is a file descriptor. When they are used up, accepting fails, and memcached stops to listen
    until one is closed.
    """

    def check(cache: Cache) -> Iterator[Match]:
        most = setting_number(cache, "maxconns")
        files = cache.process.get("nofile_soft")
        if files is None:
            raise NotEnough(f"{cache.name}: its limit of open files was not read")
        if files >= most:
            return
        yield Match(
            cache.name,
            f"{cache.name} may have {most:,.0f} connections (-c) and {files:,.0f} open files.",
            (
                number("maxconns", most, ",.0f"),
                number("open files allowed", files, ","),
                number("curr_connections", last(cache, "curr_connections"), ",.0f"),
            ),
            (by_hand(f"Set LimitNOFILE={int(most) + 1024} in its unit (systemctl edit), and restart it."),),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC30",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{PROTOCOL}: read_buf_oom, response_obj_oom; {MANUAL}, read_buf_mem_limit",
    refute="With a larger limit, as many connections are closed.",
)
def buffers_run_out(evidence: Evidence) -> Iterator[Match]:
    """Connections are closed because their buffers reached read_buf_mem_limit.

    Each request in progress needs a buffer. Many connections with large or pipelined requests reach the limit at
    once, and clients see resets.
    """

    def check(cache: Cache) -> Iterator[Match]:
        failed = growth(cache, "read_buf_oom") + growth(cache, "response_obj_oom")
        if failed <= 0:
            return
        limit = cache.settings.get("read_buf_mem_limit", "unknown")
        held = last(cache, "read_buf_bytes") + last(cache, "response_obj_bytes")
        yield Match(
            cache.name,
            f"{cache.name} had no buffer {failed:,.0f} times in the window.",
            (
                number("read_buf_oom and response_obj_oom", failed, ",.0f"),
                number("read_buf_mem_limit, bytes", limit),
                number("buffers now, bytes", held, ",.0f"),
                number("connections", last(cache, "curr_connections"), ",.0f"),
            ),
            (
                by_hand(
                    "Start it with a larger -o read_buf_mem_limit (MiB), or without one.",
                    f"See it shrink: {look(cache)}",
                ),
            ),
        )

    yield from of_each(evidence, check)
