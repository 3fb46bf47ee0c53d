"""Rules about InnoDB's latches that threads spin for."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.model import Value, Vendor
from headrace.hunt.rules.evidence import Evidence, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: PAUSE takes about 10 cycles on older processors, and up to 140 on Intel's since Skylake; at 3 GHz.
PAUSE_NS, SLOW_PAUSE_NS = 10 / 3, 140 / 3
#: Instructions for one unit of innodb_spin_wait_delay; MySQL has a variable for it from 8.0.16 on.
PAUSES = 50.0
#: MySQL draws each pause at random from 0 to innodb_spin_wait_delay; MariaDB takes all of it.
MEAN_OF_RANDOM = 0.5
#: Defaults of innodb_spin_wait_delay.
DELAY, DELAY_MARIADB, LOOPS = 6, 4, 30
#: One pause, and all until a thread sleeps, as low estimates: above them a thread would have been put to sleep and
#: woken meanwhile. The defaults are 0.5 and 15 microseconds.
POLL_US, SPIN_US = 5.0, 500.0
#: ... and a hundred times as much: who waits for a latch that is held for a microsecond waits for the pause alone.
POLL_STUCK_US, SPIN_STUCK_US = 50.0, 50_000.0
#: Server threads at work, without ours: one alone waits for nobody.
RUNNING = 2.0
#: Share of all CPUs that counted spins take at least.
OF_CPUS = 0.02


def _multiplier(evidence: Evidence) -> float:
    name = "innodb_spin_wait_pause_multiplier"
    return evidence.number(name) if evidence.has_variable(name) else PAUSES


def _pauses(evidence: Evidence) -> float:
    """PAUSE instructions between two polls, on average."""
    units = evidence.number("innodb_spin_wait_delay") * _multiplier(evidence)
    return units if evidence.vendor is Vendor.MARIADB else MEAN_OF_RANDOM * units


def _rounds_s(evidence: Evidence) -> float | None:
    """Polls per second; None if nobody counts them: MariaDB does not, nor MySQL those of mutexes by default.

    Those of rw-locks are always 0 in MySQL 9.7, so a 0 says nothing.
    """
    window = evidence.window
    found = [window.rate("innodb_metrics", f"innodb_rwlock_{kind}_spin_rounds") for kind in ("s", "x", "sx")]
    found += window.rates("innodb_mutex", "spins").values()
    return sum(rate for rate in found if rate is not None) or None


def _defaults(evidence: Evidence) -> dict[str, Value]:
    """Those of the three variables that are above their defaults, at these."""
    is_mariadb = evidence.vendor is Vendor.MARIADB
    usual = {
        "innodb_spin_wait_delay": DELAY_MARIADB if is_mariadb else DELAY,
        "innodb_sync_spin_loops": LOOPS,
        "innodb_spin_wait_pause_multiplier": int(PAUSES),
    }
    return {
        f"server.{name}": value
        for name, value in usual.items()
        if evidence.has_variable(name) and evidence.number(name) > value
    }


@rule(
    "LOCK20",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Configuring Spin Lock Polling, innodb_spin_wait_pause_multiplier (8.0.16); "
    "MariaDB storage/innobase/sync/srw_lock.cc, srw_pause_delay; Intel Optimization Reference Manual, Pause "
    "Latency in Skylake",
    refute="With the defaults, or shorter pauses, CPU time per statement, throughput and p99 are equivalent.",
)
def threads_spin_long(evidence: Evidence) -> Iterator[Match]:
    """Threads that wait for a latch of InnoDB keep a CPU busy for longer than sleeping would take.

    A latch is held for about a microsecond. A thread polls it innodb_sync_spin_loops times, with a pause that
    innodb_spin_wait_delay sets, before it sleeps. A long pause notices late that the latch is free, so everybody
    behind it waits for the pause, and the CPU does nothing else. The length of the processor's PAUSE instruction
    differs by a factor of 14, so the times given are the shortest possible ones.
    """
    pauses, loops = _pauses(evidence), evidence.number("innodb_sync_spin_loops")
    poll_us = pauses * PAUSE_NS / 1e3
    spin_us = poll_us * loops
    running = evidence.running - 1
    rounds = _rounds_s(evidence)
    # Of an unknown number of CPUs no share is known.
    a_share = 1 / evidence.cpus if evidence.cpus else 0.0
    least, most = ((rounds or 0.0) * pauses * ns / 1e9 * a_share for ns in (PAUSE_NS, SLOW_PAUSE_NS))
    is_long = (poll_us >= POLL_US or spin_us >= SPIN_US) and running >= RUNNING
    if not is_long and least < OF_CPUS:
        return
    counted = (
        f"; {rounds:,.0f} pauses/s take {share(least)} to {share(min(most, 1.0))} of the CPUs"
        if rounds and least >= OF_CPUS
        else ""
    )
    is_stuck = is_long and (poll_us >= POLL_STUCK_US or spin_us >= SPIN_STUCK_US)
    severity = Severity.LIMIT if is_stuck else Severity.COST if counted else None
    yield Match(
        "",
        f"a thread that waits for a latch pauses for at least {poll_us:,.1f} us between two looks, {loops:,.0f} "
        f"times before it sleeps, while {running:.1f} threads run{counted}.",
        (
            number("innodb_spin_wait_delay", evidence.variable("innodb_spin_wait_delay")),
            number("innodb_sync_spin_loops", loops, ",.0f"),
            number("PAUSE instructions, mean", pauses, ",.0f"),
            number("until it sleeps, at least", f"{spin_us:,.0f} us"),
            number("pauses/s", "not counted" if rounds is None else rounds, ",.0f"),
            number("threads running, mean", running, ".1f"),
        ),
        (_shorter(evidence),),
        severity,
    )


def _shorter(evidence: Evidence) -> Remedy:
    """The defaults; at the defaults, shorter pauses, which is what newer processors need."""
    if usual := _defaults(evidence):
        return Remedy(usual)
    if evidence.has_variable("innodb_spin_wait_pause_multiplier"):
        return Remedy({"server.innodb_spin_wait_pause_multiplier": max(int(_multiplier(evidence)) // 5, 1)})
    return Remedy({"server.innodb_spin_wait_delay": int(evidence.number("innodb_spin_wait_delay")) // 2})
