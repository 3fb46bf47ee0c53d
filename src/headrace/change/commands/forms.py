"""``apply --as FORM``: the change as a patch for what owns the server's option files, printed and not made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.model import ServerLogin, Value
from headrace.change.commands.judge import Allowed
from headrace.change.form import Form
from headrace.cli.shell import on_target, stderr

if TYPE_CHECKING:
    from headrace.change.printed import Printed

AsForm = Annotated[
    Form | None,
    typer.Option("--as", help="Change nothing: print the settings as a patch in this form."),
]


def print_form(
    wanted: Mapping[str, Value], form: Form, target: str, login: ServerLogin, allowed: Allowed, *, alone: bool
) -> None:
    """The patch to standard output; what nobody checked to standard error."""
    from headrace.change import printed

    if not alone:
        raise typer.BadParameter("--as only prints: not with --judge, --confirm-within, --persist or --json")
    if not login.is_named and target == "local":
        done = printed.unchecked(wanted, form, allow_weaker=allowed.weaker)
    else:
        done = on_target(target, lambda host: _with_server(host, wanted, form, login, allowed))
    typer.echo(done.text, nl=False)
    for line in done.unchecked:
        stderr().print(f"not checked: {line}", style="yellow", highlight=False, soft_wrap=True)


async def _with_server(
    host: Any, wanted: Mapping[str, Value], form: Form, login: ServerLogin, allowed: Allowed
) -> Printed:
    from headrace.base.errors import NotReady
    from headrace.change import printed
    from headrace.host.agent import Agent
    from headrace.host.login import usual_login

    agent = await Agent.install(host)
    server, why = await usual_login(agent, login)
    if server is None:
        raise NotReady(why, place=str(host.name), hint="name the server: --mysql-host or --mysql-socket")
    return await printed.checked(
        agent,
        wanted,
        server,
        form,
        allow_weaker=allowed.weaker,
        allow_loss=allowed.loss,
        allow_beyond=allowed.beyond,
    )
