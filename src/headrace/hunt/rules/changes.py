"""Rules about InnoDB's change buffer: changes of secondary index pages that are not in the buffer pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.base.model import Vendor
from headrace.hunt.rules import sizes
from headrace.hunt.rules.evidence import Evidence, NotEnough, number
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Pages read per second that cost something.
READS_S = 200.0
#: Pages read for each changed row, beyond those that a row which is read may need.
READS_PER_CHANGE = 1.5
#: Pages per second to which buffered changes are applied; and changes for each, below which none was saved.
MERGES_S, CHANGES_PER_MERGE = 100.0, 1.5
#: MariaDB deprecates it from 10.9 on and has none from 11.0 on.
MYSQL: Mapping[Vendor, Versions] = {Vendor.MYSQL: Versions(), Vendor.PERCONA: Versions()}
NAME = "innodb_change_buffering"
KINDS = ("insert", "delete_mark", "delete")
#: The same counters of MariaDB, whose monitors are off by default.
STATUS = ("inserts", "delete_marks", "deletes")

_MANUAL = "MySQL Reference Manual, Change Buffer, innodb_change_buffering (none in 8.4, all in 8.0 and 9.7)"


@rule(
    "POOL13",
    severity=Severity.COST,
    confidence=Confidence.LOW,
    source=f"{_MANUAL}; FAQ: InnoDB Change Buffer, What is the benefit",
    refute="With innodb_change_buffering=all, pages read per changed row, throughput and p99 are equivalent.",
    applies_to=MYSQL,
    disputed="MySQL 8.4 turned it off, and its manual sees less use for it on solid state; with a pool of a sixth "
    "of the table, inserts into four indexes were four times as fast with it, on flash.",
)
def pages_read_to_be_changed(evidence: Evidence) -> Iterator[Match]:
    """Pages of secondary indexes are read only to be changed, because the change buffer is off.

    Each changed row may need a page of each secondary index. The change buffer keeps such changes until the page
    is read for another reason, and applies several at once. Its price: a slow shutdown and a recovery take longer,
    and it takes up to innodb_change_buffer_max_size percent of the buffer pool.
    """
    buffering = evidence.variable(NAME).lower()
    reads, rows_read = (evidence.status_rate(f"innodb_{name}") for name in ("buffer_pool_reads", "rows_read"))
    changed = sum(evidence.status_rate(f"innodb_rows_{kind}") for kind in ("inserted", "updated", "deleted"))
    # A row that is read by a statement needs a page of its own.
    if (
        buffering != "none"
        or reads < READS_S
        or reads < READS_PER_CHANGE * changed + rows_read
        or changed <= 0
    ):
        return
    yield Match(
        "",
        f"{reads:,.0f} pages/s are read while {changed:,.0f} rows/s are changed and {rows_read:,.0f} read: "
        f"{reads / changed:.1f} pages for each change.",
        (
            number("Innodb_buffer_pool_reads/s", reads, ",.0f"),
            number("rows changed/s", changed, ",.0f"),
            number("Innodb_rows_read/s", rows_read, ",.0f"),
            number(NAME, buffering),
        ),
        (Remedy({f"server.{NAME}": "all"}),),
    )


@rule(
    "POOL14",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source=f"{_MANUAL}; FAQ: InnoDB Change Buffer, When should the change buffer not be used; INNODB_METRICS, "
    "ibuf_merges, ibuf_merges_insert; MariaDB, InnoDB Change Buffering (MDEV-27734: off by default, deprecated "
    "from 10.9 on)",
    refute="Without the change buffer, throughput is lower, p99 higher, or more pages are read.",
    applies_to={**MYSQL, Vendor.MARIADB: Versions(until="11.0")},
    disputed="It saves reads if a page gets several changes before it is read, and only adds work if it gets one.",
)
def changes_buffered_in_vain(evidence: Evidence) -> Iterator[Match]:
    """The change buffer saves few reads: most pages are read before a second change.

    Then each change is written to the change buffer, read from it and applied, and the page is read all the same.
    """
    if evidence.variable(NAME).lower() == "none" or (evidence.has_host and not sizes.is_flash(evidence)):
        return
    merges, changes = _merged(evidence)
    if merges < MERGES_S or changes > CHANGES_PER_MERGE * merges:
        return
    yield Match(
        "",
        f"buffered changes are applied to {merges:,.0f} pages/s, {changes / merges:.1f} to each.",
        (
            number("pages with buffered changes/s", merges, ",.0f"),
            number("buffered changes/s", changes, ",.0f"),
            number(NAME, evidence.variable(NAME)),
        ),
        (Remedy({f"server.{NAME}": "none"}),),
    )


def _merged(evidence: Evidence) -> tuple[float, float]:
    """Pages per second to which buffered changes are applied, and these changes. Raises NotEnough."""
    for sampler, pages, names in (
        ("innodb_metrics", "ibuf_merges", [f"ibuf_merges_{kind}" for kind in KINDS]),
        ("mysql_status", "innodb_ibuf_merges", [f"innodb_ibuf_merged_{kind}" for kind in STATUS]),
    ):
        rates = [evidence.window.rate(sampler, name) for name in (pages, *names)]
        if all(rate is not None for rate in rates):
            merges, *changes = (rate or 0.0 for rate in rates)
            return merges, sum(changes)
    raise NotEnough("merges of the change buffer were not sampled (innodb_metrics, ibuf_merges)")
