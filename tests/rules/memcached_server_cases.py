"""Cases of the rules about memcached as a server."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.caches import NAME, PID, cached
from tests.rules.case import Case

FULL = "it refuses connections: too many are open"
QUEUE = {f"listen.queue.{NAME}": 1025.0, f"listen.queue_limit.{NAME}": 1024.0}
OVERFLOWS = {"snmp.TcpExt.ListenOverflows.": 12.0}


def at_work(cpus: float) -> dict[str, float]:
    return {
        f"process.utime_ticks.{PID}/memcached": 40 * cpus,
        f"process.stime_ticks.{PID}/memcached": 60 * cpus,
    }


def threads(*cpus: float) -> dict[str, float]:
    return {
        f"threads.{kind}time_ticks.{PID + number}/mc-worker": 50 * each
        for number, each in enumerate(cpus, start=1)
        for kind in "us"
    }


CASES = [
    Case(
        "MEMC20",
        "refused",
        cached({"rejected_connections": 5.0}, {"curr_connections": 4000.0}),
        (NAME,),
        ("has 4,000 of 4,075 connections open; 300 were refused or had to wait in the window.",),
        steps=("larger -c", "printf 'stats conns"),
        severity=Severity.LIMIT,
    ),
    Case(
        "MEMC20",
        "stopped to listen",
        cached({"listen_disabled_num": 0.1}, {"curr_connections": 4000.0}),
        (NAME,),
        severity=Severity.LIMIT,
    ),
    Case(
        "MEMC20",
        "nearly all",
        cached(values={"curr_connections": 3900.0}),
        (NAME,),
        ("has 3,900 of 4,075 connections open.",),
        severity=Severity.RISK,
    ),
    Case(
        "MEMC20",
        "we are refused, too",
        cached(without="*", why=FULL),
        (NAME,),
        ("refuses connections: all of -c are taken.",),
        severity=Severity.LIMIT,
    ),
    Case("MEMC20", "room", cached()),
    Case("MEMC20", "no answer", cached(without="*", why="no answer within 3 s"), missing="no answer"),
    Case(
        "MEMC21",
        "batches",
        cached({"conn_yields": 400.0}),
        (NAME,),
        ("connections give up their turn 400 times/s, after 20 requests each.",),
        steps=("-R 100", "multiget"),
    ),
    Case("MEMC21", "some", cached({"conn_yields": 20.0})),
    Case(
        "MEMC22",
        "for each request",
        cached({"total_connections": 2_000.0}),
        (NAME,),
        ("2,000 connections/s are opened, for 2.6 requests each.",),
        steps=("stats conns",),
    ),
    Case("MEMC22", "for many", cached({"total_connections": 60.0})),
    Case(
        "MEMC23",
        "all busy",
        cached(host=at_work(3.9)),
        (NAME,),
        ("uses 3.9 CPUs with 4 threads, on 8 CPUs.",),
        steps=("-t 8",),
    ),
    Case("MEMC23", "idle ones", cached(host=at_work(2.0))),
    Case("MEMC23", "one for each CPU", cached(values={"threads": 8.0}, host=at_work(7.5))),
    Case(
        "MEMC23",
        "not sampled",
        cached(host={}, without=(), server={"pid": PID}, name=NAME, facts={"memcached.instances.0.pid": 9}),
        missing="the CPU time of its process was not sampled",
    ),
    Case(
        "MEMC24",
        "many threads",
        cached(values={"threads": 32.0}),
        (NAME,),
        ("has 32 threads for 8 CPUs.",),
        steps=("-t 8",),
        severity=Severity.ADVICE,
    ),
    Case(
        "MEMC24",
        "pinned and full",
        cached(server={"cpus_allowed_list": "0,4"}, host=at_work(1.9)),
        (NAME,),
        ("has 4 threads for the 2 CPUs that it may use (0,4), of 8.",),
        steps=("CPUAffinity", "-t 2"),
        severity=Severity.COST,
    ),
    Case("MEMC24", "pinned with little to do", cached(server={"cpus_allowed_list": "0,4"})),
    Case("MEMC24", "four", cached()),
    Case(
        "MEMC25",
        "one connection",
        cached(host=threads(0.95, 0.02, 0.02, 0.03)),
        (NAME,),
        (f"One of the 4 threads of {NAME} uses 0.95 CPUs, the others 0.02 each.",),
        steps=("several connections", "watch fetchers"),
    ),
    Case("MEMC25", "all alike", cached(host=threads(0.9, 0.85, 0.9, 0.8))),
    Case("MEMC25", "idle", cached(host=threads(0.1, 0.0, 0.0, 0.0))),
    Case("MEMC25", "not sampled", cached(), missing="memcached's threads were not sampled"),
    Case(
        "MEMC26",
        "capped",
        cached(settings={"tcp_backlog": "16384"}, facts={"sysctls.net.core.somaxconn": "128"}),
        (NAME,),
        ("asked for a queue of 16,384, but net.core.somaxconn allows 128.",),
        sets=({"host.net.core.somaxconn": 16384},),
    ),
    Case("MEMC26", "as asked", cached()),
    Case(
        "MEMC26",
        "a Unix socket",
        cached(
            settings={"tcp_backlog": "16384"}, name="/run/m.sock", facts={"sysctls.net.core.somaxconn": "128"}
        ),
    ),
    Case(
        "MEMC27",
        "full",
        cached(host=OVERFLOWS, gauges=QUEUE),
        (NAME,),
        (f"12.0 connections/s found a full queue on this host: that of {NAME}, of 1024, was full.",),
    ),
    Case("MEMC27", "another program's", cached(host=OVERFLOWS)),
    Case("MEMC27", "full, and nobody was lost", cached(gauges=QUEUE)),
    Case(
        "MEMC28",
        "open",
        cached(settings={"udpport": "11211", "inter": "NULL"}),
        (NAME,),
        ("answers UDP on port 11211 of all addresses.",),
        steps=("-U 0",),
    ),
    Case("MEMC28", "loopback", cached(settings={"udpport": "11211", "inter": "127.0.0.1, ::1"})),
    Case("MEMC28", "off", cached()),
    Case(
        "MEMC29",
        "fewer files",
        cached(settings={"maxconns": "4096"}, server={"nofile_soft": 1024}),
        (NAME,),
        ("may have 4,096 connections (-c) and 1,024 open files.",),
        steps=("LimitNOFILE=5120",),
    ),
    Case("MEMC29", "enough", cached()),
    Case(
        "MEMC29",
        "not known",
        cached(server={"nofile_soft": None}),
        missing="limit of open files was not read",
    ),
    Case(
        "MEMC30",
        "no buffer",
        cached({"read_buf_oom": 0.5}, settings={"read_buf_mem_limit": "16777216"}),
        (NAME,),
        ("had no buffer 30 times in the window.",),
        steps=("read_buf_mem_limit",),
    ),
    Case("MEMC30", "enough", cached()),
    Case(
        "MEMC30",
        "an old version",
        cached(without=("read_buf_oom",)),
        missing=f"{NAME}: read_buf_oom was not read twice",
    ),
]
