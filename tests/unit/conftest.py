"""Reports that several files read: written once."""

from __future__ import annotations

import pytest

from tests.written import HOSTILE, LADDER, Written


@pytest.fixture(scope="session")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("report") / "ladder", LADDER)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("report") / "hostile", HOSTILE)
