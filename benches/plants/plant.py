"""What a plant is."""

from __future__ import annotations

from dataclasses import dataclass

from benches.plants.beside import Beside
from benches.plants.loads import BOTH, READS, Load

from headrace.knobs.knob import Versions

ANY = Versions()


@dataclass(frozen=True)
class Plant:
    """One cause. ``finds``: codes of rules that name it; ``says``, ``adviser``: patterns of a verdict, and of an
    adviser's line, that do. ``also``: other limits and costs that are true of it."""

    name: str
    what: str
    finds: tuple[str, ...]
    says: str
    load: Load = READS
    options: tuple[str, ...] = ()
    #: Options of the healthy server, too: what the load needs so that nothing else is wrong with it.
    given: tuple[str, ...] = ()
    #: Statements to run before the load, and those that undo what a restart does not.
    sql: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    beside: Beside | None = None
    servers: tuple[str, ...] = BOTH
    #: What an adviser would say.
    adviser: str = ""
    also: tuple[str, ...] = ()
    #: False for what only people can change, and for risks, which cost nothing today.
    has_remedy: bool = True
    #: Counts logins in place of the driver's operations.
    counts_logins: bool = False
    #: Seconds to watch, for what is sampled rarely; 0: as long as all others.
    seconds: int = 0
    #: Servers that have what is planted, of those above.
    versions: Versions = ANY
