"""Options of older releases that MariaDB takes and does nothing with: a start gets past them."""

from __future__ import annotations

import pytest

from headrace.base.model import Vendor
from headrace.fleet.option_lines import made_of, options_of
from headrace.knobs import servers
from headrace.lab.server.option_files import Word


@pytest.mark.parametrize(
    ("release", "option", "is_taken"),
    [
        ("10.11", "innodb_file_format", True),
        ("10.11", "innodb_buffer_pool_instances", True),
        ("10.11", "thread_concurrency", True),
        ("10.11", "innodb_log_files_in_group", True),
        ("11.8", "innodb_defragment", True),
        ("10.11", "query_cache_limits", False),
        ("10.11", "innodb_dedicated_server", False),
    ],
)
def test_what_mariadb_ignores_ends_no_start(release: str, option: str, is_taken: bool) -> None:
    own = servers.of(Vendor.MARIADB, release)
    assert own
    made = made_of(Word("my.cnf", 3, option, "Barracuda"), options_of(own), own, by_start=True)
    assert (not made.trouble) is is_taken, made
    # It does nothing, so that no value is promised.
    assert made.value is None or not is_taken


@pytest.mark.parametrize(
    ("option", "value", "mariadb_starts", "mysql_starts"),
    [
        ("loose_thread_cache_size", "-1", True, True),
        ("loose_binlog_format", "bogus", True, False),
        ("loose_sort_buffer_size", "abc", True, False),
        ("loose_event_scheduler", "9", True, False),
        ("loose_maximum_long_query_time", "3", True, None),
        ("loose_back_log", None, False, False),
        ("loose_character_set_server", "zz", False, False),
        ("binlog_format", "bogus", False, False),
        ("thread_cache_size", "-1", False, True),
    ],
)
def test_a_loose_option_with_a_wrong_value(
    option: str, value: str | None, mariadb_starts: bool, mysql_starts: bool | None
) -> None:
    """As MariaDB 10.11.19 and MySQL 8.0.31 started, or did not, with each in an option file of its own."""
    for vendor, release, starts in (
        (Vendor.MARIADB, "10.11", mariadb_starts),
        (Vendor.MYSQL, "8.0", mysql_starts),
    ):
        own = servers.of(vendor, release)
        assert own
        made = made_of(Word("my.cnf", 3, option, value), options_of(own), own, by_start=True)
        assert starts is None or (not made.trouble) is starts, (vendor, made)


@pytest.mark.parametrize(
    ("option", "value", "has_mariadb", "has_mysql"),
    [
        ("wsrep_cluster_address", "gcomm://", True, False),
        ("log_slow_verbosity", "query_plan", True, False),
        ("early_plugin_load", "keyring_file.so", False, True),
        ("init_connect", "SET NAMES utf8mb4", True, True),
        ("ansi", None, True, True),
    ],
)
def test_an_option_without_a_default_is_of_the_servers_that_have_it(
    option: str, value: str | None, has_mariadb: bool, has_mysql: bool
) -> None:
    for own in servers.lists():
        made = made_of(Word("my.cnf", 3, option, value), options_of(own), own, by_start=True)
        has_it = has_mariadb if own.vendor is Vendor.MARIADB else has_mysql
        assert ("is not an option" not in made.trouble) is has_it, (own.name, made)


def test_mysql_ignores_none() -> None:
    assert [each.name for each in servers.lists() if each.vendor is Vendor.MYSQL and each.ignored] == []
