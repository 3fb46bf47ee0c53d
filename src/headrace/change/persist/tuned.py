"""What TuneD sets after the boot: the active profile with all that it includes, merged as TuneD merges it.

Units of one name are one unit, whose place is that of the first profile that has it (profiles/merger.py); they are
applied by priority, then by place (units/manager.py). A unit of sysctls lets those of the system's files win again
unless ``reapply_sysctl`` is off (plugins/plugin_sysctl.py).
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from headrace.base.errors import NotReady
from headrace.lab.server.option_files import Copies

FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
MAIN = "/etc/tuned/tuned-main.conf"
#: What is loaded, and what is loaded after it.
ACTIVE = ("/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile")
OURS = "headrace-mysql"
_THP = "/sys/kernel/mm/transparent_hugepage"
#: What the plugins set, by kind of unit and option.
_PATHS = {
    ("vm", "transparent_hugepages"): f"{_THP}/enabled",
    ("vm", "transparent_hugepage"): f"{_THP}/enabled",
    ("vm", "transparent_hugepage.defrag"): f"{_THP}/defrag",
    ("vm", "dirty_bytes"): "/proc/sys/vm/dirty_bytes",
    ("vm", "dirty_ratio"): "/proc/sys/vm/dirty_ratio",
    ("vm", "dirty_background_bytes"): "/proc/sys/vm/dirty_background_bytes",
    ("vm", "dirty_background_ratio"): "/proc/sys/vm/dirty_background_ratio",
    ("disk", "elevator"): "/sys/block/*/queue/scheduler",
    ("disk", "readahead"): "/sys/block/*/queue/read_ahead_kb",
    ("disk", "readahead_multiply"): "/sys/block/*/queue/read_ahead_kb",
    ("net", "txqueuelen"): "/sys/class/net/*/tx_queue_len",
    ("net", "mtu"): "/sys/class/net/*/mtu",
    ("cpu", "governor"): "/sys/devices/system/cpu/*/cpufreq/scaling_governor",
    ("cpu", "energy_performance_preference"): (
        "/sys/devices/system/cpu/*/cpufreq/energy_performance_preference"
    ),
    ("scheduler", "sched_migration_cost_ns"): "/sys/kernel/debug/sched/migration_cost_ns",
}
_NO = frozenset({"0", "false", "no", "off", "n", "f"})


@dataclass(frozen=True)
class Word:
    """One value of a file: ``place`` is the file and line, ``kind`` that of the unit."""

    place: str
    text: str
    path: str
    value: str
    kind: str = ""
    devices: str = ""


@dataclass
class Unit:
    """A section of all profiles together."""

    kind: str
    options: dict[str, Word] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    enabled: bool = True
    replaces: bool = False

    @property
    def devices(self) -> str:
        """Which devices of its kind it is about; empty for all. A pattern of udev's properties or a variable of
        TuneD's may be any."""
        word = self.options.get("devices")
        is_any = word is None or "devices_udev_regex" in self.options or "${" in word.value
        return "" if word is None or is_any else word.value

    @property
    def priority(self) -> int:
        word = self.options.get("priority")
        return int(word.value) if word and re.fullmatch(r"-?\d+", word.value) else 0


def active_profiles(found: Copies) -> list[str]:
    return [name for path in ACTIVE for name in _text(found, path).split()]


def reapplies(found: Copies) -> bool:
    """Whether the system's sysctl files count again after those of a profile."""
    again = re.search(r"^\s*reapply_sysctl\s*=\s*(\S+)", _text(found, MAIN), re.MULTILINE)
    return again is None or again[1].lower() not in _NO


def words(found: Copies, profiles: Sequence[str]) -> list[Word]:
    """All that these profiles set, in TuneD's order; the last word about a path decides.

    Raises NotReady where TuneD alone knows what they include.
    """
    units: dict[str, Unit] = {}
    _load(found, profiles, units, [])
    in_turn = sorted((unit for unit in units.values() if unit.enabled), key=lambda unit: unit.priority)
    return [
        replace(word, devices=unit.devices) for unit in in_turn for word in unit.options.values() if word.path
    ]


def concerns(word: Word, path: str) -> bool:
    """Whether a word is about this path; both may be patterns, and a disk may stand for all."""
    if not (fnmatch.fnmatchcase(path, word.path) or fnmatch.fnmatchcase(word.path, path)):
        return False
    device = re.match(r"/sys/(?:block|class/net|devices/system/cpu)/([^/*]+)/", path)
    return device is None or _has_device(word.devices, device[1])


def _has_device(devices: str, name: str) -> bool:
    """device_matcher.py: names or patterns, less those after ``!`` or ``-``; with these alone all others."""
    listed = [each for each in re.split(r"[\s,;]+", devices) if each]
    without = [each[1:] for each in listed if each[0] in "!-"]
    own = [each for each in listed if each[0] not in "!-"] or ["*"]
    return any(fnmatch.fnmatchcase(name, each) for each in own) and not any(
        fnmatch.fnmatchcase(name, each) for each in without
    )


def scripts(found: Copies, profiles: Sequence[str]) -> list[str]:
    """The scripts that these profiles run."""
    return [
        posixpath.normpath(posixpath.join(folder, word.value.replace("${i:PROFILE_DIR}", folder)))
        for word in words(found, profiles)
        if word.path == "script" and (folder := posixpath.dirname(word.place))
    ]


def _load(found: Copies, names: Sequence[str], units: dict[str, Unit], seen: list[str]) -> None:
    for name in names:
        # A profile may include that of the same name in the folder below it.
        files = [f"{folder}/{name.removeprefix('-')}/tuned.conf" for folder in FOLDERS]
        file = next((each for each in files if each in found.files and each not in seen), "")
        if not file:
            continue
        seen.append(file)
        includes, own = _parsed(found, file)
        if "${" in includes:
            raise NotReady(
                f"includes {includes}, which only TuneD can resolve", place=file, hint="--persist tuned"
            )
        _load(found, [each for each in re.split(r"[\s,;]+", includes) if each], units, seen)
        for section, unit in own.items():
            before = units.get(section)
            if before is None or unit.replaces:
                units[section] = unit
                continue
            before.kind, before.enabled = unit.kind, unit.enabled
            for option in unit.drop:
                before.options.pop(option, None)
            before.options.update(unit.options)


def _parsed(found: Copies, file: str) -> tuple[str, dict[str, Unit]]:
    """What a profile includes, and its own sections."""
    section, includes = "", ""
    lines: dict[str, list[tuple[int, str, str, str]]] = {}
    for number, line in enumerate(_text(found, file).split("\n"), 1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if text.startswith("["):
            section = text.strip("[]")
            lines.setdefault(section, [])
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or text.startswith(";"):
            continue
        if section == "main":
            includes = value if name == "include" else includes
        else:
            lines.setdefault(section, []).append((number, name, value, text))
    return includes, {name: _unit(file, name, each) for name, each in lines.items() if name != "main"}


def _unit(file: str, section: str, lines: Sequence[tuple[int, str, str, str]]) -> Unit:
    told = {name: value for _, name, value, _ in lines}
    kind = told.get("type", section)
    unit = Unit(
        kind,
        drop=tuple(re.split(r"[\s,;]+", told.get("drop", ""))),
        enabled=told.get("enabled", "1").lower() not in _NO,
        replaces=told.get("replace", "0").lower() not in _NO,
    )
    for number, name, value, text in lines:
        unit.options[name] = Word(f"{file}:{number}", text, _path(kind, name), value, kind)
    return unit


def _path(kind: str, name: str) -> str:
    if kind == "sysctl" and name not in ("type", "enabled", "priority", "replace", "drop"):
        return f"/proc/sys/{name.replace('.', '/')}"
    if kind == "sysfs" and name.startswith("/"):
        return name
    if kind == "script" and name == "script":
        return "script"
    return _PATHS.get((kind, name), "")


def must_be_known(found: Copies) -> None:
    """Raises NotReady where profiles lie in other folders than the usual ones."""
    if match := re.search(r"^\s*profile_dirs\s*=\s*(\S.*)$", _text(found, MAIN), re.MULTILINE):
        others = [path for path in re.split(r"[\s,;]+", match[1]) if path and path.rstrip("/") not in FOLDERS]
        if others and active_profiles(found):
            raise NotReady(f"its profiles are also in {', '.join(others)}", place=MAIN)


def of_path(found: Copies, profiles: Sequence[str], paths: Sequence[str]) -> Iterator[Word]:
    """The words about any of these paths, in order."""
    for word in words(found, profiles):
        if any(concerns(word, path) for path in paths):
            yield word


def _text(found: Copies, path: str) -> str:
    return found.files.get(path, b"").decode("utf-8", "surrogateescape")
