"""Values that last: what a host's files set at its next boot, and a server's at its next start.

All files come with one command, because a host far away costs a round trip for each. Values that may be passwords
are dropped as they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from headrace.errors import CommandFailed
from headrace.facts import HostFacts
from headrace.model import Facts
from headrace.server.option_files import MAIN_FILES, of_file, plain, reading_order
from headrace.target import Target

#: systemd's order: of two files with one name the first folder's counts; names are sorted over all folders.
SYSCTL_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
SYSCTL_CONF = "/etc/sysctl.conf"
#: No file of settings is larger, nor has a host more of them.
MOST_BYTES, MOST_FILES = 262_144, 300
COMMAND_LINE = "the command line"
#: Marks a file that is there and was not read.
UNREADABLE = "unreadable:"

#: Prints size, path and content of each file. Option files name others, which follow.
SCRIPT = f"""
count=0
emit() {{
  [ -f "$1" ] || return 1
  [ -r "$1" ] && [ $count -lt {MOST_FILES} ] || {{ printf '0 {UNREADABLE}%s\\n' "$1"; return 1; }}
  size=$(wc -c <"$1"); [ "$size" -le {MOST_BYTES} ] || {{ printf '0 {UNREADABLE}%s\\n' "$1"; return 1; }}
  count=$((count + 1)); printf '%s %s\\n' "$size" "$1"; head -c "$size" -- "$1"
}}
for folder in {" ".join(SYSCTL_FOLDERS)}; do for file in "$folder"/*.conf; do emit "$file"; done; done
emit {SYSCTL_CONF}
todo="$*"; seen=
while [ "$todo" ]; do
  next=
  for file in $todo; do
    case " $seen " in *" $file "*) continue;; esac
    seen="$seen $file"; emit "$file" || continue
    next="$next $(sed -n 's/^[[:space:]]*!include[[:space:]]\\{{1,\\}}//p' "$file")"
    for folder in $(sed -n 's/^[[:space:]]*!includedir[[:space:]]\\{{1,\\}}//p' "$file"); do
      for each in "${{folder%/}}"/*.cnf; do next="$next $each"; done
    done
  done
  todo=${{next## }}
  case "$todo" in *[!\\ ]*) ;; *) todo=;; esac
done
exit 0
"""

_SECRET = re.compile(r"pass|pwd|secret|token|credential|sst_auth|access_key|filekey|init_connect|init_file")


@dataclass(frozen=True)
class Lasting:
    """Name -> (value, the file that decides it). ``options`` is None if the server is not known.

    ``unreadable``: files that exist and were not read; what they set is not known.
    """

    sysctls: Mapping[str, tuple[str, str]]
    options: Mapping[str, tuple[str, str]] | None
    unreadable: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "sysctls": dict(self.sysctls),
            "options": None if self.options is None else dict(self.options),
            "unreadable": list(self.unreadable),
        }


async def lasting(target: Target, facts: Mapping[str, Any]) -> Lasting:
    """What the files of a host set; of the server that ``facts`` are about, if they are about one."""
    arguments = _arguments(facts)
    named = [word.partition("=")[2] for word in arguments if word.startswith("--defaults-")]
    answer = await target.run(["sh", "-c", SCRIPT, "sh", *MAIN_FILES, *named], repeatable=True)
    found = dict(_parsed(answer.stdout, target.name))
    unreadable = tuple(path.removeprefix(UNREADABLE) for path in found if path.startswith(UNREADABLE))
    files = _Copies({path: text for path, text in found.items() if not path.startswith(UNREADABLE)})
    options = await _options(files, arguments) if arguments else None
    return Lasting(sysctls(files.files), options, unreadable)


def _arguments(facts: Mapping[str, Any]) -> list[str]:
    """The command line of the server that was asked; empty if its process is not known."""
    found = HostFacts(Facts("", facts))
    for server in found.servers:
        if server["pid"] == found.server_pid:
            return [str(word) for word in server.get("command_line") or ()] or ["mysqld"]
    return []


class _Copies:
    """The files that a host sent."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    async def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return self.files[path]

    def inside(self, folder: str) -> list[str]:
        return sorted(path for path in self.files if str(PurePosixPath(path).parent) == folder)


def _parsed(output: bytes, place: str) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(output):
        head, separator, _ = output[at : at + 8192].partition(b"\n")
        size, _, path = head.partition(b" ")
        start = at + len(head) + 1
        if not separator or not size.isdigit() or start + int(size) > len(output):
            raise CommandFailed("its files changed while they were read", place=place)
        at = start + int(size)
        yield path.decode("utf-8", "replace"), output[start:at]


def sysctls(files: Mapping[str, bytes]) -> dict[str, tuple[str, str]]:
    """What the kernel gets at boot, and from which file."""
    by_name: dict[str, str] = {}
    for folder in SYSCTL_FOLDERS:
        for path in files:
            if str(PurePosixPath(path).parent) == folder:
                by_name.setdefault(PurePosixPath(path).name, path)
    order = [by_name[name] for name in sorted(by_name)] + [SYSCTL_CONF] * (SYSCTL_CONF in files)
    found: dict[str, tuple[str, str]] = {}
    for path in order:
        for line in files[path].decode("utf-8", "replace").splitlines():
            name, separator, value = line.strip().lstrip("-").partition("=")
            if separator and not line.lstrip().startswith(("#", ";")) and "*" not in name:
                found[_sysctl_name(name.strip())] = (value.strip(), path)
    return found


def _sysctl_name(name: str) -> str:
    """``net/ipv4/conf/eth0.1/forwarding``: with a slash first, dots belong to the names."""
    first = re.search(r"[./]", name)
    return name.translate(str.maketrans("/.", "./")) if first and first[0] == "/" else name


async def _options(files: _Copies, arguments: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The server's variables as its next start will set them; the last to name one decides."""
    found: dict[str, tuple[str, str]] = {}
    for read in await reading_order(files, arguments):
        inside = [each for path in files.inside(read.folder) for each in await of_file(files, path)]
        for each in inside if read.folder else [read]:
            found.update(_named(each.variable, each.value, each.file))
    for word in arguments[1:]:
        if word.startswith("--"):
            name, separator, value = word.removeprefix("--").partition("=")
            found.update(_named(plain(name), value if separator else None, COMMAND_LINE))
    return {name: value for name, value in found.items() if not _SECRET.search(name)}


def _named(option: str, value: str | None, file: str) -> Iterable[tuple[str, tuple[str, str]]]:
    """``skip-name-resolve`` is a variable itself; ``skip-log-bin`` is log_bin, off."""
    if not option or option.startswith(("defaults_", "no_defaults", "wsrep_new_cluster")):
        return
    yield option, ("ON" if value is None else value, file)
    for prefix, meaning in (("skip_", "OFF"), ("disable_", "OFF"), ("enable_", "ON")):
        if option.startswith(prefix) and value is None:
            yield option.removeprefix(prefix), (meaning, file)
