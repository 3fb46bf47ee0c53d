"""What holds for every test: what needs root or a program that is not here is skipped with one line."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root: loop devices, mounts, kernel settings")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)
