"""Which options a start on an empty folder may have: nothing of the running server's own."""

from __future__ import annotations

import pytest

from headrace.server.trial_start import _capped, is_tried


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
