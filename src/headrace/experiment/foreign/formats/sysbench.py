"""sysbench 0.4 to 1.1: the report at the end of each run, of oltp, fileio, cpu, memory, mutex and threads."""

from __future__ import annotations

import re

from headrace.experiment.foreign.run import Run, groups, pieces, text_of

NAME = "sysbench"

#: A run begins with its version; what a file has before the first is not sysbench's.
_START = re.compile(r"^sysbench \d[^\n]*\n", re.MULTILINE)
_LOG = re.compile(
    r"^(Initializing worker threads|Threads started!|Running the test|Threads fairness)", re.MULTILINE
)
#: Until 0.5 it was called approximate, and had its unit; a sum came with 1.0.
_PERCENTILE = re.compile(r"^\s*(?:approx\. +)?([\d.]+)(?:th)? percentile:\s+([\d.]+)", re.MULTILINE)
#: What a report begins with, where people cut it out of its log.
_REPORT = re.compile(r"^(?:SQL statistics|OLTP test statistics|File operations|CPU speed):", re.MULTILINE)
_RESPONSES = {
    "transactions_s": r"^\s*transactions:\s+\d+\s+\(\s*([\d.]+) per sec",
    "queries_s": r"^\s*queries:\s+\d+\s+\(\s*([\d.]+) per sec",
    "reads_s": r"^\s*reads/s:\s+([\d.]+)",
    "writes_s": r"^\s*writes/s:\s+([\d.]+)",
    "fsyncs_s": r"^\s*fsyncs/s:\s+([\d.]+)",
    "read_mib_s": r"^\s*read, MiB/s:\s+([\d.]+)",
    "written_mib_s": r"^\s*written, MiB/s:\s+([\d.]+)",
    "events_s": r"^\s*(?:events per second|eps|events/s \(eps\)):\s+([\d.]+)",
    "memory_mib_s": r"^\s*[\d.]+ Mi?B transferred \(([\d.]+) Mi?B/sec\)",
    "requests_s": r"^\s*([\d.]+) Requests/sec executed",
    "transferred_mib_s": r"Total transferred \S+\s+\(([\d.]+)Mb/sec\)",
    "mean_ms": r"^\s*avg:\s+([\d.]+)",
    "max_ms": r"^\s*max:\s+([\d.]+)",
}
_LATENCIES = {"mean_ms", "max_ms"}
_CHECKPOINT = re.compile(r"^\[ *\d+s *\] Checkpoint report:", re.MULTILINE)
_SECOND = re.compile(r"^\[ *(\d+)s *\](.*)$", re.MULTILINE)
#: What an interval has done; of files it may have written, or read, alone.
_DONE = re.compile(r"\b(?:tps|reads|writes|eps): ([\d.]+)|^ *([\d.]+) MiB/sec")
#: A share of errors below which a run counts: deadlocks that sysbench repeats are part of an OLTP load.
FEW_ERRORS = 0.01


def read(text: str) -> list[Run] | None:
    """Every run of a log, the complete ones and the others."""
    parts = pieces(_START, text)
    # Only the report, as people cut it out.
    if not parts:
        parts = pieces(_REPORT, text)
    if not parts and re.search(r"^(General statistics|Test execution summary):", text, re.MULTILINE):
        parts = [text]
    # `sysbench prepare` and `cleanup` start alike and measure nothing.
    runs = [_run(part) for part in parts if not _is_preparation(part)]
    if parts and not runs:
        return [Run(problem="it prepared or removed data, and measured nothing")]
    return runs or None


def _is_preparation(part: str) -> bool:
    return not re.search(r"Threads started!|^FATAL: ", part, re.MULTILINE) and bool(
        re.search(r"^(Creating table|Dropping table|Inserting \d+ records|\d+ files, )", part, re.MULTILINE)
    )


def _run(part: str) -> Run:
    settings = _settings(part)
    # A checkpoint's report is of the time since the one before it; the whole run's would be their sum.
    reports = len(re.findall(r"^General statistics:", part, re.MULTILINE))
    if _CHECKPOINT.search(part) or reports > 1:
        return Run({}, settings, f"it has {reports} reports, of parts of it (--report-checkpoints)")
    found = {name: _first(pattern, part) for name, pattern in _RESPONSES.items()}
    percentile = _PERCENTILE.search(part)
    responses = {name: value for name, value in found.items() if value is not None}
    duration = _first(r"^\s*(?:total time|time elapsed):\s+([\d.]+)s", part)
    if duration is not None:
        settings["duration_s"] = text_of(float(f"{duration:.3g}"))
    done = _first(r"^\s*total number of events:\s+(\d+)", part)
    if duration and done is not None and not set(responses) - _LATENCIES:
        responses["events_s"] = done / duration
    if percentile:
        responses[f"p{float(percentile[1]):g}_ms"] = float(percentile[2])
    has_tail = percentile is not None or "percentile stats:" in part
    problem = _problem(part, responses, duration, has_tail=has_tail)
    return Run(responses, settings, problem, about=_about(part), work=done)


_ABOUT = {
    "sysbench_version": r"^sysbench (\d[\w.]*)",
    "file_flags": r"^Extra file open flags: (.+)$",
    "files": r"^(\d+) files, ",
    "file_size": r"^(\S+) total file size$",
    "io_mode": r"^Using (\w+) I/O mode$",
    "fsync_every": r"^Periodic FSYNC enabled, calling fsync\(\) each (\d+) requests",
    "read_write_ratio": r"^Read/Write ratio for combined random IO test: (\S+)",
    "total_size": r"^  total size: (\S+)",
    "scope": r"^  scope: (\w+)",
}


def _about(part: str) -> dict[str, str]:
    """How it was made; which script ran is known by what each transaction did."""
    about = groups(part, _ABOUT)
    done = _first(r"^\s*transactions:\s+(\d+)", part)
    for kind, pattern in {"queries": r"^\s*queries:\s+(\d+)", "reads": r"^\s*read:\s+(\d+)"}.items():
        if done and (count := _first(pattern, part)) is not None:
            about[f"{kind}_per_transaction"] = f"{count / done:.3g}"
    return about


def _settings(part: str) -> dict[str, str]:
    settings = {}
    if (threads := re.search(r"^Number of threads: (\d+)", part, re.MULTILINE)) is not None:
        settings["threads"] = threads[1]
    if (rate := re.search(r"^Target transaction rate: ([\d.]+)", part, re.MULTILINE)) is not None:
        settings["rate_s"] = rate[1]
    for name, pattern in {
        "block_size": r"^(?:Block size|  block size:) (\w+)$",
        "mode": r"^Doing (.+) test$",
        "operation": r"^  operation: (\w+)",
        "primes": r"^Prime numbers limit: (\d+)",
    }.items():
        if (match := re.search(pattern, part, re.MULTILINE)) is not None:
            settings[name] = match[1]
    return settings


def _first(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text, re.MULTILINE)
    return float(match[1]) if match else None


def _problem(part: str, responses: dict[str, float], duration: float | None, *, has_tail: bool) -> str:
    if fatal := re.search(r"^(?:\(.*\) )?(?:FATAL|ALERT): ([^\n]*)", part, re.MULTILINE):
        return f"it failed: {fatal[1][:120]}"
    if wrong := re.search(
        r"^(invalid option|Invalid value|Unrecognized|Cannot find|PANIC)[^\n]*", part, re.MULTILINE
    ):
        return f"it failed: {wrong[0][:120]}"
    if duration is None or not set(responses) - _LATENCIES:
        return "it has no report at its end: it was interrupted, or is still running"
    is_old = re.search(r"^\s*approx\. +\d+ percentile:\s+[\d.]+ms *$", part, re.MULTILINE)
    has_all = is_old or (re.search(r"^\s*sum:\s+[\d.]+ *$", part, re.MULTILINE) and has_tail)
    # The report of a whole log ends with the threads' fairness; people cut the rest out and leave that away.
    is_whole = re.search(r"execution time \(avg/stddev\):\s+\S+/\d", part)
    # People leave lines out above, too; a log that has all of them has its end.
    is_untouched = (
        _LOG.search(part) if is_old else re.search(r"^Initializing worker threads", part, re.MULTILINE)
    )
    if not has_all or (is_untouched and not is_whole):
        return "its report is cut off"
    done = _first(r"^\s*total number of events:\s+(\d+)", part)
    ignored = _first(r"^\s*ignored errors:\s+(\d+)", part) or 0.0
    reconnects = _first(r"^\s*reconnects:\s+(\d+)", part) or 0.0
    if ignored > FEW_ERRORS * max(done or 0.0, 1.0):
        return f"{ignored:,.0f} errors were ignored beside {done or 0:,.0f} transactions"
    if reconnects > 0:
        return f"it lost its connection {reconnects:,.0f} times"
    intervals = {
        end: [float(one or two) for one, two in _DONE.findall(did)] for end, did in _SECOND.findall(part)
    }
    still = [end for end, done in intervals.items() if done and not any(done)]
    if still and any(value > 0 for name, value in responses.items() if name not in _LATENCIES):
        return f"{len(still)} of its intervals did nothing, the first ending at {still[0]} s"
    return ""
