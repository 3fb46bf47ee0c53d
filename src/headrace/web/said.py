"""What pages say about where statements come from: each sentence follows from the state in which it stands.

A server's settings change while ``serve`` runs, so nothing here is fixed text about what "is on".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.base.model import Facts
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, PROCESS_LIST, SLOW_LOG
from headrace.history.collect import slow_log

ONLY_OWN = "Only monitoring statements were seen: tick “include monitoring” to show them."
NO_MATCH = "No class matches."


@dataclass(frozen=True)
class Logged:
    """What a host's server tells of its statements now. ``unread``: why its slow log is not read, empty if it is;
    ``remark``: what is to be said of a log that is read. None is unknown."""

    host: str
    unread: str = ""
    remark: str = ""
    long_query_time_s: float | None = None
    has_performance_schema: bool | None = None


def logged(host: str, facts: Facts | None, asked: str, problem: str) -> Logged:
    """``asked``: the option --slow-log; ``problem``: why the log could not be read the last time."""
    settings = (facts.data if facts else {}).get("server_settings") or {}
    variables = settings.get("variables") or {}
    limit = variables.get("long_query_time")
    schema = variables.get("performance_schema")
    remark = ""
    if asked == "off":
        unread = "serve was started with --slow-log off"
    elif not variables:
        unread = "the server's settings are not known"
    elif asked == "auto":
        unread = slow_log.why_not(facts) or problem
    else:
        unread, writes = problem, slow_log.path_of(facts)
        if why := slow_log.why_not(facts):
            remark = (
                f"Of {host} {asked} is read, as asked with --slow-log, but the server writes no file: {why}."
            )
        elif writes != asked:
            remark = f"Of {host} {asked} is read, as asked with --slow-log, but the server writes {writes}."
    return Logged(
        host,
        unread,
        "" if unread else remark,
        None if limit is None else float(limit),
        None if schema is None else str(schema).upper() in ("ON", "1"),
    )


def unread(hosts: Sequence[Logged]) -> Iterator[str]:
    """Whose slow log is not read now, and why."""
    for each in hosts:
        if each.unread:
            yield f"Of {each.host} the slow log is not read: {each.unread}."
        elif each.remark:
            yield each.remark


def note(source: str, hosts: Sequence[Logged]) -> str:
    """What figures of a source are, and what they lack."""
    if source == PERFORMANCE_SCHEMA:
        return (
            "From performance_schema: the 50 classes with the most time since the server's statistics were reset. "
            "It gives sums, so there are no percentiles. Executions of prepared statements are in none of them: "
            "the process list and the slow log have those."
        )
    if source == PROCESS_LIST:
        return (
            "From samples of the process list: how many threads were executing a class, on average. Calls and "
            f"response times are unknown; {_what_brings_times(hosts)}."
        )
    if source == SLOW_LOG:
        return (
            "From the slow log: every statement that the server writes to it, with its own latency. "
            f"{_which_are_logged(hosts)}"
        )
    return ""


def _what_brings_times(hosts: Sequence[Logged]) -> str:
    if hosts and all(each.has_performance_schema for each in hosts):
        return "performance_schema is on and has them within two minutes"
    if hosts and not any(each.unread for each in hosts):
        return "the slow log is read and has those of the statements that the server writes to it"
    return (
        "for those, turn on performance_schema or the slow log, and allow two minutes for the first figures"
    )


def _which_are_logged(hosts: Sequence[Logged]) -> str:
    limits = {each.long_query_time_s for each in hosts}
    if limits == {0.0}:
        return "long_query_time is 0 now: of connections that began since it is, that is every statement."
    known = {limit for limit in limits if limit}
    if None not in limits and 0.0 not in limits and len(known) == 1:
        (limit,) = known
        return (
            f"long_query_time is {limit:g} s now: only statements that take longer are written, and shares are "
            "of those."
        )
    return "With long_query_time above 0 these are only the slow ones, and shares are of those."


def empty(source: str, sources: Sequence[str], *, has_classes: bool, words: str, with_own: bool) -> str:
    """Why a list of classes has no row."""
    if words:
        return NO_MATCH
    if has_classes and not with_own:
        return ONLY_OWN
    others = [each for each in sources if each != source]
    more = f" There are some from {' and '.join(others)}." if others else ""
    return f"There are no statements from {source} in this range.{more}"


def no_latencies(source: str, hosts: Sequence[Logged]) -> str:
    """Why a class has no histogram."""
    if source == SLOW_LOG:
        return "The slow log had no latency of a call of this class in this range."
    name = "The process list" if source == PROCESS_LIST else source
    missing = list(unread(hosts))
    if not missing:
        return f"{name} has no latencies of single calls. The slow log is read: choose it as the source."
    return " ".join([f"{name} has no latencies of single calls; the slow log has.", *missing])


def no_example(hosts: Sequence[Logged], *, with_examples: bool) -> str:
    """Why there is no call of a class with its values."""
    missing = list(unread(hosts))
    if not with_examples:
        return " ".join(
            [
                "No call with its values is kept. `headrace serve --examples` keeps one of each class and minute "
                "from the slow log.",
                *missing,
            ]
        )
    if missing:
        return " ".join(["There is no call with its values in this range.", *missing])
    return "The slow log had no call of this class in this range, or not with its values."
