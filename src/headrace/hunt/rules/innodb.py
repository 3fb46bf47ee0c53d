"""What InnoDB's own text (SHOW ENGINE INNODB STATUS) says where the server's counters are not known."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.counted import counted
from headrace.hunt.rules.evidence import Evidence, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Transactions that wait for rows, on average or in one text.
WAITERS = 1.0
#: One text is a moment, and a busy server has waits at every moment: they are more than that if they last so long,
#: or in several texts.
LASTS_S, TEXTS = 5.0, 3
#: Of all requests for pages, and pages per second: from these on, reads from files are felt.
MISSES, PAGES_S = 0.01, 100.0
#: A pool with more free pages than this share has room for what it reads: it is still warming up.
HAS_ROOM = 0.05
#: InnoDB's averages over less are those of a moment.
AVERAGED_S = 1.0


def is_all(evidence: Evidence) -> bool:
    """Whether there is InnoDB's text, and no counter of row locks."""
    waited = evidence.window.last("mysql_status", "innodb_row_lock_time")
    return waited is None and "innodb_status" in evidence.window.samplers()


def waiting(evidence: Evidence) -> float:
    """Transactions that wait for rows, on average over the texts, without those that wait for a number; 0 where it
    may have been for a moment."""
    locked = evidence.window.gauge("innodb_status", "lock_wait_transactions")
    numbers = evidence.window.gauge("innodb_status", "autoinc_waiters")
    if locked is None or (_longest_s(evidence) < LASTS_S and _texts(evidence) < TEXTS):
        return 0.0
    return max(locked.mean - (numbers.mean if numbers else 0.0), 0.0)


def _longest_s(evidence: Evidence) -> float:
    longest = evidence.window.gauge("innodb_status", "lock_wait_longest_s")
    return longest.high if longest is not None else 0.0


def _texts(evidence: Evidence) -> int:
    return len(evidence.window.values("innodb_status", "lock_wait_transactions"))


def _many(mean: float, texts: int) -> str:
    """``1 transaction waits``, ``2.5 transactions wait``: of one text whole ones, of several an average."""
    if texts > 1:
        return f"{mean:.1f} transactions wait"
    return f"{counted(round(mean), 'transaction')} wait{'s' if round(mean) == 1 else ''}"


def waits_for_rows(evidence: Evidence) -> Iterator[Match]:
    """The finding of LOCK02 from texts alone."""
    sessions, texts, lasts = waiting(evidence), _texts(evidence), _longest_s(evidence)
    if sessions < WAITERS:
        return
    yield Match(
        "",
        f"{_many(sessions, texts)} for row locks" + (f", one for {lasts:,.0f} s." if lasts else "."),
        (
            number("transactions waiting for row locks", sessions, ",.1f"),
            number("longest wait", f"{lasts:,.0f} s" if lasts else "unknown"),
            number("texts", texts),
        ),
        (
            Remedy(
                steps=(
                    "See which session blocks which: sys.innodb_lock_waits (MariaDB: "
                    "information_schema.INNODB_LOCK_WAITS), or TRX HAS BEEN WAITING in the text itself.",
                    "Shorten the transaction that holds the row, or lock the hot row last in it.",
                )
            ),
        ),
    )


def held_outside(evidence: Evidence, threads: float) -> Iterator[Match]:
    """The finding of LOCK08 from texts alone; none for no threads."""
    if threads:
        inside = evidence.window.gauge("innodb_status", "threads_inside")
        yield Match(
            "",
            f"{threads:.0f} statements wait to enter InnoDB: innodb_thread_concurrency lets no more in.",
            (
                number("waiting to enter, mean", threads, ".1f"),
                number("inside, mean", inside.mean if inside is not None else "unknown", ".1f"),
            ),
            (Remedy({"server.innodb_thread_concurrency": 0}),),
            Severity.LIMIT if inside is not None and threads >= inside.mean else None,
        )


def waits_for_numbers(evidence: Evidence, transactions: float) -> Iterator[Match]:
    """The finding of LOCK11 from texts alone; none for no transactions."""
    if transactions:
        yield Match(
            "",
            f"{_many(transactions, _texts(evidence))} for a table's AUTO_INCREMENT lock.",
            (number("waiting for an AUTO_INCREMENT lock", transactions, ".1f"),),
            (Remedy(steps=("See binlog_format: with ROW, set innodb_autoinc_lock_mode 2.",)),),
            Severity.LIMIT,
        )


@rule(
    "POOL15",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Monitoring the Buffer Pool Using the InnoDB Standard Monitor",
    refute="With a larger buffer pool under the same load, as many pages per second are read.",
)
def misses_by_text(evidence: Evidence) -> Iterator[Match]:
    """The buffer pool misses many of the pages that are asked for.

    Told by the averages that InnoDB prints itself, where the server's counters are not known. A pool that still
    has free pages is warming up, and a larger one would not help it.
    """
    if evidence.window.last("mysql_status", "innodb_buffer_pool_reads") is not None:
        return  # POOL01 and POOL08 know more
    missed, read = (evidence.innodb(name).mean for name in ("pool_missed", "page_reads_s"))
    over, pages = evidence.innodb("averaged_s").low, evidence.innodb("pool_pages").last
    free = evidence.innodb("pool_free_pages").last / max(pages, 1.0)
    if over < AVERAGED_S or missed < MISSES or read < PAGES_S or free > HAS_ROOM:
        return
    yield Match(
        "",
        f"{read:,.0f} pages/s are read from files: the buffer pool misses {share(missed)} of what is asked for, "
        f"and {share(free)} of it is free.",
        (
            number("pages read/s", read, ",.0f"),
            number("missed of 1,000 page requests", 1e3 * missed, ",.0f"),
            number("pages in the buffer pool", pages, ",.0f"),
            number("InnoDB's averages are over", f"{over:,.0f} s"),
        ),
        (
            Remedy(
                steps=(
                    "See how much memory the host has left for innodb_buffer_pool_size: a hunt on it tells "
                    "(POOL01, POOL08).",
                    "Find the statements that examine the most rows, and give them an index.",
                )
            ),
        ),
    )
