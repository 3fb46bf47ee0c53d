"""Who waits for whom: connections as a tree, each with its age, its user and its last statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from headrace.host.activity import without_port
from headrace.hunt.lock_tree import LAST_UNKNOWN, tree
from headrace.hunt.top import lines
from headrace.hunt.top.lines import DIM, HOT, WARM, Cell, Column
from headrace.hunt.top.shot import Shot
from headrace.show.text import clean

#: Of a transaction or a wait, in seconds.
LONG_S, VERY_LONG_S = 1, 10
ROWS = "SELECT * FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = {}\\G"
NO_STATEMENT = "unknown: it executes nothing, and performance_schema has no last statement of it"


def locks(shot: Shot, sort: str) -> tuple[list[Column], list[tuple[str, list[Cell]]]]:
    """The tree, then the oldest transaction if nobody waits for it."""
    columns = [
        Column("connection", 12, right=False),
        Column("behind", 6, keep=4),
        Column("age s", 5),
        Column("idle s", 6, keep=5),
        Column("user", 16, right=False, keep=6),
        Column("lock", 30, right=False, keep=2),
        Column("statement", 0, right=False),
    ]
    found: list[tuple[str, list[Cell]]] = []
    for row in rows(shot):
        branch = "  " * (row["depth"] - 1) + "└ " if row["depth"] else ""
        age, idle = row["age_s"], row["idle_s"]
        cells: list[Cell] = [
            (f"{branch}{row['connection']}", "" if row["depth"] else "bold"),
            (str(row["behind"]), HOT if row["behind"] else DIM),
            _seconds(age),
            _seconds(idle),
            clean(row["who"]),
            clean(f"{row['lock']} {row['table']}".strip()),
            clean(row["statement"]) if row["statement"] else (LAST_UNKNOWN, DIM),
        ]
        found.append((row["connection"], cells))
    return columns, found


def rows(shot: Shot) -> list[dict[str, Any]]:
    """Of each connection in the tree: who, how long, what."""
    listed = _listed(shot, "locks")
    running = {str(row.get("id")): row for row in _listed(shot, "processlist")}
    holders = {str(row.get("holder")): row for row in listed if row.get("holder")}
    found = []
    drawn = tree([*listed, *running.values()])
    known = {row["connection"] for row in drawn}
    oldest = [row for row in listed if row.get("lock") == "open" and str(row.get("holder")) not in known]
    alone = [
        {"connection": str(row.get("holder")), "depth": 0, "behind": 0, "lock": "open", "table": row.get("table"),
         "statement": row.get("holder_class"), "waits_for": None}
        for row in oldest
    ]  # fmt: skip
    for row in [*drawn, *alone]:
        holds, runs = holders.get(row["connection"], {}), running.get(row["connection"], {})
        user = holds.get("holder_user") or runs.get("user") or ""
        host = without_port(str(holds.get("holder_host") or runs.get("host") or ""))
        age = holds.get("holder_open_s")
        found.append(
            {
                "connection": row["connection"],
                "depth": row["depth"],
                "behind": row["behind"],
                "age_s": age if age is not None else runs.get("time_s"),
                "idle_s": holds.get("holder_idle_s"),
                "who": f"{user}@{host}" if user and host else str(user),
                "lock": str(row.get("lock") or ""),
                "table": str(row.get("table") or ""),
                "statement": str(row.get("statement") or ""),
                "waits_for": row.get("waits_for"),
            }
        )
    return found


def kill(shot: Shot, name: str) -> str:
    """The statement that ends a connection of the tree; empty if there is none to end."""
    is_there = any(row["connection"] == name for row in rows(shot))
    return f"KILL {name};" if name.isdigit() and is_there else ""


def page(shot: Shot, name: str, width: int) -> list[Text]:
    """One connection, and the statement that would end it. It is for the user to send."""
    row = next((each for each in rows(shot) if each["connection"] == name), None)
    if row is None:
        return [Text("it waits for nobody any more, and nobody for it", DIM)]
    facts = [
        ("user", row["who"] or "unknown"),
        ("age", "unknown" if row["age_s"] is None else f"{float(row['age_s']):,.0f} s"),
        ("idle", "no" if row["idle_s"] is None else f"for {float(row['idle_s']):,.0f} s"),
        ("lock", f"{row['lock']} {row['table']}".strip()),
        ("waits for", f"connection {row['waits_for']}" if row["waits_for"] else "nobody"),
        ("behind it", f"{row['behind']} connections wait" if row["behind"] != 1 else "1 connection waits"),
    ]
    if row["idle_s"] is not None:
        facts.append(("rows", "how many it has locked and changed is not sampled; to see it:"))
    drawn = [Text(f"connection {clean(name)}", "bold"), Text()]
    for title, text in facts:
        drawn += [
            Text(f"{title if number == 0 else '':<11}", lines.HEADING).append_text(part)
            for number, part in enumerate(lines.wrap(clean(text), max(width - 11, 10)) or [Text()])
        ]
    if row["idle_s"] is not None and name.isdigit():
        drawn.append(Text(f"  {ROWS.format(name)}"))
    drawn += [Text(), Text("Its statement, or its last one", lines.HEADING)]
    drawn += lines.wrap(clean(row["statement"] or NO_STATEMENT), width)
    if name.isdigit():
        drawn += [
            Text(),
            Text("To end it, and roll back its transaction", lines.HEADING),
            Text(f"KILL {name};"),
        ]
        drawn += lines.wrap(
            "It is not sent from here. c copies it where the terminal allows that.", width, DIM
        )
    return drawn


def empty(shot: Shot) -> str:
    reason = shot.listed.get("processlist")
    if isinstance(reason, str):
        return reason
    return (
        "nobody waits for a lock, and no transaction has been open for 10 s"
        if "locks" in shot.listed
        else ("waiting for the first look at the process list")
    )


def _seconds(value: Any) -> Cell:
    if value is None:
        return "–"
    style = HOT if float(value) >= VERY_LONG_S else WARM if float(value) >= LONG_S else ""
    return (f"{float(value):,.0f}", style)


def _listed(shot: Shot, name: str) -> Sequence[Mapping[str, Any]]:
    found = shot.listed.get(name, ())
    return () if isinstance(found, str) else found
