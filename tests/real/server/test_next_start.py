"""What lasts, on a real server: refusals before a file is written, what stays in it, what a start made of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.option_lab import OWN, OptionLab, option_lab
from tests.servers import open_folder, started

pytestmark = pytest.mark.needs("root")

CAPACITY = "server.innodb_io_capacity"
HEADER = "# Written by headrace; `headrace rollback` takes it away.\n"


@pytest.fixture(scope="module")
def made() -> Iterator[OptionLab]:
    with open_folder() as folder, option_lab("mariadb-10.11", folder / "lab") as lab:
        yield lab


@pytest.fixture
def lab(made: OptionLab) -> OptionLab:
    made.clear()
    made.restart()
    return made


def test_a_refused_apply_is_not_what_rollback_last_undoes(lab: OptionLab) -> None:
    lab.headrace("apply", f"{CAPACITY}=700", "--persist", "files", code=0)
    lab.write("conf.d/zzz.cnf", "[server]\ninnodb-io-capacity=321\n")
    done = lab.headrace("apply", f"{CAPACITY}=800", "--persist", "files", code=5)
    assert "/etc/mysql/conf.d/zzz.cnf:2 decides it" in done.stderr
    assert lab.value("innodb_io_capacity") == "700"
    done = lab.headrace("rollback", "--last", code=5)
    assert "the last apply was refused and changed nothing" in done.stderr
    change = done.stderr.rpartition("--id ")[2].split()[0]
    done = lab.headrace("rollback", "--id", change, code=0)
    decides = "the next start makes it 321: /etc/mysql/conf.d/zzz.cnf:2 says so"
    assert f"innodb_io_capacity = 200: set back for now only: {decides}" in done.stdout
    assert lab.read() is None


def test_other_sections_of_our_file_stay_as_they_are(lab: OptionLab) -> None:
    before = f"{HEADER}# mine\n[client]\nuser=me\n\n[mysqld]\nmax-connections = 99\n# c\n[mysqldump]\nquick\n"
    lab.write(OWN, before)
    lab.restart()
    lab.headrace("apply", "server.max_connections=98", f"{CAPACITY}=300", "--persist", "files", code=0)
    ours = "# c\nmax_connections = 98\ninnodb_io_capacity = 300\n[mysqldump]"
    assert lab.read() == before.replace("max-connections = 99\n", "").replace("# c\n[mysqldump]", ours)
    lab.restart()
    assert (lab.value("max_connections"), lab.value("innodb_io_capacity")) == ("98", "300")


def test_what_a_start_made_of_a_file_is_news(lab: OptionLab) -> None:
    lab.headrace("apply", "server.back_log=90", f"{CAPACITY}=500", "--persist", "files", code=0)
    [waits] = json.loads(lab.headrace("rollback", "--list", "--json", code=0).stdout)["news"]
    assert (waits["option"], waits["asked"], waits["running"], waits["waits"]) == (
        "back_log",
        "90",
        "80",
        True,
    )
    lab.restart()
    assert json.loads(lab.headrace("rollback", "--list", "--json", code=0).stdout)["news"] == []
    lab.restart("--innodb-io-capacity=321")
    [news] = json.loads(lab.headrace("rollback", "--list", "--json", code=0).stdout)["news"]
    assert (news["option"], news["asked"], news["running"], news["waits"]) == (
        "innodb_io_capacity", "500", "321", False,
    )  # fmt: skip


def test_the_dry_run_says_what_the_apply_would(lab: OptionLab) -> None:
    mount = [*lab.server.prefix, "mount", "-o"]
    subprocess.run([*mount, "bind,ro", f"{lab.etc}/conf.d", "/etc/mysql/conf.d"], check=True)
    try:
        for more in (["--dry-run"], []):
            done = lab.headrace("apply", f"{CAPACITY}=600", "--persist", "files", *more, code=5)
            assert "/etc/mysql/conf.d: cannot be written" in done.stderr
    finally:
        subprocess.run([*lab.server.prefix, "umount", "/etc/mysql/conf.d"], check=True)
    assert lab.value("innodb_io_capacity") == "200"


def test_a_file_that_is_mounted_by_itself_is_refused_before(lab: OptionLab) -> None:
    """As into a container: the rename that makes a file whole is busy there."""
    lab.write("mounted.cnf", "")
    lab.write(OWN, "")
    place = f"/etc/mysql/{OWN}"
    subprocess.run([*lab.server.prefix, "mount", "--bind", "/etc/mysql/mounted.cnf", place], check=True)
    try:
        done = lab.headrace("apply", f"{CAPACITY}=700", "--persist", "files", code=5)
    finally:
        subprocess.run([*lab.server.prefix, "umount", place], check=True)
    assert "is mounted by itself" in done.stderr
    assert lab.value("innodb_io_capacity") == "200"


@pytest.mark.thorough
def test_last_goes_on_with_what_it_could_not_undo(lab: OptionLab) -> None:
    lab.headrace("apply", "server.back_log=90", "--persist", "files", code=0)
    lab.headrace("apply", f"{CAPACITY}=700", "--persist", "files", code=0)
    place = "/etc/mysql/conf.d"
    read_only = f"mount --bind {place} {place} && mount -o remount,bind,ro {place}"
    subprocess.run([*lab.server.prefix, "sh", "-c", read_only], check=True)
    try:
        for _ in range(2):
            done = lab.headrace("rollback", "--last", code=6)
            assert "Read-only file system" in done.stdout
    finally:
        subprocess.run([*lab.server.prefix, "umount", place], check=True)
    lab.headrace("rollback", "--last", code=0)
    assert (lab.read() or "").endswith("[mysqld]\nback_log = 90\n"), "the set before it stays"
    lab.headrace("rollback", "--last", code=0)
    assert lab.read() is None


def test_a_limit_of_open_files_that_no_start_gets_is_refused(lab: OptionLab) -> None:
    """What starts the server decides how many it may open, and tables get what connections leave."""
    prefix = lab.server.prefix
    lab.server.prefix = [*prefix, "prlimit", "--nofile=5000:5000"]
    lab.restart()
    lab.server.prefix = prefix
    try:
        persisted = ("--persist", "files", "--dry-run")
        done = lab.headrace("apply", "server.open_files_limit=9000", *persisted, code=5)
        assert "the next start makes it 5000: its limit of open files is 5000" in " ".join(
            done.stderr.split()
        )
        tables = lab.value("table_open_cache")
        done = lab.headrace("apply", "server.max_connections=2300", *persisted, code=0)
        assert "the next start also makes table_open_cache " in done.stderr
        assert f", which is {tables} without this" in done.stderr
    finally:
        lab.restart()


def test_another_server_that_reads_the_same_directory_is_named(lab: OptionLab) -> None:
    with started("mariadb-10.11", lab.state.parent / "other") as other:
        persisted = ("apply", f"{CAPACITY}=700", "--persist", "files", "--dry-run")
        other.prefix = lab.server.prefix
        other.argv = [word for word in other.argv if word != "--no-defaults"]
        other.restart()
        said = " ".join(lab.headrace(*persisted, code=0).stderr.split())
        assert (
            "another server of this host, reads /etc/mysql/conf.d/zz-headrace.cnf at its next start" in said
        )


def test_a_server_that_is_down_is_said_to_be(lab: OptionLab) -> None:
    lab.server.stop()
    try:
        done = lab.headrace("apply", f"{CAPACITY}=700", "--persist", "files", code=4)
        assert f"the server at {lab.server.socket} does not answer" in done.stderr
        assert "does not answer" in lab.headrace("knobs", "innodb_io", code=0).stderr
    finally:
        lab.server.start()


def test_a_server_with_its_own_view_of_the_files_is_left_alone(lab: OptionLab) -> None:
    """headrace runs outside: it must not write where the server does not read."""
    inside = lab.server.prefix
    try:
        lab.server.prefix = []
        done = lab.headrace("apply", f"{CAPACITY}=600", "--persist", "files", code=5)
    finally:
        lab.server.prefix = inside
    assert "the server sees other files than this host" in done.stderr
    assert lab.value("innodb_io_capacity") == "200"


def test_a_server_with_mounts_of_its_own_and_the_host_s_files_is_persisted(lab: OptionLab) -> None:
    """As a unit with ProtectSystem= or PrivateTmp=, which most packages have."""
    inside = lab.server.prefix
    try:
        lab.server.prefix = [*inside, "unshare", "--mount", "--"]
        lab.restart()
        lab.server.prefix = inside
        lab.headrace("apply", f"{CAPACITY}=600", "--persist", "files", code=0)
        assert lab.read() == f"{HEADER}[mysqld]\ninnodb_io_capacity = 600\n"
        lab.restart()
        assert lab.value("innodb_io_capacity") == "600"
    finally:
        lab.server.prefix = inside


def test_an_option_of_another_name_and_what_is_none(lab: OptionLab) -> None:
    words = ["server.time_zone=+00:00", "server.log_bin=OFF"]
    allowed = ["--allow-weaker", "server.time_zone", "--allow-weaker", "server.log_bin"]
    lab.headrace("apply", *words, *allowed, "--persist", "files", code=0)
    assert lab.read() == f"{HEADER}[mysqld]\ndefault_time_zone = +00:00\nskip_log_bin\n"
    lab.restart()
    assert (lab.value("time_zone"), lab.value("log_bin")) == ("+00:00", "OFF")
    name = "server.max_statement_time_x"
    assert lab.headrace("apply", f"{name}=1", "--allow-weaker", name, "--persist", "files").returncode != 0
    lab.write("conf.d/a.cnf", "[mysqld]\nno_such_option = 1\n")
    done = lab.headrace("apply", f"{CAPACITY}=600", "--persist", "files", code=5)
    assert "would not even start" in done.stderr
    assert "no_such_option" in done.stderr


def test_a_value_that_only_a_start_makes_of_its_default_comes_back(lab: OptionLab) -> None:
    """The binary prints other defaults than a start has: no time zone, and 0 for Aria's checkpoints."""
    changes = ["server.time_zone=+01:00", "server.aria_checkpoint_interval=60"]
    lab.headrace("apply", *changes, "--allow-weaker", "server.time_zone", "--persist", "files", code=0)
    undone = lab.headrace("rollback", "--last", code=0).stdout
    assert "time_zone = SYSTEM: undone" in undone
    assert "aria_checkpoint_interval = 30: undone" in undone
    lab.server.sql("SET GLOBAL aria_checkpoint_interval=0")
    lab.headrace("apply", changes[1], code=0)
    undone = lab.headrace("rollback", "--last", code=0).stdout
    assert "set back for now only: the next start makes it 30: the server's default says so" in undone


def test_a_start_that_would_fail_is_not_promised_at_rollback(lab: OptionLab) -> None:
    lab.headrace("apply", f"{CAPACITY}=700", "--persist", "files", code=0)
    lab.write("conf.d/zzz.cnf", "[mysqld]\nno_such_option = 1\n")
    done = lab.headrace("rollback", "--last", code=0)
    assert (
        "innodb_io_capacity = 200: set back, and what the next start makes of it is not known" in done.stdout
    )
    said = " ".join(done.stderr.split())
    assert "the next start of the server would fail: " in said
    assert "unknown variable 'no_such_option=1'" in said


def test_an_edit_that_is_accepted_is_not_called_undone(lab: OptionLab) -> None:
    lab.headrace("apply", f"{CAPACITY}=700", "--persist", "files", code=0)
    lab.write(OWN, (lab.read() or "").replace("700", "750"))
    lab.headrace("rollback", "--last", code=6)
    said = lab.headrace("rollback", "--last", "--accept-foreign", code=0).stdout
    assert (
        "it is left as it is): closed; innodb_io_capacity is 200 until the next start, and then 750" in said
    )


def test_what_a_plugin_took_along_is_closed_by_name(lab: OptionLab) -> None:
    """Its variable is gone with it: no undo brings it back, and no restart of the server is needed to go on."""
    lab.server.sql("INSTALL SONAME 'simple_password_check'")
    name = "server.simple_password_check_minimal_length"
    lab.headrace("apply", f"{name}=10", "--allow-weaker", name, code=0)
    lab.server.sql("UNINSTALL SONAME 'simple_password_check'")
    done = lab.headrace("rollback", "--last", code=6)
    assert "the server has no such variable any more: what brought it was taken away" in done.stdout
    assert "closed" in lab.headrace("rollback", "--last", "--accept-foreign", code=0).stdout
    assert "simple_password_check" not in lab.headrace("rollback", "--list", code=0).stdout


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("key_cache_age_threshold=350", "ask for 300 or 400"),
        ("binlog_cache_size=40000", "ask for 36864 or 40960"),
    ],
)
def test_a_number_that_the_server_would_round_is_known_before(lab: OptionLab, asked: str, says: str) -> None:
    name = f"server.{asked.partition('=')[0]}"
    done = lab.headrace("apply", f"server.{asked}", "--allow-weaker", name, "--dry-run", code=3)
    assert says in done.stderr
    _, _, more = says.rpartition(" ")
    lab.headrace("apply", f"{name}={more}", "--allow-weaker", name, code=0)
