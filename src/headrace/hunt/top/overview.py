"""The first screen: the verdict, and every resource with its current activity."""

from __future__ import annotations

from rich.text import Text

from headrace.host import devices
from headrace.host.cores import Core
from headrace.host.cores import cores as all_cores
from headrace.host.facts import link_speed_mbit_s
from headrace.host.spared import OPTION, resting
from headrace.hunt import hot_cores, resources, segments
from headrace.hunt.resources import Level
from headrace.hunt.top import below, caches, lines
from headrace.hunt.top.lines import DIM, HEADING, HOT, WARM, Column, duration, gibibytes, percent, rate
from headrace.hunt.top.past import AGE, HISTORY, last_of
from headrace.hunt.top.shot import Shot
from headrace.show.text import clean

VERDICT_STYLE = {Level.SATURATED: HOT, Level.BUSY: WARM, Level.FINE: "bold green", Level.UNKNOWN: "bold"}
#: Below this width a bar is useless, and a core is shown as one character.
NARROWEST_BAR = 8
#: Room for the name and the percentage next to a bar.
BESIDE_BAR = 11
#: Kept free for what is below a long verdict.
REST_LINES = 11
#: From this width, two tables are side by side.
WIDE = 140


def draw(shot: Shot, width: int, height: int) -> list[Text]:
    """At most ``height`` lines; if that is too few, the busiest devices and interfaces are kept."""
    limiting = shot.verdict.limiting
    style = VERDICT_STYLE[limiting.level if limiting else Level.FINE]
    if limiting is None and "unknown" in shot.verdict.sentence.lower():
        style = "bold"
    found = verdict_lines(shot.verdict.sentence, width, style, max(height - REST_LINES, 3))
    # On a host of caches alone nobody misses a server.
    cached = caches.draw(shot, width)
    server = server_lines(shot, width) if shot.has_server or not cached else []
    if shot.server_problem:
        # Nothing is worse: what limits the host is read after it.
        found, server = [*server, *found], []
    server = [*cached, *server]
    memory = memory_lines(shot, width)
    left = height - len(found) - len(server) - len(memory)
    cpu = cpu_lines(shot, width, max(2, min(left - 7, left // 2)))
    left -= len(cpu)
    if width >= WIDE:
        rows = max(left - 2, 1)
        tables = lines.beside(
            device_lines(shot, (width - 2) // 2, rows), network_lines(shot, (width - 2) // 2, rows), width
        )
    else:
        devices = device_lines(shot, width, max((left - 3) // 2, 1))
        tables = [*devices, *network_lines(shot, width, max(left - len(devices) - 2, 1))]
    drawn = [*found, *cpu, *memory, *tables, *server]
    if len(drawn) > height:
        # The server is what most people look for: of the rest the end is out of sight.
        drawn = [*found, *cpu, *server, *memory, *tables]
    return [*drawn, *below.draw(shot, width, height - len(drawn))][:height]


def verdict_lines(sentence: str, width: int, style: str, most: int) -> list[Text]:
    """The verdict, whole; or as many of its sentences as there is room for, and where the rest is."""
    text = clean(sentence)
    found = lines.wrap(text, width, style)
    parts = text.split(". ")
    while len(found) > most and len(parts) > 1:
        parts.pop()
        found = lines.wrap(f"{'. '.join(parts)}. (6: all findings)", width, style)
    return found if len(found) <= most else lines.wrap(text, width, style, most=most)


def cpu_lines(shot: Shot, width: int, most: int) -> list[Text]:
    """One bar per core in as many columns as needed; one character per core if bars would not fit."""
    found = all_cores(shot.now)[1:]
    if not found:
        return [
            Text("cpu: waiting for two samples" if not shot.errors.get("cpu") else "cpu: not sampled", DIM)
        ]
    legend = Text("cpu  ", HEADING)
    for kind, (glyph, style) in lines.SHARES.items():
        legend.append(glyph, style)
        legend.append(f" {kind}   ", DIM)
    rows = max(most - 1, 1)
    columns = max(1, width // 60, -(-len(found) // rows))
    room = (width + 2) // columns - 2
    if room - BESIDE_BAR < NARROWEST_BAR:
        return [legend, *_compressed(found, width, rows)]
    rows = -(-len(found) // columns)
    drawn = []
    for row in range(rows):
        line = Text()
        for core in found[row::rows]:
            if line.cell_len:
                line.append("  ")
            line.append_text(_core(core, room))
        drawn.append(line)
    return [legend, *drawn]


def _core(core: Core, width: int) -> Text:
    hot = core.busy >= hot_cores.FULL
    style = HOT if hot else WARM if core.busy >= resources.BUSY else ""
    shares = [(kind, getattr(core, kind)) for kind in lines.SHARES]
    number = core.name.removeprefix("cpu")
    return Text.assemble(
        (f"{number:>3} ", HOT if hot else DIM),
        "▕",
        lines.bar(shares, width - BESIDE_BAR),
        "▏",
        (f"{percent(core.busy):>4}", style),
        ("!" if hot else " ", HOT),
    )


def _compressed(found: list[Core], width: int, rows: int) -> list[Text]:
    """One character per core, its height the load, with the busiest cores named below."""
    a_line = max((width - 5) // 8 * 8, 8)
    drawn = []
    for start in range(0, len(found), a_line):
        line = Text(f"{found[start].name.removeprefix('cpu'):>4} ", DIM)
        for core in found[start : start + a_line]:
            hot = core.busy >= hot_cores.FULL
            style = HOT + " reverse" if hot else WARM if core.busy >= resources.BUSY else "green"
            line.append("█" if hot else lines.block(core.busy) if core.busy >= 0.01 else "·", style)
        drawn.append(line)
    drawn = drawn[: max(rows - 1, 1)]
    each = max((width + 2) // max(width // 38, 1) - 2, 20)
    hottest = sorted(found, key=lambda core: -core.busy)
    for row in range(max(min(rows - len(drawn), 4), 1)):
        line = Text()
        for core in hottest[row * (width // each) : (row + 1) * max(width // each, 1)]:
            if line.cell_len:
                line.append("  ")
            line.append_text(_core(core, each))
        drawn.append(line)
    return drawn


def memory_lines(shot: Shot, width: int) -> list[Text]:
    """Memory in use, and tasks that wait for it."""
    window = shot.now
    available, total = window.last("memory", "MemAvailable"), window.last("memory", "MemTotal")
    if available is None or not total:
        return [Text.assemble(("mem  ", HEADING), ("not sampled", DIM))]
    used = 1 - available / total
    style = HOT if used >= hot_cores.FULL else WARM if used >= resources.BUSY else "green"
    bar = lines.gauge(used, max(width // 3 - 12, 10), style)
    bar.append(f" {percent(used)} of {gibibytes(total)}")
    swaps = [window.rate("vmstat", f"pswp{way}") for way in ("in", "out")]
    swapped = None if None in swaps else sum(value or 0 for value in swaps)
    alarm = HOT if swapped and swapped >= 256 else WARM if swapped and swapped >= 1 else DIM
    parts: list[lines.Cell] = [
        bar,
        (f"{gibibytes(window.last('memory', 'Dirty'))} dirty", DIM),
        (f"swap {rate(swapped)} pages/s", alarm),
    ]
    return [*lines.flow("mem  ", parts, width), *_pressure(shot, width)]


def _pressure(shot: Shot, width: int) -> list[Text]:
    """The share of time in which some task waited for a resource."""
    window = shot.now
    parts: list[lines.Cell] = []
    for resource in ("cpu", "io", "memory"):
        value = window.rate("psi", "some_total_us", resource)
        if value is None:
            continue
        share = min(value / 1e6, 1.0)
        style = HOT if share >= resources.PRESSURE_HIGH else WARM if share >= resources.PRESSURE_SEEN else ""
        parts.append((f"{percent(share)} of the time for {resource}", style))
    if not parts:
        parts = [("unknown: this kernel has no pressure counters", DIM)]
    running = window.gauge("cpu", "procs_running")
    if running is not None:
        parts.append((f"{running.mean:.0f} runnable", DIM))
    return lines.flow("tasks waited  ", parts, width)


def device_lines(shot: Shot, width: int, most: int) -> list[Text]:
    """Active devices, busiest first. A misleading %util is marked."""
    columns = [
        Column("device", 9, right=False),
        Column("reads/s", 7),
        Column("writes/s", 8),
        Column("MB/s", 6),
        Column("ms/r", 5),
        Column("ms/w", 5),
        Column("queue", 5),
        Column("%util", 5),
        Column("", 0, right=False, keep=1),
    ]
    uses = {use.instance: use for use in shot.verdict.uses if use.resource == "block"}
    rows: list[list[lines.Cell]] = []
    for device in sorted(devices.devices(shot.now), key=lambda d: -(d.operations + d.flushes)):
        record = shot.facts.block_device(device.name)
        if record is not None and record.get("kind") == "partition":
            continue
        alone = devices.serves_one_at_a_time(record)
        use = uses.get(device.name)
        style = {Level.SATURATED: HOT, Level.BUSY: WARM}.get(use.level, "") if use else ""
        note = use.saturation or use.errors if use and use.level is Level.SATURATED else ""
        if not note and not alone and device.utilisation >= resources.BUSY:
            note = "%util is not a limit"
        rows.append(
            [
                (clean(device.name), style),
                rate(device.reads),
                rate(device.writes),
                f"{device.bytes_s / 1e6:.1f}",
                duration(device.read_ms),
                duration(device.write_ms),
                f"{device.queue:.1f}",
                (percent(device.utilisation), style if alone else DIM),
                (clean(note), style or DIM),
            ]
        )
    if not rows:
        return [Text.assemble(("device    ", HEADING), ("all idle", DIM))]
    return lines.table(columns, rows[:most], width)


def network_lines(shot: Shot, width: int, most: int) -> list[Text]:
    """Interfaces with traffic, then TCP losses."""
    columns = [
        Column("interface", 10, right=False),
        Column("in pkt/s", 8),
        Column("out pkt/s", 9),
        Column("in Mbit/s", 9),
        Column("out Mbit/s", 10),
        Column("lost/s", 6),
        Column("", 0, right=False, keep=1),
    ]
    window, rows = shot.now, []
    for name in window.labels("network", "rx_bytes"):
        received, sent = (window.rate("network", f"{way}_bytes", name) or 0.0 for way in ("rx", "tx"))
        if received + sent <= 0:
            continue
        lost = sum(
            window.rate("network", metric, name) or 0.0
            for metric in ("rx_errors", "rx_dropped", "rx_fifo", "tx_errors", "tx_dropped")
        )
        speed = link_speed_mbit_s(shot.facts.network_interface(name) or {}) or 0
        used = f"{percent(max(received, sent) * 8e-6 / speed)} of {speed:,} Mbit/s" if speed > 0 else ""
        cells: list[lines.Cell] = [
            clean(name),
            rate(window.rate("network", "rx_packets", name)),
            rate(window.rate("network", "tx_packets", name)),
            f"{received * 8 / 1e6:,.1f}",
            f"{sent * 8 / 1e6:,.1f}",
            (rate(lost), HOT if lost > 0 else DIM),
            (used, DIM),
        ]
        rows.append((received + sent, cells))
    rows.sort(key=lambda pair: -pair[0])
    found = lines.table(columns, [cells for _, cells in rows[:most]], width)
    if not rows:
        found = [Text.assemble(("interface  ", HEADING), ("no traffic", DIM))]
    return [*found, *_tcp(shot, width)]


def _tcp(shot: Shot, width: int) -> list[Text]:
    window = shot.now
    out, again = window.rate("snmp", "Tcp.OutSegs"), window.rate("snmp", "Tcp.RetransSegs")
    overflows = window.rate("snmp", "TcpExt.ListenOverflows")
    bad = bool(out and (segments.lost_segments(window) or 0.0) / out >= segments.RETRANSMITTED)
    parts: list[lines.Cell] = [
        f"{rate(out)} segments/s out",
        (f"{rate(again)} retransmitted", HOT if bad else DIM),
        (f"{rate(overflows)} refused", HOT if overflows else DIM),
    ]
    softnet = window.rates("softnet", "dropped")
    if softnet:
        dropped = sum(softnet.values())
        parts.append((f"{rate(dropped)} dropped by backlogs", HOT if dropped else DIM))
    return lines.flow("tcp  ", parts, width)


#: Status counter -> its usual name.
COMMANDS = {
    "com_select": "select",
    "com_insert": "insert",
    "com_update": "update",
    "com_delete": "delete",
    "com_replace": "replace",
    "com_commit": "commit",
    "com_rollback": "rollback",
    "com_stmt_execute": "execute",
}


def server_lines(shot: Shot, width: int) -> list[Text]:
    """Statements, threads and InnoDB, or why they are missing."""
    window = shot.now
    if shot.server_problem:
        return lines.wrap(clean(f"server unreachable: {shot.server_problem}"), width, HOT)
    if not shot.has_server:
        return lines.flow("server  ", [("none specified: --mysql-socket or --mysql-host", DIM)], width)

    def of(name: str) -> float | None:
        return window.rate("mysql_status", name)

    commands = sorted(((of(name) or 0.0, text) for name, text in COMMANDS.items()), reverse=True)
    first: list[lines.Cell] = [(f"{rate(of('questions'))} questions/s", "bold")]
    first += [f"{text} {rate(value)}" for value, text in commands if value > 0]
    running, connected = (window.last("mysql_status", f"threads_{what}") for what in ("running", "connected"))
    slow, aborted = of("slow_queries"), of("aborted_clients")
    second: list[lines.Cell] = [
        f"{running or 0:.0f} running",
        f"{connected or 0:.0f} connected",
        (f"{rate(slow)} slow/s", WARM if slow else DIM),
        (f"{rate(aborted)} aborted/s", WARM if aborted else DIM),
        *_lag(shot),
    ]
    return [
        *lines.flow("server  ", first, width),
        *lines.flow("threads ", second, width),
        *lines.flow("innodb  ", _innodb(shot), width),
        *_spared(shot, width),
    ]


def _spared(shot: Shot, width: int) -> list[Text]:
    """What is asked rarely because the server would pay for it."""
    names = resting(shot.recent)
    if not names:
        return []
    cell = f"{', '.join(names)} sampled less often: headrace top {OPTION} samples every second"
    return lines.flow("spared  ", [(cell, DIM)], width)


def _innodb(shot: Shot) -> list[lines.Cell]:
    window = shot.now

    def of(name: str) -> float | None:
        return window.rate("mysql_status", f"innodb_{name}")

    asked, missed, waits, log = (
        of(name)
        for name in ("buffer_pool_read_requests", "buffer_pool_reads", "row_lock_waits", "os_log_written")
    )
    share = missed / asked if asked and missed is not None else None
    told = "" if share is None else f" ({100 * share:.2f}%)"
    parts: list[lines.Cell] = [
        (f"pool {rate(missed)} misses/s of {rate(asked)}{told}", WARM if share and share >= 0.01 else "")
    ]
    if of("rows_read") is not None:
        kinds = ("read", "inserted", "updated", "deleted")
        parts.append("rows/s " + " ".join(f"{rate(of(f'rows_{kind}'))} {kind}" for kind in kinds))
    parts.append((f"row lock waits {rate(waits)}/s", WARM if waits else DIM))
    parts.append(f"fsyncs {rate(of('data_fsyncs'))}/s")
    if log is not None:
        parts.append(f"log {log / 1e6:.1f} MB/s")
    age, history = (last_of(names, window, shot.seldom) for names in (AGE, HISTORY))
    if age is not None:
        parts.append(_of_limit(age, window.last("mysql_status", "innodb_checkpoint_max_age")))
    if history is not None:
        parts.append(f"history {rate(history)}")
    return parts


def _of_limit(age: float, limit: float | None) -> lines.Cell:
    """The checkpoint age, of its limit where the server tells that (MariaDB)."""
    if not limit:
        return f"checkpoint age {gibibytes(age)}"
    share = age / limit
    style = HOT if share >= hot_cores.FULL else WARM if share >= resources.BUSY else ""
    return (f"checkpoint age {gibibytes(age)} of {gibibytes(limit)}", style)


def _lag(shot: Shot) -> list[lines.Cell]:
    """The channel that is furthest behind, or one with stopped threads."""
    window = shot.now
    parts: list[lines.Cell] = []
    lags = [window.last("replication", "lag_s", label) for label in window.labels("replication", "lag_s")]
    known = [value for value in lags if value is not None]
    if known:
        parts.append((f"{max(known):.0f} s behind its source", HOT if max(known) >= 10 else ""))
    for what in ("io", "sql"):
        labels = window.labels("replication", f"{what}_running")
        if any(window.last("replication", f"{what}_running", label) == 0 for label in labels):
            parts.append((f"its {what.upper()} thread is not running", HOT))
    return parts
