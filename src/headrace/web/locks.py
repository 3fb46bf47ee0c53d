"""Who waits for whose lock, as a tree: at its root a connection that waits for nobody, below it all that wait."""

from __future__ import annotations

from headrace.hunt.lock_tree import LAST_UNKNOWN
from headrace.hunt.lock_tree import tree as tree
from headrace.web.asked import Asked
from headrace.web.listing import Column, Listing
from headrace.web.site import Site, one_host

#: The first column's cell is indented by ``depth`` of its row.
COLUMNS = (
    Column("connection", "Connection"),
    Column("waits_for", "Waits for", "text", "the connection that holds the lock; empty: it is not waiting"),
    Column("behind", "Behind it", "n", "connections that wait for this one, directly or through others"),
    Column("lock", "Lock", "chip"),
    Column("table", "Table", "code"),
    Column(
        "statement",
        "Its statement",
        "code",
        "of a connection that executes nothing its last one, if performance_schema has it",
        otherwise=LAST_UNKNOWN,
    ),
    Column("user", "User"),
    Column("open_s", "Open for", "age", "how long its transaction has been open"),
    Column(
        "is_certain", "Certain", "text", "whether the server itself names the connection that holds the lock"
    ),
)


async def waits(site: Site, asked: Asked) -> Listing:
    """Who waits for whose lock, now."""
    [name] = one_host(site, asked)
    watched = site.watched(name)
    rows = tree(watched.listed if watched else [])
    return Listing(COLUMNS, rows, "", no_look(site, name, "No connection is waiting for a lock."))


def no_look(site: Site, name: str, otherwise: str) -> str:
    watched = site.watched(name)
    if watched is None:
        return "This host is not being watched now."
    return watched.listed_problem or watched.problem or otherwise
