"""The command ``tell``: a verdict to chats, mail, dashboards and pipelines."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.shell import app, opened_places, tell_and_exit


@app.command(
    epilog="Example: headrace tell experiments/io --to apprise:chats.conf; "
    "headrace verify ... --json | headrace tell - --to junit:verdict.xml --to webhook:hook.toml",
)
def tell(
    what: Annotated[
        str,
        typer.Argument(
            help="An experiment's directory; or the --json of another command with --tell (- reads it).",
            metavar="WHAT",
        ),
    ],
    to: Annotated[
        list[str],
        typer.Option(
            "--to",
            metavar="KIND:PLACE",
            help="junit:FILE, markdown:FILE, metrics:DIRECTORY; apprise:FILE, webhook:FILE, grafana:FILE with "
            "addresses and secrets; repeatable.",
        ),
    ],
    link: Annotated[
        str, typer.Option("--link", metavar="URL", help="Where the report can be read (a link).")
    ] = "",
) -> None:
    """Send a verdict. Exits with 13 if it is worse, 15 if there is none, 6 if a destination could not be
    reached."""
    from headrace.tell.saved import notice_of

    places = opened_places(to, as_json=False)
    tell_and_exit(notice_of(what, link), places, must_tell=True)
