"""Clients that are silent, or slow, do not keep others out."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.web import app, guard
from tests.history import site
from tests.served import on_loopback

LIMIT_S = 0.5


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(app, "HEADERS_S", LIMIT_S)
    monkeypatch.setattr(guard, "BODY_S", LIMIT_S)
    with on_loopback(app.application(site(tmp_path))) as (url, _):
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        yield parts.hostname, parts.port


def read_to_end(client: socket.socket) -> bytes:
    """Until the server closes it."""
    found = b""
    client.settimeout(60)
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            found += part
    return found


@pytest.mark.parametrize("sent", [b"", b"GET /login HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_a_connection_without_a_request_is_closed(address: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(address) as client:
        client.sendall(sent)
        assert read_to_end(client) == b""


def test_one_that_waits_between_requests_is_closed_too(address: tuple[str, int]) -> None:
    request = b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(address) as client:
        client.sendall(request)
        assert client.recv(12) == b"HTTP/1.1 200"
        time.sleep(LIMIT_S / 5)
        client.sendall(request + request[:20])
        assert read_to_end(client).count(b"HTTP/1.1 200") == 1


def test_a_form_that_never_ends_is_refused(address: tuple[str, int]) -> None:
    head = "POST /login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 1000\r\n"
    with socket.create_connection(address) as client:
        client.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\nname=".encode())
        answer = read_to_end(client)
    assert answer.startswith(b"HTTP/1.1 408"), answer[:200]
