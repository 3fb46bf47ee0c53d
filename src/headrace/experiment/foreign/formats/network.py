"""iperf3: JSON (``--json``), and the report for people."""

from __future__ import annotations

import re
from typing import Any

from headrace.base.received import BadContent, an_object
from headrace.experiment.foreign.run import (
    OtherVariant,
    Run,
    known,
    number,
    parsed,
    pieces,
    rows_of,
    text_of,
    texts,
    within,
)

NAME = "iperf3"

_START = re.compile(r"^Connecting to host ", re.MULTILINE)
_EVENT = re.compile(r'^\{"event": ?"start"', re.MULTILINE)
_HEADER = re.compile(r"^\[ *ID\](\[Role\])? Interval +Transfer", re.MULTILINE)
#: ``[SUM]   0.00-3.02   sec  1.93 GBytes  5.49 Gbits/sec  0.005 ms  0/1145 (0%)  receiver``
_SUM = re.compile(
    r"^\[ *(SUM|\d+)\] +[\d.]+-([\d.]+) +sec +[\d.]+ [KMGT]?Bytes +([\d.]+) ([KMGT]?)(bits|Bytes)/sec(.*?)"
    r" +(sender|receiver) *$",
    re.MULTILINE,
)
_MEGABITS = {"": 1e-6, "K": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}


def read(text: str) -> list[Run] | None:
    if parts := pieces(_START, text):
        before = text[: text.index(parts[0])]
        return [_of_text(before + parts[0]), *map(_of_text, parts[1:])]
    if found := re.search(r"^iperf3: (?:error|interrupt) - [^\n]*", text, re.MULTILINE):
        return [Run(problem=f"it failed: {found[0][:120]}")]
    if _HEADER.search(text):
        raise OtherVariant("the report of iperf 2, or of a server of iperf3", "iperf3 --client HOST --json")
    if parts := pieces(_EVENT, text):
        return [_of_stream(part) for part in parts]
    content = parsed(text)
    if isinstance(content, dict) and {"start", "intervals", "end"} <= set(content):
        return [_of_json(content)]
    return None


def _of_stream(part: str) -> Run:
    """``--json-stream``: what ``--json`` has, a line for each interval."""
    content: dict[str, Any] = {"intervals": []}
    for line in part.splitlines():
        if not line.startswith('{"event":'):
            continue
        try:
            told = an_object(line)
        except BadContent:
            return Run(problem="its JSON is cut off")
        event, data = str(told.get("event")), told.get("data")
        if event == "interval":
            content["intervals"].append(data)
        else:
            content[event] = data
    if content.get("error"):
        return Run(problem=str(content["error"])[:120])
    return _of_json(content) if "end" in content else Run(problem="it has no end: it was interrupted")


def _of_json(content: dict[str, Any]) -> Run:
    end = content["end"]
    received, seconds = (number(end, "sum_received", name) for name in ("bits_per_second", "seconds"))
    if received is None and (sent := number(end, "sum", "bits_per_second")) is not None:
        # UDP, until 3.10: what was sent, and the share that was lost.
        lost = number(end, "sum", "lost_percent")
        received = sent * (1 - lost / 100) if lost is not None else None
        seconds = number(end, "sum", "seconds")
    back = number(end, "sum_received_bidir_reverse", "bits_per_second")
    found = known(
        received_mbit_s=received / 1e6 if received is not None else None,
        received_back_mbit_s=back / 1e6 if back is not None else None,
        retransmits=number(end, "sum_sent", "retransmits"),
        jitter_ms=number(end, "sum", "jitter_ms"),
        lost_percent=number(end, "sum", "lost_percent"),
    )
    settings = {"duration_s": text_of(round(seconds, 1))} if seconds is not None else {}
    asked_for = within(content, "start", "test_start")
    settings |= texts(asked_for, {"streams": "num_streams", "protocol": "protocol", "reverse": "reverse"})
    about = texts(
        asked_for, ("blksize", "omit", "bytes", "blocks", "tos", "target_bitrate", "bidir", "fqrate")
    )
    about |= texts(content["start"], {"iperf_version": "version", "tcp_mss": "tcp_mss_default"})
    about |= texts(end, {"congestion": "sender_tcp_congestion"})
    problem = str(content["error"])[:120] if content.get("error") else ""
    asked = number(asked_for, "duration")
    if not problem and asked and seconds is not None and seconds < 0.95 * asked:
        problem = f"it ran for {seconds:.1f} of {asked:g} s"
    problem = problem or ("" if "received_mbit_s" in found else "it has no result") or _stalls(content)
    return Run(found, settings, problem, about=about)


def _stalls(content: dict[str, Any]) -> str:
    """Whether nothing was sent for a whole interval; the last may be a moment long."""
    sums = [each.get("sum") for each in rows_of(content["intervals"])]
    usual = max((number(each, "seconds") or 0.0 for each in sums), default=0.0)
    still = sum(
        number(each, "bits_per_second") == 0 and (number(each, "seconds") or 0.0) > usual / 2 for each in sums
    )
    return f"{still} of its intervals did nothing" if still else ""


def _of_text(part: str) -> Run:
    if found := re.search(r"^iperf3: (?:error|interrupt) - [^\n]*", part, re.MULTILINE):
        return Run(problem=f"it failed: {found[0][:120]}")
    if (header := _HEADER.search(part)) and header[1]:
        raise OtherVariant("iperf3's report for people of both directions", "iperf3 --bidir --json")
    if not re.search(r"^iperf Done\.", part, re.MULTILINE):
        return Run(problem="it does not end with 'iperf Done.': it was interrupted")
    lines = list(_SUM.finditer(part))
    if any(line[1] == "SUM" for line in lines):
        streams = len({line[1] for line in lines}) - 1
        lines = [line for line in lines if line[1] == "SUM"]
    else:
        streams = len({line[1] for line in lines})
    by_side = {line[7]: line for line in lines}
    if "receiver" not in by_side or (streams > 1 and lines[0][1] != "SUM"):
        return Run(problem="it has no sum of what was received")
    end = by_side["receiver"]
    rate = float(end[3]) * _MEGABITS[end[4]] * (8 if end[5] == "Bytes" else 1)
    responses = {"received_mbit_s": rate}
    udp = re.search(r"([\d.]+) ms +(\d+)/(\d+) ", end[6] + " ")
    if udp:
        responses["jitter_ms"] = float(udp[1])
        responses["lost_percent"] = 100 * int(udp[2]) / max(int(udp[3]), 1)
    elif "sender" in by_side and (retransmits := by_side["sender"][6].strip()).isdigit():
        responses["retransmits"] = float(retransmits)
    settings = {
        "duration_s": text_of(round(float(end[2]), 1)),
        "streams": str(streams),
        "protocol": "UDP" if udp else "TCP",
        "reverse": "1" if "Reverse mode" in part else "0",
    }
    return Run(responses, settings)
