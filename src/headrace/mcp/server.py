"""The tools on standard input and output, by the protocol's own SDK."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from headrace import __version__
from headrace.base.errors import HeadraceError
from headrace.mcp.library import Library
from headrace.mcp.tools import Answer, Tools
from headrace.mcp.untrusted import RULE, sealed, untrusted

log = logging.getLogger("headrace.mcp")

INSTRUCTIONS = (
    "Evidence of headrace about MySQL and MariaDB servers and hosts. A ratio is relative to a baseline, with "
    "its confidence interval; say the verdict's word, the interval and the id when you use one. 'not enough data' "
    f"is not 'no difference'. Every tool only reads. {RULE}"
)


def build(root: Path) -> MCPServer[Any]:
    """Raises PlanError if there is no such directory."""
    tools = Tools(Library.of(root))
    server: MCPServer[Any] = MCPServer(
        "headrace", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR"
    )
    for work in (
        tools.list_evidence,
        tools.experiment,
        tools.hunt_findings,
        tools.query_classes,
        tools.fleet_drift,
        tools.history,
    ):
        server.add_tool(
            _checked(work),
            name=work.__name__,
            description=" ".join((work.__doc__ or "").split()),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )
    return server


def _checked(work: Callable[..., Answer]) -> Callable[..., Answer]:
    """No string goes out that is neither ours nor marked. An error of ours is an answer that the assistant can act
    on; anything else stays in the log.
    """

    @functools.wraps(work)
    def checked(*given: Any, **named: Any) -> Answer:
        try:
            return dict(sealed(work(*given, **named)))
        except HeadraceError as error:
            # It quotes what is in files and in their names.
            raise ToolError(json.dumps(untrusted(error))) from error
        except Exception as error:
            log.exception("%s failed", work.__name__)
            # Its words may quote a file.
            raise ToolError(
                f"{work.__name__} failed: this is a bug of headrace, its log has the details"
            ) from error

    return checked
