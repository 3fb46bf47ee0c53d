"""What several files of unit tests share: reports that are written once, and a disk that is not waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.written import HOSTILE, LADDER, Written

if TYPE_CHECKING:
    from headrace.history.archive.files import Archive


@pytest.fixture(scope="session")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("report") / "ladder", LADDER)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("report") / "hostile", HOSTILE)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A history with nothing in it."""
    from headrace.history.archive.files import Archive

    empty = Archive(tmp_path / "history")
    empty.create()
    return empty


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of files on a busy disk: no machine dies in these tests."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def own_predictions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands of ``size`` keep what they predict: not with those of the person who runs the tests."""
    if request.path.name.startswith("test_size"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
