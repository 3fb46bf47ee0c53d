"""A host with a real boot loader, in QEMU: do its kernels run as a factor, and is it as found afterwards?

    python benches/boot_loaders.py [--keep FOLDER] [--cut] [--kvm] [grub-bios grub-efi systemd-boot]

Each disk boots by its own firmware and loader. The plan's kernels are 6.1, which is the default; 6.12 (with
grub-bios installed from a package and removed again); one that panics; and one that comes up without a network, so
that the guard has to end it. With grub-efi and systemd-boot the default is not the newest kernel. Prints a row per
case, and ends with exit code 1 if the host is not as found: files in /boot, on the ESP and in /etc, packages, and
variables of the firmware. Needs root and the mirror of Debian 12 that apt uses here. Without KVM a loader takes at
least 10 minutes, an hour on a busy machine. ``--cut`` also kills the run and cuts the power while 6.12 runs: the
host must boot 6.1, and the next run ends the experiment. ``--keep`` keeps disks, consoles, states and what the run
said in FOLDER, and reuses the packages there.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
#: With the order of the kernels that this seed makes. With the first two, 6.12 is the last one, so that the host
#: has to be booted back from it; with the others, kernels that do not come up follow on 6.12.
LOADERS = {"grub-bios": 6, "grub-efi": 6, "systemd-boot": 13}
PROGRAMS = ("qemu-system-x86_64", "mmdebstrap", "dpkg-scanpackages", "sfdisk", "losetup", "ssh-keygen")
FIRMWARE = "host/usr/share/OVMF"
#: An emulated machine on a busy one is slow; a stuck one never ends.
PATIENCE_S = 5400.0
BOOT_PATIENCE_S = 1200.0
USUAL, OTHER, BROKEN = "6.1", "6.12", "5.99"

PLAN = """
name = "boot-loaders"
[target]
address = "root@127.0.0.1:{port}"
identity_file = "{folder}/id"
known_hosts = "{folder}/known_hosts"
[machine]
allow_reboot = true
hosts = ["127.0.0.1"]
boot_timeout_s = {boot_timeout_s}
[design]
kind = "factorial"
baseline = "{usual}"
blocks = 1
seed = {seed}
[workload]
kind = "fio"
seconds = 3
rw = "randread"
size = "8M"
ioengine = "psync"
[factors.kernel]
knob = "machine.kernel"
levels = ["{usual}", "{other}", "{broken}", "{mute}"]
"""


@dataclass(frozen=True)
class Guest:
    folder: Path
    loader: str
    port: int
    kvm: bool

    def argv(self) -> list[str]:
        words = [
            "qemu-system-x86_64",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-monitor",
            "none",
        ]
        words += ["-machine", "q35,vmport=off,smm=off", "-cpu", "max", "-smp", "1", "-m", "768M"]
        words += ["-accel", "kvm" if self.kvm else "tcg,thread=single,tb-size=256"]
        words += ["-chardev", f"file,id=console,path={self.folder}/{self.loader}.console,append=on"]
        words += ["-serial", "chardev:console"]
        if self.loader != "grub-bios":
            firmware = self.folder / FIRMWARE / "OVMF_CODE_4M.fd"
            words += ["-drive", f"if=pflash,format=raw,readonly=on,file={firmware}"]
            words += ["-drive", f"if=pflash,format=raw,file={self.folder}/{self.loader}.vars"]
        disk = self.folder / f"{self.loader}.img"
        words += ["-drive", f"if=none,id=disk,format=raw,cache=unsafe,file={disk}"]
        words += ["-device", "virtio-blk-pci,drive=disk,bootindex=0"]
        words += ["-netdev", f"user,id=net,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:{self.port}-:22"]
        return [*words, "-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"]

    def ssh(self, *argv: str, stdin: str = "", timeout_s: float = 300.0) -> str | None:
        """What it printed; None if it failed."""
        words = ["ssh", "-F", "none", "-i", f"{self.folder}/id", "-p", str(self.port), "-o", "BatchMode=yes"]
        words += ["-o", f"UserKnownHostsFile={self.folder}/known_hosts", "-o", "ConnectTimeout=30"]
        words += ["root@127.0.0.1", *argv]
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                words, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
            )
            return done.stdout if done.returncode == 0 else None
        return None

    def state(self, name: str) -> list[str]:
        found = self.ssh("sh", "-s", stdin=(HERE / "boot/state").read_text(), timeout_s=BOOT_PATIENCE_S)
        assert found, "the host does not say its state"
        if self.loader != "grub-bios":
            assert re.search(r"^/boot/efi +vfat$", found, flags=re.MULTILINE), "its ESP is not mounted"
            assert re.search(r"^Boot0000-", found, flags=re.MULTILINE), (
                "it shows no variables of the firmware"
            )
        (self.folder / f"{self.loader}.{name}").write_text(found)
        return found.splitlines()


@dataclass(frozen=True)
class Row:
    loader: str
    case: str
    result: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.loader:<13} {self.case:<42} {self.result:<38} {self.seconds:>6.0f} s"


def made(folder: Path, loader: str, *, kvm: bool) -> Guest:
    """A guest with a new disk, not yet booted."""
    with (folder / f"{loader}.log").open("w") as log:
        argv = [str(HERE / "boot/disk"), str(folder), loader]
        done = subprocess.run(argv, stdout=log, stderr=log, check=False)
    assert done.returncode == 0, (folder / f"{loader}.log").read_text()[-2000:]
    with socket.create_server(("127.0.0.1", 0)) as server:
        guest = Guest(folder, loader, server.getsockname()[1], kvm)
    kind, key, *_ = (folder / f"{loader}.host_key").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{guest.port} {kind} {key}\n")
    shutil.copy(folder / FIRMWARE / "OVMF_VARS_4M.fd", folder / f"{loader}.vars")
    (folder / f"{loader}.console").unlink(missing_ok=True)
    return guest


@contextlib.contextmanager
def powered(guest: Guest) -> Iterator[float]:
    """The guest is up within, after so many seconds; then its power is cut."""
    started = time.monotonic()
    with subprocess.Popen(guest.argv()) as qemu:
        try:
            while guest.ssh("true") is None:
                assert qemu.poll() is None, "QEMU ended"
                assert time.monotonic() - started < BOOT_PATIENCE_S, f"no login: see {guest.loader}.console"
                time.sleep(3)
            yield time.monotonic() - started
        finally:
            qemu.kill()


def followed(guest: Guest, plan: Path, out: Path, *, kill_on: str = "") -> int:
    """The exit code of a run; prints a row for each of its boots. It is killed when the host is back with
    ``kill_on``."""
    mute = (guest.folder / f"{guest.loader}.mute").read_text().strip()
    what = {mute: "has no network, until the guard", OTHER: "boots", USUAL: "boots", BROKEN: "panics"}
    environment = {**os.environ, "HEADRACE_DISTURBED": "keep", "COLUMNS": "500"}
    argv = [sys.executable, "-m", "headrace", "run", str(plan), "-o", str(out)]
    case = result = ""
    started = time.monotonic()
    with (
        (guest.folder / f"{guest.loader}.run").open("a") as log,
        subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as run,
    ):
        assert run.stdout is not None
        try:
            for line in run.stdout:
                print(f"{time.monotonic() - started:7.0f} {line}", end="", file=log, flush=True)
                if match := re.search(r"it boots (\S+) now", line):
                    case, result = f"{match[1]} {what[match[1]]}", "failed treatment, back on the default"
                    result = "runs" if match[1] in (USUAL, OTHER) else result
                elif match := re.search(r"returns to kernel (\S+)", line):
                    case, result = f"back to {match[1]} at the end", "runs"
                elif match := re.search(r"is back after (\d+) s", line):
                    print(Row(guest.loader, case, result, float(match[1])), flush=True)
                    if kill_on and case.startswith(f"{kill_on} "):
                        run.kill()
                assert time.monotonic() - started < PATIENCE_S, "the run does not end"
        except BaseException:
            run.kill()
            raise
    return run.returncode


def check(out: Path) -> None:
    """Each trial ran on its kernel, or failed because that did not come up."""
    trials = [json.loads(path.read_text()) for path in sorted(out.glob("trials/[0-9]*/trial.json"))]
    assert len(trials) == 5, trials
    for trial in trials:
        if trial["treatment"] in (USUAL, OTHER):
            assert trial["state"] != "failed", trial
            assert trial["versions"]["kernel"].startswith(f"{trial['treatment']}."), trial
        else:
            assert trial["state"] == "failed", trial
            assert f"did not come up: the host returned with {USUAL}." in trial["reason"], trial


def measure(guest: Guest, *, cut: bool) -> None:
    plan, out = guest.folder / f"{guest.loader}.toml", guest.folder / f"{guest.loader}.out"
    shutil.rmtree(out, ignore_errors=True)
    (guest.folder / f"{guest.loader}.run").unlink(missing_ok=True)
    started = time.monotonic()
    with powered(guest) as first_boot_s:
        print(Row(guest.loader, "first boot", "runs", first_boot_s), flush=True)
        plan.write_text(plan_of(guest, first_boot_s))
        before = guest.state("before")
        code = followed(guest, plan, out, kill_on=OTHER if cut else "")
        after = guest.state("after") if not cut else []
    if cut:
        with powered(guest) as boot_s:
            running = guest.ssh("uname", "-r") or ""
            assert running.startswith(f"{USUAL}."), running
            print(Row(guest.loader, f"killed and power cut on {OTHER}", f"boots {USUAL}", boot_s), flush=True)
            code = followed(guest, plan, out)
            after = guest.state("after")
    changed = list(difflib.unified_diff(before, after, "before", "after", n=0, lineterm=""))
    assert not changed, "\n".join(["the host is not as it was:", *changed])
    assert code == 0, f"exit code {code}: see {guest.loader}.run"
    check(out)
    print(Row(guest.loader, "all of it", "as found", time.monotonic() - started), flush=True)


def plan_of(guest: Guest, first_boot_s: float) -> str:
    return PLAN.format(
        port=guest.port,
        folder=guest.folder,
        # Enough for a boot, and for another one when the guard has ended the first.
        boot_timeout_s=max(120, round(2 * first_boot_s)),
        seed=LOADERS[guest.loader],
        usual=USUAL,
        other=OTHER,
        broken=BROKEN,
        mute=(guest.folder / f"{guest.loader}.mute").read_text().strip(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--kvm", action="store_true")
    parser.add_argument("loaders", nargs="*", choices=[*LOADERS, []], metavar="LOADER", default=list(LOADERS))
    options = parser.parse_args()
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        sys.exit(f"needs root, and {', '.join(PROGRAMS)}; missing: {', '.join(missing) or 'root'}")
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for loader in options.loaders:
            measure(made(folder, loader, kvm=options.kvm), cut=options.cut)


if __name__ == "__main__":
    main()
