"""Files that were packed one by one (.gz, .bz2, .xz, .zst), within a bound: a small file may hold any amount."""

from __future__ import annotations

import bz2
import io
import lzma
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.base.errors import PlanError

#: A log or a table of this size is packed into a few MiB.
MOST_BYTES = 32 << 20
#: Logs that were rotated and joined; each may hold nothing.
MOST_PARTS = 1000
_MOST_MEMORY = 64 << 20
_STEP = 1 << 20
#: Where a tar archive says that it is one.
_TAR_AT = 257
#: First bytes -> the program's name, and what unpacks one part of such a file.
_KINDS: dict[bytes, tuple[str, Callable[[], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ": ("xz", lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY)),
}
_ZSTD = b"\x28\xb5\x2f\xfd"


def unpacked(content: bytes, path: Path) -> bytes:
    """What is in it, or the content itself if it is not packed. Raises PlanError for archives, and for
    what is cut off or too large.
    """
    if content.startswith(_ZSTD):
        name, plain = "zstd", _of_zstd(content, path)
    elif kind := next((each for magic, each in _KINDS.items() if content.startswith(magic)), None):
        name, plain = kind[0], _parts(kind[1], content, kind[0], path)
    else:
        name, plain = "", content
    if name and plain.startswith((_ZSTD, *_KINDS)):
        hint = f"unpack it until it is text: {name} -dc {shlex.quote(str(path))}"
        raise PlanError("packed more than once", place=str(path), hint=hint)
    # A spreadsheet is a ZIP archive of known names.
    if (
        plain.startswith(b"PK\x03\x04")
        and b"[Content_Types].xml" not in plain
        and b"content.xml" not in plain
    ):
        raise PlanError(
            "a ZIP archive",
            place=str(path),
            hint=f"unzip {shlex.quote(str(path))}, then name the files in it",
        )
    if plain[_TAR_AT:].startswith(b"ustar"):
        raise PlanError(
            "a tar archive",
            place=str(path),
            hint=f"tar -xf {shlex.quote(str(path))}, then name the files in it",
        )
    if name and len(plain) > MOST_BYTES:
        raise PlanError(
            f"larger than {MOST_BYTES >> 20} MiB when it is unpacked",
            place=str(path),
            hint=f"{name} -dk {shlex.quote(str(path))}, then name what it wrote",
        )
    return plain


def _parts(opens: Callable[[], Any], content: bytes, name: str, path: Path) -> bytes:
    """Several packed files may stand one after the other."""
    plain = bytearray()
    for _ in range(MOST_PARTS):
        if not content.strip(b"\0"):
            return bytes(plain)
        part = opens()
        try:
            given = content
            while not part.eof and len(plain) <= MOST_BYTES:
                more = part.decompress(given, _STEP)
                # zlib hands back what it has not taken; the others keep it.
                given = getattr(part, "unconsumed_tail", b"")
                plain += more
                if not more and not given and not part.eof:
                    raise EOFError
        except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
            raise _damaged(name, path) from error
        content = part.unused_data if part.eof else b""
    raise PlanError(f"more than {MOST_PARTS} files packed one after the other", place=str(path))


def _of_zstd(content: bytes, path: Path) -> bytes:
    import pyarrow as pa

    plain = bytearray()
    try:
        with pa.CompressedInputStream(io.BytesIO(content), "zstd") as stream:
            while len(plain) <= MOST_BYTES and (more := stream.read(_STEP)):
                plain += more
    except (OSError, pa.ArrowException) as error:
        raise _damaged("zstd", path) from error
    return bytes(plain)


def _damaged(name: str, path: Path) -> PlanError:
    return PlanError(f"its {name} is cut off or damaged", place=str(path), hint="copy it again")
