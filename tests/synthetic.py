"""Experiments that never ran: folders as the runner writes them, with effects and disturbances we know.

Throughput of a trial is ``base * effect * block * noise``; its seconds are autocorrelated (AR(1)), as real ones
are. Counters only grow, from a large offset, as the kernel's do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.base.buckets import bucket_of
from headrace.base.model import Facts, Role, Treatment, TrialSpec, TrialState, Value
from headrace.experiment.frozen import Design
from headrace.experiment.plan import VolumeTable, WorkloadTable
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.host.arrow import INTERVALS, LATENCY, SAMPLES, TrialData, empty_data

START_NS = 1_700_000_000_000_000_000
DEVICE = "loop3"

LADDER: Mapping[str, float] = {
    "STOCK": 1.0,
    "KERNEL": 1.18,
    "MYSQL": 2.4,
    "JE": 1.02,
    "KERN+MYSQL": 3.1,
    "KERN+JE": 1.2,
    "MYSQL+JE": 2.6,
    "ALL": 3.4,
}

_KERNEL: Mapping[str, Value] = {"volume.scheduler": "none", "volume.mount_options": ["noatime", "nodiratime"]}
_MYSQL: Mapping[str, Value] = {"server.innodb_buffer_pool_size": "1G", "server.innodb_log_file_size": "512M"}

#: What captured text may hold when somebody means harm: markup, a script's end, quotes, terminal escapes.
HOSTILE = "</script><img src=x onerror=alert(1)> <b>\"'&amp;{{7*7}} [bold red]x[/] \x1b[31mred\x07 \u202eevil"


@dataclass(frozen=True)
class Shape:
    """What an experiment looks like. ``effects`` maps configuration to throughput relative to the first one."""

    effects: Mapping[str, float] = field(default_factory=lambda: dict(LADDER))
    conditions: Sequence[str] = ("",)
    blocks: int = 5
    seconds: int = 20
    warmup_s: int = 5
    cores: int = 4
    base_ops_s: float = 4000.0
    noise: float = 0.015
    seed: int = 7
    kind: str = "cumulative"
    workload: str = "sysbench-oltp"
    invalid: Mapping[int, str] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    warnings: Mapping[int, str] = field(default_factory=dict)
    unfinished: int = 0
    histogram_per_second: bool = False
    extra_series: int = 0
    gap_trial: int = 0
    reset_trial: int = 0
    description: str = "A generated experiment."
    sampled: bool = True
    hostname: str = "lab1"
    #: Each is done as often and takes as long as the others.
    operations: tuple[str, ...] = ("transaction",)
    latency_kind: str = "service"
    options: Mapping[str, Value] = field(default_factory=dict)
    #: The server takes this much memory, and its files this much room, in each second.
    leak_bytes_s: float = 0.0


def make(path: Path, shape: Shape | None = None) -> ExperimentFolder:
    """Write a whole experiment; trials named in ``invalid`` and ``failed`` have that state and reason."""
    shape = shape or Shape()
    design = design_of(shape, path.name)
    folder = ExperimentFolder.create(path, f'name = "{path.name}"\n', design)
    facts = Facts("f" * 64, facts_of(shape))
    folder.save_facts(facts)
    for spec in design.trials[: len(design.trials) - shape.unfinished]:
        write_trial(folder, shape, spec, facts.hash)
    return folder


def bare_design(name: str = "e", **more: Any) -> Design:
    """A design of nothing, for what asks little of it."""
    least: dict[str, Any] = {
        "kind": "cumulative", "seed": 1, "blocks": 1, "alpha": 0.05, "equivalence": 0.03, "baselines": {},
        "workload": WorkloadTable(kind="fio", seconds=10.0), "treatments": (), "trials": (),
    }  # fmt: skip
    return Design(name=name, **(least | more))


def design_of(shape: Shape, name: str) -> Design:
    """As ``experiment.design`` builds it."""
    treatments = []
    for condition in shape.conditions:
        for configuration in shape.effects:
            full = f"{configuration} @ {condition}" if condition else configuration
            levels = {"configuration": configuration, **dict(p.split("=", 1) for p in condition.split())}
            treatments.append(Treatment(full, levels, settings_of(configuration, condition), condition))
    first = next(iter(shape.effects))
    baselines = {c: f"{first} @ {c}" if c else first for c in shape.conditions}
    generator = random.Random(shape.seed)
    trials: list[TrialSpec] = []
    for block in range(1, shape.blocks + 1):
        entries = [(t.name, Role.CANDIDATE) for t in treatments if baselines[t.condition] != t.name]
        entries += [(b, role) for b in baselines.values() for role in (Role.BASELINE, Role.REPEAT)]
        generator.shuffle(entries)
        for position, (treatment, role) in enumerate(entries, start=1):
            trials.append(TrialSpec(len(trials) + 1, block, position, treatment, role))
    options: dict[str, Any] = {"script": "oltp_read_write", "threads": 8, **shape.options}
    return Design(
        name=name,
        description=shape.description,
        hash="d" * 64,
        kind=shape.kind,
        seed=shape.seed,
        blocks=shape.blocks,
        alpha=0.05,
        equivalence=0.03,
        workload=WorkloadTable(
            kind=shape.workload, seconds=float(shape.seconds), warmup_s=float(shape.warmup_s), **options
        ),
        volume=VolumeTable(device="loop"),
        base={"volume.filesystem": "xfs"},
        baselines=baselines,
        treatments=tuple(treatments),
        trials=tuple(trials),
    )


def settings_of(configuration: str, condition: str) -> dict[str, Value]:
    settings: dict[str, Value] = {"volume.filesystem": "xfs"}
    if configuration.startswith("KERN") or configuration == "ALL":
        settings |= _KERNEL
    if "MYSQL" in configuration or configuration == "ALL":
        settings |= _MYSQL
    if configuration.endswith("JE") or configuration == "ALL":
        settings["server.allocator"] = "jemalloc"
    if configuration.startswith("fs="):
        settings |= {f"volume.{part.split('=')[0]}": part.split("=")[1] for part in configuration.split()}
    for part in condition.split():
        key, value = part.split("=", 1)
        settings[f"workload.{key}"] = int(value) if value.isdigit() else value
    return settings


def write_trial(folder: ExperimentFolder, shape: Shape, spec: TrialSpec, facts_hash: str) -> None:
    number = spec.number
    state, reason = TrialState.COMPLETE, ""
    if number in shape.invalid:
        state, reason = TrialState.INVALID, shape.invalid[number]
    if number in shape.failed:
        state, reason = TrialState.FAILED, shape.failed[number]
    start_ns = START_NS + number * (shape.warmup_s + shape.seconds + 6) * 1_000_000_000
    window = (
        (start_ns, start_ns + shape.seconds * 1_000_000_000) if state is not TrialState.FAILED else (0, 0)
    )
    settings = folder.design.treatment(spec.treatment).settings
    knobs = {
        k: {"before": "134217728" if k.endswith("_size") else None, "after": _written(v)}
        for k, v in settings.items()
        if k.startswith("server.")
    }
    if "volume.scheduler" in settings:
        knobs[f"/sys/block/{DEVICE}/queue/scheduler"] = {"before": "mq-deadline", "after": "none"}
    knobs["volume.device"] = {"before": None, "after": f"/dev/{DEVICE}"}
    record = replace(
        TrialRecord.of(spec, state, reason),
        window_start_ns=window[0],
        window_end_ns=window[1],
        times_ns={
            "started": start_ns - (shape.warmup_s + 3) * 1_000_000_000,
            "workload": start_ns - shape.warmup_s * 1_000_000_000,
            "finished": start_ns + (shape.seconds + 2) * 1_000_000_000,
        },
        facts_hash=facts_hash,
        knobs=knobs,
        versions={
            "headrace": "0.1.0",
            "mariadbd": "10.11.14-MariaDB",
            "sysbench": "1.0.20",
            "kernel": "6.18.5",
        },
        warnings=[shape.warnings[number]] if number in shape.warnings else [],
        cpus=shape.cores,
    )
    data = empty_data() if state is TrialState.FAILED else trial_data(shape, spec, start_ns)
    draft = folder.begin_trial(number)
    (draft.raw / "stdout.txt").write_text("generated\n")
    draft.commit(record, data)


def _written(value: Value) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def trial_data(shape: Shape, spec: TrialSpec, start_ns: int) -> TrialData:
    generator = np.random.default_rng([shape.seed, spec.number])
    block = np.random.default_rng([shape.seed, 1_000_000 + spec.block]).normal(0, 0.03)
    configuration, _, condition = spec.treatment.partition(" @ ")
    scale = 1.0 + 0.35 * list(shape.conditions).index(condition)
    mean = shape.base_ops_s * shape.effects[configuration] * scale
    mean *= float(np.exp(block + generator.normal(0, shape.noise)))
    seconds = np.arange(-shape.warmup_s, shape.seconds)
    level = _level(generator, seconds, mean)
    counts = generator.poisson(level)
    median_ns = 8e9 / mean * 0.8
    intervals, latency = _latencies(shape, generator, seconds, counts, median_ns, level / mean)
    intervals, latency = (
        pa.concat_tables(_renamed(table, name) for name in shape.operations) for table in (intervals, latency)
    )
    samples = SAMPLES.empty_table()
    if shape.sampled:
        samples = _samples(shape, generator, start_ns, seconds, counts, spec.number)
    return TrialData(intervals, latency, samples)


def _renamed(table: pa.Table, operation: str) -> pa.Table:
    place = table.schema.get_field_index("operation")
    return table.set_column(place, table.schema.field(place), pa.array([operation] * len(table)))


def _level(generator: np.random.Generator, seconds: NDArray[np.int64], mean: float) -> NDArray[np.float64]:
    """Operations a second: a warm-up ramp, AR(1) noise, and a dip where the checkpoint comes."""
    noise = np.empty(len(seconds))
    state = 0.0
    shocks = generator.normal(0, 0.012, len(seconds))
    for i, shock in enumerate(shocks):
        state = 0.8 * state + shock
        noise[i] = state
    ramp = 1 - 0.6 * np.exp(-(seconds - seconds[0] + 1) / 2.5)
    dip = np.where((seconds % 97 > 90) & (seconds > 0), 0.7, 1.0)
    return np.asarray(mean * ramp * dip * np.exp(noise), dtype=np.float64)


def _latencies(
    shape: Shape,
    generator: np.random.Generator,
    seconds: NDArray[np.int64],
    counts: NDArray[np.int64],
    median_ns: float,
    speed: NDArray[np.float64],
) -> tuple[pa.Table, pa.Table]:
    grid = np.unique(bucket_of(np.geomspace(median_ns / 20, median_ns * 400, 240).astype(np.int64)))
    values = np.geomspace(median_ns / 20, median_ns * 400, len(grid))
    density = np.exp(-((np.log(values / median_ns)) ** 2) / (2 * 0.45**2))
    density += 0.004 * np.exp(-((np.log(values / (median_ns * 14))) ** 2) / (2 * 0.6**2))
    density /= density.sum()
    per_second = generator.multinomial(counts, density)
    last = len(grid) - 1 - np.argmax(per_second[:, ::-1] > 0, axis=1)
    first = np.argmax(per_second > 0, axis=1)
    rank = np.argmax(np.cumsum(per_second, axis=1) >= 0.99 * counts[:, None], axis=1)
    n = len(seconds)
    intervals = pa.table(
        {
            "t_s": seconds.astype(np.float64),
            "duration_s": np.ones(n),
            "operation": ["transaction"] * n,
            "count": counts,
            "errors": (generator.random(n) < 0.02).astype(np.int64),
            "rows": counts * 4,
            "bytes": np.zeros(n, dtype=np.int64),
            "min_ns": (values[first] / speed).astype(np.int64),
            "max_ns": (values[last] / speed).astype(np.int64),
            "p99_ns": (values[rank] / speed).astype(np.int64),
        },
        schema=INTERVALS,
    )
    if shape.histogram_per_second:
        row, column = np.nonzero(per_second)
        t_s = pa.array(seconds[row].astype(np.float64))
        count = per_second[row, column]
    else:
        total = per_second[seconds >= 0].sum(axis=0)
        column = np.nonzero(total)[0]
        t_s = pa.nulls(len(column), pa.float64())
        count = total[column]
    columns = [
        t_s,
        _constant("transaction", len(column)),
        _constant(shape.latency_kind, len(column)),
        grid[column],
        count,
    ]
    return intervals, pa.Table.from_arrays([pa.array(c) for c in columns], schema=LATENCY)


def _constant(text: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(n, dtype=np.int32), [text]).cast(pa.string())


class _Counters:
    """Collects series of equal length; ``table`` sorts them as ``arrow.read_samples`` does."""

    def __init__(self, t_ns: NDArray[np.int64]) -> None:
        self.t_ns = t_ns
        self._series: dict[tuple[str, str, str], NDArray[np.float64]] = {}

    def counter(self, sampler: str, metric: str, label: str, rate: Any, offset: float = 1e6) -> None:
        self.gauge(
            sampler, metric, label, offset + np.floor(np.cumsum(np.broadcast_to(rate, self.t_ns.shape)))
        )

    def gauge(self, sampler: str, metric: str, label: str, value: Any) -> None:
        self._series[sampler, metric, label] = np.broadcast_to(np.asarray(value, float), self.t_ns.shape)

    def __len__(self) -> int:
        return len(self._series)

    def table(self, keep: NDArray[np.bool_]) -> pa.Table:
        keys = sorted(self._series)
        n = int(keep.sum())
        columns = []
        for part in range(3):
            names = sorted({k[part] for k in keys})
            index = np.array([names.index(k[part]) for k in keys], dtype=np.int32)
            columns.append(pa.DictionaryArray.from_arrays(np.repeat(index, n), names).cast(pa.string()))
        values = np.concatenate([self._series[k][keep] for k in keys])
        t_ns = np.tile(self.t_ns[keep], len(keys))
        return pa.Table.from_arrays([pa.array(t_ns), *columns, pa.array(values)], schema=SAMPLES)


def _samples(
    shape: Shape,
    generator: np.random.Generator,
    start_ns: int,
    seconds: NDArray[np.int64],
    counts: NDArray[np.int64],
    number: int,
) -> pa.Table:
    jitter = generator.normal(0, 2e6, len(seconds)).astype(np.int64)
    all_ = _Counters(start_ns + seconds * 1_000_000_000 + 500_000_000 + jitter)
    _cpu(all_, generator, shape.cores, counts)
    reads = (counts * 0.6 + generator.poisson(200, len(seconds))).astype(np.float64)
    writes = (counts * 1.9).astype(np.float64)
    _disk(all_, DEVICE, reads, writes)
    _disk(all_, "vda", reads * 0.01, writes * 0.02)
    for metric, factor in (
        ("innodb_rows_read", 5.0),
        ("innodb_rows_inserted", 1.0),
        ("innodb_rows_updated", 2.0),
        ("innodb_rows_deleted", 1.0),
        ("innodb_buffer_pool_reads", 0.6),
        ("innodb_os_log_fsyncs", 0.8),
        ("innodb_data_fsyncs", 0.9),
        ("innodb_row_lock_waits", 0.001),
        ("questions", 9.0),
    ):
        all_.counter("mysql_status", metric, "", counts * factor)
    all_.gauge("mysql_status", "threads_running", "", 6)
    all_.counter("vmstat", "pgfault", "", counts * 3)
    if shape.leak_bytes_s:
        leaked = shape.leak_bytes_s * (seconds - seconds[0]) + generator.normal(0, 1e5, len(seconds))
        all_.gauge("process", "rss_bytes", "812/mariadbd", 2e9 + leaked)
        all_.gauge("file_systems", "available_bytes", "/srv", 40e9 - leaked)
        all_.gauge("memory", "MemAvailable", "", np.full(len(seconds), 8e9))
    for i in range(max(0, shape.extra_series - len(all_))):
        all_.counter("vmstat", f"filler_{i:03d}", "", counts)
    keep = np.ones(len(seconds), dtype=bool)
    if number == shape.gap_trial:
        keep[len(seconds) // 2 : len(seconds) // 2 + 5] = False
    table = all_.table(keep)
    if number == shape.reset_trial:
        table = _with_reset(table, start_ns + shape.seconds * 500_000_000)
    return table


def _with_reset(table: pa.Table, at_ns: int) -> pa.Table:
    """The server's counters start again from 0 in the middle, as after a restart."""
    later = (table["t_ns"].to_numpy() >= at_ns) & np.array(
        [s == "mysql_status" for s in table["sampler"].to_pylist()]
    )
    value = table["value"].to_numpy().copy()
    value[later] = np.maximum(value[later] - 1e6, 0) * 0.01
    return table.set_column(4, "value", pa.array(value))


def _cpu(all_: _Counters, generator: np.random.Generator, cores: int, counts: NDArray[np.int64]) -> None:
    n = len(counts)
    modes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    total: dict[str, NDArray[Any]] = {mode: np.zeros(n) for mode in modes}
    load = np.clip(counts / max(float(np.max(counts)), 1.0), 0, 1)
    for core in range(cores):
        user = 100 * load * (0.75 - 0.5 * core / cores) + generator.normal(0, 2, n)
        soft = np.full(n, 22.0 if core == 0 else 1.0) * load
        system = 12 * load + generator.normal(0, 1, n)
        parts = {
            "user": user,
            "nice": np.zeros(n),
            "system": system,
            "iowait": 6 * (1 - load) + 2,
            "irq": np.zeros(n),
            "softirq": soft,
            "steal": np.where(np.arange(n) % 60 > 55, 6.0, 0.0),
        }
        parts = {k: np.clip(v, 0, 60) for k, v in parts.items()}
        used = np.sum(list(parts.values()), axis=0)
        shrink = np.minimum(1.0, 99.0 / np.maximum(used, 1.0))
        parts = {k: v * shrink for k, v in parts.items()}
        parts["idle"] = 100.0 - np.sum(list(parts.values()), axis=0)
        for metric, rate in parts.items():
            all_.counter("cpu", metric, f"cpu{core}", rate)
            total[metric] += rate
    for metric, rate in total.items():
        all_.counter("cpu", metric, "all", rate)


def _disk(all_: _Counters, device: str, reads: NDArray[Any], writes: NDArray[Any]) -> None:
    busy_ms = np.clip((reads + writes) * 0.08, 0, 1000)
    rates = {
        "reads": reads,
        "sectors_read": reads * 32,
        "read_ms": reads * 0.35,
        "writes": writes,
        "sectors_written": writes * 32,
        "write_ms": writes * 0.9,
        "io_ms": busy_ms,
        "weighted_io_ms": reads * 0.35 + writes * 0.9,
        "flushes": writes * 0.1,
        "flush_ms": writes * 0.05,
    }
    for metric, rate in rates.items():
        all_.counter("disk", metric, device, rate)
    all_.gauge("disk", "in_flight", device, np.floor((reads * 0.35 + writes * 0.9) / 1000))


def facts_of(shape: Shape) -> dict[str, Any]:
    """The parts of the agent's facts that a report shows."""
    queue = {"scheduler": "mq-deadline", "nr_requests": 128}
    return {
        "hostname": shape.hostname,
        "kernel": {"release": "6.18.5", "version": "#1 SMP", "command_line": "root=/dev/vda ro"},
        "os": {"id": "debian", "version_id": "12", "name": "Debian GNU/Linux 12 (bookworm)"},
        "cpu": {
            "model": "Generated CPU @ 2.50GHz",
            "online": list(range(shape.cores)),
            "online_count": shape.cores,
            "sockets": 1,
            "cores": shape.cores,
            "threads_per_core": 1,
        },
        "memory": {
            "total_bytes": 25_000_000_000,
            "swap_total_bytes": 0,
            "transparent_huge_pages": {"enabled": {"selected": "madvise", "available": []}},
        },
        "block_devices": [
            {
                "name": "vda",
                "size_bytes": 107_374_182_400,
                "rotational": False,
                "driver": "virtio_blk",
                "queue": queue,
            },
            {
                "name": DEVICE,
                "size_bytes": 4_294_967_296,
                "rotational": False,
                "driver": "loop",
                "queue": queue,
            },
        ],
        "file_systems": [
            {"mount_point": "/", "kind": "ext4", "block_device": "vda", "options": ["rw", "relatime"]},
        ],
        "network_interfaces": [
            {"name": "eth0", "physical": True, "driver": "virtio_net", "operstate": "up", "rx_queues": [{}]},
        ],
    }
