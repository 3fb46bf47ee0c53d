"""The command ``indexes``: which indexes traffic lacks, and which a schema has too many of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base import received
from headrace.base.errors import PlanError
from headrace.base.model import ServerLogin
from headrace.change.commands.index_changes import stoppable
from headrace.cli.options import NO_LOGIN, duration, grouped
from headrace.cli.shell import Json, PageFile, app, on_target, show, tell

if TYPE_CHECKING:
    from headrace.indexes.candidates import Candidate
    from headrace.indexes.schema import Schema
    from headrace.indexes.sessions import Habits
    from headrace.indexes.statement import Statement
    from headrace.show.parts import Page
    from headrace.traffic.digests.classes import Digest

#: Tables that the agent describes at a time.
AT_A_TIME = 50


@dataclasses.dataclass(frozen=True)
class TrialOptions:
    """Whether and how candidates are tried on a copy."""

    screen: Annotated[
        bool,
        typer.Option(
            "--screen", help="Build each candidate hidden on the copy, and compare plans and rows read."
        ),
    ] = False
    prove: Annotated[
        bool,
        typer.Option("--prove", help="Also measure what they save and cost, in randomised blocks."),
    ] = False
    on_copy: Annotated[
        bool,
        typer.Option(
            "--on-copy",
            help="The named server is a copy, on which indexes may be built and statements be run.",
        ),
    ] = False
    most: Annotated[
        int, typer.Option("--most", min=1, max=20, help="Candidates to try, those with the most time first.")
    ] = 5
    blocks: Annotated[
        int,
        typer.Option(
            "--blocks", min=2, max=200, help="Blocks of reads; writes have two thirds of them, at least 6."
        ),
    ] = 12
    budget_s: Annotated[
        float, duration("--budget", text="No block of the proof begins later than that.", default="20m")
    ] = 1200.0
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order of the turns.")] = 1

    @property
    def tries(self) -> bool:
        return self.screen or self.prove


NO_TRIAL = TrialOptions()


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
    trial: TrialOptions = NO_TRIAL,
    page: PageFile = None,
    as_json: Json = False,
    login: ServerLogin = NO_LOGIN,
) -> None:
    """Find the indexes that statements lack, and those that another index replaces.

    Reads an example of each statement class and the tables of the server. A candidate is a hypothesis until it was
    tried on a copy: --screen and --prove do so on the named server if it is declared to be one, and drop what they
    built. Otherwise nothing is changed.
    """
    from headrace.base.extras import require
    from headrace.indexes import traffic
    from headrace.indexes.report.indexes import page_of
    from headrace.traffic.commands.digest import Question, read_sources
    from headrace.traffic.digests.classes import open_digest

    require("sqlglot")
    from headrace.indexes import costly
    from headrace.indexes.candidates import candidates
    from headrace.indexes.existing import surplus

    if not login.is_named:
        raise typer.BadParameter(
            "the server with the tables is not named: --mysql-socket, --mysql-host or --mysql-defaults-file"
        )
    if trial.tries:
        _may_try(trial, target)
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
    total_ns = digest.all.total_ns
    existing = surplus(schema, [*statements, *(each for each, _ in left_out)])
    known = _habits(sources, target, schema)
    written_so = [*known.found, *costly.statements(statements, schema)]
    shown = page_of(advice, existing, total_ns, left_out, written_so, costly.layouts(schema), known.unknown)
    if trial.tries and advice.candidates:
        shown = tried(shown, advice.candidates[: trial.most], statements, schema, total_ns, trial, login)
    show(shown, as_json, page)


def _habits(sources: list[str], target: str, schema: Schema) -> Habits:
    """What sessions repeat. Only sources that can be read again tell it."""
    from headrace.indexes.sessions import Habits, habits
    from headrace.traffic.commands.digest import Question, read_sources
    from headrace.traffic.digests.classes import open_digest
    from headrace.traffic.digests.files import is_digest

    def reader(source: str, conditions: Sequence[str]) -> Digest:
        asked = Question(target=[target], group="class,session", filters=list(conditions))
        return open_digest(read_sources([source], asked))

    once = [each for each in sources if each == "-" or (target == "local" and is_digest(Path(each)))]
    found = habits([each for each in sources if each not in once], schema, reader)
    why = "what sessions repeat is not known of {}: {}"
    reasons = ("standard input is read once" if each == "-" else "a digest has no sessions" for each in once)
    told = (why.format(each, reason) for each, reason in zip(once, reasons, strict=True))
    return Habits(found.found, (*found.unknown, *told))


def _may_try(trial: TrialOptions, target: str) -> None:
    from headrace.base.extras import require

    if not trial.on_copy:
        raise typer.BadParameter(
            "--screen and --prove build indexes and run statements: name a copy of the server, and add --on-copy"
        )
    if target != "local":
        raise typer.BadParameter("--screen and --prove connect from here: --mysql-host instead of --target")
    require("pymysql")


def tried(
    shown: Page,
    candidates: Sequence[Candidate],
    statements: Sequence[Statement],
    schema: Schema,
    total_ns: int,
    trial: TrialOptions,
    login: ServerLogin,
) -> Page:
    """The page with what trials of the candidates on the copy found."""
    from headrace.indexes.copies import copy
    from headrace.indexes.proving import LEAST_WRITE_BLOCKS, Effort, prove
    from headrace.indexes.report.index_trials import with_proof, with_screening
    from headrace.indexes.screening import screen

    with stoppable(), copy(login) as (made, cleaned):
        screening = screen(made, candidates, statements, schema, tell)
        shown = with_screening(shown, screening, cleaned)
        if trial.prove and screening.used:
            effort = Effort(
                trial.blocks, max(trial.blocks * 2 // 3, LEAST_WRITE_BLOCKS), trial.budget_s / 60, trial.seed
            )
            shown = with_proof(shown, prove(made, screening.used, statements, schema, total_ns, effort, tell))
    return shown


async def described(host: Any, names: Sequence[str], login: ServerLogin) -> Schema:
    """The tables as the server describes them. Raises PlanError if it has none of them."""
    from headrace.host.agent.door import Agent
    from headrace.indexes.schema import read

    agent = await Agent.install(host)
    lines: list[dict[str, Any]] = []
    for start in range(0, len(names), AT_A_TIME):
        answer = await agent.text("tables", *login.argv, "--", *names[start : start + AT_A_TIME])
        lines += [agent.document("tables", line) for line in received.lines(answer)]
    if not lines:
        raise PlanError(
            "the server has none of the tables that these statements name",
            place=", ".join(names[:5]),
            hint="is it the server of this traffic, and may the account see the tables (SELECT on them)?",
        )
    return read(lines)
