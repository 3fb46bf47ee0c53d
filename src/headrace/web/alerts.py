"""Alerts: what stands out in several looks in a row is told once, and again when it is over.

What is open is a log in the directory of the history, so a restart tells nothing twice. A place that cannot be
reached is tried again. In quiet hours nothing is told; what still stands at their end is told then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode

from headrace.base import received
from headrace.base.clocks import SET_BACK_S, Clocks
from headrace.base.errors import HeadraceError, PlanError
from headrace.show.notice import Conclusion, Notice
from headrace.web.signs import LOOKS, Kind, Look, Sign, Signs, signs_of
from headrace.web.usual import Usual

log = logging.getLogger("headrace.web")

#: An alert is over when nothing has shown it for this long: one that comes and goes is one.
CLEAR_S = 600.0
#: A place that could not be reached is tried again this often, and given up after this long.
AGAIN_S, GIVEN_UP_S = 60.0, 86400.0
#: Alerts that are kept for the page, and bytes of the log that are read at a start.
MOST_KEPT, MOST_BYTES = 1000, 8 << 20
#: The host of an alert about serve itself.
SERVE = "headrace serve"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

#: Tells one notice. Raises HeadraceError.
Teller = Callable[[Notice], None]
#: The text of a class.
TextOf = Callable[[str], str]


@dataclass(frozen=True)
class Quiet:
    """From a minute of the day to another, past midnight if that is the earlier one. ``days``: on which it begins,
    0 is Monday; times are those of this machine."""

    from_minute: int
    to_minute: int
    days: frozenset[int] = frozenset(range(7))

    def holds(self, at_s: float) -> bool:
        at = datetime.fromtimestamp(at_s)
        minute, day = at.hour * 60 + at.minute, at.weekday()
        if self.from_minute < self.to_minute:
            return day in self.days and self.from_minute <= minute < self.to_minute
        began_today = day in self.days and minute >= self.from_minute
        return began_today or ((day - 1) % 7 in self.days and minute < self.to_minute)


def quiet_of(word: str) -> Quiet:
    """``22:00-07:00`` or ``sat,sun 00:00-24:00``. Raises PlanError."""
    days, _, span = word.strip().lower().rpartition(" ")
    try:
        start, end = (_minute(each) for each in span.split("-"))
        chosen = (
            frozenset(DAYS.index(each.strip()) for each in days.split(",")) if days else frozenset(range(7))
        )
    except ValueError:
        raise PlanError(
            "not quiet hours", place=f"--quiet {word}", hint="22:00-07:00, or 'sat,sun 00:00-24:00'"
        ) from None
    if start == end:
        raise PlanError(
            "quiet hours without a length", place=f"--quiet {word}", hint="00:00-24:00 is all day"
        )
    return Quiet(start, end, chosen)


def _minute(word: str) -> int:
    hours, minutes = word.split(":")
    found = int(hours) * 60 + int(minutes)
    if not (0 <= int(hours) <= 24 and 0 <= int(minutes) < 60 and found <= 24 * 60):
        raise ValueError
    return found


@dataclass(frozen=True)
class Alert:
    """``clear_below``: of the sign that ends it. ``resolved_s`` is 0 while it stands; ``told_s`` is 0 until it was
    told to a place."""

    id: str
    host: str
    kind: str
    what: str
    said: str
    since_s: float
    clear_below: float = 0.0
    told_s: float = 0.0
    resolved_s: float = 0.0

    @property
    def subject(self) -> str:
        return ": ".join(word for word in (self.host, self.kind, self.what) if word)

    @property
    def key(self) -> tuple[Kind, str]:
        return Kind(self.kind), self.what


@dataclass
class _Message:
    """``left``: places that have not got it yet."""

    alert: Alert
    is_end: bool
    left: set[str]
    since_s: float
    next_s: float = 0.0


@dataclass
class _Host:
    """How many looks in a row showed a sign, and when an open alert was last seen to stand."""

    before: Look | None = None
    rows: dict[tuple[Kind, str], int] = field(default_factory=dict)
    stood_s: dict[tuple[Kind, str], float] = field(default_factory=dict)


class Alerts:
    """The alerts of all hosts. Used by one thread at a time: what tells has a lock of its own."""

    def __init__(
        self,
        path: Path,
        places: Mapping[str, Teller],
        quiet: Sequence[Quiet] = (),
        *,
        full_within_days: float = 3.0,
        link: str = "",
    ) -> None:
        """``path``: the log. ``places``: name -> what tells it. ``link``: the address of the pages."""
        self.path, self.places, self.quiet = path, places, quiet
        self.full_within_days, self.link = full_within_days, link
        #: What could not be told the last time, by place.
        self.problems: dict[str, str] = {}
        self._hosts: dict[str, _Host] = {}
        self._open: dict[tuple[str, Kind, str], Alert] = {}
        self._past: list[Alert] = []
        self._messages: list[_Message] = []
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._boot_at_s = _boot_at_s()
        self._load()

    @property
    def known(self) -> list[Alert]:
        """Those that stand, then those that are over, each the newest first."""
        with self._lock:
            standing = sorted(self._open.values(), key=lambda each: -each.since_s)
            return [*standing, *reversed(self._past)]

    @property
    def standing(self) -> list[Alert]:
        with self._lock:
            return list(self._open.values())

    def look(self, host: str, look: Look, usual: Usual, text_of: TextOf | None = None) -> None:
        """Take a look at a host. ``text_of``: what a class is; empty if that is not known yet, or if it is a
        monitor's: then it is not told."""
        self._follow_the_clock()
        state = self._hosts.setdefault(host, _Host())
        signs = signs_of(look, state.before, usual, self.full_within_days)
        state.before = None if look.problem else look
        self._take(host, signs, look.at_s, text_of)

    def collection(self, problem: str, at_s: float) -> None:
        """Whether anything is collected at all; ``problem`` is why not, or empty."""
        sign = Sign(Kind.COLLECTION, "", f"{problem[:1].upper()}{problem[1:].rstrip('.')}.")
        found = {(sign.kind, sign.what): sign} if problem else {}
        self._follow_the_clock()
        self._take(SERVE, Signs(found, frozenset(set(Kind) - {Kind.COLLECTION})), at_s, None)

    def _follow_the_clock(self) -> None:
        """Once the clock was set, all that waits goes on waiting for as long as it would have: a message would be
        given up, or told in ten years, and an alert be over, or never.
        """
        with self._lock:
            boot_at_s = _boot_at_s()
            set_by_s = boot_at_s - self._boot_at_s
            if abs(set_by_s) < SET_BACK_S:
                return
            self._boot_at_s = boot_at_s
            for message in self._messages:
                message.next_s += set_by_s
                message.since_s += set_by_s
            for state in self._hosts.values():
                state.stood_s = {key: at_s + set_by_s for key, at_s in state.stood_s.items()}
                if state.before is not None:
                    state.before = replace(state.before, at_s=state.before.at_s + set_by_s)

    def _take(self, host: str, signs: Signs, at_s: float, text_of: TextOf | None) -> None:
        with self._lock:
            state = self._hosts.setdefault(host, _Host())
            for key, sign in signs.found.items():
                state.rows[key] = state.rows.get(key, 0) + 1 if sign.is_raised else 0
                if (host, *key) not in self._open and state.rows[key] >= LOOKS[sign.kind]:
                    self._raise(host, sign, at_s, text_of)
            for key in state.rows.keys() - signs.found.keys():
                if key[0] not in signs.unknown:
                    del state.rows[key]
            for (of, *_), alert in list(self._open.items()):
                if of == host:
                    self._stands(state, alert, signs, at_s)

    def _raise(self, host: str, sign: Sign, at_s: float, text_of: TextOf | None) -> None:
        said = sign.said
        if sign.kind in (Kind.NEW_CLASS, Kind.SLOWER):
            text = text_of(sign.what) if text_of else ""
            if not text:
                return
            said = f"{said} {text}"
        identity = hashlib.sha256(f"{host}\0{sign.kind}\0{sign.what}\0{at_s}".encode()).hexdigest()[:16]
        alert = Alert(identity, host, str(sign.kind), sign.what, said, at_s, sign.clear_below)
        self._open[host, sign.kind, sign.what] = alert
        self._hosts[host].stood_s[alert.key] = at_s
        self._messages.append(_Message(alert, False, set(self.places), at_s))
        self._write("raised", alert)

    def _stands(self, state: _Host, alert: Alert, signs: Signs, at_s: float) -> None:
        sign = signs.found.get(alert.key)
        stands = sign is not None and sign.value >= alert.clear_below
        if stands or alert.key[0] in signs.unknown or alert.key not in state.stood_s:
            state.stood_s[alert.key] = at_s
        elif at_s - state.stood_s[alert.key] >= CLEAR_S:
            ended = replace(alert, resolved_s=at_s)
            del self._open[alert.host, alert.key[0], alert.what]
            del state.stood_s[alert.key]
            self._past = [*self._past, ended][-MOST_KEPT:]
            self._write("resolved", ended)
            # A class that is new is so once: that it is known by now is no news.
            if alert.told_s and alert.key[0] is not Kind.NEW_CLASS:
                self._messages.append(_Message(ended, True, set(self.places), at_s))

    def tell(self, now_s: float) -> None:
        """Tell what is to be told now. As slow as the slowest place; a second call meanwhile does nothing."""
        if not self._telling.acquire(blocking=False):
            return
        try:
            self._follow_the_clock()
            with self._lock:
                due = [] if any(each.holds(now_s) for each in self.quiet) else list(self._due(now_s))
            for message in due:
                self._tell(message, now_s)
            with self._lock:
                self._messages = [each for each in self._messages if self._is_kept(each, now_s)]
        finally:
            self._telling.release()

    def _due(self, now_s: float) -> Iterator[_Message]:
        for each in self._messages:
            if each.next_s <= now_s and (each.is_end or self._is_open(each.alert)):
                yield each

    def _is_open(self, alert: Alert) -> bool:
        found = self._open.get((alert.host, *alert.key))
        return found is not None and found.id == alert.id

    def _is_kept(self, message: _Message, now_s: float) -> bool:
        """What ended before anybody could be told is no message any more; the page has it."""
        if not message.left or not (message.is_end or self._is_open(message.alert)):
            return False
        return now_s - message.since_s < GIVEN_UP_S or any(each.holds(now_s) for each in self.quiet)

    def _tell(self, message: _Message, now_s: float) -> None:
        notice = notice_of(message.alert, self.link)
        outcomes: dict[str, str] = {}

        def one(name: str) -> None:
            try:
                self.places[name](notice)
                outcomes[name] = ""
            except HeadraceError as error:
                outcomes[name] = error.message
            except Exception as error:
                # Its text could quote an address with a token.
                outcomes[name] = f"an unexpected error: {type(error).__name__}"

        threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in sorted(message.left)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + AGAIN_S
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0.0))
        for name in list(message.left):
            why = outcomes.get(name, f"it was not done within {AGAIN_S:g} s")
            if why:
                self.problems[name] = why
                log.warning("an alert was not sent to %s: %s", name, why)
                continue
            self.problems.pop(name, None)
            message.left.discard(name)
            self._was_told(message.alert, now_s)
        message.next_s = now_s + AGAIN_S

    def _was_told(self, alert: Alert, now_s: float) -> None:
        with self._lock:
            if self._is_open(alert) and not self._open[alert.host, alert.key[0], alert.what].told_s:
                told = replace(alert, told_s=now_s)
                self._open[alert.host, alert.key[0], alert.what] = told
                self._write("told", told)

    def _write(self, event: str, alert: Alert) -> None:
        """A line of the log. A full disk costs the log, not the alert: it may be what is to be told."""
        line = json.dumps({"event": event, **asdict(alert)}) + "\n"
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def _load(self) -> None:
        """What the log says is open; what was not told before the end of the last process is told now."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - MOST_BYTES, 0))
                lines = file.read().splitlines()
        except OSError:
            return
        for alert in _read(lines):
            key = (alert.host, *alert.key)
            if alert.resolved_s:
                self._open.pop(key, None)
                self._past = [*self._past, alert][-MOST_KEPT:]
            else:
                self._open[key] = alert
        for alert in self._open.values():
            if not alert.told_s:
                self._messages.append(_Message(alert, False, set(self.places), time.time()))


def _boot_at_s() -> float:
    """When this machine was booted, by the clock: that changes only with the clock."""
    now = Clocks.now()
    return now.wall_s - now.boot_s


def _read(lines: Iterable[bytes]) -> Iterator[Alert]:
    """A line that is damaged costs only itself."""
    names = set(Alert.__dataclass_fields__)
    for line in lines:
        try:
            content = received.parsed(line)
            alert = Alert(**{name: content[name] for name in names})
            Kind(alert.kind)
            float(alert.since_s), float(alert.told_s), float(alert.resolved_s), float(alert.clear_below)
        except (ValueError, KeyError, TypeError):
            continue
        yield alert


def notice_of(alert: Alert, link: str = "") -> Notice:
    """The same id for the beginning and the end of an alert: a receiver finds the one that is over."""
    said = alert.said
    if alert.resolved_s:
        minutes = max(round((alert.resolved_s - alert.since_s) / 60), 1)
        said = f"Over after {minutes:,} min. It began with: {alert.said}"
    address = (
        f"{link.rstrip('/')}/host?{urlencode({'host': alert.host})}" if link and alert.host != SERVE else link
    )
    return Notice(
        kind="alert",
        subject=alert.subject,
        conclusion=Conclusion.RESOLVED if alert.resolved_s else Conclusion.RAISED,
        headline=said,
        id=alert.id,
        link=address,
        at_s=alert.resolved_s or alert.since_s,
    )
