"""Commits under load, then power cuts: which acknowledged transactions are gone when the server is up again?

The load inserts one row a transaction, on a ``logged`` volume. Several times a second another client looks at
the last row of each connection, and then at how far the log of the disk has come. A connection sends a row
only once the one before was acknowledged, so all rows before its last visible one were: after a cut at that
place of the log they have to be there.

A cut is a new disk made of the log. It is mounted where the volume is, in a mount namespace of its own, and a
server starts on it with the command line of the trial's, as at the next boot.
"""

from __future__ import annotations

import contextlib
import random
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from headrace.base.counted import counted
from headrace.base.errors import NotAsAsked, NotReady, WorkloadFailed
from headrace.base.model import Tool, Value
from headrace.base.received import an_object
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.client import ask, client_command
from headrace.experiment.workloads.drive.options import ServerDriveOptions
from headrace.experiment.workloads.drive.workload import ServerDriven, seed_of
from headrace.experiment.workloads.options import Described
from headrace.experiment.workloads.workload import Context, Cut, Measurement
from headrace.host.agent import Agent
from headrace.host.target import scratch_folder

TABLE = "power_cuts"
#: File systems of which the kernel takes no second one with the same identity.
ONE_ONLY = ("btrfs",)
#: A server that is not up by then counts as one that does not start.
START_LIMIT_S = 180
_LOOK_PAUSE_S = 0.1
#: What a cut took with small data on a machine with two cores: 0.4 to 1.7 s.
CUT_S = 1.0
#: The boot script's exit codes.
_NO_MOUNT, _NO_START, _NO_ANSWER = 10, 12, 13
_STATES = {
    _NO_MOUNT: "the file system does not mount",
    _NO_START: "the server does not start",
    _NO_ANSWER: f"the server did not answer within {START_LIMIT_S} s",
}

_WATCH = f"""
while :; do
    rows=$("$CLIENT" "$@" -B -N -e "SELECT connection, MAX(id) FROM {TABLE} GROUP BY connection") || exit
    at=$(head -c 24 "$LOG" | tail -c 8 | od -A n -t u8)
    echo "look $(date +%s%N) $at"
    echo "$rows"
    sleep {_LOOK_PAUSE_S}
done
"""

# In namespaces of its own, so that nothing of it stays whatever happens: the loop device goes with the mount, the
# server with its process 1.
_BOOT = f"""
# This namespace is a copy, in which what others unmount meanwhile would stay mounted, and keep its device busy.
kept=$(findmnt -n -o TARGET -T "$DISK")
awk -v kept="$kept" '$1 ~ /^.dev.(loop|zram)[0-9]/ && $2 != kept {{print $2}}' /proc/mounts | tac |
    while read -r each; do umount --lazy "$(printf %b "$each")"; done
mount -t "$KIND" -o "$OPTIONS" "$DISK" "$PLACE" || exit {_NO_MOUNT}
own=$PLACE/.boot
rm -rf "$own" && mkdir -m 0700 "$own" && chown "$ACCOUNT" "$own" || exit
began=$(date +%s%N)
"$@" --socket="$own/s" --pid-file="$own/pid" --log-error="$own/log" --tmpdir="$own" --skip-networking \
    --loose-mysqlx=OFF --loose-secure-file-priv= > "$own/out" 2>&1 &
server=$!
for turn in $(seq {START_LIMIT_S * 10}); do
    if "$CLIENT" --no-defaults --socket "$own/s" --user root -e "DO 0" 2> /dev/null; then
        echo "up $(($(date +%s%N) - began))"
        exec "$CLIENT" --no-defaults --socket "$own/s" --user root -B -N "$DATABASE" -e "$STATEMENTS"
    fi
    kill -0 $server 2> /dev/null || {{
        wait $server
        ended=$?
        tail -n 60 "$own/log" "$own/out"
        # Without a word in its log, or by a signal from outside, its end says nothing about the disk.
        [ -s "$own/log" ] && [ $ended -ne 137 ] && [ $ended -ne 143 ] && exit {_NO_START}
        echo "the server ended with $ended, without saying why" >&2
        exit 1
    }}
    sleep 0.1
done
tail -n 60 "$own/log"
exit {_NO_ANSWER}
"""


class PowerCutOptions(ServerDriveOptions):
    """The load, and how often the power is cut."""

    cuts: Annotated[int, Field(ge=1, le=1000)] = Field(
        10, description="power cuts a trial, at moments of the window taken at random"
    )
    row_bytes: Annotated[int, Field(ge=1, le=16_000), Described("a number of bytes from 1 to 16,000")] = (
        Field(200, description="bytes of text in each row; one row is one transaction")
    )


@dataclass(frozen=True)
class Look:
    """At ``t_ns`` the log had ``at`` entries, and had acknowledged all rows before ``last``: connection -> id."""

    t_ns: int
    at: int
    last: Mapping[int, int]


@dataclass(frozen=True)
class _Disk:
    """The volume, and how the trial's server was started on it."""

    place: str
    log: str
    kind: str
    size_bytes: int
    server: Sequence[str]
    account: str
    client: str


class PowerCut(ServerDriven[PowerCutOptions]):
    """One operation, ``commit``: a row inserted, which is a transaction of its own."""

    kind = "power-cut"
    Options = PowerCutOptions
    tools: tuple[Tool, ...] = (
        Tool("unshare", "util-linux", ("--version",)),
        Tool("setpriv", "util-linux", ("--version",)),
        Tool("ss", "iproute2", ("-V",)),
    )

    def dataset(self) -> Mapping[str, Value]:
        return {"loader": self.kind, "row_bytes": self.options.row_bytes}

    def load(self) -> dict[str, Any]:
        size = self.options.row_bytes
        table = (
            f"CREATE TABLE {TABLE} (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, "
            f"connection BIGINT UNSIGNED NOT NULL, filler VARCHAR({size}) CHARACTER SET latin1 NOT NULL, "
            "KEY (connection, id)) ENGINE = InnoDB"
        )
        statement = {
            "sql": f"INSERT INTO {TABLE} (connection, filler) VALUES (CONNECTION_ID(), ?)",
            "parameters": [{"kind": "text", "min_length": size, "max_length": size}],
        }
        operation = {"name": "commit", "weight": 1.0, "transaction": False, "statements": [statement]}
        return {"prepared": True, "setup": [table], "tables": 0, "table_size": 1, "operations": [operation]}

    async def _subject(self, _context: Context) -> dict[str, Any]:
        return {"workload": {"kind": "sql", **self.load()}}

    async def run(self, context: Context) -> Measurement:
        disk = await _disk(context)
        async with _watched(context, disk) as looks:
            measurement = await super().run(context)
        within = [
            look
            for look in looks
            if look.last and measurement.window_start_ns <= look.t_ns < measurement.window_end_ns
        ]
        if not within:
            raise WorkloadFailed(
                "no commit was seen in the window, so there is nothing to lose", place=self.kind
            )
        chance = random.Random(seed_of(self.options.seed, context.block))
        chosen = sorted(
            chance.sample(within, min(self.options.cuts, len(within))), key=lambda look: (look.at, look.t_ns)
        )
        cuts = await _cuts(context, disk, chosen, looks, chance)
        short = self.options.cuts - len(cuts)
        warnings = (
            [f"{counted(short, 'cut')} of {self.options.cuts} left out: the window had {len(within)} moments"]
            if short
            else []
        )
        return replace(measurement, cuts=tuple(cuts), warnings=(*measurement.warnings, *warnings))


async def _disk(context: Context) -> _Disk:
    """Raises NotReady where the trial's volume is none whose writes are logged."""
    data = (await ask(context, "SELECT @@datadir", "power-cut-data")).removesuffix("\n")
    mounted = await context.target.run(
        ["findmnt", "-n", "-r", "-o", "TARGET,FSTYPE,SOURCE", "-T", data], check=False
    )
    place, kind, device = [*mounted.text.split(), "", "", ""][:3]
    # Lazy: all kinds of volumes are behind it, and every command reads the list of workloads.
    from headrace.lab.volumes.logged import log_of

    log = log_of(place)
    if not await context.target.exists(log):
        raise NotReady(
            f"{data} is on no volume whose writes are logged",
            place=context.target.name,
            hint='[volume] device = "logged"',
        )
    size = await context.target.run(["blockdev", "--getsize64", device])
    client, _ = await client_command(context, ())
    server, account = await _server(context)
    return _Disk(place, log, kind, int(size.text), server, account, client)


async def _server(context: Context) -> tuple[list[str], str]:
    """The command that starts the trial's server again, as its account, and that account."""
    assert context.endpoint is not None
    listing = await context.target.run(["ss", "-H", "-x", "-l", "-p", "src", context.endpoint.socket])
    pid = next((word.split("pid=")[1].split(",")[0] for word in listing.text.split() if "pid=" in word), "")
    if not pid.isdigit():
        raise NotReady(f"no process listens on {context.endpoint.socket}", place=context.target.name)
    argv = (await context.target.read(f"/proc/{pid}/cmdline")).decode("utf-8", "surrogateescape")
    given = (await context.target.read(f"/proc/{pid}/environ")).decode("utf-8", "surrogateescape")
    libraries = [each for each in given.split("\0") if each.startswith("LD_")]
    account = (await context.target.run(["stat", "--format=%u:%g", f"/proc/{pid}"])).text.strip()
    user, _, group = account.partition(":")
    as_it = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    return [*as_it, "env", *libraries, *argv.removesuffix("\0").split("\0")], account


@contextlib.asynccontextmanager
async def _watched(context: Context, disk: _Disk) -> AsyncIterator[list[Look]]:
    """The looks taken while the block lasts: the list is filled when it ends."""
    looks: list[Look] = []
    async with scratch_folder(context.target, context.aside) as scratch:
        output = f"{scratch}/looks"
        _, argv = await client_command(context, ("sh", "-c", _WATCH), LOG=disk.log)
        process = await context.target.spawn(
            tool.pinned(context, argv), env=tool.environment(context), stdout_path=output
        )
        try:
            yield looks
        finally:
            await tool.stop(process)
        await context.target.get(output, context.raw / "power-cut-looks.txt")
    looks += looks_of((context.raw / "power-cut-looks.txt").read_text("utf-8", "replace"))


def looks_of(text: str) -> list[Look]:
    """What the watching client printed; a look that was cut off at the end is left out."""
    looks: list[Look] = []
    last: dict[int, int] = {}
    for line in text.split("\n")[:-1]:
        words = line.split()
        if words[:1] == ["look"] and len(words) == 3:
            last = {}
            looks.append(Look(int(words[1]), int(words[2]), last))
        elif len(words) == 2 and looks:
            last[int(words[0])] = int(words[1])
    return looks[:-1]


async def _cuts(
    context: Context, disk: _Disk, chosen: Sequence[Look], looks: Sequence[Look], chance: random.Random
) -> list[Cut]:
    """One cut for each of the looks that were chosen, which are in the order of the log."""
    agent = await Agent.install(context.target)
    cuts = []
    async with scratch_folder(context.target, context.aside) as scratch:
        flushed = f"{scratch}/flushed"
        await context.target.run(["truncate", "--size", str(disk.size_bytes), flushed])
        place = "0:0"
        for number, look in enumerate(chosen, 1):
            after = f"{scratch}/cut"
            where = ["--log", disk.log, "--disk", flushed, "--out", after]
            when = ["--from", place, "--at", str(look.at), "--seed", str(chance.getrandbits(32))]
            made = await context.target.run(
                [agent.path, "power-cut", *where, *when],
                env=tool.environment(context),
                timeout_s=tool.GRACE_S,
            )
            place = str(an_object(made.stdout)["from"])
            had = await ask(context, count_of(look), f"power-cut-{number}-before")
            cuts.append(await _boot(context, disk, after, look, looks, int(had.split()[0]), number))
            await context.target.run(["rm", "-f", "--", after])
    return cuts


def count_of(look: Look) -> str:
    """The statement that counts the rows that were acknowledged."""
    cases = " ".join(f"WHEN {connection} THEN id < {row}" for connection, row in look.last.items())
    return f"SELECT COUNT(*) FROM {TABLE} WHERE CASE connection {cases} ELSE 0 END"


async def _boot(
    context: Context,
    disk: _Disk,
    image: str,
    look: Look,
    looks: Sequence[Look],
    had: int,
    number: int,
) -> Cut:
    assert context.endpoint is not None
    given = {
        "KIND": disk.kind,
        # Two file systems with one identity: XFS asks to be told.
        "OPTIONS": "loop,nouuid" if disk.kind == "xfs" else "loop",
        "DISK": image,
        "PLACE": disk.place,
        "ACCOUNT": disk.account,
        "CLIENT": disk.client,
        "DATABASE": context.endpoint.database,
        "STATEMENTS": f"{count_of(look)}; SELECT 'last', connection, MAX(id) FROM {TABLE} GROUP BY connection; "
        f"CHECK TABLE {TABLE}",
    }
    # What others unmount meanwhile is unmounted here, too; nothing of ours gets out.
    apart = [
        "unshare",
        "--mount",
        "--propagation",
        "slave",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    done = await context.target.run(
        [*apart, "sh", "-c", _BOOT, "sh", *disk.server],
        env={**tool.environment(context), **given},
        timeout_s=START_LIMIT_S + tool.GRACE_S,
        check=False,
    )
    said = f"{shlex.join(disk.server)}\n{done.text}{done.error_text}"
    (context.raw / f"power-cut-{number}.txt").write_text(said)
    return cut_of(done.exit_code, done.text, done.error_text, look, looks, had)


def cut_of(
    exit_code: int, output: str, errors: str, look: Look, looks: Sequence[Look], acknowledged: int
) -> Cut:
    """What the boot after a cut showed. Raises NotAsAsked where no boot took place."""
    if exit_code in _STATES:
        return Cut(acknowledged, acknowledged, state=_STATES[exit_code])
    lines = [line.split("\t") for line in output.splitlines()]
    if not lines or not lines[0][0].startswith("up "):
        raise NotAsAsked(f"the disk after a cut could not be tried: {tool.last_lines(errors or output)}")
    recovery_s = int(lines[0][0].split()[1]) / 1e9
    if exit_code != 0 or len(lines) < 2:
        return Cut(
            acknowledged, acknowledged, recovery_s=recovery_s, state=f"damaged: {tool.last_lines(errors)}"
        )
    lost = acknowledged - int(lines[1][0])
    last = {int(row[1]): int(row[2]) for row in lines[2:] if row[0] == "last"}
    checked = [row for row in lines[2:] if row[0] != "last"]
    damage = [row[-1] for row in checked if len(row) == 4 and row[2] == "status" and row[3] != "OK"]
    state = f"damaged: {damage[0]}" if damage else "" if checked else "damaged: CHECK TABLE said nothing"
    return Cut(acknowledged, lost, _lost_s(look, looks, last) if lost else 0.0, recovery_s, state)


def _lost_s(look: Look, looks: Sequence[Look], last: Mapping[int, int]) -> float:
    """The time before the cut from which something is missing: since the last look of which all is there."""
    whole = [
        each.t_ns
        for each in looks
        if each.at <= look.at and all(last.get(c, 0) >= row for c, row in each.last.items())
    ]
    began = max(whole, default=looks[0].t_ns)
    return max(look.t_ns - began, 0) / 1e9
