"""The server's own command-line client, on a trial's server."""

from __future__ import annotations

from headrace.base.errors import HeadraceError
from headrace.base.model import ServerEndpoint
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.workload import Context

#: Runs the client with its login, and standard input from the file $DUMP.
FROM_FILE = ("sh", "-c", 'exec "$CLIENT" "$@" < "$DUMP"')
#: Runs it with the statements of $STATEMENTS.
STATEMENTS = ("sh", "-c", 'exec "$CLIENT" "$@" -e "$STATEMENTS"')


def endpoint_of(context: Context) -> ServerEndpoint:
    if context.endpoint is None:
        raise HeadraceError("this workload needs a server, and the trial has none")
    return context.endpoint


async def client_command(
    context: Context, argv: tuple[str, ...], **environment: str
) -> tuple[str, list[str]]:
    """The client's path, and a command with its path in CLIENT, its login as arguments and this environment."""
    endpoint = endpoint_of(context)
    answer = await context.target.run(["sh", "-c", "command -v mariadb || command -v mysql"], check=False)
    client = answer.text.strip()
    if not client:
        raise HeadraceError("neither mariadb nor mysql is installed", place=context.target.name)
    login = ["--no-defaults", "--socket", endpoint.socket, "--user", endpoint.user, endpoint.database]
    given = [f"{name}={value}" for name, value in {"CLIENT": client, **environment}.items()]
    return client, ["env", *given, *argv, "sh", *login]


async def load_dump(context: Context, dump: str, name: str) -> None:
    """Load a dump; its output goes to ``raw/<name>.stdout``. Raises DiskFull or WorkloadFailed."""
    client, command = await client_command(context, FROM_FILE, DUMP=dump)
    await tool.run_to_end(context, command, name=name, cwd="/", what=client)


async def ask(context: Context, statements: str, name: str, *, has_names: bool = False) -> str:
    """Run statements, and return what the client printed: one line a row, its columns' names only if asked."""
    client, command = await client_command(context, STATEMENTS, STATEMENTS=statements)
    done = await tool.run_to_end(
        context, [*command, "-B", *([] if has_names else ["-N"])], name=name, cwd="/", what=client
    )
    return done.text
