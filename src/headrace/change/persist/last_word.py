"""Which word about a setting of the host is the last of a boot, if it is not ours.

systemd-sysctl, systemd-tmpfiles and udev are followed as they read their files: sysctl.d(5), tmpfiles.d(5),
udev(7), and their sources where the manuals are silent; ``tests/real/server/test_boot.py`` compares. After them
come TuneD and commands at boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from headrace.change.persist import tuned
from headrace.change.persist.patterns import expanded, fits, is_globbed, is_pattern
from headrace.lab.server.option_files import Copies

#: Of two files with one name the first folder's counts; names are sorted over all folders.
SYSCTL_FOLDERS = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
SYSCTL_CONF = "/etc/sysctl.conf"
#: systemd-sysctl reads it after all files (systemd.system-credentials(7)).
SYSCTL_CREDENTIAL = "/run/credentials/@system/sysctl.extra"
#: TuneD reads these again, the first before the second where both have a name, then sysctl.conf.
_TUNED_SYSCTLS = ("/run/sysctl.d", "/etc/sysctl.d")
TMPFILES_FOLDERS = (
    "/etc/tmpfiles.d",
    "/run/tmpfiles.d",
    "/usr/local/lib/tmpfiles.d",
    "/usr/lib/tmpfiles.d",
    "/lib/tmpfiles.d",
)
UDEV_FOLDERS = (
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
)
#: Where commands at boot stand, and what is no command there.
_CRONTABS = ("/etc/crontab", "/var/spool/cron/crontabs/root", "/var/spool/cron/root")
COMMANDS = ("/etc/rc.local", "/etc/rc.d/rc.local", "/etc/sysfs.conf", "/etc/hdparm.conf", *_CRONTABS)
COMMAND_FOLDERS = (
    "/etc/sysfs.d",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/etc/cron.d",
    "/etc/init.d",
    "/etc/local.d",
)
#: Commands of an administrator, which the lines of the others name.
_SCRIPT = re.compile(r"(?<![\w./])(/(?:usr/local|opt|root|srv|home|etc)/[\w./+@-]+)")
_NO_COMMAND = re.compile(r"\s*([#;]|(Description|Documentation|Condition\w+|Assert\w+|Alias|Path\w+)\s*=)")

#: One in two units: the kernel sets the other to 0 with it.
_PAIRS = (
    ("vm.dirty_ratio", "vm.dirty_bytes"),
    ("vm.dirty_background_ratio", "vm.dirty_background_bytes"),
    ("vm.overcommit_ratio", "vm.overcommit_kbytes"),
)
PARTNER = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
#: Names of one attribute.
_ALSO = {"queue/read_ahead_kb": "bdi/read_ahead_kb"}
_TOKEN = re.compile(
    r'(?P<key>[A-Z_]+)(?:\{(?P<about>[^}]*)\})?\s*(?P<how>==|!=|\+=|-=|:=|=)\s*[ei]?"(?P<value>(?:[^"\\]|\\.)*)"'
)
_RULE = re.compile(rf"[\s,]*(?:{re.sub('[?]P<[a-z]+>', '?:', _TOKEN.pattern)}[\s,]*)*")
#: What a command calls an attribute besides its file's name.
_TOOLS = {
    "read_ahead_kb": r"\bblockdev\b.*--setra|\bread_ahead_sect\b|\bhdparm\b.*\s-a\s*\d",
    "mtu": r"\bip\b.*\bmtu\b",
    "tx_queue_len": r"\btxqueuelen\b",
}

Said = tuple[str, str]


@dataclass(frozen=True)
class Wanted:
    """One of our lines: the path that it sets, in /proc/sys or /sys, and the value. ``text`` is the line."""

    path: str
    value: str
    text: str


@dataclass(frozen=True)
class Write:
    """One write of a boot. ``value`` is None where a line only takes the key away from others."""

    key: str
    value: str | None
    place: str
    text: str


def in_order(found: Copies, folders: Sequence[str], ending: str) -> list[str]:
    """The files of such folders by their names, without hidden ones; of one name only the first folder's."""
    by_name: dict[str, str] = {}
    for folder in folders:
        for path in found.files:
            is_one = path.endswith(ending) and not path.startswith(f"{folder}/.")
            if is_one and str(PurePosixPath(path).parent) == folder:
                by_name.setdefault(PurePosixPath(path).name, path)
    return [by_name[name] for name in sorted(by_name)]


def lines_of(found: Copies, path: str) -> Iterator[tuple[int, str]]:
    """The lines that are no comment, with their numbers; one that ends in a backslash goes on in the next."""
    start, joined = 0, ""
    text = found.files.get(path, b"").decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        if not joined:
            start = number
        if line.lstrip().startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            joined += f"{line[:-1]} "
            continue
        whole, joined = (joined + line).strip(), ""
        if whole:
            yield start, whole
    if joined.strip():
        yield start, joined.strip()


# -- sysctls ----------------------------------------------------------------------------------------------------


def sysctl_name(name: str) -> str:
    """``net/ipv4/conf/eth0.1/forwarding``: with a slash first, dots belong to the names."""
    swapped = str.maketrans("/.", "./")
    first = re.search(r"[./]", name)
    path = name if first and first[0] == "/" else name.translate(swapped)
    # As systemd simplifies a path: no empty parts, and none that is the folder itself.
    return "/".join(part for part in path.split("/") if part not in ("", ".")).translate(swapped)


def sysctl_value(text: str) -> str:
    """Numbers as the kernel takes them (proc_get_long, base 0): ``07`` is 7, ``010`` is 8, ``0x10`` is 16."""
    return " ".join(_of_kernel(word) for word in text.split())


def _of_kernel(word: str) -> str:
    if not re.fullmatch(r"-?(0[0-7]+|0[xX][0-9a-fA-F]+|[0-9]+)", word):
        return word
    digits = word.lstrip("-")
    is_octal = len(digits) > 1 and digits.startswith("0") and digits[1].isdigit()
    try:
        number = int(digits, 8 if is_octal else 0)
    except ValueError:
        return word  # 08 is no number to the kernel
    return f"-{number}" if word.startswith("-") and number else str(number)


def _sys_value(text: str) -> str:
    """A file of /sys takes decimal numbers: ``07`` is 7."""
    return str(int(text)) if re.fullmatch(r"[0-9]+", text) else text


def _sysctl_lines(found: Copies, path: str) -> Iterator[Write]:
    text = found.files.get(path, b"").decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        name, equals, value = bare.partition("=")
        if not bare or bare.startswith(("#", ";")) or not (equals or bare.startswith("-")):
            continue
        key = sysctl_name(name.strip().removeprefix("-").strip())
        yield Write(key, value.strip() if equals else None, f"{path}:{number}", bare)


def sysctl_lines(found: Copies) -> list[Write]:
    """What counts of all files, in order. A key that is named again moves to the end unless its value is the same;
    a pattern leaves out what another line names, and a line without a value takes away what was before it."""
    order: dict[str, Write] = {}
    for path in [*in_order(found, SYSCTL_FOLDERS, ".conf"), SYSCTL_CREDENTIAL]:
        for write in _sysctl_lines(found, path):
            before = order.get(write.key)
            # As text: 7 after 07 is another line.
            if before is None or before.value != write.value:
                order.pop(write.key, None)
                order[write.key] = write
    # Without systemd it is procps that reads them, and this one last.
    last = [] if "/etc/sysctl.d/99-sysctl.conf" in found.files else list(_sysctl_lines(found, SYSCTL_CONF))
    return [*order.values(), *last]


def sysctls(files: Mapping[str, bytes]) -> dict[str, tuple[str, str]]:
    """What the kernel gets at boot, and from which file; without what only patterns name."""
    return {
        write.key: (write.value, write.place.rpartition(":")[0])
        for write in sysctl_lines(Copies(files))
        if write.value is not None and not is_pattern(write.key)
    }


def sysctl_winner(found: Copies, key: str, wanted: Wanted) -> Said | None:
    """The first word that keeps the boot from ending with our value, over files of which ours is one."""
    keys = [each for each in (key, PARTNER.get(key)) if each]
    if said := _differs(_about(sysctl_lines(found), keys), key, wanted.value):
        return said
    for tmpfile in tmpfile_writes(found):
        same = sysctl_value(tmpfile.value or "") == sysctl_value(wanted.value)
        is_ours = tmpfile.key == _proc(key) and same
        if not is_ours and any(is_globbed(_proc(each), tmpfile.key) for each in keys):
            return tmpfile.place, tmpfile.text
    for place, text, tokens in _rules(found):
        for token in tokens:
            sets = token["key"] == "SYSCTL" and token["how"] not in ("==", "!=")
            is_same = sysctl_value(token["value"] or "") == sysctl_value(wanted.value)
            if sets and sysctl_name(token["about"] or "") in keys and not is_same:
                return place, text
    return _after_tuned(found, key, keys, wanted) or _command(found, [*keys, *map(_proc, keys)])


def _after_tuned(found: Copies, key: str, keys: Sequence[str], wanted: Wanted) -> Said | None:
    active = tuned.active_profiles(found)
    words = list(tuned.of_path(found, active, [_proc(each) for each in keys]))
    has_sysctls = any(unit.kind == "sysctl" for unit in tuned.in_turn(found, active))
    again = _about(_again(found), keys) if has_sysctls else []
    if not again:
        return _of_profile(words, key, wanted.value)
    # What another unit than that of sysctls sets may come after the files.
    other = [word for word in words if word.kind != "sysctl"]
    return _differs_again(again, key, wanted.value) or _of_profile(other, key, wanted.value)


def _of_profile(words: Sequence[tuned.Word], key: str, value: str) -> Said | None:
    writes = [Write(_key(word.path), word.value, word.place, word.text) for word in tuned.may_be_last(words)]
    return next((said for write in writes if (said := _differs([write], key, value))), None)


def _differs_again(writes: Sequence[Write], key: str, value: str) -> Said | None:
    """For a TuneD that writes every line in turn, and for later ones: each key once, at its first place."""
    return _differs(writes, key, value) or _differs([*{w.key: w for w in writes}.values()], key, value)


def tuned_sysctl_winner(found: Copies, key: str, wanted: Wanted) -> Said | None:
    """The system's file that TuneD lets win over our profile."""
    keys = [each for each in (key, PARTNER.get(key)) if each]
    return _differs_again(_about(_again(found), keys), key, wanted.value)


def _again(found: Copies) -> list[Write]:
    """What TuneD sets again from the system's files."""
    if not tuned.reapplies(found):
        return []
    paths = [*in_order(found, _TUNED_SYSCTLS, ".conf"), SYSCTL_CONF]
    writes = [write for path in paths for write in _sysctl_lines(found, path) if write.value is not None]
    return [write for write in writes if not tuned.is_left_to_profile(found, write.key)]


def _about(writes: Sequence[Write], keys: Sequence[str]) -> list[Write]:
    named = {write.key for write in writes}
    return [
        write
        for write in writes
        if write.key in keys
        or (
            is_pattern(write.key)
            and any(is_globbed(_proc(each), _proc(write.key)) and each not in named for each in keys)
        )
    ]


def _differs(writes: Sequence[Write], key: str, value: str) -> Said | None:
    for write in writes:
        if write.key == key and write.value is None:
            return write.place, write.text
    writes = [write for write in writes if write.value is not None]
    if not writes or (writes[-1].key == key and sysctl_value(writes[-1].value or "") == sysctl_value(value)):
        return None
    return writes[-1].place, writes[-1].text


def _proc(key: str) -> str:
    return f"/proc/sys/{key.translate(str.maketrans('/.', './'))}"


def _key(path: str) -> str:
    return sysctl_name(path.removeprefix("/proc/sys/"))


# -- files of /sys ----------------------------------------------------------------------------------------------


def tmpfile_writes(found: Copies) -> list[Write]:
    """What systemd-tmpfiles writes: of lines for one path the first; all only if each has a ``+``."""
    items: dict[str, list[Write]] = {}
    added: dict[str, bool] = {}
    for path in in_order(found, TMPFILES_FOLDERS, ".conf"):
        for number, line in lines_of(found, path):
            words = line.split(None, 6)
            # F and f+ write a file that is there, as w does; f alone makes one.
            is_write = words[0].startswith(("w", "F")) or re.match(r"f[^+]*\+", words[0])
            if len(words) < 2 or not is_write:
                continue
            about = re.sub("/+", "/", words[1].strip("\"'").replace("/./", "/"))
            is_added = words[0].startswith("w") and "+" in words[0]
            if not (added.setdefault(about, is_added) and is_added) and about in items:
                continue
            value = words[6].strip().strip("\"'") if len(words) > 6 else ""
            items.setdefault(about, []).append(Write(about, value, f"{path}:{number}", line))
    return [
        replace(write, key=each) for same in items.values() for write in same for each in expanded(write.key)
    ]


def tmpfile_winner(found: Copies, wanted: Wanted) -> Said | None:
    writes = [write for write in tmpfile_writes(found) if is_globbed(wanted.path, write.key)]
    if writes and _sys_value(writes[-1].value or "") != _sys_value(wanted.value):
        return writes[-1].place, writes[-1].text
    attribute = wanted.path.rpartition("/")[2]
    if wanted.path.startswith("/sys/devices/system/cpu/"):
        for place, text, tokens in _rules(found):
            if any(
                _sets(token) and PurePosixPath(token["about"] or "").name == attribute for token in tokens
            ):
                return place, text
    return tuned_winner(found, wanted) or _command(found, [wanted.path.removeprefix("/sys/")])


def tuned_winner(found: Copies, wanted: Wanted, profiles: Sequence[str] | None = None) -> Said | None:
    """What a profile makes of a path instead, by itself or by what resets it."""
    names = tuned.active_profiles(found) if profiles is None else profiles
    words = list(tuned.of_path(found, names, [wanted.path, *resetting(wanted.path)]))
    for word in tuned.may_be_last(words):
        same = _same_value(wanted.path, word.value, wanted.value)
        if not (same and tuned.concerns(word, wanted.path)):
            return word.place, word.text
    return _script(found, names, wanted)


def _same_value(path: str, one: str, other: str) -> bool:
    value = sysctl_value if path.startswith("/proc/sys/") else _sys_value
    return value(one) == value(other)


def resetting(path: str) -> list[str]:
    """What changes this as well when it is set: the other of a pair, or a new scheduler."""
    if path.startswith("/proc/sys/"):
        partner = PARTNER.get(_key(path))
        return [_proc(partner)] if partner else []
    if path.endswith("/queue/nr_requests"):
        return [path.replace("/queue/nr_requests", "/queue/scheduler")]
    return []


def _script(found: Copies, profiles: Sequence[str], wanted: Wanted) -> Said | None:
    for path in tuned.scripts(found, profiles):
        for number, line in lines_of(found, path):
            if _mentions(line, [_tail(wanted.path)]):
                return f"{path}:{number}", line
    return None


# -- devices ----------------------------------------------------------------------------------------------------


def device_winner(found: Copies, ours: str, subsystem: str, device: str, wanted: Wanted) -> Said | None:
    """The rule, profile or command that decides over our rule in the file ``ours``, or where that is not there."""
    attribute = wanted.path.split("/", 4 if subsystem == "block" else 5)[-1]
    order = in_order(found, UDEV_FOLDERS, ".rules")
    is_later = ours not in order
    for path in order:
        is_later = is_later or path == ours
        if path == ours:
            continue
        for place, text, tokens in _reached(list(_rules(found, path)), subsystem, device):
            if _rule_wins(tokens, subsystem, device, attribute, wanted.value, is_later=is_later):
                return place, text
    depth = attribute.count("/") + 2
    for write in tmpfile_writes(found):
        tail = "/".join(write.key.split("/")[-depth:])
        if is_globbed(f"{device}/{attribute}", tail) and _sys_value(write.value or "") != _sys_value(
            wanted.value
        ):
            return write.place, write.text
    return tuned_winner(found, wanted) or _command(found, [attribute], device)


def _rule_wins(
    tokens: Sequence[Mapping[str, str | None]],
    subsystem: str,
    device: str,
    attribute: str,
    value: str,
    *,
    is_later: bool,
) -> bool:
    """Whether a rule sets our attribute after our rule does: in a later file, by a program, which runs when all
    rules have been read, or for the device's own parts, which come after it."""
    attributes = [attribute, *([_ALSO[attribute]] if attribute in _ALSO else [])]
    attributes += ["queue/scheduler"] if attribute == "queue/nr_requests" else []
    for token in tokens:
        about, said = token["about"] or "", token["value"] or ""
        # RUN runs when all rules have been read, the others where they stand.
        runs = token["key"] == "RUN" or (is_later and token["key"] in ("PROGRAM", "IMPORT"))
        if runs and any(_mentions(said, [name]) for name in map(_tail, attributes)):
            return _is_for(tokens, subsystem, device)
        if not _sets(token):
            continue
        # `[block/sda]queue/...` names the device, and `../sda/queue/...` comes back to it.
        about = re.sub(r"^(\./)+", "", re.sub(r"/(\./)+", "/", re.sub("/+", "/", about)))
        bare = re.sub(r"^(\[[^\]]*\])?/?(\.\./)*", "", about)
        if bare == about and any(fits(name, about) for name in attributes):
            is_same = _sys_value(said) == _sys_value(value) and about == attribute
            if is_later and not is_same and _is_for(tokens, subsystem, device):
                return True
        elif bare in {PurePosixPath(name).name for name in attributes} or any(
            f"/{bare}".endswith(f"/{name}") for name in attributes
        ):
            # For a partition, a queue or the disk's bdi, each a device of its own.
            others = [t["value"] for t in tokens if t["key"] == "SUBSYSTEM" and t["how"] == "=="]
            if not others or any(fits(o, str(p)) for o in ("block", "queues", "bdi") for p in others):
                return True
    return False


def _is_for(tokens: Sequence[Mapping[str, str | None]], subsystem: str, device: str) -> bool:
    """False only where the rule itself excludes the device; one without a name may have any."""
    for token in tokens:
        patterns = (token["value"] or "").split("|")
        name = {"KERNEL": device, "SUBSYSTEM": subsystem}.get(str(token["key"]))
        if token["key"] == "ACTION" and token["how"] == "==" and patterns == ["remove"]:
            return False
        if not name or token["how"] not in ("==", "!="):
            continue
        if any(fits(name, each) for each in patterns) != (token["how"] == "=="):
            return False
    return True


def _reached(
    rules: Sequence[tuple[str, str, list[Mapping[str, str | None]]]], subsystem: str, device: str
) -> Iterator[tuple[str, str, list[Mapping[str, str | None]]]]:
    """The rules of a file without those that a GOTO leaves out for this device.

    Of a line with anything else in it, as a comment at its end, udev reads nothing: here its settings may count,
    and no GOTO or LABEL.
    """
    rules = [rule if _RULE.fullmatch(rule[1]) else (*rule[:2], _settings(rule[2])) for rule in rules]
    until: str | None = None
    for number, rule in enumerate(rules):
        tokens = rule[2]
        labels = [token["value"] for token in tokens if token["key"] == "LABEL"]
        if until is not None and until not in labels:
            continue
        until = None
        yield rule
        target = next((token["value"] for token in tokens if token["key"] == "GOTO"), None)
        later = rules[number + 1 :]
        # Only to a label below; one that is not there is a fault of the file, and is not followed.
        is_there = any(t["key"] == "LABEL" and t["value"] == target for each in later for t in each[2])
        if target is not None and is_there and all(_holds(t, subsystem, device) for t in tokens):
            until = target


def _settings(tokens: Sequence[Mapping[str, str | None]]) -> list[Mapping[str, str | None]]:
    return [token for token in tokens if token["key"] not in ("GOTO", "LABEL")]


def _holds(token: Mapping[str, str | None], subsystem: str, device: str) -> bool:
    """Whether a condition surely holds at boot, where devices are added; what is no condition does."""
    if token["how"] not in ("==", "!="):
        return True
    known = {"KERNEL": device, "SUBSYSTEM": subsystem, "ACTION": "add"}
    if subsystem == "block" and token["about"] == "DEVTYPE":
        known["ENV"] = "disk"
    value = known.get(str(token["key"]))
    if value is None:
        return False
    patterns = (token["value"] or "").split("|")
    return any(fits(value, each) for each in patterns) == (token["how"] == "==")


def _sets(token: Mapping[str, str | None]) -> bool:
    return token["key"] == "ATTR" and token["how"] not in ("==", "!=")


def _rules(found: Copies, path: str = "") -> Iterator[tuple[str, str, list[Mapping[str, str | None]]]]:
    for each in [path] if path else in_order(found, UDEV_FOLDERS, ".rules"):
        for number, text in lines_of(found, each):
            yield f"{each}:{number}", text, [match.groupdict() for match in _TOKEN.finditer(text)]


# -- commands ---------------------------------------------------------------------------------------------------


def _command(found: Copies, names: Sequence[str], device: str = "") -> Said | None:
    """A line of what runs at boot that mentions one of these."""
    for path in command_files(found):
        is_crontab = path in COMMANDS[4:] or path.startswith("/etc/cron.d/")
        for number, line in lines_of(found, path):
            if (
                _NO_COMMAND.match(line)
                or not _mentions(line, names)
                or (is_crontab and "@reboot" not in line)
            ):
                continue
            if not device or device in line or "*" in line or "$" in line or path == "/etc/hdparm.conf":
                return f"{path}:{number}", line
    return None


def command_files(found: Copies) -> list[str]:
    """What holds commands of a boot, and the scripts that these name."""
    files = [path for path in COMMANDS if path in found.files]
    files += sorted(path for path in found.files if _is_command(path))
    named = [path for file in files for path in scripts_of(found, file) if path in found.files]
    return list(dict.fromkeys([*files, *named]))


def _is_command(path: str) -> bool:
    folder = str(PurePosixPath(path).parent)
    return folder in COMMAND_FOLDERS or (
        folder.endswith(".service.d") and str(PurePosixPath(folder).parent) in COMMAND_FOLDERS
    )


def _is_crontab(path: str) -> bool:
    return path in _CRONTABS or path.startswith("/etc/cron.d/")


def scripts_of(found: Copies, path: str) -> list[str]:
    """The scripts that a file of commands names; only what a unit starts, of a crontab only what a boot does."""
    lines = [line for _, line in lines_of(found, path)]
    if path.endswith((".service", ".conf")):
        lines = [line for line in lines if line.startswith("Exec")]
    elif _is_crontab(path):
        lines = [line for line in lines if "@reboot" in line]
    return list(dict.fromkeys(name for line in lines for name in _SCRIPT.findall(line)))


def _mentions(text: str, names: Sequence[str]) -> bool:
    for name in names:
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text):
            return True
        tool = _TOOLS.get(PurePosixPath(name).name)
        if tool and re.search(tool, text):
            return True
    return False


def _tail(path: str) -> str:
    """The end of a path that a command cannot leave out."""
    has_own_folder = re.search(r"(^|/)queue/|^/(proc/)?sys/", path) and "/queues/" not in path
    return "/".join(path.split("/")[-2:]) if has_own_folder else PurePosixPath(path).name
