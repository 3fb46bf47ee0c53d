"""Rules about servers that work together: semi-synchronous replicas, appliers and their queues, Galera."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.counted import counted
from headrace.base.model import Value, Vendor
from headrace.hunt.rules import sizes
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share, size
from headrace.hunt.rules.locks import states
from headrace.hunt.rules.replication import RESTART_APPLIER
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Share of the samples in which the applier waits for room.
OFTEN = 0.5
#: Share of the time in which a cluster may not commit.
PAUSED = 0.05
#: Transactions per second above which a replica needs several workers to keep up.
MANY_COMMITS_S = 200.0
#: States of sessions in a commit: one waits for the replica, and those of its group and behind it for that one.
ACKNOWLEDGED = "semi-sync ack"
COMMITTING = ("waiting for handler commit", "waiting for prior transaction to commit")
#: Sessions that wait for the replica on average; those in a commit, as a share of all at work.
WAITS_FOR_REPLICA, MOSTLY = 0.5, 0.5
#: A member of a group has channels, too; which member may be written to is for the group to say.
OF_A_GROUP = "group_replication_"

_MYSQL_8 = Versions(since="8.0")
_STATES = "MySQL Reference Manual, Replication SQL Thread States; MariaDB, Slave SQL Thread States"
_SEMISYNC = (
    "MySQL Reference Manual, Semisynchronous Replication Monitoring; MariaDB, Semisynchronous Replication"
)


def _channels(evidence: Evidence) -> list[str]:
    """The channels of a replica, empty on a server that is none."""
    told = evidence.settings.get("replication")
    sampled = evidence.window.labels("replication", "sql_running")
    if not sampled and told is None:
        raise NotEnough("the server was not queried for its replication status")
    return sampled or [str(channel.get("channel") or "") for channel in told or ()]


def _named(evidence: Evidence, *names: str) -> str | None:
    """The first of these variables that this version has."""
    return next((name for name in names if evidence.has_variable(name)), None)


@rule(
    "REPL06",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=_SEMISYNC,
    refute="The source waits for acknowledgements again, and no replica is missing.",
)
def semi_sync_fell_back(evidence: Evidence) -> Iterator[Match]:
    """Semi-synchronous replication is on, but commits no longer wait for a replica.

    If no replica acknowledges in time, the source stops waiting, and reports that only in its error log. A
    transaction that a client saw committed is then lost if the source dies.
    """
    enabled = _named(evidence, "rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled")
    if enabled is None or not evidence.is_on(enabled):
        return
    name = enabled.removesuffix("_enabled")
    works = evidence.gauge("mysql_status", f"{name}_status").last
    alone = evidence.status_rate(f"{name}_no_tx")
    if works and alone <= 0:
        return
    clients = evidence.status(f"{name}_clients")
    timeout = evidence.number(f"{name}_timeout")
    yield Match(
        "",
        f"{alone:,.1f} commits/s are not acknowledged by any replica; {clients:.0f} semi-synchronous "
        "replicas are connected.",
        (
            number(f"{name}_status", "ON" if works else "OFF"),
            number(f"{name}_no_tx/s", alone, ",.2f"),
            number(f"{name}_clients", clients, ".0f"),
            number(f"{name}_timeout", f"{timeout:,.0f} ms"),
        ),
        (
            Remedy(
                steps=(
                    "Check the replica: is its I/O thread running, and is its own semi-sync setting on?",
                    "If it is connected but slow, its device must sync the relay log within the timeout. "
                    "With only one replica, a restart of it is enough to lose the guarantee.",
                ),
                is_faster=False,
            ),
        ),
    )


@rule(
    "REPL13",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_SEMISYNC}; MySQL Reference Manual, General Thread States",
    refute="With a replica near by that syncs faster, commits per second and their p99 are equivalent.",
)
def commits_wait_for_a_replica(evidence: Evidence) -> Iterator[Match]:
    """Commits wait for a semi-synchronous replica to acknowledge them.

    A commit then takes at least a round trip to the replica and a sync of its relay log. If the replica is far
    away, slow or gone, each commit waits, at most for the timeout; nothing on this host is busy meanwhile.
    """
    enabled = _named(evidence, "rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled")
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    if enabled is None or not evidence.is_on(enabled):
        return
    if "processlist" not in evidence.window.samplers():
        raise NotEnough("the process list was not sampled")
    found = {state.lower(): mean for state, mean in states(evidence).items()}
    waiting = sum(mean for state, mean in found.items() if ACKNOWLEDGED in state)
    # After the sync of a group one session waits for all of it.
    held = waiting + sum(mean for state, mean in found.items() if state.startswith(COMMITTING))
    # One running thread is the sampler's own.
    running = evidence.running - 1
    if waiting < WAITS_FOR_REPLICA or held < MOSTLY * running:
        return
    name = enabled.removesuffix("_enabled")
    each_us, timeout = _acknowledged_us(evidence, name), evidence.number(f"{name}_timeout")
    clients = evidence.status(f"{name}_clients")
    yield Match(
        "",
        f"{held:.1f} sessions wait for a replica to acknowledge a commit"
        + (f", {each_us / 1e3:,.1f} ms each" if each_us else "")
        + f"; the longest that they may wait is {timeout / 1e3:,.0f} s.",
        (
            number("waiting for a semi-synchronous replica", waiting, ".1f"),
            number("in a commit, with those behind it", held, ".1f"),
            number("a wait, mean", f"{each_us / 1e3:,.1f} ms" if each_us else "unknown: none has ended"),
            number(f"{name}_clients", clients, ".0f"),
            number(f"{name}_timeout", f"{timeout:,.0f} ms"),
        ),
        (
            Remedy(
                steps=(
                    "Check the replica: does it still acknowledge (its I/O thread, the network to it), and how "
                    "long does its device take to sync the relay log?",
                    "Let a replica near by acknowledge, with a fast device, and wait for one only. Without "
                    "semi-synchronous replication a commit can be lost with this host: that is not tuning.",
                )
            ),
        ),
    )


def _acknowledged_us(evidence: Evidence, name: str) -> float:
    """How long a transaction waited for its acknowledgement; 0 if none did, or none got it yet."""
    waits, time_us = (evidence.window.rate("mysql_status", f"{name}_tx_wait{end}") for end in ("s", "_time"))
    return time_us / waits if waits and time_us else 0.0


@rule(
    "REPL07",
    severity=Severity.RISK,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, read_only and super_read_only; MariaDB, read_only",
    refute="Clients write to this replica on purpose, and never to the same rows as the source.",
)
def replica_is_writable(evidence: Evidence) -> Iterator[Match]:
    """A replica accepts writes from clients.

    One statement sent to the wrong server is enough: from then on it differs from its source, and replication
    stops at the first row that no longer fits.
    """
    if all(channel.startswith(OF_A_GROUP) for channel in _channels(evidence)) or evidence.is_on("read_only"):
        return
    if evidence.has_variable("wsrep_on") and evidence.is_on("wsrep_on"):
        return  # a node of a cluster that is also a replica takes writes as all nodes do
    name = "super_read_only" if evidence.has_variable("super_read_only") else "read_only"
    writes = sum(evidence.status_rate(f"com_{kind}") for kind in ("insert", "update", "delete"))
    # Clients that write would fail from then on: a source that was promoted keeps its channels.
    remedy = Remedy(
        steps=(
            "Find the clients that write: the process list by user and host. If this server was promoted and "
            "should accept writes, remove its old source instead: RESET REPLICA ALL.",
            f"Otherwise send them to the source, and then SET GLOBAL {name} = ON.",
        ),
        is_faster=False,
    )
    if writes <= 0:
        remedy = Remedy({f"server.{name}": True}, is_faster=False)
    yield Match(
        "",
        f"read_only is off on a replica; {writes:,.1f} statements/s change data here.",
        (
            number("read_only", "OFF"),
            number("INSERT, UPDATE and DELETE/s", writes, ",.1f"),
        ),
        (remedy,),
    )


@rule(
    "REPL08",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, replica_preserve_commit_order; on by default from 8.0.27",
    refute="No reader of this replica depends on the source's commit order.",
    applies_to={Vendor.MYSQL: _MYSQL_8, Vendor.PERCONA: _MYSQL_8},
)
def workers_commit_in_any_order(evidence: Evidence) -> Iterator[Match]:
    """Several applier workers commit in a different order than the source.

    Readers see a later transaction without an earlier one. After a crash there are gaps in what was applied, and
    the replica cannot simply resume from its position.
    """
    keeps = _named(evidence, "replica_preserve_commit_order", "slave_preserve_commit_order")
    workers = _named(evidence, "replica_parallel_workers", "slave_parallel_workers")
    if not _channels(evidence) or keeps is None or workers is None:
        return
    if evidence.is_on(keeps) or evidence.number(workers) < 2:
        return
    yield Match(
        "",
        f"{evidence.number(workers):.0f} workers apply, and {keeps} is off.",
        (number(workers, evidence.number(workers), ".0f"), number(keeps, "OFF")),
        # No setting: it takes effect only with a start of the applier.
        (Remedy(steps=(f"{RESTART_APPLIER.format(keeps, 'ON')}.",), is_faster=False),),
    )


@rule(
    "REPL09",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, binlog_transaction_dependency_tracking: WRITESET is the only mode from 8.4 on",
    refute="With WRITESET, the replicas' lag under the same load is equivalent.",
    applies_to={Vendor.MYSQL: Versions("8.0", "8.4"), Vendor.PERCONA: Versions("8.0", "8.4")},
)
def replicas_get_little_to_do_at_once(evidence: Evidence) -> Iterator[Match]:
    """A busy source marks few of its transactions as independent, so its replicas apply them one by one.

    With COMMIT_ORDER only transactions that committed together may be applied together. WRITESET compares the
    rows that they changed, and costs the source a hash for each.
    """
    name = "binlog_transaction_dependency_tracking"
    if not evidence.has_variable(name) or evidence.variable(name) != "COMMIT_ORDER":
        return
    if "processlist" not in evidence.window.samplers():
        raise NotEnough("the process list was not sampled")
    dumps = [
        evidence.gauge("processlist", "threads", command).mean
        for command in evidence.window.labels("processlist", "threads")
        if command.startswith("Binlog Dump")
    ]
    # Transactions in the log: Com_commit does not count those that commit by themselves.
    commits = evidence.status_rate("binlog_cache_use") + evidence.status_rate("binlog_stmt_cache_use")
    is_row = evidence.variable("binlog_format") == "ROW"
    if not dumps or commits < MANY_COMMITS_S or not is_row:
        return
    yield Match(
        "",
        f"{commits:,.0f} transactions/s go to {max(dumps):.0f} replicas with COMMIT_ORDER.",
        (
            number("transactions in the binary log/s", commits, ",.1f"),
            number("replicas connected", max(dumps), ".0f"),
            number(name, "COMMIT_ORDER"),
        ),
        (Remedy({f"server.{name}": "WRITESET"}),),
    )


#: Part of the applier's state -> the variables that bound its queue, newest name first, and a step up from there.
QUEUES = {
    "room in worker thread event queue": ("slave_parallel_max_queued",),
    "free pending events": ("replica_pending_jobs_size_max", "slave_pending_jobs_size_max"),
}


@rule(
    "REPL10",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_STATES}; slave_parallel_max_queued; replica_pending_jobs_size_max",
    refute="With the larger queue, the state disappears, but the replica applies as much per second.",
)
def queue_of_the_appliers_is_full(evidence: Evidence) -> Iterator[Match]:
    """The applier waits for room in the queue of its workers.

    The queue holds less than the transactions that could run at the same time, so idle workers get no work. One
    transaction that is larger than the queue is applied alone.
    """
    channels = _channels(evidence)
    if not channels:
        return
    samples = max((len(evidence.window.values("replication", "sql_running", c)) for c in channels), default=0)
    for label in evidence.window.labels("replication", "sql_state"):
        names = next((names for part, names in QUEUES.items() if part in label.lower()), None)
        seen = len(evidence.window.values("replication", "sql_state", label))
        if names is None or samples == 0 or seen < OFTEN * samples:
            continue
        name = _named(evidence, *names) or names[-1]
        queue = evidence.number(name)
        waiting = max(
            (
                evidence.window.last("replication", "relay_space_bytes", channel) or 0.0
                for channel in channels
            ),
            default=0.0,
        )
        yield Match(
            label.partition("/")[0] if "/" in label else "",
            f"the applier waits for room in its workers' queue {share(seen / samples)} of the time; {name} is "
            f"{size(queue)}.",
            (
                number("of the samples", share(seen / samples)),
                number(name, size(queue)),
                number("relay log", size(waiting)),
            ),
            (_larger_queue(evidence, name, waiting),),
        )


def _larger_queue(evidence: Evidence, name: str, waiting: float) -> Remedy:
    """Room for the relay log that waits, at most 16 times as much, for all workers within the spare memory.

    MariaDB has such a queue per worker, MySQL one for all, which takes a new size when the applier starts.
    """
    queue, smaller = evidence.number(name), "Commit in smaller transactions on the source."
    queues = 1.0
    if evidence.vendor is Vendor.MARIADB:
        queues = max(evidence.number("slave_parallel_threads"), 1.0)
    room = sizes.OF_SPARE * sizes.spare_bytes(evidence) / queues
    wanted = sizes.power_of_two(max(4 * queue, min(waiting / queues, 16 * queue)), queue + room)
    if wanted <= queue:
        return Remedy(steps=(smaller,))
    if evidence.vendor is Vendor.MARIADB:
        return Remedy({f"server.{name}": wanted}, (smaller,))
    return Remedy(steps=(f"{RESTART_APPLIER.format(name, wanted)}.", smaller))


_GALERA = (
    "Galera Cluster Documentation, Galera Status Variables: wsrep_flow_control_paused_ns, "
    "wsrep_cluster_status"
)


@rule(
    "REPL11",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=_GALERA,
    refute="With the slow node removed from the cluster, the others commit as many transactions per second.",
)
def cluster_is_paused(evidence: Evidence) -> Iterator[Match]:
    """Galera's flow control stops commits, because a node cannot keep up.

    All nodes wait for the slowest one. The hardware of the waiting nodes is idle; the bottleneck is on the node
    with the long receive queue: its appliers, its device, or a backup that runs there.
    """
    paused_ns = evidence.window.rate("mysql_status", "wsrep_flow_control_paused_ns")
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    if paused_ns is None or paused_ns / 1e9 < PAUSED:
        return
    sent = evidence.status_rate("wsrep_flow_control_sent")
    queue = evidence.window.gauge("mysql_status", "wsrep_local_recv_queue")
    threads = _named(evidence, "wsrep_applier_threads", "wsrep_slave_threads")
    cpus = evidence.cpus or 0
    is_here = sent > 0
    more: dict[str, Value] = {}
    if is_here and threads is not None and evidence.number(threads) < cpus:
        more = {f"server.{threads}": cpus}
    steps = (
        "This node is the slow one: look at what its appliers wait for (its device, locks, a backup)."
        if is_here
        else "Find the slow node: wsrep_flow_control_sent grows there, and wsrep_local_recv_queue is long."
    )
    yield Match(
        "",
        f"flow control stops commits {share(min(paused_ns / 1e9, 1.0))} of the time; "
        + (
            f"this node requests it {sent:,.1f} times per second." if is_here else "another node requests it."
        ),
        (
            number("paused", share(min(paused_ns / 1e9, 1.0))),
            number("wsrep_flow_control_sent/s", sent, ",.2f"),
            number("wsrep_local_recv_queue", queue.mean if queue else "unknown", ",.1f"),
            number("appliers", evidence.number(threads) if threads else "unknown", ".0f"),
        ),
        (Remedy(more, (steps,)),),
    )


#: Galera's states of a node that is not yet what the others are.
JOINERS = {1.0: "it receives the data of its cluster", 3.0: "it applies what the others committed meanwhile"}


def is_node(evidence: Evidence) -> bool:
    """Whether it is a node of Galera. Without its library Percona's server has wsrep_on, and is none."""
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    if not evidence.has_variable("wsrep_on") or not evidence.is_on("wsrep_on"):
        return False
    provider = evidence.variable("wsrep_provider") if evidence.has_variable("wsrep_provider") else "unknown"
    return provider.lower() not in ("", "none")


def _one_of(flag: float | None, yes: str, no: str) -> str:
    return "unknown" if flag is None else yes if flag else no


@rule(
    "REPL12",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_GALERA}; Quorum Components; Resetting the Quorum",
    refute="wsrep_cluster_status is Primary and wsrep_ready is ON.",
)
def node_has_no_quorum(evidence: Evidence) -> Iterator[Match]:
    """This node is not part of the cluster's primary component, and refuses statements.

    It cannot see a majority of the nodes, so it must not change anything: clients get error 1047. Restore its
    connection to the other nodes or, if they are lost for good, decide which node holds the newest data.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    if not is_node(evidence):
        return
    primary = evidence.window.last("mysql_status", "wsrep_cluster_status")
    ready = evidence.window.last("mysql_status", "wsrep_ready")
    if primary is None and ready is None:
        evidence.gauge("mysql_status", "wsrep_cluster_status")
    # Either of them is enough to know that the node refuses statements.
    if primary != 0 and ready != 0:
        return
    size = evidence.window.last("mysql_status", "wsrep_cluster_size")
    state = evidence.window.last("mysql_status", "wsrep_local_state")
    what, steps = _why_not_ready(primary, state, size)
    sees = "how many nodes it sees is unknown" if size is None else f"it sees {counted(int(size), 'node')}"
    yield Match(
        "",
        f"{what}; {sees}.",
        (
            number("wsrep_cluster_status", _one_of(primary, "Primary", "non-Primary")),
            number("wsrep_ready", _one_of(ready, "ON", "OFF")),
            number("wsrep_local_state", "unknown" if state is None else f"{state:.0f}"),
            number("wsrep_cluster_size", "unknown" if size is None else f"{size:.0f}"),
        ),
        (Remedy(steps=steps, is_faster=False),),
    )


def _why_not_ready(
    primary: float | None, state: float | None, size: float | None
) -> tuple[str, tuple[str, ...]]:
    """What keeps a node from taking statements, and what helps: a joiner needs no other quorum."""
    if primary and state in JOINERS:
        return f"the node takes no statements yet: {JOINERS[state]}", (
            "Wait for it; this node's error log, and the donor's, say how far it is and what failed.",
            "Let no client come here until wsrep_local_state_comment is Synced.",
        )
    if primary == 0 and size == 0:
        return "the node is not connected to its cluster", (
            "See why in its error log: it never joined, was shut out, or left after its data differed from the "
            "others'.",
            "Mend that, then restart it: it fetches what it lacks, or all data, from another node.",
        )
    if primary:
        return "the node is not ready, though its cluster has a quorum", ("See why in its error log.",)
    return f"the node {'has no quorum' if primary == 0 else 'is not ready'}", (
        "Restore the network between the nodes (ports 4567, 4568, 4444): a majority then forms the "
        "primary component again without help.",
        "Only if the others are lost: compare seqno in grastate.dat of all nodes, and bootstrap the "
        "one with the highest. Never bootstrap two.",
    )
