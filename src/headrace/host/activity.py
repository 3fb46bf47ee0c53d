"""What a server executed, and who waited for whose lock: looks at its process list, summed up as they come.

Without performance_schema a server counts no statements by class. Its process list, looked at once a second,
shows which classes run how often: the share of looks is the share of the time. Prepared statements are in it, too,
which MariaDB's digests leave out. Nothing here holds a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from typing import Any

from headrace.host.monitors import looks_at_server

#: Classes and locks kept: more would be those that were seen once.
MOST = 200
#: Texts of digests kept: the agent sends those of the busiest classes.
MOST_DIGESTS = 10_000
#: Sorts of sessions kept; of the others only the state, so that no session is lost from the sums.
MOST_SORTS = 2_000
#: Commands of threads that serve no client.
NOT_SERVING = frozenset(
    {"Sleep", "Daemon", "Binlog Dump", "Binlog Dump GTID", "Slave_IO", "Slave_SQL", "Slave_worker"}
)
#: MySQL shows some threads that replicate as queries, and all of them under this user.
REPLICATES = "system user"
#: In performance_schema they have neither a user nor a host; nor has a connection before its login.
LOGIN = "login"
#: Of the text of a class, in a sentence.
SHOWN = 120


@dataclass(frozen=True)
class StatementClass:
    """Statements that differ in their values only. ``sightings``: threads seen executing it, over all looks;
    ``rows``: the most rows that one of them had examined, None where the server does not tell."""

    text: str
    tables: tuple[str, ...]
    users: tuple[str, ...]
    sightings: int
    longest_s: float
    rows: float | None

    @property
    def short(self) -> str:
        return cut(self.text)


@dataclass(frozen=True)
class LockWait:
    """Waiters for one holder of one lock, summed over the looks. ``lock`` is ``row`` or ``metadata``; ``holder`` a
    connection, 0 where it is not known; ``is_certain``: the server names it, otherwise it is the oldest open
    transaction. ``seen_ago_s``: how old the last look was, 0 for a fresh one."""

    lock: str
    table: str
    holder: int
    holder_user: str
    holder_host: str
    holder_class: str
    holder_open_s: float
    holder_idle_s: float | None
    waiter_class: str
    is_certain: bool
    sightings: int
    seen_ago_s: float = 0.0

    @property
    def who(self) -> str:
        """The holder in words: ``connection 5 of root@localhost (idle for 12 s)``."""
        if not self.holder:
            return "a connection that the server does not name"
        user = f" of {self.holder_user}@{self.holder_host}" if self.holder_user else ""
        doing = []
        if self.holder_idle_s is not None:
            doing.append(f"idle for {self.holder_idle_s:,.0f} s")
        if self.holder_open_s:
            doing.append(f"its transaction is open for {self.holder_open_s:,.0f} s")
        when = f"{self.seen_ago_s:,.0f} s ago: " if self.seen_ago_s else ""
        more = f" ({when}{', '.join(doing)})" if doing else ""
        return f"connection {self.holder}{user}{more}"

    @property
    def what(self) -> str:
        """The holder's statement, or why it is not known."""
        if self.holder_class:
            return cut(self.holder_class)
        if not self.holder:
            return "unknown"
        return "unknown: it is not executing a statement, and performance_schema has no last statement of it"


@dataclass(frozen=True)
class SessionGroup:
    """Sessions at work that were seen alike, summed over the looks. ``text``: the class of their statement;
    ``host`` without its port; ``lock``: ``row`` or ``metadata`` if they waited for one, of ``table``, held by
    ``holder`` (a connection, 0 if that changes or is not known)."""

    text: str
    command: str
    state: str
    user: str
    host: str
    lock: str
    table: str
    holder: int
    sightings: int


@dataclass(frozen=True)
class Digest:
    """What performance_schema knows a class by, and its text without values."""

    digest: str
    text: str
    schema: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Lacking:
    """The indexes that a class asks for by its text and its tables. ``indexes``: ``DATABASE.TABLE(COLUMN,...)``,
    the first for most of its work; ``uses``: what for; ``notes``: its size, and what speaks against it;
    ``plan``: how the server runs it now, empty if it does not tell; ``why``: why no index is named."""

    digest: str
    indexes: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    plan: str = ""
    why: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Activity:
    """``looks``: how often the server was asked; ``classes`` and ``waits`` by sightings; ``error`` of the last
    look that failed."""

    looks: int
    classes: tuple[StatementClass, ...] = ()
    waits: tuple[LockWait, ...] = ()
    digests: tuple[Digest, ...] = ()
    error: str = ""
    #: Looks that the agent left out to spare the server.
    spared: int = 0
    #: Sessions at work, by sightings.
    sessions: tuple[SessionGroup, ...] = ()
    #: The oldest transaction at the last look, if it had been open for long (``lock`` is ``open``).
    oldest: LockWait | None = None
    #: Of the classes that took most of the time, or examined most rows.
    lacking: tuple[Lacking, ...] = ()

    def lacks(self, digest: str) -> Lacking | None:
        """By the beginning of its digest; None if it was not asked."""
        return next((each for each in self.lacking if each.digest.startswith(digest)), None)

    def threads(self, found: StatementClass | LockWait | SessionGroup) -> float:
        """How many threads were at it on average."""
        return found.sightings / self.looks if self.looks else 0.0

    def digest(self, digest: str) -> Digest | None:
        """By its beginning, which is all that the samples keep."""
        return next((each for each in self.digests if each.digest.startswith(digest)), None)

    def waits_for(self, lock: str) -> tuple[LockWait, ...]:
        return tuple(wait for wait in self.waits if wait.lock == lock)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Activity:
        """Raises ValueError if it is not what ``to_json`` wrote."""
        try:
            return cls(
                int(content["looks"]),
                tuple(StatementClass(**_tuples(row)) for row in content["classes"]),
                tuple(LockWait(**row) for row in content["waits"]),
                tuple(Digest(**_tuples(row)) for row in content["digests"]),
                str(content["error"]),
                int(content.get("spared", 0)),
                tuple(SessionGroup(**row) for row in content.get("sessions", ())),
                LockWait(**oldest) if (oldest := content.get("oldest")) else None,
                tuple(Lacking(**_tuples(row)) for row in content.get("lacking", ())),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"its activity is damaged: {error!r}") from error


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def without_port(host: str) -> str:
    """Of a client: ``10.0.0.7:51234`` -> ``10.0.0.7``. An IPv6 address alone stays whole."""
    try:
        ip_address(host)
    except ValueError:
        return host.rpartition(":")[0] or host
    return host


def cut(text: str, most: int = SHOWN) -> str:
    return text if len(text) <= most else f"{text[: most - 4].rstrip()} ..."


#: The fields of a ``SessionGroup`` before its sightings.
_Seen = tuple[str, str, str, str, str, str, str, int]


@dataclass
class _Class:
    tables: tuple[str, ...]
    users: set[str] = field(default_factory=set)
    sightings: int = 0
    longest_s: float = 0.0
    rows: float | None = None


class Looks:
    """Sums up the lines of ``headrace-agent statements --every``."""

    def __init__(self) -> None:
        self._looks = 0
        self._error = ""
        self._spared = 0
        self._classes: dict[str, _Class] = {}
        self._waits: dict[tuple[Any, ...], tuple[dict[str, Any], int]] = {}
        self._digests: dict[str, Digest] = {}
        self._sessions: dict[_Seen, int] = {}
        #: Those that look at the server, by connection.
        self._asking: dict[int, dict[_Seen, int]] = {}
        self._oldest: LockWait | None = None

    def add(self, line: Mapping[str, Any]) -> None:
        self._spared += int(line.get("spared") or 0)
        if line.get("error"):
            self._error = str(line["error"])
            return
        self._looks += 1
        rows = line.get("statements") or ()
        for row in rows:
            if row.get("lock") == "open":
                self._oldest = LockWait(**_values(row), sightings=1)
        rows = [row for row in rows if row.get("lock") != "open"]
        waits = {row.get("waiter"): row for row in rows if "lock" in row}
        for_rows = {row.get("waiter") for row in rows if row.get("lock") == "row"}
        for row in rows:
            if "id" in row:
                self._session(row, waits.get(row["id"]))
            if "digest" in row:
                self._digest(row)
            elif "lock" in row:
                # Rules name who has to end first: for a row that is nobody who waits for another.
                if row["lock"] != "row" or row.get("holder") not in for_rows:
                    self._wait(row)
            elif row.get("class") and row.get("id") not in waits:
                # One that waits for a lock costs the server nothing: its wait is counted instead.
                self._statement(row)

    def _session(self, row: Mapping[str, Any], wait: Mapping[str, Any] | None) -> None:
        command, user = str(row.get("command") or ""), str(row.get("user") or "")
        state = str(row.get("state") or "")
        is_of_server = (
            not user and not row.get("host") and command != "Connect" and LOGIN not in state.lower()
        )
        if command in NOT_SERVING or user == REPLICATES or is_of_server:
            return
        lasts = wait is not None and float(wait.get("holder_open_s") or 0) >= 1
        found: _Seen = (
            str(row.get("class") or ""),
            command,
            state,
            user,
            without_port(str(row.get("host") or "")),
            str(wait["lock"]) if wait else "",
            str(wait.get("table") or "") if wait else "",
            int(wait.get("holder") or 0) if wait and lasts else 0,
        )
        if found not in self._sessions and len(self._sessions) >= MOST_SORTS:
            found = ("", command, state, "", "", found[5], "", 0)
        # Whose it is, our other login's or another monitor's, is known at the end.
        asks = not found[0] or looks_at_server(found[0], ",".join(_tables(row)))
        known = asks and (row["id"] in self._asking or len(self._asking) < MOST_SORTS)
        sessions = self._asking.setdefault(row["id"], {}) if known else self._sessions
        sessions[found] = sessions.get(found, 0) + 1

    def _statement(self, row: Mapping[str, Any]) -> None:
        text = str(row["class"])
        if text not in self._classes and len(self._classes) >= 4 * MOST:
            rarest = min(self._classes, key=lambda known: self._classes[known].sightings)
            del self._classes[rarest]
        found = self._classes.setdefault(text, _Class(_tables(row)))
        found.sightings += 1
        found.longest_s = max(found.longest_s, float(row.get("time_s") or 0))
        if len(found.users) < 8:
            found.users.add(str(row.get("user") or ""))
        rows = row.get("examined_rows")
        if rows is not None:
            found.rows = max(found.rows or 0.0, float(rows))

    def _wait(self, row: Mapping[str, Any]) -> None:
        values = _values(row)
        # Of a hot row each transaction holds the lock for a moment: what matters is what they execute.
        lasting = values["holder"] if values["holder_open_s"] >= 1 or not values["is_certain"] else 0
        key = (
            values["lock"],
            values["table"],
            lasting,
            values["waiter_class"],
            "" if lasting else values["holder_class"],
        )
        known = self._waits.get(key)
        if known is None and len(self._waits) >= MOST:
            return
        self._waits[key] = (values, (known[1] if known else 0) + 1)

    def _digest(self, row: Mapping[str, Any]) -> None:
        digest = str(row["digest"])
        if digest not in self._digests and len(self._digests) >= MOST_DIGESTS:
            return
        self._digests[digest] = Digest(
            digest, str(row.get("digest_text") or "").strip(), str(row.get("schema") or ""), _tables(row)
        )

    def activity(self, own: Collection[float] = ()) -> Activity:
        """``own``: the numbers of our own other connections, whose questions are nobody's work."""
        sessions = Counter(self._sessions)
        for connection, seen in self._asking.items():
            if connection not in own:
                sessions.update(seen)
        classes = sorted(self._classes.items(), key=lambda pair: -pair[1].sightings)[:MOST]
        waits = sorted(self._waits.values(), key=lambda pair: -pair[1])
        return Activity(
            self._looks,
            tuple(
                StatementClass(text, c.tables, tuple(sorted(c.users)), c.sightings, c.longest_s, c.rows)
                for text, c in classes
            ),
            tuple(LockWait(**values, sightings=count) for values, count in waits),
            tuple(self._digests.values()),
            self._error,
            self._spared,
            tuple(
                SessionGroup(*found, count)
                for found, count in sorted(sessions.items(), key=lambda pair: -pair[1])
            ),
            self._oldest,
        )


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line's lock as a ``LockWait`` has it, without its sightings."""
    return {
        "lock": str(row["lock"]),
        "table": str(row.get("table") or ""),
        "holder": int(row.get("holder") or 0),
        "holder_user": str(row.get("holder_user") or ""),
        "holder_host": str(row.get("holder_host") or ""),
        "holder_class": str(row.get("holder_class") or ""),
        "holder_open_s": float(row.get("holder_open_s") or 0),
        "holder_idle_s": None if row.get("holder_idle_s") is None else float(row["holder_idle_s"]),
        "waiter_class": str(row.get("waiter_class") or ""),
        "is_certain": bool(row.get("is_certain")),
    }


def _tables(row: Mapping[str, Any]) -> tuple[str, ...]:
    """With their database where the statement leaves it out."""
    database = row.get("db") or row.get("schema")
    names = [str(name) for name in row.get("tables") or ()]
    return tuple(f"{database}.{name}" if database and "." not in name else name for name in names)


def summed(lines: Iterable[Mapping[str, Any]]) -> Activity:
    looks = Looks()
    for line in lines:
        looks.add(line)
    return looks.activity()
