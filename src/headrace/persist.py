"""Making settings last: which files of the host hold them after the next boot or restart, and what stands in them.

Every file is headrace's own, so nothing of an administrator is ever rewritten. What an earlier rollout put there
stays, unless it is set anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import NotReady, Refused
from headrace.facts import HostFacts
from headrace.knobs import Instance
from headrace.model import Vendor
from headrace.server.allocator import find_allocator
from headrace.server.option_files import MAIN_FILES, is_persisted, last_folder, reading_order, set_after
from headrace.target import Target

#: Files are applied in the order of their names, and 99-sysctl.conf is /etc/sysctl.conf on most systems.
SYSCTL = "/etc/sysctl.d/99-zz-headrace.conf"
TMPFILES = "/etc/tmpfiles.d/headrace.conf"
UDEV = "/etc/udev/rules.d/99-zz-headrace.rules"
TUNED = "headrace-mysql"
HEADER = "# Written by headrace; `headrace rollback` takes it away.\n"
#: Folders for files that a server's option files may include, by vendor.
SERVER_FOLDERS = {
    Vendor.MARIADB: ("/etc/mysql/mariadb.conf.d", "/etc/my.cnf.d", "/etc/mysql/conf.d"),
    Vendor.MYSQL: ("/etc/mysql/mysql.conf.d", "/etc/my.cnf.d", "/etc/mysql/conf.d"),
    Vendor.PERCONA: ("/etc/mysql/percona-server.conf.d", "/etc/mysql/mysql.conf.d", "/etc/my.cnf.d"),
}
SERVICES = {
    Vendor.MARIADB: ("mariadb.service",),
    Vendor.MYSQL: ("mysql.service", "mysqld.service"),
    Vendor.PERCONA: ("mysql.service", "mysqld.service"),
}
UNIT_FOLDERS = ("/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")


@dataclass(frozen=True)
class Lasting:
    """One setting as a file must say it. ``instance`` is None for a server's."""

    name: str
    value: str
    instance: Instance | None = None


async def files(
    target: Target, settings: Sequence[Lasting], facts: HostFacts, *, tuned: bool = False
) -> dict[str, str]:
    """Path -> content of the files that make these settings last.

    Raises Refused for what no such file can hold, NotReady where the host lacks the place.
    """
    lines: dict[str, dict[str, str]] = {}
    for setting in settings:
        for path, key, line in await _lines(target, setting, facts, tuned=tuned):
            lines.setdefault(path, {})[key] = line
    return {path: _content(path, await _existing(target, path), new) for path, new in lines.items()}


async def _lines(
    target: Target, setting: Lasting, facts: HostFacts, *, tuned: bool
) -> list[tuple[str, str, str]]:
    """File, what the line is about, and the line."""
    if setting.instance is None:
        return await _server_lines(target, setting, facts)
    knob = setting.instance.knob
    if knob.placeholder == "irq":
        raise Refused(
            "cannot be made permanent: interrupt numbers change with a boot",
            place=setting.name,
            hint="apply it without --persist, or let irqbalance do it",
        )
    if tuned:
        profile = await _tuned_path(target)
        return [(profile, path, _tuned_line(path, setting.value)) for path in setting.instance.paths]
    if name := knob.sysctl:
        return [(SYSCTL, name, f"{name} = {setting.value}")]
    found = []
    for path in setting.instance.paths:
        if rule := _udev_rule(path, setting.value, facts):
            found.append((UDEV, _about(UDEV, rule), rule))
        else:
            found.append((TMPFILES, path, f"w {path} - - - - {setting.value}"))
    return found


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


async def _server_lines(target: Target, setting: Lasting, facts: HostFacts) -> list[tuple[str, str, str]]:
    variable, vendor = setting.name.removeprefix("server."), facts.vendor
    if vendor is None:
        raise NotReady("without a server login its option files are unknown", place=setting.name)
    if variable == "allocator":
        folder = await _drop_in(target, vendor)
        preload = ""
        if setting.value != "system":
            preload = (await find_allocator(target, setting.value)).path
        return [(folder, "LD_PRELOAD", f'Environment="LD_PRELOAD={preload}"')]
    folder = await _option_folder(target, setting.name, variable, vendor, facts)
    lines = [(f"{folder}/zz-headrace.cnf", variable, f"{variable} = {setting.value}")]
    if variable == "open_files_limit":
        # systemd's own limit stands above the server's option.
        lines.append((await _drop_in(target, vendor), "LimitNOFILE", f"LimitNOFILE={setting.value}"))
    return lines


async def _drop_in(target: Target, vendor: Vendor) -> str:
    for service in SERVICES[vendor]:
        for folder in UNIT_FOLDERS:
            if await target.exists(f"{folder}/{service}"):
                return f"/etc/systemd/system/{service}.d/headrace.conf"
    raise NotReady("systemd has no unit of this server", place=SERVICES[vendor][0])


async def _option_folder(target: Target, name: str, variable: str, vendor: Vendor, facts: HostFacts) -> str:
    """The folder that the server reads last, if nothing that it reads later sets the same variable."""
    pid = facts.server_pid
    server = next((s for s in facts.servers if s.get("pid") == pid), {})
    order = await reading_order(target, server.get("command_line") or ())
    folder = last_folder(order, [f for f in SERVER_FOLDERS[vendor] if await target.exists(f)])
    if folder is None:
        raise NotReady(
            f"the server's option files include none of {', '.join(SERVER_FOLDERS[vendor])}",
            place=name,
            hint=f"add `!includedir FOLDER` to {MAIN_FILES[0]}, or set it there by hand",
        )
    if later := set_after(order, folder, variable):
        raise Refused(f"{later} sets it after {folder} was read", place=name, hint="change it there")
    if await is_persisted(target, facts.variable("datadir") or "", variable):
        raise Refused(
            "SET PERSIST holds it, which the server reads after every option file",
            place=name,
            hint=f"RESET PERSIST {variable}",
        )
    return folder


async def _tuned_path(target: Target) -> str:
    for folder in ("/etc/tuned/profiles", "/etc/tuned"):
        if await target.exists(folder):
            return f"{folder}/{TUNED}/tuned.conf"
    raise NotReady("TuneD is not installed", place="/etc/tuned", hint="--persist without =tuned")


def _tuned_line(path: str, value: str) -> str:
    if path.startswith("/proc/sys/"):
        return f"{path.removeprefix('/proc/sys/').replace('/', '.')}={value}"
    return f"{path}={value}"


async def _existing(target: Target, path: str) -> str:
    try:
        return (await target.read(path)).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _content(path: str, before: str, new: Mapping[str, str]) -> str:
    kept = {_about(path, line): line for line in before.splitlines() if _about(path, line)}
    lines = [*{**kept, **new}.values()]
    if path.endswith("tuned.conf"):
        sysctls = [line for line in lines if not line.startswith("/")]
        files_ = [line for line in lines if line.startswith("/")]
        main = "[main]\nsummary=What headrace proved for the database server of this host\n"
        parts = [("[sysctl]", sysctls), ("[sysfs]", files_)]
        body = "".join(f"\n{section}\n" + "\n".join(own) + "\n" for section, own in parts if own)
        return f"{HEADER}{main}{body}"
    section = {".cnf": "[mysqld]\n"}.get(path[path.rfind(".") :], "")
    if path.startswith("/etc/systemd"):
        section = "[Service]\n"
    return HEADER + section + "\n".join(lines) + "\n"


def _about(path: str, line: str) -> str:
    """What a line of one of our files sets; empty for anything else."""
    if not line or line.startswith(("#", "[")) or line.startswith("summary="):
        return ""
    if path == UDEV:
        # All but the value.
        return line.rpartition("=")[0]
    if path == TMPFILES:
        return line.split()[1] if len(line.split()) > 1 else line
    if path.endswith("tuned.conf"):
        key = line.partition("=")[0].strip()
        return key if key.startswith("/") else f"/proc/sys/{key.replace('.', '/')}"
    if "LD_PRELOAD" in line:
        return "LD_PRELOAD"
    return line.partition("=")[0].strip()
