"""The screens that are lists: processes and threads, statements, the processlist, findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from headrace.base.counted import counted
from headrace.host.activity import Activity
from headrace.host.monitors import looks_at_server
from headrace.hunt.hot_cores import FULL
from headrace.hunt.lock_tree import LAST_UNKNOWN
from headrace.hunt.report.words import SEVERITY_STYLE, remedy_text
from headrace.hunt.resources import BUSY
from headrace.hunt.top import lines
from headrace.hunt.top.lines import DIM, HOT, WARM, Cell, Column, gibibytes, rate
from headrace.hunt.top.shot import Shot
from headrace.hunt.users import TICKS_PER_SECOND
from headrace.show.text import clean

#: Area of rules -> the screen that shows more of what it is about.
HERE = {"LOCK": "key 7, who waits for whom", "STMT": "key 3, the statements"}
#: One list: its columns, and its rows, each with its name.
Rows = list[tuple[str, list[Cell]]]
SERVERS = ("mysqld", "mariadbd")
IDLE = "idle in transaction"
#: What lists the connections that sleep: for the user to send.
ASLEEP = (
    "SELECT user, SUBSTRING_INDEX(host, ':', 1) AS client, COUNT(*), MAX(time) "
    "FROM information_schema.PROCESSLIST WHERE command = 'Sleep' GROUP BY 1, 2;"
)
#: A statement that only looks at the server and takes longer than this costs something: it is listed.
LONG_LOOK_S = 1.0


def tasks(shot: Shot, sort: str) -> tuple[list[Column], Rows]:
    """The server's threads if they are sampled, otherwise all processes that used CPU."""
    if "threads" in shot.now.samplers():
        return _threads(shot, sort)
    return _processes(shot, sort)


def _processes(shot: Shot, sort: str) -> tuple[list[Column], Rows]:
    columns = [
        Column("pid", 8),
        Column("process", 0, right=False),
        Column("%cpu", 6),
        Column("%user", 6, keep=5),
        Column("%system", 7, keep=5),
        Column("memory", 9),
        Column("read MB/s", 9, keep=4),
        Column("write MB/s", 10, keep=4),
        Column("waits/s", 8, keep=2),
        Column("preempted/s", 11, keep=1),
    ]
    window = shot.now

    def of(metric: str, label: str) -> float | None:
        return window.rate("process", metric, label)

    found = []
    for label in window.labels("process", "utime_ticks"):
        user, system = of("utime_ticks", label), of("stime_ticks", label)
        if user is None or system is None:
            continue
        pid, _, name = label.partition("/")
        used = 100 * (user + system) / TICKS_PER_SECOND
        memory = window.last("process", "rss_bytes", label) or 0.0
        reads, writes = of("read_bytes", label), of("write_bytes", label)
        key = memory if sort == "memory" else (reads or 0) + (writes or 0) if sort == "io" else used
        cells: list[Cell] = [
            pid,
            (clean(name), "bold" if name in SERVERS else ""),
            (f"{used:.0f}", HOT if used >= 100 * FULL else WARM if used >= 100 * BUSY else ""),
            f"{100 * user / TICKS_PER_SECOND:.0f}",
            f"{100 * system / TICKS_PER_SECOND:.0f}",
            gibibytes(memory),
            "–" if reads is None else f"{reads / 1e6:.1f}",
            "–" if writes is None else f"{writes / 1e6:.1f}",
            rate(of("voluntary_switches", label)),
            rate(of("involuntary_switches", label)),
        ]
        found.append((key, label, cells))
    found.sort(key=lambda row: -row[0])
    return columns, [(label, cells) for _, label, cells in found]


def _threads(shot: Shot, sort: str) -> tuple[list[Column], Rows]:
    """Labels are ``tid/name``.

    Columns are its shares of a CPU's time, and of the time that it was ready and had none. A server with hundreds
    of threads has each looked at once in a while, so the rates are over a longer time than the others'.
    """
    window = shot.recent
    times = ("utime_ticks", "stime_ticks")
    columns = [
        Column("thread", 8),
        Column("name", 0, right=False),
        Column("%cpu", 6),
        Column("%user", 6, keep=5),
        Column("%system", 7, keep=5),
        Column("%waits for cpu", 14, keep=4),
    ]
    rows: list[tuple[float, str, list[Cell]]] = []
    for label in window.labels("threads", "utime_ticks"):
        spent = [window.rate("threads", metric, label) for metric in times]
        if not any(spent):
            continue
        shares = [None if value is None else value / TICKS_PER_SECOND for value in spent]
        used = sum(share for share in shares if share is not None)
        tid, _, name = label.partition("/")
        style = HOT if used >= FULL else WARM if used >= BUSY else ""
        cells: list[Cell] = [tid, clean(name), (lines.percent(used).rstrip("%"), style)]
        cells += [lines.percent(share).rstrip("%") for share in shares]
        waited_ns = window.rate("threads", "runqueue_ns", label)
        cells.append(lines.percent(None if waited_ns is None else waited_ns / 1e9).rstrip("%"))
        rows.append(((waited_ns or 0.0) if sort.startswith("waits") else used, label, cells))
    rows.sort(key=lambda row: -row[0])
    return columns, [(label, cells) for _, label, cells in rows]


def statements(shot: Shot, sort: str) -> tuple[list[Column], Rows]:
    """Digests by their cost per second since the last refresh; without them, what was seen to run."""
    if not _digests(shot) and shot.activity is not None and shot.activity.classes:
        return _seen(shot.activity)
    columns = [
        Column("time/s", 8),
        Column("calls/s", 8),
        Column("ms/call", 8),
        Column("rows seen/s", 11, keep=4),
        Column("rows sent/s", 11, keep=4),
        Column("schema", 10, right=False, keep=2),
        Column("statement", 0, right=False),
    ]
    rows = [*(row for row in _digests(shot) if not _is_own(row)), *_prepared(shot)]
    key = {"calls": "calls", "rows": "rows_examined"}.get(sort, "time_s")
    found: Rows = []
    for row in sorted(rows, key=lambda row: -float(row.get(key) or 0)):
        calls, time_s = row.get("calls"), row.get("time_s")
        mean = 1e3 * time_s / calls if calls and time_s is not None else None
        cells: list[Cell] = [
            (f"{time_s:.3f}" if time_s is not None else "–", HOT if time_s and time_s >= 1 else ""),
            rate(calls),
            lines.duration(mean),
            rate(row.get("rows_examined")),
            rate(row.get("rows_sent")),
            clean(row.get("schema") or ""),
            clean(row.get("digest_text") or row.get("text") or ""),
        ]
        found.append((str(row.get("digest") or row.get("text")), cells))
    return columns, found


def _is_own(row: Mapping[str, Any]) -> bool:
    """Whether headrace, or another monitor, sent it."""
    text = str(row.get("text") or row.get("digest_text") or row.get("class") or "")
    return looks_at_server(text, ", ".join(map(str, row.get("tables") or ())))


def _is_short_look(row: Mapping[str, Any]) -> bool:
    """A look at the server that takes long is work like any other, whoever sent it."""
    return _is_own(row) and float(row.get("time_s") or 0) < LONG_LOOK_S


def notes(shot: Shot, screen: str) -> list[str]:
    """What a list leaves out, and what it cannot know: sentences to stand below it."""
    found = []
    if screen in ("processlist", "locks") and shot.looked_ago_s:
        found.append(
            f"Seen {shot.looked_ago_s:,.0f} s ago, and the ages are of then: the process list is looked at less "
            "often where that costs the server more than 1% of its time."
        )
    if screen == "processlist" and (asleep := shot.now.last("processlist", "threads", "Sleep")):
        found.append(
            f"{counted(round(asleep), 'connection')} asleep. Those with an open transaction are listed, the "
            f"others are not sampled one by one; by user and host: {ASLEEP}"
        )
    if screen == "processlist" and (left_out := sum(map(_is_short_look, _listed(shot, "processlist")))):
        found.append(
            f"{counted(left_out, 'short look')} at the server left out: headrace's own or another monitor's."
        )
    if screen == "threads" and "threads" in shot.now.samplers():
        found.append(
            "Threads of every MySQL and MariaDB server of this host. Which connection a thread serves is "
            "not sampled."
        )
    if screen == "statements" and not shot.server_problem:
        looks = shot.activity.looks if shot.activity else 0
        asked = shot.now.rate("mysql_status", "questions")
        if not _digests(shot) and looks:
            rate_s = "" if asked is None else f" The server gets {rate(asked)} statements/s."
            found.append(
                f"No digests of performance_schema: this is what ran in the last {counted(looks, 'look')} at the "
                f"process list, where short statements are seldom seen.{rate_s}"
            )
        elif executed := shot.now.rate("mysql_status", "com_stmt_execute"):
            found.append(
                f"No digest counts prepared statements, {rate(executed)}/s: those come from "
                f"{counted(looks, 'look')} at the process list, where short ones are seldom seen."
            )
    return found


def _prepared(shot: Shot) -> list[dict[str, Any]]:
    """Prepared statements, which no digest counts: how many threads were at each on average."""
    if shot.activity is None:
        return []
    found: dict[str, float] = {}
    for group in shot.activity.sessions:
        if group.command == "Execute" and group.text and not group.lock:
            found[group.text] = found.get(group.text, 0.0) + shot.activity.threads(group)
    return [
        {"text": text, "digest_text": f"{text} (prepared, as seen in the process list)", "time_s": mean}
        for text, mean in found.items()
        if not looks_at_server(text, "")
    ]


def _seen(activity: Activity) -> tuple[list[Column], Rows]:
    """Classes of running statements by how many threads were at them, over the last looks."""
    columns = [
        Column("threads", 8),
        Column("longest s", 9, keep=5),
        Column("rows seen", 11, keep=4),
        Column("tables", 18, right=False, keep=2),
        Column("statement (seen in the process list)", 0, right=False),
    ]
    found: Rows = []
    for each in activity.classes:
        if looks_at_server(each.text, ", ".join(each.tables)):
            continue
        threads = activity.threads(each)
        cells: list[Cell] = [
            (f"{threads:.1f}", HOT if threads >= 1 else ""),
            f"{each.longest_s:,.0f}",
            rate(each.rows),
            clean(", ".join(each.tables)),
            clean(each.text),
        ]
        found.append((each.text, cells))
    return columns, found


def _digests(shot: Shot) -> list[dict[str, Any]]:
    """Rates per second of each digest, with its text if the server was queried for it."""
    listed = _listed(shot, "statements")
    window = shot.seldom
    if window is None or "statements" not in window.samplers():
        return [dict(row) for row in listed]
    texts = {str(row.get("digest"))[:16]: row for row in listed}
    found = []
    for digest, calls in window.rates("statements", "count").items():
        if calls <= 0:
            continue
        of = {
            name: window.rate("statements", name, digest)
            for name in ("time_ns", "rows_examined", "rows_sent")
        }
        row = texts.get(digest, {})
        time_s = None if of["time_ns"] is None else of["time_ns"] / 1e9
        text = row.get("text") or row.get("digest_text") or f"digest {digest}"
        found.append(
            {
                **of,
                "digest": str(row.get("digest") or digest),
                "calls": calls,
                "time_s": time_s,
                "text": text,
                "schema": row.get("schema"),
                "tables": row.get("tables"),
            }
        )
    return found


def summary(shot: Shot, width: int) -> list[Text]:
    """How many threads of the server are in each state, which is all that the samplers keep of the processlist."""
    window = shot.now
    if "processlist" not in window.samplers():
        return []

    def told(metric: str, unit: str = "") -> list[Cell]:
        labels = window.labels("processlist", metric)
        pairs = sorted(
            ((window.last("processlist", metric, label) or 0, label) for label in labels), reverse=True
        )
        return [clean(f"{value:,.0f}{unit} {label or '(no state)'}") for value, label in pairs if value > 0]

    drawn: list[Text] = []
    for title, parts in (
        ("threads  ", told("threads")),
        ("states   ", told("states")),
        ("longest  ", told("longest_s", " s")),
    ):
        drawn += lines.flow(title, parts or [("none", DIM)], width)
    return [*drawn, Text()]


def processlist(shot: Shot, sort: str) -> tuple[list[Column], Rows]:
    """Running statements, longest first. Enter requests the plan of one."""
    columns = [
        Column("id", 8),
        Column("user", 10, right=False, keep=5),
        Column("host", 14, right=False, keep=1),
        Column("db", 10, right=False, keep=3),
        Column("time s", 8),
        Column("state", 19, right=False, keep=6),
        Column("statement", 0, right=False),
    ]
    orders: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "user": lambda row: str(row.get("user") or ""),
        "state": lambda row: str(row.get("state") or ""),
    }
    by_time: Callable[[Mapping[str, Any]], Any] = lambda row: -float(row.get("time_s") or 0)  # noqa: E731
    found: Rows = []
    rows = [row for row in _listed(shot, "processlist") if not _is_short_look(row)]
    for row in sorted([*rows, *_asleep(shot)], key=orders.get(sort, by_time)):
        time_s = float(row.get("time_s") or 0)
        cells: list[Cell] = [
            str(row.get("id") or ""),
            clean(row.get("user") or ""),
            clean(row.get("host") or ""),
            clean(row.get("db") or ""),
            (f"{time_s:,.1f}", HOT if time_s >= 10 else WARM if time_s >= 1 else ""),
            clean(row.get("state") or row.get("command") or ""),
            clean(row.get("text") or row.get("class") or ""),
        ]
        found.append((str(row.get("id")), cells))
    return columns, found


def findings(shot: Shot, sort: str) -> tuple[list[Column], Rows]:
    """Findings of the last minute, worst first."""
    columns = [
        Column("finding", 16, right=False),
        Column("severity", 10, right=False, keep=5),
        Column("what", 0, right=False),
    ]
    if shot.judgement is None:
        return columns, []
    found: Rows = []
    for finding in shot.judgement.findings:
        cells: list[Cell] = [
            clean(finding.id),
            (str(finding.severity), SEVERITY_STYLE[finding.severity]),
            clean(finding.hit.summary),
        ]
        found.append((finding.id, cells))
    return columns, found


def detail(shot: Shot, screen: str, name: str, width: int) -> list[Text]:
    """The whole text of a statement, of which the list shows the beginning."""
    row: Mapping[str, Any] | None = None
    if screen == "processlist":
        rows = [*_listed(shot, "processlist"), *_asleep(shot)]
        row = next((each for each in rows if str(each.get("id")) == name), None)
        if row is None:
            return []
        host = str(row.get("host") or "")
        who = f"connection {name} of {row.get('user') or '?'}" + (f"@{host}" if host else "")
        drawn = lines.wrap(
            clean(f"{who}, {row.get('state') or row.get('command') or 'no state'}"), width, "bold"
        )
        text = str(row.get("text") or row.get("class") or "executes no statement")
    elif screen == "statements":
        digests = {str(each.get("digest") or each.get("text")): each for each in _digests(shot)}
        known = digests.get(name, {})
        drawn, text = [], str(known.get("digest_text") or known.get("text") or name)
    else:
        return []
    is_idle = screen == "processlist" and row is not None and row.get("state") == IDLE
    hint = [] if is_idle else [Text("enter: its plan", DIM)]
    return [*drawn, *lines.wrap(clean(text), width), *hint]


def _asleep(shot: Shot) -> list[Mapping[str, Any]]:
    """Connections that sleep in a transaction, which the list of locks knows."""
    running = {row.get("id") for row in _listed(shot, "processlist")}
    found = {
        row["holder"]: {
            "id": row["holder"],
            "user": row.get("holder_user"),
            "host": row.get("holder_host"),
            "time_s": row["holder_idle_s"],
            "state": IDLE,
            "class": row.get("holder_class") or LAST_UNKNOWN,
        }
        for row in _listed(shot, "locks")
        if row.get("holder") not in (None, 0, *running) and row.get("holder_idle_s") is not None
    }
    return list(found.values())


def finding_page(shot: Shot, name: str, width: int) -> list[Text]:
    """One finding: its evidence, why it matters, its fixes, what would refute it."""
    found = [f for f in (shot.judgement.findings if shot.judgement else ()) if f.id == name]
    if not found:
        return [Text("no longer found", DIM)]
    finding = found[0]
    drawn = [Text(clean(f"{finding.id}  {finding.rule.title}"), "bold"), Text()]
    drawn += [*lines.wrap(clean(finding.hit.summary), width), Text()]
    drawn += [Text(clean(f"  {number.what}: {number.value}")) for number in finding.hit.evidence]
    for title, text in (("Why", finding.rule.why), ("Refuted if", finding.rule.refute)):
        drawn += [Text(), Text(title, lines.HEADING), *lines.wrap(clean(text), width)]
    for number, remedy in enumerate(finding.hit.remedies):
        title = "Or" if number else "Fix"
        drawn += [Text(), Text(title, lines.HEADING), *lines.wrap(clean(remedy_text(remedy)), width)]
    drawn += [Text(), Text(clean(f"Source: {finding.rule.source}"), DIM)]
    # Who is here already needs no command to get here.
    here = HERE.get(finding.rule.area, "key 4, the process list")
    next_ = here if finding.next_command == "headrace top" else finding.next_command
    drawn += [Text(), Text(clean(f"Next: {next_}"))]
    return drawn


def _listed(shot: Shot, name: str) -> Sequence[Mapping[str, Any]]:
    rows = shot.listed.get(name, ())
    return () if isinstance(rows, str) else rows


def empty(shot: Shot, screen: str) -> str:
    """Why a list has no rows."""
    if screen in ("statements", "processlist"):
        if screen == "statements" and "statements" in shot.errors:
            waiting = sum(wait.sightings for wait in shot.activity.waits) if shot.activity else 0
            seen = "; all that was seen to run waits for locks: see the findings" if waiting else ""
            return f"{shot.errors['statements']}{seen}"
        reason = shot.listed.get(screen)
        if isinstance(reason, str):
            return reason
        if shot.server_problem:
            return f"the server is unreachable: {shot.server_problem}"
        if "mysql_status" not in shot.now.samplers():
            return "needs a server: --mysql-socket or --mysql-host"
        return "nothing right now"
    if screen == "findings":
        blind = f"; {len(shot.judgement.blind)} rules lack data" if shot.judgement else ""
        return f"no finding in the last minute{blind}" if shot.judgement else "evaluating the rules ..."
    return "waiting for two samples"
