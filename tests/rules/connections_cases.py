"""Cases of the rules about logins."""

from __future__ import annotations

from headrace.host.activity import Activity, summed
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell

RESOLVES = {"skip_name_resolve": "OFF"}
STORM = {"connections": 900.0, "questions": 2_700.0}
LOGINS = {"server_settings.init_connect": ["set names utf8mb4", "do sleep(?)"]}

#: Of sixty connections one is the agent's own.
LISTED = {
    "processlist.threads.Sleep": 49.0,
    "processlist.threads.Query": 1.0,
    "processlist.threads.Daemon": 1.0,
}


def starting(sessions: int, statement: str = "do sleep(?)") -> Activity:
    """Ten looks that each see so many sessions execute a statement."""
    rows = [{"id": n, "user": "app", "class": statement, "tables": []} for n in range(sessions)]
    return summed({"statements": rows} for _ in range(10))


CASES = [
    Case(
        "SESS14",
        "three statements each",
        lambda: unwell(status_rates=STORM),
        ("",),
        ("clients connect 900 times per second for 2,700 statements/s: 3.0 per connection",),
    ),
    Case(
        "SESS14",
        "a replica of MariaDB",
        lambda: unwell(status_rates=STORM, gauges={"replication.sql_running.": 1.0}),
        missing="also counts its own internal sessions in Connections",
    ),
    Case("SESS14", "kept", unwell),
    Case("SESS14", "not sampled", lambda: unwell(without=["mysql_status"]), missing="connections was not"),
    Case(
        "SESS15",
        "nine",
        lambda: unwell(
            variables=RESOLVES, gauges={"processlist.threads.Connect": 9.0, "processlist.states.login": 9.0}
        ),
        ("",),
        ("9.0 sessions are logging in at any time",),
    ),
    Case(
        "SESS15",
        "MySQL",
        lambda: unwell(
            vendor="mysql",
            variables=RESOLVES,
            gauges={"processlist.threads.Connect": 9.0, "processlist.states.login": 9.0},
            status_rates={"connections": 2.0},
        ),
        ("",),
        ("9.0 sessions are logging in at any time, for 2.0 logins/s",),
    ),
    Case(
        "SESS15",
        "MySQL, and handshakes",
        lambda: unwell(
            vendor="mysql",
            variables=RESOLVES,
            gauges={"processlist.threads.Connect": 9.0, "processlist.states.login": 9.0},
            status_rates={"connections": 30.0},
        ),
    ),
    Case(
        "SESS15",
        "appliers of a replica",
        lambda: unwell(
            variables={**RESOLVES, "slave_parallel_threads": "4"},
            gauges={"processlist.threads.Connect": 6.0, "replication.sql_running.": 1.0},
        ),
    ),
    Case(
        "SESS15",
        "connections that send nothing",
        lambda: unwell(
            variables=RESOLVES,
            gauges={"processlist.threads.Connect": 22.0, "processlist.states.Reading from net": 22.0},
        ),
    ),
    Case("SESS15", "none", lambda: unwell(variables=RESOLVES, gauges={"processlist.threads.Sleep": 9.0})),
    Case("SESS15", "off", lambda: unwell(gauges={"processlist.threads.Connect": 9.0})),
    Case("SESS15", "not sampled", lambda: unwell(variables=RESOLVES), missing="process list was not"),
    Case(
        "SESS16",
        "four hundred",
        lambda: unwell(status_rates={"ssl_finished_accepts": 500.0, "ssl_session_cache_hits": 100.0}),
        ("",),
        ("400 full TLS handshakes/s, which take about 0.4 CPUs",),
    ),
    Case(
        "SESS16",
        "resumed",
        lambda: unwell(status_rates={"ssl_finished_accepts": 500.0, "ssl_session_cache_hits": 450.0}),
    ),
    Case("SESS16", "not sampled", lambda: unwell(without=["mysql_status"]), missing="accepts was not"),
    Case(
        "SESS17",
        "twelve",
        lambda: unwell(status_rates={"aborted_clients": 12.0, "connections": 24.0}),
        ("",),
        ("12.0 connections/s end without being closed (50% of the logins)",),
    ),
    Case("SESS17", "none", unwell),
    Case("SESS17", "not sampled", lambda: unwell(without=["mysql_status"]), missing="aborted_clients was"),
    Case(
        "SESS19",
        "nine of sixty connections that are not listed",
        lambda: unwell(facts=LOGINS, gauges=LISTED, status_rates={"connections": 45.0}),
        ("",),
        (
            "9.0 sessions execute init_connect at any time, for 45.0 logins/s: set names utf8mb4; do sleep(?).",
        ),
        steps=("Take out of init_connect", "Keep connections open"),
        severity=Severity.LIMIT,
    ),
    Case(
        "SESS19",
        "many logins, and a millisecond each",
        lambda: unwell(facts=LOGINS, gauges=LISTED, status_rates={"connections": 9_000.0}),
    ),
    Case(
        "SESS19",
        "all are listed",
        lambda: unwell(facts=LOGINS, gauges={**LISTED, "processlist.threads.Sleep": 58.0}),
    ),
    Case("SESS19", "empty", lambda: unwell(gauges=LISTED)),
    Case(
        "SESS19",
        "MySQL, which shows their statements",
        lambda: unwell(vendor="mysql", facts=LOGINS, activity=starting(9)),
        ("",),
    ),
    Case(
        "SESS19",
        "other statements",
        lambda: unwell(vendor="mysql", facts=LOGINS, activity=starting(9, "select ?")),
    ),
    Case(
        "SESS19",
        "an older agent",
        lambda: unwell(facts={"server_settings.init_connect": None}),
        missing="statements of init_connect",
    ),
    Case(
        "SESS19",
        "a list of its own",
        lambda: unwell(facts={**LOGINS, "server_settings.privileges_missing": ["PROCESS"]}, gauges=LISTED),
        missing="lacks the privilege PROCESS",
    ),
    Case("SESS19", "no list", lambda: unwell(facts=LOGINS), missing="process list was not"),
]
