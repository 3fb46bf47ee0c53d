"""A host over SSH that boots other kernels for an experiment, and returns to its own.

The way back is prepared before the first change. Every change has its undo in a journal on the host, which
survives boots; the boot loader's default is pinned to the original kernel, and another kernel is only ever set for
the next boot. So a kernel that panics (``panic=``), one that is unreachable (a guard in the host's systemd), a
power cut and a killed run all end with the original kernel. Only a kernel that hangs before it starts init cannot
be handled by software on the host: that needs the host's watchdog, or its console.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.base.errors import CommandFailed, NotReady, Refused, StoreError, TargetError, TreatmentFailed
from headrace.experiment.boot import Boot, Tell, boot_id, is_kernel
from headrace.experiment.loaders import Undo, find_loader
from headrace.experiment.plan import MachineTable
from headrace.host.target import Target, TargetSpec, open_target

JOURNAL = "/var/lib/headrace/boot.json"
JOURNAL_FORMAT = 1
GUARD_NAME = "headrace-boot-guard.service"
GUARD = f"/etc/systemd/system/{GUARD_NAME}"
GUARD_ENABLED = f"/etc/systemd/system/sysinit.target.wants/{GUARD_NAME}"
#: On a file system that is empty after each boot.
CONFIRMED = "/run/headrace-kernel-confirmed"

BETWEEN_LOOKS_S = 3.0
INSTALL_TIMEOUT_S = 1800.0
COMMAND_TIMEOUT_S = 300.0
LOCK_PATIENCE = "DPkg::Lock::Timeout=600"
DEBIAN = {"DEBIAN_FRONTEND": "noninteractive"}

#: The guard of a boot. It starts as soon as there is a root file system, because a later step may hang.
GUARD_TEXT = """\
# Written by headrace, which removes it when its experiment ends.
[Unit]
Description=Back to kernel {original} unless headrace confirms the one that runs
DefaultDependencies=no
[Service]
ExecStart=/bin/sh -c 'sleep {seconds}; [ -e {confirmed} ] || [ "$$(uname -r)" = "{original}" ] || systemctl reboot'
[Install]
WantedBy=sysinit.target
"""


@dataclass
class BootJournal:
    """The changes on the host with their undo: steps in the order in which they were started.

    The undo of a step is a list of ``{"file", "content"}`` (null: it did not exist) and ``{"run"}``, in the order
    of undoing.
    """

    kernel: str
    steps: list[dict[str, Any]] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return any(step["name"] == name for step in self.steps)

    @staticmethod
    async def read(target: Target) -> BootJournal | None:
        try:
            content = json.loads(await target.read(JOURNAL))
            if content["format"] != JOURNAL_FORMAT:
                raise ValueError(f"format {content['format']!r}")
            return BootJournal(str(content["kernel"]), list(content["steps"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"the journal of boots cannot be read: {error!r}",
                place=f"{target.name}:{JOURNAL}",
                hint="it records the host's original state: restore that by hand, then remove it",
            ) from error

    async def begin(self, target: Target, name: str, undo: Undo) -> None:
        """On disk when this returns; only then may the step be made."""
        self.steps.append({"name": name, "undo": undo})
        await self._write(target)

    async def undo(self, target: Target) -> None:
        """Undo the latest step first; remove each from the journal when it is undone."""
        while self.steps:
            for action in self.steps[-1]["undo"]:
                await _undo(target, action)
            self.steps.pop()
            await self._write(target)
        await target.run(["rm", "-f", CONFIRMED])
        await target.run(["rm", "-f", JOURNAL])

    async def _write(self, target: Target) -> None:
        content = {"format": JOURNAL_FORMAT, "kernel": self.kernel, "steps": self.steps}
        await target.run(["mkdir", "-p", "-m", "0755", str(Path(JOURNAL).parent)])
        await target.write(JOURNAL, (json.dumps(content, indent=1) + "\n").encode(), mode=0o600)


async def _undo(target: Target, action: dict[str, Any]) -> None:
    if "run" in action:
        await target.run(action["run"], env=DEBIAN, timeout_s=INSTALL_TIMEOUT_S)
    elif action["content"] is None:
        await target.run(["rm", "-f", action["file"]])
    elif "instead_of" not in action or await _digest(target, action["file"]) == action["instead_of"]:
        content = str(action["content"]).encode("utf-8", "surrogateescape")
        await target.write(action["file"], content, mode=action.get("mode", 0o644))


async def _digest(target: Target, path: str) -> str:
    """Of a file's content; empty if there is none."""
    try:
        return hashlib.sha256(await target.read(path)).hexdigest()
    except FileNotFoundError:
        return ""


class RebootedHost:
    """A host over SSH that the plan allows to reboot."""

    boots = True
    accel = ""
    name = ""

    def __init__(
        self,
        spec: TargetSpec,
        table: MachineTable,
        *,
        reach: Callable[[TargetSpec], Target] = open_target,
        between_looks_s: float = BETWEEN_LOOKS_S,
    ) -> None:
        self._spec = spec
        self._table = table
        self._reach = reach
        self._between_looks_s = between_looks_s
        self._kernel: str | None = None
        if spec.kind != "ssh" or not table.allow_reboot:
            raise Refused("headrace reboots only hosts over SSH, and only if the plan allows it")

    def must_boot(self, boot: Boot | None) -> bool:
        return boot is not None and boot.kernel != self._kernel

    def died(self) -> None:
        self._kernel = None

    async def ready(self, boot: Boot | None, tell: Tell) -> TargetSpec:
        if boot is None or boot.kernel == self._kernel:
            return self._spec
        kernel = boot.kernel
        async with self._connected() as target:
            await self._refuse_ourselves(target)
            running = await release_of(target)
            if not is_kernel(kernel, running):
                tell(f"{target.name} runs kernel {running}; it boots {kernel} now")
                wanted = await self._set_next_boot(target, kernel, running, tell)
                await self._boot(target, tell)
                running = await release_of(target)
                if running != wanted:
                    raise TreatmentFailed(
                        f"kernel {wanted} did not come up: the host returned with {running}",
                        place=target.name,
                    )
            if await BootJournal.read(target):
                # Before this boot's guard checks it.
                await target.run(["touch", CONFIRMED])
        self._kernel = kernel
        return self._spec

    async def release(self, tell: Tell) -> None:
        """Return to the original kernel, and undo everything else."""
        async with self._connected() as target:
            journal = await BootJournal.read(target)
            if journal is None:
                return
            running = await release_of(target)
            if running != journal.kernel:
                tell(f"{target.name} returns to kernel {journal.kernel}")
                # The default has been pinned to that kernel since before the first step.
                await self._boot(target, tell)
                running = await release_of(target)
            if running != journal.kernel:
                raise TargetError(
                    f"the host runs kernel {running}, but ran {journal.kernel} before the experiment",
                    place=target.name,
                    hint=(
                        f"boot {journal.kernel}, then rerun; {JOURNAL} on the host lists what else has to be "
                        "undone"
                    ),
                )
            await journal.undo(target)
        self._kernel = None

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Target]:
        target = self._reach(self._spec)
        await target.connect()
        try:
            yield target
        finally:
            await target.close()

    async def _refuse_ourselves(self, target: Target) -> None:
        if not target.is_root:
            raise NotReady("only root may set the next boot and reboot", place=target.name)
        here = await asyncio.to_thread(Path("/proc/sys/kernel/random/boot_id").read_text)
        if await boot_id(target) == here.strip():
            raise Refused(
                "this host is the machine that headrace runs on, which it never reboots", place=target.name
            )

    async def _set_next_boot(self, target: Target, kernel: str, running: str, tell: Tell) -> str:
        """Set the kernel of the next boot only; returns its release."""
        loader = await find_loader(target)
        journal = await BootJournal.read(target) or BootJournal(running)
        if not journal.has("guard"):
            await self._guard(target, journal)
        if not journal.has("default"):
            await journal.begin(target, "default", await loader.undo_of_default(target))
            await loader.pin(target, journal.kernel)
        wanted = await self._installed(target, journal, kernel, tell)
        if not journal.has("next boot"):
            await journal.begin(target, "next boot", await loader.undo_of_next(target))
        await loader.set_next(target, wanted)
        return wanted

    async def _guard(self, target: Target, journal: BootJournal) -> None:
        # Not by `disable`, which fails if the unit does not exist yet.
        gone: Undo = [
            {"file": GUARD_ENABLED, "content": None},
            {"file": GUARD, "content": None},
            {"run": ["systemctl", "daemon-reload"]},
        ]
        await journal.begin(target, "guard", gone)
        content = GUARD_TEXT.format(
            original=journal.kernel, seconds=round(self._table.boot_timeout_s), confirmed=CONFIRMED
        )
        await target.write(GUARD, content.encode())
        await target.run(["systemctl", "daemon-reload"], timeout_s=COMMAND_TIMEOUT_S)
        await target.run(["systemctl", "enable", GUARD_NAME], timeout_s=COMMAND_TIMEOUT_S)

    async def _installed(self, target: Target, journal: BootJournal, kernel: str, tell: Tell) -> str:
        """The release of the installed kernel that matches; its package is installed if there is none."""
        here = await _names(target, ["ls", "-1", "/boot"], "vmlinuz-")
        if found := newest(kernel, here, like=journal.kernel):
            return found
        offered = await _names(target, ["apt-cache", "pkgnames", f"linux-image-{kernel}"], "linux-image-")
        release = newest(kernel, sensible(kernel, offered, journal.kernel), like=journal.kernel)
        if release is None:
            raise NotReady(
                f"no kernel {kernel} is installed, and no package linux-image-{kernel}* is available",
                place=target.name,
                hint="run apt-get update there, or install the kernel by hand",
            )
        package = f"linux-image-{release}"
        tell(f"installing {package} on {target.name}")
        simulated = await target.run(
            ["apt-get", "install", "-s", "--no-install-recommends", package],
            env=DEBIAN,
            timeout_s=COMMAND_TIMEOUT_S,
        )
        new, others = planned(simulated.text)
        if others:
            raise Refused(
                f"installing {package} would also change {', '.join(others)}",
                place=target.name,
                hint="install it by hand if you want this",
            )
        # An interrupted installation holds apt's lock for a while, then leaves a half-installed package.
        undo: Undo = [
            {"run": ["dpkg", "--configure", "-a"]},
            {"run": ["apt-get", "-o", LOCK_PATIENCE, "purge", "-y", *new]},
        ]
        await journal.begin(target, package, undo)
        await target.run(
            ["apt-get", "install", "-y", "--no-install-recommends", package],
            env=DEBIAN,
            timeout_s=INSTALL_TIMEOUT_S,
        )
        return release

    async def _boot(self, target: Target, tell: Tell) -> None:
        """Reboot, wait until the host accepts a login, and reconnect the target."""
        before = await boot_id(target)
        # The answer may be lost with the connection.
        with contextlib.suppress(TargetError):
            await target.run(["systemctl", "reboot"], timeout_s=COMMAND_TIMEOUT_S, check=False)
        began = time.monotonic()
        while time.monotonic() - began < self._table.boot_timeout_s * 2:
            await target.close()
            await asyncio.sleep(self._between_looks_s)
            with contextlib.suppress(TargetError):
                await target.connect()
                if await boot_id(target) != before:
                    tell(f"{target.name} is back after {time.monotonic() - began:.0f} s")
                    return
        raise TargetError(
            f"the host was not reachable within {self._table.boot_timeout_s * 2:g} s of its reboot",
            place=target.name,
            hint=(
                f"its console shows why; when it is up, rerun; {JOURNAL} on the host lists what has to be "
                "undone"
            ),
        )


#: Kernel flavours that a bare version number does not mean.
UNWANTED = re.compile(r"-(dbg|unsigned|rt-.*|cloud-.*|template.*)$")
FLAVOUR = re.compile(r"(-[a-z]\w*)+$")


async def _names(target: Target, argv: list[str], prefix: str) -> list[str]:
    try:
        lines = (await target.run(argv, timeout_s=COMMAND_TIMEOUT_S)).text.splitlines()
    except CommandFailed:
        return []
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


def sensible(kernel: str, releases: list[str], running: str) -> list[str]:
    """Those packages that a version number can mean: a cloud kernel only on a host that runs one."""
    return [r for r in releases if r == kernel or flavour(r) == flavour(running) or not UNWANTED.search(r)]


def flavour(release: str) -> str:
    """The kernel's build: ``-cloud-amd64``, ``-generic``. The same version has another set of drivers in each."""
    match = FLAVOUR.search(release)
    return match[0] if match else ""


def newest(kernel: str, releases: list[str], *, like: str = "") -> str | None:
    """The newest of these that matches the plan's name; one built as ``like`` is, if there is one."""
    fitting = [release for release in releases if is_kernel(kernel, release)]
    if kernel in fitting:
        return kernel
    same = [release for release in fitting if flavour(release) == flavour(like)]
    usual = [release for release in fitting if not UNWANTED.search(release)]
    return max(same or usual or fitting, key=_as_version, default=None)


def _as_version(release: str) -> list[tuple[int, str]]:
    """Sort key: 6.1.0-18 is after 6.1.0-9; a backport is before the release."""
    parts = re.findall(r"\d+|\D+", release)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def planned(simulation: str) -> tuple[list[str], list[str]]:
    """The packages that ``apt-get install -s`` would install, and those that it would upgrade or remove."""
    new: list[str] = []
    others: list[str] = []
    for line in simulation.splitlines():
        match = re.match(r"(Inst|Remv|Purg) (\S+)( \[[^]]*\])?", line)
        if match:
            is_new = match[1] == "Inst" and match[3] is None
            (new if is_new else others).append(match[2])
    return new, others


async def release_of(target: Target) -> str:
    return (await target.run(["uname", "-r"])).text.strip()
