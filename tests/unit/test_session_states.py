"""What sessions wait for, from states, and that nothing of a host is used where only SQL is known."""

from __future__ import annotations

import importlib

import pytest

from headrace.base.errors import HostUnknown
from headrace.base.model import Facts
from headrace.host.activity import Activity, Looks, without_port
from headrace.hunt.dumps.threads import numbers_of
from headrace.hunt.hunt import SqlOnly
from headrace.hunt.rules import AREAS, all_rules, judge
from headrace.hunt.rules.cause import conclude
from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.sessions import (
    COMMIT,
    METADATA,
    ROW,
    at_work,
    of_activity,
    of_window,
    sentence,
    wait_of,
)
from tests.rules.case import Case
from tests.rules.hosts import unwell

OF_HOSTS = ("ALLOC", "BLK", "CPU", "FS", "HOST", "IRQ", "MEM", "NET", "RAID", "TCP")
CASES: list[Case] = [
    case for area in AREAS for case in importlib.import_module(f"tests.rules.{area}_cases").CASES
]


@pytest.mark.parametrize(
    ("command", "state", "lock", "text", "wait"),
    [
        ("Query", "Updating", "row", "", ROW),
        ("Query", "Waiting for table metadata lock", "", "", METADATA),
        ("Query", "Waiting for table metadata lock", "metadata", "", METADATA),
        ("Query", "waiting for handler commit", "", "update t", COMMIT),
        ("Execute", "Commit", "", "update t", COMMIT),
        ("Query", "starting", "", "COMMIT", COMMIT),
        ("Query", "Waiting for commit lock", "", "", "a lock on the whole server"),
        ("Query", "Waiting for semi-sync ACK from replica", "", "", "a replica's acknowledgement"),
        ("Query", "Waiting for table level lock", "", "", "table locks"),
        ("Query", "User lock", "", "", "locks of the application (GET_LOCK)"),
        ("Query", "Waiting for something new", "", "", "something new"),
        ("Connect", "login", "", "", "their login"),
        ("Connect", "", "", "", "their login"),
        ("Connect", "Reading from net", "", "", "their login"),
        ("Query", "Reading from net", "", "", "the network or their client"),
        ("Connect", "Sending data", "", "select 1", ""),
        ("Query", "Sending data", "", "select 1", ""),
        ("Query", "", "", "", ""),
    ],
)
def test_a_state_says_what_a_session_waits_for(
    command: str, state: str, lock: str, text: str, wait: str
) -> None:
    assert wait_of(command, state, lock, text) == wait


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("10.0.0.7:51234", "10.0.0.7"),
        ("app1.example.com:51234", "app1.example.com"),
        ("localhost", "localhost"),
        ("::1:51234", "::1"),
        ("2001:db8::5", "2001:db8::5"),
        ("", ""),
    ],
)
def test_sessions_of_one_client_are_one_sort(host: str, alone: str) -> None:
    assert without_port(host) == alone


def looked(*rows: dict[str, object], times: int = 4) -> Activity:
    looks = Looks()
    for _ in range(times):
        looks.add({"statements": list(rows)})
    return looks.activity()


def running(number: int, state: str, text: str, **more: object) -> dict[str, object]:
    return {"id": number, "user": "app", "host": f"10.0.0.7:5{number:04}", "command": "Query", "state": state,
            "class": text, **more}  # fmt: skip


def test_the_other_login_of_this_hunt_is_no_load_and_another_monitor_is() -> None:
    looks = Looks()
    for _ in range(2):
        looks.add(
            {
                "statements": [
                    running(7, "starting", "show global status"),
                    running(8, "", ""),
                    running(9, "starting", "show global status", user="pmm"),
                    running(10, "", "select * from t", tables=["t"]),
                ]
            }
        )
    found = looks.activity({7.0, 8.0})
    assert sorted((each.user, each.text, each.sightings) for each in found.sessions) == [
        ("app", "select * from t", 2),
        ("pmm", "show global status", 2),
    ]
    assert len(looks.activity().sessions) == 4


def test_the_sentence_names_rows_their_holder_and_what_executes() -> None:
    update = "update orders set k = ? where id = ?"
    wait = {"lock": "row", "table": "shop.orders", "holder": 71, "holder_user": "app", "holder_host": "10.0.0.9",
            "holder_open_s": 41, "holder_idle_s": 40, "is_certain": True, "waiter_class": update}  # fmt: skip
    activity = looked(
        running(1, "Updating", update),
        running(2, "Updating", update),
        running(3, "Commit", "commit"),
        running(4, "Sending data", "select ?"),
        running(5, "Sleep", "", command="Sleep"),
        running(6, "Waiting for an event", "", user="system user"),
        running(7, "wsrep: applying write set", "update t", user="system user"),
        running(8, "Applying batch of row changes (update)", "", user="", host=""),
        running(9, "Waiting for next activation", "", user="event_scheduler", command="Daemon"),
        {**wait, "waiter": 1},
        {**wait, "waiter": 2},
    )
    load = of_activity(activity)
    assert load is not None
    assert sentence(load, activity) == (
        "4.0 sessions are active on average: 2.0 wait for row locks of shop.orders, held by connection 71 of "
        "app@10.0.0.9 (idle for 40 s, its transaction is open for 41 s), 1.0 wait for commits, 1.0 execute (1.0 "
        "of them select ?)."
    )
    assert [(share.name, share.sessions) for share in load.by("host")] == [("10.0.0.7", 4.0)]
    assert Activity.of_json(activity.to_json()) == activity


def test_one_slow_statement_after_the_other_is_found_without_a_host() -> None:
    """It was in the sentence, and nowhere among the findings."""

    def found(text: str, time_s: float, tables: tuple[str, ...] = ("shop.orders",)) -> list[str]:
        rows = [running(n, "Sending data", text, time_s=time_s, tables=list(tables)) for n in (1, 2)]
        evidence = by_sql(unwell(activity=looked(*rows, times=9)))
        return [
            finding.id for finding in judge(evidence, all_rules()).findings if finding.rule.code == "STMT05"
        ]

    assert found("select count(*) from a join b", 3) == ["STMT05@shop.orders"]
    assert found("select k from orders where id = ?", 0) == []
    assert found("do sleep(?)", 3, ()) == []


def test_sessions_that_log_in_have_a_cause() -> None:
    rows = [
        running(n, "Reading from net", "", command="Connect", user="unauthenticated user") for n in (1, 2)
    ]
    storm = {"connections": 500.0, "questions": 1_500.0, "threads_created": 0.0}
    evidence = by_sql(unwell(activity=looked(*rows, times=9), status_rates=storm))
    verdict = conclude(evidence, judge(evidence, all_rules()))
    assert "2.0 wait for their login" in verdict.sentence
    assert "SESS14" in verdict.causes


def test_our_own_questions_are_no_work_that_others_hold_up() -> None:
    ours = [running(n, "Filling schema table", "show global status", user="watcher") for n in (1, 2)]
    load = of_activity(looked(*ours))
    assert load is not None
    assert (load.active, at_work(load)) == (2.0, 0.0)
    both = of_activity(looked(*ours, running(3, "Sending data", "select k from orders")))
    assert both is not None
    assert at_work(both) == 1.0


#: Two sessions at work and threads that replicate, as their states are counted.
FED = {"processlist.serving.": 2.0, "processlist.threads.Query": 2.0}
PRIOR = "processlist.states.Waiting for prior transaction to commit"
APPLIERS = {"processlist.states.wsrep: applied write set": 64.0, "processlist.threads.Query": 66.0}


@pytest.mark.parametrize(
    ("gauges", "active", "waits"),
    [
        (FED, 2.0, {}),
        ({**FED, "processlist.states.Commit": 1.5}, 2.0, {COMMIT: 1.5}),
        ({**FED, PRIOR: 8.0}, 2.0, {"earlier transactions": 2.0}),
        ({**FED, PRIOR: 8.0, "processlist.states.Commit": 1.5}, 2.0, {COMMIT: 1.5, "earlier transactions": 0.5}),
        ({**FED, **APPLIERS, "processlist.serving.": 66.0}, 2.0, {}),
        ({**FED, **APPLIERS, "processlist.serving.": 66.0,
          "processlist.states.wsrep: in pre-commit stage": 1.5}, 2.0, {"the cluster (Galera)": 1.5}),
        ({**FED, "processlist.states.wsrep aborter idle": 1.0, "processlist.states.Committed 4711": 40.0,
          "processlist.serving.": 43.0}, 2.0, {}),
    ],
)  # fmt: skip
def test_threads_that_replicate_are_no_sessions(
    gauges: dict[str, float], active: float, waits: dict[str, float]
) -> None:
    load = of_window(unwell(gauges=gauges).window)
    assert load is not None
    assert load.active == pytest.approx(active)
    assert {share.name: share.sessions for share in load.waits} == pytest.approx(waits)


def test_appliers_do_not_run_for_clients() -> None:
    evidence = unwell(gauges={**FED, **APPLIERS}, status={"threads_running": 67.0})
    assert evidence.running == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("replicas", "most"),
    [
        (None, "At most 20.0 sessions are active on average: as many threads run, and threads that replicate or "
               "feed replicas and the server's own tasks may be among them."),
        (["10.0.0.8", "10.0.0.9"], "At most 18.0 sessions are active on average: as many threads run, without "
               "those that feed its 2 replicas, and threads that replicate and the server's own tasks may be "
               "among them."),
        (["10.0.0.8"], "At most 19.0 sessions are active on average: as many threads run, without the one that "
               "feeds its replica, and threads that replicate and the server's own tasks may be among them."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_refused", [False, True], ids=["no list", "only its own"])
def test_without_a_list_of_threads_those_that_run_are_the_most_that_serve(
    replicas: list[str] | None, most: str, is_refused: bool
) -> None:
    facts = {"server_settings.replica_addresses": replicas, "server_settings.replicas": None}
    own = {"processlist.threads.Query": 1.0} if is_refused else {}
    missing = {"server_settings.privileges_missing": ["PROCESS"]} if is_refused else {}
    evidence = unwell(
        facts={**facts, **missing},
        status={"threads_running": 21.0},
        gauges=own,
        without=[] if is_refused else ["processlist"],
    )
    assert by_sql(evidence).verdict.sentence.startswith(f"{most} What sessions wait for is unknown")


@pytest.mark.parametrize(
    ("row", "serves"),
    [
        ({"user": "app", "command": "Query", "state": "updating"}, 1),
        ({"user": "system user", "command": "Query", "state": "Applying batch of row changes (update)"}, 0),
        ({"user": "system user", "command": "Connect", "state": "Waiting for master to send event"}, 0),
        ({"user": "event_scheduler", "command": "Daemon", "state": "Waiting on empty queue"}, 0),
        (
            {"user": "repl", "command": "Binlog Dump GTID", "state": "Source has sent all binlog to replica"},
            0,
        ),
    ],
)
def test_a_process_list_of_a_dump_counts_those_that_serve_clients(row: dict[str, str], serves: int) -> None:
    assert numbers_of([row])["serving"] == {"": serves}


def test_so_many_sorts_that_not_all_are_kept_lose_no_session() -> None:
    activity = looked(*(running(n, "Sending data", f"select {n}") for n in range(3_000)), times=2)
    load = of_activity(activity)
    assert load is not None
    assert load.active == pytest.approx(3_000)
    assert len(activity.sessions) <= 2_001


def by_sql(evidence: Evidence) -> Evidence:
    facts = SqlOnly().facts(Facts("0" * 16, dict(evidence.raw)))
    return Evidence(facts, evidence.window, activity=evidence.activity)


def test_no_rule_speaks_of_a_host_that_is_not_the_servers() -> None:
    """An ill host of each rule about hosts, with the server's part alone."""
    rules = {rule.code: rule for rule in all_rules()}
    said, seen = [], set[str]()
    for case in CASES:
        if not case.subjects or rules[case.rule].area not in OF_HOSTS or case.rule in seen:
            continue
        evidence = case.host()
        if not evidence.has_server:
            continue
        seen.add(case.rule)
        alone = by_sql(evidence)
        judgement = judge(alone, [rules[case.rule]])
        said += [f.id for f in judgement.findings if f.rule.area in OF_HOSTS]
        verdict = conclude(alone, judgement)
        assert "this host" not in verdict.sentence
        assert "is unknown: only SQL was asked" in verdict.sentence
        assert {use.level for use in verdict.uses if use.resource == "cpu"} == {"unknown"}
    assert said == []
    assert len(seen) > 100


def test_a_host_is_refused_not_empty() -> None:
    alone = by_sql(unwell())
    for ask in (
        lambda: alone.facts.block_devices,
        lambda: alone.facts.cpu_count,
        lambda: alone.rows("numa_nodes"),
        lambda: alone.raw.get("memory"),
        lambda: alone.window.rate("cpu", "user", "cpu0"),
        lambda: alone.window.labels("disk", "reads"),
        lambda: alone.use("cpu"),
        lambda: alone.programs,
    ):
        with pytest.raises(HostUnknown):
            ask()
    assert alone.status_rate("questions") > 0
    assert alone.facts.hostname == alone.variable("hostname")


def test_a_finding_that_the_sentence_about_sessions_does_not_name_has_its_own() -> None:
    """Two lists of sessions, seen at different times, do not always agree."""
    cached = {"query_cache_type": "ON", "query_cache_size": "1048576"}
    states = {
        "processlist.threads.Query": 6.0,
        "processlist.states.Waiting for query cache lock": 6.0,
    }
    for state, says in (
        ("Commit", "6.0 sessions wait for the query cache"),
        ("Waiting for query cache lock", "(LOCK18)"),
    ):
        activity = looked(*(running(n, state, "update t set k = 1") for n in range(6)), times=4)
        evidence = by_sql(unwell(variables=cached, gauges=states, activity=activity))
        rules = {rule.code: rule for rule in all_rules()}
        assert says in conclude(evidence, judge(evidence, [rules["LOCK18"]])).sentence
