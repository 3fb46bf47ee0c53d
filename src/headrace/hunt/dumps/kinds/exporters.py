"""Text pages of node_exporter and mysqld_exporter: their metrics as the counters of kernel and server again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.hunt.dumps.piece import About, Numbered, Piece, Status, Unread, Variables, number_of

NAME = "node_exporter, mysqld_exporter"

_LINE = re.compile(
    r"^(node|mysql)_([a-zA-Z0-9_]+?)(?:\{([^}\n]*)\})? (\S+)(?: -?\d+(?:\.\d+)?)?$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TICKS_S = 100.0

#: Metric of node_exporter -> sampler, counter, label's name, scale.
_NODE: Mapping[str, tuple[str, str, str, float]] = {
    "disk_reads_completed_total": ("disk", "reads", "device", 1),
    "disk_reads_merged_total": ("disk", "reads_merged", "device", 1),
    "disk_read_bytes_total": ("disk", "sectors_read", "device", 1 / 512),
    "disk_read_time_seconds_total": ("disk", "read_ms", "device", 1000),
    "disk_writes_completed_total": ("disk", "writes", "device", 1),
    "disk_writes_merged_total": ("disk", "writes_merged", "device", 1),
    "disk_written_bytes_total": ("disk", "sectors_written", "device", 1 / 512),
    "disk_write_time_seconds_total": ("disk", "write_ms", "device", 1000),
    "disk_io_now": ("disk", "in_flight", "device", 1),
    "disk_io_time_seconds_total": ("disk", "io_ms", "device", 1000),
    "disk_io_time_weighted_seconds_total": ("disk", "weighted_io_ms", "device", 1000),
    "disk_flush_requests_total": ("disk", "flushes", "device", 1),
    "disk_flush_requests_time_seconds_total": ("disk", "flush_ms", "device", 1000),
    "network_receive_bytes_total": ("network", "rx_bytes", "device", 1),
    "network_transmit_bytes_total": ("network", "tx_bytes", "device", 1),
    "network_receive_packets_total": ("network", "rx_packets", "device", 1),
    "network_transmit_packets_total": ("network", "tx_packets", "device", 1),
    "network_receive_drop_total": ("network", "rx_dropped", "device", 1),
    "network_transmit_drop_total": ("network", "tx_dropped", "device", 1),
    "network_receive_errs_total": ("network", "rx_errors", "device", 1),
    "network_transmit_errs_total": ("network", "tx_errors", "device", 1),
    **{
        f"ethtool_{limit}_allowance_exceeded": ("allowance", f"{limit}_allowance_exceeded", "device", 1)
        for limit in ("bw_in", "bw_out", "pps", "conntrack", "linklocal")
    },
    "ethtool_conntrack_allowance_available": ("allowance", "conntrack_allowance_available", "device", 1),
    "context_switches_total": ("cpu", "ctxt", "", 1),
    "intr_total": ("cpu", "intr", "", 1),
    "forks_total": ("cpu", "processes", "", 1),
    "procs_running": ("cpu", "procs_running", "", 1),
    "procs_blocked": ("cpu", "procs_blocked", "", 1),
    "pressure_cpu_waiting_seconds_total": ("psi", "some_total_us", "=cpu", 1e6),
    "pressure_io_waiting_seconds_total": ("psi", "some_total_us", "=io", 1e6),
    "pressure_io_stalled_seconds_total": ("psi", "full_total_us", "=io", 1e6),
    "pressure_memory_waiting_seconds_total": ("psi", "some_total_us", "=memory", 1e6),
    "pressure_memory_stalled_seconds_total": ("psi", "full_total_us", "=memory", 1e6),
    "softnet_processed_total": ("softnet", "processed", "cpu", 1),
    "softnet_dropped_total": ("softnet", "dropped", "cpu", 1),
    "softnet_times_squeezed_total": ("softnet", "time_squeeze", "cpu", 1),
}
#: Names of node_exporter before version 0.16 -> today's, with what one of it counts.
_BEFORE_0_16: Mapping[str, tuple[str, float]] = {
    "cpu": ("cpu_seconds_total", 1), "time": ("time_seconds", 1),
    **{name: (f"{name}_total", 1) for name in (
        "disk_reads_completed", "disk_reads_merged", "disk_writes_completed", "disk_writes_merged",
        "context_switches", "intr", "forks")},
    "disk_bytes_read": ("disk_read_bytes_total", 1), "disk_bytes_written": ("disk_written_bytes_total", 1),
    "disk_read_time_ms": ("disk_read_time_seconds_total", 1e-3),
    "disk_write_time_ms": ("disk_write_time_seconds_total", 1e-3),
    "disk_io_time_ms": ("disk_io_time_seconds_total", 1e-3),
    "disk_io_time_weighted": ("disk_io_time_weighted_seconds_total", 1e-3),
    **{f"network_{way}_{what}": (f"network_{way}_{what}_total", 1)
       for way in ("receive", "transmit") for what in ("bytes", "packets", "drop", "errs")},
}  # fmt: skip
#: Parts of the status that mysqld_exporter keeps by label: metric -> label's name, prefix of the variable.
_LABELLED = {
    "global_status_commands_total": ("command", "com_"),
    "global_status_handlers_total": ("handler", "handler_"),
    "global_status_innodb_row_ops_total": ("operation", "innodb_rows_"),
    "global_status_buffer_pool_pages": ("state", "innodb_buffer_pool_pages_"),
    "global_status_buffer_pool_page_changes_total": ("operation", "innodb_buffer_pool_pages_"),
    "global_status_connection_errors_total": ("error", "connection_errors_"),
    "global_status_performance_schema_lost_total": ("instrumentation", "performance_schema_"),
}
#: Netstat's parts that node_exporter keeps -> prefix of the counter.
_NETSTAT = re.compile(r"netstat_(Tcp|TcpExt|Udp|Ip|Icmp|UdpLite|IpExt)_(\w+)")


def read(text: str) -> list[Piece]:
    if not re.search(
        r"^(node_cpu|node_memory|node_disk|mysql_global|mysql_up|node_uname)", text, re.MULTILINE
    ):
        return []
    pages, seen, instances = [Page()], set[tuple[str, str, str | None]](), set[str]()
    for match in _LINE.finditer(text):
        if (value := number_of(match[4])) is None:
            continue
        # A page has each series once: the next one begins where one comes again.
        if (series := (match[1], match[2], match[3])) in seen:
            pages.append(Page())
            seen.clear()
        seen.add(series)
        labels = dict(_LABEL.findall(match[3] or ""))
        instances.add(labels.get("instance", "").partition(":")[0])
        (pages[-1].of_node if match[1] == "node" else pages[-1].of_server)(match[2], labels, value)
    if len(named := sorted(instances - {""})) > 1:
        return [
            Unread(f"metrics of {len(named)} hosts ({', '.join(named[:3])}): give the lines of one instance")
        ]
    return [piece for page in pages for piece in page.pieces()]


class Page:
    """One scrape."""

    def __init__(self) -> None:
        self._samplers: dict[str, dict[str, dict[str, float]]] = {}
        self._status: dict[str, float] = {}
        self._variables: dict[str, str] = {}
        self._facts: dict[tuple[str, ...], object] = {}
        self.at_s: float | None = None
        self._is_down = False

    def of_node(self, name: str, labels: Mapping[str, str], value: float) -> None:
        if name in _BEFORE_0_16:
            name, scale = _BEFORE_0_16[name]
            value *= scale
        if name == "time_seconds":
            self.at_s = value
        elif name == "cpu_seconds_total":
            number = labels.get("cpu", "").removeprefix("cpu")
            self._put("cpu", labels.get("mode", ""), f"cpu{number}", value * _TICKS_S)
        elif name == "uname_info":
            self._facts |= {
                ("hostname",): labels.get("nodename"),
                ("kernel", "release"): labels.get("release"),
            }
        elif name == "os_info":
            self._facts[("os", "name")] = labels.get("pretty_name")
        elif name.startswith("memory_"):
            # node_memory_Active_anon_bytes is Active(anon).
            own = re.sub(r"_(anon|file)$", r"(\1)", name.removeprefix("memory_").removesuffix("_bytes"))
            self._put("memory", own, "", value)
        elif name.startswith("vmstat_"):
            self._put("vmstat", name.removeprefix("vmstat_"), "", value)
        elif match := _NETSTAT.fullmatch(name):
            self._put("snmp", f"{match[1]}.{match[2]}", "", value)
        elif name in _NODE:
            sampler, metric, label, scale = _NODE[name]
            at = label[1:] if label.startswith("=") else labels.get(label, "")
            self._put(sampler, metric, f"cpu{at}" if sampler == "softnet" else at, value * scale)

    def of_server(self, name: str, labels: Mapping[str, str], value: float) -> None:
        if name in _LABELLED:
            label, prefix = _LABELLED[name]
            self._status[f"{prefix}{labels.get(label, '')}"] = value
        elif name.startswith("global_status_"):
            self._status[name.removeprefix("global_status_").lower()] = value
        elif name.startswith("global_variables_"):
            self._variables[name.removeprefix("global_variables_").lower()] = f"{value:.15g}"
        elif name == "up" and value == 0:
            self._is_down = True
        elif name == "version_info":
            version, comment = labels.get("version", ""), labels.get("version_comment", "")
            self._variables |= {"version": version, "version_comment": comment}

    def _put(self, sampler: str, metric: str, label: str, value: float) -> None:
        self._samplers.setdefault(sampler, {}).setdefault(metric, {})[label] = value

    def _uptime_s(self) -> float | None:
        """The times of a CPU add up to what has passed since the boot: a clock, where the page has no other."""
        of_cpu: dict[str, float] = {}
        for by_cpu in self._samplers.get("cpu", {}).values():
            for name, ticks in by_cpu.items():
                if name.startswith("cpu"):
                    of_cpu[name] = of_cpu.get(name, 0.0) + ticks
        return max(of_cpu.values()) / _TICKS_S if of_cpu else None

    def pieces(self) -> list[Piece]:
        if self.at_s is None:
            self.at_s = self._uptime_s()
        if cpus := self._samplers.get("cpu", {}).get("idle"):
            self._facts[("cpu", "online_count")] = len(cpus)
            for _metric, by_cpu in self._samplers["cpu"].items():
                if "" not in by_cpu:
                    by_cpu["all"] = sum(by_cpu.values())
        if total := self._samplers.get("memory", {}).get("MemTotal", {}).get(""):
            self._facts[("memory", "total_bytes")] = int(total)
        found: list[Piece] = [Numbered(name, numbers, self.at_s) for name, numbers in self._samplers.items()]
        if self._facts:
            found.append(About({path: value for path, value in self._facts.items() if value}))
        if self._status:
            found.append(Status(self._status, self.at_s, source="mysqld_exporter"))
        if self._is_down:
            found.append(
                Unread("mysqld_exporter did not reach its server (mysql_up 0): the page has nothing of it")
            )
        if self._variables:
            found.append(Variables(self._variables, is_whole=False))
        return found
