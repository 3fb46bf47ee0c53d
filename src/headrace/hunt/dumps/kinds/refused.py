"""What people give that is recognised and not read, with what to give instead."""

from __future__ import annotations

import re

from headrace.hunt.dumps.piece import Piece, Unread

NAME = "what is not read"

_CLIENT = re.compile(r"(mysql|mariadb|mysqladmin)?[: -]{0,3}ERROR \d{4} \(")
#: Errors of a login, by number: denied, no such host, nobody listens, too many connections, TLS.
_REFUSED = re.compile(r"ERROR (10(40|44|45)|1129|1130|1698|200[2356]|2013|2026|3118|3159|4151) \(")
_KNOWN = (
    (
        re.compile(r"^Count: \d+  Time=[\d.]+s \(\d+s\)  Lock=", re.MULTILINE),
        "the output of mysqldumpslow: it has sums without times; headrace digest reads the slow log itself",
    ),
    (
        re.compile(r"^# (Profile|Query \d+: [\d.]+[kM]? QPS|Overall: .* unique)", re.MULTILINE),
        "the output of pt-query-digest; headrace digest reads the slow log itself",
    ),
    (re.compile(r"^# Time: \S+\n# User@Host: ", re.MULTILINE), "a slow log; headrace digest reads it"),
    (
        re.compile(r"^\S+ (?:[AP]M )? +(?:UID|USER) +(?:TGID +TID|PID) ", re.MULTILINE),
        "the output of pidstat: of programs only /proc/PID/stat is read, as headrace collect keeps it",
    ),
    (
        re.compile(
            r"^(# hostname;interval;timestamp;|[^\s;]+;\d+;\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", re.MULTILINE
        ),
        "the output of sadf -d; sadf -j FILE -- -A prints what is read",
    ),
    (
        re.compile(r"^\S+\t\d+\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( \w+)?\t\S+\t\S+\t", re.MULTILINE),
        "the output of sadf -p; sadf -j FILE -- -A prints what is read",
    ),
    (re.compile(r"\A(?:<\?xml[^>]*>\s*)?<svg\b"), "a picture; sadf -j FILE -- -A prints what is read"),
    (re.compile(r"<sysstat\b"), "the output of sadf -x; sadf -j FILE -- -A prints what is read"),
    (
        # The words are those of the language: disk, Disk, disque; reads, Lesen, lectures.
        re.compile(r"^[^\W\d]+-+ -{3,}[^\s\d-]+-{3,} -{3,}[^\s\d-]+-{3,} -{3,}[^\s\d-]+-{3,}", re.MULTILINE),
        "the output of vmstat -d; iostat -x 1 10 or /proc/diskstats, twice, is read",
    ),
    (
        re.compile(r"^ATOP - \S+ +\d{4}/\d\d/\d\d", re.MULTILINE),
        "atop's pages for people; atop -P ALL -r FILE prints what is read",
    ),
    (
        re.compile(r"^#<-+CPU-+>|^#cpu sys inter +ctxsw ", re.MULTILINE),
        "collectl's lines for people; collectl -P -scCdDmnN prints what is read",
    ),
    (
        re.compile(r"\A *\d\d:\d\d:\d\d up .*load average: [^\n]*\n?\Z"),
        "the output of uptime: loads are of CPUs and disks together; /proc/stat, twice, or vmstat 1 10 is read",
    ),
    (
        re.compile(
            r"^USER +PID +%CPU +%MEM +VSZ +RSS |^UID +PID +PPID +C +STIME |^ *PID +TTY +(STAT +)?TIME ",
            re.MULTILINE,
        ),
        "the output of ps: its CPU time is since each process's start; /proc/PID/stat, twice, as headrace collect "
        "keeps it, or top -b -n 3 is read",
    ),
    (
        re.compile(r"^Total: \d+(?: \(kernel \d+\))?\nTCP: +\d+ \(estab ", re.MULTILINE),
        "the output of ss -s: sockets of one moment; /proc/net/sockstat and /proc/net/snmp, twice, are read",
    ),
    (
        re.compile(r"^(?:Netid +)?State +Recv-Q +Send-Q +Local Address", re.MULTILINE),
        "the output of ss: sockets of one moment; headrace on the host reads the accept queues",
    ),
    (
        re.compile(r"^ +node0( +node\d+)*\s*\nnuma_hit ", re.MULTILINE),
        "the output of numastat; headrace facts on the host has its NUMA nodes",
    ),
    (
        re.compile(r"^Uptime: \d+ +Threads: \d+ +Questions: \d+ +Slow queries: ", re.MULTILINE),
        "the line of mysqladmin status: averages since the start; mysqladmin extended-status -i10 -c3 is read",
    ),
    (
        re.compile(r"^Filesystem +\S+ +.*Mounted on *$", re.MULTILINE),
        "the output of df; headrace facts on the host has its file systems",
    ),
    (
        re.compile(r"^CONTAINER ID +NAME +CPU % +MEM USAGE", re.MULTILINE),
        "the output of docker stats; /proc/stat and the group's cpu.stat, twice, are read",
    ),
    (
        re.compile(r"\A\W*(\w+\W+){0,6}?(SUM_TIMER_WAIT|COUNT_STAR|DIGEST_TEXT)\b"),
        "a table of performance_schema: of its counters only those are read that SHOW GLOBAL STATUS has, too",
    ),
)


#: The beginning of a page of metrics, and a metric of the exporters that are read.
_METRICS = re.compile(r"# (?:HELP|TYPE) \w+ |\w+\{\w+=\"")
_READ = re.compile(
    r"^(?:node_|mysql_(?:global_|up\b|version_info|slave_|info_schema|perf_schema|exporter))", re.MULTILINE
)


def read(text: str) -> list[Piece]:
    found: list[Piece] = [Unread(why) for pattern, why in _KNOWN if pattern.search(text)]
    if _METRICS.match(text) and not _READ.search(text):
        found.append(
            Unread("metrics of another exporter: the pages of node_exporter and mysqld_exporter are read")
        )
    if _CLIENT.match(text):
        said = text.splitlines()[0][:200]
        found.append(Unread(f"an error of the client: {said}", said if _REFUSED.search(said) else ""))
    return found
