"""Rules about memory that will not be enough: sums, growth, pressure without swap, and limits on dirty pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from headrace.hunt.reclaim import waits_in_other_groups
from headrace.hunt.resources import PRESSURE_SEEN
from headrace.hunt.rules import sizes
from headrace.hunt.rules.evidence import GIB, MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.pool import ON_TOP, bytes_there, larger_than_memory, memory_bytes, that_fits
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

MINUTE_S, HOUR_S = 60.0, 3_600.0
#: Memory that is used up sooner than this leaves no night to notice it.
SOON_S = 24 * HOUR_S
#: Growth of the server's memory beyond its pool, in each part of the window.
LEAKED = 4 * MIB
PARTS = 3
#: Share of the memory that is missing, from which on a part of the sum is worth shrinking.
LARGE_PART = 0.25
#: Major faults and pages read back per second: the kernel drops what programs still use.
FAULTS_S, REFAULTS_S = 50.0, 500.0
#: A limit on dirty pages below this stops a server that writes logs and dumps through the page cache.
LITTLE_DIRTY = 256 * MIB
#: vm.dirty_ratio's default, of the available memory.
OF_AVAILABLE = 0.20

_VM = "Linux Documentation/admin-guide/sysctl/vm.rst"


def lasting(seconds: float) -> str:
    """``40 minutes``, ``10.0 hours``."""
    return f"{seconds / HOUR_S:,.1f} hours" if seconds >= HOUR_S else f"{seconds / MINUTE_S:.0f} minutes"


@rule(
    "MEM16",
    severity=Severity.RISK,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, How MySQL Uses Memory; MariaDB, Memory Allocation",
    refute="At the busiest time, with a full pool, MemAvailable and memory.max leave room.",
)
def more_than_there_is(evidence: Evidence) -> Iterator[Match]:
    """The buffer pool, the sessions and their temporary tables may need more memory than the server can get.

    Each fits on its own, but the pool fills over days and the sessions come at peak load: then the host swaps, or
    the kernel kills the server. The sum uses the highest number of connections so far and of running statements in
    the window, not max_connections, which few servers ever reach.
    """
    beside = sizes.beside_the_pool(evidence)
    wanted = {
        "buffer pool": ON_TOP * evidence.number("innodb_buffer_pool_size"),
        "other shared buffers": sizes.fixed_buffers(evidence),
    }
    wanted |= beside
    there = bytes_there(evidence)
    total = sum(wanted.values())
    if total <= there or any(larger_than_memory(evidence)):
        return
    yield_to = [
        _smaller(evidence, what)
        for what in sorted(beside, key=lambda what: -beside[what])
        if beside[what] > LARGE_PART * (total - there)
    ]
    pool = that_fits(evidence)
    if pool >= GIB:
        yield_to.append(Remedy({"server.innodb_buffer_pool_size": int(pool)}, label="a smaller pool"))
    yield Match(
        "",
        f"the server may need {size(total)}, but only {size(there)} is available to it: "
        + ", ".join(f"{what} {size(bytes_)}" for what, bytes_ in wanted.items())
        + ".",
        (
            *(number(what, size(bytes_)) for what, bytes_ in wanted.items()),
            number("available to the server", size(there)),
            number("Max_used_connections", evidence.status("max_used_connections"), ",.0f"),
        ),
        tuple(yield_to)
        or (Remedy(steps=("Give the server more memory, or run fewer statements at once.",)),),
    )


def _smaller(evidence: Evidence, what: str) -> Remedy:
    """How to shrink what the sessions take: one part of ``sizes.beside_the_pool``."""
    if what == "temporary tables":
        name = "temptable_max_ram" if sizes.is_temptable(evidence) else "tmp_table_size"
        return Remedy(
            {f"server.{name}": sizes.default(evidence, name)},
            steps=(
                "Or find the statements that make temporary tables (the digests by "
                "created_tmp_tables) and give them an index or fewer rows.",
            ),
            label="smaller temporary tables",
        )
    if what == "running statements":
        names = ", ".join(sizes.allocated(evidence))
        return Remedy(
            steps=(
                f"Reset {names} to the default and raise them only in sessions that need it, or run fewer "
                "statements at the same time.",
            ),
            label="smaller sessions",
        )
    return Remedy(
        steps=("Allow fewer connections (max_connections), or let a connection pool share them.",),
        label="fewer sessions",
    )


@rule(
    "MEM17",
    severity=Severity.RISK,
    confidence=Confidence.LOW,
    source="Linux proc_pid_statm(5); MySQL Reference Manual, How MySQL Uses Memory",
    refute="An hour later the server is no larger, with the same number of connections.",
)
def grows_beyond_its_pool(evidence: Evidence) -> Iterator[Match]:
    """The server's memory keeps growing, and not because of the buffer pool.

    Possible causes are prepared statements that are never closed, user variables, a leak, or an allocator that
    does not return freed memory. At this rate the kernel kills the server within a day.
    """
    process = evidence.server_process
    label = f"{process['pid']}/{process['program']}"
    values = evidence.window.values("process", "rss_bytes", label)
    filled = evidence.window.values("mysql_status", "innodb_buffer_pool_pages_free")
    sessions = evidence.window.values("mysql_status", "threads_connected")
    if len(values) < PARTS + 1 or len(filled) < 2 or len(sessions) < 2:
        raise NotEnough("the memory of the server's process was not sampled (sampler process)")
    edges = [float(values[(len(values) - 1) * part // PARTS]) for part in range(PARTS + 1)]
    page = evidence.number("innodb_page_size")
    grown = edges[-1] - edges[0] - page * max(float(filled[0] - filled[-1]), 0.0)
    is_steady = min(late - early for early, late in itertools.pairwise(edges)) >= LEAKED
    if grown < PARTS * LEAKED or not is_steady or sessions[-1] > 1.1 * sessions[0] + 2:
        return
    limit = memory_bytes(evidence)
    room = min(limit - float(values[-1]), evidence.gauge("memory", "MemAvailable").last)
    lasts = max(room, 0.0) / (grown / evidence.window.seconds)
    if lasts > SOON_S:
        return
    yield Match(
        label,
        f"{process['program']} grew by {size(grown)} in {evidence.window.seconds:.0f} s beyond its pool; at "
        f"this rate the remaining memory lasts {lasting(lasts)}.",
        (
            number("resident", size(float(values[-1]))),
            number("grown beyond the pool", size(grown)),
            number("left", size(room)),
            number("sessions", f"{sessions[0]:.0f}, then {sessions[-1]:.0f}"),
            number("Prepared_stmt_count", evidence.status("prepared_stmt_count"), ",.0f"),
        ),
        (
            Remedy(
                steps=(
                    "See what uses it: sys.memory_global_by_current_bytes (MariaDB: Memory_used of SHOW "
                    "STATUS and of information_schema.PROCESSLIST).",
                    "Close prepared statements and recycle pooled connections; if the server accounts for "
                    "less memory than its process uses, try another allocator.",
                )
            ),
        ),
    )


@rule(
    "MEM18",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source=f"{_VM}, swappiness; Documentation/accounting/psi.rst; proc_vmstat(5), workingset_refault_file "
    "(workingset_refault before Linux 5.9)",
    refute="With less memory configured, major faults and page cache reads stay the same.",
)
def pressure_without_swap(evidence: Evidence) -> Iterator[Match]:
    """Memory is short on a host without swap: the kernel drops pages that programs still use.

    Without swap only the page cache can be dropped, and that includes the code of the server itself. It is
    read back from the device a moment later, over and over, long before the kernel kills anything.
    """
    if evidence.last("memory", "SwapTotal") > 0:
        return
    waited = evidence.rate("psi", "some_total_us", "memory") / 1e6
    faults = evidence.rate("vmstat", "pgmajfault")
    if waited < PRESSURE_SEEN or faults < FAULTS_S or waits_in_other_groups(evidence.window):
        return
    refaults = evidence.window.rate("vmstat", "workingset_refault_file")
    if refaults is None:
        refaults = evidence.rate("vmstat", "workingset_refault")  # before Linux 5.9: of files only
    if refaults < REFAULTS_S:
        return
    available = evidence.gauge("memory", "MemAvailable").low
    yield Match(
        "",
        f"{refaults:,.0f} pages/s are read again after the kernel dropped them, with {faults:,.0f} major "
        "faults/s; "
        f"{size(available)} is available and there is no swap.",
        (
            number("read again, pages/s", refaults, ",.0f"),
            number("major faults/s", faults, ",.0f"),
            number("pressure, some", share(waited)),
            number("available, minimum", size(available)),
        ),
        (
            Remedy(
                steps=(
                    "Configure less memory: a smaller buffer pool, fewer connections, smaller session buffers; "
                    "or move the other program that needs it.",
                    "A little swap, with vm.swappiness at 1, lets the kernel move out pages that are never "
                    "used.",
                )
            ),
        ),
    )


@rule(
    "MEM19",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_VM}, dirty_bytes, dirty_background_bytes; proc_vmstat(5), nr_dirty_threshold",
    refute="With the larger limits, the p99 of writes and the time waited for I/O are equivalent.",
)
def writers_are_paused(evidence: Evidence) -> Iterator[Match]:
    """The kernel pauses processes that write, because too much of the page cache is dirty.

    Above the midpoint between the two limits, each buffered write sleeps. Limits of a few megabytes make every
    dump and every binary log wait for the device; larger limits are reached when another program copies files.
    """
    dirty, written, background, limit = (
        evidence.gauge("vmstat", name)
        for name in ("nr_dirty", "nr_writeback", "nr_dirty_background_threshold", "nr_dirty_threshold")
    )
    waited = evidence.rate("psi", "some_total_us", "io") / 1e6
    # The kernel's own share: what is dirty cannot be given to the server before it is written.
    wanted = int(min(GIB, OF_AVAILABLE * evidence.gauge("memory", "MemAvailable").low)) // MIB * MIB
    page = evidence.facts.page_bytes
    most = page * limit.mean
    is_little = most < min(LITTLE_DIRTY, wanted / 2)
    # A little fills and empties many times a second: samples meet it full now and then.
    held = page * (dirty.high + written.high if is_little else dirty.mean + written.mean)
    if most <= 0 or held < (page * background.mean + most) / 2 or waited < PRESSURE_SEEN:
        return
    writer = Remedy(
        steps=("Find the writer (pidstat -d, headrace top), and slow it down or give it O_DIRECT.",)
    )
    larger = Remedy({"host.vm.dirty_background_bytes": wanted // 4, "host.vm.dirty_bytes": wanted})
    yield Match(
        "",
        f"{size(held)} is dirty or being written, and writers are stopped at {size(most)}; tasks wait for "
        f"I/O {share(waited)} of the time.",
        (
            number(f"dirty and written back, {'the most' if is_little else 'mean'}", size(held)),
            number("background limit", size(page * background.mean)),
            number("limit", size(most)),
            number("waited for I/O", share(waited)),
        ),
        (larger if is_little else writer,),
    )
