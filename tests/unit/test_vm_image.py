"""The root image: what a user without root hears if this machine lets them build none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import CommandFailed, NotReady
from headrace.host.target import Completed
from headrace.lab.vm import image


class FailingHost:
    """Its mmdebstrap ends with these words."""

    def __init__(self, words: str) -> None:
        self.words = words

    async def run(self, argv: list[str], **_: Any) -> Completed:
        return Completed(tuple(argv), 0, b"", b"")

    async def spawn(self, *_: Any, **__: Any) -> FailingHost:
        return self

    async def wait(self, _: float) -> int:
        return 25

    async def signal(self, _: str) -> None:
        """It has ended."""

    async def error_text(self) -> str:
        return self.words


@pytest.mark.parametrize(
    "words",
    [
        "E: unable to pick chroot mode automatically (use --mode for manual selection)",
        "W: user has no subuid range in /etc/subuid",
        "E: newuidmap failed",
    ],
)
def test_a_user_who_cannot_build_it_hears_what_is_missing(words: str) -> None:
    host: Any = FailingHost(words)
    with pytest.raises(NotReady) as raised:
        asyncio.run(image._bootstrap(host, Path("/nowhere")))
    assert "uidmap" in str(raised.value.hint)
    assert "/etc/subuid" in str(raised.value.hint)


def test_other_ends_of_mmdebstrap_point_at_the_mirror() -> None:
    host: Any = FailingHost("E: apt-get update failed: could not resolve deb.debian.org")
    with pytest.raises(CommandFailed) as raised:
        asyncio.run(image._bootstrap(host, Path("/nowhere")))
    assert "mirror" in str(raised.value.hint)
