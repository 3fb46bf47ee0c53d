"""The catalogue of knobs: what is found, what is refused, what weakens durability.

The real servers check it, too: see ``tests/real/server/test_server.py``.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.base.model import Value, Vendor
from headrace.knobs import catalogue as knobs
from headrace.knobs import servers
from headrace.knobs.catalogue import Cost, Durability, Kind, Knob, Versions
from headrace.knobs.change import in_words
from tests.folders import ROOT, TESTS

CATALOGUE = list(knobs.CATALOGUE.values())


@pytest.mark.parametrize("knob", CATALOGUE, ids=lambda k: k.name)
def test_every_record_is_whole(knob: Knob) -> None:
    assert re.fullmatch(r"(machine|volume|host|server)\.[a-z0-9_.-]+", knob.name)
    assert knob.doc.endswith(".")
    assert knob.source
    assert "http" not in knob.source
    assert bool(knob.allowed) == (knob.kind is Kind.CHOICE)
    assert (knob.durability is Durability.BY_VALUE) == bool(knob.weak_values) == bool(knob.weak_reason)
    if knob.low is not None and knob.high is not None:
        assert knob.low < knob.high
    assert knobs.find(knob.name) is knob
    if knob.name.startswith("host."):
        assert knob.location.startswith(("/proc/sys/", "/sys/", "/proc/irq/"))


def test_names_are_unique() -> None:
    modules = [
        importlib.import_module(f"headrace.knobs.{m.name}")
        for m in pkgutil.iter_modules(importlib.import_module("headrace.knobs").__path__)
    ]
    records = [knob for module in modules for knob in getattr(module, "KNOBS", ())]
    assert len(records) == len(knobs.CATALOGUE) > 250


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("volume.schedular", "did you mean volume.scheduler?"),
        ("innodb_io_capacity", "did you mean server.innodb_io_capacity?"),
        ("vm.swappiness", "did you mean host.vm.swappiness?"),
        ("volume.vm.swappiness", "did you mean host.vm.swappiness?"),
        ("host.vm.swapiness", "did you mean host.vm.swappiness?"),
        ("host.vm.swappinses", "did you mean host.vm.swappiness?"),
        ("host.tph", "did you mean host.thp?"),
        ("server.innodb_bufer_pool_size", "did you mean server.innodb_buffer_pool_size?"),
        ("server.innodb_buffer_pool_sizes", "did you mean server.innodb_buffer_pool_size?"),
        ("server.innodb_doublewrit", "did you mean server.innodb_doublewrite?"),
        ("server.innodb_flush_log_at_trx", "did you mean server.innodb_flush_log_at_trx_commit?"),
        ("zzzzzz", "names start with volume., host., server. or workload."),
        ("server.", "did you mean"),
        ("server.Innodb", "did you mean"),
        ("host.vm.../etc", "did you mean"),
        ("workload.", "did you mean"),
    ],
)
def test_a_name_that_is_not_there_says_what_was_meant(name: str, hint: str) -> None:
    with pytest.raises(PlanError, match="no such knob") as caught:
        knobs.find(name)
    assert caught.value.place == name
    assert hint in (caught.value.hint or "") or "names start with" in (caught.value.hint or "")


def test_what_has_no_record_is_accepted_and_marked() -> None:
    variable = knobs.find("server.rocksdb_block_cache_size")
    assert (variable.durability, variable.cost) == (Durability.UNKNOWN, Cost.RESTART)
    sysctl = knobs.find("host.net.ipv4.tcp_frto")
    assert sysctl.durability is Durability.UNKNOWN
    assert sysctl.path() == "/proc/sys/net/ipv4/tcp_frto"
    knobs.check("host.net.ipv4.tcp_frto", "4096 131072 6291456")
    knobs.check("workload.threads", 8)


def test_variables_that_look_alike_are_not_taken_for_slips() -> None:
    for name in (
        "innodb_ft_cache_size",
        "max_insert_delayed_threads",
        "innodb_buffer_pool_size_auto_min",
        "sort_buffer",
    ):
        assert knobs.find(f"server.{name}").durability is Durability.UNKNOWN


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("host.vm.swappiness", 201, "at most 200"),
        ("host.vm.swappiness", -1, "at least 0"),
        ("host.vm.swappiness", "many", "a whole number"),
        ("host.vm.swappiness", 1.5, "a whole number"),
        ("host.vm.swappiness", True, "a whole number"),
        ("host.vm.swappiness", [1], "one value, not a list"),
        ("host.vm.dirty_ratio", 101, r"at most 100 \(%\)"),
        ("host.thp", "sometimes", "always or madvise or never"),
        ("volume.rq_affinity", 3, "at most 2"),
        ("volume.scheduler", "cfq", "none or mq-deadline"),
        ("volume.filesystem", "zfs", "xfs or ext4 or btrfs"),
        ("volume.mount_options", "noatime", "a list of strings"),
        ("volume.mount_options", ["noatime\n"], "a list of strings"),
        ("server.innodb_buffer_pool_size", "1Q", "a size"),
        ("server.innodb_buffer_pool_size", "1M", "at least"),
        ("server.innodb_flush_neighbors", 3, "at most 2"),
        ("server.innodb_flush_method", "fast", "O_DIRECT"),
        ("server.innodb_adaptive_flushing", "maybe", "true or false"),
        ("server.allocator", "hoard", "system or jemalloc or tcmalloc"),
        ("server.unheard_of", "a\nb", "control characters"),
        ("server.unheard_of", ["a", "b\n"], "control characters"),
    ],
)
def test_a_wrong_value_says_knob_value_and_what_is_allowed(name: str, value: Value, wanted: str) -> None:
    with pytest.raises(PlanError, match=wanted) as caught:
        knobs.check(name, value)
    assert name in caught.value.message
    assert repr(value) in caught.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host.vm.swappiness", 1),
        ("host.vm.swappiness", "1"),
        ("host.net.core.somaxconn", 4096),
        ("host.thp_defrag", "defer+madvise"),
        ("volume.device", "/dev/disk/by-id/x"),
        ("volume.mkfs_options", ["-b", "size=4096"]),
        ("volume.wbt_lat_usec", -1),
        ("server.innodb_buffer_pool_size", "60G"),
        ("server.innodb_buffer_pool_size", 1 << 30),
        ("server.innodb_max_dirty_pages_pct", 90.5),
        ("server.innodb_doublewrite", True),
        ("server.innodb_doublewrite", "detect_and_recover"),
        ("server.innodb_flush_method", "o_direct"),
        ("server.skip_name_resolve", True),
        ("server.allocator", "jemalloc"),
        ("server.sql_mode", ["STRICT_ALL_TABLES", "NO_ZERO_DATE"]),
    ],
)
def test_a_right_value_is_accepted(name: str, value: Value) -> None:
    knobs.check(name, value)


@pytest.mark.parametrize(
    ("name", "value", "weak"),
    [
        ("server.innodb_flush_log_at_trx_commit", 0, True),
        ("server.innodb_flush_log_at_trx_commit", "2", True),
        ("server.innodb_flush_log_at_trx_commit", "02", True),
        ("server.innodb_flush_log_at_trx_commit", 1, False),
        ("server.innodb_flush_log_at_trx_commit", 3, False),
        ("server.sync_binlog", 0, True),
        ("server.sync_binlog", 1000, True),
        ("server.sync_binlog", 1, False),
        ("server.innodb_doublewrite", False, True),
        ("server.innodb_doublewrite", 0, True),
        ("server.innodb_doublewrite", "OFF", True),
        ("server.innodb_doublewrite", "DETECT_ONLY", True),
        ("server.innodb_doublewrite", "DETECT_AND_RECOVER", False),
        ("server.innodb_doublewrite", "fast", True),
        ("server.log_bin", "OFF", True),
        ("server.skip_log_bin", True, True),
        ("server.log_bin", "binlog", False),
        ("server.binlog_format", "STATEMENT", True),
        ("server.binlog_format", "ROW", False),
        ("server.relay_log_recovery", False, True),
        ("server.relay_log_recovery", True, False),
        ("server.sync_relay_log", 10000, True),
        ("server.sync_relay_log_info", 0, True),
        ("server.sync_master_info", 1, False),
        ("server.read_only", "OFF", True),
        ("server.super_read_only", 0, True),
        ("server.read_only", "ON", False),
        ("server.skip_innodb_doublewrite", True, True),
        ("server.disable_innodb_doublewrite", True, True),
        ("server.innodb_flush_method", "nosync", True),
        ("server.innodb_flush_method", "O_DIRECT_NO_FSYNC", True),
        ("server.innodb_flush_method", "O_DIRECT", False),
        ("server.innodb_checksum_algorithm", "strict_none", True),
        ("server.innodb_checksum_algorithm", "crc32", False),
        ("volume.mount_options", ["noatime", "nobarrier"], True),
        ("volume.mount_options", ["noatime,barrier=0"], True),
        ("volume.mount_options", ["data=writeback"], True),
        ("volume.mount_options", ["data=ordered", "noatime"], False),
        ("volume.mkfs_options", ["-O", "^has_journal"], True),
        ("volume.mkfs_options", ["-b", "4096"], False),
        ("host.vm.dirty_ratio", 80, False),
        ("workload.threads", 8, False),
        ("server.unheard_of", 1, False),
    ],
)
def test_what_weakens_durability_has_a_reason(name: str, value: Value, weak: bool) -> None:
    reason = knobs.weakens_durability(name, value)
    assert (reason is not None) is weak
    assert reason is None or len(reason) > 10


def test_versions() -> None:
    assert "8.0.30" in Versions(since="8.0.30")
    assert "8.0.4-1" not in Versions(since="8.0.30")
    assert "10.11.19" in Versions(until="11.0")
    assert "11.0.2" not in Versions(until="11.0")
    capacity = knobs.find("server.innodb_redo_log_capacity")
    assert capacity.applies(Vendor.PERCONA, "8.0.34-26")
    assert not capacity.applies(Vendor.MYSQL, "8.0.29")
    assert not capacity.applies(Vendor.MARIADB, "11.4.2")
    assert knobs.find("host.vm.swappiness").applies(Vendor.MARIADB, "10.11.1")


def test_what_a_server_takes_at_run_time_differs() -> None:
    buffer = knobs.find("server.innodb_log_buffer_size")
    assert buffer.cost_on(Vendor.MYSQL, "8.0.31") is Cost.DYNAMIC
    assert buffer.cost_on(Vendor.MYSQL, "5.7.44") is Cost.RESTART
    assert buffer.cost_on(Vendor.MARIADB, "10.11.19") is Cost.RESTART
    log = knobs.find("server.innodb_log_file_size")
    assert log.cost_on(Vendor.MARIADB, "10.11.19") is Cost.DYNAMIC
    assert log.cost_on(Vendor.MARIADB, "10.6.12") is Cost.RESTART
    assert log.cost_on(None, "") is Cost.RESTART
    assert log.applies(Vendor.MYSQL, "8.4.6")
    assert not log.applies(Vendor.MYSQL, "9.7.4")


def test_a_vendor_may_allow_less() -> None:
    delay = knobs.find("server.innodb_spin_wait_delay")
    delay.check_on(Vendor.MARIADB, "10.11.6", 6000)
    with pytest.raises(PlanError, match=r"at most 1000 on mysql 8\.0\."):
        delay.check_on(Vendor.MYSQL, "8.0.31", 1001)
    # Of these there is no list, and the nearest is not taken.
    delay.check_on(Vendor.MYSQL, "8.4.6", 1001)
    delay.check_on(Vendor.PERCONA, "8.0.34-26", 1001)


def test_a_number_beyond_the_range_counts_by_what_a_server_may_make_of_it() -> None:
    flush = knobs.find("server.innodb_flush_log_at_trx_commit")
    assert flush.weakness(3, Vendor.MARIADB, "10.11.6") is None
    assert flush.weakness(3, Vendor.MARIADB) is None
    assert flush.weakness(3, Vendor.MYSQL)
    with pytest.raises(PlanError, match="at most 2"):
        flush.check_on(Vendor.MYSQL, "8.0.31", 3)
    for vendor, version in (
        (Vendor.MYSQL, "8.4.6"),
        (Vendor.PERCONA, "8.0.34-26"),
        (Vendor.MARIADB, "12.1.2"),
    ):
        flush.check_on(vendor, version, 3)
        assert "may make it 2" in (flush.weakness(3, vendor, version) or "")
        assert flush.weakness(1, vendor, version) is None


def test_a_variable_is_not_always_an_option_of_that_name() -> None:
    def option(vendor: Vendor, version: str, variable: str) -> str | None:
        own = servers.of(vendor, version)
        return own.variables[variable].option if own else None

    assert option(Vendor.MARIADB, "10.11.6", "time_zone") == "default-time-zone"
    assert option(Vendor.MARIADB, "10.11.6", "tx_isolation") == "transaction-isolation"
    assert option(Vendor.MYSQL, "9.7.4", "time_zone") == "default-time-zone"
    assert option(Vendor.MYSQL, "9.7.4", "innodb_io_capacity") == "innodb-io-capacity"
    assert option(Vendor.MARIADB, "10.11.6", "innodb_lru_flush_size") == ""
    assert option(Vendor.MYSQL, "8.4.6", "time_zone") is None
    isolation = knobs.find("server.transaction_isolation")
    assert isolation.variable_on(Vendor.MARIADB, "10.11.6") == "tx_isolation"
    assert isolation.variable_on(Vendor.MARIADB, "11.8.3") == "transaction_isolation"
    size = knobs.find("server.binlog_row_event_max_size").listed_on(Vendor.MARIADB, "10.11.6")
    assert size
    assert not size.is_variable


def test_some_values_need_a_restart_of_a_server_that_takes_others() -> None:
    twice = knobs.find("server.innodb_doublewrite")
    assert twice.cost_on(Vendor.MYSQL, "9.7.4", "ON", "DETECT_ONLY") is Cost.DYNAMIC
    assert twice.cost_on(Vendor.MYSQL, "9.7.4", "ON", "OFF") is Cost.RESTART
    assert twice.cost_on(Vendor.MYSQL, "9.7.4", "OFF", True) is Cost.RESTART
    assert twice.cost_on(Vendor.MARIADB, "10.11.6", "ON", "OFF") is Cost.RESTART
    most = knobs.find("server.max_user_connections")
    assert most.cost_on(Vendor.MARIADB, "10.11.6", "0", 10) is Cost.RESTART
    assert most.cost_on(Vendor.MARIADB, "10.11.6", "5", 10) is Cost.DYNAMIC
    assert most.cost_on(Vendor.MYSQL, "8.0.31", "0", 10) is Cost.DYNAMIC


def test_a_running_applier_takes_no_other_number_of_threads() -> None:
    for name in ("replica_parallel_workers", "slave_parallel_threads", "replica_preserve_commit_order"):
        assert "STOP REPLICA SQL_THREAD" in knobs.find(f"server.{name}").never


def test_the_path_of_a_queue_knob_needs_a_device() -> None:
    scheduler = knobs.find("volume.scheduler")
    assert scheduler.path("sda") == scheduler.path("/dev/sda") == "/sys/block/sda/queue/scheduler"
    with pytest.raises(PlanError, match="needs a block device"):
        scheduler.path()
    with pytest.raises(PlanError, match="not a file on the host"):
        knobs.find("server.max_connections").path()


def test_the_examples_use_knobs_that_exist() -> None:
    import tomllib

    for plan in (ROOT / "examples").glob("*.toml"):
        content = tomllib.loads(plan.read_text())
        tables = [content.get("base", {}), *content.get("bundles", {}).values()]
        for name, value in ((n, v) for table in tables for n, v in table.items()):
            knobs.check(name, value)
            assert knobs.weakens_durability(name, value) is None


@pytest.mark.parametrize("name", ["host.vm.swappiness", "host.net.core.somaxconn", "host.fs.aio-max-nr"])
def test_the_paths_are_those_of_a_real_kernel(name: str) -> None:
    assert Path(knobs.find(name).path()).exists()


SERVERS = {
    "m10": (Vendor.MARIADB, "10.11.19"),
    "m11": (Vendor.MARIADB, "11.8.9"),
    "my80": (Vendor.MYSQL, "8.0.31"),
    "my97": (Vendor.MYSQL, "9.7.4"),
}


def test_what_was_wrong_once_is_as_the_servers_say() -> None:
    wrong = []
    for line in (TESTS / "data" / "knobs-once-wrong.txt").read_text().splitlines()[1:]:
        variable, what, value, on = line.split()
        if variable.startswith("innodb_max_dirty_pages_pct"):
            value = "99.999"  # MySQL's table cuts the fraction; the server takes it
        for vendor, version in (SERVERS[server] for server in on.split(",")):
            own = knobs.find(f"server.{variable}").on(vendor, version)
            if what == "names":
                fits = sorted(name.lower() for name in own.allowed) == value.split(",")
            else:
                fits = getattr(own, what) == pytest.approx(float(value), rel=1e-5)
            wrong += [] if fits else [(line, vendor, version, own)]
    assert wrong == []


@pytest.mark.parametrize("value", ["OFF", "/srv/log/binlog", "mysql-bin"])
@pytest.mark.parametrize("server", [(Vendor.MARIADB, "10.11.6"), (Vendor.MYSQL, "8.0.31")])
def test_the_binary_log_may_have_a_name(value: str, server: tuple[Vendor, str]) -> None:
    """SQL shows only whether it is on."""
    knobs.find("server.log_bin").check_on(*server, value)


@pytest.mark.parametrize(
    ("vendor", "version", "name", "told", "means"),
    [
        (Vendor.MARIADB, "10.11.6", "query_cache_type", "2", "DEMAND"),
        (Vendor.MARIADB, "10.11.6", "concurrent_insert", 2, "ALWAYS"),
        (Vendor.MYSQL, "8.0.31", "transaction_isolation", "1", "READ-COMMITTED"),
        (Vendor.MARIADB, "10.11.6", "log_output", "3", "NONE,FILE"),
        (Vendor.MARIADB, "10.11.6", "log_output", "8", "8"),
        (Vendor.MARIADB, "10.11.6", "concurrent_insert", "3", "3"),
        # A number there says all flags; MySQL does not tell the order of a set.
        (Vendor.MARIADB, "10.11.6", "optimizer_switch", "5", "5"),
        (Vendor.MYSQL, "8.0.31", "log_output", "3", "3"),
        (Vendor.MARIADB, "10.6.1", "query_cache_type", "2", "2"),
        (Vendor.MARIADB, "10.11.6", "slow_query_log", True, True),
        (Vendor.MARIADB, "10.11.6", "innodb_io_capacity", "2", "2"),
    ],
)
def test_a_number_of_a_choice_is_judged_by_the_name_that_it_stands_for(
    vendor: Vendor, version: str, name: str, told: Value, means: Value
) -> None:
    assert in_words(knobs.find(f"server.{name}"), told, vendor, version) == means


def test_what_the_server_does_when_it_is_set_is_no_setting() -> None:
    assert "an action" in knobs.find("server.innodb_buffer_pool_load_now").never
    assert not knobs.find("server.innodb_monitor_enable").never
