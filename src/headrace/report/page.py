"""A page of parts: sentences, charts and tables in one dress, for every analysis that needs nothing of its own.

One file, no network request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace import __version__
from headrace.report import html
from headrace.report.parts import (
    MOST_ROWS,
    Cell,
    Chart,
    Key,
    Method,
    Note,
    Part,
    Row,
    Section,
    Sentences,
    Table,
)

__all__ = [
    "MOST_ROWS",
    "Cell",
    "Chart",
    "Key",
    "Method",
    "Note",
    "Page",
    "Part",
    "Row",
    "Section",
    "Sentences",
    "Table",
    "render",
]


@dataclass(frozen=True)
class Page:
    eyebrow: str
    title: str
    verdicts: Sequence[str]
    sections: Sequence[Section]
    lead: str = ""
    keys: Sequence[Key] = ()
    cautions: Sequence[str] = ()
    footer: str = ""
    figures: html.Figures = field(default_factory=html.Figures)


def render(page: Page) -> str:
    """The page as text."""
    scripts = [
        html._resource(__package__, "vendored/plotly.min.js"),
        html._resource(__package__, "templates/report.js"),
    ]
    hashes = " ".join(f"'sha256-{html._digest(s)}'" for s in scripts)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    context: Mapping[str, Any] = {
        "page": page,
        "place": page.figures.add,
        "csp": f"{policy}; script-src {hashes}",
        "css": html._resource(__package__, "templates/report.css"),
        "scripts": scripts,
        "version": __version__,
    }
    return html.environment().get_template("page.html").render(**context)
