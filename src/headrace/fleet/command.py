"""The command ``fleet``: facts, hunt, drift, doctor, status and ladder of many hosts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.encode import json_text
from headrace.base.model import ServerLogin
from headrace.base.temporary import temporary_folder
from headrace.cli.options import HOUR_S, NO_LOGIN, duration, grouped
from headrace.cli.shell import (
    Json,
    TellOption,
    app,
    opened_places,
    print_json,
    run_until_signal,
    stderr,
    stdout,
    tell,
    told,
)

if TYPE_CHECKING:
    from headrace.fleet.host import Host, Inventory
    from headrace.fleet.report.hosts import Roll
    from headrace.fleet.runner import Outcome, Work
    from headrace.fleet.runs import RunFile
    from headrace.show.parts import Part

fleet_app = typer.Typer(no_args_is_help=True, help="Query many hosts at once, and compare them.")
app.add_typer(fleet_app, name="fleet")


@dataclass(frozen=True)
class FleetOptions:
    """Which hosts are asked, and how."""

    fleet: Annotated[
        str,
        typer.Option(
            "--fleet",
            "-f",
            help="A file (TOML with [fleet], a list, `ansible-inventory --list`, file_sd), or names: db[1-40].",
        ),
    ] = "fleet.toml"
    only: Annotated[str, typer.Option(metavar="NAMES", help="Only these hosts of it, such as db[1-8].")] = ""
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Only hosts with this tag; !TAG: only hosts without it."),
    ] = None
    follow: Annotated[
        bool, typer.Option("--follow", help="Also query the replicas and sources of these hosts.")
    ] = False
    #: 0: as in the fleet's file.
    fan_out: Annotated[
        int, typer.Option(metavar="N", min=0, max=1000, help="Hosts at a time [64].", show_default=False)
    ] = 0
    timeout_s: Annotated[
        float | None, duration("--timeout", text="Time limit of one host [5m, and the time to watch it].")
    ] = None
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="FILE",
            help="Save the answers in this file; the same command then queries only the missing hosts.",
        ),
    ] = None


ANY_FLEET = FleetOptions()
EXAMPLE = "Example: headrace fleet"
STOPPING = "stopping: the answers so far are kept ..."


@dataclass
class Asked:
    """A run that ended: its answers are still on disk, and are read one by one."""

    inventory: Inventory
    verb: str
    file: RunFile
    is_complete: bool

    def outcomes(self) -> Iterator[Outcome]:
        """Of each host; for one that is unreachable with its last known answer, if there is one."""
        from headrace.fleet.runner import State
        from headrace.fleet.runs import last_known

        for outcome in self.file.outcomes(self.inventory.hosts):
            if outcome.state is State.UNREACHABLE:
                address = self.inventory.hosts[outcome.host].address
                yield last_known(self.verb, outcome, address) or outcome
            else:
                yield outcome

    @property
    def exit_code(self) -> int:
        from headrace.fleet.runner import State

        if not self.is_complete:
            return 130
        states = self.file.states()
        is_lost = any(states.get(name) in (State.FAILED, State.UNREACHABLE) for name in self.inventory.hosts)
        return 6 if is_lost else 0


def ask_fleet(
    options: FleetOptions,
    verb: str,
    work: Work,
    question: Mapping[str, Any],
    conclude: Callable[[Asked], None],
    login: ServerLogin,
    expected_s: float = 0.0,
) -> None:
    """Ask the hosts that have not answered yet, then ``conclude``; the exit code says whether all answered."""
    from headrace.fleet import inventory as inventories
    from headrace.fleet.runs import RunFile

    inventory = inventories.only(inventories.load(options.fleet), options.only, tuple(options.tag or ()))
    if login is not NO_LOGIN and login != ServerLogin():
        hosts = {name: dataclasses.replace(host, login=login) for name, host in inventory.hosts.items()}
        inventory = dataclasses.replace(inventory, hosts=hosts)
    if options.fan_out:
        inventory = dataclasses.replace(inventory, fan_out=options.fan_out)
    if options.follow or inventory.follow:
        inventory = _followed(inventory, options)
    with temporary_folder() as folder:
        path = options.run or folder / "run.jsonl"
        with RunFile(path, {"verb": verb, **question}) as file:
            asked = _fan_out(inventory, options, verb, work, file, expected_s)
            conclude(asked)
            if asked.exit_code:
                raise typer.Exit(asked.exit_code)


def _fan_out(
    inventory: Inventory,
    options: FleetOptions,
    verb: str,
    work: Work,
    file: RunFile,
    expected_s: float,
) -> Asked:
    from headrace.fleet import runner
    from headrace.fleet.runs import remember

    missing = [host for host in inventory.hosts.values() if not file.has_answered(host)]

    def keep(outcome: Outcome) -> None:
        file.keep(outcome)
        if outcome.state is runner.State.OK:
            remember(verb, outcome)

    is_complete = run_until_signal(
        lambda: _watched(inventory, options, missing, work, keep, expected_s), stopping=STOPPING
    )
    return Asked(inventory, verb, file, is_complete)


async def _watched(
    inventory: Inventory,
    options: FleetOptions,
    hosts: Sequence[Host],
    work: Work,
    keep: Callable[[Outcome], None],
    expected_s: float = 0.0,
) -> bool:
    """Ask these hosts within the fleet's limits, with progress on a terminal."""
    from headrace.fleet import runner
    from headrace.fleet.report.progress import Watcher

    at_once, note = runner.within_descriptors(inventory.fan_out, hosts)
    if note:
        tell(note)
    limits = runner.Limits(
        at_once, inventory.fan_out_jump, options.timeout_s or inventory.host_timeout_s + expected_s
    )
    with Watcher(stderr(), len(hosts)) as watcher:
        return await runner.ask(
            hosts, work, keep, limits=limits, listen=watcher.listen, expected_s=expected_s
        )


def _followed(inventory: Inventory, options: FleetOptions) -> Inventory:
    """The fleet, and the servers that replicate with it."""
    from headrace.fleet.topology import follow, links

    async def work(target: Any, host: Host) -> Any:
        agent, found, _ = await _login(target, host)
        return links((await agent.facts(found)).data)

    is_complete = True

    async def ask(hosts: Sequence[Host], keep: Callable[[Outcome], None]) -> bool:
        nonlocal is_complete
        is_complete = await _watched(inventory, options, hosts, work, keep)
        return is_complete

    found = run_until_signal(lambda: follow(inventory, ask), stopping=STOPPING)
    if not is_complete:
        raise typer.Exit(130)
    return found


async def _login(target: Any, host: Host) -> tuple[Any, ServerLogin | None, str]:
    """The agent there, how it reaches the host's server (as the fleet says, or its only server's socket), or why
    it does not."""
    from headrace.host.agent import Agent
    from headrace.host.login import usual_login

    agent = await Agent.install(target)
    return (agent, *await usual_login(agent, host.login))


@fleet_app.command("facts", epilog=f"{EXAMPLE} facts --fleet 'db[1-40]' --json > facts.json")
@grouped
def fleet_facts(
    fleet: FleetOptions = ANY_FLEET, login: ServerLogin = NO_LOGIN, as_json: Json = False
) -> None:
    """Show how hosts and their servers are configured. Equal answers are grouped."""
    from headrace.fleet.report import facts as report

    async def work(target: Any, host: Host) -> Any:
        agent, found, _ = await _login(target, host)
        return (await agent.facts(found)).data

    def conclude(asked: Asked) -> None:
        if as_json:
            _print_json(asked)
        else:
            stdout().print(report.terminal(asked.outcomes(), asked.inventory.hosts))

    ask_fleet(fleet, "facts", work, {}, conclude, login)


def _print_json(asked: Asked) -> None:
    """One object a host, written one by one: the facts of a thousand hosts do not fit into memory."""
    from headrace.fleet.report.hosts import to_json

    typer.echo('{"hosts": {', nl=False)
    for number, outcome in enumerate(asked.outcomes()):
        content = json_text(to_json(outcome))
        typer.echo(f"{',' if number else ''}\n {json_text(outcome.host)}: {content}", nl=False)
    typer.echo("\n}}")


@fleet_app.command("drift", epilog=f"{EXAMPLE} drift --fleet fleet.toml --evidence experiments/io")
@grouped
def fleet_drift(
    fleet: FleetOptions = ANY_FLEET,
    evidence: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="An experiment that measured what settings cost."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show differences that were measured to cost nothing.")
    ] = False,
    login: ServerLogin = NO_LOGIN,
    to: TellOption = None,
    as_json: Json = False,
) -> None:
    """Show how hosts differ from each other and from their own files. Names, ids and addresses are left out."""
    from headrace.fleet.drift import Collected
    from headrace.fleet.evidence import Evidence, ranked
    from headrace.fleet.files import lasting
    from headrace.fleet.report import drift as report
    from headrace.host import memcached

    places = opened_places(to, as_json)
    measured = Evidence(evidence) if evidence else None

    async def work(target: Any, host: Host) -> Any:
        agent, found, why_not = await _login(target, host)
        facts = (await memcached.once(agent)).added_to(await agent.facts(found)).data
        kept = (await lasting(target, facts)).to_json()
        return {"facts": facts, "lasting": kept, "why_no_server": why_not}

    def conclude(asked: Asked) -> None:
        roll, collected = _roll(asked), Collected()
        for outcome in roll.call(asked.outcomes()):
            collected.add(outcome.host, outcome.answer)
        drift = collected.drift()
        rows = ranked(drift, measured)
        notice = report.notice(drift, rows, roll)
        content = {**report.to_json(drift, rows), "notice": notice}
        _say(roll, as_json, content, report.parts(drift, rows, everything=everything))
        told(notice, places)

    ask_fleet(fleet, "drift", work, {}, conclude, login)


def _roll(asked: Asked) -> Roll:
    from headrace.fleet.report.hosts import Roll

    return Roll(len(asked.inventory.hosts))


def _say(roll: Roll, as_json: bool, content: Mapping[str, Any], parts: Iterable[Part]) -> None:
    """Who answered, then what they said."""
    from headrace.show import terminal

    if as_json:
        print_json({**roll.to_json(), **content})
    else:
        stdout().print(terminal.show([*roll.parts(), *parts]))


@fleet_app.command("hunt", epilog=f"{EXAMPLE} hunt --fleet fleet.toml --tag replica --duration 60s")
@grouped
def fleet_hunt(
    fleet: FleetOptions = ANY_FLEET,
    seconds: Annotated[
        float,
        duration(
            "--duration", "-d", text="How long to watch each host.", least_s=2, most_s=HOUR_S, default="30s"
        ),
    ] = 30.0,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Also save each host, for `headrace hunt --from`."),
    ] = None,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Watch many hosts, and find what limits them. What they have in common comes first, then findings by cost."""
    import asyncio
    import signal
    import urllib.parse
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from headrace.fleet.findings import Findings
    from headrace.fleet.report import findings as report
    from headrace.host.snapshot import save as write
    from headrace.hunt import hunt as hunts
    from headrace.hunt.commands import lacking

    with (
        temporary_folder() as folder,
        # Rules are work for a processor: in this process they would hold up every connection.
        # A terminal sends Ctrl-C to them, too.
        ProcessPoolExecutor(
            mp_context=get_context("spawn"),
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_IGN),
        ) as judges,
    ):

        async def work(target: Any, host: Host) -> Any:
            known = host.login if host.login.is_named else None
            snapshot = await lacking.named(target, known, await hunts.watch(target, seconds, known))
            path = (save or folder) / f"{urllib.parse.quote(host.name, safe='')}.hunt"
            await asyncio.to_thread(write, snapshot, path)
            del snapshot
            answer = await asyncio.get_running_loop().run_in_executor(judges, _judged, path)
            if save is None:
                path.unlink()
            return answer

        def conclude(asked: Asked) -> None:
            roll, found = _roll(asked), Findings()
            for outcome in roll.call(asked.outcomes()):
                found.add(outcome.host, outcome.answer)
            _say(roll, as_json, report.to_json(found), report.parts(found))

        ask_fleet(fleet, "hunt", work, {"seconds": seconds}, conclude, login, expected_s=seconds)


def _judged(path: Path) -> dict[str, Any]:
    """A saved host's findings; runs in a process of its own."""
    from headrace.fleet.findings import to_json
    from headrace.host.snapshot import load
    from headrace.hunt.hunt import examine, why_no_server

    snapshot = load(path)
    found = examine(snapshot)
    return to_json(found.judgement, found.verdict, why_no_server(snapshot))


@fleet_app.command("doctor", epilog=f"{EXAMPLE} doctor --fleet inventory.json --tag mysql")
@grouped
def fleet_doctor(
    fleet: FleetOptions = ANY_FLEET, scratch: str = "/var/tmp/headrace", as_json: Json = False
) -> None:
    """Check whether many hosts are ready. Names what is missing where, and what installs it."""
    from headrace.experiment import readiness

    async def work(target: Any, host: Host) -> Any:
        return [vars(check) for check in await readiness.examine(target, scratch)]

    def answers(answer: Any) -> Iterator[tuple[str, str]]:
        for check in answer:
            # How much is free, and which version, are not what this is about.
            detail = "ok" if check["ok"] else f"{check['detail']}: {check['remedy']}"
            yield check["name"], detail

    ask_fleet(
        fleet, "doctor", work, {"scratch": scratch}, lambda asked: _fold(asked, answers, as_json), NO_LOGIN
    )


@fleet_app.command("status", epilog=f"{EXAMPLE} status --fleet 'db[1-40]'")
@grouped
def fleet_status(fleet: FleetOptions = ANY_FLEET, as_json: Json = False) -> None:
    """Show which hosts answer, and where changes are open. With each host's user and agent."""
    from headrace.host.agent import Agent, Journal

    async def work(target: Any, host: Host) -> Any:
        agent = await Agent.install(target)
        entries = await Journal(agent, "status").entries()
        return {"root": target.is_root, "agent": await agent.version(), "open_changes": len(entries)}

    def answers(answer: Any) -> Iterator[tuple[str, str]]:
        yield "account", "root" if answer["root"] else "not root"
        yield "agent", str(answer["agent"])
        changes = answer["open_changes"]
        yield (
            "open changes",
            f"{changes}: `headrace rollback --list -t HOST` lists them" if changes else "none",
        )

    ask_fleet(fleet, "status", work, {}, lambda asked: _fold(asked, answers, as_json), NO_LOGIN)


@fleet_app.command("latencies", epilog=f"{EXAMPLE} latencies --fleet 'db[1-8]' --duration 10s")
@grouped
def fleet_latencies(
    fleet: FleetOptions = ANY_FLEET,
    seconds: Annotated[
        float, duration("--duration", text="Total time for all rows of a host.", most_s=HOUR_S, default="20s")
    ] = 20.0,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Measure the latencies of many hosts. Shows how much they differ."""
    from headrace.fleet.report import ladder as report
    from headrace.hunt.ladder import ladder as ladders
    from headrace.hunt.ladder.report import ladder as measured

    async def work(target: Any, host: Host) -> Any:
        words = ["--seconds", str(seconds), *host.login.argv]
        return measured.to_json(await ladders.measure(target, words, lambda row: None))

    def conclude(asked: Asked) -> None:
        roll, rows = _roll(asked), report.Rows()
        for outcome in roll.call(asked.outcomes()):
            rows.add(outcome.host, outcome.answer)
        _say(roll, as_json, rows.to_json(), rows.parts())

    ask_fleet(fleet, "latencies", work, {"seconds": seconds}, conclude, login, expected_s=seconds)


def _fold(asked: Asked, answers: Callable[[Any], Iterable[tuple[str, str]]], as_json: bool) -> None:
    """Show short answers, each once with the hosts that gave it."""
    from headrace.fleet.folded import Folded
    from headrace.fleet.report import checks

    roll, folded = _roll(asked), Folded()
    for outcome in roll.call(asked.outcomes()):
        folded.host(outcome.host)
        for key, value in answers(outcome.answer):
            folded.add(key, value)
    _say(roll, as_json, {"answers": checks.to_json(folded)}, checks.parts(folded))
