"""A start on an empty folder beside a server in production: what it must never have, touch or leave behind."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.model import Vendor
from headrace.change.persist.starts import is_tried
from headrace.host.target.local import LocalTarget
from headrace.lab.server.next_start import Answer, NextStart
from headrace.lab.server.option_files import Copies, Start, Word, reading
from headrace.lab.server.sources import Process
from headrace.lab.server.trial_start import Trial, try_start
from tests.servers import open_folder
from tests.waiting import until

pytestmark = pytest.mark.needs("root")

MYSQL = pwd.getpwnam("mysql")
#: What it says of itself as a server says what is wrong. With "crowded" in its options it is not what now runs.
FAKE = """#!/bin/sh
grep -q crowded "${1#--defaults-file=}" || exit 0
{
echo user=$(id -u) groups=$(id -G)
echo arguments=$*
env | sort | sed 's/^/env./'
sed 's/^/limit./' /proc/self/limits
echo nice=$(nice) oom=$(cat /proc/self/oom_score_adj)
echo network=$(sed -n 's/^ *\\([a-z0-9]*\\):.*/\\1/p' /proc/net/dev)
echo cwd=$(pwd) file=$(tr '\\n' '|' <"${1#--defaults-file=}")
} | sed 's/^/[ERROR] /'
exit 1
"""
SLEEPER = "#!/bin/sh\necho started >>{log}\nexec sleep 300\n"


def folders() -> set[Path]:
    return {path for place in ("/tmp", "/var/tmp") for path in Path(place).glob("headrace-start-*")}


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as made:
        yield made


def program(folder: Path, text: str) -> str:
    path = folder / "mariadbd"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


async def tried(
    program: str, *options: str, user: int = MYSQL.pw_uid, arguments: tuple[str, ...] = ()
) -> Trial:
    start = Start(Vendor.MARIADB, "10.11.6", arguments, {})
    limits = ("4096", "4096")
    group = MYSQL.pw_gid if user else 0
    process = Process(os.getpid(), True, program, arguments, {}, user, group, limits, limits)
    known = frozenset({"innodb_write_io_threads", *(each.partition("=")[0] for each in options)})
    words = [
        Word("/x.cnf", number, *each.partition("=")[::2], each) for number, each in enumerate(options, 1)
    ]
    target = LocalTarget()
    try:
        now = reading(Copies({}), start)
        next_start = NextStart(target, process, start, Copies({}), now, Answer({}), known)
        return await try_start(next_start, [*now.words, *words], ["innodb_write_io_threads"], is_tried)
    finally:
        await target.close()


def told(trial: Trial) -> str:
    assert trial.problems, trial
    return "\n".join(trial.problems)


REACHING_OUT = (
    "port=3399", "socket=/run/mysqld/mysqld.sock", "bind_address=0.0.0.0", "extra_port=3398", "report_host=a",
    "plugin_load_add=server_audit", "plugin_dir=/usr/lib/mysql/plugin", "plugin_maturity=unknown", "feedback=ON",
    "feedback_url=http://192.0.2.1/", "wsrep_on=ON", "wsrep_provider=/usr/lib/galera/libgalera_smm.so",
    "wsrep_cluster_address=gcomm://192.0.2.1", "group_replication_start_on_boot=ON", "mysqlx_port=33060",
    "datadir=/var/lib/mysql", "innodb_data_home_dir=/var/lib/mysql", "innodb_undo_directory=/var/lib/mysql",
    "innodb_log_group_home_dir=../mysql", "innodb_tmpdir=..", "tmpdir=/tmp", "slave_load_tmpdir=/tmp",
    "innodb_temp_data_file_path=ibtmp1:64G", "innodb_temp_data_file_path=../ibtmp1:12M", "log_error=/var/log/x",
    "log_bin=ON", "relay_log=r", "general_log=ON", "general_log_file=/var/log/x", "slow_query_log=ON",
    "init_file=/etc/passwd", "init_connect=SELECT 1", "server_id=7", "rpl_semi_sync_master_enabled=ON",
    "pid_file=/run/x", "user=root", "chroot=/", "core_file=ON", "large_pages=ON", "memlock=ON", "ssl_ca=/etc/x",
    "innodb_buffer_pool_size=64G", "key_buffer_size=64G", "innodb_encrypt_tables=ON", "event_scheduler=ON",
)  # fmt: skip


def test_nothing_of_the_server_but_what_decides_statements(folder: Path) -> None:
    secrets = {
        "NOTIFY_SOCKET": "/run/x",
        "LISTEN_FDS": "1",
        "MYSQL_PWD": "s3cret",
        "LD_PRELOAD": "",
        "TMPDIR": "/tmp",
    }
    before = folders()
    os.environ.update(secrets)
    try:
        options = ("max_join_size=crowded", *REACHING_OUT)
        said = told(asyncio.run(tried(program(folder, FAKE), *options, arguments=("--port=3397",))))
    finally:
        for name in secrets:
            os.environ.pop(name)
    assert f"user={MYSQL.pw_uid} groups={MYSQL.pw_gid}" in said
    lines = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    for option in (*REACHING_OUT, "port=3397"):
        assert option not in lines["cwd"]
        assert option.replace("_", "-") not in lines["arguments"]
    assert "max_join_size=crowded" in lines["cwd"]
    [place] = {word.partition("=")[2] for word in lines["arguments"].split() if word.startswith("--datadir=")}
    own = place.removesuffix("/data")
    for option in ("defaults-file", "datadir", "tmpdir", "plugin-dir", "socket", "pid-file"):
        assert f"--{option}={own}/" in lines["arguments"]
    assert "--skip-networking" in lines["arguments"]
    assert {name for name in lines if name.startswith("env.")} == {
        "env.HOME",
        "env.PATH",
        "env.PWD",
        "env.TMPDIR",
    }
    assert lines["env.TMPDIR"] == f"{own}/tmp"
    assert lines["nice"] == "19 oom=1000"
    assert lines["network"] == "lo"
    assert Path(own) not in folders()
    assert folders() <= before


def test_it_is_bounded(folder: Path) -> None:
    said = told(asyncio.run(tried(program(folder, FAKE), "max_join_size=crowded")))
    found = {
        line[6:30].strip(): line.split()[-3] for line in said.splitlines() if line.startswith("limit.Max")
    }
    assert (found["Max core file size"], found["Max open files"]) == ("0", "4096")
    for bound in ("Max file size", "Max data size", "Max cpu time"):
        assert int(found[bound]) > 0, bound


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("head -c 2000000000 /dev/zero >tmp/large", "too large a file"),
        ("kill -9 $$", "from outside"),
        ("echo '[ERROR] InnoDB: Cannot allocate memory for the buffer pool'; exit 1", "bounds"),
    ],
)
def test_its_own_bounds_are_no_fault_of_the_options(folder: Path, command: str, reason: str) -> None:
    text = f'#!/bin/sh\ncd "$HOME"\n{command}\n'
    trial = asyncio.run(tried(program(folder, text), "max_join_size=5"))
    assert trial.problems == ()
    assert reason in trial.untried


def test_a_server_of_root_is_tried_as_nobody(folder: Path) -> None:
    said = told(asyncio.run(tried(program(folder, FAKE), "max_join_size=crowded", user=0)))
    assert "user=65534 groups=65534" in said


def sleeping(log: Path) -> tuple[subprocess.Popen[bytes], int, int, Path]:
    """A trial whose server hangs, in a process of its own: it, its shell, the server, its folder."""
    before = folders()
    code = (
        "import asyncio, sys\n"
        "from tests.real.server.test_trial_alone import tried\n"
        "asyncio.run(tried(sys.argv[1], 'max_join_size=5'))\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code, program(log.parent, SLEEPER.format(log=log))],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(log.exists, started, what="it did not start")
    until(lambda: len(folders() - before) == 1 and child(folders() - before), what="no folder")
    [place] = folders() - before
    server = child({place})
    shell = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
    return started, shell, server, place


def child(places: set[Path]) -> int:
    [place] = places
    try:
        text = (place / "child").read_text()
    except OSError:
        return 0
    return int(text) if text.endswith("\n") else 0


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("victims", ["command", "shell", "both", "group", "server"])
def test_nothing_is_left_of_a_killed_one(folder: Path, victims: str) -> None:
    (folder / "log").parent.chmod(0o777)
    started, shell, server, place = sleeping(folder / "log")
    try:
        if victims == "group":
            os.killpg(os.getpgid(shell), signal.SIGKILL)
        for pid in {
            "command": [started.pid],
            "shell": [shell],
            "both": [started.pid, shell],
            "server": [server],
        }.get(victims, []):
            os.kill(pid, signal.SIGKILL)
        if victims == "command":
            # Nobody waits for it any more: it ends by itself when its time is over, or with its shell.
            os.kill(shell, signal.SIGTERM)
        until(lambda: not is_there(server), what="the server runs on")
        until(lambda: not place.exists(), what="its folder is still there")
    finally:
        started.kill()
        started.wait()


def test_an_old_leftover_goes_and_a_stranger_s_stays(folder: Path) -> None:
    old, strange = Path("/var/tmp/headrace-start-ABCDEF"), Path("/var/tmp/headrace-start-GHIJKL")
    for path, user in ((old, MYSQL.pw_uid), (strange, 0)):
        path.mkdir()
        os.chown(path, user, -1)
        os.utime(path, (time.time() - 3600,) * 2)
    try:
        asyncio.run(tried(program(folder, FAKE), "max_join_size=5"))
        assert not old.exists()
        assert strange.exists()
    finally:
        for path in (old, strange):
            shutil.rmtree(path, ignore_errors=True)


def test_temporary_tables_of_the_running_server_stay() -> None:
    """A server that starts removes all temporary tables of its folder: those of another, if that is /tmp."""
    mariadbd = shutil.which("mariadbd", path="/usr/sbin:/usr/bin")
    assert mariadbd
    paths = [Path(place) / f"#sql-temptable-5f5f-{os.getpid()}-1.MAI" for place in ("/tmp", "/var/tmp")]
    for path in paths:
        path.touch()
        os.chown(path, MYSQL.pw_uid, MYSQL.pw_gid)
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        try:
            asked = (f"port={port.getsockname()[1]}", "innodb_write_io_threads=5")
            trial = asyncio.run(tried(mariadbd, *asked))
            assert trial.values == {"innodb_write_io_threads": "5"}
            assert all(path.exists() for path in paths)
        finally:
            for path in paths:
                path.unlink(missing_ok=True)
