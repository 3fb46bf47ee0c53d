"""Whether a server lets a login in: asked once, before anything is watched."""

from __future__ import annotations

from headrace.base.errors import HeadraceError, TargetError
from headrace.base.model import ServerLogin
from headrace.host.agent import Agent
from headrace.hunt.rules.cause import is_full

HINT = "correct the login; --host-only examines the host alone"


def refused(why: str, place: str, hint: str = HINT) -> TargetError:
    """The error of a server that was named and not examined."""
    return TargetError(f"the server was not examined: {why.rstrip('.')}", place=place, hint=hint)


async def why_not(agent: Agent, login: ServerLogin) -> str:
    """Why the server does not let this login in now; empty if it does."""
    words = ("sample", "--duration", "0s", "--samplers", "mysql_status", *login.argv)
    try:
        async with agent.lines(*words) as lines:
            async for record in lines:
                if record.get("ok"):
                    return ""
                return plain(str(record.get("error") or "the server did not answer"))
    except HeadraceError as error:
        return error.message
    return "the server did not answer"


def plain(error: str) -> str:
    """What a sampler says of its login, without what it does next."""
    return error.partition("; tried again")[0]


def may_pass(why: str) -> bool:
    """Whether a server that says this may let the same login in later: it is full, or too busy to answer."""
    return is_full(why) or "did not answer" in why


async def demand(agent: Agent, login: ServerLogin, hint: str = HINT) -> None:
    """Raises TargetError if a login cannot succeed, whenever it is tried again."""
    why = await why_not(agent, login)
    if why and not may_pass(why):
        raise refused(why, agent.target.name, hint)
