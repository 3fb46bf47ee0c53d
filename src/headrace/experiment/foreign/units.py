"""Numbers as people write them: ``1.2GiB/s``, ``95%``, ``1000 ± 12``, ``12.3k``, ``1 234.5``, ``1m40.5s``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.base.counted import counted

_NUMBER = re.compile(
    r"[~≈]?\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
    r"(?:(?:±|\+/-|\+-)\s*[\d.,]+\s*%?\s*)?([^\d\s(\[*†‡§][^(\[*†‡§]*|1/[a-zA-Z]+)?\s*(?:[(\[][^)\]]*[)\]]\s*)?[*†‡§]*"
)
# fmt: off
#: How people write that there is no number.
ABSENT = frozenset({
    "", "-", "--", "---", "n/a", "na", "n.a.", "n.a", "none", "null", "nil", "nan", "?", "??", "—", "–",
    "...", "…", ".", "x", "tbd", "todo", "n/d", "nd", "n.d.", "k.a.", "k. a.", "s/d", "нет", "н/д", "missing",
    "(null)", "<null>", "\\n", "unknown", "#n/a", "#na", "#div/0!", "#value!",
    "#ref!", "#num!", "#name?", "#null!", "#wert!", "empty", "not measured", "not run", "(none)", "无", "なし",
    "(blank)", "not available", "pending", "нет данных",
    "keine", "aucun", "не измерено",
})
# fmt: on
#: What stands in the place of the number of a run that did not end.
_DID_NOT_END = re.compile(
    r"(fail|err|error|abort|kill|time ?d? ?out|crash|cancel|skip|oom|dnf|dnr|did not|invalid|interrupt|incomplete|"
    r"fatal|segfault|panic|hung|stalled|fehler|échec|ошибка|失败|失敗|エラー|#\S+[!?]|#[nн]/?[advдн]\b|#{2,}).*",
    re.IGNORECASE,
)
#: Between thousands: spaces of any width, apostrophes, underscores.
_GROUPS = re.compile(r"([+-]?\d{1,3})((?:([ \u00a0\u2009\u202f'’_])\d{3})(?:\3\d{3})*)(?!\d)")
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_SPAN = re.compile(r"(?:(\d+)\s*h\s*)?(?:(\d+)\s*m(?:in)?\s*)?(?:(\d+(?:\.\d+)?)\s*s(?:ec)?)?")
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "msec": 1e-3,
    "msecs": 1e-3,
    "millis": 1e-3,
    "milliseconds": 1e-3,
    "usec": 1e-6,
    "usecs": 1e-6,
    "microseconds": 1e-6,
    "nsec": 1e-9,
    "nanoseconds": 1e-9,
    "secs": 1.0,
    "seconds": 1.0,
    "с": 1.0,
    "сек": 1.0,
    "秒": 1.0,
    "min": 60.0,
    "мин": 60.0,
    "分": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "ч": 3600.0,
    "d": 86_400.0,
    **dict.fromkeys(
        ("second", "sekunde", "sekunden", "seconde", "secondes", "segundo", "segundos", "secondi"), 1.0
    ),
    **dict.fromkeys(("mins", "minute", "minutes", "minuten", "minuto", "minutos", "minuti", "minut"), 60.0),
    **dict.fromkeys(
        ("hrs", "hour", "hours", "stunde", "stunden", "std", "heure", "heures", "hora", "horas"), 3600.0
    ),
    **dict.fromkeys(("day", "days", "tag", "tage", "jour", "jours"), 86_400.0),
}
_BYTES = re.compile(r"([kmgt]?)(i?)b(ytes)?(/s|ps|/sec)?", re.IGNORECASE)
_BITS = re.compile(r"([kmgt]?)(bit|bits)(/s|ps|/sec)?", re.IGNORECASE)
#: ``12.3 kIOPS`` beside ``900 IOPS``.
_COUNTS = re.compile(
    r"([kKMG]?)\s*((?:iops|[tq]ps|tpmc?|nopm|ops|req|requests|tx|queries|transactions)(?:/s|/sec|/min)?)",
    re.IGNORECASE,
)


def is_absent(text: str) -> bool:
    return text.strip().lower() in ABSENT or bool(_DID_NOT_END.fullmatch(text.strip()))


def without_groups(text: str) -> str:
    """A number without what stands between its thousands, where that is no comma or point."""
    found = _GROUPS.match(text.strip())
    if found is None:
        return text
    return re.sub(r"[ \u00a0\u2009\u202f'’_]", "", found[0]) + text.strip()[found.end() :]


def in_seconds(text: str) -> str:
    """``0:01:40.5`` and ``1m40.5s`` as ``100.5 s``; any other text as it is."""
    bare = text.strip()
    clock, span = _CLOCK.fullmatch(bare), _SPAN.fullmatch(bare)
    if clock:
        told = clock.groups()
    elif bare and span and (span[1] or span[2]):
        told = span.groups()
    else:
        return text
    hours, minutes, seconds = (float(each or 0) for each in told)
    return f"{3600 * hours + 60 * minutes + seconds:.12g} s"


def parts(text: str) -> tuple[float, str] | None:
    """A number and its unit, "" without one; None for anything else."""
    found = _NUMBER.fullmatch(text.strip())
    return (float(found[1].replace("_", "")), (found[2] or "").strip()) if found else None


def is_bare(text: str) -> bool:
    """Whether a number stands alone, so that its text may be kept."""
    return bool(re.fullmatch(r"\s*[+-]?[\d.]+([eE][+-]?\d+)?\s*", text))


def scale(unit: str) -> tuple[str, float] | None:
    """What a unit measures, and how much of the base unit it is; None for an unknown one."""
    if unit in ("", "%"):
        return unit, 1.0
    if (known := _SECONDS.get(unit) or _SECONDS.get(unit.casefold() if len(unit) > 2 else unit)) is not None:
        return "s", known
    if unit in ("k", "K", "M", "G"):
        return "", float(_DECIMAL[unit.lower()])
    if found := _BYTES.fullmatch(unit):
        of = _BINARY if found[2] else _DECIMAL
        return ("bytes/s" if found[4] else "bytes"), float(of[found[1].lower()])
    if found := _BITS.fullmatch(unit):
        return ("bits/s" if found[3] else "bits"), float(_DECIMAL[found[1].lower()])
    if found := _COUNTS.fullmatch(unit):
        return found[2].casefold(), float(_DECIMAL[found[1].lower()])
    return None


def in_one_unit(texts: Sequence[str]) -> tuple[list[str], str] | None:
    """The numbers of a column in its most frequent unit, as text, and what was assumed.

    None if one has no number, or if the units are of different kinds.
    """
    found = [parts(text) if not is_absent(text) else (None, None) for text in texts]
    units = [each[1] for each in found if each is not None and each[1] is not None]
    if any(each is None for each in found) or not units:
        return None
    scales = {unit: scale(unit) for unit in units}
    if len(scales) > 1 and (
        None in scales.values() or len({each[0] for each in scales.values() if each}) > 1
    ):
        return None
    common = max(dict.fromkeys(units), key=units.count)
    base = scales[common]
    numbers = []
    for text, (value, unit) in zip(texts, (each for each in found if each is not None), strict=True):
        own = scales.get(unit or "")
        if value is None:
            numbers.append("")
        elif not unit and not common and is_bare(text):
            numbers.append(text.strip())
        elif unit == common or own is None or base is None:
            numbers.append(repr(value))
        else:
            numbers.append(repr(value * own[1] / base[1]))
    return numbers, "; ".join(_assumed(texts, list(scales), common))


def _assumed(texts: Sequence[str], units: Sequence[str], common: str) -> list[str]:
    """What is taken for granted of a column's numbers."""
    notes = []
    if len(units) > 1:
        shown = ", ".join(sorted(unit or "no unit" for unit in units))
        notes.append(f"numbers in {shown} are converted to {common or 'none'}")
    elif common:
        notes.append(f"numbers are in {common}")
    if rounded := sum(text.lstrip().startswith(("~", "≈")) for text in texts):
        notes.append(f"{counted(rounded, 'number')} marked as approximate")
    if marked := sum(text.rstrip().endswith(("*", "†", "‡", "§")) for text in texts):
        notes.append(
            f"{counted(marked, 'number')} marked (*): what the mark says is not known, and they count"
        )
    if any(re.search(r"±|\+/-|\+-", text) for text in texts):
        notes.append("what stands after ± is not used: each line counts as one run")
    if any(re.search(r"\d\s*[(\[][^)\]]*\d[^)\]]*[)\]]", text) for text in texts):
        notes.append("what stands in brackets behind a number is not used: each line counts as one run")
    return notes
