"""Pages as HTML. Captured text is cleaned and escaped in one place: ``finalize`` and autoescape."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup
from starlette.requests import Request

from headrace import __version__
from headrace.show import html, text
from headrace.web.asked import RANGES, Asked
from headrace.web.listing import NUMBERS, Column, Row
from headrace.web.private import page_below
from headrace.web.users import Role

#: A command, or options of one, in the text of a fix. Names of tables between backticks are none.
COMMAND = re.compile(r"`((?:headrace |--)[^`]+)`")
#: A ratio beyond these is marked by an arrow and a word as well as a colour.
WORSE, BETTER = 1.2, 1 / 1.2
#: A chip's word -> its look; its word says the same.
LOOKS = {
    "ok": "better", "fine": "better", "done": "better",
    "lost": "worse", "saturated": "worse", "limited": "worse", "bottleneck": "worse", "unreadable": "worse",
    "finished": "better", "pass": "better", "changed": "better", "fail": "worse", "restoring": "worse",
    "kept": "better", "resolved": "better", "raised": "worse",
    "running": "unsure", "waits": "unsure", "needs approval": "unsure", "inconclusive": "unsure",
    "changing": "unsure", "aside": "unsure", "busy": "unsure", "reviewed": "better", "to do": "unsure",
    "now": "worse", "waiting": "unsure", "risk": "unsure", "unfinished": "unsure", "new": "unsure",
}  # fmt: skip


def drawn(name: str, request: Request, asked: Asked, problem: str, **values: Any) -> str:
    session = request.state.session
    log_out_at = getattr(request.state, "log_out_at", "")
    # Of an application that is not there yet, as where a guard refuses, there is no menu.
    app = request.scope.get("app")
    private: str = getattr(request.state, "private", "")
    page = (
        environment()
        .get_template(name)
        .render(
            request=request,
            path=request.url.path,
            query=dict(request.query_params),
            asked=asked,
            span=asked.span(),
            whole=asked.whole(),
            ranges=RANGES,
            navigation=getattr(app.state, "navigation", ()) if app else (),
            problem=problem,
            user=session.user if session else None,
            is_proxied=session.is_proxied if session else False,
            log_out_at=log_out_at,
            token=session.token if session else "",
            private=private,
            led_to=values.pop("led_to", ""),
            Role=Role,
            version=__version__,
            **values,
        )
    )
    return page_below(private, page)


@cache
def environment() -> jinja2.Environment:
    found = html.environment("headrace.web", "templates")
    found.filters |= {
        "cell": cell,
        "utc": utc,
        "commands": commands,
        "look": lambda word: LOOKS.get(str(word), ""),
    }
    found.globals |= {"is_number": lambda column: column.kind in NUMBERS, "sorting": sorting}
    return found


def commands(said: str) -> Markup:
    """A text with its commands as code: a terminal shows backticks for that, a page must not."""
    parts = COMMAND.split(text.clean(said))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def sorting(asked: Asked, path: str, column: Column, query: dict[str, str]) -> str:
    """The address that sorts by this column, or the other way round."""
    others = {k: v for k, v in query.items() if k not in ("sort", "order")}
    other_way = asked.sort == column.name and asked.descending
    return asked.address(path, **{**others, "sort": column.name, "order": "asc" if other_way else ""})


def cell(row: Row, column: Column) -> Markup | str:
    """A row's value in its column."""
    value = row.get(column.name)
    if column.kind == "spark":
        return sparkline_of(value)
    if value in (None, "") and column.otherwise:
        return Markup('<span class="muted">{}</span>').format(column.otherwise)
    if value is None or value == "":
        return Markup('<span class="muted" title="not known">–</span>') if column.kind in NUMBERS else ""
    if column.kind == "n":
        return text.count(value) if value == 0 or abs(value) >= 0.001 else "<0.001"
    if column.kind == "ms":
        return f"{text.milliseconds(value)} ms"
    if column.kind == "share":
        return f"{100 * value:.0f}%" if value >= 0.0995 or value == 0 else f"{100 * value:.1f}%"
    if column.kind == "ratio":
        return _ratio(value)
    if column.kind == "time":
        return utc(value)
    if column.kind == "age":
        return age(value)
    if column.kind == "chip":
        word = str(value)
        return Markup('<span class="chip {}">{}</span>').format(LOOKS.get(word, ""), text.clean(word))
    return str(value)


def _ratio(value: float) -> Markup:
    """An arrow and a word, so that colour is never all there is."""
    shown = text.ratio(value)
    if value >= WORSE:
        return Markup('<span class="up" title="more than before">▲ {}</span>').format(shown)
    if value <= BETTER:
        return Markup('<span class="down" title="less than before">▼ {}</span>').format(shown)
    return Markup('<span class="muted">{}</span>').format(shown)


def age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} d"


def utc(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    at = datetime.fromtimestamp(seconds, UTC)
    return (
        f"{at:%H:%M:%S}"
        if time.time() - seconds < 43200 and at.date() == datetime.now(UTC).date()
        else f"{at:%Y-%m-%d %H:%M}"
    )


def sparkline_of(values: Sequence[float | None] | None) -> Markup:
    """One line; where nothing was seen it is broken."""
    known = [value for value in values or () if value is not None]
    if not known or values is None:
        return Markup("")
    top, width, height = max(known) or 1.0, 120.0, 22.0
    step = width / max(len(values) - 1, 1)
    pieces, is_open = [], False
    for i, value in enumerate(values):
        if value is None:
            is_open = False
            continue
        y = height - 1 - (height - 2) * value / top
        pieces.append(f"{'L' if is_open else 'M'}{i * step:.1f} {y:.1f}{'' if is_open else 'h.8'}")
        is_open = True
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="over time">'
        '<path d="{}"/></svg>'
    ).format(f"{width:.0f}", f"{height:.0f}", f"{width:.0f}", f"{height:.0f}", "".join(pieces))
