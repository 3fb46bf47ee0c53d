"""Rules about logins: how often clients connect, what a login costs, and connections that break."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.model import Vendor
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share
from headrace.hunt.rules.locks import looks
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Logins per second above which their cost shows: each takes several round trips and about 0.1 ms of CPU.
LOGINS_S = 100.0
#: Statements per connection below which a login is a large part of the work.
FEW_STATEMENTS = 10.0
#: Sessions that log in at any moment, on average: a login should take less than a millisecond.
LOGGING_IN = 1.0
#: The state of a session before the server has its client's name; MariaDB: then it is "Reading from net" until the
#: client sends its login. MySQL: as long as the login lasts, with its handshake.
NAMELESS = "login"
#: Seconds that no handshake takes, also on a busy host; a resolver that does not answer takes five.
LONG_LOGIN_S = 1.0
#: CPU time of a full TLS handshake with a 2,048-bit key, and the part of the host's CPUs that is worth a word.
HANDSHAKE_CPU_S, OF_THE_CPUS = 0.001, 0.02
#: CPUs for handshakes that are many on a server of any size.
MANY_HANDSHAKES = 0.2
#: Sessions that execute init_connect on average, and seconds of each: a few statements should take less than a
#: millisecond per login.
STARTING, START_S = 1.0, 0.005
#: Threads of MariaDB's process list that are no connections.
NO_CONNECTIONS = ("Daemon", "Slave_IO", "Slave_SQL", "Slave_worker")
#: Connections per second that end without saying so: more than restarts of applications.
BROKEN_S = 1.0

_STATUS = "MySQL Reference Manual, Server Status Variables"


def _logins(evidence: Evidence) -> float:
    return evidence.status_rate("connections")


@rule(
    "SESS14",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_STATUS}, Connections, Questions; MySQL Reference Manual, Connection Interfaces",
    refute="With a connection pool in the application, throughput and p99 are equivalent.",
)
def clients_connect_for_each_statement(evidence: Evidence) -> Iterator[Match]:
    """Clients open a new connection every few statements.

    A login costs round trips, a thread, authentication and often TLS before the first statement runs. No server
    setting removes that cost; a connection pool in the application does.
    """
    logins, questions = _logins(evidence), evidence.status_rate("questions")
    if evidence.vendor is Vendor.MARIADB and evidence.window.labels("replication", "sql_running"):
        # One for each batch that it deletes from mysql.gtid_slave_pos: 44/s at 2,200 transactions/s on 10.11.
        raise NotEnough("a MariaDB replica also counts its own internal sessions in Connections")
    if logins < LOGINS_S or questions >= FEW_STATEMENTS * logins:
        return
    yield Match(
        "",
        f"clients connect {logins:,.0f} times per second for {questions:,.0f} statements/s: "
        f"{questions / logins:.1f} per connection.",
        (
            number("Connections/s", logins, ",.1f"),
            number("Questions/s", questions, ",.1f"),
            number("Threads_created/s", evidence.status_rate("threads_created"), ",.1f"),
        ),
        (
            Remedy(
                steps=(
                    "Keep connections open: a pool in the application, persistent connections, or a proxy.",
                )
            ),
        ),
    )


@rule(
    "SESS15",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, DNS Lookups and the Host Cache; skip_name_resolve; MariaDB, Host Cache",
    refute="With skip_name_resolve on, as many sessions are logging in, and connecting takes as long.",
)
def logins_wait_for_names(evidence: Evidence) -> Iterator[Match]:
    """Sessions wait in the login while the server resolves the names of its clients.

    The server asks DNS for the name of every address that it does not know, and for the address of that name. With
    a slow or unreachable resolver each login takes seconds, and the connections reach max_connections.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    if evidence.is_on("skip_name_resolve"):
        return
    if "processlist" not in evidence.window.samplers():
        raise NotEnough("the process list was not sampled")
    waiting = evidence.window.values("processlist", "states", NAMELESS)
    mean = float(waiting.sum()) / looks(evidence)
    is_long = evidence.vendor is Vendor.MARIADB or mean >= LONG_LOGIN_S * _logins(evidence)
    if mean < LOGGING_IN or not is_long:
        return
    yield Match(
        "",
        f"{mean:.1f} sessions are logging in at any time, for {_logins(evidence):,.1f} logins/s, and "
        "skip_name_resolve is off.",
        (
            number("sessions logging in, mean", mean, ".1f"),
            number("Connections/s", _logins(evidence), ",.1f"),
            number("host_cache_size", evidence.variable("host_cache_size")),
        ),
        (
            Remedy(
                {"server.skip_name_resolve": True},
                (
                    "First replace host names in accounts by addresses: SELECT user, host FROM mysql.user "
                    "WHERE host RLIKE '[a-z]' AND host <> 'localhost'; otherwise these accounts cannot log "
                    "in.",
                ),
            ),
        ),
    )


@rule(
    "SESS16",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_STATUS}, Ssl_finished_accepts, Ssl_session_cache_hits; OpenSSL, openssl-speed",
    refute="With connections kept, or without TLS inside the host, CPU time and p99 are equivalent.",
)
def handshakes_take_cpu(evidence: Evidence) -> Iterator[Match]:
    """Clients make many full TLS handshakes per second.

    A handshake signs with the server's private key: about a millisecond of CPU for RSA with 2,048 bits, a
    tenth of that for ECDSA. Encrypting the statements themselves costs little.
    """
    full = evidence.status_rate("ssl_finished_accepts") - evidence.status_rate("ssl_session_cache_hits")
    # Where their number is unknown, a fifth of one is much for this.
    if HANDSHAKE_CPU_S * full < (OF_THE_CPUS * evidence.cpus if evidence.cpus else MANY_HANDSHAKES):
        return
    yield Match(
        "",
        f"clients make {full:,.0f} full TLS handshakes/s, which take about {HANDSHAKE_CPU_S * full:.1f} CPUs "
        "with a 2,048-bit RSA key.",
        (
            number("Ssl_finished_accepts/s", evidence.status_rate("ssl_finished_accepts"), ",.1f"),
            number("of them resumed/s", evidence.status_rate("ssl_session_cache_hits"), ",.1f"),
            number("Connections/s", _logins(evidence), ",.1f"),
        ),
        (
            Remedy(
                steps=("Keep connections open: a pool in the application or a proxy near it.",),
                label="fewer logins",
            ),
            Remedy(
                steps=(
                    "Use an ECDSA key, and clients that resume sessions (MySQL 8.0.29: ssl_session_cache_mode); "
                    "on the same host connect over the socket.",
                ),
                label="cheaper handshakes",
            ),
        ),
    )


@rule(
    "SESS17",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Communication Errors and Aborted Connections: Aborted_clients",
    refute="With the cause removed, connections per second and throughput are equivalent.",
)
def connections_break(evidence: Evidence) -> Iterator[Match]:
    """Established connections keep breaking.

    Either clients leave without closing the connection, or something ends it: a short wait_timeout, a packet
    larger than max_allowed_packet, or a proxy that gives up first. Each costs the client an error or a reconnect,
    and rolls back its open transaction.
    """
    broken, logins = evidence.status_rate("aborted_clients"), _logins(evidence)
    if broken < BROKEN_S:
        return
    yield Match(
        "",
        f"{broken:,.1f} connections/s end without being closed "
        f"({share(min(broken / max(logins, broken), 1.0))} of "
        "the logins).",
        (
            number("Aborted_clients/s", broken, ",.1f"),
            number("Connections/s", logins, ",.1f"),
            number("wait_timeout", f"{evidence.variable('wait_timeout')} s"),
            number("max_allowed_packet", evidence.variable("max_allowed_packet")),
        ),
        (
            Remedy(
                steps=(
                    "The error log names them (log_error_verbosity=3; MariaDB: log_warnings=4): timeout, packet "
                    "too large, or an error while reading.",
                    "Close connections in the application; set the pool's lifetime below wait_timeout.",
                )
            ),
        ),
    )


@rule(
    "SESS19",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Server System Variables: init_connect; MariaDB, sql_parse.cc, "
    "execute_init_command(): a session without its socket, which the process list leaves out",
    refute="With init_connect empty, connecting takes as long.",
)
def logins_execute_statements(evidence: Evidence) -> Iterator[Match]:
    """Sessions execute the statements of init_connect before they may do anything else.

    The server executes them at each login of an account that is no administrator, so whoever tests it as root sees
    nothing. What waits or reads much there delays every connection, and their threads stay until it is done.
    """
    logins = evidence.settings.get("init_connect")
    if logins is None:
        raise NotEnough("the server did not report the statements of init_connect")
    if not logins:
        return
    threads, rate = _starting(evidence, logins), _logins(evidence)
    if threads < max(STARTING, START_S * rate):
        return
    yield Match(
        "",
        f"{threads:.1f} sessions execute init_connect at any time, for {rate:,.1f} logins/s: {'; '.join(logins)}.",
        (
            number("sessions in init_connect, mean", threads, ".1f"),
            number("Connections/s", rate, ",.1f"),
            number(
                "a login, mean", f"{1e3 * threads / rate:,.0f} ms" if rate else "unknown: none was counted"
            ),
            *(number("statement", each) for each in logins),
        ),
        (
            Remedy(
                steps=(
                    "Take out of init_connect what waits or reads tables; character set and SQL mode have their "
                    "own variables.",
                    "Log logins with an audit plugin, or server_audit_events=CONNECT, in place of an INSERT.",
                ),
                label="cheaper logins",
            ),
            Remedy(
                steps=("Keep connections open: a pool in the application or a proxy near it.",),
                label="fewer logins",
            ),
        ),
    )


def _starting(evidence: Evidence, logins: list[str]) -> float:
    """Sessions that execute these classes of statements: seen at it, or in MariaDB connected and not listed."""
    activity = evidence.activity
    if evidence.vendor is not Vendor.MARIADB:
        if activity is None or not activity.looks:
            raise NotEnough("the process list was not sampled")
        return sum(activity.threads(each) for each in activity.classes if each.text in logins)
    if "PROCESS" in (evidence.settings.get("privileges_missing") or ()):
        raise NotEnough("the account sees only its own sessions: it lacks the privilege PROCESS")
    if "processlist" not in evidence.window.samplers():
        raise NotEnough("the process list was not sampled")
    listed = {
        command: evidence.window.values("processlist", "threads", command)
        for command in evidence.window.labels("processlist", "threads")
    }
    known = sum(float(values.sum()) for command, values in listed.items() if command not in NO_CONNECTIONS)
    # The session that samples is connected, and not in its own list.
    return evidence.gauge("mysql_status", "threads_connected").mean - 1 - known / looks(evidence)
