"""A host with GRUB or systemd-boot behind the interface of a target: what boots follows from what was written.

Nothing of it is real but the rules: GRUB boots ``next_entry`` once and forgets it, otherwise its default;
installing a kernel makes it the default unless the default is pinned; a kernel that panics boots again where it
was told to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from headrace.base.errors import CommandFailed, TargetError
from headrace.experiment import loaders, reboot
from headrace.host.target import Completed

UUID = "1f2e3d4c"
EFI = {loaders.EFI_DEFAULT: "default", loaders.EFI_ONE_SHOT: "oneshot", loaders.EFI_INFO: "info"}
#: As grub-editenv makes it, but for its padding.
ENVIRONMENT = b"# GRUB Environment Block\n"
#: What may take minutes on a slow host.
SLOW = ("apt-get", "apt-cache", "dpkg", "systemctl", "update-grub", "grub-mkconfig")


class Killed(BaseException):
    """The run was killed just before this command."""


class RebootingHost:
    """``panics`` are releases that panic; ``mute`` are those that come up without a network; ``images`` are those
    in one file with initrd and command line."""

    name = "db1"
    is_root = True

    def __init__(
        self,
        *installed: str,
        offered: Sequence[str] = (),
        panics: Sequence[str] = (),
        mute: Sequence[str] = (),
        upgrades: Sequence[str] = (),
        loader: str = "grub",
        grub_on: str = "ext4 /dev/vda1",
        saves_default: bool = False,
        lists_an_array: bool = False,
        images: Sequence[str] = (),
        slow_s: float = 0.0,
    ) -> None:
        self.installed = list(installed)
        self.offered = list(offered)
        self.panics, self.mute, self.upgrades = panics, mute, upgrades
        self.loader, self.grub_on = loader, grub_on
        self.saves_default = saves_default
        self.lists_an_array, self.images = lists_an_array, images
        self.slow_s = slow_s
        #: What the loader that booted says of itself to the firmware; GRUB 2.06 says nothing.
        self.booted_by = "systemd-boot 252.39" if loader == "systemd-boot" else ""
        self.files: dict[str, bytes] = {}
        self.efi: dict[str, str] = {}
        self.boots: list[str] = []
        self.commands = 0
        self.kill_at: int | None = None
        self.connected = False
        self._made()
        self.running = self._default()
        self.boots.append(self.running)

    def state(self) -> tuple[object, ...]:
        """All that an experiment must leave as it was."""
        return (dict(self.files), sorted(self.installed), dict(self.efi), self.running)

    async def connect(self) -> None:
        self._count()
        if self.running in self.mute:
            # Nobody confirms it, so that the guard boots the default again, where there is one.
            if reboot.GUARD_ENABLED not in self.files:
                raise TargetError("no route to host", place=self.name)
            self._boot()
        self.connected = True

    async def close(self) -> None:
        self.connected = False

    async def exists(self, path: str) -> bool:
        self._count()
        return path in self.files

    async def read(self, path: str) -> bytes:
        self._count()
        if path == "/proc/sys/kernel/random/boot_id":
            return f"boot-{len(self.boots)}\n".encode()
        if path in EFI:
            text = self.booted_by if EFI[path] == "info" else self.efi.get(EFI[path])
            if not text:
                raise FileNotFoundError(path)
            return b"\x07\0\0\0" + (text + "\0").encode("utf-16-le")
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        self._count()
        self.files[path] = content

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = 60.0,
        check: bool = True,
    ) -> Completed:
        self._count()
        if not self.connected:
            raise TargetError("not connected", place=self.name)
        if argv[0] in SLOW and timeout_s is not None and timeout_s < self.slow_s:
            raise CommandFailed(f"{argv}: timed out", place=self.name)
        code, text = self._answer(list(argv))
        if code and check:
            raise CommandFailed(f"{argv}: {text}", place=self.name)
        return Completed(tuple(argv), code, text.encode(), b"")

    def _count(self) -> None:
        self.commands += 1
        if self.commands == self.kill_at:
            self.kill_at = None
            raise Killed

    def _answer(self, argv: list[str]) -> tuple[int, str]:
        match argv:
            case ["uname", "-r"]:
                return 0, f"{self.running}\n"
            case ["bootctl", *words]:
                return self._bootctl(words)
            case ["stat", "-c", "%a", _]:
                return 0, "644\n"
            case ["findmnt", *_]:
                return 0, f"{self.grub_on}\n"
            case ["lsblk", *_, device]:
                return 0, "lvm\n" if "mapper" in device else "part\n"
            case ["systemctl", *words]:
                return self._systemctl(words)
            case ["ls", "-1", "/boot"]:
                return 0, "".join(f"vmlinuz-{r}\ninitrd.img-{r}\n" for r in self.installed) + "grub\n"
            case ["apt-cache", "pkgnames", start]:
                names = [f"linux-image-{release}" for release in self.offered]
                return 0, "".join(f"{name}\n" for name in names if name.startswith(start))
            case ["apt-get", *words]:
                return self._apt(words)
            case ["grub-mkconfig"]:
                return 0, self._grub_config()
        self._change(argv)
        return 0, ""

    def _change(self, argv: list[str]) -> None:
        match argv:
            case ["mkdir", *_] | ["dpkg", "--configure", "-a"]:
                pass
            case ["rm", "-f", path]:
                self.files.pop(path, None)
            case ["touch", path]:
                self.files[path] = b""
            case ["update-grub"]:
                self._made()
            case ["grub-reboot", entry]:
                self._remember("next_entry", entry)
            case _:
                raise AssertionError(f"what is {argv}?")

    def _systemctl(self, words: list[str]) -> tuple[int, str]:
        if words == ["reboot"]:
            self._boot()
            raise TargetError("the connection was lost", place=self.name)
        assert words[0] in ("daemon-reload", "enable")
        if words[0] == "enable":
            if reboot.GUARD not in self.files:
                return 1, "no such unit"
            self.files[reboot.GUARD_ENABLED] = b""
        return 0, ""

    def _apt(self, words: list[str]) -> tuple[int, str]:
        release = words[-1].removeprefix("linux-image-")
        if "-s" in words:
            old = "".join(f"Inst {name} [1.0] (1.1 Debian)\n" for name in self.upgrades)
            return 0, f"{old}Inst {words[-1]} (6.12-1 Debian)\nConf {words[-1]} (6.12-1 Debian)\n"
        if words[0] == "install" and release not in self.installed:
            self.installed.append(release)
        if "purge" in words and release in self.installed:
            if release == self.running:
                return 1, "refusing to remove the running kernel"
            self.installed.remove(release)
        self._made()
        return 0, ""

    def _bootctl(self, words: list[str]) -> tuple[int, str]:
        match words:
            case ["list", "--json=short"]:
                found = [self._listed(release) for release in self.installed]
                # The firmware's own, which the loader adds.
                found.append(
                    {"id": "auto-reboot-to-firmware-setup", "title": "Reboot Into Firmware Interface"}
                )
                if self.lists_an_array:
                    return 0, json.dumps(found) + "\n"
                return 0, "".join(json.dumps(entry) + "\n" for entry in found)
            case ["set-default" | "set-oneshot" as what, identity]:
                key = what.removeprefix("set-")
                self.efi.pop(key, None)
                if identity:
                    self.efi[key] = identity
                return 0, ""
        raise AssertionError(f"what is bootctl {words}?")

    def _listed(self, release: str) -> dict[str, str]:
        """As systemd 252 prints it. The version of an image is whatever its maker wrote into it."""
        identity, folder = f"abc-{release}.conf", "loader/entries"
        if release in self.images:
            identity, folder = f"abc-{release}.efi", "EFI/Linux"
        return {
            "id": identity,
            "path": f"/boot/{folder}/{identity}",
            "root": "/boot",
            "title": "Debian GNU/Linux 12 (bookworm)",
            "version": release,
            "options": "root=/dev/vda1",
        }

    def _made(self) -> None:
        """What update-grub and kernel-install make of the installed kernels: the newest comes first."""
        self.installed.sort(key=reboot._as_version, reverse=True)
        if self.loader == "grub":
            self.files[loaders.GRUB_CONFIG] = self._grub_config().encode()
            return
        folder = "/boot/loader/entries"
        for release in self.installed:
            path = f"{folder}/abc-{release}.conf"
            self.files.setdefault(
                path, f"title Debian\nlinux /{release}/linux\noptions root=/dev/vda1\n".encode()
            )
        for path in [p for p in self.files if p.startswith(folder)]:
            if PurePosixPath(path).stem.removeprefix("abc-") not in self.installed:
                del self.files[path]

    def _grub_config(self) -> str:
        ours = self.files.get(loaders.GRUB_OURS, b"").decode()
        default = re.search(r"^GRUB_DEFAULT='?([^'\n]*)", ours, flags=re.MULTILINE)
        panic = " panic=30" if "panic=30" in ours else ""
        simple = _entry(self.installed[0], f"gnulinux-simple-{UUID}", panic, "")
        rest = "".join(
            _entry(r, f"gnulinux-{r}-{kind}-{UUID}", panic + single, "\t")
            for r in self.installed
            for kind, single in (("advanced", ""), ("recovery", " single"))
        )
        return (
            f'set default="{default[1] if default else 0}"\n'
            'if [ x$feature_menuentry_id = xy ]; then\n  menuentry_id_option="--id"\nfi\n'
            f"function gfxmode {{\n\tset gfxpayload=keep\n}}\n{simple}"
            f"submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-{UUID}' {{\n{rest}}}\n"
        )

    def _default(self) -> str:
        if self.loader != "grub":
            return self._of_entry(self.efi["default"]) if "default" in self.efi else self.installed[0]
        found = re.match(r'set default="([^"]*)"', self.files[loaders.GRUB_CONFIG].decode())
        assert found is not None
        return self.installed[0] if found[1] == "0" else self._of_entry(found[1])

    def _of_entry(self, entry: str) -> str:
        """The newest kernel where the entry is gone, as both loaders do."""
        last = entry.rpartition(">")[2]
        return next(
            (r for r in self.installed if f"-{r}-" in last or last == f"abc-{r}.conf"), self.installed[0]
        )

    def _remembered(self, name: str) -> str:
        """A line of GRUB's environment."""
        content = self.files.get(loaders.GRUB_ENVIRONMENT, b"").decode()
        found = re.search(rf"^{name}=(.*)$", content, flags=re.MULTILINE)
        return found[1] if found else ""

    def _remember(self, name: str, value: str) -> None:
        """GRUB keeps the line of an empty value, and a file that did not exist stays."""
        content = self.files.get(loaders.GRUB_ENVIRONMENT, ENVIRONMENT).decode()
        others = re.sub(rf"^{name}=.*\n", "", content, flags=re.MULTILINE)
        self.files[loaders.GRUB_ENVIRONMENT] = f"{others}{name}={value}\n".encode()

    def _boot(self) -> None:
        """The rules of the loader; a kernel that panics without ``panic=`` stands for ever."""
        self.connected = False
        self.files.pop(reboot.CONFIRMED, None)
        chosen = self.efi.pop("oneshot", "") if self.loader != "grub" else self._remembered("next_entry")
        if chosen and self.loader == "grub":
            self._remember("next_entry", "")
        release = self._of_entry(chosen) if chosen else self._default()
        if self.saves_default:
            self._remember("saved_entry", release)
        self.boots.append(release)
        if release in self.panics:
            entry = f"/boot/loader/entries/abc-{release}.conf"
            words = self.files[loaders.GRUB_CONFIG if self.loader == "grub" else entry]
            assert b"panic=30" in words, "the machine room is called"
            self._boot()
            return
        self.running = release


def _entry(release: str, identity: str, options: str, indent: str) -> str:
    return (
        f"{indent}menuentry 'Debian, with Linux {release}' --class debian $menuentry_id_option '{identity}' {{\n"
        f"{indent}\tif [ x$grub_platform = xxen ]; then insmod xzio; fi\n"
        f"{indent}\tlinux\t/boot/vmlinuz-{release} root=UUID={UUID} ro{options}\n"
        f"{indent}\tinitrd\t/boot/initrd.img-{release}\n{indent}}}\n"
    )
