"""An independent model of a boot: the values that sysctl, udev, tmpfiles, TuneD and rc.local leave.

    kernel = replay({"/etc/sysctl.d/a.conf": "vm.swappiness = 7"})
    kernel["/proc/sys/vm/swappiness"]

It is written from the manuals, apart from the reader under test, and simpler: it carries out one write after
another. ``tests/real/devices/test_boot.py`` compares it with systemd's own programs.
"""

from __future__ import annotations

import configparser
import ctypes
import fnmatch
import re
from collections.abc import Mapping
from posixpath import basename, dirname

VM = "/proc/sys/vm"
QUEUE = "/sys/block/sda/queue"
#: Writing one sets the other to 0, or to what a new scheduler begins with.
COUPLED = {
    **{f"{VM}/{a}": (f"{VM}/{b}", "0") for x, y in (("dirty_ratio", "dirty_bytes"),
       ("dirty_background_ratio", "dirty_background_bytes"), ("overcommit_ratio", "overcommit_kbytes"))
       for a, b in ((x, y), (y, x))},
    f"{QUEUE}/scheduler": (f"{QUEUE}/nr_requests", "256"),
}  # fmt: skip
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
RPS = "/sys/class/net/eth0/queues/rx-0/rps_cpus"
PRESENT = (
    *COUPLED, f"{VM}/swappiness", f"{QUEUE}/nr_requests", f"{QUEUE}/read_ahead_kb", THP, RPS,
)  # fmt: skip
#: Devices in the order in which they come: subsystem, name, folder, properties.
DEVICES = (
    ("block", "sda", "/sys/block/sda"),
    ("bdi", "8:0", "/sys/block/sda/bdi"),
    ("block", "sda1", "/sys/block/sda/sda1"),
    ("net", "eth0", "/sys/class/net/eth0"),
    ("queues", "rx-0", "/sys/class/net/eth0/queues/rx-0"),
)


class Kernel(dict[str, str]):
    def write(self, path: str, value: str) -> None:
        path = path.replace("/sys/block/sda/bdi/", "/sys/block/sda/queue/")
        if path not in self:
            return
        # A kernel's number, as strtol(3) takes it in base 0.
        if path.startswith("/proc/sys/") and re.fullmatch("0[0-7]+", value):
            value = str(int(value, 8))
        elif path.startswith("/proc/sys/") and value.startswith("0x"):
            value = str(int(value, 16))
        if path in COUPLED and not (path.endswith("scheduler") and self[path] == value):
            other, reset = COUPLED[path]
            self[other] = reset
        self[path] = value


def replay(files: Mapping[str, str]) -> Kernel:
    kernel = Kernel(dict.fromkeys(PRESENT, "?"))
    sysctls(files, kernel)
    udev(files, kernel)
    tmpfiles(files, kernel)
    tuned(files, kernel)
    for line in files.get("/etc/rc.local", "").splitlines():
        if match := re.match(r"echo (\S+) > (\S+)", line):
            for path in fnmatch.filter(kernel, match[2]):
                kernel.write(path, match[1])
        if match := re.match(r"sysctl -w (\S+)=(\S+)", line):
            kernel.write(f"/proc/sys/{match[1].replace('.', '/')}", match[2])
    return kernel


def conf_files(files: Mapping[str, str], kind: str, ending: str) -> list[str]:
    seen: dict[str, str] = {}
    for root in ("/usr/lib", "/usr/local/lib", "/run", "/etc"):
        seen |= {basename(path): path for path in files if dirname(path) == f"{root}/{kind}"}
    return [seen[name] for name in sorted(seen) if name.endswith(ending)]


def sysctls(files: Mapping[str, str], kernel: Kernel) -> None:
    table: list[tuple[str, str | None]] = []
    for path in [*conf_files(files, "sysctl.d", ".conf"), "/run/credentials/@system/sysctl.extra"]:
        for line in map(str.strip, files.get(path, "").splitlines()):
            name, equals, value = line.partition("=")
            if line[:1] in ("", "#", ";") or not (equals or line[0] == "-"):
                continue
            name = name.lstrip("-").strip()
            separator = re.search("[./]", name)
            if separator and separator[0] == ".":
                name = name.translate(str.maketrans("./", "/."))
            name = re.sub("(/[.])?(?=/)", "", re.sub("/+", "/", name)).strip("/")
            entry = (name, value.strip() if equals else None)
            if entry in table:
                continue
            table = [*(old for old in table if old[0] != entry[0]), entry]
    for name, text in table:
        alone = re.search(r"[*?[]", name) is None
        for path in [f"/proc/sys/{name}"] if alone else globbed(kernel, f"/proc/sys/{name}"):
            if text is not None and (alone or path[10:] not in [other for other, _ in table]):
                kernel.write(path, text)


def globbed(kernel: Kernel, pattern: str) -> list[str]:
    """By the C library, whose glob(3) takes braces apart first."""
    braces = re.search(r"\{(.*)\}", pattern)
    words = [pattern.replace(braces[0], word) for word in braces[1].split(",")] if braces else [pattern]
    match = ctypes.CDLL(None).fnmatch
    return [p for word in words for p in sorted(kernel) if match(word.encode(), p.encode(), 1) == 0]


def udev(files: Mapping[str, str], kernel: Kernel) -> None:  # noqa: C901 - one rule after another
    rules = [
        (path, rule)
        for path in conf_files(files, "udev/rules.d", ".rules")
        for rule in files[path].replace("\\\n", " ").splitlines()
        # Of a line with a comment at its end udev reads nothing.
        if not rule.startswith("#") and " #" not in rule
    ]
    for subsystem, name, folder in DEVICES:
        runs = []
        goto: tuple[str, str] | None = None
        for place, rule in rules:
            if goto and goto[0] == place and f'LABEL="{goto[1]}"' not in rule:
                continue
            goto = None
            tokens = re.findall(r'([A-Z_]+)(\{[^}]*\})?\s*([=!:+-]=|=)\s*e?"([^"]*)"', rule)
            known = {"KERNEL": name, "SUBSYSTEM": subsystem, "ACTION": "add", "KERNELS": name}
            met = all(
                any(fnmatch.fnmatchcase(known.get(key, ""), p) for p in text.split("|")) == (how == "==")
                for key, _, how, text in tokens
                if how in ("==", "!=") and key in known
            )
            for key, about, how, text in tokens if met else ():
                if how in ("==", "!="):
                    continue
                if key == "GOTO" and any(p == place and f'LABEL="{text}"' in other for p, other in rules):
                    goto = place, text
                if key == "ATTR":
                    named = re.match(r"\{\[block/(\w+)\](.*)\}", about)
                    whole = f"/sys/block/{named[1]}/{named[2]}" if named else f"{folder}/{about[1:-1]}"
                    at = re.sub("/+", "/", re.sub(r"/[^/]+/\.\./", "/", whole.replace("/./", "/")))
                    for path in fnmatch.filter([at, *kernel], at):
                        kernel.write(path, text)
                elif key == "SYSCTL":
                    kernel.write(f"/proc/sys/{about[1:-1].replace('.', '/')}", text)
                elif key == "RUN":
                    runs.append(text.replace("%k", name))
        for run in runs:
            if match := re.search(r"echo (\S+) > ([^\s']+)", run):
                kernel.write(match[2], match[1])


def tmpfiles(files: Mapping[str, str], kernel: Kernel) -> None:
    lines: dict[str, list[str]] = {}
    added: set[str] = set()
    for path in conf_files(files, "tmpfiles.d", ".conf"):
        for line in files[path].splitlines():
            words = line.split()
            if not words or words[0][0] != "w":
                continue
            if words[1] not in lines or ("+" in words[0] and words[1] in added):
                lines.setdefault(words[1], []).append(words[6])
                added |= {words[1]} if "+" in words[0] else set()
    for pattern, values in lines.items():
        for value in values:
            braces = re.search(r"\{(.*)\}", pattern)
            for word in braces[1].split(",") if braces else [""]:
                one = pattern.replace(braces[0], word) if braces else pattern
                for path in fnmatch.filter(sorted(kernel), one):
                    kernel.write(path, value)


def tuned(files: Mapping[str, str], kernel: Kernel) -> None:
    merged: dict[str, dict[str, str]] = {}
    done: list[str] = []

    def load(names: list[str]) -> None:
        for name in names:
            places = [f"{root}/{name}/tuned.conf" for root in ("/etc/tuned", "/usr/lib/tuned")]
            place = next((each for each in places if each in files and each not in done), None)
            if place is None:
                continue
            done.append(place)
            parser = configparser.ConfigParser(
                delimiters=("=",), inline_comment_prefixes=("#",), strict=False, interpolation=None
            )
            parser.optionxform = str  # type: ignore[assignment, method-assign]
            parser.read_string(files[place])
            if include := parser.get("main", "include", fallback=""):
                load(re.split(r"\s*[,;]\s*", include))
            for section in parser.sections():
                merged.setdefault(section, {}).update(parser[section])

    load(files.get("/etc/tuned/active_profile", "").split())
    load(files.get("/etc/tuned/post_loaded_profile", "").split())
    merged.pop("main", None)
    has_sysctl = False
    for section, options in merged.items():
        kind = options.get("type", section)
        devices = options.get("devices", "sda").split(",")
        if "!sda" in devices or ("sda" not in devices and devices[0][0] != "!"):
            continue
        for name, value in options.items() if options.get("enabled", "1") == "1" else ():
            where = {
                "sysctl": f"/proc/sys/{name.replace('.', '/')}",
                "sysfs": name,
                "vm": THP if name.startswith("transparent") else f"{VM}/{name}",
                "disk": f"{QUEUE}/{ {'elevator': 'scheduler', 'readahead': 'read_ahead_kb'}.get(name) }",
            }.get(kind, "")
            for path in fnmatch.filter(sorted(kernel), where):
                kernel.write(path, value)
        if kind == "sysctl":
            has_sysctl = True
            if "reapply_sysctl = 0" not in files.get("/etc/tuned/tuned-main.conf", ""):
                reapply(files, kernel)
    assert has_sysctl or not any("[sysctl]" in files[path] for path in done)


def reapply(files: Mapping[str, str], kernel: Kernel) -> None:
    names = {basename(p): p for root in ("/etc", "/run") for p in files if dirname(p) == f"{root}/sysctl.d"}
    for path in [*(names[name] for name in sorted(names)), "/etc/sysctl.conf"]:
        for line in files.get(path, "").splitlines():
            name, equals, value = line.partition("=")
            if equals and line[0] not in "#;":
                kernel.write(f"/proc/sys/{name.strip().replace('.', '/')}", value.strip())
