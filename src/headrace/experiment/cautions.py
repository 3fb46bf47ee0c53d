"""What a plan may say, but what cannot lead to a verdict: told before it runs."""

from __future__ import annotations

from headrace.experiment import workloads
from headrace.experiment.frozen import Design
from headrace.knobs import catalogue as knobs

#: A shorter window has too few operations for a percentile, and starts and stops weigh in it.
SHORTEST_S = 5.0

#: The share of a machine's memory that a buffer pool can have.
MOST_OF_MEMORY = 0.9

POOL = "server.innodb_buffer_pool_size"


def of(design: Design, memory_bytes: int | None) -> list[str]:
    """A sentence each: the key, and what to write instead. ``memory_bytes``: the machine's; None: not known."""
    return [*_window(design), *_blocks(design), *_pool(design, memory_bytes)]


def _window(design: Design) -> list[str]:
    table = design.workload
    found = []
    if table.seconds < SHORTEST_S:
        found.append(
            f"workload.seconds = {table.seconds:g}: too short for a percentile or a steady mean; "
            "seconds = 30 is usual"
        )
    workload = workloads.make_workload(table.kind, table.options)
    if (
        workload.needs_server
        and not workloads.watches(workload)
        and not table.warmup_s + table.steady_within_s
    ):
        found.append(
            "workload.warmup_s = 0: every trial starts with cold caches, and measures how they fill; "
            "warmup_s = 10, or steady_within_s"
        )
    return found


def _blocks(design: Design) -> list[str]:
    if design.blocks > 1 or design.adaptive:
        return []
    return ["design.blocks = 1: one block shows no noise, so nothing can be proven; blocks = 5 is usual"]


def _pool(design: Design, memory_bytes: int | None) -> list[str]:
    if memory_bytes is None:
        return []
    sizes = {str(t.settings[POOL]) for t in design.treatments if POOL in t.settings}
    large = [text for text in sorted(sizes) if _bytes(text) > MOST_OF_MEMORY * memory_bytes]
    if not large:
        return []
    has = f"{memory_bytes / 1024**3:.3g}G"
    pools = f"{POOL} = {', '.join(large)}"
    return [f"{pools}: this machine has {has} of memory; such a server does not start, or swaps"]


def _bytes(text: str) -> int:
    return int(str(knobs.find(POOL).meaning(text)).partition(".")[0])
