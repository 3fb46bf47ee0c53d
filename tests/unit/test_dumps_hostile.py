"""Archives and folders that were made to harm whoever reads them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import StoreError
from headrace.hunt import hunt as hunts
from headrace.hunt.dumps import archives, files
from headrace.hunt.dumps.hosts import text_of


def leading_out(archive: tarfile.TarFile, outside: Path) -> None:
    """Through links to folders whose names are as long as may be, so that the path is longer than may be."""
    path, short = "", "/".join("abcdefghijklmnop")
    for name in short.split("/"):
        add(archive, f"{path}{'d' * 247}", tarfile.DIRTYPE)
        add(archive, f"{path}{name}", tarfile.SYMTYPE, "d" * 247)
        path += "d" * 247 + "/"
    long = f"{short}/{'l' * 254}"
    add(archive, long, tarfile.SYMTYPE, "../" * 16)
    add(archive, "out", tarfile.SYMTYPE, f"{long}/{'../' * 20}{outside}")
    add(archive, "out/planted", tarfile.REGTYPE)


def add(archive: tarfile.TarFile, name: str, kind: bytes, link: str = "", size: int = 0) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, size
    archive.addfile(member, None if size else io.BytesIO())


def test_no_link_of_an_archive_is_written_through(tmp_path: Path) -> None:
    outside, own = tmp_path / "outside", tmp_path / "own"
    outside.mkdir()
    (outside / "uptime").write_text("secret")
    own.mkdir()
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        leading_out(archive, outside)
        add(archive, "sys/devices/sda/size", tarfile.REGTYPE)
        add(archive, "sys/block/sda", tarfile.SYMTYPE, "../devices/sda")
        add(archive, "again", tarfile.SYMTYPE, "sys/block")
        add(archive, "proc", tarfile.SYMTYPE, f"/{'../' * 20}{outside}")
    with archives.tar(tmp_path / "x.tar") as read:
        assert read is not None
        archives.unpack(read, "x.tar", own)
    assert [each.name for each in outside.iterdir()] == ["uptime"]
    assert (own / "again/sda/size").is_file(), "links inside are kept"
    assert not (own / "proc").exists()
    (own / "proc").symlink_to(outside)
    assert text_of(own, "proc/uptime") is None, "nor does a link of a folder lead out"


def test_a_small_file_that_becomes_a_large_one_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        header = tarfile.TarInfo("x")
        header.type, header.size = kind, 3 << 30
        ways: tuple[Any, ...] = (gzip.open, bz2.open, lzma.open)
        for opens in ways:
            with opens(tmp_path / "x.tar.packed", "wb") as file:
                file.write(header.tobuf(tarfile.USTAR_FORMAT) + b"a" * 4096)
            with archives.tar(tmp_path / "x.tar.packed") as archive:
                assert archive is None
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 256 << 20}]
    with lzma.open(tmp_path / "x.tar.xz", "wb", filters=filters) as file:
        file.write(tarfile.TarInfo("x").tobuf())
    with pytest.raises(StoreError, match="Memory"):
        hunts.saved(tmp_path / "x.tar.xz")
    monkeypatch.setattr(files, "UNPACKED_BYTES", 1 << 20)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(("\U0001f600" + "a" * (300 << 10)).encode()))
    found = files.opened(folder, tmp_path)
    assert len(found.texts) == 1, "a character beyond 16 bits makes four bytes of each"
    assert all("together" in why for why in found.skipped.values())
