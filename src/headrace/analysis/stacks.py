"""Summarises folded stacks: hot functions, waits for locks, areas of the server, the kernel's share.

A folded stack is one line, frames from the outermost to the innermost joined by semicolons, a blank, and how often
it was seen. A frame that ends in ``_[k]`` is the kernel's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import StoreError

KERNEL = "_[k]"

#: Names of frames that wait for, or contend for, a lock: glibc and the kernel's futexes, InnoDB's own locks of
#: MySQL (sync0rw, ut0mutex, os0event) and of MariaDB (srw_lock, ssux_lock), the server's metadata locks.
_LOCKS = re.compile(
    r"(^|::|_|\b)(futex_wait|do_futex|__lll_lock_wait|lll_lock_wait|pthread_mutex_(lock|timedlock)"
    r"|pthread_rwlock_(rd|wr)lock|pthread_cond_(timed)?wait|native_queued_spin_lock_slowpath|ut_delay"
    r"|rw_lock_[sx]+_lock|sync_array_wait_event|os_event_wait|TTASEventMutex|PolicyMutex|ssux_lock|srw_mutex"
    r"|srw_lock|psi_(rd|wr)_lock|wr_wait|rd_wait|MDL_context::acquire_lock|safe_mutex_lock)"
)

#: Area of a server of the MySQL family -> its functions, by the prefixes of their source files' names. A stack
#: belongs to the first area that its innermost frames name.
_AREAS: dict[str, re.Pattern[str]] = {
    area: re.compile(pattern)
    for area, pattern in {
        "redo log": r"\b(log_t::|log_write|log_flush|log_buffer|log_wait|log_checkpoint"
        r"|mtr_t::commit|mtr_t::finish)",
        "purge": r"\b(purge_|trx_purge|row_purge|srv_purge|srv_do_purge)",
        "row locks": r"\b(lock_rec|lock_sys|lock_table|lock_clust|lock_sec|lock_wait|lock_release"
        r"|DeadlockChecker)",
        "buffer pool": r"\b(buf_|Buf_fetch|fil_|os_aio|os_file)",
        "indexes and rows": r"\b(btr_|page_|row_|rec_|dtuple|cmp_|ibuf_)",
        "transactions": r"\b(trx_|ReadView|read_view)",
        "dictionary": r"\b(dict_|dd::|open_table|tdc_|TABLE_SHARE|mdl_|MDL_)",
        "binary log": r"\b(MYSQL_BIN_LOG|binlog_|MYSQL_LOG|ordered_commit)",
        "parser": r"\b(MYSQLparse|ORAparse|MYSQLlex|Lex_input|parse_sql|lex_one_token|yylex)",
        "optimizer": r"\b(JOIN::|Item_|make_join|best_access|SQL_SELECT|test_quick_select|mysql_select)",
        "network": r"\b(vio_|net_|my_net|Protocol|recv|send|poll|tcp_|sock_|inet_)",
    }.items()
}


@dataclass(frozen=True)
class Function:
    """A function's samples: as the innermost frame, and anywhere in the stack."""

    name: str
    self_samples: int
    total_samples: int
    is_kernel: bool


@dataclass(frozen=True)
class Profile:
    """The summary of a set of stacks. The shares are of all samples, from 0 to 1, and None without a sample.

    ``areas`` counts samples by area of the server; the rest is ``other``. An area is a guess from names: without
    symbols everything is ``other``, which ``named_share`` (samples whose innermost frame has a name) shows.
    """

    samples: int
    functions: tuple[Function, ...]
    areas: tuple[tuple[str, int], ...]
    lock_share: float | None
    kernel_share: float | None
    named_share: float | None


def parse(text: str) -> Counter[tuple[str, ...]]:
    """Stacks and their counts. Raises StoreError with the line number if a line is not a folded stack."""
    stacks: Counter[tuple[str, ...]] = Counter()
    # Not splitlines: names may hold characters that it takes for the end of a line.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        frames, _, count = line.rpartition(" ")
        if not frames or not (count.isascii() and count.isdigit()):
            raise StoreError(
                "not a folded stack: expected frames, a blank and a count", place=f"line {number}"
            )
        stacks[tuple(frames.split(";"))] += int(count)
    return stacks


def profile(stacks: Counter[tuple[str, ...]], most: int = 30) -> Profile:
    """The ``most`` functions with the most samples of their own, and the shares.

    The first frame is the thread's name, not a function. A recursive function counts once per stack in its total.
    """
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    areas: Counter[str] = Counter()
    locked = kernel = named = 0
    for frames, count in stacks.items():
        functions = frames[1:] or frames
        innermost = functions[-1]
        own[innermost] += count
        for name in set(functions):
            total[name] += count
        areas[area(functions)] += count
        locked += count if waits(functions) else 0
        kernel += count if innermost.endswith(KERNEL) else 0
        named += count if not innermost.startswith("[") else 0
    samples = stacks.total()
    ranked = sorted(total, key=lambda name: (-own[name], -total[name], name))[:most]
    return Profile(
        samples,
        tuple(Function(name, own[name], total[name], name.endswith(KERNEL)) for name in ranked),
        tuple(areas.most_common()),
        *(part / samples if samples else None for part in (locked, kernel, named)),
    )


def waits(functions: Iterable[str]) -> bool:
    """Whether a frame of the stack waits for a lock or contends for it."""
    return any(_LOCKS.search(name) for name in functions)


def area(functions: tuple[str, ...]) -> str:
    """The area of the server that the innermost frame with a known name belongs to; else ``other``."""
    for name in reversed(functions):
        for found, pattern in _AREAS.items():
            # Kernel time belongs to the caller, except for the network.
            if (not name.endswith(KERNEL) or found == "network") and pattern.search(name):
                return found
    return "other"
