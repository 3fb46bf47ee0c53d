"""Rules about obsolete names: settings from advice of 2015, their names today, and whether they still work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.base.model import Vendor
from headrace.hunt.rules.evidence import Evidence, NotEnough, number
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

_MYSQL = (Vendor.MYSQL, Vendor.PERCONA)
_MARIADB = (Vendor.MARIADB,)


@dataclass(frozen=True)
class Gone:
    """A variable that a version no longer has; ``now`` is what to use instead."""

    name: str
    vendors: tuple[Vendor, ...]
    since: str
    now: str


#: If a short-lived release removed it, the next long-term release is listed: it certainly lacks it.
GONE = (
    *(
        Gone(f"query_cache_{end}", _MYSQL, "8.0.3", "nothing; cache in the application")
        for end in ("size", "type")
    ),
    *(
        Gone(name, _MYSQL, "8.0", now)
        for name, now in {
            "innodb_checksums": "innodb_checksum_algorithm",
            "innodb_file_format": "nothing: the newest is the only one",
            "innodb_large_prefix": "nothing: it is always on",
            "innodb_support_xa": "nothing: it is always on",
            "innodb_additional_mem_pool_size": "nothing: the system's allocator is used",
            "tx_isolation": "transaction_isolation",
            "log_warnings": "log_error_verbosity",
            "sync_frm": "nothing: there are no .frm files",
            "secure_auth": "nothing: it is always on",
        }.items()
    ),
    *(
        Gone(name, _MYSQL, "8.4", now)
        for name, now in {
            "expire_logs_days": "binlog_expire_logs_seconds",
            "relay_log_info_repository": "nothing: it is always TABLE",
            "master_info_repository": "nothing: it is always TABLE",
            "transaction_write_set_extraction": "nothing: it is always on",
            "log_bin_use_v1_row_events": "nothing: version 2 is the only one",
            "default_authentication_plugin": "authentication_policy",
        }.items()
    ),
    *(
        Gone(name, _MYSQL, "9.7", "innodb_redo_log_capacity, for the whole log")
        for name in ("innodb_log_file_size", "innodb_log_files_in_group")
    ),
    Gone("temptable_use_mmap", _MYSQL, "9.7", "temptable_max_mmap, 0 for no mapped files"),
    *(
        Gone(name, _MARIADB, "10.6", now)
        for name, now in {
            "innodb_buffer_pool_instances": "nothing: there is one pool",
            "innodb_page_cleaners": "nothing: there is one cleaner",
            "innodb_thread_concurrency": "thread_handling=pool-of-threads, if a limit is needed",
            "innodb_log_files_in_group": "innodb_log_file_size, for the whole log",
            "innodb_checksums": "innodb_checksum_algorithm",
            "innodb_file_format": "nothing: the newest is the only one",
            "innodb_large_prefix": "nothing: it is always on",
            "innodb_support_xa": "nothing: it is always on",
        }.items()
    ),
    Gone("innodb_change_buffering", _MARIADB, "11.0", "nothing: there is no change buffer"),
)


@dataclass(frozen=True)
class Relic:
    """A variable that still exists and is set, but has a better name or no effect."""

    name: str
    vendors: tuple[Vendor, ...]
    since: str
    untouched: tuple[str, ...]
    now: str


RELICS = (
    Relic(
        "expire_logs_days",
        _MYSQL,
        "8.0.1",
        ("0", "0.000000"),
        "binlog_expire_logs_seconds, 86,400 per day",
    ),
    Relic(
        "relay_log_info_repository",
        _MYSQL,
        "8.0.23",
        ("TABLE",),
        "TABLE: FILE is not crash-safe",
    ),
    Relic("master_info_repository", _MYSQL, "8.0.23", ("TABLE",), "TABLE: FILE is not crash-safe"),
    Relic(
        "innodb_flush_method",
        _MARIADB,
        "11.0",
        ("O_DIRECT", ""),
        "innodb_data_file_buffering and related variables",
    ),
    Relic(
        "innodb_change_buffering",
        _MARIADB,
        "10.9",
        ("none", ""),
        "nothing: it will be removed, and is off by default",
    ),
)


def _options(evidence: Evidence) -> dict[str, str]:
    """Options on the server's command line, by the variable's name."""
    process = evidence.process
    if process is None or process.get("command_line") is None:
        raise NotEnough("the server's command line is not known on this host")
    found = {}
    for word in process["command_line"][1:]:
        name, _, value = str(word).partition("=")
        if name.startswith("--"):
            found[name[2:].replace("-", "_").removeprefix("loose_")] = value
    return found


@rule(
    "NAME01",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Variables Added, Deprecated, or Removed; MariaDB, Removed System Variables",
    refute="SHOW VARIABLES lists the name.",
)
def options_that_are_gone(evidence: Evidence) -> Iterator[Match]:
    """The server is started with an option that this version no longer has.

    MariaDB silently accepts removed options, MySQL those that start with loose_. The option looks set, but does
    nothing.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    options = _options(evidence)
    for gone in GONE:
        is_here = evidence.vendor in gone.vendors and evidence.version in Versions(since=gone.since)
        if gone.name not in options or not is_here or evidence.has_variable(gone.name):
            continue
        yield Match(
            gone.name,
            f"{gone.name} is on the command line; {evidence.vendor} {evidence.version} no longer has it. "
            f"Today: {gone.now}.",
            (number(gone.name, options[gone.name]), number("gone since", gone.since)),
            (Remedy(steps=(f"Remove {gone.name} from the configuration. Instead: {gone.now}.",)),),
        )


@rule(
    "NAME02",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Server System Variables, Deprecated; MariaDB, InnoDB Flush Method",
    refute="The manual of this version does not call the variable deprecated.",
)
def options_that_go(evidence: Evidence) -> Iterator[Match]:
    """A variable is set that the next version will remove.

    The server starts today but not after the upgrade, or it silently accepts the variable and does something else.
    """
    for relic in RELICS:
        is_here = evidence.vendor in relic.vendors and evidence.version in Versions(since=relic.since)
        if not is_here or not evidence.has_variable(relic.name):
            continue
        value = evidence.variable(relic.name)
        if value in relic.untouched:
            continue
        yield Match(
            relic.name,
            f"{relic.name} is {value}; it has been deprecated since {relic.since}. Today: {relic.now}.",
            (number(relic.name, value), number("deprecated since", relic.since)),
            (Remedy(steps=(f"Replace {relic.name} in the configuration: {relic.now}.",)),),
        )
