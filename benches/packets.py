"""`headrace latencies --packets`: the limit of one payload size predicted from another, and with RPS from without.

Three payload sizes between two network namespaces, both ends on one core, in rounds of random order; then the same
with received packets on the second core. Target: each size from one other size within 15%. RPS has no target: the
interval should hold, and the peer is "two cores carry twice as much". Other work on the machine must be light.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from headrace.host.target.local import LocalTarget
from headrace.hunt.ladder.ladder import PAYLOADS, SHARES, packets
from headrace.hunt.ladder.packets import Limit, Size, Step, errors, limits
from headrace.hunt.ladder.steering import OURS, Steered, ours_of, steered

MINUTES = 2
NEEDS = {"ip": "iproute2"}
NEEDS_ROOT = True

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "60"))
ROUNDS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "5"))
TARGET = 0.15
#: The second CPU.
RPS = "2"


def main() -> None:
    mask = RPS if (os.cpu_count() or 1) > 1 else ""
    steps = asyncio.run(measured(mask))
    sizes(limits([step for step in steps if not step.rps]))
    for each in steered(steps):
        moved(each)
    if ours_of([step for step in steps if step.share is None and not step.rps]) < OURS:
        print("other work ran on the core: none of this counts")


async def measured(mask: str) -> list[Step]:
    target = LocalTarget()
    await target.connect()
    try:
        plays = ROUNDS * (2 if mask else 1) * len(PAYLOADS) * (len(SHARES) + 1)
        step_s = max(SECONDS / (1.2 * plays), 0.05)
        return await packets(target, PAYLOADS, ROUNDS, step_s, mask, lambda number: None)
    finally:
        await target.close()


def sizes(found: list[Limit]) -> None:
    for each in found:
        low, high = each.packets_s.low or 0.0, each.packets_s.high or float("inf")
        print(f"{name(each.size)}: {each.packets_s.estimate:,.0f} packets/s ({low:,.0f} to {high:,.0f})")
    left_out, single = errors(found)
    for (one, of), error in single.items():
        print(f"  {name(of)} from {name(one)}: {error:+.1%}")
    for size, error in left_out.items():
        print(f"  {name(size)} from the others: {error:+.1%}")
    worst = max(map(abs, single.values()))
    verdict = "met" if worst <= TARGET else "MISSED"
    print(f"largest error from one size: {worst:.1%} (target {TARGET:.0%}: {verdict})", flush=True)


def moved(each: Steered) -> None:
    gained = each.measured.estimate / each.without.estimate
    line = (
        f"RPS {each.rps}, {name(each.size)}: {each.core} {each.softirq:.0%} softirq, measured {gained:.2f}x"
    )
    if each.predicted is None:
        print(f"{line}; no prediction: {each.why_not}")
        return
    low, middle, high = (
        None if value is None else value / each.without.estimate
        for value in (each.predicted.low, each.predicted.estimate, each.predicted.high)
    )
    ours, peer = (middle or 0.0) / gained - 1, 2 / gained - 1
    ends = f"{low or 0.0:.2f}x to {high or float('inf'):.2f}x"
    held = "held" if each.is_inside else "missed"
    beside = f"; other work on {', '.join(each.beside)}" if each.beside else ""
    print(f"{line}, predicted {middle:.2f}x ({ends}: {held}){beside}")
    print(f"  off by {ours:+.0%}; the peer, twice as much, by {peer:+.0%}", flush=True)


def name(size: Size) -> str:
    return f"{size[0]}/{size[1]} B"


if __name__ == "__main__":
    main()
