"""The copy of the history in a store that speaks S3: a small one of the test's own, for PyArrow's real client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from headrace.base.errors import StoreError
from headrace.history.archive.files import Archive
from headrace.history.archive.mirror import Mirror
from tests.weeks import fill_days, is_right

pytestmark = pytest.mark.usefixtures("quick_disk")


class _S3(BaseHTTPRequestHandler):
    """One bucket, ``hist``. Uploads in several parts are refused."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    asked: list[str]

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, content: bytes = b"", **more: str) -> None:
        self.send_response(status)
        length = more.pop("length", str(len(content)))
        for name, value in {"Content-Length": length, **more}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _path(self) -> tuple[str, str]:
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        self.asked.append(f"{self.command} {self.path}")
        return bucket, key

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def do_PUT(self) -> None:
        _, key = self._path()
        content = self._body()
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            size, _, rest = content.partition(b"\r\n")
            content = rest[: int(size.split(b";")[0], 16)]
        self.objects[key] = content
        self._answer(200, ETag='"1"')

    def do_POST(self) -> None:
        self._path()
        self._body()
        self._error("NotImplemented", 501)

    def do_DELETE(self) -> None:
        self.objects.pop(self._path()[1], None)
        self._answer(204)

    def do_HEAD(self) -> None:
        bucket, key = self._path()
        if bucket != "hist" or (key and key not in self.objects):
            self._answer(404)
            return
        self._answer(200, ETag='"1"', length=str(len(self.objects.get(key, b""))))

    def do_GET(self) -> None:
        bucket, key = self._path()
        if bucket != "hist":
            self._error("NoSuchBucket", 404)
        elif not key:
            prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
            rows = "".join(
                f"<Contents><Key>{escape(name)}</Key><Size>{len(content)}</Size>"
                "<LastModified>2026-11-01T00:00:00.000Z</LastModified></Contents>"
                for name, content in sorted(self.objects.items())
                if name.startswith(prefix)
            )
            self._answer(200, f"<ListBucketResult>{rows}</ListBucketResult>".encode())
        elif key not in self.objects:
            self._error("NoSuchKey", 404)
        else:
            content = self.objects[key]
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            piece = content[int(first) : int(last or len(content)) + 1]
            self._answer(206, piece, Content_Range=f"bytes {first}-{last}/{len(content)}")

    def _error(self, code: str, status: int) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


class Store:
    def __init__(self, port: int, handler: type[_S3]) -> None:
        self.port, self.objects, self.asked = port, handler.objects, handler.asked

    def address(self, path: str) -> str:
        return f"s3://{path}?scheme=http&endpoint_override=127.0.0.1:{self.port}&region=us-east-1"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    handler = type("Handler", (_S3,), {"objects": {}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Store(server.server_port, handler)
    server.shutdown()
    server.server_close()
    thread.join()


def empty(folder: Path) -> Archive:
    found = Archive(folder)
    found.create()
    return found


def test_an_object_takes_one_request(archive: Archive, s3: Store, tmp_path: Path) -> None:
    """Not three, of which the first leaves something that is paid for if the last never comes."""
    fill_days(archive, 2)
    assert Mirror(archive, s3.address("hist/db")).copy() == 6
    assert not [each for each in s3.asked if "uploads" in each]
    new = empty(tmp_path / "new")
    assert Mirror(new, s3.address("hist/db")).restore() == 6
    is_right(new, 2)


def test_a_bucket_that_does_not_exist_is_not_one_without_a_history(s3: Store, tmp_path: Path) -> None:
    """An empty directory would have begun a new history, as if nothing had been copied."""
    with pytest.raises(StoreError, match="no such bucket"):
        Mirror(empty(tmp_path / "new"), s3.address("hits/db")).restore()
    assert Mirror(empty(tmp_path / "other"), s3.address("hist/db")).restore() == 0
