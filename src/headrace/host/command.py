"""Commands about a host as it is: doctor, facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from headrace.base.model import ServerLogin
from headrace.cli.options import NO_LOGIN, Thorough, grouped
from headrace.cli.shell import Json, TargetOption, app, on_target, print_json, stdout

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.base.model import Facts


@app.command(
    epilog="Example: headrace doctor --json | jq '.[] | select(.ok|not)'",
)
def doctor(target: TargetOption = "local", scratch: str = "/var/tmp/headrace", as_json: Json = False) -> None:
    """Check whether a machine is ready: what is missing, and the command that installs it."""
    from headrace.experiment import readiness

    async def work(host: Any) -> list[readiness.Check]:
        return await readiness.examine(host, scratch)

    checks = on_target(target, work)
    if as_json:
        print_json([vars(check) for check in checks])
    else:
        _print_checks(checks)
    # Running without root is not a failure: everything except volumes and kernel settings works.
    if any(not check.ok for check in checks if check.name != "root"):
        raise typer.Exit(4)


def _print_checks(checks: list[Any]) -> None:
    from rich.text import Text

    from headrace.show.columns import of_columns
    from headrace.show.text import clean

    table = of_columns(*((title, False) for title in ("", "check", "found", "what to do")))
    for check in checks:
        mark = Text("ok", style="green") if check.ok else Text("no", style="red")
        # A host's own words.
        table.add_row(mark, *(Text(clean(text)) for text in (check.name, check.detail, check.remedy)))
    stdout().print(table)


@app.command(epilog="Example: headrace facts --target root@db1 --json | jq .block_devices")
@grouped
def facts(
    target: TargetOption = "local",
    thorough: Thorough = False,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Show how a host and its servers are configured."""
    from headrace.base.received import read_as_sent
    from headrace.host.agent import Agent

    if login != NO_LOGIN and not login.is_named:
        raise typer.BadParameter(
            "the login names no server: add --mysql-socket, --mysql-host or a defaults file"
        )

    async def work(host: Any) -> Any:
        return await (await Agent.install(host)).facts(login if login.is_named else None, thorough=thorough)

    found = on_target(target, work)
    if as_json:
        print_json(found.data)
    else:
        with read_as_sent("what the host answers", target):
            shown = on_one_screen(found)
        stdout().print(shown)


def on_one_screen(found: Facts) -> RenderableType:
    """A host's facts; ``--json`` has the rest."""
    from rich.text import Text

    from headrace.host.facts import HostFacts
    from headrace.host.spared import OPTION, of_facts
    from headrace.show.columns import of_columns
    from headrace.show.text import clean

    table = of_columns(("", False), ("", False))
    for name, value in HostFacts(found).digest():
        table.add_row(Text(clean(name), style="bold"), Text(clean(value)))
    if missing := of_facts(found):
        reasons = f"{'; '.join(missing)}. headrace facts {OPTION} reads all"
        table.add_row(Text("left out", style="bold"), Text(clean(reasons)))
    return table
