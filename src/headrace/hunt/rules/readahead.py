"""Rules about InnoDB's read-ahead."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.hunt.rules.evidence import Evidence, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Fewer pages per second read ahead than this cost nothing noticeable.
OPERATIONS_S = 100.0
#: Above this share of unused pages, reading ahead does more harm than good.
EVICTED = 0.20
#: All pages of an extent.
STRICTEST = 64


@rule(
    "READ01",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Configuring InnoDB Buffer Pool Prefetching (Read-Ahead): higher is stricter; "
    "Innodb_buffer_pool_read_ahead_rnd",
    refute="With a threshold of 64, the share of evicted pages is unchanged, or throughput is lower.",
    disputed="The manual says that a higher threshold starts fewer read-aheads; MySQLTuner advises a lower one.",
)
def read_ahead_in_vain(evidence: Evidence) -> Iterator[Match]:
    """Pages are read ahead and evicted unused.

    They cost device time and push other pages out. Random read-ahead is off by default for that reason.
    """
    # Each kind has its own counter, and both have one for what is evicted.
    by_chance = evidence.window.rate("mysql_status", "innodb_buffer_pool_read_ahead_rnd") or 0.0
    read = evidence.status_rate("innodb_buffer_pool_read_ahead") + by_chance
    evicted = evidence.status_rate("innodb_buffer_pool_read_ahead_evicted")
    threshold = int(evidence.number("innodb_read_ahead_threshold"))
    if read < OPERATIONS_S or evicted < EVICTED * read:
        return
    remedies = []
    if evidence.is_on("innodb_random_read_ahead"):
        remedies.append(Remedy({"server.innodb_random_read_ahead": False}, label="no random read-ahead"))
    if threshold < STRICTEST and by_chance < read / 2:
        remedies.append(Remedy({"server.innodb_read_ahead_threshold": STRICTEST}, label="stricter"))
        remedies.append(Remedy({"server.innodb_read_ahead_threshold": threshold // 2}, label="less strict"))
    if not remedies:
        remedies.append(Remedy({"server.innodb_read_ahead_threshold": 0}, label="no linear read-ahead"))
    yield Match(
        "",
        f"{share(evicted / read)} of {read:,.0f} pages/s read ahead are evicted unused; the threshold is "
        f"{threshold} of 64 pages.",
        (
            number("pages read ahead/s", read, ",.0f"),
            number("of them by random read-ahead/s", by_chance, ",.0f"),
            number("evicted unused/s", evicted, ",.0f"),
            number("innodb_read_ahead_threshold", threshold),
        ),
        tuple(remedies),
    )
