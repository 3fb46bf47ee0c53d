"""A page as headless Chromium sees it: console, network and screenshots, over the DevTools pipe.

Chromium reads commands from descriptor 3 and answers on 4, each message ended by a zero byte; so there is no
port to guess and nothing to install.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--force-device-scale-factor=1", "--remote-debugging-pipe",
    # Timers and frames of a tab that nobody looks at are held back.
    "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
)  # fmt: skip

#: A page that has not answered by then is stuck.
TIMEOUT_S = 60.0


def chromium_path() -> str | None:
    return shutil.which("chromium")


@dataclass
class Seen:
    """What a page did. ``errors``: console errors, exceptions, and what the browser itself logged as an error."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def network(self) -> list[str]:
        """Requests that left the machine's files."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]


class Page:
    """One tab."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._buffer = b""
        self._sent = 0
        self._session: str | None = None
        self._context = ""
        self._events: list[dict[str, Any]] = []
        self.seen = Seen()

    def attach(self) -> None:
        self._context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=self._context)[
            "targetId"
        ]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._session = None
        self.call("Target.disposeBrowserContext", browserContextId=self._context)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._sent:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _read(self, deadline: float) -> dict[str, Any]:
        """The next message; events are noted on the way."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._answers, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("Chromium does not answer")
            self._buffer += chunk
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        # What a closed tab still said is not this one's.
        if "method" in message and message.get("sessionId") == self._session:
            self._events.append(message)
            self._note(message["method"], message["params"])
        return message

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.seen.requests.append(parameters["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.seen.requests.append(parameters["url"])
        elif method == "Runtime.exceptionThrown":
            self.seen.errors.append(json.dumps(parameters["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert", "warning"):
            self.seen.errors.append(json.dumps(parameters["args"])[:2000])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.seen.errors.append(json.dumps(parameters["entry"])[:2000])

    def look(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Set the window and the scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, place: Path | str) -> None:
        """Load a file, or an address, and wait until it is loaded."""
        self._events.clear()
        self.call("Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri())
        deadline = time.monotonic() + TIMEOUT_S
        while not any(e["method"] == "Page.loadEventFired" for e in self._events):
            self._read(deadline)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def scroll_through(self) -> None:
        """To the end and back, so that everything that is drawn when it comes near is drawn."""
        self.evaluate(
            """(async () => {
                const pause = () => new Promise((done) => setTimeout(done, 60));
                const isSeen = (box) => box.width && box.top < innerHeight && box.bottom > 0;
                const isEmpty = (plot) => isSeen(plot.getBoundingClientRect()) && !plot.querySelector('svg');
                const plots = [...document.querySelectorAll('.plot')];
                const rest = async () => {
                    await pause();
                    for (let n = 0; n < 100 && plots.some(isEmpty); n++) await pause();
                };
                for (let y = 0; y < document.body.scrollHeight; y += 700) { scrollTo(0, y); await rest(); }
                scrollTo(0, 0); await rest();
            })()"""
        )

    def screenshot(self, path: Path, top: int = 0, height: int | None = None, width: int = 1280) -> None:
        """A part of the page, ``top`` and ``height`` in CSS pixels; the whole page without ``height``."""
        whole = int(self.evaluate("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": top, "width": width, "height": min(height or whole, whole - top), "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


class _Browser:
    """A process of Chromium, with a profile of its own."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="headrace-browser-")
        from_us, self.commands = os.pipe()
        self.answers, to_us = os.pipe()
        # A shell puts the pipes where Chromium looks for them; Python passes descriptors only by number.
        script = f'exec "$0" "$@" 3<&{from_us} 4>&{to_us}'
        argv = ["bash", "-c", script, program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(
            argv, pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(from_us)
        os.close(to_us)

    def close(self) -> None:
        os.close(self.commands)
        os.close(self.answers)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


#: Idle browsers. Starting one takes as long as most pages.
_idle: list[_Browser] = []


@atexit.register
def _close_idle() -> None:
    while _idle:
        _idle.pop().close()


@contextmanager
def page() -> Iterator[Page]:
    """One tab; nothing of earlier ones is left: no cookie, no cache, no storage."""
    program = chromium_path()
    if program is None:
        raise FileNotFoundError("chromium")
    browser = _idle.pop() if _idle else _Browser(program)
    try:
        tab = Page(browser.commands, browser.answers)
        tab.attach()
        yield tab
        tab.close()
    except BaseException:
        # Whatever state it is in, no other test meets it.
        browser.close()
        raise
    _idle.append(browser)


def assert_drawn(path: Path) -> None:
    """A page fits a wide window and a narrow one, all its charts are drawn, nothing fails, nothing is fetched."""
    with page() as tab:
        for width, dark in ((1280, False), (400, True)):
            tab.look(width, 900, dark=dark)
            tab.open(path)
            tab.scroll_through()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            undrawn = "[...document.querySelectorAll('.plot')].filter(p => !p.dataset.drawn).length"
            assert tab.evaluate(undrawn) == 0
            assert tab.evaluate("document.querySelectorAll('.plot').length") > 0
        assert tab.seen.errors == []
        assert tab.seen.network == []
