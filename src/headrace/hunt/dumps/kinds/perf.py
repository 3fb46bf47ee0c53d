"""perf script: stacks of samples, as folded stacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from headrace.host.stacks import KERNEL
from headrace.hunt.dumps.piece import Piece, Said, Stacks, Unread

NAME = "perf script"

#: ``mariadbd 11899/12001 [001] 1234.567890:    250000 cpu-clock:ppp:``: the thread's name may have blanks.
_SAMPLE = re.compile(
    r"^(\S.{0,40}?)\s+-?\d+(?:/-?\d+)?\s+(?:\[\d+\]\s+)?(?:[^\s\d]{1,8}\s+)?\d+\.\d+:\s+(?:\d+\s+)?(\S+:)"
)
#: Events that are sampled as CPU time goes by: cpu-clock:ppp:, cycles:P:, cpu_core/cycles/:. Others are of waits,
#: faults or misses.
_CPU_TIME = re.compile(r"[\w/-]*(?:clock|cycles)\b[\w/,=-]*(?::[a-zA-Z]{0,8})?:")
_FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)?(?: \(([^()]*(?:\([^()]*\))?[^()]*)\))?\s*$")
#: Frames of one stack.
MOST_FRAMES = 512
#: Names of other events in a message.
MOST_EVENTS = 3
INSTEAD = "perf record -F 99 -g, and perf script of that, is read"


def read(text: str) -> list[Piece]:
    if not re.search(r"^\s+[0-9a-f]{5,16} .+\(.+\)\s*$", text, re.MULTILINE):
        return []
    stacks: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for event, stack in _stacks(text):
        if _CPU_TIME.fullmatch(event):
            stacks[stack] += 1
        else:
            others[event.rstrip(":")] += 1
    pieces: list[Piece] = []
    if stacks:
        pieces.append(Stacks("".join(f"{stack} {count}\n" for stack, count in sorted(stacks.items()))))
    if others:
        what = (
            f"stacks of {', '.join(sorted(others)[:MOST_EVENTS])} in perf script, which are not of CPU time"
        )
        pieces.append(Said(f"{what}: they are not used") if stacks else Unread(f"{what}; {INSTEAD}"))
    return pieces


def _stacks(text: str) -> Iterator[tuple[str, str]]:
    """The event and the folded stack of each sample."""
    # Frames come from the innermost out: a stack without the blank line below it was cut off at its root.
    name, event, frames = "", "", list[str]()
    for line in text.splitlines():
        if not line.strip():
            if name and frames:
                yield event, ";".join([name, *reversed(frames[:MOST_FRAMES])])
            name, frames = "", []
        elif match := _SAMPLE.match(line):
            name, event, frames = _plain(match[1]), match[2], []
        elif name and (match := _FRAME.match(line)):
            of_kernel = "kernel" in (match[2] or "") or (match[2] or "").endswith((".ko]", ".ko"))
            frames.append(_plain(match[1]) + (KERNEL if of_kernel else ""))


def _plain(name: str) -> str:
    return name.strip().replace(";", ":")
