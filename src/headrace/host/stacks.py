"""Summarises folded stacks: hot functions, the kernel's share, and how many have names.

A folded stack is one line, frames from the outermost to the innermost joined by semicolons, a blank, and how often
it was seen. A frame that ends in ``_[k]`` is the kernel's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headrace.base.errors import StoreError

KERNEL = "_[k]"


@dataclass(frozen=True)
class Function:
    """A function's samples: as the innermost frame, and anywhere in the stack."""

    name: str
    self_samples: int
    total_samples: int
    is_kernel: bool


@dataclass(frozen=True)
class Profile:
    """The summary of a set of stacks. The shares are of all samples, from 0 to 1, and None without a sample;
    ``named_share`` is of those whose innermost frame has a name, which takes symbols.
    """

    samples: int
    functions: tuple[Function, ...]
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
        if not frames or not (count.isascii() and count.isdigit() and len(count) < 19):
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
    kernel = named = 0
    for frames, count in stacks.items():
        functions = frames[1:] or frames
        innermost = functions[-1]
        own[innermost] += count
        for name in set(functions):
            total[name] += count
        kernel += count if innermost.endswith(KERNEL) else 0
        named += count if not innermost.startswith("[") else 0
    samples = stacks.total()
    ranked = sorted(total, key=lambda name: (-own[name], -total[name], name))[:most]
    return Profile(
        samples,
        tuple(Function(name, own[name], total[name], name.endswith(KERNEL)) for name in ranked),
        *(part / samples if samples else None for part in (kernel, named)),
    )
