"""Rules about replicas: how far they are behind, and what holds them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.base.model import Value, Vendor
from headrace.hunt.rules.evidence import GIB, Evidence, NotEnough, Number, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: The channel by which a member of a replication group catches up when it joins.
RECOVERY = "group_replication_recovery"
#: A lag above this is more than rounding.
LAG_S = 30.0
#: MySQL 8.0.27 made four the default, and replica_ names came a version before.
WORKERS = 4
REPLICA_NAMES = Versions(since="8.0.26")
#: A lag that cannot be: from the year 1970, or below zero as an unsigned number.
IMPOSSIBLE_S = 1e9
#: Relay log that was fetched but not applied.
RELAY_BYTES = 10 * GIB
#: A thread in the names of its columns, and errors that say what to look at.
WORDS = {"I/O": "io", "SQL": "sql"}
ERRORS = {
    1032: "a row that it has to change is not there",
    1045: "access denied",
    1062: "a row that it has to insert is there already",
    1236: "the source does not have the log that it asks for",
    2003: "the source cannot be reached",
}

#: State of the I/O thread that writes what it has received, and the share of the samples in which it is the limit.
QUEUEING, OFTEN = "queueing", 0.5
#: Of a file of the replica: it is synced each time that this many events were written to it. 10,000 by default.
SYNCED = ("sync_relay_log", "sync_source_info", "sync_master_info")
FEW_EVENTS, DEFAULT_EVENTS = 100, 10_000

#: Without it the server refuses the change, or makes it wait for the next start of the applier.
RESTART_APPLIER = "STOP REPLICA SQL_THREAD; SET GLOBAL {} = {}; START REPLICA SQL_THREAD"

_STATUS = "MySQL Reference Manual, SHOW REPLICA STATUS; MariaDB, SHOW REPLICA STATUS"


def _channels(evidence: Evidence) -> list[str]:
    """The replica's channels; empty if the server is not a replica. Raises NotEnough if it was not queried."""
    sampled = evidence.window.labels("replication", "sql_running")
    # What a replica says of itself may be all that is known of the server.
    told = evidence.settings.get("replication") if evidence.has_server or not sampled else None
    if not sampled and told is None:
        raise NotEnough("the server was not queried for its replication status")
    if not sampled and told:
        raise NotEnough("the replica's positions were not sampled (sampler replication)")
    return sampled


def _last(evidence: Evidence, metric: str, channel: str) -> float | None:
    return evidence.window.last("replication", metric, channel)


def _lag(evidence: Evidence, channel: str) -> float:
    """Seconds behind, beyond the delay that was asked for (MASTER_DELAY, SOURCE_DELAY)."""
    found = evidence.window.gauge("replication", "lag_s", channel)
    if found is not None and found.low >= IMPOSSIBLE_S:
        raise NotEnough(f"the server reports a lag of {found.low:,.0f} s, which cannot be: a clock was set")
    if found is None:
        running = [_last(evidence, f"{thread}_running", channel) for thread in ("io", "sql")]
        if all(running) and not channel.startswith("group_replication_"):
            raise NotEnough("the server does not say how far the replica is behind, though its threads run")
        return 0.0
    return max(found.low - (_last(evidence, "delay_s", channel) or 0.0), 0.0)


def _workers(evidence: Evidence) -> tuple[str, float | None]:
    """The variable of this version for parallel apply, and its value; None if nobody said it."""
    if not evidence.has_server:
        return "its number of appliers", None
    if evidence.vendor is Vendor.MARIADB:
        name = "slave_parallel_threads"
    elif evidence.version in REPLICA_NAMES:
        name = "replica_parallel_workers"
    else:
        name = "slave_parallel_workers"
    return name, evidence.number(name) if evidence.has_variable(name) else None


def _is_behind_its_relay_log(evidence: Evidence, channel: str) -> bool:
    """Whether events that were fetched wait to be applied."""
    read = (_last(evidence, "read_file", channel), _last(evidence, "read_position_bytes", channel))
    done = (_last(evidence, "exec_file", channel), _last(evidence, "exec_position_bytes", channel))
    return None not in (*read, *done) and (read[0] or 0, read[1] or 0) > (done[0] or 0, done[1] or 0)


@rule(
    "REPL01",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source=_STATUS,
    refute="With the fix for its bottleneck, the lag grows as before.",
)
def behind(evidence: Evidence) -> Iterator[Match]:
    """A replica is behind its source in what it applies.

    If the relay log holds events that are not yet applied, the applier is the bottleneck: one thread, rows without
    a key, or the device. A lag that appears every night with a job is caused by that job's statements. The server
    measures lag from the last event that it fetched, so a replica that fetches too slowly shows a lag of 0; only a
    comparison of its position with the source's reveals it.
    """
    for channel in _channels(evidence):
        lag = _lag(evidence, channel)
        if lag < LAG_S:
            continue
        is_apply = _is_behind_its_relay_log(evidence, channel)
        io = evidence.window.rate("psi", "some_total_us", "io") if evidence.has_host else None
        name, workers = _workers(evidence)
        waits_for_device = is_apply and io is not None and io / 1e6 >= 0.25
        says = "apply-bound" if is_apply else "for an unknown reason"
        if waits_for_device:
            says += ", and tasks wait for I/O"
        steps = ["Look for large transactions and for tables without a primary key; make its flushes faster."]
        if not is_apply:
            steps = ["Check SHOW REPLICA STATUS: positions, states and errors."]
        elif workers is not None and workers < WORKERS:
            # No setting: a running applier refuses it (MariaDB) or goes on as before (MySQL).
            steps.insert(0, f"Apply with more threads: {RESTART_APPLIER.format(name, WORKERS)}.")
        delay = _last(evidence, "delay_s", channel) or 0.0
        yield Match(
            channel,
            f"the replica is at least {lag:,.0f} s behind, {says}; {name} is "
            + (f"{workers:.0f}." if workers is not None else "unknown."),
            (
                number("lag beyond the configured delay, minimum", f"{lag:,.0f} s"),
                number("configured delay", f"{delay:,.0f} s"),
                number("relay log", size(_last(evidence, "relay_space_bytes", channel) or 0)),
                number(name, workers if workers is not None else "unknown", ".0f"),
                number("tasks waited for I/O", f"{(io or 0) / 1e4:.0f}%" if io is not None else "unknown"),
            ),
            (Remedy(steps=tuple(steps)),),
        )


@rule(
    "REPL02",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=_STATUS,
    refute="The thread was stopped on purpose.",
)
def stopped(evidence: Evidence) -> Iterator[Match]:
    """A replication thread is not running.

    The replica falls behind from now on; if the source expires its binary logs, it can never catch up. A thread
    that has no error was stopped by somebody, as for a backup, or not started after the server was.
    """
    for channel in _channels(evidence):
        threads = {"I/O": "io_running", "SQL": "sql_running"}
        values = {thread: _last(evidence, metric, channel) for thread, metric in threads.items()}
        dead = [thread for thread, value in values.items() if value == 0]
        # A member of a group recovers when it joins, and never again.
        if not dead or channel == RECOVERY:
            continue
        why, numbers, on_purpose = _why_stopped(evidence, channel, dead)
        yield Match(
            channel,
            f"the replica's {' and '.join(dead)} thread{'s' if len(dead) > 1 else ''} "
            f"{'are' if len(dead) > 1 else 'is'} not running{why}.",
            (
                *(
                    number(f"{thread} thread", "running" if value else "not running")
                    for thread, value in values.items()
                ),
                *numbers,
            ),
            (
                Remedy(
                    steps=(
                        "Read Last_IO_Error and Last_SQL_Error of SHOW REPLICA STATUS, and the error log.",
                        "Do not skip an event that you do not understand: the replica would differ from then "
                        "on.",
                    )
                    if not on_purpose
                    else ("If nobody stopped it on purpose: START REPLICA.",)
                ),
            ),
            Severity.ADVICE if on_purpose else None,
        )


def _why_stopped(
    evidence: Evidence, channel: str, dead: Sequence[str]
) -> tuple[str, tuple[Number, ...], bool]:
    """The errors of threads that do not run, as words and numbers; and whether there are none: on purpose."""
    rows = evidence.settings.get("replication") or () if evidence.has_server else ()
    told: Mapping[str, Any] = next((row for row in rows if row.get("channel") == channel), {})
    errors = {thread: told.get(f"last_{WORDS[thread]}_errno") for thread in dead}
    if any(error is None for error in errors.values()):
        return "", (), False
    numbers = tuple(number(f"last error of the {thread} thread", error) for thread, error in errors.items())
    is_connecting = "I/O" in dead and told.get("io_running") in ("Connecting", "Preparing")
    said = [
        f"error {error}" + (f" ({ERRORS[error]})" if error in ERRORS else "")
        for error in dict.fromkeys(errors.values())
        if error
    ]
    if said:
        return f": {' and '.join(said)}", numbers, False
    if is_connecting:
        return ": it is still connecting", numbers, False
    return ", without an error: stopped by somebody, or not started", numbers, True


@rule(
    "REPL03",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Replication and Row Searches",
    refute="With a primary key, the replica applies the same transactions in the same time.",
)
def rows_without_key(evidence: Evidence) -> Iterator[Match]:
    """A lagging replica has tables without a primary key: it searches for each changed row.

    With row-based replication, the replica looks for every changed row, at worst with a scan per row.
    """
    channels = _channels(evidence)
    count = evidence.settings.get("tables_without_primary_key")
    if count is None:
        raise NotEnough("the server did not report how many tables have no primary key")
    late = [channel for channel in channels if _lag(evidence, channel) >= LAG_S]
    if not late or not count:
        return
    lag = max(_lag(evidence, channel) for channel in late)
    yield Match(
        "",
        f"{count} tables have no primary key, and the replica is {lag:,.0f} s behind.",
        (
            number("tables without a primary key", count),
            number("lag, minimum", f"{lag:,.0f} s"),
        ),
        (Remedy(steps=("Add a primary key to those that change: an invisible one is enough.",)),),
    )


@rule(
    "REPL04",
    severity=Severity.RISK,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, relay_log_space_limit; SHOW REPLICA STATUS, Relay_Log_Space",
    refute="The relay log shrinks on its own, and its file system has room for days of it.",
)
def relay_log_grows(evidence: Evidence) -> Iterator[Match]:
    """The relay log takes many gigabytes.

    These events were fetched and wait to be applied. A full file system stops the replica, and the server too if
    its data is on it.
    """
    for channel in _channels(evidence):
        space = _last(evidence, "relay_space_bytes", channel)
        if space is None or space < RELAY_BYTES:
            continue
        yield Match(
            channel,
            f"the relay log takes {size(space)}.",
            (number("relay log", size(space)), number("limit", evidence.variable("relay_log_space_limit"))),
            (
                Remedy(
                    steps=(
                        "Make applying faster (see what limits it), or limit the relay log: "
                        "relay_log_space_limit.",
                    )
                ),
            ),
        )


@rule(
    "REPL05",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Making Replication Resilient to Unexpected Halts; relay_log_recovery",
    refute="GTID positions are used and relay logs are fetched again after a crash.",
)
def relay_log_not_recovered(evidence: Evidence) -> Iterator[Match]:
    """After a crash the replica trusts relay logs that may be torn.

    With relay_log_recovery the replica discards them and fetches them again from the last applied position. With
    GTIDs (MASTER_AUTO_POSITION, SOURCE_AUTO_POSITION; MariaDB's MASTER_USE_GTID) it does so anyway.
    """
    if not _channels(evidence) or evidence.is_on("relay_log_recovery"):
        return
    told = evidence.settings.get("replication") or ()
    if told and all(channel.get("is_by_gtid") for channel in told):
        return
    yield Match(
        "",
        "relay_log_recovery is off on a replica.",
        (number("relay_log_recovery", "OFF"), number("sync_relay_log", evidence.variable("sync_relay_log"))),
        (Remedy({"server.relay_log_recovery": True}),),
    )


@rule(
    "REPL14",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Replica Server Options and Variables: sync_relay_log, sync_source_info, "
    "relay_log_recovery; MariaDB, Replication and Binary Log System Variables; Replication I/O Thread States",
    refute="With 10000, the replica fetches as many bytes of its source's log per second.",
)
def each_event_is_synced(evidence: Evidence) -> Iterator[Match]:
    """A replica syncs its relay log, or its position, after every few events, and fetches no faster than that.

    An event is a part of a transaction, so this costs several syncs for each. The lag that the server reports
    stays near 0: it is measured from the last event that was fetched. With relay_log_recovery, and with
    MariaDB's GTID positions, the relay log is fetched again after a crash, and syncing it protects nothing.
    """
    channels = _channels(evidence)
    if not channels:
        return
    few = {
        name: evidence.number(name)
        for name in SYNCED
        if evidence.has_variable(name) and 0 < evidence.number(name) < FEW_EVENTS
    }
    # MySQL shows the same variable under its old name, too.
    if "sync_source_info" in few:
        few.pop("sync_master_info", None)
    samples = max(len(evidence.window.values("replication", "sql_running", c)) for c in channels)
    states = (name for name in evidence.window.labels("replication", "io_state") if QUEUEING in name.lower())
    seen = sum(len(evidence.window.values("replication", "io_state", name)) for name in states)
    if not few or seen < OFTEN * samples:
        return
    fetched = sum(evidence.window.rate("replication", "read_position_bytes", c) or 0.0 for c in channels)
    settings: dict[str, Value] = {f"server.{name}": DEFAULT_EVENTS for name in few}
    if not evidence.is_on("relay_log_recovery"):
        settings["server.relay_log_recovery"] = True
    shown = " and ".join(f"{name} is {value:.0f}" for name, value in few.items())
    yield Match(
        "",
        f"the replica writes what it has received {share(min(seen / samples, 1.0))} of the time, and {shown}; it "
        f"fetches {size(max(fetched, 0.0))}/s.",
        (
            *(number(name, value, ".0f") for name, value in few.items()),
            number("samples in which it writes its relay log", share(min(seen / samples, 1.0))),
            number("fetched per second", size(max(fetched, 0.0))),
            number("relay_log_recovery", evidence.variable("relay_log_recovery")),
        ),
        (_fewer_syncs(evidence, settings),),
    )


def _fewer_syncs(evidence: Evidence, settings: dict[str, Value]) -> Remedy:
    """For a person where a source relies on it: what such a replica acknowledges must survive a power cut."""
    names = ("rpl_semi_sync_replica_enabled", "rpl_semi_sync_slave_enabled")
    if any(evidence.has_variable(name) and evidence.is_on(name) for name in names):
        return Remedy(
            steps=(
                "This replica acknowledges commits (semi-sync): without the syncs an acknowledged transaction is "
                "lost if both hosts lose power. Give the relay log a device that syncs faster, or accept that and "
                f"set {', '.join(name.partition('.')[2] for name in settings)}.",
            )
        )
    return Remedy(settings)
