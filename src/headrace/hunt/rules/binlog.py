"""Rules about the binary log: its size, how long it is kept, how many commits share a sync."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.model import Value, Vendor
from headrace.hunt.rules.evidence import MIB, Evidence, number, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Commits per second, and running threads, above which several commits could share a sync.
COMMITS_S = 100.0
RUNNING = 8.0
#: Mean commits per group below which group commit does next to nothing.
FEW_IN_GROUP = 1.5
#: The first step of the wait: some 100 us, about a sync of a fast device.
DELAY_US = 100
#: A wait that is longer than a sync of a fast device; sessions in it on average, and as a share of those at work.
LONG_US, WAITING, MOST = 1_000.0, 0.5, 0.5
#: Bytes of binary log per row changed, and per second, above which many columns must be unchanged.
WIDE_ROW = 1_024.0
LOGGED_S = 4.0 * MIB
#: A week: long enough for a replica that was down over a weekend, and for a restore from yesterday's backup.
WEEK_S = 604_800


def _logged(evidence: Evidence) -> float:
    """Transactions per second in the binary log. Com_commit does not count those that commit by themselves."""
    if evidence.vendor is Vendor.MARIADB:
        return evidence.status_rate("binlog_commits")
    return evidence.status_rate("binlog_cache_use") + evidence.status_rate("binlog_stmt_cache_use")


@rule(
    "BLOG01",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="MySQL Reference Manual, binlog_group_commit_sync_delay; MariaDB, Binary Log Group Commit",
    refute="With the wait, throughput is lower, or p99 rises by more than the wait.",
    disputed="Waiting slows every commit and can still raise total throughput: it depends on the load.",
)
def commits_share_no_sync(evidence: Evidence) -> Iterator[Match]:
    """Many transactions commit concurrently, and each needs its own sync.

    Group commit lets transactions that arrive together share a sync. A short wait makes the groups larger if syncs
    are slow and clients are many; with few clients it only delays commits. Durability is unchanged.
    """
    if not evidence.is_on("log_bin") or evidence.variable("sync_binlog") != "1":
        return
    running = evidence.running
    commits = _logged(evidence)
    settings: dict[str, Value]
    if evidence.vendor is Vendor.MARIADB:
        groups = evidence.status_rate("binlog_group_commits")
        waits = evidence.number("binlog_commit_wait_count")
        settings = {
            "server.binlog_commit_wait_usec": DELAY_US,
            "server.binlog_commit_wait_count": int(running),
        }
    else:
        groups = evidence.status_rate("innodb_os_log_fsyncs")
        waits = evidence.number("binlog_group_commit_sync_delay")
        settings = {"server.binlog_group_commit_sync_delay": DELAY_US}
    if commits < COMMITS_S or running < RUNNING or waits > 0 or commits >= FEW_IN_GROUP * groups:
        return
    yield Match(
        "",
        f"{commits:,.0f} commits/s in {groups:,.0f} groups, with {running:.0f} threads running.",
        (
            number("commits/s", commits, ",.0f"),
            number("groups or syncs of the log/s", groups, ",.0f"),
            number("threads running, mean", running, ".1f"),
        ),
        (Remedy(settings),),
    )


def _waited_us(evidence: Evidence, commits: float) -> tuple[str, float]:
    """The variable that makes commits wait for others, and how long a commit waits for it on average."""
    if evidence.vendor is Vendor.MARIADB:
        name, most = "binlog_commit_wait_usec", evidence.number("binlog_commit_wait_usec")
        if evidence.number("binlog_commit_wait_count") <= 0:
            return name, 0.0
        # Other groups went on as soon as they had enough transactions.
        timed_out = evidence.status_rate("binlog_group_commit_trigger_timeout")
        return name, most * min(timed_out / max(evidence.status_rate("binlog_group_commits"), 1e-9), 1.0)
    name = "binlog_group_commit_sync_delay"
    enough = evidence.number("binlog_group_commit_sync_no_delay_count")
    if 0 < enough <= commits / max(evidence.status_rate("innodb_os_log_fsyncs"), 1e-9):
        return name, 0.0
    # It waits only before it syncs, and without syncs before each group.
    return name, evidence.number(name) / max(evidence.number("sync_binlog"), 1.0)


@rule(
    "BLOG04",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, binlog_group_commit_sync_delay; sql/binlog.cc, ordered_commit(): engines "
    "commit after the wait; MariaDB, Group Commit for the Binary Log: binlog_commit_wait_usec",
    refute="Without the wait, commits per second and their p99 are equivalent.",
)
def commits_wait_on_purpose(evidence: Evidence) -> Iterator[Match]:
    """Each commit waits for others on purpose, longer than a sync takes.

    A wait lets more transactions share a sync. One of milliseconds is longer than the sync itself on a fast
    device: a client waits as long for each of its commits, and the rows that it changed stay locked until then.
    """
    if not evidence.is_on("log_bin"):
        return
    commits = _logged(evidence)
    name, each_us = _waited_us(evidence, commits)
    waiting = commits * each_us / 1e6
    if each_us < LONG_US or waiting < WAITING:
        return
    # One running thread is the sampler's own.
    running = evidence.running - 1
    off = name if evidence.vendor is not Vendor.MARIADB else "binlog_commit_wait_count"
    yield Match(
        "",
        f"{name} is {evidence.number(name):,.0f} us: {commits:,.0f} commits/s wait {each_us / 1e3:,.1f} ms each "
        f"for others to share their sync; {waiting:,.1f} sessions do so at any time.",
        (
            number(name, f"{evidence.number(name):,.0f} us"),
            number("transactions in the binary log/s", commits, ",.1f"),
            number("sessions that wait, mean", waiting, ",.1f"),
            number("threads running, mean", running + 1, ".1f"),
            number("sync_binlog", evidence.variable("sync_binlog")),
        ),
        (Remedy({f"server.{off}": 0}),),
        Severity.LIMIT if waiting >= MOST * running else None,
    )


@rule(
    "BLOG02",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="MySQL Reference Manual, binlog_row_image; MariaDB, Replication and Binary Log System Variables",
    refute="With MINIMAL, bytes of binary log per second, throughput and replica lag are equivalent.",
    applies_to={Vendor.MARIADB: Versions()},
    disputed="Less is written and sent, but consumers of the log (change capture, flashback) may need full "
    "rows.",
)
def whole_rows_logged(evidence: Evidence) -> Iterator[Match]:
    """The binary log records full rows, and is large for the number of rows changed.

    With binlog_row_image=MINIMAL it records only the key and the changed columns.
    """
    if not evidence.is_on("log_bin") or evidence.variable("binlog_row_image") != "FULL":
        return
    if evidence.variable("binlog_format") == "STATEMENT":
        return
    logged = evidence.status_rate("binlog_bytes_written")
    rows = sum(evidence.status_rate(f"handler_{kind}") for kind in ("update", "delete"))
    # A new row is logged whole whatever the image is: where most are new, nothing would be saved.
    if evidence.status_rate("handler_write") > rows:
        return
    if logged < LOGGED_S or rows <= 0 or logged / rows < WIDE_ROW:
        return
    yield Match(
        "",
        f"{size(logged)} of binary log per second, {size(logged / rows)} per row updated or deleted.",
        (
            number("Binlog_bytes_written/s", size(logged)),
            number("rows updated and deleted/s", rows, ",.0f"),
            number("binlog_format", evidence.variable("binlog_format")),
        ),
        (Remedy({"server.binlog_row_image": "MINIMAL"}),),
    )


@rule(
    "BLOG03",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, binlog_expire_logs_seconds and binlog_expire_logs_auto_purge; MariaDB, "
    "binlog_expire_logs_seconds; slave_connections_needed_for_purge (11.4, 1 by default)",
    refute="Something else purges the binary logs.",
)
def never_expires(evidence: Evidence) -> Iterator[Match]:
    """Binary logs never expire.

    Eventually their file system fills up, and then every transaction waits. Expiry considers neither replicas nor
    backups: a replica whose next file is gone must be rebuilt. MariaDB 11.4 and later purge nothing while fewer
    replicas are connected than slave_connections_needed_for_purge, so a server without replicas keeps all its
    files.
    """
    if not evidence.is_on("log_bin"):
        return
    names = [n for n in ("binlog_expire_logs_seconds", "expire_logs_days") if evidence.has_variable(n)]
    switch = "binlog_expire_logs_auto_purge"
    is_manual = evidence.has_variable(switch) and not evidence.is_on(switch)
    limits = [n for n in (*names, "max_binlog_total_size") if evidence.has_variable(n)]
    missing = _replicas_missing(evidence)
    if any(evidence.number(name) > 0 for name in limits) and not is_manual:
        if missing:
            yield _waits_for_replicas(evidence, missing, limits)
        return
    name, value = (
        ("binlog_expire_logs_seconds", WEEK_S) if names[:1] != ["expire_logs_days"] else (names[0], 7)
    )
    why = f"{switch} is OFF" if is_manual else f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} 0"
    yield Match(
        "",
        f"the binary log is on, and {why}.",
        tuple(number(n, evidence.variable(n)) for n in (*names, *((switch,) if is_manual else ()))),
        # No setting: it would remove files as soon as the log rotates.
        (
            Remedy(
                steps=(
                    "Find the oldest file that is still needed by any replica, running or stopped (its "
                    "Relay_Source_Log_File or Relay_Master_Log_File), or to recover from the oldest backup.",
                    f"Then keep more than that: SET GLOBAL {name} = {value}, or longer"
                    + (f", and {switch} = ON." if is_manual else "."),
                ),
                is_faster=False,
            ),
        ),
    )


NEEDED = "slave_connections_needed_for_purge"


def _replicas_missing(evidence: Evidence) -> int:
    """How many replicas are not connected that MariaDB wants to see before it purges anything."""
    if not evidence.has_variable(NEEDED):
        return 0
    return max(int(evidence.number(NEEDED) - evidence.gauge("mysql_status", "slaves_connected").high), 0)


def _waits_for_replicas(evidence: Evidence, missing: int, limits: list[str]) -> Match:
    needed = evidence.number(NEEDED)
    connected = int(needed) - missing
    return Match(
        "",
        f"the binary log is on, but nothing is purged: {connected} "
        f"{'replica is' if connected == 1 else 'replicas are'} connected, and "
        f"{NEEDED} is {needed:.0f}.",
        (
            number(NEEDED, needed, ".0f"),
            number("Slaves_connected, maximum", str(connected)),
            *(number(name, evidence.variable(name)) for name in limits),
        ),
        (
            Remedy(
                steps=(
                    "If a replica is only offline, bring it back: the files that it needs are kept.",
                    "If no replica is missing, check that the oldest backup needs no older file, then SET "
                    f"GLOBAL {NEEDED} = 0, which purges immediately.",
                ),
                is_faster=False,
            ),
        ),
    )
