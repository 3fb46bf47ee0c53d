"""Commands that change a live host and undo it: apply and rollback; and knobs, the settings there are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.model import ServerLogin, Value
from headrace.change.commands import attempts, index_changes, whose
from headrace.change.commands.forms import AsForm, print_form
from headrace.change.commands.judge import (
    NO_PROBE,
    Allowed,
    JudgeOptions,
    ProbeOptions,
    apply_judged,
    check_probe,
)
from headrace.cli.options import NO_LOGIN, AllowBeyond, AllowLoss, AllowWeaker, duration, grouped
from headrace.cli.shell import (
    Json,
    TargetOption,
    app,
    on_target,
    print_json,
    stderr,
    stdout,
)

if TYPE_CHECKING:
    from headrace.change import apply as rollouts
    from headrace.change.outlook import Outlook
    from headrace.host.agent import Agent, Applied, Journal


NO_JUDGE, NO_WATCH = JudgeOptions(), index_changes.WatchOptions()


ConfirmWithin = Annotated[
    float | None,
    duration(
        "--confirm-within",
        text="The host undoes the change unless it is confirmed within this time: 60s, 5m.",
    ),
]


Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FINDING|KNOB[@INSTANCE]=VALUE|index:DATABASE.TABLE(COLUMN,...)|"
        "drop-index:DATABASE.TABLE.INDEX...]",
        show_default=False,
    ),
]
Confirm = Annotated[
    bool,
    typer.Option(
        "--confirm", help="Keep an open change, named by its ID or index:...; without one, the only open one."
    ),
]


class Persist(StrEnum):
    NO = "no"
    FILES = "files"
    TUNED = "tuned"


@app.command(
    epilog="Example: headrace apply host.vm.swappiness=1 host.rps_cpus@eth0=f -t root@db1 --confirm-within 60s",
)
@grouped
def apply(
    settings: Settings = None,
    target: TargetOption = "local",
    within_s: ConfirmWithin = None,
    confirm: Confirm = False,
    persist: Annotated[
        Persist,
        typer.Option("--persist", help="Also make it permanent: files, or a TuneD profile."),
    ] = Persist.NO,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")] = False,
    form: AsForm = None,
    allow_weaker: AllowWeaker = None,
    allow_loss: AllowLoss = None,
    allow_beyond: AllowBeyond = None,
    judge: JudgeOptions = NO_JUDGE,
    probe: ProbeOptions = NO_PROBE,
    watch: index_changes.WatchOptions = NO_WATCH,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Change settings now, all of them or none. The original values are saved on the host first.

    An index is built hidden and online, then shown: `apply 'index:shop.orders(customer,created)'`.
    """
    from headrace.change import apply as rollout

    if confirm:
        _confirm_on(settings or [], target, login)
        return
    settings = _named(settings)
    check_probe(probe, judges=judge.judge and not index_changes.is_index(settings), how="--judge KNOB=VALUE")
    allowed = Allowed(allow_weaker or (), allow_loss or (), allow_beyond or ())
    lasts = bool(within_s) or persist is not Persist.NO
    with attempts.remembered(target, login, counts=not dry_run and form is None) as attempt:
        if index_changes.is_index(settings):
            how = index_changes.How(dry_run, within_s, persist is not Persist.NO or form is not None, as_json)
            index_changes.apply_index(settings, target, login, how, judge, watch)
            attempt.what = f"was of an index ({settings[0]})"
            return
        wanted = rollout.settings_of(settings, finding_settings)
        if form is not None:
            print_form(wanted, form, target, login, allowed, alone=not (judge.judge or lasts or as_json))
            return
        if judge.judge:
            if dry_run or lasts:
                raise typer.BadParameter(
                    "--judge decides now: not with --dry-run, --confirm-within or --persist"
                )
            attempt.what = "was not kept"
            attempt.id = apply_judged(wanted, target, login, judge, allowed, probe, as_json=as_json)
            return
        lasting = "" if persist is Persist.NO else persist.value
        order = _Order(wanted, login, allowed, lasting, within_s, dry_run=dry_run, as_json=as_json)
        plan, done = on_target(target, order.carried_out, changes=True)
        if done is not None:
            attempt.id, attempt.what = (
                done.id,
                "is not kept: it awaits confirmation, was undone or had nothing to change",
            )
    if as_json:
        print_json(_plan_json(plan) if done is None else _rollout_json(done))
    _conclude(done, within_s or 0.0, target, as_json=as_json)


def _named(settings: list[str] | None) -> list[str]:
    if not settings:
        raise typer.BadParameter("name what to change, or --confirm")
    return settings


def _conclude(done: rollouts.Rollout | None, seconds: float, target: str, *, as_json: bool) -> None:
    if done is None:
        return
    if not as_json:
        _show_results(done)
    if not done.confirmed:
        _wait_for_confirmation(done, seconds, target, asks=not as_json)


@dataclass(frozen=True)
class _Order:
    """What an `apply` of settings was asked for."""

    wanted: Mapping[str, Value]
    login: ServerLogin
    allowed: Allowed
    lasting: str
    seconds: float | None
    dry_run: bool
    as_json: bool

    async def carried_out(self, host: Any) -> tuple[rollouts.Plan, rollouts.Rollout | None]:
        from headrace.base.errors import Refused
        from headrace.change import apply as rollout
        from headrace.host.agent import Agent, Journal
        from headrace.host.login import usual_login

        agent = await Agent.install(host)
        server = self.login if self.login.is_named else None
        if server is None and any(name.startswith("server.") for name in self.wanted):
            server, _ = await usual_login(agent, None)
        plan = await rollout.prepare(
            agent,
            self.wanted,
            server,
            allow_weaker=self.allowed.weaker,
            allow_loss=self.allowed.loss,
            allow_beyond=self.allowed.beyond,
            lasting=self.lasting,
        )
        if not self.as_json:
            _show_plan(plan)
        if self.dry_run:
            return plan, None
        journal = Journal(agent, rollout.OWNER)
        _show_left(await whose.release(agent, journal, plan.files))
        try:
            done = await rollout.carry_out(agent, plan, server, confirm_within_s=self.seconds)
        except Refused as error:
            hint = await whose.stuck_hint(agent, journal, error.message)
            raise Refused(error.message, place=error.place, hint=hint or error.hint) from error
        return plan, done


def _confirm_on(changes: list[str], target: str, login: ServerLogin) -> None:
    """Keep what ``apply --confirm-within`` changed; without a name, the only open change."""
    if len(changes) > 1:
        raise typer.BadParameter("--confirm keeps one change: give one ID")
    change = changes[0] if changes else ""
    if index_changes.is_index([change]):
        index_changes.confirm_index(change, target, login)
        return

    async def work(host: Any) -> tuple[str, list[str]]:
        return await _confirm(host, change, login), await _left_behind(host)

    kept, left = on_target(target, work)
    stderr().print(_line(f"kept: {kept}"), highlight=False)
    _show_left(left)


@app.command(epilog="Example: headrace rollback --last --target root@db1; headrace rollback --list")
@grouped
def rollback(
    target: TargetOption = "local",
    last: Annotated[bool, typer.Option("--last", help="Undo what was kept last.")] = False,
    change: Annotated[str, typer.Option("--id", metavar="ID", help="Undo these changes, kept or not.")] = "",
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Undo all open changes, of every owner.")
    ] = False,
    accept_foreign: Annotated[
        bool,
        typer.Option(
            "--accept-foreign", help="Close entries whose value another program has changed since then."
        ),
    ] = False,
    index: Annotated[
        str,
        typer.Option(
            "--index",
            metavar="DATABASE.TABLE(COLUMN,...)|DATABASE.TABLE.INDEX",
            help="Drop this index, which `apply` made; bring back the one that it hid or dropped.",
        ),
    ] = "",
    lists: Annotated[
        bool,
        typer.Option(
            "--list", help="Undo nothing; list open and kept changes, and those a server's start overruled."
        ),
    ] = False,
    at_s: Annotated[float | None, typer.Option("--at", hidden=True)] = None,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Restore original values. Without an option: changes that await confirmation, or whose undo failed."""
    from headrace.base.errors import TargetError

    if sum((last, bool(change), everyone, bool(index), lists)) > 1:
        raise typer.BadParameter("give only one of --last, --id, --everyone, --index and --list")
    if lists:
        _list_changes(target, login, as_json=as_json)
        return
    if index:
        index_changes.undo_index(index, target, login, at_s=at_s, as_json=as_json)
        return

    order = _Undo(target, login, last=last, change=change, everyone=everyone, accept_foreign=accept_foreign)
    undone, left, after = on_target(target, order.carried_out)
    _show_undone(undone, after, left, as_json=as_json)
    failed = [each for each in undone if not each.done]
    if failed:
        raise TargetError(
            f"{len(failed)} of {len(undone)} changes could not be undone",
            place=target,
            hint="the journal keeps them: fix the cause and run the same command again. A value that another "
            "program has set is never overwritten: --accept-foreign keeps that value and closes the entry",
        )


@dataclass(frozen=True)
class _Undo:
    """What a `rollback` was asked for."""

    target: str
    login: ServerLogin
    last: bool
    change: str
    everyone: bool
    accept_foreign: bool

    async def carried_out(self, host: Any) -> tuple[list[Any], list[str], Outlook]:
        """What was undone, what was left and why, and what holds afterwards."""
        from headrace.change import apply as rollout
        from headrace.host.agent import Agent, Journal

        agent = await Agent.install(host)
        own = Journal(agent, rollout.OWNER)
        entries = await attempts.before(own)
        if self.last:
            undone, left = await self._last(agent, own)
        else:
            undone, left = await self._undone(agent, own)
            if not undone and not self.change and await whose.last_kept(agent, own, self.login):
                left.append("what was kept stays: `headrace rollback --last` takes back the last of it")
        after = await attempts.after(agent, undone, entries, self.login)
        return undone, [*left, *await _left_behind(host, but=left)], after

    async def _last(self, agent: Agent, own: Journal) -> tuple[list[Any], list[str]]:
        # What a killed call or a missed deadline left is the last change; undoing more is a separate decision.
        mine = attempts.made_last(self.target, self.login)
        undone, left, is_ours = await whose.undo_overdue(
            agent, own, self.login, mine, accept=self.accept_foreign
        )
        if mine and not is_ours and await whose.is_open(own, mine):
            undone += await own.rollback(kept=mine, accept_foreign=self.accept_foreign)
        elif is_ours:
            left.append("takes back what awaits no confirmation any more, and nothing that was kept")
        elif set_ := await whose.last_kept(agent, own, self.login):
            attempts.must_be_last(set_, self.target, self.login, await own.history())
            # By its name: another may be kept at this moment.
            mine = str(set_["owner"])
            left.append(attempts.told(set_))
            undone += await own.rollback(kept=mine, accept_foreign=self.accept_foreign)
        if mine and not await whose.is_there(own, mine):
            attempts.forget(self.target, self.login)
        return undone, left

    async def _undone(self, agent: Agent, own: Journal) -> tuple[list[Any], list[str]]:
        from headrace.change import apply as rollout

        foreign = self.accept_foreign
        if self.change:
            return await own.rollback(kept=f"{rollout.OWNER}/{self.change}", accept_foreign=foreign), []
        return await whose.roll_back_open(
            agent, own, self.login, everyone=self.everyone, accept_foreign=foreign
        )


def _show_undone(undone: Sequence[Any], after: Outlook, left: Iterable[str], *, as_json: bool) -> None:
    _show_left([*left, *after.unknown])
    rows = list(zip(undone, after.notes, strict=True))
    if as_json:
        print_json([{**vars(each), "note": note or None} for each, note in rows])
        return
    for each, note in rows:
        stdout().print(_line(_undone(each, note)), soft_wrap=True, highlight=False)
    if not undone:
        stderr().print("nothing to undo")


def _list_changes(target: str, login: ServerLogin, *, as_json: bool) -> None:
    """Show the open and kept changes of a host, and which lasting ones the server's start overruled."""
    from headrace.change import apply as rollout
    from headrace.host.agent import Agent, Journal

    async def work(host: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[Any], set[int]]:
        agent = await Agent.install(host)
        own = Journal(agent, rollout.OWNER)
        entries, kept = await own.entries(), await own.history()
        now = await whose.Moment.now(agent)
        waiting = {entry["id"] for entry in entries if whose.awaits(entry, now)}
        return entries, kept, await attempts.since(agent, entries, kept, login), waiting

    entries, kept, told, waiting = on_target(target, work)
    indexes = index_changes.journalled() if target == "local" else []
    surplus = index_changes.surplus_journalled() if target == "local" else []
    if as_json:
        news = [vars(each) for each in told]
        print_json({"open": entries, "kept": kept, "news": news, "indexes": indexes, "surplus": surplus})
        return
    for entry in entries:
        deadline = entry.get("deadline")
        until = f", undone at {_utc(deadline['t_ns'])}" if deadline else ""
        until = until if entry["id"] in waiting or not deadline else ", to be undone: its time is over"
        text = f"open  {entry['owner'].removeprefix('apply/')}  {_what(entry)}{until}"
        stdout().print(_line(text), soft_wrap=True, highlight=False)
    for each in kept:
        for entry in each["entries"]:
            text = f"kept  {each['owner'].removeprefix('apply/')}  {_what(entry)}"
            stdout().print(_line(text), soft_wrap=True, highlight=False)
    index_changes.show_journalled(indexes)
    index_changes.show_surplus(surplus)
    _show_left([each.sentence for each in told])
    if not entries and not kept and not indexes and not surplus:
        stderr().print("no changes")


@app.command(
    epilog="Example: headrace knobs innodb_io; headrace knobs '*@eth0' -t root@db1; headrace knobs show host.thp",
)
@grouped
def knobs(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[AREA|PATTERN | show NAME]", help="host, innodb_io, '*@eth0'."),
    ] = None,
    target: TargetOption = "local",
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """List settings with their current values, units and the cost of a change. `show NAME` explains one."""
    from headrace.knobs.report import knobs as views

    pattern, *more = words or [""]
    if pattern == "show":
        _show_knobs(more, as_json=as_json)
        return
    if more:
        raise typer.BadParameter("give one area or pattern, or show NAME")
    server_there = login if login.is_named else None

    async def work(host: Any) -> tuple[list[views.Row], str]:
        from headrace.host.agent import Agent

        agent = await Agent.install(host)
        return await views.rows(agent, server_there, pattern)

    rows, silence = on_target(target, work)
    if silence:
        stderr().print(_line(f"{silence}; its settings are missing here"), soft_wrap=True, highlight=False)
    if as_json:
        print_json([views.row_json(row) for row in rows])
    else:
        stdout().print(views.table(rows))
        for line in views.notes(rows):
            stderr().print(line, highlight=False, soft_wrap=True)


def _show_knobs(names: list[str], *, as_json: bool) -> None:
    from headrace.knobs.catalogue import find
    from headrace.knobs.report import knobs as views

    if not names:
        raise typer.BadParameter("show needs the name of a knob")
    found = [find(name.partition("@")[0]) for name in names]
    if as_json:
        print_json([views.knob_json(knob) for knob in found])
    else:
        for knob in found:
            stdout().print(views.page(knob), soft_wrap=True, highlight=False)


def finding_settings(text: str) -> Mapping[str, Value] | None:
    """The settings of a finding of the last hunt."""
    from headrace.host.snapshot import last_path, load
    from headrace.hunt import hunt as hunts

    if not last_path().exists():
        return None
    finding = hunts.examine(load(last_path())).finding(text)
    settings = [remedy.settings for remedy in finding.hit.remedies if remedy.settings] if finding else []
    return settings[0] if settings else None


def _undone(each: Any, note: str) -> str:
    """One row of a rollback: "undone" only for what holds at the next start as well."""
    if not each.done:
        return f"{each.what}: {each.error}" + (f"; {note}" if note else "")
    if "(given up: " in each.what:
        return f"{each.what}: closed" + (f"; {note}" if note else "")
    if note and each.kind != "file":
        return f"{each.what}: {note}"
    return f"{each.what}: undone" + (f"; {note}" if note else "")


async def _confirm(host: Any, change: str, login: ServerLogin) -> str:
    from headrace.base.errors import Refused
    from headrace.change import apply as rollout
    from headrace.host.agent import Agent, Journal

    agent = await Agent.install(host)
    if not change:
        waiting, others = await whose.to_confirm(agent, Journal(agent, rollout.OWNER), login)
        if len(waiting) != 1:
            words = (
                f"several changes are waiting, so give an ID: {', '.join(sorted(waiting))}"
                if waiting
                else "no change is waiting for confirmation"
            )
            words += f"; of another server or a rollout, by ID only: {', '.join(others)}" if others else ""
            raise Refused("; ".join([words, *await _left_behind(host)]), place=host.name)
        change = waiting.pop()
    await rollout.journal_of(agent, change).confirm()
    return change


async def _left_behind(host: Any, but: Iterable[str] = ()) -> list[str]:
    """What killed commands left open on a host, and how to undo it; not what was said already."""
    from headrace.change import apply as rollout
    from headrace.host.agent import Agent, Journal, belongs_to

    journal = Journal(await Agent.install(host), rollout.OWNER)
    entries, holder = await journal.entries(), await journal.holder()
    owners = dict.fromkeys(
        e["owner"]
        for e in entries
        if not e.get("deadline")
        and not (holder and belongs_to(e["owner"], holder))
        and not any(e["owner"] in said for said in but)
    )
    return [
        f"changes of {owner} are still open: `headrace rollback --everyone` undoes them" for owner in owners
    ]


def _show_left(left: list[str]) -> None:
    for line in left:
        stderr().print(_line(line), style="yellow", highlight=False)


def _wait_for_confirmation(done: rollouts.Rollout, seconds: float, target: str, *, asks: bool) -> None:
    where = "" if target == "local" else f" --target {target}"
    stderr().print(
        f"undone in {seconds:g} s unless you run: headrace apply --confirm {done.id}{where}", style="yellow"
    )
    if asks and stderr().is_terminal and _asks_and_counts_down(seconds):
        on_target(target, lambda host: _confirm(host, done.id, NO_LOGIN))
        stderr().print("kept", style="green")


def _asks_and_counts_down(seconds: float) -> bool:
    """Whether somebody says yes in time; the host does not wait for us in any case."""
    import select
    import sys

    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        # Not through the console: it takes the carriage return for dirt.
        sys.stderr.write(f"\rkeep the change? y to keep it, n to undo it ({left:3.0f} s) ")
        sys.stderr.flush()
        if select.select([sys.stdin], [], [], min(left, 1.0))[0]:
            line = sys.stdin.readline()
            if not line:
                break  # the end of the input: nobody is there
            answer = line.strip().lower()
            if answer in ("y", "yes"):
                return True
            if answer:
                return False
    stderr().print("\nnot confirmed: the host undoes the change", style="yellow")
    return False


def _line(text: str) -> str:
    from rich.markup import escape

    from headrace.show.text import clean

    return escape(clean(text))


def _what(entry: Mapping[str, Any]) -> str:
    wrote = str(entry.get("wrote") or "")
    restore = whose.first_set(entry.get("restore") or [{}], wrote)
    name = restore.get("path") or restore.get("name") or entry.get("path") or entry.get("backing") or ""
    if entry["kind"] in ("setting", "variable"):
        original = restore.get("value")
        place = whose.where(entry)
        server = f" (server at {place})" if place else ""
        return f"{name}: {'NULL' if original is None else original} -> {wrote}{server}"
    return f"{entry['kind']} {name} {entry.get('options') or ''}".strip()


def _utc(t_ns: int) -> str:
    return datetime.fromtimestamp(t_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _show_plan(plan: rollouts.Plan) -> None:
    for step in plan.steps:
        note = f"  ({step.note})" if step.note else ""
        unit = f" {step.knob.unit}" if step.knob.unit else ""
        text = f"{step.name}: {step.before or '?'} -> {step.value}{unit}{note}"
        stderr().print(_line(text), soft_wrap=True, highlight=False)
    for sentence in plan.also:
        stderr().print(_line(sentence), soft_wrap=True, highlight=False, style="yellow")
    for path in plan.files:
        stderr().print(_line(f"writes {path} once confirmed"), soft_wrap=True, highlight=False)
        if path.endswith("/tuned.conf"):
            text = "a boot uses this profile only once it is the active one: tuned-adm profile headrace-mysql"
            stderr().print(_line(text), soft_wrap=True, highlight=False, style="yellow")


def _show_results(done: rollouts.Rollout) -> None:
    for result in done.results:
        now = result.note if result.after is None else f"{result.before} -> {result.after}"
        stdout().print(_line(f"{result.name}: {now}"), soft_wrap=True, highlight=False)
        for one in result.also:
            text = f"  also changed: {one.path}: {one.before} -> {one.after}"
            stdout().print(_line(text), soft_wrap=True, highlight=False)
    stdout().print(_line(f"id {done.id}"), highlight=False)


def _plan_json(plan: rollouts.Plan) -> dict[str, Any]:
    steps = [{"name": s.name, "before": s.before, "value": s.value, "note": s.note} for s in plan.steps]
    return {"steps": steps, "files": dict(plan.files), "also": list(plan.also)}


def _rollout_json(done: rollouts.Rollout) -> dict[str, Any]:
    results = [{**vars(r), "also": [_also_json(one) for one in r.also]} for r in done.results]
    return {"id": done.id, "confirmed": done.confirmed, "results": results, "files": list(done.files)}


def _also_json(one: Applied) -> dict[str, str]:
    return {"path": one.path, "before": one.before, "after": one.after}
