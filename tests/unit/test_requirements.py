"""The locked requirements install on the oldest system that is promised."""

from __future__ import annotations

import importlib.metadata
import re

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.folders import ROOT

#: Debian 12's python3. A lock is resolved for the Python that resolves it, unless that is said.
DEBIAN_12 = "3.11.2"


def test_every_locked_package_takes_debian_12s_python() -> None:
    lines = [(ROOT / name).read_text() for name in ("requirements.txt", "requirements-uv.txt")]
    locked = set(re.findall(r"^([\w.-]+)==", "\n".join(lines), re.MULTILINE))
    seen, refusing = set(), {}
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.name)
        if name not in locked:
            continue
        seen.add(name)
        needed = distribution.metadata["Requires-Python"]
        if needed and DEBIAN_12 not in SpecifierSet(needed):
            refusing[f"{name} {distribution.version}"] = needed
    assert len(seen) > len(locked) / 2
    assert refusing == {}


def test_the_lock_is_renewed_for_that_python() -> None:
    assert f"--python-version {DEBIAN_12} " in (ROOT / "Makefile").read_text()
