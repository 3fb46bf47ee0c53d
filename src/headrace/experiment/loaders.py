"""Boot loaders (GRUB and systemd-boot): set the kernel of the next boot, and of all others."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from typing import Any, Protocol

from headrace.base.errors import CommandFailed, NotReady, Refused
from headrace.host.target import Target

#: After a panic, the host reboots after this many seconds, into the default kernel.
PANIC_S = 30

GRUB_CONFIG = "/boot/grub/grub.cfg"
GRUB_ENVIRONMENT = "/boot/grub/grubenv"
GRUB_OURS = "/etc/default/grub.d/zz-headrace.cfg"
#: File systems that GRUB can read, and also write on a plain disk.
WRITABLE = ("ext2", "ext3", "ext4", "xfs", "vfat")
TIMEOUT_S = 300.0

GRUB_TEXT = """\
# Written by headrace, which removes it when its experiment ends.
GRUB_DEFAULT={entry}
GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX panic={panic_s}"
# A boot that failed must not wait for somebody at the console.
GRUB_RECORDFAIL_TIMEOUT=5
"""

#: Variables of the boot loader interface (systemd.io/BOOT_LOADER_INTERFACE).
EFI_DEFAULT = "/sys/firmware/efi/efivars/LoaderEntryDefault-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
EFI_ONE_SHOT = "/sys/firmware/efi/efivars/LoaderEntryOneShot-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
EFI_INFO = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

#: Actions, in order: ``run`` a command; write a ``file``'s ``content`` with ``mode``, or remove it where that is
#: None, but one with ``instead_of`` only over a content of that SHA-256.
Undo = list[dict[str, Any]]


class Loader(Protocol):
    """A boot loader of a host."""

    async def undo_of_default(self, target: Target) -> Undo:
        """How to undo ``pin``; called before it."""

    async def pin(self, target: Target, release: str) -> None:
        """From now on, boots run this kernel by default and reboot after a panic."""

    async def undo_of_next(self, target: Target) -> Undo:
        """How to undo ``set_next``; called before the first."""

    async def set_next(self, target: Target, release: str) -> None:
        """Only the next boot runs this kernel; after a panic it reboots into the default."""


async def find_loader(target: Target) -> Loader:
    """The host's boot loader. Raises NotReady or Refused if a boot could not be undone automatically."""
    # `bootctl is-installed` says what is on the disk: of two loaders the firmware may start the other.
    if (await _efi_text(target, EFI_INFO)).startswith("systemd-boot"):
        return SystemdBoot()
    if not await target.exists(GRUB_CONFIG):
        raise NotReady("neither systemd-boot nor a Debian-style GRUB was found", place=target.name)
    await _refuse_what_grub_cannot_write(target)
    return Grub()


async def _efi_text(target: Target, path: str) -> str:
    """A firmware variable; empty if unset, or on a machine without UEFI."""
    try:
        content = await target.read(path)
    except FileNotFoundError:
        return ""
    # Four bytes of attributes, then UTF-16.
    return content[4:].decode("utf-16-le", "replace").rstrip("\0")


async def _refuse_what_grub_cannot_write(target: Target) -> None:
    """GRUB clears a one-time choice by writing a file. If it cannot write, the choice would persist."""
    found = await target.run(["findmnt", "-n", "-o", "FSTYPE,SOURCE", "-T", "/boot/grub"])
    kind, _, source = found.text.strip().partition(" ")
    device = (await target.run(["lsblk", "-n", "-d", "-o", "TYPE", source.strip()], check=False)).text.strip()
    if kind not in WRITABLE or device not in ("part", "disk"):
        raise Refused(
            f"/boot/grub is on {kind or 'no known file system'} on {device or 'no known device'}: GRUB cannot "
            "write there, and would boot the kernel under test again and again",
            place=target.name,
            hint="a /boot on a plain partition with ext4 or xfs",
        )


async def _copy(target: Target, path: str) -> dict[str, Any]:
    """The undo of a change to an existing file."""
    content = (await target.read(path)).decode("utf-8", "surrogateescape")
    mode = int((await target.run(["stat", "-c", "%a", path])).text, 8)
    return {"file": path, "content": content, "mode": mode}


class Grub:
    async def undo_of_default(self, target: Target) -> Undo:
        if await target.exists(GRUB_OURS):
            raise Refused("left by an experiment whose journal is gone", place=f"{target.name}:{GRUB_OURS}")
        undo: Undo = [{"file": GRUB_OURS, "content": None}, {"run": ["update-grub"]}]
        # What update-grub will make then, unless somebody changes a kernel or a setting meanwhile. Until now its
        # settings, kernels or host may have been others; what was there may be what the host can boot.
        made = (await target.run(["grub-mkconfig"], timeout_s=TIMEOUT_S)).stdout
        original = await _copy(target, GRUB_CONFIG)
        if original["content"].encode("utf-8", "surrogateescape") != made:
            undo.append({**original, "instead_of": hashlib.sha256(made).hexdigest()})
        return undo

    async def pin(self, target: Target, release: str) -> None:
        entry = await self._entry(target, release)
        await target.run(["mkdir", "-p", "/etc/default/grub.d"])
        content = GRUB_TEXT.format(entry=shlex.quote(entry), panic_s=PANIC_S)
        await target.write(GRUB_OURS, content.encode())
        await target.run(["update-grub"], timeout_s=TIMEOUT_S)

    async def undo_of_next(self, target: Target) -> Undo:
        # The whole file: with GRUB_SAVEDEFAULT each boot also writes its own entry there.
        if not await target.exists(GRUB_ENVIRONMENT):
            return [{"file": GRUB_ENVIRONMENT, "content": None}]
        return [await _copy(target, GRUB_ENVIRONMENT)]

    async def set_next(self, target: Target, release: str) -> None:
        await target.run(["grub-reboot", await self._entry(target, release)])

    async def _entry(self, target: Target, release: str) -> str:
        content = (await target.read(GRUB_CONFIG)).decode("utf-8", "replace")
        entry = grub_entry(content, release)
        if entry is None:
            raise NotReady(f"GRUB has no entry for kernel {release}", place=f"{target.name}:{GRUB_CONFIG}")
        return entry


def grub_entry(config: str, release: str) -> str | None:
    """The entry of a kernel in grub.cfg, as ``grub-reboot`` takes it: ids of submenus and entry, joined by ``>``.

    The innermost, because the menu's first entry is another kernel after the next update; none for recovery.
    """
    linux = re.compile(rf"\s*linux\S*\s+\S*/vmlinuz-{re.escape(release)}(\s(?P<options>.*))?$")
    opening = re.compile(r"\s*(?P<kind>menuentry|submenu)\s.*\$menuentry_id_option\s+'(?P<id>[^']+)'.*\{\s*$")
    stack: list[str | None] = []
    found: list[str] = []
    for line in config.splitlines():
        if match := opening.match(line):
            stack.append(match["id"])
        elif re.search(r"\{\s*$", line):
            stack.append(None)
        elif re.match(r"\s*\}\s*$", line):
            del stack[-1:]
        elif (match := linux.match(line)) and stack and stack[-1] is not None:
            is_recovery = re.search(r"\b(single|recovery)\b", match["options"] or "")
            if not is_recovery:
                found.append(">".join(part for part in stack if part is not None))
    return max(found, key=lambda entry: entry.count(">"), default=None)


class SystemdBoot:
    async def undo_of_default(self, target: Target) -> Undo:
        default = await _efi_text(target, EFI_DEFAULT)
        paths = [path for entry in await self._entries(target) if (path := _file(entry))]
        return [{"run": ["bootctl", "set-default", default]}, *[await _copy(target, path) for path in paths]]

    async def pin(self, target: Target, release: str) -> None:
        await target.run(["bootctl", "set-default", (await self._entry(target, release))["id"]])

    async def undo_of_next(self, target: Target) -> Undo:
        return [{"run": ["bootctl", "set-oneshot", await _efi_text(target, EFI_ONE_SHOT)]}]

    async def set_next(self, target: Target, release: str) -> None:
        entry = await self._entry(target, release)
        if path := _file(entry):
            content = (await target.read(path)).decode("utf-8", "surrogateescape")
            await target.write(path, with_panic(content).encode("utf-8", "surrogateescape"))
        elif not re.search(r"\bpanic=", str(entry.get("options", ""))):
            raise Refused(
                f"kernel {release} is a unified image without panic=, so that it would not reboot after a panic",
                place=target.name,
                hint=f"build it with panic={PANIC_S} on its command line",
            )
        await target.run(["bootctl", "set-oneshot", entry["id"]])

    async def _entries(self, target: Target) -> Sequence[dict[str, Any]]:
        try:
            return boot_entries(
                (await target.run(["bootctl", "list", "--json=short"], timeout_s=TIMEOUT_S)).text
            )
        except (CommandFailed, ValueError) as error:
            raise NotReady(f"bootctl does not list its entries: {error}", place=target.name) from error

    async def _entry(self, target: Target, release: str) -> dict[str, Any]:
        for entry in await self._entries(target):
            named = str(entry.get("id", "")).removesuffix(".conf")
            if entry.get("version") == release or re.search(
                rf"(^|-){re.escape(release)}(\+\d+(-\d+)?)?$", named
            ):
                return entry
        raise NotReady(f"systemd-boot has no entry for kernel {release}", place=target.name)


def boot_entries(listing: str) -> list[dict[str, Any]]:
    """What ``bootctl list --json=short`` prints: one array, or with systemd 252 each entry by itself."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    rest = listing.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        found += value if isinstance(value, list) else [value]
        rest = rest[end:].lstrip()
    return found


def _file(entry: dict[str, Any]) -> str:
    """The file of an entry's own words; empty for a unified image, or an entry that the loader made up."""
    path = str(entry.get("path", ""))
    return path if path.endswith(".conf") else ""


def with_panic(entry: str) -> str:
    """A systemd-boot entry whose kernel reboots after a panic."""
    if re.search(r"^options\s.*\bpanic=", entry, flags=re.MULTILINE):
        return entry
    if re.search(r"^options\s", entry, flags=re.MULTILINE):
        return re.sub(r"^(options\s.*)$", rf"\1 panic={PANIC_S}", entry, count=1, flags=re.MULTILINE)
    return f"{entry.rstrip()}\noptions panic={PANIC_S}\n"
