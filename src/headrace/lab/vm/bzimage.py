"""The content of an x86 kernel file: its release, and the plain kernel inside
(Documentation/arch/x86/boot.rst).
"""

from __future__ import annotations

import lzma
import struct
import zlib

import zstandard

__all__ = ["direct_image", "release_of"]

#: No kernel is larger; a file that claims to be is damaged.
MOST_BYTES = 512 << 20
LZ4_BLOCK_BYTES = 8 << 20
ELF_NOTE = 4
XEN_PHYS32_ENTRY = 18


def release_of(content: bytes) -> str | None:
    """``6.12.43-cloud-amd64``, as printed by ``uname -r``; None if this is not a bzImage."""
    if content[0x202:0x206] != b"HdrS":
        return None
    (offset,) = struct.unpack_from("<H", content, 0x20E)
    text = content[offset + 0x200 : offset + 0x200 + 256].split(b"\0")[0].decode("ascii", "replace")
    return text.split()[0] if text.split() else None


def direct_image(content: bytes) -> bytes | None:
    """The ELF kernel inside, if QEMU can enter it directly (PVH), else None.

    This avoids unpacking in the guest, which takes an emulated CPU seconds at every boot.
    """
    try:
        elf = _unpacked(content)
        return elf if elf is not None and _has_pvh_entry(elf) else None
    # An offset of 64 bits can be too large for struct.
    except (struct.error, ValueError, OverflowError, lzma.LZMAError, zlib.error, zstandard.ZstdError):
        return None


def _unpacked(content: bytes) -> bytes | None:
    if release_of(content) is None:
        return None
    sectors = content[0x1F1] or 4
    offset, length = struct.unpack_from("<II", content, 0x248)
    start = (sectors + 1) * 512 + offset
    payload = content[start : start + length]
    if len(payload) != length or length < 8:
        return None
    # All except gzip store their unpacked size in the last 4 bytes.
    (size,) = struct.unpack_from("<I", payload, length - 4)
    if not 0 < size <= MOST_BYTES:
        return None
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(payload, MOST_BYTES)
    if payload.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
        return lzma.LZMADecompressor().decompress(payload, MOST_BYTES)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.ZstdDecompressor().stream_reader(payload).read(MOST_BYTES)
    if payload.startswith(b"\x02\x21\x4c\x18"):
        return _from_lz4(payload[4:-4], size)
    return None


def _from_lz4(blocks: bytes, size: int) -> bytes:
    """The format of `lz4 -l`: blocks of 8 MiB, each after its packed size."""
    import pyarrow

    codec = pyarrow.Codec("lz4_raw")
    parts: list[bytes] = []
    position = 0
    while position < len(blocks):
        (length,) = struct.unpack_from("<I", blocks, position)
        block = blocks[position + 4 : position + 4 + length]
        unpacked = min(LZ4_BLOCK_BYTES, size - len(parts) * LZ4_BLOCK_BYTES)
        if len(block) != length or unpacked <= 0:
            raise ValueError("a block is cut off")
        try:
            parts.append(codec.decompress(block, decompressed_size=unpacked, asbytes=True))
        except OSError as error:
            raise ValueError("a block is damaged") from error
        position += 4 + length
    return b"".join(parts)


def _has_pvh_entry(elf: bytes) -> bool:
    """Whether a note of the program headers names the 32-bit entry (include/xen/interface/elfnote.h)."""
    if elf[:5] != b"\x7fELF\x02":
        return False
    (table,) = struct.unpack_from("<Q", elf, 0x20)
    entry_bytes, entries = struct.unpack_from("<HH", elf, 0x36)
    for number in range(entries):
        header = table + number * entry_bytes
        (kind,) = struct.unpack_from("<I", elf, header)
        (start,) = struct.unpack_from("<Q", elf, header + 8)
        (length,) = struct.unpack_from("<Q", elf, header + 32)
        if kind == ELF_NOTE and _names_entry(elf[start : start + min(length, 1 << 20)]):
            return True
    return False


def _names_entry(notes: bytes) -> bool:
    position = 0
    while position + 12 <= len(notes):
        name_bytes, value_bytes, kind = struct.unpack_from("<III", notes, position)
        if kind == XEN_PHYS32_ENTRY and notes[position + 12 : position + 15] == b"Xen":
            return True
        position += 12 + (name_bytes + 3) // 4 * 4 + (value_bytes + 3) // 4 * 4
    return False
