"""A page as HTML: one file, no network request, one template, every captured text escaped.

The page carries a content security policy that allows exactly the scripts in it (by hash) and no connection, so
even text that slipped through could neither run nor call home. A page without a chart has no script at all.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from headrace import __version__
from headrace.show import text
from headrace.show.parts import Chart, Compare, Figure, Page, Part, Section, Switch, walk

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"

#: The chart library, which pages carry compressed: a third of its size.
LIBRARY = "vendored/plotly.min.js"


def render(page: Page) -> str:
    """The page as text."""
    opened = [_Opened(section, tuple(_parts(section))) for section in page.sections]
    # Parts with nothing to show here are for the terminal or for programs.
    sections = [each for each in opened if each.parts]
    every = list(walk(part for each in sections for part in each.parts))
    has_script = any(isinstance(part, Chart | Compare | Switch) for part in every)
    scripts = [_resource(__package__, path) for path in (LIBRARY, "page/page.js")] if has_script else []
    figures = _Figures()
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            sections=sections,
            place=figures.place,
            figures=figures.dumped,
            policy="; ".join([_POLICY, *_script_source(scripts)]),
            css=Markup(_resource(__package__, "page/page.css")),
            script=Markup(scripts[-1]) if scripts else "",
            library=_packed() if scripts else _NO_LIBRARY,
            version=__version__,
        )
    )


@dataclass(frozen=True)
class _Opened:
    """A section with its parts drawn."""

    section: Section
    parts: tuple[Part, ...]


def _parts(section: Section) -> Iterable[Part]:
    return section.parts() if callable(section.parts) else section.parts


def _script_source(scripts: Iterable[str]) -> list[str]:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return ["script-src " + " ".join(f"'sha256-{each}'" for each in hashes)] if hashes else []


@cache
def _environment() -> jinja2.Environment:
    found = environment(__package__, "page")
    found.filters |= {"css": _css_colour, "breakable": _breakable, "base64": _base64}
    return found


def environment(package: str, folder: str) -> jinja2.Environment:
    """Of a package's templates."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(package, folder),
        autoescape=True,
        # The only place where captured text is cleaned: everything except Markup. Autoescape then escapes it.
        finalize=lambda value: value if isinstance(value, Markup) else text.clean(value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["lines"] = _lines
    return found


def _css_colour(token: str) -> str:
    """``@{line1/0.5}`` as a CSS variable; the shade is dropped."""
    return f"var(--{token.strip('@{}').partition('/')[0]})"


def _breakable(captured: str) -> Markup:
    """A setting's name or value with sensible line-break points."""
    escaped = str(Markup.escape(text.clean(captured)))
    for mark in (",", ".", "_"):
        escaped = escaped.replace(mark, f"{mark}<wbr>")
    return Markup(escaped)


def _lines(captured: object) -> Markup:
    """Text whose lines stay lines, for ``<pre>``."""
    return Markup.escape(text.clean_lines(captured))


def _base64(content: str) -> str:
    return base64.b64encode(content.encode()).decode()


@dataclass(frozen=True)
class _Library:
    """The chart library in base64 of gzip, and whose it is, which its licence wants in every copy."""

    notice: Markup
    packed: Markup


_NO_LIBRARY = _Library(Markup(), Markup())


@cache
def _packed() -> _Library:
    source = _resource(__package__, LIBRARY)
    words = source.partition("*/")[0].removeprefix("/**").split("\n* ")
    packed = base64.b64encode(gzip.compress(source.encode(), mtime=0)).decode()
    return _Library(Markup(" ".join(words).strip()), Markup(packed))


@cache
def _resource(package: str, path: str) -> str:
    return resources.files(package).joinpath(path).read_text(encoding="utf-8")


class _Figures:
    """The page's figures by the id of their placeholder."""

    def __init__(self) -> None:
        self.dumped: dict[str, Markup] = {}

    def place(self, figure: Figure) -> dict[str, Any]:
        name = f"fig{len(self.dumped) + 1}"
        self.dumped[name] = Markup(dump(figure))
        return {"id": name, "height": int(figure["layout"]["height"])}


def dump(figure: Any) -> str:
    """A figure as JSON for a ``<script>`` element: no sequence in it can end the element or start a comment.

    plotly.js reads a subset of HTML in every text: everything except Markup is escaped for it as well.
    """
    dumped = json.dumps(_escaped(figure), separators=(",", ":"), allow_nan=False)
    return dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        cleaned = text.clean(value)
        return cleaned if isinstance(value, Markup) else html.escape(cleaned, quote=False)
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    # Long lists hold numbers.
    if isinstance(value, list | tuple) and any(not isinstance(each, float | int) for each in value):
        return [_escaped(each) for each in value]
    return value
