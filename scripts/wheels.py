"""Builds one wheel per processor, headrace-VERSION-py3-none-TAGS.whl, and headrace-VERSION.tar.gz: `make wheel`.

    scripts/wheels.py                     # for this machine; for the other processor if it can be built for here
    scripts/wheels.py --target aarch64    # for this one only; what is missing is an error

The agent is linked statically: it needs a Linux kernel and no C library, so one wheel serves systems with glibc
and with musl. maturin gives it the tag of the toolchain only; here the binary is looked at, and the tags say it.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: The compiler that scripts/cross unpacks.
UNPACKED = ROOT / "target" / "cross" / "rustc"
#: Program headers of an ELF file that name what loads it and where its libraries are listed.
PT_DYNAMIC, PT_INTERP, DT_NEEDED = 2, 3, 1


@dataclass(frozen=True)
class Processor:
    """One that wheels are made for, by the name that `uname -m` has for it."""

    name: str
    title: str
    #: e_machine of an ELF header.
    elf: int
    #: Debian's names: of packages for it, and of the C compiler's package.
    debian: str
    compiler_package: str

    @property
    def rust(self) -> str:
        return f"{self.name}-unknown-linux-gnu"

    @property
    def linker(self) -> str:
        return f"{self.name}-linux-gnu-gcc"

    @property
    def tags(self) -> str:
        """The oldest of each that installers know; a static program asks nothing of either."""
        return ".".join(
            f"{oldest}_{self.name}" for oldest in ("manylinux_2_17", "manylinux2014", "musllinux_1_1")
        )


PROCESSORS = {
    one.name: one
    for one in (
        Processor("x86_64", "x86-64", 62, "amd64", "gcc-x86-64-linux-gnu"),
        Processor("aarch64", "aarch64", 183, "arm64", "gcc-aarch64-linux-gnu"),
    )
}


class Missing(Exception):
    """A toolchain for another processor is not installed; the message says how to get it."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Builds wheels and the source distribution.")
    parser.add_argument("--target", choices=PROCESSORS, action="append", help="repeatable")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="holds nothing else of ours afterwards"
    )
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        made = [wheel for one in wanted(options.target) if (wheel := build(one, Path(folder)))]
        maturin("sdist", "--out", folder)
        made += Path(folder).glob("*.tar.gz")
        options.out.mkdir(parents=True, exist_ok=True)
        for old in options.out.glob("headrace-*"):
            old.unlink()
        for one in made:
            sys.stdout.write(f"{shutil.copy(one, options.out)}\n")


def wanted(named: Sequence[str] | None) -> list[tuple[Processor, Mapping[str, str]]]:
    """Each processor to build for, with cargo's environment. What was not asked for may be missing."""
    chosen = []
    for one in PROCESSORS.values():
        if named and one.name not in named:
            continue
        try:
            chosen.append((one, environment(one)))
        except Missing as missing:
            if named or one.name == platform.machine():
                raise SystemExit(f"wheels: {missing}") from missing
            sys.stderr.write(f"wheels: no wheel for {one.name}: {missing}\n")
    return chosen


def environment(processor: Processor) -> Mapping[str, str]:
    """What cargo and the C compilers of crates need in order to build for it here. Raises Missing."""
    if processor.name == platform.machine():
        return {}
    packages = f"apt-get install {processor.compiler_package} libc6-dev-{processor.debian}-cross"
    if not shutil.which(processor.linker):
        raise Missing(f"{processor.linker} is not installed: {packages}")
    # It answers with the bare name if it has no C library to link statically.
    argv = [processor.linker, "-print-file-name=libc.a"]
    if "/" not in subprocess.run(argv, check=True, capture_output=True, text=True).stdout:
        raise Missing(f"{processor.linker} has no static C library: {packages}")
    for compiler in (os.environ.get("RUSTC", "rustc"), str(UNPACKED)):
        if has_standard_library(compiler, processor.rust):
            variable = f"CARGO_TARGET_{processor.rust.upper().replace('-', '_')}_LINKER"
            return {"RUSTC": compiler, variable: processor.linker}
    raise Missing(
        f"no Rust compiler with a standard library for it: rustup target add {processor.rust}, "
        f"or on Debian scripts/cross {processor.debian}"
    )


def has_standard_library(compiler: str, target: str) -> bool:
    """Whether a compiler can build programs for a target: it knows all of them, but has few libraries."""
    argv = [compiler, "--print", "target-libdir", "--target", target]
    try:
        folder = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return False
    return any(Path(folder).glob("libstd-*.rlib"))


def build(target: tuple[Processor, Mapping[str, str]], folder: Path) -> Path:
    """The wheel for a processor, in a folder of its own."""
    processor, variables = target
    place = folder / processor.name
    # The tag of this machine's own target is its default, so nothing that was built already is built again.
    cross = ["--target", processor.rust] if variables else []
    arguments = ["--release", "--locked", "--compatibility", "manylinux2014", *cross, "--out", str(place)]
    maturin("build", *arguments, variables=variables)
    (built,) = place.glob("*.whl")
    check(built, processor)
    tags = ["--platform-tag", processor.tags, "--remove"]
    subprocess.run([sys.executable, "-m", "wheel", "tags", *tags, str(built)], check=True)
    (wheel,) = place.glob("*.whl")
    return wheel


def maturin(*arguments: str, variables: Mapping[str, str] | None = None) -> None:
    subprocess.run(
        [sys.executable, "-m", "maturin", *arguments],
        cwd=ROOT,
        env={**os.environ, **(variables or {})},
        check=True,
    )


def check(wheel: Path, processor: Processor) -> None:
    """Exit unless the agent in this wheel is a static program for this processor."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/scripts/headrace-agent"))
        reason = why_not_static(archive.read(name), processor)
    if reason:
        raise SystemExit(f"{wheel.name}: {name} {reason}: was .cargo/config.toml read?")


def why_not_static(program: bytes, processor: Processor) -> str:
    """What makes a program depend on another processor or on a C library; empty for a static one."""
    if program[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", program, 18)[0] != processor.elf:
        return f"is not a 64-bit {processor.title} program"
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
