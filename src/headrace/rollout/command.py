"""The command ``rollout``: one change over a fleet, in stages that are judged."""

from __future__ import annotations

import getpass
import secrets
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.errors import PlanError
from headrace.base.model import ServerLogin, Value
from headrace.base.whole import read_plain
from headrace.change.commands.changes import Persist, finding_settings
from headrace.cli.options import NO_LOGIN, AllowWeaker, duration, grouped
from headrace.cli.shell import REGRESSION, Json, app, print_json, run_until_signal, stderr, stdout, tell
from headrace.fleet.command import ANY_FLEET, Asked, FleetOptions, ask_fleet

if TYPE_CHECKING:
    from headrace.fleet.host import Host
    from headrace.rollout.book import Book
    from headrace.rollout.plan import Expected, Plan

rollout_app = typer.Typer(
    no_args_is_help=True, help="Change a fleet in stages; each stage is judged, and harm undoes everything."
)
app.add_typer(rollout_app, name="rollout")

#: 10,000 settings with a line each are fewer.
MOST_SETTINGS_BYTES = 1 << 20
#: It neither went on to the end nor did harm: inconclusive, or it waits.
UNDECIDED = 15
#: As long as one server takes to drain, restart and return with the default limits, and half as much again.
WAIT_S = 1800.0
STOPPED = "stopped; changes on trial are undone, kept changes stay: `headrace rollout go` continues"
PlanId = Annotated[str, typer.Argument(metavar="ID", help="The plan's id, or its first letters.")]


@rollout_app.command(
    "plan",
    epilog="Example: headrace rollout plan server.innodb_io_capacity=2000 --fleet fleet.toml; "
    "headrace rollout plan settings.txt --fleet 'db[1-40]' --stages stages.toml --persist files",
)
@grouped
def rollout_plan(
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="FINDING|KNOB[@INSTANCE]=VALUE|FILE...", help="As for `apply`; a FILE has one per line."
        ),
    ],
    fleet: FleetOptions = ANY_FLEET,
    stages: Annotated[
        Path | None, typer.Option("--stages", metavar="FILE", help="TOML: stages, timing, limits, freezes.")
    ] = None,
    persist: Annotated[
        Persist, typer.Option("--persist", help="Also make kept changes permanent.")
    ] = Persist.NO,
    evidence: Annotated[
        list[Path] | None,
        typer.Option(
            "--evidence",
            metavar="FOLDER",
            help="An experiment that changed exactly these settings, or a directory of experiments (from "
            "prove, race or tune: the latest one is used). Its effect becomes part of the plan, and is shown "
            "next to the effect in production.",
        ),
    ] = None,
    allow_weaker: AllowWeaker = None,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Show which host is changed when, and how it is judged. Queries the hosts, and changes nothing."""
    from headrace.change import apply as rollouts
    from headrace.rollout import expected, look, rules

    loaded = rules.load(stages)
    wanted = rollouts.settings_of(_texts(settings), finding_settings)
    lab = expected.find(evidence, wanted) if evidence else None
    weaker = tuple(allow_weaker or ())
    lasting = "" if persist is Persist.NO else persist.value

    async def work(target: Any, host: Host) -> Any:
        may_restart = loaded.restart is not None
        gets = loaded.judge.gets_per_s
        return await look.look(
            target, host, wanted, weaker, lasting, may_restart=may_restart, gets_per_s=gets
        )

    def conclude(asked: Asked) -> None:
        if not asked.is_complete:
            # A plan of those that had answered would leave the others out without a word.
            stderr().print("interrupted: there is no plan", highlight=False)
            return
        plan = _planned(asked, wanted, loaded, weaker, lasting, lab)
        _show_plan(plan, as_json)

    question = {
        "settings": dict(wanted),
        "persist": lasting,
        "restart": loaded.restart is not None,
        "gets_per_s": loaded.judge.gets_per_s,
    }
    ask_fleet(fleet, "rollout", work, question, conclude, login, expected_s=look.LOAD_S)


def _texts(settings: list[str]) -> list[str]:
    """What is a file stands for its lines; ``#`` starts a comment."""
    found = []
    for text in settings:
        if "=" not in text and Path(text).is_file():
            try:
                lines = read_plain(Path(text), MOST_SETTINGS_BYTES).decode(errors="replace").splitlines()
            except OSError as error:
                raise PlanError(f"cannot be read: {error.strerror}", place=text) from error
            stripped = (line.partition("#")[0].strip() for line in lines)
            found += [line for line in stripped if line]
        else:
            found.append(text)
    return found


def _planned(
    asked: Asked,
    wanted: Mapping[str, Value],
    rules: Any,
    weaker: tuple[str, ...],
    lasting: str,
    lab: Expected | None,
) -> Plan:
    from headrace.fleet.runner import State
    from headrace.rollout import look
    from headrace.rollout import plan as plans

    answers, out = [], {}
    for outcome in asked.file.outcomes(asked.inventory.hosts):
        if outcome.state is State.OK:
            answers.append((asked.inventory.hosts[outcome.host], outcome.answer))
        else:
            out[outcome.host] = outcome.reason
    seen, same = look.split(answers)
    # A later question of the same lot would be another plan.
    seed = secrets.randbits(32)
    return plans.make(
        wanted,
        seen,
        rules,
        seed,
        allow_weaker=weaker,
        lasting=lasting,
        left_out={**out, **same},
        expected=lab,
        fan_out=(asked.inventory.fan_out, asked.inventory.fan_out_jump),
    )


def _show_plan(plan: Plan, as_json: bool) -> None:
    from headrace.rollout.book import Book
    from headrace.rollout.report import rollout as report
    from headrace.show import terminal

    Book.make(plan)
    if as_json:
        print_json({"id": plan.id, **plan.to_json()})
        return
    stdout().print(terminal.show(report.plan_parts(plan)))
    stderr().print(f"nothing is changed yet: headrace rollout go {plan.id}", style="dim", highlight=False)


@rollout_app.command("go", epilog="Example: headrace rollout go 3f2a9c1e77b0")
def rollout_go(plan_id: PlanId, as_json: Json = False) -> None:
    """Run a plan, or continue it. Exits with 13 if it did harm, 15 if it is inconclusive or waiting."""
    from headrace.rollout.book import Book
    from headrace.rollout.pairs import carrier_of

    book = Book.open(plan_id)
    with book.hold():
        run_until_signal(
            lambda: carrier_of(book, tell).go(),
            stopping="stopping: undoing changes on trial ...",
            stopped=STOPPED,
        )
    _conclude(book, as_json)


@rollout_app.command("dry", epilog="Example: headrace rollout dry 3f2a9c1e77b0 --pairs 6")
def rollout_dry(
    plan_id: PlanId,
    pairs: Annotated[
        int,
        typer.Option(
            "--pairs",
            min=2,
            max=200,
            help="Pairs of blocks per host; with restarts: blocks after the pretended restart.",
        ),
    ] = 4,
    as_json: Json = False,
) -> None:
    """Measure the plan's hosts with nothing changed. States how often the judge would be wrong there.

    For a plan with restarts it measures pairs of hosts, but not the effects of a restart, because nothing is
    restarted.
    """
    from headrace.base.errors import NothingMeasured
    from headrace.experiment.report.history import words
    from headrace.rollout import dry as dries
    from headrace.rollout.book import Book
    from headrace.rollout.fleets import swapped
    from headrace.rollout.paired_fleets import shifted
    from headrace.rollout.report.rollout import dry_parts
    from headrace.show import terminal

    book = Book.open(plan_id)
    restart = book.plan.restart
    measure = dries.measure_pairs if restart else dries.measure
    with book.hold():
        dry = run_until_signal(lambda: measure(book, pairs, tell), stopped="stopped; nothing was changed")
    question = book.plan.question()
    if restart:
        counts = Counter(moment.host for moment in dry.moments)
        if not any(count > restart.before for count in counts.values()):
            raise NothingMeasured("no pair of hosts was measured completely", place=plan_id)
        rates = shifted(question, dry.moments, restart.before)
    elif dry.pairs:
        rates = swapped(question, dry.pairs, sorted({pair.host for pair in dry.pairs}))
    else:
        raise NothingMeasured("no pair of blocks was measured", place=plan_id)
    if as_json:
        print_json({**words.rates_json(rates), "pairs": len(dry.pairs), "blocks": dry.blocks, **vars(dry)})
    else:
        stdout().print(terminal.show([*words.rates(rates), *dry_parts(dry)]))
    if dry.tripped or not all(rate.holds for rate in rates):
        raise typer.Exit(1)


@rollout_app.command("status", epilog="Example: headrace rollout status; headrace rollout status 3f2a --json")
def rollout_status(
    plan_id: Annotated[str, typer.Argument(metavar="[ID]", help="Without an id: one line per rollout.")] = "",
    as_json: Json = False,
) -> None:
    """Show every stage's verdict and every host's state. From the log on this machine: no host is contacted."""
    from headrace.rollout import book as books
    from headrace.rollout.report import expected
    from headrace.rollout.report import rollout as report
    from headrace.show import terminal

    if plan_id:
        book = books.Book.open(plan_id)
        if as_json:
            print_json(report.to_json(book))
        else:
            stdout().print(terminal.show(report.status_parts(book)))
        return
    found = books.every()
    if as_json:
        print_json(
            [
                {"id": book.plan.id, "state": report.sentence(book.state), "lab": expected.sentence(book)}
                for book in found
            ]
        )
    else:
        stdout().print(terminal.show(report.list_parts(found)))


@rollout_app.command("history", epilog="Example: headrace rollout history --json")
def rollout_history(as_json: Json = False) -> None:
    """Show how well experiments predicted production. Counts those named in all plans made here."""
    from headrace.rollout import book as books
    from headrace.rollout.report import expected
    from headrace.show import terminal

    found = expected.history(books.every())
    if as_json:
        print_json(expected.history_json(found))
    else:
        stdout().print(terminal.show(expected.history_parts(found)))


@rollout_app.command(
    "approve", epilog="Example: headrace rollout approve 3f2a9c1e77b0 --stage sources --by 'Ann Lee'"
)
def rollout_approve(
    plan_id: Annotated[str, typer.Argument(metavar="ID", help="The plan's whole id.")],
    stage: Annotated[str, typer.Option("--stage", metavar="NAME", help="The stage to approve.")],
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who approves it [this account].")] = "",
    unjudged: Annotated[
        bool,
        typer.Option(
            "--unjudged",
            help="Also without a verdict, if the stage is inconclusive or idle: its hosts are changed one after "
            "the other, and only watched.",
        ),
    ] = False,
) -> None:
    """Approve one stage for a limited time. The stages before it must have passed."""
    from headrace.base.errors import PlanError
    from headrace.rollout.book import Book

    book = Book.open(plan_id)
    if book.plan.id != plan_id:
        raise PlanError("an approval needs the plan's whole id", place=plan_id, hint=book.plan.id)
    with book.hold():
        book.approve(stage, by or getpass.getuser(), unjudged=unjudged)
    stderr().print(f"approved: headrace rollout go {plan_id}", highlight=False)


@rollout_app.command("abort", epilog="Example: headrace rollout abort 3f2a9c1e77b0 --wait 5m")
def rollout_abort(
    plan_id: PlanId,
    wait_s: Annotated[
        float,
        duration(
            "--wait",
            text="How long to wait for a running `go` to restore the hosts. After that, the command lists "
            "the hosts that are not restored and exits with 6; `go` continues to restore them. Servers that "
            "need a restart take minutes.",
            least_s=0,
            default="30m",
        ),
    ] = WAIT_S,
    as_json: Json = False,
) -> None:
    """Restore every host that this rollout changed. Hosts of finished stages, too. If `go` is running, it restores
    them."""
    from headrace.rollout.book import Book
    from headrace.rollout.pairs import not_restored, taken_back

    book = Book.open(plan_id)
    run_until_signal(
        lambda: taken_back(book, getpass.getuser(), tell, wait_s),
        stopping="stopping ...",
        stopped="stopped; the same command continues to restore the hosts",
    )
    _show(book, as_json)
    if not book.state.is_aborted:
        raise not_restored(book, "not every host could be restored")


@rollout_app.command("give-up", epilog="Example: headrace rollout give-up 3f2a9c1e77b0 db7")
def rollout_give_up(
    plan_id: PlanId,
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host that does not come back.")],
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who gives it up [this account].")] = "",
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also give up a host whose SSH answers but that cannot be restored, for example because its "
            "server does not start.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Continue, or end, a rollout without a host that is lost for good. A host that can be restored is not given
    up, and one whose SSH answers only with --force."""
    from headrace.rollout.book import Book
    from headrace.rollout.pairs import carrier_of

    book = Book.open(plan_id)

    async def work() -> None:
        with book.hold():
            await carrier_of(book, tell).give_up(host, by or getpass.getuser(), force=force)

    run_until_signal(work, stopping="stopping ...", stopped="stopped; nothing was given up")
    _show(book, as_json)


def _conclude(book: Book, as_json: bool) -> None:
    from headrace.rollout.pairs import not_restored

    _show(book, as_json)
    if book.state.aborting and not book.state.is_aborted:
        raise not_restored(book, "not every host could be restored")
    if book.state.is_harmful:
        raise typer.Exit(REGRESSION)
    if not book.state.is_finished or book.state.aborting:
        raise typer.Exit(UNDECIDED)


def _show(book: Book, as_json: bool) -> None:
    from headrace.rollout.report import rollout as report
    from headrace.show import terminal

    if as_json:
        print_json(report.to_json(book))
    else:
        stdout().print(terminal.show(report.status_parts(book)))
