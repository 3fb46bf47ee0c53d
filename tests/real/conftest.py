"""What holds for every test on a real server, host or machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench import Bench, benches


@pytest.fixture(scope="module", autouse=True)
def disturbed() -> Iterator[None]:
    """Other tests run beside these, and other guests beside this machine: that is no matter of most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_DISTURBED", "keep")
        yield


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[str], Bench]]:
    with benches(tmp_path) as make:
        yield make
