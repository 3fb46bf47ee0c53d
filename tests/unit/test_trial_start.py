"""Which options a start on an empty folder may have: nothing of the running server's own."""

from __future__ import annotations

import pytest

from headrace.base.model import Facts
from headrace.change.persist.line import Line
from headrace.change.persist.starts import is_tried, made_at_start, may_starve
from headrace.host.facts import HostFacts
from headrace.lab.server.trial_start import _capped, _read


@pytest.mark.parametrize(
    ("option", "value", "tried"),
    [
        ("innodb_write_io_threads", "5", True),
        ("aria_group_commit", "hard", True),
        ("innodb_temp_data_file_path", "ibtmp1:12M:autoextend", True),
        # The server has this file open: a start would make it anew.
        ("innodb_temp_data_file_path", "/var/tmp/ibtmp1:12M", False),
        ("innodb_temp_data_file_path", "../tmp/ibtmp1:12M", False),
        ("innodb_doublewrite_dir", "/fast/dblwr", False),
        ("innodb_undo_directory", "/fast", False),
        ("innodb_buffer_pool_size", "200G", False),
        ("innodb_log_file_size", "100G", False),
        ("innodb_encrypt_tables", "ON", False),
        ("max_connections", "5", False),
        ("init_file", "/etc/x.sql", False),
        ("innodb_temp_data_file_path", "ibtmp1:64G:autoextend", False),
        ("innodb_tmpdir", "..", False),
        # What statements get of the server.
        ("tmp_disk_table_size", "1024", True),
        ("sort_buffer_size", "1K", True),
        ("thread_stack", "128K", True),
        # Others of sessions reach further, or say nothing of a start.
        ("wsrep_on", "ON", False),
        ("default_storage_engine", "ROCKSDB", False),
        ("transaction_read_only", "ON", False),
        ("time_zone", "Europe/Rome", False),
    ],
)
def test_what_is_tried(option: str, value: str, tried: bool) -> None:
    assert is_tried(option, value) == tried


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("innodb_redo_log_capacity", "10M", ["innodb_redo_log_capacity = 10485760"]),
        ("innodb_redo_log_capacity", "200g", ["innodb_redo_log_capacity = 1073741824"]),
        ("innodb_log_file_size", "4T", ["innodb_log_file_size = 268435456"]),
        ("innodb_log_file_size", "much", []),
    ],
)
def test_a_redo_log_is_no_larger_than_a_trial_needs(option: str, value: str, line: list[str]) -> None:
    assert _capped(option, value) == line


@pytest.mark.parametrize(
    ("variable", "value", "starves"),
    [
        ("tmp_disk_table_size", "1024", True),
        ("tmp_table_size", "1G", False),
        ("sort_buffer_size", "1M", True),
        ("sort_buffer_size", "4M", False),
        # By default there is no limit.
        ("max_statement_time", "0.0001", True),
        ("max_statement_time", "0", False),
        ("max_join_size", "1", True),
        ("max_connections", "10", False),
        ("sql_mode", "ANSI", False),
        ("innodb_io_capacity", "100", False),
    ],
)
def test_only_less_than_usual_may_starve_statements(variable: str, value: str, starves: bool) -> None:
    facts = HostFacts(Facts("", {"server_settings": {"vendor": "mariadb", "version": "10.11.6"}}))
    assert may_starve(variable, value, facts) == starves


@pytest.mark.parametrize(
    ("option", "value", "mib"),
    [
        ("innodb_log_file_size", "50G", 2 * (50 * 1024 - 48)),
        ("innodb_log_file_size", "16M", 2 * (16 - 48)),
        ("innodb_redo_log_capacity", "2G", 2048 - 100),
        ("innodb_temp_data_file_path", "ibtmp1:64G:autoextend:max:200G", 64 * 1024),
        ("innodb_temp_data_file_path", "ibtmp1:12M;ibtmp2:1G", 1036),
        ("innodb_log_buffer_size", "4G", 0),
    ],
)
def test_what_a_start_writes(option: str, value: str, mib: int) -> None:
    now = {
        "innodb_log_file_size": str(48 << 20),
        "innodb_log_files_in_group": "2",
        "innodb_redo_log_capacity": str(100 << 20),
    }
    assert made_at_start(Line("", option, option, "", value), now) == mib << 20


def test_a_server_that_is_up_and_does_not_answer() -> None:
    log = (
        "0 [ERROR] mariadbd: The table '(temporary)' is full\nERROR: 1114  The table '(temporary)' is full\n"
    )
    trial = _read(f"{log}0 [ERROR] Aborting\n\nexit=1\nback_log\t90\n", 0)
    assert (trial.is_up, trial.problems[0]) == (True, "The table '(temporary)' is full")
    assert trial.values == {"back_log": "90"}


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("", 92, "GiB free"),
        ("", 94, "root"),
        ("", 7, "exit code 7"),
        ("\nexit=153\n", 0, "too large a file"),
        ("[ERROR] InnoDB: Cannot allocate memory\n\nexit=1\n", 0, "bounds"),
    ],
)
def test_what_stopped_the_trial_is_no_word_on_the_options(text: str, code: int, reason: str) -> None:
    trial = _read(text, code)
    assert trial.problems == ()
    assert reason in trial.untried
