"""Another program on this machine: a web server on another port that keeps all that browsers send to it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Stranger:
    url: str = ""
    #: What it answers each request with.
    page: str = ""
    #: Sent with each answer.
    cookies: tuple[str, ...] = ()
    #: Path and query, and the cookies, of each request.
    received: list[tuple[str, str]] = field(default_factory=list)


@contextlib.contextmanager
def stranger(port: int = 0) -> Iterator[Stranger]:
    found = Stranger()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.received.append((self.path, self.headers.get("cookie", "")))
            body = found.page.encode()
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            for each in found.cookies:
                self.send_header("set-cookie", each)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """In silence."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
