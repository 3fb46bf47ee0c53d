"""A whole screen: head, the chosen view, the keys; and how keys change the position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rich.text import Text

from headrace.hunt.top import heat, lines, lists, locks, overview
from headrace.hunt.top.lines import DIM, HEADING, HOT, WARM, Column
from headrace.hunt.top.shot import Shot
from headrace.show.text import clean

SCREENS = ("overview", "threads", "statements", "processlist", "interrupts", "findings", "locks")
#: Their names where there is no room for all of them.
SHORT = {"statements": "sql", "processlist": "list", "interrupts": "irqs"}
ROOM_FOR_NAMES = 100
#: Screen -> the sort orders that `s` cycles through.
ORDERS = {
    "threads": ("cpu", "memory", "io"),
    "statements": ("time", "calls", "rows"),
    "processlist": ("time", "user", "state"),
}
LISTS: dict[str, Callable[[Shot, str], tuple[list[Column], lists.Rows]]] = {
    "threads": lists.tasks,
    "statements": lists.statements,
    "processlist": lists.processlist,
    "findings": lists.findings,
    "locks": locks.locks,
}
#: Screens where enter opens the chosen row.
OPEN = ("statements", "processlist", "findings", "locks")
THREAD_ORDERS = ("cpu", "waits for cpu")
LONGEST_FILTER = 60
#: Lines of the head and the foot.
FRAME_LINES = 2
#: Of a list: with less room, notes below it are left out.
FEWEST_ROWS = 5

HELP = """\
1 h   overview: what limits the host, cores, memory, devices, network, server
2     threads: the server's threads, or the processes that use CPU
3     statements: what costs the server's time
4     processlist: what runs now; enter shows the plan
5     interrupts: which core does which
6     findings: what limited the host in the last minute; enter shows one
7     locks: who waits for whom; enter shows the statement that would end one

↑ ↓ j k   choose          enter  open it            escape  back
/  only rows with a text  s  sort                    c  copy KILL (not sent)
← →  5 s back, forward    [ ]  a minute              end  now again
p  pause                  ?  help                    q  quit

Cores: work is █ user ▓ system ░ irq ▒ softirq; × is time the hypervisor took;
· is idle time in which some task waited for a device. Red: 90% or more.
%util is dim if the device serves many requests at once: then it is not a limit.
A dash is an unknown value, never a zero."""


@dataclass(frozen=True)
class Position:
    """The user's position. ``page`` is the row that enter opened, by name; ``top`` its first visible line."""

    screen: str = "overview"
    row: int = 0
    order: int = 0
    page: str = ""
    top: int = 0
    help: bool = False
    #: Only rows with this text; ``typing`` while the user writes it.
    filter: str = ""
    typing: bool = False

    @property
    def sort(self) -> str:
        orders = ORDERS.get(self.screen, ("",))
        return orders[self.order % len(orders)]


@dataclass(frozen=True)
class Pages:
    """Texts requested with enter, by screen and row: lines, or None while they are being fetched."""

    texts: dict[tuple[str, str], str | None] = field(default_factory=dict)


def names(shot: Shot, at: Position) -> list[str]:
    """The names of the list's rows, in order; empty if the screen is not a list."""
    return [name for name, _ in _rows(shot, at)[1]] if at.screen in LISTS else []


def _rows(shot: Shot, at: Position) -> tuple[list[Column], lists.Rows, int]:
    """The list with the rows that have the filter's text, and how many there are without it."""
    columns, rows = LISTS[at.screen](shot, order(shot, at))
    wanted = at.filter.lower()
    found = [row for row in rows if not wanted or wanted in " ".join(map(lines.plain, row[1])).lower()]
    return columns, found, len(rows)


def order(shot: Shot, at: Position) -> str:
    """What the list is sorted by; empty if it has one order only."""
    if at.screen == "threads" and "threads" in shot.now.samplers():
        return THREAD_ORDERS[at.order % len(THREAD_ORDERS)]
    return at.sort


def _typed(key: str, at: Position, character: str) -> Position:
    """The position after a key while a filter is written."""
    if key == "enter":
        return replace(at, typing=False)
    if key == "escape":
        return replace(at, typing=False, filter="", row=0)
    if key == "backspace":
        return replace(at, filter=at.filter[:-1], row=0)
    if character.isprintable() and len(at.filter) < LONGEST_FILTER:
        return replace(at, filter=at.filter + character, row=0)
    return at


def press(key: str, at: Position, rows: list[str], character: str = "") -> Position:
    """The position after a key. Unknown keys do not change it. ``character`` is what the key writes."""
    if at.typing:
        return _typed(key, at, character)
    if key in ("question_mark", "?"):
        return replace(at, help=not at.help)
    if at.help:
        # Whoever has read what a key does presses it.
        at = replace(at, help=False)
        if key == "escape":
            return at
    if key == "h":
        return Position()
    if key.isdigit() and 1 <= int(key) <= len(SCREENS):
        return Position(SCREENS[int(key) - 1])
    if key == "escape":
        return _back(at)
    if key in ("slash", "/") and at.screen in LISTS and not at.page:
        return replace(at, typing=True)
    if key == "s":
        return replace(at, order=at.order + 1, row=0)
    if key == "enter" and at.screen in OPEN and rows and not at.page:
        return replace(at, page=rows[min(at.row, len(rows) - 1)], top=0)
    return _moved(key, at, rows)


def _back(at: Position) -> Position:
    """From a page to its list, from a filtered list to the whole, from there to the overview."""
    if at.page:
        return replace(at, page="", top=0)
    return replace(at, filter="", row=0) if at.filter else Position()


def _moved(key: str, at: Position, rows: list[str]) -> Position:
    steps = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": 10, "pageup": -10}
    if key not in steps:
        return at
    if at.page:
        return replace(at, top=max(at.top + steps[key], 0))
    return replace(at, row=max(0, min(at.row + steps[key], len(rows) - 1)))


def draw(
    shot: Shot | None, at: Position, pages: Pages, width: int, height: int, wait: str = "", said: str = ""
) -> list[Text]:
    """Exactly ``height`` lines, none wider than ``width``. Without a shot, ``wait`` is shown; ``said`` is what the
    last key did, if that is to be said."""
    room = max(height - FRAME_LINES, 1)
    if shot is None:
        body = lines.wrap(clean(wait), width, "bold")
    elif at.help:
        body = [Text(line) for line in HELP.splitlines()]
    elif at.page:
        body = _page(shot, at, pages, width)
        body = body[min(at.top, max(len(body) - room, 0)) :]
    elif at.screen == "overview":
        body = overview.draw(shot, width, room)
    elif at.screen == "interrupts":
        body = heat.draw(shot, width, room)
    else:
        body = _list(shot, at, width, room)
    body = [lines.fit(line, width) if line.cell_len > width else line for line in body[:room]]
    body += [Text()] * (room - len(body))
    foot = lines.fit(Text(clean(said), "bold"), width) if said else _foot(shot, at, width)
    return [heading(shot, width, at), *body, foot]


def _list(shot: Shot, at: Position, width: int, room: int) -> list[Text]:
    above = lists.summary(shot, width) if at.screen == "processlist" else []
    columns, rows, count = _rows(shot, at)
    if at.filter or at.typing:
        text = f"only rows with '{at.filter}{'_' if at.typing else ''}': {len(rows)} of {count}"
        keys = "enter: keep it, escape: all rows" if at.typing else "escape: all rows"
        above = [*above, *lines.flow("", [(clean(text), WARM), (keys, DIM)], width)]
    below = [line for note in lists.notes(shot, at.screen) for line in lines.wrap(clean(note), width, DIM)]
    if not rows and count:
        return above
    if not rows:
        why = locks.empty(shot) if at.screen == "locks" else lists.empty(shot, at.screen)
        return [*above, *lines.wrap(clean(why), width, DIM), *below]
    room -= len(above)
    if room - len(below) - 1 < FEWEST_ROWS:
        below = []
    room -= len(below) + bool(below)
    chosen = min(at.row, len(rows) - 1)
    first = max(0, chosen - max(room - 2, 0))
    shown = [cells for _, cells in rows[first : first + max(room - 1, 1)]]
    drawn = lines.table(columns, shown, width, chosen=chosen - first)
    left = room - len(drawn)
    detail = _detail(shot, at, rows[chosen][0], width, left - 1) if left > FEWEST_ROWS else []
    return [*above, *drawn, *detail, *([Text()] if below else []), *below]


def _detail(shot: Shot, at: Position, name: str, width: int, room: int) -> list[Text]:
    """More about the chosen row, where the list leaves room for it."""
    if at.screen == "findings":
        found = lists.finding_page(shot, name, width)
    elif at.screen == "locks":
        found = locks.page(shot, name, width)
    else:
        found = lists.detail(shot, at.screen, name, width)
    return [Text("─" * width, DIM), *found[:room]] if found else []


def _page(shot: Shot, at: Position, pages: Pages, width: int) -> list[Text]:
    if at.screen == "findings":
        return lists.finding_page(shot, at.page, width)
    if at.screen == "locks":
        return locks.page(shot, at.page, width)
    text = pages.texts.get((at.screen, at.page))
    if text is None:
        return [Text("querying the server ...", DIM)]
    return [line for part in text.splitlines() for line in lines.wrap(clean(part), width) or [Text()]]


def heading(shot: Shot | None, width: int, at: Position = Position()) -> Text:
    """The host and the state of its connection."""
    if shot is None:
        return lines.fit(Text("headrace top", "bold"), width)
    facts = shot.facts
    parts = [
        facts.hostname or shot.target,
        f"{facts.cpu_count} CPUs",
        f"Linux {facts.kernel_release}",
        shot.server,
    ]
    state, style = shot.state, "bold green"
    if shot.back_s:
        state, style = f"{_ago(shot.back_s)} AGO (end: now)", "bold yellow"
    elif shot.paused:
        state, style = "PAUSED", "bold yellow"
    elif shot.state != "live":
        state, style = f"{shot.state} ({shot.age_s:.0f} s): {shot.problem}", HOT
    elif shot.age_s >= 3:
        state, style = f"no sample for {shot.age_s:.0f} s", WARM
    right = Text.assemble((clean(state), style), f" {shot.clock}")
    right.truncate(max(width // 2, 20), overflow="ellipsis")
    left = Text.assemble((at.screen, HEADING), "  ", clean(" · ".join(part for part in parts if part)))
    return lines.fit(left, max(width - right.cell_len - 1, 1)).append(" ").append_text(right)


def _ago(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _foot(shot: Shot | None, at: Position, width: int) -> Text:
    line = Text()
    for number, name in enumerate(SCREENS, 1):
        line.append(f"{number}", "bold")
        shown = name if width >= ROOM_FOR_NAMES else SHORT.get(name, name)
        line.append(f"{shown} ", "reverse" if name == at.screen else DIM)
    sort = order(shot, at) if shot else at.sort
    keys = [("s", f"sort: {sort}")] if sort else []
    keys += [("enter", "open")] if at.screen in OPEN else []
    keys += [("c", "copy KILL")] if at.screen == "locks" else []
    keys += [("/", "filter")] if at.screen in LISTS else []
    if at.page:
        keys = [("esc", "back"), *([("c", "copy KILL")] if at.screen == "locks" else [])]
    # With help and quit visible, the other keys can be found.
    for key, text in (("?", "help"), ("q", "quit"), *keys, ("p", "pause"), ("← →", "back in time")):
        if line.cell_len + len(key) + len(text) + 2 <= width:
            line.append(f" {key}", "bold")
            line.append(f" {text}", DIM)
    return lines.fit(line, width)
