"""What `apply --persist` promised is what the next start has, or it was refused: knob x winner x server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.knobs.values import means_the_same
from tests.folders import ROOT
from tests.option_lab import MAIN, OptionLab, option_lab
from tests.servers import KINDS, open_folder
from tests.waiting import until

pytestmark = pytest.mark.needs("root")

#: Knob -> the value that is asked for, and what somebody else says.
KNOBS = {
    "innodb_io_capacity": ("600", "321"),
    "max_connections": ("77", "88"),
    "back_log": ("90", "95"),
    "table_open_cache": ("500", "600"),
    "thread_cache_size": ("9", "11"),
    "innodb_sort_buffer_size": ("2M", "4M"),
    "innodb_purge_threads": ("2", "3"),
    "skip_name_resolve": ("ON", "OFF"),
    "long_query_time": ("3.5", "2.5"),
    "slow_query_log": ("ON", "OFF"),
    "innodb_flush_log_at_trx_commit": ("2", "0"),
    "transaction_isolation": ("READ-COMMITTED", "SERIALIZABLE"),
    "sort_buffer_size": ("1M", "512K"),
    "innodb_buffer_pool_size": ("256M", "384M"),
    "wait_timeout": ("700", "800"),
    "max_allowed_packet": ("32M", "48M"),
    "time_zone": ("+00:00", ""),
    "log_bin": ("OFF", "site-bin"),
}
#: These the server's start changes, or does not survive.
SPECIAL = {
    "innodb_sort_buffer_size": "1G",
    "innodb_buffer_pool_instances": "8",
    "thread_handling": "pool-of-threads",
    "tx_isolation": "READ-COMMITTED",
    "innodb_log_file_size": "200M",
    "innodb_read_io_threads": "100",
    "open_files_limit": "12000",
    "lower_case_table_names": "1",
    "innodb_open_files": "9",
    "innodb_temp_data_file_path": "nonsense",
    "aria_block_size": "4096",
    "log_bin": "no_such_folder/bin",
    "relay_log": "no_such_folder/relay",
    "innodb_write_io_threads": "5",
    "encrypt_tmp_files": "ON",
    "ssl_cipher": "nonsense",
    "extra_port": "1",
    "time_format": "%x",
    "log_bin_index": "x.idx",
    "innodb_encrypt_log": "ON",
}
OPTION = {"time_zone": "default_time_zone"}


def lines(form: Callable[[str, str], str] = "{} = {}".format) -> str:
    """What somebody else says of all knobs."""
    told = [form(OPTION.get(name, name), other) for name, (_, other) in KNOBS.items() if other]
    return "\n".join(told) + "\n"


def site(lab: OptionLab, name: str, group: str, form: Callable[[str, str], str] = "{} = {}".format) -> None:
    lab.write(name, f"# of this site\n[{group}]\n{lines(form)}")


def version_group(kind: str) -> str:
    family, _, series = kind.partition("-")
    return f"mysqld-{series}" if family == "mysql" else f"mariadb-{series}"


def nobody(lab: OptionLab, kind: str) -> None:
    pass


def earlier_file(lab: OptionLab, kind: str) -> None:
    site(lab, "conf.d/50-site.cnf", "mysqld")


def later_file(lab: OptionLab, kind: str) -> None:
    site(lab, "conf.d/zzz-site.cnf", "mysqld")


def later_spelling(lab: OptionLab, kind: str) -> None:
    site(
        lab, "conf.d/zzz-site.cnf", "server", lambda name, value: f"loose-{name.replace('_', '-')}='{value}'"
    )


def later_version_group(lab: OptionLab, kind: str) -> None:
    site(lab, "conf.d/zzz-site.cnf", version_group(kind))


def group_of_another(lab: OptionLab, kind: str) -> None:
    site(lab, "conf.d/zzz-site.cnf", "mysqld-5.7")


def written_by_all(lab: OptionLab, kind: str) -> None:
    site(lab, "conf.d/zzz-site.cnf", "mysqld")
    (lab.etc / "conf.d/zzz-site.cnf").chmod(0o666)


def end_of_main(lab: OptionLab, kind: str) -> None:
    lab.write("my.cnf", f"{MAIN}[mysqld]\n{lines()}")


def include_after(lab: OptionLab, kind: str) -> None:
    site(lab, "more/last.cnf", "mysqld")
    lab.write("my.cnf", f"{MAIN}!include /etc/mysql/more/last.cnf\n")


def second_folder(lab: OptionLab, kind: str) -> None:
    site(lab, "conf.d/zzz-site.cnf", "mysqld")
    (lab.etc / "last.d").mkdir()
    lab.write("my.cnf", f"{MAIN}!includedir /etc/mysql/last.d/\n")


def command_line(lab: OptionLab, kind: str) -> None:
    lab.options = [f"--{line.replace(' = ', '=')}" for line in lines().splitlines()]


def extra_file(lab: OptionLab, kind: str) -> None:
    site(lab, "extra.cnf", "mysqld")
    lab.first = ["--defaults-extra-file=/etc/mysql/extra.cnf"]


def group_suffix(lab: OptionLab, kind: str) -> None:
    site(lab, "conf.d/zzz-site.cnf", "mysqld_two")
    lab.first = ["--defaults-group-suffix=_two"]


def home_of_servers(lab: OptionLab, kind: str) -> None:
    site(lab, "home/my.cnf", "mysqld")
    lab.server.env = {**lab.server.env, "MYSQL_HOME": "/etc/mysql/home"}


def home_of_user(lab: OptionLab, kind: str) -> None:
    site(lab, "home/.my.cnf", "mysqld")
    lab.server.env = {**lab.server.env, "HOME": "/etc/mysql/home"}


def set_persist(lab: OptionLab, kind: str) -> None:
    if kind.startswith("mysql"):
        told = {name: other for name, (_, other) in KNOBS.items() if other and name != "log_bin"}
        numbers = {name: other.replace("K", "*1024").replace("M", "*1048576") for name, other in told.items()}
        lab.server.sql(
            *(
                f"SET PERSIST_ONLY {name} = {value if value[0].isdigit() else repr(value)}"
                for name, value in numbers.items()
            )
        )


#: Who has the last word -> whether that is ours.
WINNERS: dict[Callable[[OptionLab, str], None], bool] = {
    nobody: True,
    earlier_file: True,
    group_of_another: True,
    written_by_all: True,
    second_folder: True,
    later_file: False,
    later_spelling: False,
    later_version_group: False,
    end_of_main: False,
    include_after: False,
    command_line: False,
    extra_file: False,
    group_suffix: False,
    home_of_servers: False,
    home_of_user: False,
    set_persist: False,
}


#: One of each vendor; the others, whose cells take seven minutes more, in `make torture`. MySQL takes three times
#: as long to start as MariaDB: of its winners only these, which MariaDB does not have or names otherwise.
IS_THOROUGH = bool(os.environ.get("HEADRACE_TEST_ALL"))
SERVERS = KINDS if IS_THOROUGH else ("mariadb-10.11", "mysql-8.0")
OF_MYSQL = (nobody, set_persist, later_version_group, group_suffix)


@pytest.fixture(scope="module", params=SERVERS)
def lab(request: pytest.FixtureRequest) -> Iterator[tuple[str, OptionLab]]:
    with open_folder() as folder, option_lab(request.param, folder / "lab") as made:
        yield request.param, made


def applied(lab: OptionLab, asked: dict[str, str]) -> dict[str, Any]:
    words = [
        sys.executable,
        "-m",
        "tests.option_matrix",
        str(lab.state),
        lab.server.socket,
        json.dumps(asked),
    ]
    done = subprocess.run(
        [*lab.server.prefix, *words],
        # Entering a mount namespace leaves the folder that we are in.
        env={**os.environ, "HEADRACE_STATE": str(lab.state), "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def asked_of(kind: str, winner: Callable[[OptionLab, str], None]) -> dict[str, str]:
    """What is asked for: all of it once, elsewhere a third, by turns."""
    values = {knob: value for knob, (value, _) in KNOBS.items()}
    if IS_THOROUGH or (winner is nobody and kind.startswith("mariadb")):
        return values
    first = list(WINNERS).index(winner) % 3
    return dict(list(values.items())[first::3])


def fresh(lab: OptionLab) -> None:
    lab.clear()
    lab.server.env = {
        name: value for name, value in lab.server.env.items() if name not in ("MYSQL_HOME", "HOME")
    }
    (lab.server.folder / "data" / "mysqld-auto.cnf").unlink(missing_ok=True)
    lab.restart()


def differences(lab: OptionLab, asked: dict[str, str], done: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """What was promised and is not so, after a restart; which raises if the server does not start."""
    lab.restart()
    now = {str(row[0]): str(row[1]) for row in lab.server.sql("SHOW GLOBAL VARIABLES")}
    # MariaDB 10.11 knows the option by its newer name, and the variable by its older one.
    now.setdefault("transaction_isolation", now.get("tx_isolation", ""))
    return {
        knob: (asked[knob], now[knob])
        for knob, each in done.items()
        if "promised" in each and not means_the_same(knob, now[knob], asked[knob], now)
    }


@pytest.mark.parametrize("winner", WINNERS, ids=lambda winner: winner.__name__)
def test_a_promise_holds_at_the_next_start(
    lab: tuple[str, OptionLab], winner: Callable[[OptionLab, str], None]
) -> None:
    kind, place = lab
    if kind.startswith("mysql") and winner not in OF_MYSQL and not IS_THOROUGH:
        pytest.skip("takes minutes: make torture")
    fresh(place)
    winner(place, kind)
    place.restart()
    asked = asked_of(kind, winner)
    done = applied(place, asked)
    print(f"MATRIX {kind} {winner.__name__} {json.dumps(done)}")
    assert differences(place, asked, done) == {}
    promised = {knob for knob, each in done.items() if "promised" in each}
    unsaid = {knob for knob, (_, other) in KNOBS.items() if not other}
    if WINNERS[winner] or (winner is set_persist and kind.startswith("mariadb")):
        assert promised == set(asked), done
    else:
        held = {"log_bin"} if winner is set_persist else set()
        assert promised == (unsaid | held) & set(asked), done


def test_what_a_start_changes_is_never_promised(lab: tuple[str, OptionLab]) -> None:
    kind, place = lab
    if kind.startswith("mysql") and not IS_THOROUGH:
        pytest.skip("takes minutes: make torture")
    fresh(place)
    done = applied(place, SPECIAL)
    print(f"MATRIX {kind} special {json.dumps(done)}")
    assert differences(place, SPECIAL, done) == {}
    assert "refused" in done["innodb_sort_buffer_size"]
    assert "refused" in done["innodb_read_io_threads"]
    assert "refused" in done["lower_case_table_names"]
    for knob in (
        "innodb_open_files",
        "innodb_temp_data_file_path",
        "aria_block_size",
        "log_bin",
        "relay_log",
        "encrypt_tmp_files",
        "ssl_cipher",
        "extra_port",
        "time_format",
        "log_bin_index",
        "innodb_encrypt_log",
    ):
        assert "refused" in done[knob], knob
    assert "promised" in done["innodb_write_io_threads"]


def test_what_another_option_limits_at_the_start_is_never_promised(lab: tuple[str, OptionLab]) -> None:
    """A running MariaDB takes 5000 and raises the limit; its start takes the limit."""
    kind, place = lab
    fresh(place)
    place.write("conf.d/50-site.cnf", "[mysqld]\ninnodb_io_capacity_max = 1000\n")
    place.restart()
    asked = {"innodb_io_capacity": "5000", "innodb_read_io_threads": "5"}
    done = applied(place, asked)
    assert differences(place, asked, done) == {}
    assert "refused" in done["innodb_io_capacity"]
    assert "promised" in done["innodb_read_io_threads"]
    if kind.startswith("mariadb"):
        assert "the next start makes it 1000" in done["innodb_io_capacity"]["refused"]


def test_a_redo_log_too_small_for_the_threads_is_never_promised(lab: tuple[str, OptionLab]) -> None:
    """A running MySQL takes 1000 threads; with 100 MiB of redo log its start does not."""
    _, place = lab
    fresh(place)
    asked = {"innodb_thread_concurrency": "1000"}
    assert differences(place, asked, applied(place, asked)) == {}


def test_what_a_plugin_brings_is_promised_as_far_as_the_binary_knows_it(lab: tuple[str, OptionLab]) -> None:
    kind, place = lab
    if kind.startswith("mysql"):
        pytest.skip("the packages of MySQL 8.0 here have no such plugin")
    fresh(place)
    place.write(
        "conf.d/50-site.cnf", "[mysqld]\nplugin_load_add = sql_errlog\nplugin_load_add = server_audit\n"
    )
    place.restart()
    # The second and the last are read-only, which no list says: the server does.
    asked = {"sql_error_log_rate": "3", "sql_error_log_rotations": "5", "server_audit_logging": "ON"}
    beyond = {"server_audit_file_rotations": "2000"}
    done = applied(place, asked | beyond)
    assert {knob for knob, each in done.items() if "promised" in each} == set(asked), done
    assert "the next start makes it 999" in done["server_audit_file_rotations"]["refused"]
    assert differences(place, asked, done) == {}

    place.server.sql("INSTALL SONAME 'query_response_time'")
    own = {"query_response_time_stats": "ON"}
    done = applied(place, own | {"max_connections": "99"})
    # Its table of plugins is open there, which is no reason for the server not to start.
    assert "promised" in done["max_connections"]
    assert done["query_response_time_stats"]["kind"] == "NotReady"
    assert "table of plugins open" in done["query_response_time_stats"]["refused"]
    place.server.sql("FLUSH TABLES mysql.plugin")
    done = applied(place, own)
    assert "promised" in done["query_response_time_stats"]
    assert differences(place, own, done) == {}


def test_a_server_that_would_start_and_not_answer_is_never_promised(lab: tuple[str, OptionLab]) -> None:
    """Each is a value that the server takes, and with which no session groups, sorts or joins any more."""
    kind, place = lab
    fresh(place)
    starving = {"max_join_size": "1"}
    if kind.startswith("mariadb"):
        starving |= {
            "tmp_disk_table_size": "1024",
            "max_statement_time": "0.000001",
            "max_session_mem_used": "8192",
        }
    done = applied(place, {**starving, "sort_buffer_size": "512K"})
    assert "promised" in done["sort_buffer_size"]
    for knob in starving:
        assert "refused" in done[knob], (knob, done[knob])
    place.restart()
    assert place.server.sql("SELECT 1 UNION SELECT 2") == [(1,), (2,)]


def left() -> set[Path]:
    return {path for place in ("/tmp", "/var/tmp") for path in Path(place).glob("headrace-start-*")}


def test_a_trial_start_leaves_nothing(lab: tuple[str, OptionLab]) -> None:
    _, place = lab
    fresh(place)
    before = left()
    done = applied(place, {"innodb_write_io_threads": "5", "innodb_temp_data_file_path": "nonsense"})
    assert "promised" in done["innodb_write_io_threads"]
    assert "would not start" in done["innodb_temp_data_file_path"]["refused"]
    # Another run on this machine may have one for a moment.
    until(lambda: left() <= before, what="its folder is still there")
