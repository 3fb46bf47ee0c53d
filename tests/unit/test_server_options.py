"""The server's pure parts: option files, read-back, defaults, error logs, memory maps, manifests."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from headrace.base.errors import PlanError, StoreError
from headrace.base.model import Value, Vendor
from headrace.lab.server import Change, ServerSpec
from headrace.lab.server.allocator import mapped_allocators
from headrace.lab.server.dataset import Manifest, checksum_of
from headrace.lab.server.error_log import MAX_LINES, excerpt, explanation
from headrace.lab.server.option_files import Start, reading
from headrace.lab.server.program import parse_defaults
from headrace.lab.server.sources import EMIT, FOLLOW, copies, included
from headrace.lab.server.spec import render_options


def spec(**variables: Value) -> ServerSpec:
    return ServerSpec(Vendor.MARIADB, variables=variables)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Innodb", "only a-z"),
        ("x]\n[client", "only a-z"),
        ("x = 1\ny", "only a-z"),
        ("!include", "only a-z"),
        ("", "only a-z"),
        ("datadir", "headrace sets this"),
        ("skip_networking", "headrace sets this"),
        ("loose_innodb_x", "would ignore"),
    ],
)
def test_names_that_could_reach_beyond_a_variable_are_refused(name: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        ServerSpec(Vendor.MARIADB, variables={name: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("innodb_log_group_home_dir", "/var/lib/mysql"),
        ("innodb_undo_directory", "../../var/lib/mysql"),
        ("innodb_data_file_path", "ibdata1:12M;/mnt/other/ibdata2:10M:autoextend"),
        ("slow_query_log_file", "sub/../../x.log"),
    ],
)
def test_a_private_servers_files_stay_in_its_own_folders(name: str, value: str) -> None:
    with pytest.raises(PlanError, match=rf"server\.{name}"):
        assert ServerSpec(Vendor.MARIADB, None, {name: value}, "system").options


def test_paths_that_leave_nothing_behind_are_accepted() -> None:
    spec = ServerSpec(Vendor.MARIADB, None, {"tmpdir": "/dev/shm", "sql_mode": "A,B", "x": "a/b"}, "system")
    assert spec.options["tmpdir"] == "/dev/shm"


@pytest.mark.parametrize("value", ["a\nb = 1", "a\r", "\0", "x" * 2001, ["ok", "a\n[mysqld]"]])
def test_values_that_could_become_another_line_are_refused(value: Value) -> None:
    with pytest.raises(PlanError, match=r"server\.init_connect"):
        spec(init_connect=value)


@pytest.mark.parametrize(
    "bad",
    [
        {"allocator": "hoard"},
        {"port": 70000},
        {"port": -1},
        {"binary": "mysqld"},
    ],
)
def test_a_wrong_spec_says_which_key(bad: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=rf"server\.{next(iter(bad))}"):
        ServerSpec(Vendor.MARIADB, **bad)  # type: ignore[arg-type]


def test_every_option_is_one_quoted_line_and_our_own_stand_last() -> None:
    options = spec(a=True, b=False, c='[x] # "y" \\', d=["p", "q"], e=0.5).options
    assert render_options(options, {"datadir": "/d"}).splitlines()[1:] == [
        "[mysqld]",
        'a = "ON"',
        'b = "OFF"',
        'c = "[x] # \\"y\\" \\\\"',
        'd = "p,q"',
        'e = "0.5"',
        'datadir = "/d"',
    ]


@pytest.mark.parametrize(
    ("asked", "after", "honoured"),
    [
        ("1G", "1073741824", True),
        ("ON", "1", True),
        ("off", "OFF", True),
        ("90", "90.000000", True),
        ("O_DIRECT", "o_direct", True),
        ("a,b", "b,a", True),
        ("option_only", None, True),
        ("129M", "268435456", False),
        ("1000", "151", False),
        ("fsync", "O_DIRECT", False),
    ],
)
def test_read_back_knows_when_a_server_did_something_else(
    asked: str, after: str | None, honoured: bool
) -> None:
    assert Change(None, asked, after).honoured is honoured


def test_defaults_are_read_from_the_help_of_a_server() -> None:
    listing = """mariadbd  Ver 10.11
  --innodb-io-capacity=# not this one

Variables (--variable-name=value)
and boolean options {FALSE|TRUE}           Value (after reading options)
------------------------------------------ -------------
innodb-doublewrite                         TRUE
log-bin                                    (No default value)
sql-mode                                   A,B
wsrep-sst-donor

To see what variables a running server is using, type
"""
    assert parse_defaults(listing) == {
        "innodb_doublewrite": "ON",
        "log_bin": "",
        "sql_mode": "A,B",
        "wsrep_sst_donor": "",
    }


def test_the_excerpt_keeps_what_complains() -> None:
    notes = [f"2026-11-21  2:42:18 0 [Note] InnoDB: step {n}" for n in range(50)]
    bad = "2026-11-21  2:42:18 0 [ERROR] mariadbd: unknown variable 'foo-bar=1'"
    lines = excerpt("\n".join([*notes, bad, *notes]))
    assert lines == [bad]
    assert explanation(lines) == "it has no variable foo_bar"
    assert excerpt("\n".join(notes)) == notes[-MAX_LINES:]


def test_the_excerpt_of_a_crash_starts_with_its_reason() -> None:
    crash = ["mariadbd got signal 11 ;", *(f"frame {n}" for n in range(90)), "[ERROR] last"]
    lines = excerpt("\n".join(["[Warning] before", *crash]))
    assert lines == crash[:MAX_LINES]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[ERROR] [MY-000067] [Server] unknown variable 'foo_bar=1'.", "it has no variable foo_bar"),
        ("mysqld: unknown option '--skip-foo'", "it has no variable skip_foo"),
        (
            "[ERROR] mariadbd: Error while setting value 'x' to 'innodb-flush-method'",
            "it does not accept innodb_flush_method = 'x'",
        ),
        ("[ERROR] InnoDB: Cannot allocate memory for the buffer pool", None),
    ],
)
def test_the_explanation_names_the_variable(line: str, says: str | None) -> None:
    assert explanation([line]) == says


def test_allocators_are_found_in_the_memory_map() -> None:
    maps = """7f0000000000-7f0000001000 r-xp 00000000 fe:00 1 /usr/lib/x86_64-linux-gnu/libjemalloc.so.2
7f0000001000-7f0000002000 r-xp 00000000 fe:00 2 /usr/lib/x86_64-linux-gnu/libc.so.6
7f0000002000-7f0000003000 r--p 00000000 fe:00 1 /usr/lib/x86_64-linux-gnu/libjemalloc.so.2
"""
    assert mapped_allocators(maps) == {"jemalloc": "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"}
    tcmalloc = maps.replace("libjemalloc.so.2", "libtcmalloc_minimal.so.4.5.9")
    assert list(mapped_allocators(tcmalloc)) == ["tcmalloc"]
    assert mapped_allocators(maps.replace("libjemalloc", "libother")) == {}


def test_a_manifest_is_read_back_and_damage_is_noticed() -> None:
    files = {"ibdata1": (5, "1.5", "ab"), "t/a.ibd": (7, "2.5", "cd")}
    manifest = Manifest("mariadb", "10.11.1", {"innodb_page_size": "4k"}, 4096, files, checksum_of(files))
    text = manifest.to_json()
    assert Manifest.parse(text, "x") == manifest
    content = json.loads(text)
    content["files"]["ibdata1"][0] = 6
    for damaged in (json.dumps(content), text[:-20], "{}", "[]", text.replace('"format": 1', '"format": 2')):
        with pytest.raises(StoreError, match="manifest is damaged"):
            Manifest.parse(damaged, "x")


def test_a_data_set_of_another_layout_is_another() -> None:
    assert spec(innodb_page_size="4k", max_connections=5).layout == {"innodb_page_size": "4k"}


def test_the_last_line_of_a_file_without_an_end_is_looked_for_as_the_server_does() -> None:
    """Most servers drop the last letter of such a line, and include a file of another name."""
    assert included(b"!include /etc/more.cnfx") == ["/etc/more.cnf", "/etc/more.cnfx"]
    assert included(b"!include /etc/more.cnf\n") == ["/etc/more.cnf"]


@pytest.mark.parametrize(
    ("end", "is_read"), [("", "9.7.0"), ("\n", "10.11.6 8.0.31 9.7.0"), ("/", "10.11.6 8.0.31 9.7.0")]
)
def test_the_last_line_of_a_file_is_followed_as_the_server_does(
    end: str, is_read: str, tmp_path: Path
) -> None:
    """A start that fails, because no folder has the shorter name, went on for us."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.cnf").write_text("[mysqld]\nport = 3307\n")
    (tmp_path / "conf.d" / ".cnf").write_text("[mysqld]\n# its last line is no include\nport=3308")
    (tmp_path / "my.cnf").write_text(f"[mysqld]\n!includedir {tmp_path}/conf.d{end}")
    words = ["sh", "-c", EMIT + FOLLOW, "sh", str(tmp_path / "my.cnf")]
    told = subprocess.run(words, capture_output=True, check=True).stdout
    found = copies(told, "here")[0]
    for version in ("10.11.6", "8.0.31", "9.7.0"):
        vendor = Vendor.MARIADB if version.startswith("10.") else Vendor.MYSQL
        read = reading(found, Start(vendor, version, (f"--defaults-file={tmp_path}/my.cnf",)))
        assert bool(read.words) is (version in is_read.split()), version
        assert bool(read.broken) is not bool(read.words), version
    # A file is read to its last letter: that has no include.
    assert b"port=3308" in told
    assert set(re.findall(b"absent:.*", told)) == (set() if end else {f"absent:{tmp_path}/conf.".encode()})


def test_a_file_of_the_kernel_that_an_option_file_includes_is_named_and_not_opened(tmp_path: Path) -> None:
    """/proc/kmsg is a plain file by its type, and its reader waits for the next message."""
    (tmp_path / "my.cnf").write_text("[mysqld]\n!include /proc/kmsg\n!include /proc/self/status\nport=1\n")
    words = ["sh", "-c", EMIT + FOLLOW, "sh", str(tmp_path / "my.cnf")]
    told = subprocess.run(words, capture_output=True, check=True, timeout=30).stdout
    found, unreadable = copies(told, "here")
    assert unreadable == ["/proc/kmsg", "/proc/self/status"]
    assert list(found.files) == [str(tmp_path / "my.cnf")]
