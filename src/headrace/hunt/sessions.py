"""What sessions do and wait for, on average: from looks at the list of threads. A resource like CPUs and disks.

The number of sessions at work at a moment, averaged over the moments, is the time that they spend per second
(average active sessions; J. Little, A Proof for the Queuing Formula, Operations Research 9.3, 1961). What takes
most of it is what a user waits for, wherever the server runs: nothing here needs the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.host.activity import Activity, LockWait, SessionGroup, cut
from headrace.host.monitors import looks_at_server
from headrace.host.window import Window

#: Sessions that wait for one thing, on average, above which it is more than a hand-over; and their share of all.
WAITERS, SHARE = 1.0, 0.25
#: Waits named in a sentence at most.
MOST_NAMED = 3
#: Sessions on average that are hardly any.
IDLE = 0.05
#: Looks at the process list, at least, for a mean over them.
FEWEST = 2

ROW, METADATA, TABLE, COMMIT, WORK = "row locks", "metadata locks", "table locks", "commits", ""
WHOLE, FLUSH, QUERY_CACHE = "a lock on the whole server", "a flush of tables", "the query cache"
LOGIN = "their login"
GALERA = "the cluster (Galera)"
APPLICATION = "locks of the application (GET_LOCK)"
#: A thread keeps the state of one that sends while it waits for a CPU: below this share of all sessions, or below
#: one session, it counts as work.
CLIENT, SENDING = "the network or their client", 0.5
#: Part of a thread's state in lower case -> what a session in it waits for; the first that fits.
STATES = (
    ("metadata lock", METADATA),
    ("global read lock", WHOLE),
    ("commit lock", WHOLE),
    ("backup lock", WHOLE),
    ("table flush", FLUSH),
    ("table level lock", TABLE),
    ("table lock", TABLE),
    ("user lock", APPLICATION),
    ("user sleep", "SLEEP() in their own statements"),
    ("query cache lock", QUERY_CACHE),
    ("semi-sync", "a replica's acknowledgement"),
    ("waiting for prior transaction", "earlier transactions"),
    ("wsrep", GALERA),
    ("certif", GALERA),
    ("commit", COMMIT),
    # MariaDB shows its log's sync after a commit as these.
    ("updating status", COMMIT),
    ("writing to binlog", COMMIT),
    ("login", LOGIN),
    ("to net", CLIENT),
    ("to client", CLIENT),
    ("from net", CLIENT),
)  # fmt: skip
#: What only people's statements ask for.
DELIBERATE = "SLEEP() in their own statements"
#: Temporary tables and sorts are work, of which states say more than of other work.
WORKS = (
    ("tmp table", "fill temporary tables"),
    ("converting heap", "move temporary tables to disk"),
    ("removing tmp", "fill temporary tables"),
    ("sort", "sort"),
    ("statistics", "plan"),
    ("opening table", "open tables"),
)


#: Beginnings of states, in lower case, of threads that apply the changes of a Galera cluster; clients have others.
OF_APPLIERS = (
    "wsrep applier", "wsrep aborter", "wsrep: aborter", "wsrep: applying", "wsrep: applied", "wsrep: committed",
    "wsrep: preparing to commit write set", "applied write set", "applying write set", "committed ",
)  # fmt: skip
#: Waits that threads that replicate have as well, the likeliest first.
ALSO_OF_REPLICATION = ("earlier transactions", GALERA, COMMIT, WHOLE, METADATA)


def is_of_applier(state: str) -> bool:
    """Whether a thread in this state applies changes of a Galera cluster."""
    return state.lower().startswith(OF_APPLIERS)


def wait_of(command: str, state: str, lock: str = "", text: str = "") -> str:
    """What a session at work waits for; empty if it executes, on a CPU or in I/O: SQL does not tell which."""
    if lock:
        return ROW if lock == "row" else METADATA
    low = state.lower()
    known = _known(low)
    # The server reads the client's next packet, and nobody is logged in yet.
    if known and not (known == CLIENT and command == "Connect" and not text):
        return known
    if text.lstrip().lower().startswith("commit"):
        return COMMIT
    # MariaDB's events are executed by threads that say Connect, too.
    if command == "Connect" and not text:
        return LOGIN
    return low.removeprefix("waiting for ") if low.startswith("waiting for ") else WORK


def _known(state: str) -> str:
    return next((wait for part, wait in STATES if part in state), "")


def work_of(state: str) -> str:
    """What a session that executes does, as far as its state says more than that."""
    low = state.lower()
    return next((work for part, work in WORKS if part in low), "")


@dataclass(frozen=True)
class Share:
    """So many sessions on average, by one of what tells them apart."""

    name: str
    sessions: float


@dataclass(frozen=True)
class Load:
    """Sessions at work on average: ``active`` all of them, ``waits`` by what they wait for, the most first,
    ``executing`` the others. ``looks``: how often the list was read. ``groups``: as they were seen, with what each
    waits for; empty where only the states are known."""

    looks: int
    active: float
    waits: tuple[Share, ...]
    executing: float
    groups: tuple[tuple[SessionGroup, str, float], ...] = ()

    def waiting(self, wait: str) -> float:
        return next((each.sessions for each in self.waits if each.name == wait), 0.0)

    @property
    def worst(self) -> Share | None:
        """What most of those wait for that wait, if it is more than hand-overs."""
        found = [each for each in self.waits if each.name != DELIBERATE]
        first = found[0] if found else None
        is_much = first is not None and first.sessions >= max(WAITERS, SHARE * self.active)
        return first if is_much else None

    def by(self, what: str) -> list[Share]:
        """``text``, ``state``, ``user``, ``host``, ``table``, ``command`` or ``wait`` -> sessions, most first."""
        found: dict[str, float] = {}
        for group, wait, mean in self.groups:
            name = wait or "executing" if what == "wait" else str(getattr(group, what))
            found[name] = found.get(name, 0.0) + mean
        return [Share(name, mean) for name, mean in sorted(found.items(), key=lambda pair: -pair[1])]


def at_work(load: Load) -> float:
    """Active sessions without those that look at the server itself, as our own do: behind others that fill the
    CPUs, each of our questions takes long."""
    looking = sum(mean for group, _, mean in load.groups if looks_at_server(group.text, group.table))
    return max(load.active - looking, 0.0)


def of_activity(activity: Activity | None) -> Load | None:
    """None where nobody looked, or not often enough."""
    if activity is None or activity.looks < FEWEST:
        return None
    groups = tuple(
        (each, wait_of(each.command, each.state, each.lock, each.text), activity.threads(each))
        for each in activity.sessions
    )
    return _load(activity.looks, ((wait, mean) for _, wait, mean in groups), groups)


def of_window(window: Window) -> Load | None:
    """From the samples alone, which know states but neither who is in them nor who waits for a row."""
    if "processlist" not in window.samplers():
        return None
    looks = len(window.values("processlist", "serving"))
    if looks < FEWEST:
        return None
    means = {
        state: float(window.values("processlist", "states", state).sum()) / looks
        for state in window.labels("processlist", "states")
    }
    serving = float(window.values("processlist", "serving").sum()) / looks
    serving -= min(sum(mean for state, mean in means.items() if is_of_applier(state)), serving)
    means = {state: mean for state, mean in means.items() if not is_of_applier(state)}
    # Other states that begin with "waiting" may be of threads that replicate.
    found: dict[str, float] = {}
    for state, mean in means.items():
        if wait := _known(state.lower()):
            found[wait] = found.get(wait, 0.0) + mean
    # More that wait than serve clients: states are counted without the command of their thread.
    excess = max(sum(found.values()) - serving, 0.0)
    for wait in ALSO_OF_REPLICATION:
        left = max(found.get(wait, 0.0) - excess, 0.0)
        excess -= found.pop(wait, 0.0) - left
        if left > 0:
            found[wait] = left
    current = window.gauge("mysql_status", "innodb_row_lock_current_waits")
    rows = current.mean if current is not None else 0.0
    waiting = sum(found.values()) + rows
    return _load(looks, [*found.items(), (ROW, rows), (WORK, max(serving - waiting, 0.0))], ())


#: Commands of threads that serve no client, yet count in Threads_running: on a source one for each replica that
#: it feeds, on MariaDB also each thread that replicates, and tasks of the server.
BACKGROUND = ("Binlog Dump", "Slave_", "Daemon")


def running(window: Window, replicas: int = 0) -> float | None:
    """The mean of Threads_running without threads that serve no client, as far as the process list tells them
    apart; without a list, only without those of its ``replicas``. One of them is the sampler's. None where it was
    not sampled."""
    counted = window.gauge("mysql_status", "threads_running")
    if counted is None:
        return None
    looks = len(window.values("processlist", "serving"))
    if not looks:
        return max(counted.mean - replicas, 0.0)
    threads = window.labels("processlist", "threads")
    background = [
        window.values("processlist", "threads", name) for name in threads if name.startswith(BACKGROUND)
    ]
    background += [
        window.values("processlist", "states", state)
        for state in window.labels("processlist", "states")
        if is_of_applier(state)
    ]
    return max(counted.mean - sum(float(values.sum()) for values in background) / looks, 0.0)


def client_mbit_s(window: Window) -> float | None:
    """Mbit/s that the server exchanges with its clients, the larger way; None where it was not asked."""
    ways = [window.rate("mysql_status", f"bytes_{way}") for way in ("sent", "received")]
    known = [rate for rate in ways if rate is not None]
    return max(known) * 8 / 1e6 if known else None


def load_of(window: Window, activity: Activity | None) -> Load | None:
    """The sessions' load, from the looks at single sessions or else from the samples; None without either."""
    return of_activity(activity) or of_window(window)


def _load(
    looks: int,
    found: Iterable[tuple[str, float]],
    groups: tuple[tuple[SessionGroup, str, float], ...],
) -> Load:
    waits: dict[str, float] = {}
    for wait, mean in found:
        waits[wait] = waits.get(wait, 0.0) + mean
    if waits.get(CLIENT, 0.0) < max(SENDING * sum(waits.values()), WAITERS):
        waits[WORK] = waits.get(WORK, 0.0) + waits.pop(CLIENT, 0.0)
    executing = waits.pop(WORK, 0.0)
    each = sorted((Share(name, mean) for name, mean in waits.items() if mean > 0), key=lambda s: -s.sessions)
    return Load(looks, executing + sum(share.sessions for share in each), tuple(each), executing, groups)


def named(load: Load) -> list[Share]:
    """The waits that the sentence names."""
    return [share for share in load.waits[:MOST_NAMED] if share.sessions >= 0.1]


def sentence(load: Load, activity: Activity | None, cpus: int | None = None) -> str:
    """``8.2 sessions are active on average: 5.1 wait for row locks of shop.orders, held by connection 7 ...``"""
    if load.active < IDLE:
        return "Hardly any session is active."
    parts = []
    for share in named(load):
        parts.append(f"{share.sessions:.1f} wait for {share.name}{_held(load, activity, share.name)}")
    if load.executing >= 0.05:
        parts.append(f"{load.executing:.1f} execute{_works(load)}{_on(load.executing, cpus)}")
    verb = "session is" if 0.95 <= load.active < 1.05 else "sessions are"
    return f"{load.active:.1f} {verb} active on average: {', '.join(parts)}."


def _held(load: Load, activity: Activity | None, wait: str) -> str:
    """Of which table, and held by whom."""
    if wait not in (ROW, METADATA) or activity is None:
        return ""
    tables: dict[str, float] = {}
    for group, found, mean in load.groups:
        if found == wait and group.table:
            tables[group.table] = tables.get(group.table, 0.0) + mean
    table = f" of {max(tables, key=lambda name: tables[name])}" if tables else ""
    holder = next(iter(activity.waits_for("row" if wait == ROW else "metadata")), None)
    return table + (f", {_by(holder)}" if holder is not None else "")


def _by(wait: LockWait) -> str:
    probably = "" if wait.is_certain else "probably "
    if wait.holder and (wait.holder_open_s >= 1 or not wait.is_certain):
        return f"{probably}held by {wait.who}"
    return (
        f"held by transactions that execute {cut(wait.holder_class)}"
        if wait.holder_class
        else ("held by short transactions")
    )


def _works(load: Load) -> str:
    """The class that most of those who execute are at."""
    classes: dict[str, float] = {}
    for group, wait, mean in load.groups:
        if wait == WORK and group.text:
            classes[group.text] = classes.get(group.text, 0.0) + mean
    most = max(classes, key=lambda text: classes[text], default="")
    if not most or classes[most] < max(0.25, load.executing / 3):
        return ""
    return f" ({classes[most]:.1f} of them {cut(most, 80)})"


def _on(executing: float, cpus: int | None) -> str:
    if cpus is None:
        return ""
    more = ": more than these can run at a time" if executing > cpus else ""
    return f" on {cpus} CPUs{more}"


def as_json(load: Load) -> Mapping[str, object]:
    """For programs: means of sessions."""
    return {
        "looks": load.looks,
        "active": load.active,
        "executing": load.executing,
        "waits": {share.name: share.sessions for share in load.waits},
        "by": {
            what: {share.name: share.sessions for share in load.by(what)[:20]}
            for what in ("wait", "state", "user", "host", "command", "text", "table")
        },
    }
