"""scripts/wheels.py as a module: what `make wheel` asks and how it decides."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.folders import ROOT


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "scripts" / "wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["wheels"] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module
