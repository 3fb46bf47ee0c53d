"""A notice in words: cleaned, because names of hosts and settings come from elsewhere."""

from __future__ import annotations

import math
import re

from headrace.show import text
from headrace.show.notice import Notice, Told

#: What chats take for a call of everybody, or of somebody: ``@channel``, ``<!here>``, ``<@U1>``; and for a link
#: that shows other words than its address: ``<https://x|words>``, ``[words](https://x)``.
_CALL = re.compile(
    r"(?<![\w.])@(?=\w)|@(?=(?:channel|here|everyone|all)\b)|<(?=[!@#&]|[a-z]+:)|\](?=\()", re.I
)


def _clean(captured: object) -> str:
    return _CALL.sub(lambda found: f"{found[0]} ", text.clean(captured))


def title(notice: Notice) -> str:
    return _clean(f"headrace {notice.kind}: {notice.subject}: {notice.conclusion}")[:200]


def sentence(told: Told) -> str:
    """``p99 of db3 is 1.120 (1.080 – 1.160): worse``."""
    said = f"{told.response} of {told.subject}"
    if math.isfinite(told.ratio.estimate):
        said += f" is {text.ratio(told.ratio.estimate)} times the other ({text.between(told.ratio)})"
    note = f" ({told.note})" if told.note else ""
    return _clean(f"{said}: {told.verdict}{note}")


def plain(notice: Notice, most: int = 12) -> str:
    """For a chat or a mail, without any mark-up."""
    lines = [_clean(notice.headline), ""]
    lines += [f"- {sentence(each)}" for each in notice.effects[:most]]
    if len(notice.effects) > most:
        lines.append(f"- and {len(notice.effects) - most} more in the report")
    lines += ["", *(_clean(line) for line in notice.next.splitlines())] if notice.next else []
    lines += ["", f"report: {_clean(notice.link)}"] if notice.link else []
    return "\n".join([*lines, "", f"evidence: {_clean(notice.id)[:80]}"])
