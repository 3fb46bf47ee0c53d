"""Builds dist/headrace-VERSION-py3-none-TAGS.whl and dist/headrace-VERSION.tar.gz: `make wheel`.

The agent is linked statically: it needs a Linux kernel and no C library, so one wheel serves systems with glibc
and with musl. maturin gives it the tag of the toolchain only; here the binary is looked at, and the tags say it.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
#: The oldest of each that installers know; a static program asks nothing of either.
TAGS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64")
#: Program headers of an ELF file that name what loads it and where its libraries are listed.
PT_DYNAMIC, PT_INTERP, DT_NEEDED = 2, 3, 1


def main() -> None:
    DIST.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        maturin("build", "--release", "--locked", "--compatibility", "manylinux2014", "--out", folder)
        (built,) = Path(folder).glob("*.whl")
        check(built)
        tags = ["--platform-tag", ".".join(TAGS), "--remove"]
        subprocess.run([sys.executable, "-m", "wheel", "tags", *tags, str(built)], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        maturin("sdist", "--out", folder)
        (source,) = Path(folder).glob("*.tar.gz")
        for old in DIST.glob("headrace-*"):
            old.unlink()
        for made in (wheel, source):
            sys.stdout.write(f"{shutil.copy(made, DIST)}\n")


def maturin(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "maturin", *arguments], cwd=ROOT, check=True)


def check(wheel: Path) -> None:
    """Exit unless the agent in this wheel is a static x86-64 program."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/scripts/headrace-agent"))
        reason = why_not_static(archive.read(name))
    if reason:
        raise SystemExit(f"{wheel.name}: {name} {reason}: was .cargo/config.toml read?")


def why_not_static(program: bytes) -> str:
    """What makes a program depend on the system's C library; empty for a static x86-64 one."""
    if program[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", program, 18)[0] != 62:
        return "is not a 64-bit x86 program"
    offset, size, count = (
        struct.unpack_from("<Q", program, 32)[0],
        *struct.unpack_from("<HH", program, 54),
    )
    for number in range(count):
        kind, _, start, *_ = struct.unpack_from("<IIQ", program, offset + number * size)
        length = struct.unpack_from("<Q", program, offset + number * size + 32)[0]
        if kind == PT_INTERP:
            return "is loaded by " + program[start : start + length].rstrip(b"\0").decode()
        if kind == PT_DYNAMIC:
            entries = struct.iter_unpack("<qQ", program[start : start + length // 16 * 16])
            if any(tag == DT_NEEDED for tag, _ in entries):
                return "needs shared libraries"
    return ""


if __name__ == "__main__":
    main()
