"""The terminal of `headrace top`: keys in, lines out. ``hunt.top`` writes the lines."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.events import Key
from textual.strip import Strip
from textual.widget import Widget

from headrace.base.errors import HeadraceError
from headrace.hunt.live import Feed, Link, ask
from headrace.hunt.resources import Verdict
from headrace.hunt.rules import Judgement
from headrace.hunt.top import locks, plan, screen
from headrace.hunt.top.past import Past
from headrace.hunt.top.screen import Pages, Position
from headrace.hunt.top.shot import FINDINGS_S, VERDICT_S, Shot, concluded, judged, take

#: The texts of statements that ended are asked for this often while they are on screen.
LIST_EVERY_S = 5.0
#: Keys that go through the last hour, and by how many seconds; None is back to now.
MOVES = {
    "left": -5.0, "right": 5.0, "left_square_bracket": -60.0, "right_square_bracket": 60.0, "end": None,
}  # fmt: skip
#: How long it is shown what a key did.
SAID_S = 4.0
#: How often the rules are evaluated for the verdict, and for the list of findings.
VERDICT_EVERY_S, FINDINGS_EVERY_S = 3.0, 10.0


class Lines(Widget):
    """The whole terminal, drawn line by line."""

    DEFAULT_CSS = "Lines { width: 100%; height: 100%; }"

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours
        self.lines: list[Text] = []

    def show(self, lines: list[Text]) -> None:
        is_same = [(line.plain, line.spans) for line in lines] == [
            (line.plain, line.spans) for line in self.lines
        ]
        self.lines = lines
        if not is_same:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= len(self.lines):
            return Strip.blank(self.size.width)
        line = self.lines[y]
        if not self._colours:
            spans = [span for span in line.spans if "reverse" in str(span.style)]
            line = Text(line.plain, spans=spans)
        return Strip(list(line.render(self.app.console))).adjust_cell_length(self.size.width)


class Live(App[None]):
    """Follows a feed until `q`."""

    ENABLE_COMMAND_PALETTE = False
    CSS: ClassVar[str] = "Screen { background: ansi_default; color: ansi_default; }"

    def __init__(self, feed: Feed, *, colours: bool = True) -> None:
        super().__init__(ansi_color=True)
        self.feed = feed
        self.at = Position()
        self.pages = Pages()
        self.paused = False
        #: Why the view could not start.
        self.failure: HeadraceError | None = None
        self.shot: Shot | None = None
        self.past = Past()
        #: The moment that is shown, on the clock of ``past``; None is now.
        self.seen_s: float | None = None
        self._newest: Shot | None = None
        self._said, self._said_until = "", 0.0
        self._judgement: Judgement | None = None
        #: As of the last judgement: it changes when that does, not with each sample.
        self._verdict: Verdict | None = None
        self._listed_at = self._judged_at = -FINDINGS_EVERY_S
        self._lines = Lines(colours=colours)
        self._asking: set[asyncio.Task[None]] = set()

    def compose(self) -> ComposeResult:
        yield self._lines

    def on_mount(self) -> None:
        self.run_worker(self._follow())
        self.run_worker(self.feed.look())
        self.set_interval(1.0, self.tick)
        self._beginning = self.set_interval(0.1, self._begin)
        self.draw()

    async def _follow(self) -> None:
        try:
            await self.feed.run()
        except HeadraceError as error:
            self.failure = error
            self.exit()

    def _begin(self) -> None:
        """Shows the first shot as soon as there is one, and then no longer looks ten times a second."""
        if self.shot is None:
            self.tick()
        else:
            self._beginning.stop()

    def tick(self) -> None:
        """Once per second: take a new shot, and show it unless the view is paused or in the past."""
        self._judge()
        now_s = time.monotonic()
        age_s = now_s - self.feed.heard_at
        shot = take(self.feed, time.strftime("%H:%M:%S"), age_s, self._judgement, self._verdict)
        if shot is not None:
            if self.feed.link is Link.LIVE:
                self.past.add(shot, now_s)
            shot = replace(shot, series=self.past.series)
        self._newest = shot
        if self.seen_s is None and not self.paused:
            self.shot = shot
            self._list()
        self.draw()

    def draw(self) -> None:
        shot = replace(self.shot, paused=True) if self.shot and self.paused else self.shot
        wait = self.feed.problem or f"{self.feed.step} ..."
        said = self._said if time.monotonic() < self._said_until else ""
        size = self.size
        self._lines.show(screen.draw(shot, self.at, self.pages, size.width, size.height, wait, said))

    @property
    def shown(self) -> list[Text]:
        """The lines on the screen."""
        return self._lines.lines

    def on_resize(self) -> None:
        self.draw()

    def on_key(self, event: Key) -> None:
        key = event.key
        if key == "ctrl+c" or (key == "q" and not self.at.typing):
            self.exit()
            return
        if key == "p" and not self.at.typing:
            self.paused = not self.paused
        elif key in MOVES and not self.at.typing:
            self._go(MOVES[key])
        elif key == "c" and self.at.screen == "locks" and not self.at.typing:
            self._copy()
        else:
            before = self.at
            rows = screen.names(self.shot, self.at) if self.shot else []
            self.at = screen.press(key, self.at, rows, event.character or "")
            if self.at.page and self.at.page != before.page:
                self._open()
            if self.at.screen != before.screen:
                self._listed_at = self._judged_at = -FINDINGS_EVERY_S
                if not self.paused:
                    self.tick()
        self.draw()

    def _go(self, seconds: float | None) -> None:
        """To another moment of the last hour; None is now."""
        self.seen_s = None if seconds is None else self.past.step(self.seen_s, seconds)
        if self.seen_s is None:
            self.shot = self._newest
        else:
            self.shot = self.past.shot(self.seen_s, time.monotonic())

    def _copy(self) -> None:
        """The statement that would end the chosen connection, to the terminal's clipboard. It is not sent."""
        rows = screen.names(self.shot, self.at) if self.shot else []
        name = self.at.page or (rows[min(self.at.row, len(rows) - 1)] if rows else "")
        if self.shot is not None and (statement := locks.kill(self.shot, name)):
            self.copy_to_clipboard(statement)
            self._say(f"{statement}  copied, if the terminal allows it; nothing was sent to the server")

    def _say(self, text: str) -> None:
        self._said, self._said_until = text, time.monotonic() + SAID_S

    def _judge(self) -> None:
        """Evaluate the rules: as a hunt of the last ten seconds, or for the findings of the last minute."""
        now, is_verdict = time.monotonic(), self.at.screen != "findings"
        every_s = VERDICT_EVERY_S if self.at.screen == "overview" else FINDINGS_EVERY_S
        if now - self._judged_at < every_s:
            return
        found = judged(self.feed, VERDICT_S if is_verdict else FINDINGS_S)
        if found is not None:
            self._judged_at, self._judgement = now, found
            self._verdict = concluded(self.feed, found)

    def _list(self) -> None:
        if self.at.screen != "statements" or time.monotonic() - self._listed_at < LIST_EVERY_S:
            return
        self._listed_at = time.monotonic()
        self._spawn(self._fetch())

    async def _fetch(self) -> None:
        """The texts of digests; what runs is looked at all the time."""
        answer = await ask(self.feed, "statements")
        told = [row for row in answer if "digest" in row] if isinstance(answer, list) else str(answer)
        self.feed.listed["statements"] = told

    def _open(self) -> None:
        if self.at.screen not in ("processlist", "statements"):
            return
        if self.seen_s is not None:
            why = "The past has no plans: press end for now, and open it again."
            self.pages.texts[(self.at.screen, self.at.page)] = why
            return
        self._spawn(self._explain(self.at.screen, self.at.page))

    async def _explain(self, name: str, row: str) -> None:
        self.pages.texts[(name, row)] = None
        thread = row if name == "processlist" else self._thread_of(row)
        wanted = ("--thread", thread) if thread else ("--digest", row)
        answer: Any = await ask(self.feed, "explain", *wanted)
        self.pages.texts[(name, row)] = (
            plan.why_not(answer) if isinstance(answer, str) else "\n".join(plan.tree(answer))
        )
        self.draw()

    def _thread_of(self, text: str) -> str:
        """A connection that executes a class of statements now; empty if there is none, or it is a digest."""
        listed = self.feed.listed.get("processlist")
        rows = listed if isinstance(listed, list) else []
        return next((str(row["id"]) for row in rows if row.get("class") == text), "")

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def on_unmount(self) -> None:
        for task in list(self._asking):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
