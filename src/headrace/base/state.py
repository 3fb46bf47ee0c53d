"""Where headrace keeps a user's own files between commands."""

from __future__ import annotations

import os
from pathlib import Path


def state_path(name: str) -> Path:
    """A file that headrace keeps for this user between commands."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "headrace" / name
