"""What the tests on real servers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Server, open_folder


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture(params=["maria", "oracle"])
def server(request: pytest.FixtureRequest) -> Server:
    """Both vendors in turn: the module's fixtures ``maria`` and ``oracle``."""
    found: Server = request.getfixturevalue(request.param)
    return found
