"""What keeps a server from starting, or makes its start something else, though no list of options says so."""

from __future__ import annotations

import asyncio

import pytest

from headrace.base.errors import NotReady, Refused
from headrace.base.model import Facts, Vendor
from headrace.change.persist.derived import derived
from headrace.change.persist.line import Line
from headrace.change.persist.options import _is_no_server, _place_problem
from headrace.change.persist.starts import _must_be_had
from headrace.host.facts import HostFacts
from headrace.lab.server.next_start import _last_words
from headrace.lab.server.option_files import Word
from headrace.lab.server.trial_start import is_of_engine
from tests.unit.test_boot import running


def line(option: str, value: str) -> Line:
    return Line(f"server.{option}", option, option, f"{option} = {value}", value)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("default_storage_engine", "ARCHIVE", "an engine archive"),
        ("default_storage_engine", "InnoDB", ""),
        ("gtid_pos_auto_engines", "innodb,rocksdb", "an engine rocksdb"),
        ("gtid_pos_auto_engines", "innodb, myisam", ""),
        ("proxy_protocol_networks", "garbage", "not all of these are networks"),
        ("proxy_protocol_networks", "10.0.0.0/33", "not all of these are networks"),
        ("proxy_protocol_networks", "10.0.0.0/8, ::1,localhost,192.168.1.7", ""),
        ("innodb_encrypt_log", "ON", "no plugin that manages keys"),
        ("innodb_encrypt_tables", "FORCE", "no plugin that manages keys"),
        ("encrypt_binlog", "OFF", ""),
        ("innodb_redo_log_encrypt", "ON", "a keyring"),
        ("innodb_undo_log_encrypt", "0", ""),
        ("authentication_policy", "foo", "these plugins"),
        ("authentication_policy", "*:caching_sha2_password,,", ""),
        ("ssl_fips_mode", "STRICT", "shows only when it does"),
        ("default_time_zone", "Europe/Nowhere", "shows only a start"),
        ("character_set_filesystem", "x", "shows only a start"),
        ("character_set_filesystem", "binary", ""),
        ("default_time_zone", "+14:30", "shows only a start"),
        ("default_time_zone", "-05:30", ""),
        ("default_time_zone", "SYSTEM", ""),
    ],
)
def test_what_only_a_start_in_its_own_place_asks_for(option: str, value: str, why: str) -> None:
    ask = _must_be_had(running((), {}), line(option, value), HostFacts(Facts("", {})))
    if not why:
        asyncio.run(ask)
        return
    with pytest.raises((Refused, NotReady), match=why):
        asyncio.run(ask)


def test_a_relative_folder_of_files_to_load_keeps_a_server_from_starting() -> None:
    problem = asyncio.run(_place_problem(running((), {}), line("secure_file_priv", "files")))
    assert "does not start with a relative path" in problem
    for value in ("", "NULL"):
        assert not asyncio.run(_place_problem(running((), {}), line("secure_file_priv", value)))


@pytest.mark.parametrize("option", ["innodb_tmpdir", "general_log_file", "socket", "innodb_doublewrite_dir"])
def test_a_folder_that_is_not_there_keeps_a_server_from_starting_or_logging(option: str) -> None:
    assert "is not there" in asyncio.run(_place_problem(running((), {}), line(option, "no_such_folder/x")))


@pytest.mark.parametrize("option", ["init_file", "ft_stopword_file"])
def test_a_file_that_a_start_reads_must_be_there(option: str) -> None:
    """MySQL 9.7 does not start without its init_file."""
    assert "cannot read" in asyncio.run(_place_problem(running((), {}), line(option, "no_such_file")))
    assert not asyncio.run(_place_problem(running((), {}), line(option, "/etc/passwd")))
    assert not asyncio.run(_place_problem(running((), {}), line(option, "")))


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("log_error", "site", "the ending .err"),
        ("log_error", "/a.b/site", "the ending .err"),
        ("log_error", "site.log", ""),
        ("innodb_adaptive_hash_index_cells", "16381", "a prime"),
    ],
)
def test_what_a_start_of_mariadb_makes_of_it(option: str, value: str, why: str) -> None:
    said = derived(option, value, {}, Vendor.MARIADB, [])
    assert why in said
    assert bool(said) == bool(why)


def test_the_log_of_aria_is_not_moved() -> None:
    """MariaDB 11.8 with `aria_log_dir_path = 0`: no such folder in the data directory, and no start."""
    said = derived("aria_log_dir_path", "0", {"aria_log_dir_path": "/var/lib/mysql"}, Vendor.MARIADB, [])
    assert "is decided when the data directory is made" in said


def test_a_pool_too_small_for_its_pages_is_tried() -> None:
    """A binary takes 2M; InnoDB of MariaDB 11.8 wants 6 MiB, and the server ends."""
    pool = "innodb_buffer_pool_size"
    assert is_of_engine(pool, "2097152")
    assert is_of_engine(pool, "5M")
    assert not is_of_engine(pool, "128M"), "it would take memory, and shows nothing"
    assert not is_of_engine(pool, "nonsense")


@pytest.mark.parametrize(
    ("option", "value", "is_none"),
    [("bootstrap", None, True), ("skip_bootstrap", None, False), ("help", "0", False), ("port", "1", False)],
)
def test_an_option_with_which_a_program_is_no_server(option: str, value: str | None, is_none: bool) -> None:
    assert _is_no_server(running((), {}), Word("a", 1, option, value, option)) is is_none


@pytest.mark.parametrize(
    ("listing", "words"),
    [
        ("a\nWrong date/time format specifier: %x\n\n", "Wrong date/time format specifier: %x"),
        (
            "2026-11-30 18:37:22 0 [Warning] Failed to normalize the argument.\n",
            "Failed to normalize the argument.",
        ),
        ("x\n2026-11-30T18:40:27Z 0 [ERROR] [MY-010119] [Server] Aborting\n", "x"),
        ("", "its binary ends without a word"),
    ],
)
def test_the_last_words_of_a_program_that_ends_without_an_error(listing: str, words: str) -> None:
    assert _last_words(listing) == words
