"""Packages that only some commands need, and the extra that brings each: ``pip install 'headrace[tune]'``.

Examining hosts needs neither Arrow nor SciPy. A command that needs such a package imports it as usual; the command
line turns the failure into ``missing``. If the import comes late, after changes to a host, ``require`` is called
first.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from headrace.base.errors import NotReady

#: Package -> extra, as in pyproject.toml.
EXTRAS: Mapping[str, str] = {
    "duckdb": "analysis",
    "pyarrow": "analysis",
    "pydoe": "analysis",
    "ruptures": "analysis",
    "scipy": "analysis",
    "pymysql": "indexes",
    "sqlglot": "indexes",
    "optuna": "tune",
    "torch": "gp",
    "ortools": "size",
    "ray": "cluster",
    "python_calamine": "sheets",
    "yaml": "fleet",
    "apprise": "tell",
    "mcp": "mcp",
    "authlib": "oidc",
    "httpx2": "oidc",
    "joserfc": "oidc",
    "argon2": "web",
    "itsdangerous": "web",
    "sse_starlette": "web",
    "starlette": "web",
    "uvicorn": "web",
}


def missing(package: str) -> NotReady | None:
    """The error for a package that belongs to an extra; None for any other."""
    name = package.partition(".")[0]
    if name not in EXTRAS:
        return None
    return NotReady(
        f"this needs {name}, which is not installed", hint=f"pip install 'headrace[{EXTRAS[name]}]'"
    )


def is_missing(package: str) -> bool:
    """Fast, because the package is not imported."""
    return importlib.util.find_spec(package) is None


def require(package: str) -> None:
    """Raise NotReady unless the package is installed."""
    if is_missing(package) and (error := missing(package)):
        raise error


def require_all(extra: str) -> None:
    """Raise NotReady unless every package of the extra is installed."""
    for package, brought_by in EXTRAS.items():
        if brought_by == extra:
            require(package)
