"""Whole commands of root in a folder whose owner changes what its names mean; and where others mount over them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

from headrace.host import snapshot
from tests.agent.test_pipes import LOG
from tests.programs import agent_path
from tests.racer import SECRET, Hosts, flipping
from tests.rules.hosts import saved
from tests.synthetic import Shape, make

#: Rounds of each command.
ROUNDS = int(os.environ.get("HEADRACE_TRUST_COMMANDS", "6"))
#: The longest that one may take beside others; what hangs is killed.
MOST_S = 60
PLAN = """name = "raced"
[target]
scratch = "{scratch}"
[design]
kind = "factorial"
baseline = "2001"
blocks = 1
[workload]
kind = "fio"
seconds = 1
rw = "randwrite"
size = "1M"
ioengine = "psync"
iodepth = 1
[factors.backlog]
knob = "host.net.core.somaxconn"
levels = [2001, 2002]
"""
TABLE = "kernel,tps\n6.1,1000\n6.1,1010\n6.1,1005\n6.12,1100\n6.12,1110\n6.12,1105\n"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="root works in another account's folder"),
    pytest.mark.thorough,
]


def nothing(place: Path) -> None:
    """The name is new."""


def text(content: str) -> Callable[[Path], object]:
    return lambda place: (place / "x").write_text(content)


def an_experiment(place: Path) -> None:
    make(place / "x", Shape(blocks=1, seconds=2, effects={"STOCK": 1.0, "MYSQL": 2.0}))
    if place.name == "victim":
        (place / "x" / "plan.toml").write_text(f"# {SECRET}\n")


def a_hunt(place: Path) -> None:
    snapshot.save(saved(), place / "x")


def a_recording(place: Path) -> None:
    (place / "log").write_text(LOG)
    subprocess.run(
        [agent_path(), "record", place / "log", "-o", place / "x"], check=True, capture_output=True
    )


@dataclass(frozen=True)
class Command:
    """``words``: {x} is the raced name, {own} a folder of root's own. What is in ``make`` has the name before."""

    words: str
    make: Callable[[Path], object] = nothing
    program: tuple[str, ...] = (sys.executable, "-m", "headrace")
    ends_after_s: float | None = None


COMMANDS = {
    "hunt --save": Command("hunt -d 2s --host-only --save {x}"),
    "hunt --html": Command("hunt --from {own}/hunt --html {x}", text("theirs")),
    "hunt --from": Command("hunt --from {x}", a_hunt),
    "report": Command("report {x}", an_experiment),
    "status": Command("status {x}", an_experiment),
    "compare": Command("compare {x} {own}/experiment --tell markdown:{x}.md", an_experiment),
    "digest --save": Command("digest {own}/log --save {x} --html {x}.html", text("theirs")),
    "digest --add-to": Command("digest {own}/log --add-to {x}.{n}"),
    "digest": Command("digest {x}", text(LOG)),
    "record": Command("record {own}/log -o {x} --force", text("theirs")),
    "record --follow": Command("record --follow {x} -o {x}.recording --duration 2s --force", text(LOG)),
    "recording filter": Command("recording filter {own}/recording user=a -o {x} --force", text("theirs")),
    "recording merge": Command("recording merge {own}/recording -o {x} --force", text("theirs")),
    "recording anonymise": Command("recording anonymise {own}/recording -o {x} --force", text("theirs")),
    "recording info": Command("recording info {x}", a_recording),
    "import": Command("import {x} --factor kernel --response tps --html {x}.html", text(TABLE)),
    "watch": Command("watch {x} --name kernel --response tps --html {x}.html", text(TABLE)),
    "run": Command("run {own}/plan.toml -o {x}.{n} --tell junit:{x}.xml"),
    "run of a plan": Command("run {x} -o {own}/run", text(PLAN.format(scratch="/nonexistent"))),
    "serve --data": Command("serve --data {x} --listen 127.0.0.1:0", ends_after_s=6),
    "fleet facts": Command("fleet facts --fleet {x} --run {x}.run", text("local\n")),
    "tell": Command("tell {own}/experiment --to markdown:{x}", text("theirs")),
    "collect": Command("{own}/collect.sh -s 2 -o {x}", nothing, ("sh",)),
}  # fmt: skip


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    text(LOG)(folder)
    (folder / "x").rename(folder / "log")
    subprocess.run(
        [agent_path(), "record", folder / "log", "-o", folder / "recording"], check=True, capture_output=True
    )
    a_hunt(folder)
    (folder / "x").rename(folder / "hunt")
    make(folder / "experiment", Shape(blocks=1, seconds=2, effects={"STOCK": 1.0, "MYSQL": 2.0}))
    (folder / "plan.toml").write_text(PLAN.format(scratch=folder / "scratch"))
    (folder / "collect.sh").write_text((resources.files("headrace.hunt.dumps") / "collect.sh").read_text())
    return folder


def run(command: Command, path: Path, own: Path, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    words = [word.format(x=path, own=own, n=secrets.token_hex(4)) for word in command.words.split()]
    # With sysctls of its own; state, too.
    argv = [*prefix, "unshare", "--net", *command.program, *words]
    env = {**os.environ, "HEADRACE_STATE": str(own / "state"), "XDG_STATE_HOME": str(own / "home")}
    child = subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True, cwd=own,
    )  # fmt: skip
    try:
        if command.ends_after_s is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(command.ends_after_s + random.random() * 3)
            child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=MOST_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise AssertionError(f"it hangs: {argv}") from None
    return child.returncode, said


def foreign(hosts: Hosts) -> list[str]:
    """What of root's stands in the account's folder; a second name of root's own file is none."""
    secret = {path.stat().st_ino for path in hosts.victim.rglob("*") if path.is_file()}
    found = []
    for path in hosts.theirs.rglob("*"):
        is_file = path.is_file() and not path.is_symlink() and path.stat().st_ino not in secret
        if is_file and b"$6$" in path.read_bytes():
            found.append(str(path))
    return found


def told(name: str, codes: dict[int, int], said: dict[int, str]) -> None:
    print(json.dumps({"command": name, "codes": codes}))
    for code, line in said.items():
        print(f"  {code}: {line[-200:]!r}")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_touches_nothing_foreign_and_ends(tmp_path: Path, own: Path, name: str) -> None:
    command = COMMANDS[name]
    codes: dict[int, int] = {}
    texts: dict[int, str] = {}
    hosts = Hosts(tmp_path, command.make, "x")
    before = hosts.state()
    with flipping(hosts.theirs, *hosts.pairs()):
        for _ in range(ROUNDS):
            time.sleep(random.random() / 50)
            code, said = run(command, hosts.theirs / "place" / "x", own)
            codes[code] = codes.get(code, 0) + 1
            texts.setdefault(code, said)
            assert "$6$" not in said
            assert "Traceback" not in said, said[-1500:]
            assert hosts.state() == before, said[-500:]
    assert not foreign(hosts)
    told(name, codes, texts)


#: As root of a mount namespace of its own: mounts over the name and takes it away, until it is ended.
MOUNT = """
trap 'exit 0' TERM
echo ready
while :; do
  for from in "$1"/x "$1" "$2"; do
    if [ -d "$from" ] && [ -d "$3" ] || [ -f "$from" ] && [ -f "$3" ]; then
      mount --bind "$from" "$3" && { sleep 0.00$(($$ % 9)); umount -l "$3"; }
    fi
  done 2>/dev/null
done
"""


@contextlib.contextmanager
def mounting(hosts: Hosts, at: Path) -> Iterator[tuple[str, ...]]:
    """What goes before a command to be in that namespace."""
    words = [
        "unshare",
        "--mount",
        "--propagation=private",
        "sh",
        "-c",
        MOUNT,
        "sh",
        hosts.victim,
        hosts.theirs,
        at,
    ]
    holder = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        yield ("nsenter", f"--target={holder.pid}", "--mount", "--")
        assert holder.poll() is None
    finally:
        holder.kill()
        holder.wait()


#: What is written there; what is read from a mount is what its owner put there, who is root.
WRITES = (
    "hunt --html",
    "digest --save",
    "record",
    "recording filter",
    "tell",
    "serve --data",
    "digest --add-to",
    "run",
)


@pytest.mark.parametrize("name", WRITES)
def test_a_command_writes_nothing_to_what_is_mounted_meanwhile(tmp_path: Path, own: Path, name: str) -> None:
    command = COMMANDS[name]
    hosts = Hosts(tmp_path, command.make, "x")
    at = hosts.theirs / "place" / "x" if command.make is not nothing else hosts.theirs / "place"
    before, codes = (
        {path: what for path, what in hosts.state().items() if "place" not in path},
        dict[int, int](),
    )
    with mounting(hosts, at) as prefix:
        for _ in range(ROUNDS):
            code, said = run(command, hosts.theirs / "place" / "x", own, prefix)
            codes[code] = codes.get(code, 0) + 1
            assert "$6$" not in re.sub(r"\s", "", said)
            assert "Traceback" not in said, said[-1500:]
            for path, (mode, owner, _, content) in before.items():
                now = hosts.state()[path]
                assert (now[0], now[1], now[3]) == (mode, owner, content), (path, said[-300:])
    told(name, codes, {})
