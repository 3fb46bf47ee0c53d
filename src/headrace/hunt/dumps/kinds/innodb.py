"""SHOW ENGINE INNODB STATUS, in any form, and in error logs: the numbers that the agent's sampler takes from it.

The text contains users' statements: only numbers and names of latches are kept. A statement may imitate the text,
so the log and pending I/O are read after the last title.
"""

from __future__ import annotations

import re

from headrace.hunt.dumps.piece import Numbered, Piece, stamped, time_of

NAME = "SHOW ENGINE INNODB STATUS"

_START = re.compile(
    r"^(\d{4}-\d\d-\d\d|\d{6})[ T]+(\d\d?:\d\d:\d\d)[^\n]{0,60}INNODB MONITOR OUTPUT *$", re.MULTILINE
)
#: The end is between dashes and equals signs.
_TITLE = re.compile(r"^-{3,}\n([A-Z][A-Z /O&]{2,40})\n[-=]{3,}$", re.MULTILINE)
#: Until MySQL 5.1 two numbers of 32 bits.
_LSN = r"(?:(?P<high>\d+) +)?(\d+) *$"
_SINGLES = (
    ("LOG", "lsn", rf"^Log sequence number\s+{_LSN}"),
    ("LOG", "lsn_flushed", rf"^Log flushed up to\s+{_LSN}"),
    ("LOG", "checkpoint_lsn", rf"^Last checkpoint at\s+{_LSN}"),
    ("LOG", "max_checkpoint_age_bytes", r"^Max checkpoint age\s+(\d+)"),
    ("TRANSACTIONS", "history_list_length", r"^History list length (\d+)"),
    ("BUFFER POOL AND MEMORY", "pending_reads", r"^Pending reads\s+(\d+)"),
    ("BUFFER POOL AND MEMORY", "pool_pages", r"^Buffer pool size\s+(\d+)$"),
    ("BUFFER POOL AND MEMORY", "pool_free_pages", r"^Free buffers\s+(\d+)$"),
    ("BUFFER POOL AND MEMORY", "pool_hits", r"^Buffer pool hit rate (\d+) / 1000"),
    ("BUFFER POOL AND MEMORY", "page_reads_s", r"^(\d+\.\d+) reads/s, [\d.]+ creates/s"),
    ("ROW OPERATIONS", "threads_inside", r"^(\d+) queries inside InnoDB"),
    ("ROW OPERATIONS", "threads_queued", r"queries inside InnoDB, (\d+) queries in queue"),
)
_ACTIVE = re.compile(r"^---TRANSACTION [^\n]*, ACTIVE (?:\(PREPARED\) )?(\d+)[^\n]*$", re.MULTILINE)
_AVERAGED = re.compile(r"^Per second averages calculated from the last (\d+) seconds", re.MULTILINE)
_DEADLOCK = re.compile(r"^(\d{4}-\d\d-\d\d|\d{6})[ T]+(\d\d?:\d\d:\d\d)", re.MULTILINE)
_LONGEST = re.compile(r"^-+ TRX HAS BEEN WAITING (\d+) (SEC|us)\b", re.MULTILINE)
#: What a client or a page of notes puts around each line.
_BARS = re.compile(r"^ *[|│] ?(.*?) *[|│]?$", re.MULTILINE)
_WAIT = re.compile(r"^--Thread \d+ has waited at (\S+) line (\d+) for (\d+)", re.MULTILINE)


def read(text: str) -> list[Piece]:
    if "INNODB MONITOR OUTPUT" not in text:
        return []
    found: list[Piece] = []
    for at_s, part in stamped(text):
        whole = part.replace("\\n", "\n") if _START.search(part) is None else part
        if _START.search(whole) is None:
            whole = _BARS.sub(r"\1", whole)
        starts = list(_START.finditer(whole))
        ends = [*(match.start() for match in starts[1:]), len(whole)]
        for match, end in zip(starts, ends, strict=False):
            printed_s = time_of(_date(match[1]), match[2])
            numbers = _numbers(whole[match.end() : end], printed_s)
            if numbers:
                own = at_s if len(starts) == 1 else None
                found.append(Numbered("innodb_status", numbers, own or printed_s))
    return found


def _date(text: str) -> str:
    """MySQL 5.5 wrote ``161129``."""
    return text if "-" in text else f"20{text[:2]}-{text[2:4]}-{text[4:]}"


def _numbers(text: str, at_s: float | None) -> dict[str, dict[str, float]]:
    """Empty if no section is whole: what follows a title may be cut off, and a sum of a part is too small."""
    titles = list(_TITLE.finditer(text))
    ends = [*(match.start() for match in titles[1:]), -1]
    sections = {
        match[1]: text[match.end() : end] for match, end in zip(titles, ends, strict=False) if end >= 0
    }
    found: dict[str, dict[str, float]] = {}
    for section, metric, pattern in _SINGLES:
        match = re.search(pattern, sections.get(section, ""), re.MULTILINE)
        if match:
            high = float(match.groupdict().get("high") or 0) * 2**32
            found[metric] = {"": high + float(match[match.lastindex or 1])}
    if "lsn" in found and "checkpoint_lsn" in found:
        age = found["lsn"][""] - found["checkpoint_lsn"][""]
        found["checkpoint_age_bytes"] = {"": max(age, 0.0)}
    pool = sections.get("BUFFER POOL AND MEMORY", "")
    if re.search(r"^No buffer pool page gets since the last printout", pool, re.MULTILINE):
        found["pool_missed"] = {"": 0.0}
    if "pool_hits" in found:
        found["pool_missed"] = {"": 1 - found.pop("pool_hits")[""] / 1000}
    if averaged := _AVERAGED.search(text[: titles[0].start()] if titles else ""):
        found["averaged_s"] = {"": float(averaged[1])}
    deadlock = _DEADLOCK.match(sections.get("LATEST DETECTED DEADLOCK", "").strip())
    deadlock_s = time_of(_date(deadlock[1]), deadlock[2]) if deadlock else None
    if at_s is not None and deadlock_s is not None and deadlock_s <= at_s:
        found["deadlock_age_s"] = {"": at_s - deadlock_s}
    if (transactions := sections.get("TRANSACTIONS")) is not None:
        active = list(_ACTIVE.finditer(transactions))
        found["active_transactions"] = {"": float(len(active))}
        found["oldest_transaction_s"] = {"": max((float(each[1]) for each in active), default=0.0)}
        _read_views(transactions, found)
        found["lock_wait_transactions"] = {"": float(len(re.findall(r"^LOCK WAIT ", transactions, re.M)))}
        waits = [
            float(each[1]) * (1e-6 if each[2] == "us" else 1) for each in _LONGEST.finditer(transactions)
        ]
        if waits:
            found["lock_wait_longest_s"] = {"": max(waits)}
        waiters = [each for each in active if each[0].endswith(" setting auto-inc lock")]
        found["autoinc_waiters"] = {"": float(len(waiters))}
    _semaphores(sections.get("SEMAPHORES", ""), found)
    _file_io(sections.get("FILE I/O", ""), found)
    return found


def _read_views(text: str, found: dict[str, dict[str, float]]) -> None:
    """The age of the oldest transaction with a read view. MySQL's text lacks those that only read: unknown."""
    ages = [
        float(active[1])
        for block in re.split(r"^(?=---TRANSACTION )", text, flags=re.MULTILINE)
        if (active := _ACTIVE.search(block))
        and re.search(r"^Trx read view will not see", block, re.MULTILINE)
    ]
    if "MariaDB thread id" in text:
        found["oldest_read_view_s"] = {"": max(ages, default=0.0)}


def _semaphores(text: str, found: dict[str, dict[str, float]]) -> None:
    waiters: dict[str, float] = {}
    for match in _WAIT.finditer(text):
        following = text[match.end() :].split("\n", 2)[1:2]
        latch = re.search(r"created in file (\S+) line (\d+)", following[0]) if following else None
        place = f"{latch[1]}:{latch[2]}" if latch else f"{match[1]}:{match[2]}"
        waiters[place] = waiters.get(place, 0.0) + 1
        longest = found.setdefault("semaphore_longest_wait_s", {"": 0.0})
        longest[""] = max(longest[""], float(match[3]))
    if waiters:
        found["semaphore_waiters"] = waiters


def _file_io(text: str, found: dict[str, dict[str, float]]) -> None:
    flushes = re.search(r"^Pending flushes \(fsync\)([^\n]*)", text, re.MULTILINE)
    for part in flushes[1].split(";") if flushes else ():
        name, mark, count = part.partition(":")
        number = re.search(r"\d+", count if mark else part)
        if number:
            found.setdefault("pending_fsyncs", {})[name.strip() if mark else ""] = float(number[0])
