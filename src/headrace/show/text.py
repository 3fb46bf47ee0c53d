"""How values and captured text are shown: digits, units, and cleaning of text before it reaches a screen."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable

from headrace.base.counted import counted
from headrace.base.effect import Verdict
from headrace.base.intervals import TOO_WIDE, USELESS, Interval

#: A function that formats a number.
Form = Callable[[float], str]

#: Joiners of letters, in Persian, Hindi and emoji: without them such words are other ones. All other characters
#: that only format (Unicode's Cf) reorder or hide text, so that a name could look like another, or tell an
#: assistant what no person sees.
_JOINERS = "\u200c\u200d"
#: The same of characters that count as letters, marks and line ends: fillers, and selectors of a variant.
_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2028\u2029\u2800\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]"
)


def clean(text: object) -> str:
    """Captured text with control and direction characters as visible escapes (``\\x1b``), newlines as blanks."""
    whole = str(text)
    # Almost all text stays as it is: Unicode counts none of the others as printable.
    if type(whole) is str and whole.isprintable() and (whole.isascii() or not _HIDDEN.search(whole)):
        return whole
    shown = []
    for character in whole:
        if character in "\n\t\r":
            shown.append(" ")
        elif _is_hidden(character):
            shown.append(character.encode("unicode_escape", "backslashreplace").decode())
        else:
            shown.append(character)
    return "".join(shown)


def _is_hidden(character: str) -> bool:
    kind = unicodedata.category(character)
    return (
        kind in ("Cc", "Cs") or (kind == "Cf" and character not in _JOINERS) or bool(_HIDDEN.match(character))
    )


def clean_lines(text: object) -> str:
    """The same, but newlines are kept, for messages that quote the end of a log."""
    return "\n".join(clean(line) for line in str(text).splitlines())


def count(value: float | None) -> str:
    """``13612.4`` -> ``13,612``; below 100 three significant digits, whole numbers as they are."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:#.3g}".rstrip(".")


def milliseconds(value_ns: float | None) -> str:
    """A latency in ms with three significant digits and no exponent: ``0.0312``, ``12.4``, ``1,204``."""
    if value_ns is None or not math.isfinite(value_ns):
        return "–"
    ms = value_ns / 1e6
    if ms >= 100:
        return f"{ms:,.0f}"
    digits = 2 - math.floor(math.log10(ms)) if ms > 0 else 0
    return f"{ms:.{min(digits, 5)}f}"


def ratio(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if value > 1000 or 0 < value < 0.001:  # an interval bound from too few blocks
        return ">1,000" if value > 1 else "<0.001"
    return f"{value:.1f}" if value >= 100 else f"{value:.3f}" if value < 10 else f"{value:.2f}"


#: Verdict -> its class in the style sheet.
CHIP = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.EQUIVALENT: "equivalent",
    Verdict.NOT_ENOUGH_DATA: "unsure",
}


def between(interval: Interval, form: Form = ratio) -> str:
    """``1.021 – 1.044``; a dash where no interval is possible, and words where it says nothing (two blocks)."""
    if interval.low is None or interval.high is None:
        return "–"
    if interval.low > 0 and interval.high > USELESS * interval.low:
        return TOO_WIDE
    return f"{form(interval.low)} – {form(interval.high)}"


def plus_minus(floor: float | None) -> str:
    """A noise floor as a percentage: ``± 1.8%``."""
    if floor is None or not math.isfinite(floor):
        return "–"
    if floor >= 10:
        return "> ± 1,000%"
    return f"± {100 * floor:.0f}%" if floor >= 0.1 else f"± {100 * floor:.2g}%"


def short(captured: str, most: int = 24) -> str:
    """A name shortened to at most ``most`` characters.

    ``kernel=6.1 chunk=4K`` loses its keys first, which are the same for all; other names lose their middle,
    because levels differ at the ends.
    """
    if len(captured) <= most:
        return captured
    words = captured.split(" ")
    if len(words) > 1 and all("=" in word or word == "@" for word in words):
        captured = " ".join(word.partition("=")[2] or word for word in words)
    head, tail = (most - 1) // 2, most // 2
    return captured if len(captured) <= most else f"{captured[:head]}…{captured[-tail:]}"


def seconds(value_s: float) -> str:
    """``95`` -> ``1 min 35 s``; ``7260`` -> ``2 h 1 min``; from 2 days: ``3 days 4 h``."""
    whole = round(value_s)
    if whole < 60:
        return f"{value_s:.3g} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(whole // 60, 60)
    if hours >= 48:
        days, rest = divmod(hours, 24)
        return f"{counted(days, 'day')} {rest} h" if rest else counted(days, "day")
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def setting(value: object) -> str:
    """A knob's value for people; lists as the kernel takes them."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    return clean(",".join(map(str, value)) if isinstance(value, list | tuple) else value)
