"""What TuneD sets after the boot: the active profile with all that it includes, merged as TuneD merges it.

Units of one name are one unit, whose place is that of the first profile that has it and whose devices are those of
the last (profiles/merger.py); they are applied by priority, then by place (units/manager.py), and a device is of
the first that names it (plugins/base.py). A unit of sysctls lets those of the system's files win again unless
``reapply_sysctl`` is off (plugins/plugin_sysctl.py).
"""

from __future__ import annotations

import configparser
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
_DEVICE = re.compile(r"/sys/(?:block|class/net|devices/system/cpu)/([^/*]+)/")
_NO = frozenset({"0", "false", "no", "off", "n", "f"})
#: Of a profile's own switches no other word is yes: not ``yes``, and not ``on``.
_YES = frozenset({"1", "true", "True"})
#: What a section says of itself, beside what it sets.
_OF_UNIT = frozenset(
    {
        "cpuinfo_regex", "devices", "devices_udev_regex", "drop", "enabled", "prepend", "priority", "replace",
        "script_post", "script_pre", "type", "uname_regex",
    }
)  # fmt: skip
_CONDITIONS = ("cpuinfo_regex", "uname_regex")
#: Kinds whose units share the devices between them.
_OF_DEVICES = frozenset({"cpu", "disk", "net"})


@dataclass(frozen=True)
class Word:
    """One value of a file: ``place`` is the file and line, ``kind`` that of the unit. ``is_sure`` is False where
    only TuneD knows whether the unit is for this machine and device."""

    place: str
    text: str
    path: str
    value: str
    kind: str = ""
    devices: str = ""
    is_sure: bool = True


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
        """Which devices of its kind it is about; empty for all, and for those that only TuneD knows.

        Units that set files or sysctls have none, whatever they say.
        """
        word = self.options.get("devices")
        is_any = word is None or self.kind not in _OF_DEVICES or self._has_pattern
        return "" if word is None or is_any else word.value

    @property
    def _has_pattern(self) -> bool:
        """Of udev's properties, or a variable of TuneD's."""
        word = self.options.get("devices")
        return "devices_udev_regex" in self.options or (word is not None and "${" in word.value)

    @property
    def is_sure(self) -> bool:
        is_for_some = any(each in self.options for each in _CONDITIONS)
        return not is_for_some and not (self.kind in _OF_DEVICES and self._has_pattern)

    def words(self) -> list[Word]:
        return [
            replace(word, devices=self.devices, kind=self.kind, is_sure=self.is_sure)
            for word in self.options.values()
            if word.path
        ]

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
    return [word for unit in in_turn(found, profiles) for word in unit.words()]


def in_turn(copies: Copies, profiles: Sequence[str]) -> list[Unit]:
    """The units of these profiles that are enabled, as they are applied."""
    return [unit for unit in _all_units(copies, profiles) if unit.enabled]


def _all_units(copies: Copies, profiles: Sequence[str]) -> list[Unit]:
    units: dict[str, Unit] = {}
    _load(copies, profiles, units, [], [])
    return sorted(units.values(), key=lambda unit: unit.priority)


def lacking(copies: Copies, profiles: Sequence[str]) -> list[str]:
    """Profiles that these include and that are not there: TuneD then loads none at all."""
    missing: list[str] = []
    _load(copies, profiles, {}, [], missing)
    return missing


def concerns(word: Word, path: str) -> bool:
    """Whether a word is about this path; both may be patterns, and a disk may stand for all."""
    if not (fnmatch.fnmatchcase(path, word.path) or fnmatch.fnmatchcase(word.path, path)):
        return False
    device = _DEVICE.match(path)
    return device is None or _has_device(word.devices, device[1])


def _has_device(devices: str, name: str) -> bool:
    """device_matcher.py: names or patterns, less those after ``!``; with these alone all others."""
    listed = [each for each in re.split(r"[\s,]+", devices) if each]
    without = [each[1:] for each in listed if each[0] == "!"]
    own = [each for each in listed if each[0] != "!"] or ["*"]
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


def _load(
    found: Copies, names: Sequence[str], units: dict[str, Unit], seen: list[str], missing: list[str]
) -> None:
    for name in names:
        # A profile may include that of the same name in the folder below it.
        files = [f"{folder}/{posixpath.basename(name.removeprefix('-'))}/tuned.conf" for folder in FOLDERS]
        there = [each for each in files if each in found.files]
        file = next((each for each in there if each not in seen), "")
        if not file:
            missing += [name] if not there and not name.startswith("-") else []
            continue
        seen.append(file)
        includes, own = _parsed(found, file)
        if "${" in includes:
            raise NotReady(
                f"includes {includes}, which only TuneD can resolve", place=file, hint="--persist tuned"
            )
        if includes:
            _load(found, re.split(r"\s*[,;]\s*", includes), units, seen, missing)
        for section, unit in own.items():
            before = units.get(section)
            if before is None or unit.replaces:
                units[section] = unit
                continue
            before.kind, before.enabled = unit.kind, unit.enabled
            # Without devices it is for all, whatever the one before was for.
            for option in ("devices", *(each for each in unit.drop if each not in _OF_UNIT)):
                before.options.pop(option, None)
            before.options.update(unit.options)


def _parsed(found: Copies, file: str) -> tuple[str, dict[str, Unit]]:
    """What a profile includes, and its own sections."""
    parser = configparser.RawConfigParser(delimiters="=", inline_comment_prefixes="#", strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(_text(found, file))
    except configparser.Error as error:
        what = str(error).splitlines()[0]
        raise NotReady(
            f"TuneD cannot read it, and what it does then is not known: {what}", place=file, hint="mend it"
        ) from error
    lines = _numbered(_text(found, file))
    own: dict[str, Unit] = {}
    for section in parser.sections():
        told = [(*lines.get((section, name), (1, name)), name, parser.get(section, name))
                for name in parser.options(section)]  # fmt: skip
        own[section] = _unit(file, section, told)
    own.pop("main", None)
    return parser.get("main", "include", fallback="").strip(), own


def _numbered(text: str) -> dict[tuple[str, str], tuple[int, str]]:
    """Section and name -> number and text of the last such line."""
    section = ""
    numbered = {}
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if bare.startswith("["):
            section = bare[1:].partition("]")[0]
        else:
            numbered[section, bare.partition("=")[0].strip()] = (
                number,
                re.sub(r"(^|\s)#.*", "", bare).strip(),
            )
    return numbered


def _unit(file: str, section: str, lines: Sequence[tuple[int, str, str, str]]) -> Unit:
    told = {name: value for _, _, name, value in lines}
    kind = told.get("type", section)
    unit = Unit(
        kind,
        drop=tuple(re.split(r"\b\s*[,;]\s*", told.get("drop", ""))),
        enabled=told.get("enabled", "1") in _YES,
        replaces=told.get("replace", "0") in _YES,
    )
    for number, text, name, value in lines:
        unit.options[name] = Word(f"{file}:{number}", text, _path(kind, name), value, kind)
    return unit


def _path(kind: str, name: str) -> str:
    if name in _OF_UNIT:
        return ""
    if kind == "sysctl":
        return f"/proc/sys/{name.translate(str.maketrans('./', '/.'))}"
    if kind == "sysfs" and name.startswith("/"):
        return posixpath.normpath(name)
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
    """The words about any of these paths, which are of one device or of none, in order."""
    device = next((each[1] for path in paths if (each := _DEVICE.match(path))), "")
    taken: set[str] = set()
    doubtful: set[str] = set()
    for unit in in_turn(found, profiles):
        if unit.kind in taken:
            continue
        for word in unit.words():
            if any(concerns(word, path) for path in paths):
                yield replace(word, is_sure=word.is_sure and unit.kind not in doubtful)
        if unit.kind in _OF_DEVICES and device and _has_device(unit.devices, device):
            (taken if unit.is_sure else doubtful).add(unit.kind)


def unsure(copies: Copies, profiles: Sequence[str], path: str) -> tuple[str, str] | None:
    """Place and text of what lets TuneD skip the only unit that sets this."""
    for unit in in_turn(copies, profiles):
        if any(word.is_sure and concerns(word, path) for word in unit.words()):
            return None
    for unit in _all_units(copies, profiles):
        names = _CONDITIONS if unit.enabled else ("enabled",)
        condition = next((unit.options[each] for each in names if each in unit.options), None)
        if condition and any(concerns(word, path) for word in unit.words()):
            return condition.place, condition.text
    return None


def may_be_last(words: Sequence[Word]) -> Sequence[Word]:
    """Those of which one decides: the last that is sure, and what may come after it."""
    return words[max((at for at, word in enumerate(words) if word.is_sure), default=0) :]


def is_left_to_profile(copies: Copies, sysctl: str) -> bool:
    """Whether the system's files do not count again for this one (``reapply_sysctl_exclude``)."""
    listed = re.search(r"^\s*reapply_sysctl_exclude\s*=(.*)$", _text(copies, MAIN), re.MULTILINE)
    patterns = re.split("[,;]", re.sub(r"\s#.*", "", listed[1])) if listed else []
    return any(fnmatch.fnmatchcase(sysctl, each.strip()) for each in patterns)


def _text(found: Copies, path: str) -> str:
    return found.files.get(path, b"").decode("utf-8", "surrogateescape")
