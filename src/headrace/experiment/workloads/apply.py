"""A source's binary logs as the load: what a replica with the trial's settings applies per second.

The logs are placed as the server's own relay logs, which its applier reads as if a source had sent them: with all
parallel workers, but without a source and a network. MySQL's manual describes the way ("Point-in-Time Recovery
Using Relay Logs"); MariaDB takes the same.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import Field

from headrace.base.counted import counted
from headrace.base.errors import HeadraceError, NotReady, WorkloadFailed
from headrace.base.model import Tool, Value
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.client import FROM_FILE, ask, client_command, endpoint_of, load_dump
from headrace.experiment.workloads.options import Described, Options
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.target import Target, scratch_folder

OPERATION = "transaction"
#: The number of the first relay log that is placed: servers begin at 1.
FIRST = 1001
#: A server skips the events that bear its own number; no real source has this one.
SERVER_ID = 4_294_000_000
#: Shorter windows have too few ticks to be a rate.
SHORTEST_S = 3.0

_Path = Annotated[str, Field(pattern=r"^/[^\n]+$"), Described("an absolute path")]


class ApplyOptions(Options):
    """The logs, and the data that they begin with."""

    binlogs: Annotated[
        list[_Path], Field(min_length=1), Described("a list of at least one absolute path")
    ] = Field(description="the source's binary logs: files on the target, oldest first")
    position: Annotated[int, Field(ge=4, lt=2**63)] = Field(
        4, description="where to begin in the first of them: the position that the dump names"
    )
    dump: Annotated[str, Field(pattern=r"^(/.+)?$"), Described("an absolute path")] = Field(
        "", description="a mysqldump file on the target with the data at that position; empty: no data"
    )


class Apply:
    """One operation, ``transaction``: what the applier committed. It has no latency."""

    kind = "apply"
    needs_server = True
    tools: tuple[Tool, ...] = ()  # the client comes with the server
    Options = ApplyOptions

    def __init__(self, options: ApplyOptions) -> None:
        self._options = options

    def dataset(self) -> Mapping[str, Value]:
        o = self._options
        return {"loader": self.kind, "dump": o.dump, "binlogs": o.binlogs}

    async def version(self, target: Target) -> str:
        answer = await target.run(["sh", "-c", "mariadb --version || mysql --version"], check=False)
        match = re.search(r"\d+\.\d+\.\d+", answer.text)
        if match is None:
            raise NotReady(
                "neither mariadb nor mysql is installed",
                place=target.name,
                hint="apt-get install -y mariadb-client",
            )
        return match[0]

    async def prepare(self, context: Context) -> None:
        """Loads the dump, and places the logs where the server's relay logs are."""
        if self._options.dump:
            await load_dump(context, self._options.dump, "apply-dump")
        folder, base = await _relay_logs(context)
        base = base or await _name_to_be(context, await _words(context))
        script = _PLACE_AS_ITS_ACCOUNT if context.target.is_root else _PLACE
        arguments = [folder, base, str(FIRST), *self._options.binlogs]
        await tool.run_to_end(
            context,
            ["sh", "-c", script, "sh", *arguments],
            name="apply-place",
            cwd="/",
            what="placing the logs",
        )

    async def run(self, context: Context) -> Measurement:
        """Starts the applier, and asks once a second how much it has committed."""
        words = await _words(context)
        _, base = await _placed(context)
        # One more than the window has: it tells whether the window's last second was busy to its end.
        ticks = round(context.warmup_s + context.seconds) + 2
        statements = [
            f"SET GLOBAL server_id = {SERVER_ID}",
            *await _gtid_steps(context, words),
            words.source.format(file=f"{base}.{FIRST:06}", position=self._options.position),
            words.start,
            *[words.tick, f"{words.show}\\G", "DO SLEEP(1)"] * ticks,
            *words.errors,
            words.stop,
        ]
        async with scratch_folder(context.target, context.aside) as scratch:
            script = f"{scratch}/apply.sql"
            await context.target.write(script, ";\n".join([*statements, ""]).encode())
            _, command = await client_command(context, FROM_FILE, DUMP=script)
            output = await tool.run_measured(
                context,
                [*command, "-B", "--unbuffered"],
                name="apply-window",
                scratch=scratch,
                cwd="/",
                seconds=ticks,
                failed=_client_failed,
            )
        return measured(output.stdout.read_text("utf-8", "replace"), context.warmup_s)

    async def cleanup(self, context: Context) -> None:
        """Drops the trial's database and the logs; other databases from a dump are removed with the server."""
        words = await _words(context)
        folder, base = await _placed(context)
        database = f"`{endpoint_of(context).database}`"
        drop = f"{words.forget}; DROP DATABASE {database}; CREATE DATABASE {database}"
        await ask(context, drop, "apply-clean")
        numbers = range(FIRST, FIRST + len(self._options.binlogs))
        left = [f"{folder}{base}.{number:06}" for number in numbers]
        await context.target.run(["rm", "-f", "--", *left, f"{folder}{base}.index"])


@dataclass(frozen=True)
class _Words:
    """What one vendor calls it. ``tick`` gives the time, the GTIDs and, if the server counts them, the rows.

    ``gtid_modes`` are the steps to a server that counts what it applies.
    """

    gtid_modes: tuple[str, ...]
    source: str
    start: str
    show: str
    stop: str
    forget: str
    tick: str
    errors: tuple[str, ...] = ()


def _tick(gtids: str, status: str) -> str:
    rows = f"(SELECT SUM(VARIABLE_VALUE) FROM {status} WHERE VARIABLE_NAME IN {_ROWS})"
    return f"SELECT 'tick', UNIX_TIMESTAMP(SYSDATE(6)), {gtids}, {rows}"


_ROWS = "('Innodb_rows_inserted', 'Innodb_rows_updated', 'Innodb_rows_deleted')"

_MARIADB = _Words(
    (),
    # Without a name of the source's log, parallel appliers of MariaDB 10.11 crash when they compare names.
    "CHANGE MASTER TO MASTER_HOST = 'none', MASTER_USE_GTID = no, MASTER_LOG_FILE = 'none.000001', "
    "RELAY_LOG_FILE = '{file}', RELAY_LOG_POS = {position}",
    "START SLAVE SQL_THREAD",
    "SHOW SLAVE STATUS",
    "STOP SLAVE",
    "STOP SLAVE; RESET SLAVE ALL",
    _tick("@@GLOBAL.gtid_slave_pos", "information_schema.GLOBAL_STATUS"),
)
_MYSQL = _Words(
    ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"),
    "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'none', ASSIGN_GTIDS_TO_ANONYMOUS_TRANSACTIONS = LOCAL, "
    "RELAY_LOG_FILE = '{file}', RELAY_LOG_POS = {position}",
    "START REPLICA SQL_THREAD",
    "SHOW REPLICA STATUS",
    "STOP REPLICA",
    "STOP REPLICA; RESET REPLICA ALL",
    _tick(r"REPLACE(@@GLOBAL.gtid_executed, '\n', '')", "performance_schema.global_status"),
    (
        "SELECT 'worker', LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker "
        "WHERE LAST_ERROR_NUMBER > 0 LIMIT 1",
    ),
)

# The server's account writes into its folder, so that no link of its making is followed with more rights.
_COPY = """
set -eu
folder=$1 base=$2 number=$3; shift 3
entries=
for log; do
    [ -r "$log" ] || { echo "$log: no such file, or none that may be read" >&2; exit 1; }
    magic=$(head -c 4 "$log" | od -An -tx1 | tr -d ' ')
    [ "$magic" = fe62696e ] || { echo "$log: no binary log that can be read (it begins with $magic)" >&2; exit 1; }
    name=$(printf '%s.%06d' "$base" "$number")
    put "$folder$name" < "$log"
    entries="$entries./$name\\n"
    number=$((number + 1))
done
printf '%b' "$entries" | put "$folder$base.index"
"""
_PLACE = 'put() { umask 027; cat > "$1"; }\n' + _COPY
_PLACE_AS_ITS_ACCOUNT = (
    'put() { setpriv --reuid=$(stat -c %u "$folder") --regid=$(stat -c %g "$folder") --clear-groups '
    'sh -c \'umask 027; cat > "$1"\' sh "$1"; }\n' + _COPY
)


async def _words(context: Context) -> _Words:
    version = await ask(context, "SELECT VERSION()", "apply-version")
    return _MARIADB if "MariaDB" in version else _MYSQL


async def _relay_logs(context: Context) -> tuple[str, str | None]:
    """The folder of the server's relay logs, ending in /, and the name of its files; None if it does not tell."""
    answer = await ask(context, "SELECT @@datadir, @@relay_log_basename", "apply-names")
    datadir, basename = answer.rstrip("\n").split("\t")
    if basename == "NULL":
        return f"{datadir.rstrip('/')}/", None
    folder, slash, base = basename.rpartition("/")
    return (f"{folder}{slash}" if slash else f"{datadir.rstrip('/')}/"), base


async def _name_to_be(context: Context, words: _Words) -> str:
    """How MariaDB will name its relay logs, which it tells only of those that it has. Removes these again."""
    made = f"CHANGE MASTER TO MASTER_HOST = 'none'; {words.show}\\G RESET SLAVE ALL"
    match = re.search(
        r"Relay_Log_File: (\S+)\.\d+$", await ask(context, made, "apply-first", has_names=True), re.MULTILINE
    )
    if match is None:
        raise WorkloadFailed("the server does not tell how its relay logs are named", place="apply")
    return match[1]


async def _placed(context: Context) -> tuple[str, str]:
    """The folder of the logs that were placed, and the name that they begin with."""
    folder, base = await _relay_logs(context)
    if base is None:
        there = await context.target.run(["ls", "-A", "--", folder])
        ending = f".{FIRST:06}"
        base = next(
            (name.removesuffix(ending) for name in there.text.splitlines() if name.endswith(ending)), ""
        )
    return folder, base


async def _gtid_steps(context: Context, words: _Words) -> list[str]:
    """What makes MySQL count transactions: it can be switched by one step at a time only."""
    if not words.gtid_modes:
        return []
    mode = (await ask(context, "SELECT @@GLOBAL.gtid_mode", "apply-gtids")).strip()
    steps = words.gtid_modes[words.gtid_modes.index(mode) + 1 :]
    return ["SET GLOBAL enforce_gtid_consistency = ON", *(f"SET GLOBAL gtid_mode = {step}" for step in steps)]


def _client_failed(_: str, exit_code: int, words: str, place: str) -> HeadraceError:
    match = re.search(r"ERROR \d+ .*", words)
    said = match[0] if match else f"{words} (exit code {exit_code})"
    return WorkloadFailed(f"the server did not apply the logs: {said}", place=place)


class _Tick(NamedTuple):
    t_ns: int
    transactions: int
    rows: int | None
    #: The applier has read all that there is.
    is_read: bool


def measured(printed: str, warmup_s: float) -> Measurement:
    """From what the client printed to the tables.

    Raises WorkloadFailed if the applier stopped, or had nothing left to do too soon.
    """
    import pyarrow as pa

    from headrace.host.arrow import INTERVALS, LATENCY

    # MySQL's coordinator only says which worker knows the reason.
    error = re.search(r"^worker\t((?!LAST_ERROR_MESSAGE)\S.*)$", printed, re.MULTILINE)
    if error := error or re.search(r"^ *Last_SQL_Error: (\S.*)$", printed, re.MULTILINE):
        raise WorkloadFailed(f"the applier stopped: {error[1]}", place="apply")
    ticks = _ticks(printed)
    start_ns = ticks[0].t_ns + round(warmup_s * 1e9) if ticks else 0
    busy, warnings = _without_the_end(ticks, start_ns)
    window = [tick.t_ns for tick in busy if tick.t_ns >= start_ns - 100_000_000]
    if len(window) < 2 or (window[-1] - window[0]) / 1e9 < SHORTEST_S - 0.1:
        raise WorkloadFailed(
            _too_short(ticks, warmup_s), place="apply", hint="give more logs, or a shorter warm-up"
        )
    rows = []
    for tick, after in itertools.pairwise(busy):
        t_s = (tick.t_ns - start_ns) / 1e9
        changed = None if tick.rows is None or after.rows is None else after.rows - tick.rows
        # The server's pauses are not whole seconds; the window begins with a tick.
        t_s = 0.0 if tick.t_ns == window[0] else t_s - (window[0] - start_ns) / 1e9
        rows.append(
            {
                "t_s": t_s,
                "duration_s": (after.t_ns - tick.t_ns) / 1e9,
                "operation": OPERATION,
                "count": after.transactions - tick.transactions,
                "errors": 0,
                "rows": changed,
            }
        )
    table = pa.Table.from_pylist(rows, INTERVALS)
    return Measurement(table, LATENCY.empty_table(), window[0], window[-1], warnings=warnings)


def _too_short(ticks: Sequence[_Tick], warmup_s: float) -> str:
    applied = [tick for tick in ticks if tick.transactions < ticks[-1].transactions]
    if not applied:
        return "the applier committed nothing"
    number = ticks[-1].transactions - ticks[0].transactions
    busy_s = (ticks[len(applied)].t_ns - ticks[0].t_ns) / 1e9
    needed = f"a warm-up of {warmup_s:g} s and at least {SHORTEST_S:g} s of measuring need more"
    return f"the logs' {counted(number, 'transaction')} were applied in {busy_s:.0f} s: {needed}"


def _without_the_end(ticks: Sequence[_Tick], start_ns: int) -> tuple[Sequence[_Tick], tuple[str, ...]]:
    """Without the tick after the window, and the time in which there was nothing left to apply; a warning if any.

    That all is read tells it of one applier only: the coordinator of several reads ahead of them.
    """
    if len(ticks) < 2:
        return ticks, ()
    *window, after = ticks
    if after.transactions > window[-1].transactions or not after.is_read:
        return window, ()
    last = next(i for i, tick in enumerate(ticks) if tick.transactions == after.transactions)
    applied_s, planned_s = ((tick.t_ns - start_ns) / 1e9 for tick in (ticks[last - 1], window[-1]))
    # The second in which the last transaction was applied was not busy to its end.
    return ticks[:last], (f"the logs ended after {applied_s:.0f} of {planned_s:.0f} s",)


def _ticks(printed: str) -> list[_Tick]:
    ticks: list[_Tick] = []
    for line in printed.splitlines():
        fields = line.split("\t")
        if fields[0] == "tick" and len(fields) == 4 and fields[1][0].isdigit():
            rows = None if fields[3] == "NULL" else round(float(fields[3]))
            ticks.append(_Tick(round(float(fields[1]) * 1e9), transactions(fields[2]), rows, False))
        elif ticks and re.match(r" *(Slave|Replica)_SQL_Running_State: .*has read all relay log", line):
            ticks[-1] = ticks[-1]._replace(is_read=True)
    return ticks


def transactions(gtids: str) -> int:
    """How many a GTID set of MySQL holds (``uuid:1-5:7``), or one of MariaDB by its last numbers (``0-1-366``)."""
    count = 0
    for part in gtids.replace("\\n", "").split(","):
        source, *intervals = part.strip().split(":")
        if not intervals and source:
            count += int(source.rpartition("-")[2])
        for interval in intervals:
            first, _, last = interval.partition("-")
            # A tag (MySQL 8.3) names those that follow it.
            count += int(last or first) - int(first) + 1 if first.isdigit() else 0
    return count
