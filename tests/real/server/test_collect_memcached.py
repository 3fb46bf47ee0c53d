"""``headrace collect`` beside real memcached servers, by each program through which it can ask them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests import commands
from tests.caches import cache
from tests.folders import ROOT

pytestmark = pytest.mark.needs("memcached")

SCRIPT = ROOT / "src" / "headrace" / "hunt" / "dumps" / "collect.sh"
TALKERS = "python3 bash socat nc"


def collecting(talker: str, folder: Path) -> subprocess.Popen[bytes]:
    """The script on a host that has this program alone."""
    text = SCRIPT.read_text()
    assert f"in {TALKERS};" in text
    script = folder / f"{talker}.sh"
    script.write_text(text.replace(f"in {TALKERS};", f"in {talker};"))
    return subprocess.Popen(
        ["sh", script, "-s", "2", "-o", talker],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def read(folder: Path) -> dict[int, tuple[str | None, bool]]:
    """By process: why a server was not read, and whether it has a rate."""
    done = commands.headrace("hunt", "--from", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    return {row["pid"]: (row["not_read"], bool(row["requests_s"])) for row in found["memcached"]["servers"]}


def test_each_way_to_ask_reads_the_same_and_none_says_so(tmp_path: Path) -> None:
    talkers = [name for name in TALKERS.split() if shutil.which(name)] + ["no-such-program"]
    users = tmp_path / "users"
    users.write_text("name:password\n")
    with (
        cache("-U", "0") as plain,
        cache("-u", "root", path=str(tmp_path / "socket")) as by_path,
        cache("-u", "root", "-Y", str(users)) as locked,
    ):
        clients = [plain.client(), by_path.client()]
        running = [collecting(talker, tmp_path) for talker in talkers]
        while any(each.poll() is None for each in running):
            for client in clients:
                client.get([f"k{number}" for number in range(20)])
            time.sleep(0.02)
        for client in clients:
            client.close()
        assert [each.returncode for each in running] == [0] * len(running)
        nobody = ("there is no python3, bash, socat or nc here", False)
        pathless = ("at a Unix socket only python3 and socat can ask, and neither is here", False)
        refused = ("it answers 'CLIENT_ERROR unauthenticated'", False)
        is_read = (None, True)
        for talker in talkers:
            by_pid = read(tmp_path / talker)
            expected = [is_read, is_read if talker in ("python3", "socat") else pathless, refused]
            if talker == "no-such-program":
                expected = [nobody] * 3
            assert [by_pid[each.pid] for each in (plain, by_path, locked)] == expected, talker
