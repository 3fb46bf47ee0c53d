"""Load from the headrace driver on a server of a test, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.programs import agent_path
from tests.servers import Server


def spec(connections: int, *statements: dict[str, Any], transaction: bool = False) -> dict[str, Any]:
    operation = {"name": "work", "transaction": transaction, "statements": list(statements)}
    workload = {"kind": "sql", "prepared": False, "operations": [operation]}
    return {"workload": workload, "connections": connections, "seconds": 60.0}


def load(server: Server, content: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
    return load_by(server.socket, content)


@contextlib.contextmanager
def load_by(socket: str, content: dict[str, Any]) -> Iterator[None]:
    """The same on a server that is known by its socket only."""
    argv = [agent_path(), "drive", "run", "-", "--mysql-socket", socket, "--mysql-user", "root"]
    with subprocess.Popen(
        [*argv, "--mysql-database", "shop"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(content))
        process.stdin.close()
        try:
            yield
            assert process.poll() is None, "the load ended early"
        finally:
            process.terminate()
