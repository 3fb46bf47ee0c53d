"""Commands that look at a live host or at a saved one: hunt, rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.shell import (
    Json,
    MysqlDefaultsFile,
    MysqlHost,
    MysqlPasswordFile,
    MysqlPort,
    MysqlSocket,
    MysqlTls,
    MysqlUser,
    TargetOption,
    app,
    on_target,
    print_json,
    stderr,
    stdout,
)
from headrace.model import ServerLogin

if TYPE_CHECKING:
    from headrace.snapshot import Snapshot

rules_app = typer.Typer(no_args_is_help=False, help="What headrace looks for, and why.")
app.add_typer(rules_app, name="rules")


@app.command(
    short_help="What is saturated, why, and what would help?",
    epilog="Example: headrace hunt --target root@db1 --seconds 120 --save db1.hunt",
)
def hunt(
    target: TargetOption = "local",
    seconds: Annotated[
        float, typer.Option("--seconds", "-s", min=2, max=86_400, help="How long to watch.")
    ] = 60.0,
    save: Annotated[
        Path | None, typer.Option("--save", help="Keep all of it in one file that a colleague can open.")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Judge a saved file, a folder of them, or a trial of an experiment."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", help="A device's measured limit, such as nvme0n1=85000 (operations/s)."),
    ] = None,
    page: Annotated[Path | None, typer.Option("--page", help="Write an HTML page.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show what is fine and every gap, too.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="A line for each host.")] = False,
    mysql_socket: MysqlSocket = "",
    mysql_host: MysqlHost = "",
    mysql_port: MysqlPort = 0,
    mysql_user: MysqlUser = "",
    mysql_password_file: MysqlPasswordFile = "",
    mysql_defaults_file: MysqlDefaultsFile = "",
    mysql_tls: MysqlTls = "",
    as_json: Json = False,
) -> None:
    """Watch a host, say what limits it, and offer a test for every remedy. Changes nothing."""
    from headrace import hunt as hunts
    from headrace.report import hunt as views
    from headrace.report import hunt_html
    from headrace.snapshot import last_path, load
    from headrace.snapshot import save as write

    limits = _limits(limit or [])
    if source:
        found = [hunts.examine(load(path)) for path in _files(source)]
    else:
        login = ServerLogin(
            mysql_socket,
            mysql_host,
            mysql_port or None,
            mysql_user,
            mysql_password_file,
            mysql_defaults_file,
            mysql_tls,
        )
        found = [hunts.examine(_watch(target, seconds, login, limits))]
        # So that `headrace apply` and `headrace prove` know what an id means.
        write(found[0].snapshot, last_path())
    if as_json:
        print_json([views.to_json(each) for each in found] if source else views.to_json(found[0]))
    elif brief:
        stdout().print(views.brief(found))
    else:
        for number, each in enumerate(found):
            if number:
                stdout().rule()
            stdout().print(views.terminal(each, everything=everything))
    if save:
        write(found[0].snapshot, save, hunt_html.render(found[0]))
        stderr().print(f"saved: {save}", soft_wrap=True, highlight=False)
    if page:
        page.write_text(hunt_html.render(found[0]))
        stderr().print(f"page: {page}", soft_wrap=True, highlight=False)


def _files(sources: list[Path]) -> list[Path]:
    """A folder stands for the saved files in it, unless it is a trial's."""
    found: list[Path] = []
    for path in sources:
        inside = sorted(path.glob("*.hunt")) if path.is_dir() else []
        found += inside or [path]
    return found


def _watch(target: str, seconds: float, login: ServerLogin, limits: dict[str, float]) -> Snapshot:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from headrace import hunt as hunts

    console = stderr()
    columns = (TextColumn("watching"), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("watching", total=seconds)

        async def work(host: Any) -> Snapshot:
            return await hunts.watch(
                host,
                seconds,
                login,
                limits=limits,
                listen=lambda done, _: progress.update(task, completed=done),
            )

        return on_target(target, work)


def _limits(texts: list[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        device, _, number = text.partition("=")
        try:
            found[device.removeprefix("/dev/")] = float(number.replace(",", ""))
        except ValueError:
            raise typer.BadParameter(f"{text!r}: write DEVICE=OPERATIONS_A_SECOND") from None
    return found


@rules_app.callback(invoke_without_command=True)
def rules_list(
    context: typer.Context,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="As a page of documentation.")] = False,
    as_json: Json = False,
) -> None:
    """What headrace looks for, and why."""
    from headrace.report import rules as views
    from headrace.rules import all_rules

    if context.invoked_subcommand:
        return
    found = all_rules()
    if as_json:
        print_json([_rule_json(rule) for rule in found])
    elif as_markdown:
        typer.echo(views.markdown(found), nl=False)
    else:
        stdout().print(views.table(found))


@rules_app.command("show", epilog="Example: headrace rules show NET01")
def rules_show(code: Annotated[str, typer.Argument(metavar="CODE")], as_json: Json = False) -> None:
    """One rule: what it finds, why that matters, its source and what would refute it."""
    from headrace.errors import PlanError
    from headrace.report import rules as views
    from headrace.rules import all_rules

    rules = {rule.code: rule for rule in all_rules()}
    found = rules.get(code.partition("@")[0].upper())
    if found is None:
        raise PlanError("no such rule", place=code, hint="headrace rules lists them")
    if as_json:
        print_json(_rule_json(found))
    else:
        stdout().print(views.page(found))


def _rule_json(rule: Any) -> dict[str, Any]:
    from headrace.report import rules as views

    return {
        "code": rule.code,
        "title": rule.title,
        "severity": rule.severity,
        "confidence": rule.confidence,
        "why": rule.why,
        "applies_to": views.scope(rule),
        "refute": rule.refute,
        "disputed": rule.disputed,
        "source": rule.source,
    }
