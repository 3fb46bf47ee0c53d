"""pt-summary, pt-mysql-summary and what sosreport keeps of a host: facts by their name.

The counters of pt-mysql-summary are rounded, so they are not used.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.hunt.dumps.piece import About, Piece, Said, Variables

NAME = "pt-summary, pt-mysql-summary, lscpu, uname, sysctl -a"

_UNITS = {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SYSCTL = re.compile(r"^((?:vm|net|kernel|fs)\.[\w.*/-]+) = ([^\n]*)$", re.MULTILINE)
#: Fewer lines of a form are an example in a text.
LEAST_SYSCTLS = 20
_UNAME = re.compile(r"^Linux (\S{1,64}) (\d+\.\d+\S{0,80}) #\d[^\n]*$", re.MULTILINE)


def read(text: str) -> list[Piece]:
    found: list[Piece] = []
    if "# Percona Toolkit System Summary Report" in text:
        found += _system(text)
    if "# Percona Toolkit MySQL Summary Report" in text:
        found += _server(text)
    if re.search(r"^CPU\(s\):\s+\d+$", text, re.MULTILINE) and "Architecture:" in text:
        found.append(_lscpu(text))
    if (uname := _UNAME.match(text)) is not None:
        found.append(About({("hostname",): uname[1], ("kernel", "release"): uname[2]}))
    sysctls = dict(_SYSCTL.findall(text)) if " = " in text else {}
    if len(sysctls) >= LEAST_SYSCTLS:
        found.append(About({("sysctls", name): value.strip() for name, value in sysctls.items()}))
    return found


def _row(name: str, text: str) -> str | None:
    match = re.search(rf"^ *{name} \| ([^\n]*\S)", text, re.MULTILINE)
    return match[1].strip() if match else None


def _system(text: str) -> list[Piece]:
    facts: dict[tuple[str, ...], Any] = {
        ("hostname",): _row("Hostname", text),
        ("kernel", "release"): _row("Kernel", text),
        ("os", "name"): _row("Release", text),
    }
    processors = re.search(
        r"physical = (\d+), cores = (\d+), virtual = (\d+)", _row("Processors", text) or ""
    )
    if processors:
        names = (("cpu", "sockets"), ("cpu", "cores"), ("cpu", "online_count"))
        facts |= {name: int(value) for name, value in zip(names, processors.groups(), strict=True)}
    models = re.match(r"\d+x(.+)", _row("Models", text) or "")
    if models:
        facts[("cpu", "model")] = models[1]
    total = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT])", _row("Total", text) or "")
    if total:
        facts[("memory", "total_bytes")] = int(float(total[1]) * _UNITS[total[2]])
    if swappiness := re.fullmatch(r"\d+", _row("Swappiness", text) or ""):
        facts[("sysctls", "vm.swappiness")] = swappiness[0]
    return [About({path: value for path, value in facts.items() if value is not None})]


def _server(text: str) -> list[Piece]:
    version = _row("Version", text)
    found: list[Piece] = []
    if version:
        number, _, comment = version.partition(" ")
        values = {"version": number, "version_comment": comment}
        if datadir := _row("Datadir", text):
            values["datadir"] = datadir
        found.append(Variables(values, is_whole=False))
    if hostname := _row("Hostname", text):
        found.append(About({("hostname",): hostname}))
    if "# Status Counters" in text:
        found.append(
            Said("pt-mysql-summary rounds its counters: they are not used; two SHOW GLOBAL STATUS are")
        )
    return found


def _lscpu(text: str) -> About:
    names = {
        ("cpu", "online_count"): r"CPU\(s\)",
        ("cpu", "sockets"): r"Socket\(s\)",
        ("cpu", "threads_per_core"): r"Thread\(s\) per core",
    }
    facts: dict[tuple[str, ...], Any] = {}
    for path, name in names.items():
        if match := re.search(rf"^{name}:\s+(\d+)$", text, re.MULTILINE):
            facts[path] = int(match[1])
    if match := re.search(r"^Model name:\s+(\S[^\n]*)$", text, re.MULTILINE):
        facts[("cpu", "model")] = match[1].strip()
    return About(facts)
