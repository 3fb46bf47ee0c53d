"""Was a trial disturbed?

If something other than the treatment affected the numbers, they answer a different question.

Events that only the outside can cause (another process, the hypervisor, an array's resync) make a trial invalid,
unless their cost is measured: the verdicts account for the CPU time and the time of a device that others took
(``estimate``), up to half of it. Designs whose results decide what runs next do not, so there a smaller share is
enough.
Events that the treatment itself may cause (swapping, deadlocks, work still in flight at the end) are warnings:
dropping those trials would hide exactly the treatments that misbehave. The one exception is a kill for lack of
memory: such a trial measures nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.base.counted import counted
from headrace.experiment.frozen import Design
from headrace.experiment.stats.steady import unsteady
from headrace.experiment.stats.trials import NO_OPERATION, window_seconds
from headrace.experiment.store import RECONNECT, TrialRecord
from headrace.host.window import RESET_SHARE

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.host.arrow import TrialData
    from headrace.host.samples import Samples

#: A window this much shorter than planned means that the workload ended early and measured less than the other
#: trials. One this much longer had work in flight at its end, which is the treatment's own doing.
MAX_WINDOW_ERROR = 0.10

#: One in 1,000 operations may fail (a deadlock, a lost race) without a warning.
WARN_ERROR_SHARE = 0.001

#: Above this share of CPU time stolen by the hypervisor, the loss alone exceeds the default equivalence margin.
MAX_STEAL = 0.05

#: Where verdicts account for what was lost, up to this share: with more, little of the machine was measured.
MAX_LOST = 0.5

#: Below it, steal still explains part of the noise: worth a warning.
WARN_STEAL = 0.01

#: A second in which the hypervisor took more than this is named: it can make a p99 where the mean shows nothing.
WARN_STEAL_BURST = 0.2

#: A shorter time between two samples has too few ticks for a share.
MIN_TICKS = 50

#: States of a CPU. guest and guest_nice are part of user and nice already: proc(5).
_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

#: Rows whose median length is within this of a second are a series of seconds.
MAX_SECOND_ERROR = 0.1

#: More lost ticks than this (and than one, which the phase of the window costs) leave gaps in the data.
MAX_MISSED_TICKS = 0.10

#: Samplers that are not due on every tick, because their source changes slowly or is expensive to query.
RESTING = frozenset(
    {
        "allowance",
        "ebs",
        "objects",
        "cgroup",
        "file_systems",
        "innodb_cmp",
        "innodb_mutex",
        "innodb_status",
        "mysql_waits",
        "server_process",
        "statements",
        "temptable",
        "tracing",
    }
)

#: Pages swapped in per second, averaged over the window: 1 MiB/s of 4 KiB pages. A host that only reads back a few
#: pages it swapped out long ago stays far below it; one that is short of memory exceeds it a hundredfold.
MAX_SWAP_IN_PAGES_S = 256

#: A foreign program is a hog when it used more than half a core over the whole window ...
MAX_FOREIGN_CORES = 0.5

#: ... and more than this share of the machine, so that a monitoring agent on 64 cores is not one.
MAX_FOREIGN_SHARE = 0.05

#: From a tenth of a core on, a foreign program is named in a warning.
WARN_FOREIGN_CORES = 0.1

#: If other programs' reads and writes take more than this share of a device's time, a trial of a design that does
#: not account for it is invalid.
MAX_FOREIGN_DEVICE = 0.25

#: From this share on, the programs are named in a warning.
WARN_FOREIGN_DEVICE = 0.05

#: diskstats count sectors of 512 bytes, whatever the device's own: Documentation/admin-guide/iostats.rst.
SECTOR_BYTES = 512

#: /proc counts CPU time in USER_HZ, which is 100 on every architecture that Linux servers use: proc(5).
TICKS_PER_SECOND = 100

#: TAINT_DIE, "kernel has oopsed before": Documentation/admin-guide/tainted-kernels.rst.
OOPSED = 1 << 7

#: Programs that drive load or measure for headrace. The kernel cuts names to 15 characters. On another machine
#: the agent is named after its content: agent.py.
OWN_PROGRAMS = re.compile(r"headrace|headrace-agent|agent-[0-9a-f]{9}|fio|sysbench|qemu-storage-da")

#: Programs that do hardly any I/O of their own. When a child ends, the kernel adds all its bytes to its parent's
#: counters (wait_task_zombie), and our warm-up ends just before the window. A running child has its own counters.
REAPERS = re.compile(r"headrace|sshd(-session)?|sudo")

#: Servers: the busiest one is assumed to be the server under test, any other is foreign.
SERVER_PROGRAMS = frozenset({"mariadbd", "memcached", "mysqld"})


#: Input of the checks: all counters of these samplers, and these counters of any sampler.
_SAMPLERS = frozenset({"cpu", "disk", "md", "thermal"})
_METRICS = frozenset(
    {
        "headrace_ok",
        "oom_kill",
        "pswpin",
        "read_bytes",
        "rss_bytes",
        "stime_ticks",
        "tainted",
        "utime_ticks",
        "write_bytes",
    }
)


@dataclass(frozen=True)
class Disturbance:
    """Why a trial must not be analysed (``invalid``), and warnings for the reader (``warnings``).

    ``lost_share`` is the CPU time that others took, and ``lost_device_share`` the time of a device, if verdicts
    account for it.
    """

    invalid: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    lost_share: float = 0.0
    lost_device_share: float = 0.0


class _Reason(NamedTuple):
    """``lost`` is the share of the machine's CPU time that it took, and ``lost_device`` that of a device's time,
    where that is known.
    """

    text: str
    is_invalid: bool
    lost: float = 0.0
    lost_device: float = 0.0


@dataclass(frozen=True)
class _Counter:
    """A counter inside the window: its first, last and largest value, their sum, and the ticks."""

    first: float
    last: float
    peak: float
    sum: float
    ticks: int

    @property
    def growth(self) -> float:
        """Last minus first; the value itself if the counter was reset (a new device or process), and nothing if it
        stepped back."""
        if self.last < RESET_SHARE * self.first:
            return self.last
        return max(self.last - self.first, 0.0)


@dataclass(frozen=True)
class _Trial:
    """The input of the checks; ``operations``, ``errors`` and ``per_second`` are those of the window."""

    seconds: float
    planned_seconds: float
    interval_s: float
    cpus: int
    operations: int
    errors: int
    per_second: NDArray[np.float64] | None
    counters: Mapping[tuple[str, str, str], _Counter]
    servers: int = 1
    #: The largest share of the CPU time between two samples that the hypervisor took.
    worst_steal: float = 0.0

    def select(self, sampler: str, metric: str) -> dict[str, _Counter]:
        """Label -> counter; empty if the host or the sampler does not have it."""
        return {
            label: counter
            for (own_sampler, own_metric, label), counter in self.counters.items()
            if (own_sampler, own_metric) == (sampler, metric)
        }


def find_disturbance(
    record: TrialRecord, data: TrialData, design: Design, *, interval_s: float = 1.0
) -> Disturbance:
    """Everything that disturbed one trial, each with its numbers.

    ``interval_s`` is the sampler's.
    """
    from headrace.host.arrow import samples_of

    seconds = window_seconds(record)
    operations, errors, per_second = _work(data.intervals, seconds)
    samples = samples_of(data.samples)
    is_duet = design.at_once > 1
    trial = _Trial(
        seconds=seconds,
        planned_seconds=design.workload.seconds,
        interval_s=interval_s,
        cpus=max(record.cpus, 1),
        operations=operations,
        errors=errors,
        per_second=per_second,
        counters=_counters(samples, record),
        servers=2 if is_duet else 1,
        worst_steal=_worst_steal(samples, record),
    )
    # If headrace does not drive the load, every program on the host belongs to it.
    is_live = design.workload.kind in ("observe", "probe")
    checks = [check for check in _CHECKS if not (is_live and check in _FOREIGN)]
    # Outside events hit both sides of a duet at the same moment: a duet exists to cancel them. The turns of a
    # switchback have a random order within seconds, so that none is hit more than another.
    is_shared = is_duet or design.blocks_per_start > 0
    kept = _SHARED if is_shared else _TAKES if design.target.disturbed == "keep" else ()
    found = [(check, reason) for check in checks for reason in check(trial)]
    is_adjusted = not is_shared and not design.adaptive
    lost = min(sum(reason.lost for _, reason in found), 1.0) if is_adjusted else 0.0
    device = max((reason.lost_device for _, reason in found), default=0.0) if is_adjusted else 0.0
    if is_adjusted and max(lost, device) <= MAX_LOST:
        kept = (*kept, *_MEASURED)
    reasons = [reason._replace(is_invalid=reason.is_invalid and check not in kept) for check, reason in found]
    return Disturbance(
        tuple(r.text for r in reasons if r.is_invalid),
        tuple(r.text for r in reasons if not r.is_invalid),
        lost,
        device,
    )


def _counters(found: Samples, record: TrialRecord) -> dict[tuple[str, str, str], _Counter]:
    start_ns, end_ns = record.window_start_ns, record.window_end_ns
    counters = {}
    for name, begin, end in zip(found.names, found.starts, found.ends, strict=True):
        sampler, metric, _ = name
        if sampler not in _SAMPLERS and metric not in _METRICS:
            continue
        t_ns, value = found.t_ns[begin:end], found.value[begin:end]
        first, stop = np.searchsorted(t_ns, start_ns), np.searchsorted(t_ns, end_ns, side="right")
        # A process is not listed while it is idle, so its last row before the window is its starting value.
        is_process = sampler == "process" and metric != "headrace_ok"
        seen = value[0 if is_process else first : stop]
        if len(seen):
            origin = value[first - 1] if is_process and first else seen[0]
            counters[name] = _Counter(
                float(origin), float(seen[-1]), float(seen.max()), float(seen.sum()), len(seen)
            )
    return counters


def _worst_steal(samples: Samples, record: TrialRecord) -> float:
    ticks: dict[str, NDArray[np.float64]] = {}
    for (sampler, state, label), begin, end in zip(samples.names, samples.starts, samples.ends, strict=True):
        if (sampler, label) == ("cpu", "all") and state in _STATES:
            span = (record.window_start_ns, record.window_end_ns)
            first, stop = begin + np.searchsorted(samples.t_ns[begin:end], span)
            ticks[state] = np.maximum(np.diff(samples.value[first:stop]), 0.0)
    stolen = ticks.get("steal")
    if stolen is None or any(len(each) != len(stolen) for each in ticks.values()):
        return 0.0
    total = np.sum(list(ticks.values()), axis=0)
    return float(
        np.divide(stolen, total, where=total >= MIN_TICKS, out=np.zeros(len(total))).max(initial=0.0)
    )


def _work(intervals: pa.Table, seconds: float) -> tuple[int, int, NDArray[np.float64] | None]:
    """Operations and errors of the window, and operations per second; None if the rows are not about seconds."""
    import pyarrow.compute as pc

    intervals = intervals.filter(pc.not_equal(intervals["operation"], RECONNECT))
    t_s, duration_s = intervals["t_s"].to_numpy(), intervals["duration_s"].to_numpy()
    count, errors = (pc.fill_null(intervals[name], 0).to_numpy() for name in ("count", "errors"))
    inside = (t_s >= 0) & (t_s < seconds)
    operations, failed = int(count[inside].sum()), int(errors[inside].sum())
    if not inside.any() or abs(float(np.median(duration_s[inside])) - 1.0) > MAX_SECOND_ERROR:
        return operations, failed, None
    return operations, failed, _per_second(t_s, duration_s, count, int(seconds))


def per_second(intervals: pa.Table, seconds: float) -> NDArray[np.float64] | None:
    """Operations in each second of a window; None if the rows are not about seconds."""
    return _work(intervals, seconds)[2]


def _per_second(
    t_s: NDArray[np.float64], duration_s: NDArray[np.float64], count: NDArray[np.int64], length: int
) -> NDArray[np.float64]:
    """Operations in each of ``length`` seconds; each row counts in the seconds it covers, by its share in each.

    So neither a clock's jitter nor a report that came late (2 s in one row) reads as a stall and a burst.
    """
    begin, end = np.maximum(t_s, 0.0), np.minimum(t_s + duration_s, length)
    kept = end > begin
    begin, end, rate = begin[kept], end[kept], count[kept] / duration_s[kept]
    first = np.floor(begin).astype(np.int64)
    covered = np.ceil(end).astype(np.int64) - first
    row = np.repeat(np.arange(len(first)), covered)
    second = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(covered) - covered, covered)
    lap_s = np.minimum(end[row], second + 1) - np.maximum(begin[row], second)
    return np.bincount(second, weights=rate[row] * lap_s, minlength=length).astype(np.float64)


def _window(trial: _Trial) -> Iterator[_Reason]:
    error = trial.seconds / trial.planned_seconds - 1
    if abs(error) > MAX_WINDOW_ERROR:
        yield _Reason(
            f"the window is {trial.seconds:.1f} s instead of the planned {trial.planned_seconds:g} s "
            f"({error:+.0%}, limit {MAX_WINDOW_ERROR:.0%})",
            is_invalid=error < 0,
        )


def _operations(trial: _Trial) -> Iterator[_Reason]:
    if trial.operations == 0:
        yield _Reason(f"{NO_OPERATION} in the window", is_invalid=True)
        return
    share = trial.errors / (trial.operations + trial.errors)
    if share > WARN_ERROR_SHARE:
        yield _Reason(
            f"client errors: {trial.errors:,}, {share:.2%} of operations (limit {WARN_ERROR_SHARE:.1%})",
            is_invalid=False,
        )


def _steady(trial: _Trial) -> Iterator[_Reason]:
    text = None if trial.per_second is None else unsteady(trial.per_second)
    if text is not None:
        yield _Reason(text, is_invalid=False)


def _array_resync(trial: _Trial) -> Iterator[_Reason]:
    for array, active in trial.select("md", "sync_active").items():
        if active.peak > 0:
            yield _Reason(
                f"the array {array} was resyncing in {active.sum:.0f} of {counted(active.ticks, 'sample')}",
                is_invalid=True,
            )


def _oom_kill(trial: _Trial) -> Iterator[_Reason]:
    kills = sum(counter.growth for counter in trial.select("vmstat", "oom_kill").values())
    if kills > 0:
        yield _Reason(killed_for_memory(kills), is_invalid=True)


def killed_for_memory(kills: float) -> str:
    return f"the kernel killed {kills:.0f} process(es) for lack of memory"


def _oops(trial: _Trial) -> Iterator[_Reason]:
    for flags in trial.select("taint", "tainted").values():
        if int(flags.first) & OOPSED:
            text = "the kernel has had an Oops since it booted, and is not reliable until it is rebooted"
            yield _Reason(text, is_invalid=False)
        elif int(flags.last) & OOPSED:
            yield _Reason("the kernel had an Oops: see the trial's raw/kernel.log", is_invalid=True)


def _throttling(trial: _Trial) -> Iterator[_Reason]:
    events = sum(
        counter.growth
        for (sampler, metric, _), counter in trial.counters.items()
        if sampler == "thermal" and not metric.startswith("headrace_") and not metric.endswith("_ms")
    )
    if events > 0:
        yield _Reason(f"the CPU was throttled by heat: {events:.0f} events", is_invalid=True)


def _steal(trial: _Trial) -> Iterator[_Reason]:
    # A state that stepped back a little (idle and iowait may, by proc_stat(5)) was not reset.
    growth = {
        state: max(trial.counters[key].last - trial.counters[key].first, 0.0)
        for state in _STATES
        if (key := ("cpu", state, "all")) in trial.counters
    }
    total = sum(growth.values())
    share = growth.get("steal", 0.0) / total if total else 0.0
    worst = trial.worst_steal
    is_burst = worst > max(WARN_STEAL_BURST, 2 * share)
    if share > WARN_STEAL:
        is_invalid = share > MAX_STEAL
        limit = MAX_STEAL if is_invalid else WARN_STEAL
        burst = f", up to {worst:.0%} within {trial.interval_s:g} s" if is_burst else ""
        yield _Reason(
            f"the hypervisor took {share:.1%} of CPU time (limit {limit:.0%}){burst}", is_invalid, share
        )
    elif is_burst:
        within = f"within {trial.interval_s:g} s ({share:.1%} of the window)"
        yield _Reason(f"the hypervisor took {worst:.0%} of CPU time {within}", is_invalid=False)


def _swap_in(trial: _Trial) -> Iterator[_Reason]:
    pages = sum(counter.growth for counter in trial.select("vmstat", "pswpin").values())
    rate = pages / trial.seconds if trial.seconds > 0 else 0.0
    if rate > MAX_SWAP_IN_PAGES_S:
        yield _Reason(
            f"swapping: {rate:,.0f} pages/s swapped in (limit {MAX_SWAP_IN_PAGES_S})", is_invalid=False
        )


def _sampler_gaps(trial: _Trial) -> Iterator[_Reason]:
    expected = int(trial.seconds / trial.interval_s)
    samplers = {s: c for (s, metric, _), c in trial.counters.items() if metric == "headrace_ok"}
    if not samplers and expected > 1:
        yield _Reason(
            f"host not sampled (0 of {expected} samples): disturbances cannot be detected",
            is_invalid=False,
        )
    for sampler, ok in samplers.items():
        if sampler in RESTING:
            continue
        allowed = max(1.0, MAX_MISSED_TICKS * expected)
        if ok.sum == 0 and ok.ticks <= allowed:
            continue  # the host has no such source: the agent looks again only once a minute
        missing = expected - round(ok.sum)
        if missing > allowed:
            yield _Reason(
                f"the sampler {sampler} missed {missing} of {expected} ticks (limit {MAX_MISSED_TICKS:.0%})",
                is_invalid=False,
            )


def _of_processes(trial: _Trial, *metrics: str) -> dict[str, float]:
    """Process -> growth of these counters together."""
    memory = trial.select("process", "rss_bytes")
    found: dict[str, float] = {}
    for metric in metrics:
        for label, counter in trial.select("process", metric).items():
            # A kernel thread has no memory; it works on behalf of other processes.
            if label not in memory or memory[label].peak > 0:
                found[label] = found.get(label, 0.0) + counter.growth
    return found


def _foreign(trial: _Trial, used: Mapping[str, float]) -> dict[str, float]:
    """Program -> what its processes used, of those that do not belong to the trial.

    By program, because a build or a backup is many processes of which none is busy for long.
    """
    cpu = _of_processes(trial, "utime_ticks", "stime_ticks")
    servers = [label for label in cpu if _program(label) in SERVER_PROGRAMS]
    own = sorted(servers, key=lambda label: -cpu[label])[: trial.servers]
    found: dict[str, float] = {}
    for label, amount in used.items():
        if label not in own and not OWN_PROGRAMS.fullmatch(_program(label)):
            found[_program(label)] = found.get(_program(label), 0.0) + amount
    return found


def _foreign_programs(trial: _Trial) -> Iterator[_Reason]:
    # CPU time used since the last sample before the window may belong to the tick before it.
    span_s = trial.seconds + trial.interval_s
    ticks = _foreign(trial, _of_processes(trial, "utime_ticks", "stime_ticks"))
    for program, amount in ticks.items():
        used = amount / TICKS_PER_SECOND / span_s
        if used <= WARN_FOREIGN_CORES:
            continue
        is_invalid = used > MAX_FOREIGN_CORES and used / trial.cpus > MAX_FOREIGN_SHARE
        limit = MAX_FOREIGN_CORES if is_invalid else WARN_FOREIGN_CORES
        # Without process ids, so that the same cause in several trials reads as one.
        text = f"another program, {program}, used {used:.2f} cores (limit {limit:g})"
        yield _Reason(text, is_invalid, used / trial.cpus)


def _foreign_reads_and_writes(trial: _Trial) -> Iterator[_Reason]:
    """The device that others kept busy longest: its busy time, shared out by bytes.

    /proc does not tell which device a process used. At most so much of a device's bytes is others' as the trial's
    own processes cannot have read or written.
    """
    used = {
        label: amount
        for label, amount in _of_processes(trial, "read_bytes", "write_bytes").items()
        if not REAPERS.fullmatch(_program(label))
    }
    foreign = _foreign(trial, used)
    others = sum(foreign.values())
    if not others or len(used) == len(foreign):
        return  # without root, only the own processes can be read
    own = sum(used.values()) - others
    worst, device = 0.0, ""
    for name, busy in trial.select("disk", "io_ms").items():
        sectors = (trial.select("disk", each).get(name) for each in ("sectors_read", "sectors_written"))
        total = SECTOR_BYTES * sum(counter.growth for counter in sectors if counter)
        if total and trial.seconds > 0:
            share = min(others, max(total - own, 0.0)) / total
            taken = share * min(busy.growth / 1e3 / trial.seconds, 1.0)
            worst, device = max((worst, device), (taken, name))
    if worst <= WARN_FOREIGN_DEVICE:
        return
    is_invalid = worst > MAX_FOREIGN_DEVICE
    limit = MAX_FOREIGN_DEVICE if is_invalid else WARN_FOREIGN_DEVICE
    programs = sorted(foreign, key=lambda program: -foreign[program])
    listed = ", ".join(program for program in programs[:3] if foreign[program] > 0.1 * others)
    text = f"other programs ({listed}) took {worst:.0%} of the time of {device} (limit {limit:.0%})"
    yield _Reason(text, is_invalid, lost_device=worst)


def _program(label: str) -> str:
    """The program of a process label ``<pid>/<comm>``; comm itself may hold slashes."""
    return label.partition("/")[2]


#: Checks of what takes CPU time or a device's time from a trial. On a shared machine a plan may keep such trials.
_TAKES = (_throttling, _steal, _foreign_programs, _foreign_reads_and_writes)

#: Of these, the share is measured, so that the verdicts can account for it.
_MEASURED = (_steal, _foreign_programs, _foreign_reads_and_writes)

#: Checks of what other programs use.
_FOREIGN = (_foreign_programs, _foreign_reads_and_writes)

#: Checks of events that affect the whole machine.
_SHARED = (_array_resync, *_TAKES)

_CHECKS: tuple[Callable[[_Trial], Iterator[_Reason]], ...] = (
    _window,
    _operations,
    _steady,
    _array_resync,
    _oom_kill,
    _oops,
    _throttling,
    _steal,
    _swap_in,
    _sampler_gaps,
    _foreign_programs,
    _foreign_reads_and_writes,
)
