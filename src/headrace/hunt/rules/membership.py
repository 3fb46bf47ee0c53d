"""Rules about what a node of a cluster refuses, or is not part of: Galera, MySQL's group replication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.base.counted import counted
from headrace.hunt.rules.cluster import is_node
from headrace.hunt.rules.evidence import Evidence, NotEnough, number
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: What a member of a group in this state does not do.
NOT_ONLINE = {
    "ERROR": "has left its group after an error, and is read-only or shut to clients",
    "OFFLINE": "is not part of its group",
    "RECOVERING": "is still catching up with its group, and does not accept writes",
    "UNREACHABLE": "cannot reach its group",
}
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
