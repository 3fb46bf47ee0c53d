"""What is not known of the CPUs' times: intervals that were left out, CPUs that were not there all the time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.base.counted import counted
from headrace.host.window import CPU_STATES, Window

#: The part of the window with the CPUs that it ends with must be at least this long to be judged alone.
LEAST_S, LEAST_SHARE = 2.0, 0.1
#: Rounding of printed shares.
SAME = 0.01


def why_unknown(window: Window) -> str:
    """Why it is not known how busy the CPUs are."""
    once = "its CPUs were sampled once, which says nothing of how busy they are"
    return jumps(window) or (once if window.labels("cpu", "user") else "its CPUs were not sampled")


def what_tells_the_queue(window: Window) -> str:
    """Of CPUs that are full: what would say whether tasks wait for one."""
    running = window.gauge("cpu", "procs_running")
    if running is None:
        return "/proc/stat, vmstat or sar -q tells"
    return f"{running.mean:.1f} tasks were runnable, and nproc or /proc/cpuinfo tells on how many CPUs"


def jumps(window: Window) -> str:
    """What was left out of the CPUs' times; empty if nothing was."""
    said = []
    for left_out, what, why in (
        (
            window.jumps,
            "",
            "their times fell, or grew by more than the time that passed (a CPU that went offline, a suspended or "
            "migrated guest, wrongly counted stolen time)",
        ),
        (
            window.wrong_steal,
            "the stolen time in ",
            "with it their times are more than the time that passed; how much was stolen is unknown there",
        ),
    ):
        found = {name: count for name, count in left_out.items() if name != "all"} or dict(left_out)
        if found:
            most = max(found.values())
            names = next(iter(found)) if len(found) == 1 else f"{len(found)} CPUs"
            said.append(f"{what}{most} interval{'s' * (most != 1)} of {names} left out: {why}")
    if window.paused_s:
        said.append(
            f"{window.paused_s:,.0f} s left out in which no CPU's time advanced: the host was suspended or paused"
        )
    return "; ".join(said)


@dataclass(frozen=True)
class Changed:
    """CPUs that went offline or came online. ``window``: the part with those that there are at the end, or all of
    it if that part is too short to be judged."""

    window: Window
    said: str


def changed_cpus(window: Window) -> Changed | None:
    """None if the same CPUs were sampled all the time."""
    there = {
        name: set(window.times("cpu", "idle", name).tolist())
        for name in window.labels("cpu", "idle")
        if name != "all"
    }
    times = sorted(set().union(*there.values()))
    if len(times) < 2 or all(len(own) == len(times) for own in there.values()):
        return None
    at = [frozenset(name for name, own in there.items() if time in own) for time in times]
    first = next(number for number in range(len(at)) if all(each == at[-1] for each in at[number:]))
    if first == 0:
        return None
    if _is_of_these_alone(window, times[first], at[-1]):
        first -= 1
    most, now = max(at, key=len), at[-1]
    gone, came = len(most - now), len(now - at[0])
    after = times[first] - times[0]
    what = f"{gone} of {len(most)} CPUs went offline" if gone else f"{counted(came, 'CPU')} came online"
    if not gone and not came:
        what = f"{len(most) - len(min(at, key=len))} of {len(most)} CPUs were offline, the last one"
    said = f"{what} {'until' if not gone and not came else 'after'} {after:,.0f} s"
    seconds = times[-1] - times[first]
    if seconds < max(LEAST_S, LEAST_SHARE * (times[-1] - times[0])):
        return Changed(window, f"{said}: the {seconds:,.0f} s since are too short to be judged alone")
    there_are = f"{counted(len(now), 'CPU')} {'was' if len(now) == 1 else 'were'} there"
    said += f": the CPUs are judged by the {seconds:,.0f} s since, in which {there_are}"
    return Changed(window.since(times[first]), said)


def _is_of_these_alone(window: Window, time_s: float, cpus: Collection[str]) -> bool:
    """Whether the sum over all CPUs in the interval that ends then has no time of others.

    Printed reports are of the CPUs that they list; the kernel's sum has what one did before it went offline.
    """
    grown = dict.fromkeys(("all", *cpus), 0.0)
    for state in CPU_STATES:
        for name in grown:
            known = window.times("cpu", state, name).tolist()
            if time_s in known[1:]:
                values = window.values("cpu", state, name)
                at = known.index(time_s)
                grown[name] += float(values[at] - values[at - 1])
    total = grown.pop("all")
    return min(grown.values()) > 0 and abs(total - sum(grown.values())) <= SAME * total
