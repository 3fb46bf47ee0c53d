"""A summary in Markdown, appended to a file: a pipeline's summary holds several."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base import door
from headrace.base.errors import write_error
from headrace.show import text
from headrace.show.notice import Notice
from headrace.tell.files import folder_of

if TYPE_CHECKING:
    from headrace.tell.kind import Teller

#: Characters that could become mark-up, HTML or a mention of somebody.
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~$@&-])")


def opened(place: str) -> Teller:
    """``-`` is standard output."""
    if place == "-":
        return _print
    path = Path(place)
    folder_of(path)
    return lambda notice: _append(path, content(notice))


def _print(notice: Notice) -> None:
    sys.stdout.write(content(notice))


def _append(path: Path, added: str) -> None:
    try:
        # One write with O_APPEND: two that tell at once do not mix their lines.
        descriptor = door.opened_to_write(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            left = added.encode()
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
    except OSError as error:
        raise write_error(error, path) from error


def escaped(captured: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.clean(captured))


def content(notice: Notice) -> str:
    lines = [
        f"### headrace {escaped(notice.kind)}: {escaped(notice.subject)}",
        "",
        f"**{escaped(notice.conclusion)}.** {escaped(notice.headline)}",
        "",
    ]
    if notice.effects:
        lines += ["| of | response | ratio | interval | verdict |", "|---|---|---:|---|---|"]
        for each in notice.effects:
            note = f" ({each.note})" if each.note else ""
            cells = (
                each.subject, each.response, text.ratio(each.ratio.estimate), text.between(each.ratio),
                f"{each.verdict}{note}",
            )  # fmt: skip
            lines.append(f"| {' | '.join(map(escaped, cells))} |")
        lines.append("")
    if notice.next:
        # Indented: no run of backticks in it can end the block.
        lines += [*(f"    {line}" for line in text.clean_lines(notice.next).splitlines()), ""]
    if notice.link:
        lines += [_link(notice.link), ""]
    return "\n".join([*lines, f"Evidence {escaped(notice.id)}", "", ""])


def _link(link: str) -> str:
    if re.fullmatch(r"https?://[^\s<>()\"'`|\\]+", link):
        return f"[Report]({link})"
    return f"Report: {escaped(link)}"
