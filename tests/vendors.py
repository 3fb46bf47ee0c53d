"""Which servers a fixture is made of where each costs minutes."""

from __future__ import annotations

import pytest

from tests.servers import KINDS

#: One of each vendor; the others in `make torture`.
OF_EACH_VENDOR = tuple(
    pytest.param(kind, marks=() if kind in ("mariadb-10.11", "mysql-8.0") else pytest.mark.thorough)
    for kind in KINDS
)
