"""atop -P: what each interval counted, one line per CPU, device, interface and part of the kernel.

Of its first sample, below RESET, the counters are those since the boot: only what it says of that moment is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.hunt.dumps.piece import About, Numbers, Piece, Rates, Said, number_of

NAME = "atop -P"

_LINE = re.compile(
    r"^([A-Za-z]{3}) (\S+) (\d{9,11}) \d{4}/\d\d/\d\d \d\d:\d\d:\d\d (\d{1,9}) (\S.*)$", re.MULTILINE
)
#: The order of a CPU's states behind its number.
_STATES = ("system", "user", "nice", "idle", "iowait", "irq", "softirq", "steal")
#: Of a device, behind its name and the time that it worked.
_DEVICE = ("reads", "sectors_read", "writes", "sectors_written")
#: Of TCP in the line of the layers above the interfaces, by place.
_TCP = {0: "InSegs", 1: "OutSegs", 10: "ActiveOpens", 11: "PassiveOpens", 13: "RetransSegs"}
#: Of pressure, by place: each behind three averages.
_PRESSURE = {
    4: ("some", "cpu"),
    8: ("some", "memory"),
    12: ("full", "memory"),
    16: ("some", "io"),
    20: ("full", "io"),
}


@dataclass
class _Sample:
    """One interval: what was counted in it, and gauges at its end."""

    seconds: float
    is_first: bool
    host: str = ""
    counted: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    gauges: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def count(self, sampler: str, metric: str, label: str, value: float) -> None:
        self.counted.setdefault(sampler, {}).setdefault(metric, {})[label] = value

    def gauge(self, sampler: str, metric: str, value: float) -> None:
        self.gauges.setdefault(sampler, {}).setdefault(metric, {})[""] = value


def read(text: str) -> list[Piece]:
    lines = list(_LINE.finditer(text))
    if not any(match[1] in ("CPU", "cpu", "DSK", "MEM") for match in lines):
        return []
    # A last line without its end may be cut off within a number.
    lines = [match for match in lines if match.end() < len(text)]
    resets = [match.start() for match in re.finditer(r"^RESET$", text, re.MULTILINE)]
    samples: dict[float, _Sample] = {}
    for match in lines:
        start = text.rfind("SEP\n", 0, match.start())
        is_first = any(start < reset < match.start() for reset in resets)
        sample = samples.setdefault(float(match[3]), _Sample(float(match[4]), is_first, match[2]))
        words = match[5].split(" ")
        if (reader := _READERS.get(match[1])) is not None:
            reader(sample, words)
    return list(_pieces(samples))


def _pieces(samples: Mapping[float, _Sample]) -> Iterator[Piece]:
    for host in dict.fromkeys(sample.host for sample in samples.values()):
        yield About({("hostname",): host})
    if all(sample.is_first for sample in samples.values()):
        yield Said(
            "atop printed one sample, of averages since the boot: it is not used; atop -P ALL 10 3 prints more"
        )
    for at_s, sample in sorted(samples.items()):
        seconds = max(sample.seconds, 1.0)
        for sampler in dict.fromkeys((*sample.counted, *sample.gauges)):
            rates: Numbers = {}
            if not sample.is_first:
                rates = {
                    metric: {label: value / seconds for label, value in by_label.items()}
                    for metric, by_label in sample.counted.get(sampler, {}).items()
                }
                if sampler == "cpu":
                    rates = _with_sum(rates)
            gauges = sample.gauges.get(sampler, {})
            if rates or (gauges and not sample.is_first):
                yield Rates(NAME, sampler, rates, gauges, seconds, at_s)


def _with_sum(rates: Numbers) -> Numbers:
    """The sum over all CPUs, where only the lines of single ones were printed."""
    return {
        metric: by_label
        if "all" in by_label or "" in by_label
        else {**by_label, "all": sum(by_label.values())}
        for metric, by_label in rates.items()
    }


def _numbers(words: Sequence[str], first: int, count: int) -> list[float] | None:
    values = [number_of(word) for word in words[first : first + count]]
    known = [value for value in values if value is not None and value >= 0]
    return known if len(known) == count else None


def _of_cpu(label: Callable[[str], str]) -> Callable[[_Sample, Sequence[str]], None]:
    def reader(sample: _Sample, words: Sequence[str]) -> None:
        ticks = number_of(words[0])
        states = _numbers(words, 2, len(_STATES))
        if states is not None and ticks:
            for state, value in zip(_STATES, states, strict=True):
                sample.count("cpu", state, label(words[1]), value * 100 / ticks)

    return reader


def _of_load(sample: _Sample, words: Sequence[str]) -> None:
    if (values := _numbers(words, 4, 2)) is not None:
        sample.count("cpu", "ctxt", "", values[0])
        sample.count("cpu", "intr", "", values[1])


def _of_memory(sample: _Sample, words: Sequence[str]) -> None:
    if (values := _numbers(words, 0, 5)) is not None:
        page, *amounts = values
        for name, pages in zip(("MemTotal", "MemFree", "Cached", "Buffers"), amounts, strict=True):
            sample.gauge("memory", name, pages * page)


def _of_swap(sample: _Sample, words: Sequence[str]) -> None:
    if (values := _numbers(words, 0, 3)) is not None:
        sample.gauge("memory", "SwapTotal", values[0] * values[1])
        sample.gauge("memory", "SwapFree", values[0] * values[2])


def _of_pages(sample: _Sample, words: Sequence[str]) -> None:
    if (values := _numbers(words, 1, 5)) is not None:
        sample.count("vmstat", "pswpin", "", values[3])
        sample.count("vmstat", "pswpout", "", values[4])


def _of_pressure(sample: _Sample, words: Sequence[str]) -> None:
    if words[0] == "y":
        for place, (kind, resource) in _PRESSURE.items():
            if (values := _numbers(words, place, 1)) is not None:
                sample.count("psi", f"{kind}_total_us", resource, values[0])


def _of_device(sample: _Sample, words: Sequence[str]) -> None:
    values = _numbers(words, 1, 5)
    if values is None:
        return
    sample.count("disk", "io_ms", words[0], values[0])
    for metric, value in zip(_DEVICE, values[1:], strict=True):
        sample.count("disk", metric, words[0], value)
    # Since version 2.7 the mean queue while it worked; before that a line ends with the sectors.
    if len(words) >= 10 and (queue := _numbers(words, 9, 1)) is not None:
        sample.count("disk", "weighted_io_ms", words[0], queue[0] * values[0])


def _of_network(sample: _Sample, words: Sequence[str]) -> None:
    if words[0] == "upper":
        for place, name in _TCP.items():
            if (values := _numbers(words, place + 1, 1)) is not None:
                sample.count("snmp", f"Tcp.{name}", "", values[0])
    elif (values := _numbers(words, 1, 4)) is not None:
        for metric, value in zip(("rx_packets", "rx_bytes", "tx_packets", "tx_bytes"), values, strict=True):
            sample.count("network", metric, words[0], value)


_READERS: Mapping[str, Callable[[_Sample, Sequence[str]], None]] = {
    "CPU": _of_cpu(lambda _: "all"), "cpu": _of_cpu(lambda number: f"cpu{number}"), "CPL": _of_load,
    "MEM": _of_memory, "SWP": _of_swap, "PAG": _of_pages, "PSI": _of_pressure, "DSK": _of_device,
    "LVM": _of_device, "MDD": _of_device, "NET": _of_network,
}  # fmt: skip
