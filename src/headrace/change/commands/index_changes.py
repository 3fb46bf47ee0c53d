"""An index as a change: how `apply` and `rollback` treat one."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.errors import PlanError
from headrace.base.extras import require
from headrace.base.model import ServerLogin
from headrace.change.commands.judge import JudgeOptions
from headrace.cli.options import DAY_S, duration
from headrace.cli.shell import INCONCLUSIVE, REGRESSION, print_json, stdout, tell

if TYPE_CHECKING:
    from headrace.indexes import applied
    from headrace.indexes.judging import Turns
    from headrace.indexes.watching import Limits

#: What an index begins with among the settings of `apply`.
MARK = "index:"
#: What a surplus one begins with: it is hidden first, and dropped later.
DROP = "drop-index:"
MONTH_S = 30 * DAY_S


def is_index(settings: list[str]) -> bool:
    return any(each.startswith((MARK, DROP)) for each in settings)


@dataclasses.dataclass(frozen=True)
class LagOptions:
    """Which replicas are watched while an index is built and judged."""

    replica: Annotated[
        list[str] | None,
        typer.Option(
            "--replica",
            metavar="HOST[:PORT]",
            help="With index: watch the lag of this replica, logged into as the server is.",
        ),
    ] = None
    max_lag_s: Annotated[
        float,
        duration("--max-lag", text="With index: above this lag it is stopped and dropped.", default="30s"),
    ] = 30.0

    def limits(self) -> Limits:
        from headrace.indexes.watching import Limits

        return Limits(tuple(self.replica or ()), self.max_lag_s)


NO_LAG = LagOptions()


@dataclasses.dataclass(frozen=True)
class WatchOptions(LagOptions):
    """What is watched while an index is built, and how long a surplus one is hidden."""

    hidden_for_s: Annotated[
        float | None,
        duration(
            "--hidden-for",
            text="With drop-index: hidden for this long before it may be dropped [30d].",
            most_s=12 * MONTH_S,
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class How:
    """``beyond``: an option was given that is for settings alone."""

    dry_run: bool
    confirm_within_s: float | None
    beyond: bool
    as_json: bool


def apply_index(
    settings: list[str],
    target: str,
    login: ServerLogin,
    how: How,
    judge: JudgeOptions,
    watch: LagOptions,
    *,
    keeps: bool = True,
) -> None:
    """``keeps``: whether a judged one that is faster stays."""
    _may(target, login)
    if len(settings) != 1:
        raise typer.BadParameter("an index is applied by itself: one at a time, and no setting with it")
    if how.beyond or (judge.judge and (how.confirm_within_s or how.dry_run)):
        raise typer.BadParameter(
            "--persist and --as are for settings, and --judge decides now: not with --dry-run or --confirm-within"
        )
    if settings[0].startswith(DROP):
        if judge.judge or how.confirm_within_s or how.dry_run:
            raise typer.BadParameter("drop-index takes --hidden-for, and no other option of apply")
        _drop(
            settings[0].removeprefix(DROP),
            login,
            watch.hidden_for_s if isinstance(watch, WatchOptions) else None,
            as_json=how.as_json,
        )
        return
    from headrace.indexes import applied
    from headrace.indexes.judging import Turns, must_count
    from headrace.indexes.session import opened

    index = applied.index_of(settings[0].removeprefix(MARK))
    if how.dry_run:
        with opened(login) as session:
            lines = applied.statements(session, index)
        if how.as_json:
            print_json({"statements": lines})
        for line in lines if not how.as_json else ():
            stdout().print(f"{line};", soft_wrap=True, highlight=False, markup=False)
        return
    turns = Turns(judge.duration_s, judge.warmup_s, judge.blocks)
    within_s = how.confirm_within_s
    if judge.judge:
        with opened(login) as session:
            must_count(session)
        # Killed in the middle, it is taken back some time after the turns would have ended.
        within_s = 2 * turns.total_s + 300
    with stoppable():
        entry = applied.make(
            login, index, tell, limits=watch.limits(),
            confirm_within_s=within_s, on_guard=lambda made: _start_guard(made, login),
        )  # fmt: skip
        if judge.judge:
            _judged(login, entry, turns, watch.limits(), keeps=keeps, as_json=how.as_json)
            return
    if how.as_json:
        print_json(vars(entry))
        return
    _line(f"{index.place} has the index {index.name}, built hidden and then shown")
    if within_s:
        _line(
            f"dropped in {within_s:g} s unless you run: "
            f"headrace apply --confirm '{MARK}{_name(entry)}' {_words(login)}"
        )


def prove_index(
    indexes: list[str],
    target: str,
    login: ServerLogin,
    judge: JudgeOptions,
    watch: LagOptions,
    *,
    is_live: bool,
    as_json: bool,
) -> None:
    """Build it, judge it in turns under the live server's load, and drop it whatever comes of it."""
    if len(indexes) != 1 or not is_live:
        raise typer.BadParameter(
            "one index at a time, with --live; on a copy: headrace indexes SOURCE --prove --on-copy"
        )
    how = How(dry_run=False, confirm_within_s=None, beyond=False, as_json=as_json)
    apply_index(indexes, target, login, how, judge, watch, keeps=False)


def _drop(written: str, login: ServerLogin, hidden_s: float | None, *, as_json: bool) -> None:
    from headrace.indexes import dropping

    entry = dropping.hide_or_drop(login, written, MONTH_S if hidden_s is None else hidden_s, tell)
    if as_json:
        print_json(vars(entry))
    elif entry.state is dropping.State.DROPPED:
        _line(f"{entry.written} is dropped; headrace rollback --index {entry.written} builds it again")
    else:
        _line(f"{entry.written} is hidden; run the same command after {_utc(entry.until_s)} to drop it")


def _judged(
    login: ServerLogin, entry: applied.Entry, turns: Turns, limits: Limits, *, keeps: bool, as_json: bool
) -> None:
    """Keep it if the classes of its table got faster; drop it otherwise, and if it is interrupted."""
    from headrace.indexes import applied
    from headrace.indexes.report import index_trials
    from headrace.indexes.verdicts import Verdict

    name = _name(entry)
    try:
        found = applied.judged(login, entry, turns, tell, limits)
    except BaseException:
        applied.undo(login, name, tell)
        tell(f"the turns did not end, so {name} is dropped")
        raise
    is_faster = found.whole.verdict is Verdict.FASTER
    kept = keeps and is_faster
    if kept:
        applied.confirm(login, name)
    else:
        applied.undo(login, name, tell)
    if as_json:
        print_json({"kept": kept, **index_trials.judged_data(found)})
    else:
        for line in index_trials.judged_lines(found):
            _line(line)
        _line(f"kept: {name}" if kept else f"not kept: {name} is dropped")
    if not is_faster:
        raise typer.Exit(REGRESSION if found.whole.verdict is Verdict.SLOWER else INCONCLUSIVE)


def _start_guard(entry: applied.Entry, login: ServerLogin) -> None:
    """A process that outlives this one and its terminal, and drops the index at the deadline."""
    subprocess.Popen(
        [sys.executable, "-m", "headrace", "rollback", "--index", _name(entry), "--at", repr(entry.deadline_s),
         *login.argv],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def confirm_index(written: str, target: str, login: ServerLogin) -> None:
    _may(target, login)
    from headrace.indexes import applied

    _line(f"kept: {_name(applied.confirm(login, written.removeprefix(MARK)))}")


def _name(entry: applied.Entry) -> str:
    return entry.index.written


def _words(login: ServerLogin) -> str:
    return shlex.join(login.argv)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """A SIGTERM is as Ctrl-C: what was built is dropped first."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def undo_index(
    written: str, target: str, login: ServerLogin, *, at_s: float | None = None, as_json: bool = False
) -> None:
    """``at_s``: only then, and only if it was not confirmed until then."""
    _may(target, login)
    from headrace.indexes import applied, dropping

    if dropping.is_written(written):
        back = dropping.bring_back(login, written, tell)
        if as_json:
            print_json(vars(back))
        else:
            _line(f"{back.written} is {'built' if back.state is dropping.State.DROPPED else 'shown'} again")
        return
    if at_s is not None:
        applied.guard(login, written.removeprefix(MARK), at_s, tell)
        return

    entry, was_there = applied.undo(login, written.removeprefix(MARK), tell)
    if as_json:
        print_json({"index": vars(entry.index), "was_there": was_there})
    else:
        what = "dropped" if was_there else "not there any more, or with other columns: left as it is"
        _line(f"{entry.index.place}, index {entry.index.name}: {what}")


def journalled() -> list[dict[str, Any]]:
    """The indexes that `rollback --list` shows; empty without the package that makes them."""
    from headrace.base import extras

    if extras.is_missing("pymysql"):
        return []
    from headrace.indexes import applied

    return [vars(entry) for entry in applied.journalled()]


def surplus_journalled() -> list[dict[str, Any]]:
    """The surplus indexes, hidden or dropped, that `rollback --list` shows."""
    from headrace.base import extras

    if extras.is_missing("pymysql"):
        return []
    from headrace.indexes import dropping

    return [vars(entry) for entry in dropping.journalled()]


def show_journalled(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        index = entry["index"]
        at = _utc(entry["at_s"])
        _line(
            f"index {entry['state']}  {index.written} on {entry['server']}, {at}{_until(entry['deadline_s'])}"
        )


def show_surplus(entries: list[dict[str, Any]]) -> None:
    from headrace.indexes.names import written

    for each in entries:
        until = f", to be dropped from {_utc(each['until_s'])}" if each["state"] == "hidden" else ""
        named = written(each["database"], each["table"], each["name"])
        _line(f"surplus index {each['state']}  {named}{until}")


def _utc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _until(deadline_s: float | None) -> str:
    if deadline_s is None:
        return ""
    return f", dropped at {_utc(deadline_s)} unless it is confirmed"


def _may(target: str, login: ServerLogin) -> None:
    require("pymysql")
    if target != "local":
        host = target.rpartition("@")[2].partition(":")[0]
        raise PlanError(
            "an index is made from here, by a connection to the server",
            place=target,
            hint=f"instead of --target: --mysql-host {host}; or run it there",
        )
    if not login.is_named:
        raise typer.BadParameter(
            "the server is not named: --mysql-socket, --mysql-host or --mysql-defaults-file"
        )


def _line(text: str) -> None:
    from headrace.show.text import clean

    stdout().print(clean(text), soft_wrap=True, highlight=False, markup=False)
