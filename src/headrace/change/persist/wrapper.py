"""What mysqld_safe adds to a server's command line when it starts it again: it reads groups of its own.

Its script says which (mysqld_safe.sh of MariaDB and of MySQL 5.7): those of the server first, then its own.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from headrace.base.errors import NotReady
from headrace.lab.server.next_start import NextStart
from headrace.lab.server.option_files import Word, reading

_SAFE = re.compile(r"(^|/)(mysqld|mariadbd?)[_-]safe(\s|$)")
GROUPS = ("mysqld_safe", "safe_mysqld", "mariadb_safe", "mariadbd-safe")
#: What it hands on, in its own spelling of each.
_HANDED_ON = frozenset(
    {
        "basedir", "datadir", "log_error", "open_files_limit", "pid_file", "plugin_dir", "port", "socket", "user",
        "wsrep_on", "wsrep_provider",
    }
)  # fmt: skip


def is_safe(command: str) -> bool:
    """Whether a command is mysqld_safe, which may stand behind its shell."""
    return any(_SAFE.search(word) for word in command.split()[:3])


async def added(start: NextStart) -> list[Word]:
    """The options that mysqld_safe takes from its own groups for the next start; empty without it.

    Raises NotReady where it will start another program than the one that runs.
    """
    if not is_safe(start.process.parent):
        return []
    words = of_files(start)
    last = {word.option: word for word in words}
    program = start.process.program
    named = [last[option] for option in ("ledir", "mysqld") if option in last]
    folder = last["ledir"].value if "ledir" in last else posixpath.dirname(program)
    name = last["mysqld"].value if "mysqld" in last else posixpath.basename(program)
    if named and await _real(start, f"{folder}/{name}") != await _real(start, program):
        raise NotReady(
            f"{named[-1].place} has mysqld_safe start another program ({named[-1].text}): what that one makes of "
            "its options is not known",
            place=start.place,
            hint="restart the server first, then run this again",
        )
    return [word for word in words if word.option in _HANDED_ON]


def of_files(start: NextStart) -> list[Word]:
    """The lines of its own groups, in the order in which it reads them."""
    own = replace(start.start, arguments=start.start.defaults, groups=GROUPS)
    return [word for word in reading(start.copies, own).words if word.line]


async def _real(start: NextStart, path: str) -> str:
    ask = [*start.process.enter, "readlink", "-f", path]
    return (await start.target.run(ask, check=False, repeatable=True)).text.strip() or path
