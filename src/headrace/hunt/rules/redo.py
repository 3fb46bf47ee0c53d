"""Rules about the redo log: how far apart checkpoints may be, and what waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.model import Value, Vendor
from headrace.hunt.rules import sizes
from headrace.hunt.rules.evidence import GIB, MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Redo of about an hour at peak spreads checkpoints: MySQL Reference Manual, Redo Log, and long practice.
HOUR_S = 3600.0
#: Below this much per hour, checkpoints do not disturb the load.
LITTLE_AN_HOUR = 256 * MIB
#: From this checkpoint age on the log, not the pool, decides what is flushed: a shorter round costs writes.
PRESSED = 0.50
#: Without the age: a round of fewer minutes than this writes busy pages again and again.
SHORT_ROUND = 10.0
#: Counters of statements that write, and how often one of them is said to wait for the log buffer at most.
WRITES = ("com_insert", "com_insert_select", "com_update", "com_update_multi", "com_delete", "com_delete_multi",
          "com_replace", "com_replace_select", "com_load")  # fmt: skip
MANY = 100.0
#: Above this share of the limit the log is nearly full: the next peak may force flushing.
NEARLY_FULL = 0.80
#: The share of the age at which statements wait (MariaDB), or of the space for statements (MySQL), above which
#: pages are flushed ahead: as fast as innodb_io_capacity_max allows, and near the end regardless of it.
FORCED = 7 / 8
#: Recovery reads the redo log: a larger one makes a crash cost minutes, so that is left to a person.
LARGEST = 64 * GIB
#: Times the buffer pool: a larger log saves next to no writes of pages.
POOLS = 4
#: Both vendors' default, rounded: nothing smaller is worth a setting.
DEFAULT_BYTES = 100 * MIB
#: Only very large transactions fill a log buffer of this size.
LARGEST_BUFFER = 256 * MIB
#: Share of free space that the log may take: the data grows too.
SHARE_OF_ROOM = 0.25
#: MySQL's redo log: its files, the header of each, what is never used, and background threads that write redo.
REDO_FILES, REDO_HEADER, REDO_UNUSED, REDO_THREADS = 32, 2048, 128 << 10, 10
#: From this version on, the server manages the log's files.
ONE_CAPACITY = Versions(since="8.0.30")


def _mysql(evidence: Evidence) -> bool:
    return evidence.vendor is not Vendor.MARIADB


def by_capacity(evidence: Evidence) -> bool:
    """Whether innodb_redo_log_capacity sets the size; innodb_log_file_size counts only where it alone was set."""
    return _mysql(evidence) and evidence.version in ONE_CAPACITY


def capacity_bytes(evidence: Evidence) -> float:
    """All of the redo log, as the server runs with it.

    innodb_redo_log_capacity shows its default where the server took the size from innodb_log_file_size and
    innodb_log_files_in_group, which it does if only they are set.
    """
    if by_capacity(evidence):
        in_force = evidence.window.last("mysql_status", "innodb_redo_log_capacity_resized")
        return in_force or evidence.number("innodb_redo_log_capacity")
    files = (
        evidence.number("innodb_log_files_in_group")
        if evidence.has_variable("innodb_log_files_in_group")
        else 1.0
    )
    return evidence.number("innodb_log_file_size") * files


def setting(evidence: Evidence, capacity: float) -> dict[str, Value]:
    """The knob of this version for a capacity, in whole GiB or MiB; never more than the disk has room for."""
    room = (evidence.data_file_system or {}).get("available_bytes") if evidence.has_host else None
    if room is not None:
        capacity = max(min(capacity, SHARE_OF_ROOM * room), capacity_bytes(evidence))
    step = GIB if capacity >= GIB else MIB
    whole = int(-(-capacity // step) * step)
    if by_capacity(evidence):
        return {"server.innodb_redo_log_capacity": whole}
    files = (
        int(evidence.number("innodb_log_files_in_group"))
        if evidence.has_variable("innodb_log_files_in_group")
        else 1
    )
    return {"server.innodb_log_file_size": whole // max(files, 1)}


def _hour_bytes(evidence: Evidence) -> float:
    """An hour of redo, but no more than four times the buffer pool.

    In one round of the log each page of the pool must be written at most once, so pages take at most a quarter of
    the bytes that redo takes, and a larger log saves next to nothing. It costs recovery and, until it was filled
    once, the allocation of its blocks at each flush.
    """
    hour = (evidence.window.rate("mysql_status", "innodb_os_log_written") or 0.0) * HOUR_S
    return min(hour, max(POOLS * evidence.number("innodb_buffer_pool_size"), GIB))


def wanted_bytes(evidence: Evidence) -> float:
    """The one size that every rule about the redo log asks for: an hour of redo, twice the largest checkpoint age,
    and what innodb_log_file_size asks for in vain; never less than the default."""
    try:
        age, _ = checkpoint_age(evidence)
    except NotEnough:
        age = 0.0
    asked = 0.0
    if by_capacity(evidence) and evidence.has_variable("innodb_log_file_size"):
        asked = evidence.number("innodb_log_file_size") * evidence.number("innodb_log_files_in_group")
    return max(
        min(max(_hour_bytes(evidence), 2 * age, DEFAULT_BYTES), LARGEST), asked, capacity_bytes(evidence)
    )


def _larger(evidence: Evidence, label: str = "") -> Remedy:
    """The knob of this version for that size, or why it cannot be had."""
    settings = setting(evidence, wanted_bytes(evidence))
    if all(
        evidence.has_variable(n.partition(".")[2]) and evidence.number(n.partition(".")[2]) >= float(str(v))
        for n, v in settings.items()
    ):
        return Remedy(
            steps=("The log may not take more space on its file system: free some space there first.",),
            label=label,
        )
    unknown = (
        () if evidence.has_host else ("See first that its volume has room for it: that is unknown here.",)
    )
    return Remedy(settings, unknown, label=label)


def checkpoint_age(evidence: Evidence) -> tuple[float, float]:
    """The largest checkpoint age in the window (redo that crash recovery would apply), and the capacity for it."""
    is_mysql = evidence.has_server and _mysql(evidence)
    name = "innodb_redo_log_logical_size" if is_mysql else "innodb_checkpoint_age"
    found = evidence.window.gauge("mysql_status", name)
    if found is not None:
        return found.high, _most(evidence)
    sampled = evidence.window.gauge("innodb_status", "checkpoint_age_bytes")
    if sampled is None:
        evidence.settings  # noqa: B018 - raises NotEnough without a server
        raise NotEnough("the checkpoint age was not sampled")
    # Servers that have no counter of it print its limit beside it.
    told = evidence.window.last("innodb_status", "max_checkpoint_age_bytes")
    return sampled.high, told or capacity_bytes(evidence)


def _most(evidence: Evidence) -> float:
    """The checkpoint age at which statements that write wait."""
    if _mysql(evidence):
        return _free_check_bytes(evidence) if by_capacity(evidence) else capacity_bytes(evidence)
    return evidence.window.last("mysql_status", "innodb_checkpoint_max_age") or capacity_bytes(evidence)


def _free_check_bytes(evidence: Evidence) -> float:
    """What MySQL leaves for redo from 8.0.30 on: 74% of 8 MiB, 84% of a large log.

    Two of 32 files stay free, and the others lose their headers and what is prepared early. Of the rest the
    log's writer keeps 5% for itself, and threads within a mini-transaction another 5% and four pages each
    (storage/innobase/log/log0files_capacity.cc, log0chkp.cc). Measured on 8.0.31: 5.92 of 8 MiB.
    """
    threads = evidence.number("innodb_thread_concurrency") + REDO_THREADS
    return 0.95 * _soft_bytes(evidence) - 4 * evidence.number("innodb_page_size") * threads


def _soft_bytes(evidence: Evidence) -> float:
    """The part of MySQL's redo log that statements may fill, from 8.0.30 on."""
    file = capacity_bytes(evidence) / REDO_FILES
    usable = (REDO_FILES - 2) * file - (REDO_FILES - 1) * REDO_HEADER - REDO_UNUSED - 0.1 * file
    return 0.95 * usable


def _forced(evidence: Evidence, most: float) -> float:
    """The checkpoint age above which pages are flushed ahead to free the log.

    max_modified_age_async in MariaDB (storage/innobase/log/log0log.cc, mtr0mtr.cc) and in MySQL until 8.0.29,
    adaptive_flush_min_age from 8.0.30 on (storage/innobase/log/log0files_capacity.cc).
    """
    return min(FORCED * (_soft_bytes(evidence) if by_capacity(evidence) else most), most)


@rule(
    "REDO01",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Redo Log, Configuring Redo Log Capacity; MariaDB, InnoDB Redo Log",
    refute="With the larger redo log, pages written per second and p99 are equivalent to before.",
)
def less_than_an_hour(evidence: Evidence) -> Iterator[Match]:
    """More redo is written in an hour than the redo log holds.

    Before the log wraps, every page that changed must have been written. A page that changes often is written once
    per round, so a longer log means fewer writes for the same work. A larger log makes crash recovery slower.
    """
    written = evidence.status_rate("innodb_os_log_written") * HOUR_S
    capacity = capacity_bytes(evidence)
    if written <= max(capacity, LITTLE_AN_HOUR) or capacity >= _hour_bytes(evidence):
        return
    minutes = 60 * capacity / written
    try:
        age, most = checkpoint_age(evidence)
        presses = age >= PRESSED * most
    except NotEnough:
        presses = minutes < SHORT_ROUND
    yield Match(
        "",
        f"{size(written)} of redo is written per hour; the log holds {size(capacity)}, enough for "
        f"{minutes:,.1f} minutes.",
        (
            number("redo written/s", size(written / HOUR_S)),
            number("redo log", size(capacity)),
            number("minutes until the log wraps", minutes, ",.1f"),
        ),
        (_larger(evidence),),
        None if presses else Severity.HOUSEKEEPING,
    )


@rule(
    "REDO02",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Configuring Buffer Pool Flushing; MariaDB, InnoDB Page Flushing",
    refute="With the larger redo log, the checkpoint age falls below 80%, but throughput and p99 are "
    "equivalent.",
)
def checkpoint_near_end(evidence: Evidence) -> Iterator[Match]:
    """The redo log is nearly full: pages are flushed ahead, and soon statements wait.

    When the checkpoint age reaches the size of the log, every statement that writes has to wait for pages to be
    flushed. A larger log or earlier flushing prevents that. From seven eighths on, the server flushes ahead as
    fast as innodb_io_capacity_max allows, and near the end regardless of it; before, the log is only nearly full.
    """
    age, most = checkpoint_age(evidence)
    if most <= 0 or age < NEARLY_FULL * most:
        return
    summary = f"the checkpoint age is {size(age)}, {share(age / most)} of its limit of {size(most)}."
    numbers = (number("checkpoint age, maximum", size(age)), number("limit", size(most)))
    if not evidence.has_server:
        larger = Remedy(
            steps=("Raise innodb_log_file_size, or innodb_redo_log_capacity from MySQL 8.0.30 on.",)
        )
        yield Match("", summary, numbers, (larger,), None if age >= FORCED * most else Severity.ADVICE)
        return
    earlier = sizes.io_capacity(evidence)
    yield Match(
        "",
        summary,
        (
            *numbers,
            number("redo log", size(capacity_bytes(evidence))),
            number("innodb_io_capacity", evidence.variable("innodb_io_capacity")),
        ),
        (
            _larger(evidence, "a larger log"),
            *((Remedy(earlier, label="earlier flushing"),) if earlier else ()),
        ),
        None if age >= _forced(evidence, most) else Severity.ADVICE,
    )


@rule(
    "REDO03",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Server Status Variables, Innodb_log_waits; innodb_log_buffer_size",
    refute="With a larger log buffer, Innodb_log_waits stops growing, but throughput and p99 are equivalent.",
)
def buffer_too_small(evidence: Evidence) -> Iterator[Match]:
    """Statements wait because the log buffer is full.

    A large transaction fills the buffer before it commits, so the redo log is written in the middle of the
    transaction.
    """
    waits = evidence.status_rate("innodb_log_waits")
    buffer = evidence.number("innodb_log_buffer_size")
    if waits <= 0 or buffer >= LARGEST_BUFFER:
        return
    larger = sizes.log_buffer(evidence, LARGEST_BUFFER)
    each = waits / max(
        sum(evidence.window.rate("mysql_status", name) or 0.0 for name in WRITES), waits / MANY
    )
    often = f", {each:.1f} times per statement that writes" if each >= 1 else ""
    yield Match(
        "",
        f"the log buffer of {size(buffer)} is full {waits:,.1f} times per second{often}.",
        (
            number("Innodb_log_waits/s", waits, ",.1f"),
            number("innodb_log_buffer_size", size(buffer)),
            number("redo written/s", size(evidence.status_rate("innodb_os_log_written"))),
        ),
        (
            Remedy(larger)
            if larger
            else Remedy(steps=("Free memory for a larger one, or make the transactions smaller.",)),
        ),
        Severity.LIMIT if often else None,
    )


@rule(
    "REDO04",
    severity=Severity.ADVICE,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, innodb_redo_log_capacity: innodb_log_file_size is ignored where it is set; "
    "Innodb_redo_log_capacity_resized: the capacity in force",
    refute="With innodb_redo_log_capacity removed, Innodb_redo_log_capacity_resized is unchanged.",
    applies_to={Vendor.MYSQL: ONE_CAPACITY, Vendor.PERCONA: ONE_CAPACITY},
)
def size_without_effect(evidence: Evidence) -> Iterator[Match]:
    """The redo log is smaller than innodb_log_file_size asks for, because another variable overrides it.

    innodb_log_file_size and innodb_log_files_in_group count only if innodb_redo_log_capacity is not set.
    """
    real = evidence.window.last("mysql_status", "innodb_redo_log_capacity_resized")
    if real is None:
        evidence.settings  # noqa: B018 - raises NotEnough without a server
        raise NotEnough("Innodb_redo_log_capacity_resized was not sampled: the capacity in force is unknown")
    if not evidence.has_variable("innodb_log_file_size"):
        return
    asked = evidence.number("innodb_log_file_size") * evidence.number("innodb_log_files_in_group")
    if asked <= real:
        return
    yield Match(
        "innodb_log_file_size",
        f"innodb_log_file_size asks for {size(asked)} of redo log, but the server has {size(real)}.",
        (
            number("innodb_log_file_size x innodb_log_files_in_group", size(asked)),
            number("innodb_redo_log_capacity", size(evidence.number("innodb_redo_log_capacity"))),
            number("Innodb_redo_log_capacity_resized", size(real)),
        ),
        (_larger(evidence),),
    )
