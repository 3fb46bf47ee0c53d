"""What a server's threads wait for: in the kernel, by function, and in the server, by its instruments."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.host.window import Window

#: Kernel functions in which idle threads rest; in others, threads wait for something.
IDLE = (
    "do_epoll_wait",
    "do_nanosleep",
    "do_sigtimedwait",
    "do_sys_poll",
    "ep_poll",
    "hrtimer_nanosleep",
    "io_cqring_wait",
    "poll_schedule_timeout",
    "read_events",
)
#: Instruments of threads that wait for work, not for each other.
IDLE_EVENTS = ("idle", "wait/io/socket/", "wait/synch/cond/")


@dataclass(frozen=True)
class KernelWait:
    """The average number of ``threads`` with this name in this kernel function; ``is_idle`` if that is resting."""

    thread: str
    function: str
    threads: float
    is_idle: bool


@dataclass(frozen=True)
class Event:
    """A wait event: share of the wait time, rate per second, and mean in us."""

    name: str
    share: float
    rate: float
    mean_us: float


def kernel_waits(window: Window, most: int = 8) -> list[KernelWait]:
    """The most common waits of the servers' threads in the kernel, resting threads last."""
    found = []
    for label in window.labels("threads", "waiting"):
        gauge = window.gauge("threads", "waiting", label)
        name, _, function = label.rpartition("/")
        # The compiler marks its own copies of a function: .isra.0, .constprop.0.
        function = function.partition(".")[0]
        if gauge and gauge.mean > 0:
            found.append(KernelWait(name, function, gauge.mean, function in IDLE))
    found.sort(key=lambda wait: (wait.is_idle, -wait.threads, wait.thread))
    return found[:most]


def events(window: Window, most: int = 8) -> list[Event]:
    """The wait events with the most time in the window, except waiting for work."""
    times = {
        name: grown
        for name in window.labels("mysql_waits", "time_ns")
        if not name.startswith(IDLE_EVENTS) and (grown := window.growth("mysql_waits", "time_ns", name))
    }
    total = sum(times.values())
    found = []
    for name, time_ns in sorted(times.items(), key=lambda pair: -pair[1])[:most]:
        count = window.growth("mysql_waits", "count", name) or 0.0
        rate = window.rate("mysql_waits", "count", name) or 0.0
        found.append(Event(name, time_ns / total, rate, time_ns / count / 1e3 if count else 0.0))
    return found
