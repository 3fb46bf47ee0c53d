"""The command ``indexes``: which indexes traffic lacks, and which a schema has too many of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import NO_LOGIN, grouped
from headrace.cli.shell import Json, PageFile, app, on_target, show
from headrace.errors import PlanError
from headrace.model import ServerLogin

if TYPE_CHECKING:
    from headrace.indexes.schema import Schema

#: Tables that the agent describes at a time.
AT_A_TIME = 50


@app.command(epilog="Example: headrace indexes slow.log --mysql-socket /run/mysqld/mysqld.sock")
@grouped
def indexes(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Slow logs, captures, recordings with literals (on the target); or digests with samples.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target", "-t", help="Where the sources and the server are: local or user@host[:port]."
        ),
    ] = "local",
    classes: Annotated[
        int, typer.Option("--classes", min=1, max=50_000, help="Statement classes to read, by time.")
    ] = 500,
    page: PageFile = None,
    as_json: Json = False,
    login: ServerLogin = NO_LOGIN,
) -> None:
    """Find the indexes that statements lack, and those that another index replaces. Changes nothing.

    Reads an example of each statement class and the tables of the server. A candidate is a hypothesis until it was
    tried on a copy.
    """
    from headrace.cli.digest import Question, read_sources
    from headrace.digests.classes import open_digest
    from headrace.extras import require
    from headrace.indexes import traffic
    from headrace.report.indexes import page_of

    require("sqlglot")
    from headrace.indexes.candidates import candidates
    from headrace.indexes.existing import redundant

    if not login.is_named:
        raise typer.BadParameter(
            "the server with the tables is not named: --mysql-socket, --mysql-host or --mysql-defaults-file"
        )
    digest = open_digest(read_sources(sources, Question(target=[target])))
    statements, left_out = traffic.statements(digest, classes)
    names = traffic.tables(digest, classes)
    if not names:
        raise PlanError(
            "no statement names a table of a known database",
            place=sources[0],
            hint="use a source with statements and databases: a slow log, a capture of whole sessions",
        )
    schema = on_target(target, lambda host: described(host, names, login))
    advice = candidates(statements, schema)
    show(page_of(advice, redundant(schema), digest.all.total_ns, left_out), as_json, page)


async def described(host: Any, names: Sequence[str], login: ServerLogin) -> Schema:
    """The tables as the server describes them. Raises PlanError if it has none of them."""
    from headrace.agent.door import Agent
    from headrace.indexes.schema import read

    agent = await Agent.install(host)
    lines: list[dict[str, Any]] = []
    for start in range(0, len(names), AT_A_TIME):
        answer = await agent.text("tables", *login.argv, "--", *names[start : start + AT_A_TIME])
        lines += [agent.document("tables", line) for line in answer.splitlines()]
    if not lines:
        raise PlanError(
            "the server has none of the tables that these statements name",
            place=", ".join(names[:5]),
            hint="is it the server of this traffic, and may the account see the tables (SELECT on them)?",
        )
    return read(lines)
