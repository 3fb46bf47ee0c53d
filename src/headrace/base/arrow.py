"""Arrow as this program needs it."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return None


def without_pandas() -> None:
    """Keep Arrow from importing pandas, where that is installed.

    It does so to make its first array of Python's objects, and asks only once: 30 to 70 MB and a second of CPU,
    for a library that nothing here uses. For whole programs only: afterwards no table of this process becomes a
    data frame.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
