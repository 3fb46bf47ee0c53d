"""Where the tests find the real programs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def agent_path() -> str:
    """The agent that belongs to this checkout: ``HEADRACE_AGENT``, or the one `make setup` built."""
    own = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")
    if not Path(own).exists():
        raise FileNotFoundError(f"{own}: run `make setup`")
    return own


def has(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None
