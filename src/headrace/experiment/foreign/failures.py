"""Columns that count what went wrong in a run, by their names in several languages.

Errors, timeouts and crashes say that a part of a run failed; retries and deadlocks that it had trouble, and its
numbers are still its own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence

from headrace.experiment.foreign import names
from headrace.experiment.foreign.alike import Line, labels
from headrace.experiment.foreign.units import parts

_FAILED = re.compile(
    r"errors?|errs?|erreurs?|errore?s|erros?|errori|fail(s|ed|ures?|ings?)?|timeouts|aborts?|aborted|crash(es|ed)?"
    r"|exceptions?|kill(s|ed)|ooms?|unsuccessful|nok|ko|rejected|rejections|refused|[45]xx|non2xx|panics?|segfaults?"
    r"|fehler\w*|fehlgeschlagen\w*|abbrüche?|abbrueche?|abstürze|abstuerze|échecs?|echecs?|échoué\w*|fallos?|fallid[oa]s?"
    r"|falhas?|fallit[oi]|błęd\w*|bled(y|ow)|fouten|mislukt\w*|chyb\w*|selhání|hatalar|hata|virheet|virheitä"
    r"|ошиб\w*|сбо[йияев]\w*|отказ\w*|помил\w*|\w*(エラー|失敗|失败|错误|錯誤|异常|異常|超时|逾時|タイムアウト|오류|실패|시간초과)\w*",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"retr(y|ies|ied)|retransmits?|retransmissions?|reconnects?|reconnections?|deadlocks?|rollbacks?|restarts?"
    r"|warnings?|dropped|drops|lost|throttled|conflicts?|wiederholung\w*|warnung\w*|reintentos?|tentatives?|avertissements?"
    r"|повтор\w*|предупрежд\w*|\w*(重试|重試|再試行|警告|死锁|デッドロック|재시도)\w*",
    re.IGNORECASE,
)
#: A timeout alone is a setting; several, or a number of them, are counted.
_COUNTS = frozenset(
    {"count", "n", "num", "number", "nr", "nb", "no", "anzahl", "zahl", "total", "of", "rate", "pct"}
)
#: Beside these a word is a limit, a setting or a statistic.
_OTHER = frozenset({
    "max", "maximum", "limit", "allowed", "threshold", "budget", "enabled", "policy", "delay", "interval", "log",
    "level", "std", "standard", "stddev", "margin", "mean", "bar", "bars", "relative", "rel", "rms", "prediction",
    "estimate", "message", "msg", "text", "code", "type", "name", "reason", "mode", "on", "after", "time", "times",
    "ms", "latency", "id", "handling", "verbosity", "p", "segments",
})  # fmt: skip


@functools.lru_cache(4096)
def counts_failures(column: str) -> bool:
    """Whether a column's name says that it counts what failed."""
    own = names.plain(column).replace("non_2xx", "non2xx").split("_")
    if _OTHER & set(own):
        return False
    timeouts = {"timeout", "timedout"} & set(own) and _COUNTS & set(own)
    return bool(timeouts) or "timed_out" in names.plain(column) or any(map(_FAILED.fullmatch, own))


@functools.lru_cache(4096)
def counts_trouble(column: str) -> bool:
    """Whether it counts what a run got over, such as retries."""
    own = names.plain(column).split("_")
    return not _OTHER & set(own) and any(map(_TROUBLE.fullmatch, own))


def counted(lines: Sequence[Line], used: Collection[str]) -> tuple[list[str], list[str]]:
    """The columns that count failures and are 0 for most runs; and a note on each other count that is not 0."""
    few: list[str] = []
    notes: list[str] = []
    label = labels(lines)
    for name in lines[0][1] if lines else ():
        fails = counts_failures(name)
        if name in used or not (fails or counts_trouble(name)):
            continue
        told = [(label[place], count(cells[name])) for place, cells in lines]
        above = [(where, value) for where, value in told if value]
        if not above:
            continue
        if fails and 2 * len(above) < len(told):
            few.append(name)
            continue
        values = [value for _, value in above]
        shown = f"{min(values):g} to {max(values):g}" if len(set(values)) > 1 else f"{values[0]:g}"
        place = f" (line {above[0][0]})" if len(above) == 1 else ""
        what = "failed work may be in their values" if fails else "these runs are kept"
        notes.append(f"{name} is {shown} in {len(above)} of {len(told)} lines{place}: {what}")
    return few, notes


def count(text: str) -> float:
    """The number in a cell; 0 for anything else."""
    found = parts(text)
    return found[0] if found else 0.0
