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


def test_mysql_ignores_none() -> None:
    assert [each.name for each in servers.lists() if each.vendor is Vendor.MYSQL and each.ignored] == []
