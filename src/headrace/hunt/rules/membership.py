"""Rules about what a node of a cluster refuses, or is not part of: Galera, MySQL's group replication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.base.counted import counted
from headrace.hunt.rules.cluster import PAUSED, is_node
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.rules.states import loaded
from headrace.hunt.sessions import GALERA, SHARE, WAITERS

#: What a member of a group in this state does not do.
NOT_ONLINE = {
    "ERROR": "has left its group after an error, and is read-only or shut to clients",
    "OFFLINE": "is not part of its group",
    "RECOVERING": "is still catching up with its group, and does not accept writes",
    "UNREACHABLE": "cannot reach its group",
}
#: Statements per second that are refused, below which it is one mistake of somebody.
REFUSED_S = 0.1
#: Of all statements, from which on it is what clients want of this server, and not one job with a wrong address.
MUCH_REFUSED = 0.1
#: Of a class of statements, from which on all fail for one reason.
NEARLY_ALL = 0.9
#: What statements that change data begin with.
CHANGING = ("insert", "update", "delete", "replace", "load data")
#: Galera's state of a node that sends a state transfer, or was told to fall behind.
DONOR = 2


@rule(
    "REPL15",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MariaDB, Galera Cluster System Variables, wsrep_reject_queries; Galera Cluster Documentation, MySQL "
    "wsrep Options",
    refute="wsrep_reject_queries is NONE, and clients on this node get no error 1047.",
)
def node_refuses_queries(evidence: Evidence) -> Iterator[Match]:
    """This node refuses all queries, because somebody told it to.

    With wsrep_reject_queries the node stays in the cluster and applies what the others commit, but its clients get
    error 1047. It is set before maintenance, and easily forgotten after it.
    """
    if not is_node(evidence) or not evidence.has_variable("wsrep_reject_queries"):
        return
    setting = evidence.variable("wsrep_reject_queries").upper()
    if setting in ("NONE", ""):
        return
    yield Match(
        "",
        f"this node refuses all queries (wsrep_reject_queries={setting}).",
        (number("wsrep_reject_queries", setting),),
        (
            Remedy(
                steps=("When the maintenance is over: SET GLOBAL wsrep_reject_queries = NONE.",),
                is_faster=False,
            ),
        ),
    )


@rule(
    "REPL16",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Galera Cluster Documentation, Galera Status Variables: wsrep_local_state_comment; MySQL wsrep "
    "Options: wsrep_desync",
    refute="wsrep_local_state_comment is Synced, and reads on this node see what the others committed.",
)
def node_is_desynchronised(evidence: Evidence) -> Iterator[Match]:
    """This node of a Galera cluster may fall behind: it is desynchronised, or a donor of a state transfer.

    Flow control does not wait for it, so its reads are stale, and it must apply its whole queue before it is
    of use again.
    """
    if not is_node(evidence):
        return
    is_told = evidence.has_variable("wsrep_desync") and evidence.is_on("wsrep_desync")
    state = evidence.window.last("mysql_status", "wsrep_local_state")
    if not is_told and state != DONOR:
        return
    queue = evidence.window.last("mysql_status", "wsrep_local_recv_queue")
    behind = f"{queue:,.0f} transactions wait to be applied" if queue is not None else "its queue is unknown"
    why = "wsrep_desync is ON" if is_told else "it is a donor, or a backup desynchronised it"
    rejects = "wsrep_sst_donor_rejects_queries"
    # A donor of MariaDB 10.11 by rsync answers all the same, and is ready.
    ready = evidence.window.last("mysql_status", "wsrep_ready")
    may = state == DONOR and not is_told and evidence.has_variable(rejects) and evidence.is_on(rejects)
    refuses = may and ready == 0
    if may and ready != 1:
        verb = "refuses" if refuses else "may refuse"
        why += f", and it {verb} queries while it sends all data ({rejects} is ON)"
    yield Match(
        "",
        f"this node may fall behind its cluster: {why}; {behind}.",
        (number("wsrep_desync", "ON" if is_told else "OFF"), number("wsrep_local_recv_queue", behind)),
        (
            Remedy(
                steps=(
                    "SET GLOBAL wsrep_desync = OFF; let no client read here until wsrep_local_recv_queue is 0."
                    if is_told
                    else "Let no client read here until the transfer or the backup has ended.",
                ),
                is_faster=False,
            ),
        ),
        Severity.LIMIT if refuses else None,
    )


@rule(
    "REPL17",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Group Replication Server States; replication_group_members Table",
    refute="MEMBER_STATE of this server is ONLINE in performance_schema.replication_group_members.",
)
def member_is_not_online(evidence: Evidence) -> Iterator[Match]:
    """This member of a replication group is not online, or alone with too few others.

    Clients cannot write here, and what they read is old. A member that leaves its group after an error becomes
    read-only and stays up, so that a health check which only logs in finds nothing wrong.
    """
    group = evidence.settings.get("group") or {}
    members: Sequence[Mapping[str, Any]] = group.get("members") or ()
    if not group.get("name") and not members:
        return
    own = next((member for member in members if member.get("is_own")), None)
    # One that was not started since the server's start has no id yet, and sees only itself.
    if own is None and len(members) == 1 and not members[0].get("id"):
        own = members[0]
    state = str((own or {}).get("state") or "").upper()
    if not state:
        raise NotEnough(
            "the state of this member of its group is unknown: it is not in "
            "performance_schema.replication_group_members"
        )
    if state == "ONLINE":
        yield from _without_majority(members)
        return
    steps = {
        "ERROR": "See why in its error log and in performance_schema.replication_connection_status and "
        "replication_applier_status_by_worker; mend that, then STOP GROUP_REPLICATION; START GROUP_REPLICATION.",
        "RECOVERING": "Watch COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE in "
        "performance_schema.replication_group_member_stats fall; if it does not, see the channel "
        "group_replication_recovery.",
    }
    takes = "super_read_only"
    is_apart = state in ("ERROR", "OFFLINE") and evidence.has_variable(takes) and not evidence.is_on(takes)
    is_apart = is_apart and not (evidence.has_variable("offline_mode") and evidence.is_on("offline_mode"))
    what = "has left its group after an error" if state == "ERROR" else "is not part of its group"
    what = (
        f"{what}, and takes writes that the group does not have ({takes} is OFF)"
        if is_apart
        else NOT_ONLINE.get(state, "is not online")
    )
    yield Match(
        "",
        f"this member is {state}: it {what}.",
        (
            number("MEMBER_STATE", state),
            number("members that this server sees", len(members)),
        ),
        (
            Remedy(
                steps=(
                    *(
                        (f"If it is to be a member: SET GLOBAL {takes} = ON until it is one again.",)
                        if is_apart
                        else ()
                    ),
                    steps.get(state, "Start it: START GROUP_REPLICATION."),
                ),
                is_faster=False,
            ),
        ),
        Severity.RISK if is_apart else None,
    )


def _without_majority(members: Sequence[Mapping[str, Any]]) -> Iterator[Match]:
    """A member that others left behind stays online: only they are unreachable, and every write waits for them."""
    lost = [each for each in members if str(each.get("state")).upper() == "UNREACHABLE"]
    if 2 * len(lost) < len(members):
        return
    names = ", ".join(f"{each.get('host')}:{each.get('port')}" for each in lost)
    yield Match(
        "",
        f"{len(lost)} of the group's {counted(len(members), 'member')} cannot be reached ({names}): "
        "there is no majority, "
        "and every change waits for one.",
        (number("MEMBER_STATE", "ONLINE"), number("members that cannot be reached", len(lost))),
        (
            Remedy(
                steps=(
                    "Mend the network between them, or start the members that are down.",
                    "Only if they are gone for good, and none of them serves clients: set "
                    "group_replication_force_members to the addresses of those that are left (MySQL Reference "
                    "Manual, Handling a Network Partition and Loss of Quorum).",
                ),
                is_faster=False,
            ),
        ),
    )


@rule(
    "REPL18",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="MySQL Server Error Message Reference, ER_OPTION_PREVENTS_STATEMENT (1290); read_only and "
    "super_read_only; MariaDB, read_only",
    refute="The clients that write here get no error 1290.",
)
def writes_are_refused(evidence: Evidence) -> Iterator[Match]:
    """Clients send writes to a server that only reads, and each of them fails.

    After a failover, or with a wrong address, an application writes to a secondary. The server answers at once
    with error 1290: nothing waits, nothing is busy, and only the application's log shows it.
    """
    names = ("super_read_only", "read_only")
    name = next((each for each in names if evidence.has_variable(each) and evidence.is_on(each)), None)
    if name is None:
        return
    # A refused statement is in no Com_* counter: only the digests count it, with its error.
    calls = evidence.window.rates("statements", "count")
    if not calls:
        raise NotEnough("whether writes fail is unknown: performance_schema counts no statements")
    failing = {
        digest: errors
        for digest, errors in evidence.window.rates("statements", "errors").items()
        if errors >= NEARLY_ALL * calls.get(digest, 0.0) > 0
        and evidence.statement(digest).lower().startswith(CHANGING)
    }
    refused = sum(failing.values())
    if refused < REFUSED_S:
        return
    worst = max(failing, key=lambda each: failing[each])
    yield Match(
        "",
        f"{refused:,.1f} statements/s that change data are refused with error 1290, because {name} is ON, most "
        f"of them {evidence.statement(worst)}.",
        (
            number(name, "ON"),
            number("statements that fail/s", refused, ",.1f"),
            number("all statements/s", sum(calls.values()), ",.1f"),
            number("of classes of which nearly all fail", len(failing)),
        ),
        (
            Remedy(
                steps=(
                    "Find who sends them: SELECT USER, HOST, COUNT(*) FROM information_schema.PROCESSLIST "
                    "GROUP BY USER, HOST. Give them the address of the source, or of the group's primary member.",
                    "Only if this server is to take writes, and no other does: stop its replication, then SET "
                    "GLOBAL read_only = OFF.",
                ),
                is_faster=False,
            ),
        ),
        None if refused >= MUCH_REFUSED * sum(calls.values()) else Severity.COST,
    )


@rule(
    "REPL19",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="Galera Cluster Documentation, Certification-Based Replication; Galera Status Variables: "
    "wsrep_evs_repl_latency, wsrep_local_send_queue; MariaDB, wsrep thread states",
    refute="With the farthest node removed from the cluster, commits per second and their p99 are equivalent.",
)
def writers_wait_for_the_cluster(evidence: Evidence) -> Iterator[Match]:
    """Writers wait for the cluster although flow control lets them commit.

    Each commit is sent to all nodes, and goes on when all of them have it in the same order: it takes a round trip
    to the farthest one. A lost packet, a stretched cluster or a change of a table on all nodes makes it longer.
    """
    if not is_node(evidence):
        return
    load = loaded(evidence)
    waiting = load.waiting(GALERA)
    paused_ns = evidence.window.rate("mysql_status", "wsrep_flow_control_paused_ns")
    if waiting < max(WAITERS, SHARE * load.active) or (paused_ns or 0.0) / 1e9 >= PAUSED:
        return
    sets_s = evidence.window.rate("mysql_status", "wsrep_replicated")
    queue = evidence.window.gauge("mysql_status", "wsrep_local_send_queue")
    takes = f", {1e3 * waiting / sets_s:,.1f} ms for each of {sets_s:,.0f} write sets/s" if sets_s else ""
    flow = "flow control's pauses are unknown" if paused_ns is None else "flow control does not pause it"
    yield Match(
        "",
        f"{waiting:.1f} of {load.active:.1f} active sessions wait for the other nodes of the cluster{takes}; "
        f"{flow}.",
        (
            number("sessions that wait for the cluster", waiting, ".1f"),
            number("wsrep_replicated/s", "unknown" if sets_s is None else sets_s, ",.1f"),
            number("wsrep_local_send_queue", queue.mean if queue else "unknown", ",.1f"),
            number("paused", "unknown" if paused_ns is None else share(paused_ns / 1e9)),
        ),
        (
            Remedy(
                steps=(
                    "Measure the way to each node: SHOW STATUS LIKE 'wsrep_evs_repl_latency', ping, and lost "
                    "packets (nstat TcpRetransSegs; UDP if gmcast uses multicast).",
                    "A node far away: give it a gmcast.segment of its own, or make it an asynchronous replica.",
                    "If they wait for a change of a table (TOI), make it with wsrep_OSU_method=RSU or in small "
                    "steps, when few write.",
                )
            ),
        ),
    )
