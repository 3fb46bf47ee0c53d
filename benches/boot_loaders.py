"""A host with a real boot loader, in QEMU: do its kernels run as a factor, and is it as found afterwards?

    python benches/boot_loaders.py [--keep FOLDER] [grub-bios grub-efi systemd-boot]

Each disk boots by its own firmware and loader. The plan's kernels are 6.1, 6.12 (with grub-bios installed from a
package and removed again) and one that panics. Needs root and the mirror of Debian 12 that apt uses here. Without
KVM a loader takes at least 10 minutes, an hour on a busy machine. ``--keep`` keeps disks, consoles and states in
FOLDER, and reuses the packages there.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
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
LOADERS = ("grub-bios", "grub-efi", "systemd-boot")
PROGRAMS = ("qemu-system-x86_64", "mmdebstrap", "dpkg-scanpackages", "sfdisk", "losetup", "ssh-keygen")
#: An emulated machine on a busy one is slow; a stuck one never ends.
PATIENCE_S = 5400.0
BOOT_PATIENCE_S = 1200.0
BROKEN = "5.99"

PLAN = """
name = "boot-loaders"
[target]
address = "root@127.0.0.1:{port}"
identity_file = "{folder}/id"
known_hosts = "{folder}/known_hosts"
[machine]
allow_reboot = true
hosts = ["127.0.0.1"]
boot_timeout_s = 900
[design]
kind = "factorial"
baseline = "6.1"
blocks = 1
seed = 2
[workload]
kind = "fio"
seconds = 3
rw = "randread"
size = "8M"
ioengine = "psync"
[factors.kernel]
knob = "machine.kernel"
levels = ["6.1", "6.12", "{broken}"]
"""


@dataclass(frozen=True)
class Guest:
    folder: Path
    loader: str
    port: int

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
        words += ["-machine", "q35,vmport=off", "-accel", "tcg,thread=single,tb-size=256", "-cpu", "max"]
        words += ["-smp", "1", "-m", "768M", "-serial", f"file:{self.folder}/{self.loader}.console"]
        if self.loader != "grub-bios":
            firmware = self.folder / "host/usr/share/OVMF"
            variables = self.folder / f"{self.loader}.vars"
            shutil.copy(firmware / "OVMF_VARS_4M.fd", variables)
            words += ["-drive", f"if=pflash,format=raw,readonly=on,file={firmware}/OVMF_CODE_4M.fd"]
            words += ["-drive", f"if=pflash,format=raw,file={variables}"]
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

    def state(self) -> list[str]:
        found = self.ssh("sh", "-s", stdin=(HERE / "boot/state").read_text(), timeout_s=BOOT_PATIENCE_S)
        assert found, "the host does not say its state"
        return found.splitlines()


@contextlib.contextmanager
def booted(folder: Path, loader: str) -> Iterator[Guest]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        guest = Guest(folder, loader, server.getsockname()[1])
    kind, key, *_ = (folder / f"{loader}.host_key").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{guest.port} {kind} {key}\n")
    with subprocess.Popen(guest.argv()) as qemu:
        try:
            started = time.monotonic()
            while guest.ssh("true") is None:
                assert qemu.poll() is None, "QEMU ended"
                assert time.monotonic() - started < BOOT_PATIENCE_S, f"no login: see {loader}.console"
                time.sleep(3)
            yield guest
        finally:
            qemu.kill()


def run(guest: Guest) -> None:
    """The experiment, and what must be true of it."""
    plan, out = guest.folder / f"{guest.loader}.toml", guest.folder / f"{guest.loader}.out"
    plan.write_text(PLAN.format(port=guest.port, folder=guest.folder, broken=BROKEN))
    shutil.rmtree(out, ignore_errors=True)
    before = guest.state()
    argv = [sys.executable, "-m", "headrace", "run", str(plan), "-o", str(out)]
    done = subprocess.run(
        argv, timeout=PATIENCE_S, check=False, env={**os.environ, "HEADRACE_DISTURBED": "keep"}
    )
    after = guest.state()
    (guest.folder / f"{guest.loader}.before").write_text("\n".join(before))
    (guest.folder / f"{guest.loader}.after").write_text("\n".join(after))
    changed = list(difflib.unified_diff(before, after, "before", "after", n=0, lineterm=""))
    assert not changed, "\n".join(["the host is not as it was:", *changed])
    assert done.returncode == 0, f"exit code {done.returncode}"
    trials = [json.loads(path.read_text()) for path in sorted(out.glob("trials/[0-9]*/trial.json"))]
    assert len(trials) == 4, trials
    for trial in trials:
        if trial["treatment"] == BROKEN:
            assert trial["state"] == "failed", trial
            assert "did not come up: the host returned with" in trial["reason"], trial
        else:
            assert trial["versions"]["kernel"].startswith(f"{trial['treatment']}."), trial


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("loaders", nargs="*", choices=[*LOADERS, []], metavar="LOADER", default=list(LOADERS))
    options = parser.parse_args()
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        sys.exit(f"needs root, and {', '.join(PROGRAMS)}; missing: {', '.join(missing) or 'root'}")
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        folder.mkdir(parents=True, exist_ok=True)
        for loader in options.loaders:
            started = time.monotonic()
            with (folder / f"{loader}.log").open("w") as log:
                argv = [HERE / "boot/disk", folder.absolute(), loader]
                made = subprocess.run(argv, stdout=log, stderr=log, check=False)
            assert made.returncode == 0, (folder / f"{loader}.log").read_text()[-2000:]
            with booted(folder.absolute(), loader) as guest:
                run(guest)
            minutes = (time.monotonic() - started) / 60
            print(
                f"{loader}: kernels as factors, one that panics, and as found afterwards: {minutes:.0f} minutes"
            )


if __name__ == "__main__":
    main()
