"""Rules about the memory allocator."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.hunt.rules.evidence import Evidence, NotEnough, number
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.users import TICKS_PER_SECOND

#: Percona saw no difference up to 4 CPUs and a clear one from 8: Impact of memory allocators, part 2.
MANY_CPUS = 8
#: Concurrently running threads above which they contend in the allocator.
MANY_RUNNING = 8.0
#: CPUs that the server uses: with fewer, the allocator's share is too small to see.
CPUS_USED = 4.0


@rule(
    "ALLOC01",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Percona, MySQL performance: Impact of memory allocators (Part 2), 2013; A. Kopytov, Revisiting "
    "memory allocators and MySQL performance, 2018",
    refute="With jemalloc and with tcmalloc, throughput, p99 and resident memory are equivalent.",
    disputed="In 2013 glibc fell behind at 8 or more CPUs; since 2.26 it has per-thread caches, and in 2018 "
    "the difference was gone.",
)
def allocator_of_glibc(evidence: Evidence) -> Iterator[Match]:
    """A busy server with many threads uses glibc's allocator.

    Every statement allocates and frees memory. How well threads do so concurrently, and how much memory is lost to
    fragmentation, depends on the library and its version, so a result holds for that build only.
    """
    process = evidence.server_process
    name = (process.get("allocator") or {}).get("name")
    if name is None:
        raise NotEnough("the server's allocator is unknown")
    if name != "system" or len(evidence.cores) < MANY_CPUS:
        return
    running = evidence.running
    label = f"{process['pid']}/{process['program']}"
    used = (
        evidence.rate("process", "utime_ticks", label) + evidence.rate("process", "stime_ticks", label)
    ) / TICKS_PER_SECOND
    if running < MANY_RUNNING or used < CPUS_USED:
        return
    yield Match(
        label,
        f"{process['program']} uses glibc's allocator with {running:.0f} threads running on {used:.1f} CPUs.",
        (
            number("allocator", (process.get("allocator") or {}).get("path") or name),
            number("threads at work, mean", running, ".1f"),
            number("CPUs used", used, ".1f"),
        ),
        (
            Remedy({"server.allocator": "jemalloc"}, label="jemalloc"),
            Remedy({"server.allocator": "tcmalloc"}, label="tcmalloc"),
        ),
    )
