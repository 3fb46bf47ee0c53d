"""Files that a host reads when it boots: sysctl, tmpfiles, udev, TuneD; ours, and which has the last word.

The order is systemd's (sysctl.d(5), tmpfiles.d(5), udev(7)) and TuneD's (tuned-main.conf(5)). A file that would
win over ours is named, and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.base.errors import NotReady, Refused
from headrace.change.persist.last_word import (
    COMMAND_FOLDERS,
    COMMANDS,
    PARTNER,
    SYSCTL_CONF,
    SYSCTL_CREDENTIAL,
    SYSCTL_FOLDERS,
    TMPFILES_FOLDERS,
    UDEV_FOLDERS,
    Said,
    Wanted,
    command_files,
    device_winner,
    scripts_of,
    sysctl_name,
    sysctl_winner,
    tmpfile_winner,
    tuned_sysctl_winner,
    tuned_winner,
)
from headrace.change.persist.tuned import ACTIVE, MAIN, OURS, lacking, must_be_known, unsure
from headrace.change.persist.tuned import FOLDERS as TUNED_FOLDERS
from headrace.host.facts import HostFacts
from headrace.host.target import Target
from headrace.knobs.catalogue import Instance
from headrace.lab.server.option_files import Copies
from headrace.lab.server.sources import EMIT, copies

#: Files are applied in the order of their names, and 99-sysctl.conf is /etc/sysctl.conf on most systems.
SYSCTL = "/etc/sysctl.d/99-zz-headrace.conf"
TMPFILES = "/etc/tmpfiles.d/headrace.conf"
UDEV = "/etc/udev/rules.d/99-zz-headrace.rules"
TUNED = OURS
HEADER = "# Written by headrace; `headrace rollback` takes it away.\n"
_COLLECT = (
    EMIT
    + """
most=1000
for file in $1; do emit "$file" || mask "$file"; done
for folder in $2; do
  for file in "$folder"/*.conf "$folder"/*.rules "$folder"/*/tuned.conf "$folder"/*/*.sh; do
    emit "$file" || mask "$file"
  done
done
IFS='
'
# Of some hundred units only those that can be about a setting.
tools='sysctl|/proc/sys|/sys/|blockdev|setra|hdparm|mtu|txqueuelen'
places='^Exec.*/(usr/local|opt|root|srv|home|etc)/'
for folder in $3; do
  case $folder in
    /lib/*) [ -L /lib ] && continue;;
  esac
  case $folder in
    *.d) for file in "$folder"/*; do emit "$file"; done;;
    *) for file in $(grep -lsE "$tools|$places" "$folder"/*.service "$folder"/*.service.d/*.conf); do
        emit "$file"
      done;;
  esac
done
exit 0
"""
)
#: No script of an administrator is larger: a program is none.
_SCRIPTS = (
    EMIT
    + """
for file in "$@"; do
  [ -f "$file" ] && [ -r "$file" ] && [ "$(head -c 2 "$file")" = "#!" ] && emit "$file"
done
exit 0
"""
)


@dataclass(frozen=True)
class Lasting:
    """One setting as a file must say it. ``instance`` is None for a server's."""

    name: str
    value: str
    instance: Instance | None = None


async def collect(target: Target) -> Copies:
    """The files of a host that count at its boot. Raises NotReady for one that cannot be read."""
    single = (SYSCTL_CONF, SYSCTL_CREDENTIAL, *ACTIVE, MAIN, *COMMANDS)
    folders = (*SYSCTL_FOLDERS, *TMPFILES_FOLDERS, *UDEV_FOLDERS, *TUNED_FOLDERS)
    words = ["sh", "-c", _COLLECT, "sh", " ".join(single), " ".join(folders), "\n".join(COMMAND_FOLDERS)]
    answer = await target.run(words, repeatable=True)
    found, unreadable = copies(answer.stdout, target.name)
    if unreadable:
        raise NotReady(f"cannot be read: {', '.join(unreadable)}", place=target.name, hint="as root")
    named = [path for file in command_files(found) for path in scripts_of(found, file)]
    if named:
        more = await target.run(["sh", "-c", _SCRIPTS, "sh", *dict.fromkeys(named)], repeatable=True)
        scripts, unreadable = copies(more.stdout, target.name)
        if unreadable:
            raise NotReady(f"cannot be read: {', '.join(unreadable)}", place=target.name, hint="as root")
        found = Copies({**found.files, **scripts.files})
    return Copies(found.files)


def boot_files(
    found: Copies, settings: Sequence[Lasting], facts: HostFacts, *, tuned: bool = False
) -> dict[str, str]:
    """Path -> content of our files after these settings. Raises Refused where another file would win."""
    must_be_known(found)
    lines: dict[str, dict[str, _Line]] = {}
    for setting in settings:
        for path, key, line in _lines(found, setting, facts, tuned=tuned):
            lines.setdefault(path, {})[key] = line
    written = {path: _content(found, path, own_text(found, path), new) for path, new in lines.items()}
    after = found
    for path, content in written.items():
        after = after.replaced(path, content)
    for path, new in lines.items():
        _must_win(after, path, new)
    return written


def other_at_boot(found: Copies, path: str, value: str) -> Said | None:
    """The word that gives a file of /proc/sys or /sys another value than this at boot; None if none does."""
    wanted = Wanted(path, value, "")
    if path.startswith("/proc/sys/"):
        return sysctl_winner(found, sysctl_name(path.removeprefix("/proc/sys/")), wanted)
    if device := re.fullmatch(r"/sys/(block|class/net)/([^/]+)/.+", path):
        return device_winner(found, UDEV, device[1].rpartition("/")[2], device[2], wanted)
    return tmpfile_winner(found, wanted)


@dataclass(frozen=True)
class _Line:
    """A line of one of our files, and what it sets; for a rule of udev also the device's kind and name."""

    text: str
    wanted: Wanted
    subsystem: str = ""
    device: str = ""


def _lines(
    found: Copies, setting: Lasting, facts: HostFacts, *, tuned: bool
) -> Iterator[tuple[str, str, _Line]]:
    """File, what the line is about, and the line."""
    assert setting.instance is not None
    knob = setting.instance.knob
    if knob.placeholder == "irq":
        raise Refused(
            "cannot be made permanent: interrupt numbers change with a boot",
            place=setting.name,
            hint="apply it without --persist, or let irqbalance do it",
        )
    for path in setting.instance.paths:
        device = re.fullmatch(r"/sys/(block|class/net)/([^/]+)/.+", path)
        if tuned:
            file, key, text = _tuned_path(found), path, _tuned_line(path, setting.value)
        elif name := knob.sysctl:
            file, key, text = SYSCTL, name, f"{name} = {setting.value}"
        elif rule := _udev_rule(path, setting.value, facts):
            file, key, text = UDEV, about(UDEV, rule), rule
        else:
            file, key, text = TMPFILES, path, f"w {path} - - - - {setting.value}"
        wanted = Wanted(path, setting.value, text)
        subsystem, its_name = (device[1].rpartition("/")[2], device[2]) if device else ("", "")
        yield file, key, _Line(text, wanted, subsystem, its_name)


def _udev_rule(path: str, value: str, facts: HostFacts) -> str | None:
    """A rule for a device's own attribute: devices come and go, so the value is set whenever one comes."""
    for pattern, subsystem in (
        (r"/sys/block/([^/]+)/(.+)", "block"),
        (r"/sys/class/net/([^/]+)/(.+)", "net"),
    ):
        if match := re.fullmatch(pattern, path):
            quoted = value.replace('"', "")
            return (
                f'ACTION=="add|change", SUBSYSTEM=="{subsystem}", {_identity(subsystem, match[1], facts)}, '
                f'ATTR{{{match[2]}}}="{quoted}"'
            )
    return None


def _identity(subsystem: str, name: str, facts: HostFacts) -> str:
    """What a device is known by after the next boot, when sda may be another disk and eth0 another card.

    A disk by its link in /dev/disk/by-id, a card by its place on the bus; by its name only what has neither.
    """
    if subsystem == "block":
        ids = (facts.block_device(name) or {}).get("stable_ids") or ()
        # The serial number or WWN first: a name by the model and the slot may move to another disk.
        best = sorted(
            ids, key=lambda text: (not text.startswith(("wwn-", "nvme-eui.", "dm-uuid-", "md-uuid-")), text)
        )
        return f'SYMLINK=="disk/by-id/{best[0]}"' if best else f'KERNEL=="{name}"'
    card = next((nic for nic in facts.network_interfaces if nic.get("name") == name), {})
    address = card.get("pci_address")
    return f'KERNELS=="{address}"' if address else f'KERNEL=="{name}"'


def _tuned_path(found: Copies) -> str:
    for folder in ("/etc/tuned/profiles", "/etc/tuned"):
        if any(path.startswith(f"{folder}/") for path in found.files):
            return f"{folder}/{TUNED}/tuned.conf"
    raise NotReady("TuneD is not installed", place="/etc/tuned", hint="--persist files")


def _tuned_line(path: str, value: str) -> str:
    if path.startswith("/proc/sys/"):
        return f"{path.removeprefix('/proc/sys/').replace('/', '.')}={value}"
    return f"{path}={value}"


# -- the last word ----------------------------------------------------------------------------------------------


def _must_win(found: Copies, path: str, new: Mapping[str, _Line]) -> None:
    """Raises Refused with the file and line that would decide instead of ours, over files of which ours is one."""
    for key, line in new.items():
        if winner := _winner(found, path, key, line):
            place, what = winner
            raise Refused(
                f"{place} decides it at boot ({what.strip()}), not {path}",
                place=key if path != UDEV else path,
                hint=f"change or remove that line of {place.rpartition(':')[0]}, then run this again",
            )


def _winner(found: Copies, path: str, key: str, line: _Line) -> Said | None:
    wanted = line.wanted
    if path == SYSCTL:
        return sysctl_winner(found, key, wanted)
    if path == TMPFILES:
        return tmpfile_winner(found, wanted)
    if path == UDEV:
        return device_winner(found, UDEV, line.subsystem, line.device, wanted)
    # What TuneD loads after all of its profiles still comes after ours.
    loaded_later = [name for name in _text(found, ACTIVE[1]).split() if name != TUNED]
    if missing := lacking(found, [TUNED, *loaded_later]):
        raise NotReady(
            f"no profile {missing[0]} is there, which the active one includes: TuneD would load none at all",
            place=path,
            hint="tuned-adm profile NAME, with one that is there",
        )
    if said := tuned_winner(found, wanted, [TUNED, *loaded_later]):
        return said
    if said := unsure(found, [TUNED, *loaded_later], wanted.path):
        return said
    if not wanted.path.startswith("/proc/sys/"):
        return None
    return tuned_sysctl_winner(found, sysctl_name(wanted.path.removeprefix("/proc/sys/")), wanted)


def _text(found: Copies, path: str) -> str:
    return found.files.get(path, b"").decode("utf-8", "surrogateescape")


# -- our own files ----------------------------------------------------------------------------------------------


def own_text(found: Copies, path: str) -> str:
    """Raises Refused for a file that we did not write: its lines might be anybody's, and ours would show them."""
    text = _text(found, path)
    if text.strip() and not text.startswith(HEADER):
        raise Refused("has our name, but headrace did not write it", place=path, hint="move it away")
    return text


def _content(found: Copies, path: str, before: str, new: Mapping[str, _Line]) -> str:
    """Ours with the new lines last; what a new line makes void leaves the file with the old one."""
    gone = {*new, *(void for key in new for void in _void(path, key) if void not in new)}
    kept = {about(path, line): line for line in before.splitlines() if about(path, line) not in ("", *gone)}
    lines = [*kept.values(), *_first_things_first(path, new)]
    if path.endswith("tuned.conf"):
        return _profile(found, before, lines)
    return HEADER + "\n".join(lines) + "\n"


def _void(path: str, key: str) -> Iterable[str]:
    """What the kernel resets when this is set."""
    if path == SYSCTL and key in PARTNER:
        return (PARTNER[key],)
    if path.endswith("tuned.conf"):
        partner = PARTNER.get(key.removeprefix("/proc/sys/").replace("/", "."))
        if partner:
            return (f"/proc/sys/{partner.replace('.', '/')}",)
    if key.endswith(("ATTR{queue/scheduler}", "/queue/scheduler")):
        # Another scheduler begins with its own number of requests.
        return (key.replace("queue/scheduler", "queue/nr_requests"),)
    return ()


def _first_things_first(path: str, new: Mapping[str, _Line]) -> list[str]:
    """A scheduler before the number of its requests, which it resets."""
    return [new[key].text for key in sorted(new, key=lambda key: "queue/scheduler" not in key)]


def _profile(found: Copies, before: str, lines: Sequence[str]) -> str:
    sysctls_ = [line for line in lines if not line.startswith("/")]
    files = [line for line in lines if line.startswith("/")]
    was = re.search(r"^include=(.*)$", before, re.MULTILINE)
    # What is active stays in effect below ours; ours itself is no part of it.
    active = [name for name in _text(found, ACTIVE[0]).split() if name != TUNED] or ([was[1]] if was else [])
    include = f"include={','.join(active)}\n" if active else ""
    main = f"[main]\nsummary=What headrace proved for the database server of this host\n{include}"
    parts = [("[sysctl]", sysctls_), ("[sysfs]", files)]
    body = "".join(f"\n{section}\n" + "\n".join(own) + "\n" for section, own in parts if own)
    return f"{HEADER}{main}{body}"


def about(path: str, line: str) -> str:
    """What a line of one of our files sets; empty for anything else."""
    if not line or line.startswith(("#", "[", "summary=", "include=")):
        return ""
    if path == UDEV:
        # All but the value.
        return line.rpartition("=")[0]
    if path == TMPFILES:
        return line.split()[1] if len(line.split()) > 1 else line
    key = line.partition("=")[0].strip()
    if path.endswith("tuned.conf"):
        return key if key.startswith("/") else f"/proc/sys/{key.replace('.', '/')}"
    return key
