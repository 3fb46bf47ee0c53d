"""perf script: stacks of samples, as folded stacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from headrace.host.stacks import KERNEL
from headrace.hunt.dumps.piece import Piece, Stacks

NAME = "perf script"

#: ``mariadbd 11899/12001 [001] 1234.567890:    250000 cpu-clock:ppp:``: the thread's name may have blanks.
_SAMPLE = re.compile(
    r"^(\S.{0,40}?)\s+-?\d+(?:/-?\d+)?\s+(?:\[\d+\]\s+)?(?:[^\s\d]{1,8}\s+)?\d+\.\d+:\s+(?:\d+\s+)?\S+:"
)
_FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)?(?: \(([^()]*(?:\([^()]*\))?[^()]*)\))?\s*$")
#: Frames of one stack.
MOST_FRAMES = 512


def read(text: str) -> list[Piece]:
    if not re.search(r"^\s+[0-9a-f]{5,16} .+\(.+\)\s*$", text, re.MULTILINE):
        return []
    stacks = Counter(_stacks(text))
    if not stacks:
        return []
    return [Stacks("".join(f"{stack} {count}\n" for stack, count in sorted(stacks.items())))]


def _stacks(text: str) -> Iterator[str]:
    # Frames come from the innermost out: a stack without the blank line below it was cut off at its root.
    name, frames = "", list[str]()
    for line in text.splitlines():
        if not line.strip():
            if name and frames:
                yield ";".join([name, *reversed(frames[:MOST_FRAMES])])
            name, frames = "", []
        elif match := _SAMPLE.match(line):
            name, frames = _plain(match[1]), []
        elif name and (match := _FRAME.match(line)):
            of_kernel = "kernel" in (match[2] or "") or (match[2] or "").endswith((".ko]", ".ko"))
            frames.append(_plain(match[1]) + (KERNEL if of_kernel else ""))


def _plain(name: str) -> str:
    return name.strip().replace(";", ":")
