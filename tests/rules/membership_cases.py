"""Cases of the rules about nodes of clusters and members of groups."""

from __future__ import annotations

from typing import Any

from headrace.host.activity import Activity, Digest
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell
from tests.rules.states_cases import UPDATE, seen

NODE = {
    "wsrep_on": "ON",
    "wsrep_provider": "/usr/lib/galera/libgalera_smm.so",
    "wsrep_reject_queries": "NONE",
    "wsrep_desync": "OFF",
}


def group(own: str, *others: str) -> dict[str, Any]:
    states = (own, *(others or ("ONLINE",)))
    members = [
        {"id": str(n), "host": f"db{n + 1}", "port": 3306, "state": state, "role": "", "is_own": n == 0}
        for n, state in enumerate(states)
    ]
    return {"server_settings.group": {"name": "g", "members": members, "applier": "ON", "lag_s": None}}


NEVER_STARTED = {
    "server_settings.group": {
        "name": "g",
        "members": [{"id": "", "host": "", "port": None, "state": "OFFLINE", "role": "", "is_own": False}],
        "applier": "ON",
        "lag_s": None,
    }
}

#: Each of a class of updates fails.
DIGEST = "0011223344556677"
REFUSED = {f"statements.count.{DIGEST}": 40.0, f"statements.errors.{DIGEST}": 40.0}
WRITERS = Activity(10, digests=(Digest(DIGEST, UPDATE, "shop", ("orders",)),))

CASES = [
    Case(
        "REPL15",
        "forgotten after maintenance",
        lambda: unwell(variables={**NODE, "wsrep_reject_queries": "ALL"}),
        ("",),
        ("this node refuses all queries (wsrep_reject_queries=ALL)",),
        severity=Severity.LIMIT,
    ),
    Case("REPL15", "takes queries", lambda: unwell(variables=NODE)),
    Case("REPL15", "no node", unwell),
    Case("REPL15", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REPL16",
        "told to",
        lambda: unwell(
            variables={**NODE, "wsrep_desync": "ON"},
            status={"wsrep_local_state": 4.0, "wsrep_local_recv_queue": 812.0},
        ),
        ("",),
        ("wsrep_desync is ON; 812 transactions wait to be applied",),
    ),
    Case(
        "REPL16",
        "a donor",
        lambda: unwell(variables=NODE, status={"wsrep_local_state": 2.0}),
        ("",),
        ("it is a donor",),
    ),
    Case(
        "REPL16",
        "a donor that refuses queries",
        lambda: unwell(
            variables={**NODE, "wsrep_sst_donor_rejects_queries": "ON"},
            status={"wsrep_local_state": 2.0, "wsrep_ready": 0.0},
        ),
        ("",),
        ("it refuses queries while it sends all data (wsrep_sst_donor_rejects_queries is ON)",),
        severity=Severity.LIMIT,
    ),
    Case(
        "REPL16",
        "a donor that could refuse queries and answers them",
        lambda: unwell(
            variables={**NODE, "wsrep_sst_donor_rejects_queries": "ON"},
            status={"wsrep_local_state": 2.0, "wsrep_ready": 1.0},
        ),
        ("",),
        ("a backup desynchronised it; its queue is unknown",),
        severity=Severity.RISK,
    ),
    Case(
        "REPL16",
        "a donor of which nobody knows whether it is ready",
        lambda: unwell(
            variables={**NODE, "wsrep_sst_donor_rejects_queries": "ON"}, status={"wsrep_local_state": 2.0}
        ),
        ("",),
        ("it may refuse queries while it sends all data",),
        severity=Severity.RISK,
    ),
    Case("REPL16", "synced", lambda: unwell(variables=NODE, status={"wsrep_local_state": 4.0})),
    Case("REPL16", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REPL17",
        "never started: it has no id yet",
        lambda: unwell(vendor="mysql", facts=NEVER_STARTED),
        ("",),
        (
            "this member is OFFLINE: it is not part of its group, and takes writes that the group does not have",
        ),
        steps=("super_read_only = ON", "START GROUP_REPLICATION"),
        severity=Severity.RISK,
    ),
    Case(
        "REPL17",
        "expelled",
        lambda: unwell(vendor="mysql", facts=group("ERROR"), variables={"super_read_only": "ON"}),
        ("",),
        ("this member is ERROR: it has left its group after an error",),
        severity=Severity.LIMIT,
    ),
    Case(
        "REPL17",
        "expelled, and shut to clients",
        lambda: unwell(vendor="mysql", facts=group("ERROR"), variables={"offline_mode": "ON"}),
        ("",),
        ("it has left its group after an error, and is read-only or shut to clients",),
        severity=Severity.LIMIT,
    ),
    Case(
        "REPL17",
        "catches up",
        lambda: unwell(vendor="mysql", facts=group("RECOVERING")),
        ("",),
        ("still catching up with its group",),
    ),
    Case(
        "REPL17",
        "two of three cannot be reached",
        lambda: unwell(vendor="mysql", facts=group("ONLINE", "UNREACHABLE", "UNREACHABLE")),
        ("",),
        ("2 of the group's 3 members cannot be reached (db2:3306, db3:3306): there is no majority",),
        steps=("Mend the network", "group_replication_force_members"),
        severity=Severity.LIMIT,
    ),
    Case(
        "REPL17",
        "one of three cannot be reached",
        lambda: unwell(vendor="mysql", facts=group("ONLINE", "ONLINE", "UNREACHABLE")),
    ),
    Case(
        "REPL17",
        "nobody says its state",
        lambda: unwell(
            vendor="mysql", facts={"server_settings.group": {"name": "g", "members": [], "applier": None}}
        ),
        missing="the state of this member of its group is unknown",
    ),
    Case("REPL17", "online", lambda: unwell(vendor="mysql", facts=group("ONLINE"))),
    Case("REPL17", "no group", unwell),
    Case("REPL17", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REPL18",
        "an application on the secondary",
        lambda: unwell(variables={"read_only": "ON"}, rates=REFUSED, activity=WRITERS),
        ("",),
        ("40.0 statements/s that change data are refused with error 1290, because read_only is ON, most of",),
        severity=Severity.LIMIT,
    ),
    Case(
        "REPL18",
        "one job writes where many read",
        lambda: unwell(
            variables={"read_only": "ON"},
            rates={**REFUSED, "statements.count.reads": 4_000.0},
            activity=WRITERS,
        ),
        ("",),
        severity=Severity.COST,
    ),
    Case(
        "REPL18",
        "some of them may write",
        lambda: unwell(
            variables={"read_only": "ON"},
            rates={**REFUSED, f"statements.errors.{DIGEST}": 1.0},
            activity=WRITERS,
        ),
    ),
    Case(
        "REPL18",
        "reads fail",
        lambda: unwell(
            variables={"read_only": "ON"},
            rates=REFUSED,
            activity=Activity(10, digests=(Digest(DIGEST, "select ? from gone", "shop", ("gone",)),)),
        ),
    ),
    Case(
        "REPL18",
        "digests are off",
        lambda: unwell(variables={"read_only": "ON"}, without=["statements"]),
        missing="counts no statements",
    ),
    Case("REPL18", "takes writes", lambda: unwell(rates=REFUSED, activity=WRITERS)),
    Case(
        "REPL19",
        "a node far away",
        lambda: unwell(
            variables=NODE,
            status_rates={"wsrep_flow_control_paused_ns": 0.0, "wsrep_replicated": 200.0},
            activity=seen(
                (UPDATE, "wsrep: replicating and certifying write set", 8), (UPDATE, "Updating", 1)
            ),
        ),
        ("",),
        ("8.0 of 9.0 active sessions wait for the other nodes", "40.0 ms for each of 200 write sets/s"),
        severity=Severity.LIMIT,
    ),
    Case(
        "REPL19",
        "flow control is the cause",
        lambda: unwell(
            variables=NODE,
            status_rates={"wsrep_flow_control_paused_ns": 5e8, "wsrep_replicated": 200.0},
            activity=seen((UPDATE, "Waiting for certification", 8)),
        ),
    ),
    Case(
        "REPL19",
        "they execute",
        lambda: unwell(
            variables=NODE,
            status_rates={"wsrep_flow_control_paused_ns": 0.0},
            activity=seen((UPDATE, "Updating", 8), (UPDATE, "wsrep: certifying", 1)),
        ),
    ),
    Case("REPL19", "nobody looked", lambda: unwell(variables=NODE), missing="process list was not"),
]
