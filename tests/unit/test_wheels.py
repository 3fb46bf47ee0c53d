"""What `make wheel` claims of an agent, and what it says if it cannot build one for another processor."""

from __future__ import annotations

import platform
import struct
from pathlib import Path

import pytest

from tests import wheels

made = wheels.load()
X86, ARM = made.PROCESSORS["x86_64"], made.PROCESSORS["aarch64"]
OTHER = ARM if platform.machine() == "x86_64" else X86

LOAD, DYNAMIC, INTERP = 1, 2, 3
#: One entry that says what a program needs, one that ends the list.
NEEDS = struct.pack("<qQqQ", 1, 7, 0, 0)
NEEDS_NOTHING = struct.pack("<qQqQ", 24, 0, 0, 0)


def elf(machine: int, *segments: tuple[int, bytes]) -> bytes:
    """A 64-bit little-endian program with these segments (kind, content), as the linkers lay it out."""
    header = struct.pack("<4sBBB9xHHI", b"\x7fELF", 2, 1, 1, 2, machine, 1)
    header += struct.pack("<QQQIHHHHHH", 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    at, table = 64 + 56 * len(segments), b""
    for kind, content in segments:
        table += struct.pack("<IIQQQQQQ", kind, 4, at, at, at, len(content), len(content), 8)
        at += len(content)
    return header + table + b"".join(content for _, content in segments)


@pytest.mark.parametrize(("own", "foreign"), [(X86, ARM), (ARM, X86)], ids=["x86_64", "aarch64"])
def test_static_is_what_loads_nothing(own: object, foreign: object) -> None:
    machine = own.elf  # type: ignore[attr-defined]
    for static in (elf(machine, (LOAD, b"code")), elf(machine, (LOAD, b"code"), (DYNAMIC, NEEDS_NOTHING))):
        assert made.why_not_static(static, own) == ""
        assert made.why_not_static(static, foreign).endswith("program")
    loader = elf(machine, (LOAD, b"code"), (INTERP, b"/lib/ld-linux-aarch64.so.1\0"))
    assert made.why_not_static(loader, own) == "is loaded by /lib/ld-linux-aarch64.so.1"
    assert made.why_not_static(elf(machine, (DYNAMIC, NEEDS)), own) == "needs shared libraries"


def test_a_program_of_this_machine_is_not_called_static() -> None:
    shell = Path("/bin/sh").read_bytes()
    assert "ld-linux" in made.why_not_static(shell, made.PROCESSORS[platform.machine()])
    assert made.why_not_static(shell, OTHER) == f"is not a 64-bit {OTHER.title} program"
    assert made.why_not_static(b"#!/bin/sh\n" * 10, X86) == "is not a 64-bit x86-64 program"


def test_tags_name_the_oldest_systems_of_the_processor() -> None:
    assert X86.tags == "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
    assert ARM.tags == "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64"


@pytest.fixture
def toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it, and no compiler unpacked."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}")
    monkeypatch.delenv("RUSTC", raising=False)
    monkeypatch.setattr(made, "UNPACKED", tmp_path / "cross" / "rustc")
    return programs


def program(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_another_processor_is_left_out_with_a_line_that_says_what_to_install(
    toolchain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own,) = made.wanted(None)
    assert own == (made.PROCESSORS[platform.machine()], {})
    (line,) = capsys.readouterr().err.splitlines()
    assert f"no wheel for {OTHER.name}" in line
    assert f"apt-get install {OTHER.compiler_package} libc6-dev-{OTHER.debian}-cross" in line
    with pytest.raises(SystemExit, match="is not installed: apt-get install"):
        made.wanted([OTHER.name])
    program(toolchain / OTHER.linker, "echo libc.a")
    with pytest.raises(SystemExit, match="has no static C library: apt-get install"):
        made.wanted([OTHER.name])
    program(toolchain / OTHER.linker, "echo /usr/lib/libc.a")
    with pytest.raises(SystemExit, match=rf"rustup target add {OTHER.rust}, or on Debian scripts/cross"):
        made.wanted([OTHER.name])


def test_a_compiler_with_the_standard_library_is_used_where_it_is(toolchain: Path, tmp_path: Path) -> None:
    program(toolchain / OTHER.linker, "echo /usr/lib/libc.a")
    library = tmp_path / "rustlib"
    program(toolchain / "rustc", f"echo {tmp_path / 'nothing'}")
    program(made.UNPACKED, f"echo {library}")
    with pytest.raises(SystemExit):  # both know the target, neither has anything for it
        made.wanted([OTHER.name])
    library.mkdir()
    (library / "libstd-0123.rlib").touch()
    linker = f"CARGO_TARGET_{OTHER.name.upper()}_UNKNOWN_LINUX_GNU_LINKER"
    assert made.wanted([OTHER.name]) == [(OTHER, {"RUSTC": str(made.UNPACKED), linker: OTHER.linker})]
    program(toolchain / "rustc", f"echo {library}")
    assert made.wanted([OTHER.name]) == [(OTHER, {"RUSTC": "rustc", linker: OTHER.linker})]
