"""Rules about what sessions are seen to do: their states are a resource, wherever the server runs."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.errors import TargetError
from headrace.host.activity import cut
from headrace.host.devices import Device
from headrace.hunt.rules.cached import aside
from headrace.hunt.rules.evidence import GIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.pool import MANY_MISSES_S, MISS_SHARE, SIZE_SOURCE, WORTH_GROWING
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.rules.waits import cpu_is_full
from headrace.hunt.sessions import COMMIT, SHARE, WAITERS, WORK, Load

#: A commit that takes less is no wait that anyone would notice: flash with a safe cache takes a tenth of it.
SLOW_COMMIT_MS = 2.0
#: A share of the commit's time that the device must show for the device to be its cause.
OF_DEVICE = 0.5
#: Sessions that execute at the same time: more than the CPUs of most servers, where their number is unknown ...
MANY_AT_ONCE = 24.0
#: ... and this many times the CPUs where it is known.
TIMES_CPUS = 2.0
#: A pool's share of the memory that was given: the manual's 50 to 75%.
OF_MEMORY = 0.7
#: Statements that change rows, of which each is a transaction if autocommit is on.
CHANGES = ("com_insert", "com_update", "com_delete", "com_replace", "com_insert_select")
#: Of the active sessions, from which on a commit's wait is not one for a CPU.
MOSTLY = 0.75
#: Of a host's CPUs that the server itself uses, for its sessions to be what fills them.
OF_THE_CPUS = 0.5
#: Turns of others at a full CPU, of some milliseconds each, before a thread's own.
SOME_TURNS_MS = 20.0
#: A commit that was seen to take so long is a stall, however short the others are.
STALLED_S = 1
#: Of the sessions seen in a commit, from which on all count as of one kind.
NEARLY_ALL = 0.9

_AAS = "J. Little, A Proof for the Queuing Formula, Operations Research 9.3 (1961)"


def loaded(evidence: Evidence) -> Load:
    """Raises NotEnough without a server, or if its sessions are not known."""
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    if "PROCESS" in evidence.facts.privileges_missing:
        raise NotEnough("the account sees only its own sessions: GRANT PROCESS ON *.*")
    if evidence.load is None:
        raise NotEnough("the process list was not sampled")
    return evidence.load


def _commits_s(evidence: Evidence, load: Load) -> tuple[float, bool]:
    """Commits per second, and whether that is all of them: servers count COMMIT, but not what autocommit ends."""
    explicit = evidence.status_rate("com_commit")
    changes = sum(evidence.window.rate("mysql_status", name) or 0.0 for name in CHANGES)
    seen = [(group, mean) for group, wait, mean in load.groups if wait == COMMIT]
    total = sum(mean for _, mean in seen)
    if not total:
        return explicit + changes, False
    by_statement = sum(mean for group, mean in seen if group.text.lower().startswith("commit"))
    if by_statement >= NEARLY_ALL * total:
        return explicit, True
    if by_statement <= (1 - NEARLY_ALL) * total:
        return changes, True
    return explicit + changes, False


def _commit_ms(evidence: Evidence, load: Load) -> tuple[float | None, bool]:
    """What a commit takes, by Little's law; whether it may be more."""
    per_second, is_all = _commits_s(evidence, load)
    waiting = load.waiting(COMMIT)
    return (1e3 * waiting / per_second if per_second > 0 else None), not is_all


def _longest_commit_s(evidence: Evidence) -> int:
    """The longest COMMIT that was seen, in whole seconds: a mean hides a device that stalls now and then."""
    classes = evidence.activity.classes if evidence.activity is not None else ()
    return int(max((each.longest_s for each in classes if each.text.lower().startswith("commit")), default=0))


def _log_device(evidence: Evidence) -> Device | None:
    """Where the redo log is written. Raises HostUnknown, TargetError or NotEnough where the host does not tell."""
    folder = evidence.data_directory
    if evidence.has_variable("innodb_log_group_home_dir"):
        own = evidence.variable("innodb_log_group_home_dir")
        folder = own if own.startswith("/") else folder
    unwaited = aside(evidence, folder, "write")
    names = [name for name in evidence.beneath(folder) if name in evidence.devices and name not in unwaited]
    return max(
        (evidence.devices[name] for name in names), key=lambda device: device.write_ms or 0.0, default=None
    )


def _of_device(evidence: Evidence) -> tuple[float | None, str]:
    """What a sync takes of the device, in ms, and in words; None where nobody knows."""
    try:
        device = _log_device(evidence)
    except (NotEnough, TargetError):
        return None, "what its volume takes of that is unknown"
    if device is None:
        return None, "the log's device served no request"
    flushed = evidence.window.growth("disk", "flush_ms", device.name) or 0.0
    flushes = evidence.window.growth("disk", "flushes", device.name) or 0.0
    flush_ms = flushed / flushes if flushes else 0.0
    took = (device.write_ms or 0.0) + flush_ms
    return took, f"of which {device.name} shows {took:.1f}"


@rule(
    "WAIT01",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_AAS}; MySQL Reference Manual, General Thread States: waiting for handler commit; MariaDB, General "
    "Thread States: Commit",
    refute="With innodb_flush_log_at_trx_commit 2 and sync_binlog 0 on a copy, commits per second and their p99 "
    "are equivalent: nothing that syncs is what commits wait for.",
)
def sessions_wait_for_commits(evidence: Evidence) -> Iterator[Match]:
    """Sessions wait for their commits.

    A commit ends when its log is safe: on the device, with some settings at a replica or in a cluster, too. The
    time can be lost below what the host counts: in a hypervisor's or a controller's cache, a network volume, a
    file system's journal. The server's own states show it there, too.
    """
    load = loaded(evidence)
    waiting = load.waiting(COMMIT)
    if waiting < max(WAITERS, SHARE * load.active):
        return
    commit_ms, is_least = _commit_ms(evidence, load)
    stalled_s = _longest_commit_s(evidence)
    if commit_ms is not None and commit_ms < SLOW_COMMIT_MS and stalled_s < STALLED_S:
        return
    device_ms, told = _of_device(evidence)
    at_least = "at least " if is_least and commit_ms is not None else ""
    # An estimate from too many commits is too short.
    takes = f"a commit takes {at_least}{commit_ms:.0f} ms, " if commit_ms is not None else ""
    if stalled_s >= STALLED_S:
        takes = f"{takes.removesuffix(', ')}{' on average, ' if takes else ''}one of them {stalled_s} s and more, "
    is_of_device = commit_ms is not None and device_ms is not None and device_ms >= OF_DEVICE * commit_ms
    syncs = evidence.window.rate("mysql_status", "innodb_os_log_fsyncs")
    counted = [number("Innodb_os_log_fsyncs/s", syncs, ",.1f")] if syncs is not None else []
    yield Match(
        "",
        f"sessions wait for their commits: {waiting:.1f} of {load.active:.1f}; {takes}{told}.",
        (
            number("sessions in a commit, mean", waiting, ".2f"),
            number("active sessions, mean", load.active, ".2f"),
            number("a commit takes", f"{at_least}{commit_ms:.1f} ms" if commit_ms is not None else "unknown"),
            number("of the device", f"{device_ms:.2f} ms" if device_ms is not None else "unknown"),
            number("Com_commit/s", evidence.status_rate("com_commit"), ",.1f"),
            *counted,
            *(
                number(f"{name}", evidence.variable(name))
                for name in ("innodb_flush_log_at_trx_commit", "sync_binlog")
                if evidence.has_variable(name)
            ),
        ),
        _faster_commits(evidence, is_of_device),
        Severity.COST
        if _may_wait_for_a_cpu(
            evidence, waiting / load.active, max(commit_ms or 0.0, 1e3 * stalled_s) or None
        )
        else None,
    )


def _may_wait_for_a_cpu(evidence: Evidence, of_all: float, commit_ms: float | None) -> bool:
    """Whether full CPUs may be what commits wait for.

    Threads that wait for a CPU are seen in every state, not in this one alone. But who leads a group of commits is
    waited for by all of it: then a few turns at the CPU are a wait of the whole group for its commit.
    """
    if not cpu_is_full(evidence):
        return False
    if of_all < MOSTLY:
        return True
    waited = sum(evidence.window.rates("threads", "runqueue_ns").values()) / 1e9
    is_short = commit_ms is not None and commit_ms < SOME_TURNS_MS
    return evidence.is_server_held_up and (is_short or waited >= max(evidence.server_cpus, WAITERS))


def _faster_commits(evidence: Evidence, is_of_device: bool) -> tuple[Remedy, ...]:
    if not evidence.has_host:
        where = (
            "Compare with the volume's own latency where it is measured (the provider's metrics of write latency "
            "and queue depth), and with the limits of its class; where it is slow, use a volume of lower latency."
        )
    elif is_of_device:
        where = "Put the redo log and the binary log on a volume with faster writes and flushes."
    else:
        where = (
            "Find what lies between the server and the device: a cache of the hypervisor or the controller, the "
            "file system's journal, a library preloaded into the server (strace -T -e fsync,fdatasync; compare "
            "with headrace latencies)."
        )
    return (
        Remedy(steps=(where,), label="faster syncs"),
        Remedy(
            steps=(
                "Commit less often: more work per transaction, no autocommit around single rows of a batch; more "
                "clients at once share a sync (group commit).",
            ),
            label="fewer commits",
        ),
    )


@rule(
    "WAIT02",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_AAS}; N. Gunther, Guerrilla Capacity Planning (2007), ch. 4; MySQL Reference Manual, "
    "innodb_thread_concurrency; MariaDB, Thread Pool in MariaDB",
    refute="With half as many connections at work, throughput falls by half.",
)
def many_sessions_execute(evidence: Evidence) -> Iterator[Match]:
    """Far more sessions execute at the same time than CPUs can run.

    They share the CPUs, wait for each other's latches and keep locks for longer; a pool that lets in a few at a
    time serves the same statements sooner.
    """
    load = loaded(evidence)
    cpus = evidence.facts.given_cpus if not evidence.has_host else evidence.facts.cpu_count
    least = TIMES_CPUS * cpus if cpus else MANY_AT_ONCE
    # Where the host is known, its CPUs say whether there are too many. Behind others that fill them, each
    # statement only takes longer.
    if load.executing < max(least, 2 * WAITERS):
        return
    if evidence.has_host and not (
        cpu_is_full(evidence) and evidence.server_cpus >= OF_THE_CPUS * len(evidence.cores)
    ):
        return
    running = evidence.gauge("mysql_status", "threads_running")
    classes = {
        group.text: sum(
            mean for other, wait, mean in load.groups if wait == WORK and other.text == group.text
        )
        for group, wait, _ in load.groups
        if wait == WORK and group.text
    }
    top = sorted(classes, key=lambda text: -classes[text])[:3]
    on = f"on {cpus} CPUs" if cpus else "at the same time (the number of CPUs is unknown: --cpus)"
    yield Match(
        "",
        f"{load.executing:.1f} sessions execute {on}, of {load.active:.1f} that are active"
        + (f"; most execute {cut(top[0])}." if top else "."),
        (
            number("executing, mean", load.executing, ".1f"),
            number("CPUs", cpus if cpus else "unknown"),
            number("Threads_running, maximum", running.high, ".0f"),
            *(number(f"executing {cut(text, 80)}", classes[text], ".1f") for text in top),
        ),
        (
            Remedy(
                steps=(
                    "Let in fewer at a time: a smaller pool of connections in the application, a proxy that "
                    "queues, or a thread pool (MariaDB: thread_handling=pool-of-threads).",
                    "Make the statements above cheaper first: each of them then leaves sooner.",
                )
            ),
        ),
        Severity.LIMIT if cpus and not evidence.has_host else None,
    )


@rule(
    "WAIT03",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=SIZE_SOURCE,
    refute="With a larger buffer pool, Innodb_buffer_pool_reads falls, but throughput and p99 are equivalent.",
)
def pages_are_read_from_files(evidence: Evidence) -> Iterator[Match]:
    """Pages are read from files all the time, and whether memory for more of them is left is unknown.

    Only where the server's host is not known: each read waits for a volume or, where the kernel's cache has it,
    for a copy. A larger pool, fewer rows examined or faster volumes help, in the order of what they cost.
    """
    if evidence.has_host:
        return
    pool = evidence.number("innodb_buffer_pool_size")
    misses = evidence.status_rate("innodb_buffer_pool_reads")
    requests = evidence.status_rate("innodb_buffer_pool_read_requests")
    if misses < MANY_MISSES_S or misses < MISS_SHARE * requests:
        return
    try:
        data = f" for {size(evidence.data_bytes)} of data" if pool < evidence.data_bytes else ""
    except NotEnough:
        data = " for data of an unknown size"
    if not data:
        return
    given = evidence.facts.given_memory_bytes
    wanted = int(OF_MEMORY * given) // GIB * GIB if given else 0
    larger = (
        (Remedy({"server.innodb_buffer_pool_size": wanted}, label="more memory"),)
        if wanted > (1 + WORTH_GROWING) * pool
        else ()
    )
    memory = f"its host has {size(given)}" if given else "how much memory its host has is unknown (--memory)"
    yield Match(
        "",
        f"{misses:,.0f} pages/s are read from files ({share(misses / max(requests, 1.0))} of all requests); the "
        f"buffer pool is {size(pool)}{data}, and {memory}.",
        (
            number("pages read from files/s", misses, ",.0f"),
            number("page requests/s", requests, ",.0f"),
            number("innodb_buffer_pool_size", size(pool)),
        ),
        (
            *larger,
            Remedy(
                steps=(
                    "Find the statements that read the most rows per row sent, and give them an index.",
                    "Compare the pool with the host's or the instance class's memory; on a dedicated host it may "
                    "take most of it.",
                ),
                label="fewer pages",
            ),
        ),
    )
