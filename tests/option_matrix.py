"""The matrix {knob x winner of the last word x server}, one winner at a time: run inside an option lab.

    python -m tests.option_matrix STATE SOCKET '{"max_connections": "77"}'

prints as JSON what `apply --persist files` did for each knob by itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.base.model import ServerLogin
from headrace.change import apply as rollout
from headrace.host.agent import Agent
from headrace.host.target.local import LocalTarget


async def cells(state: str, socket: str, asked: dict[str, str]) -> dict[str, Any]:
    """Knob -> what was promised, or why not."""
    target = LocalTarget()
    agent = await Agent.install(target)
    login = ServerLogin(socket=socket, user="root")
    found: dict[str, Any] = {}
    for knob, value in asked.items():
        name = f"server.{knob}"
        try:
            plan = await rollout.prepare(agent, {name: value}, login, allow_weaker=[name], lasting="files")
            await rollout.carry_out(agent, plan, login, state=state)
            found[knob] = {"promised": value}
        except HeadraceError as error:
            found[knob] = {"refused": error.message, "kind": type(error).__name__}
    await target.close()
    return found


if __name__ == "__main__":
    state_, socket_, plan_ = sys.argv[1:]
    print(json.dumps(asyncio.run(cells(state_, socket_, json.loads(plan_)))))
