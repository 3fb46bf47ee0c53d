"""The command ``docs``: opens or searches the documentation site packed into the wheel."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import headrace
from headrace.base.errors import HeadraceError, NotReady
from headrace.cli.docs_search import Section, search
from headrace.cli.shell import app, print_json, stdout

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Built by `make docs` (mkdocs.yml names the same directory) and packed into the wheel.
SITE = Path(headrace.__file__).parent / "docs_site"

#: The pages as they are written, in a source tree where the site is not built: named and searched, not opened.
WRITTEN = Path(headrace.__file__).parents[2] / "docs"


@app.command(epilog="Example: headrace docs plans; headrace docs commit wait")
def docs(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAGE|WORD...]", help="A page or rule, such as plans or POOL01; or words to search for."
        ),
    ] = None,
    path: Annotated[
        bool, typer.Option("--path", help="Print the file's path instead of opening it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Open the documentation in a browser, or search it here. Works offline."""
    name = " ".join(words or ())
    is_written = not (SITE / "index.html").exists() and (WRITTEN / "index.md").exists()
    address = _page(name) if is_written else find(SITE, name)
    if address is None:
        sections = search(WRITTEN if is_written else SITE, name)
        if not sections:
            raise HeadraceError(
                "no page has that name, and no section has these words",
                place=name,
                hint="`headrace docs` opens the site; `headrace docs symptoms` begins with what you see",
            )
        if as_json:
            print_json({"words": name, "sections": [asdict(section) for section in sections]})
        else:
            stdout().print(results(sections))
    elif as_json:
        print_json({"page": address})
    else:
        typer.echo(address)
        if not path and not is_written:
            webbrowser.open(address if address.startswith("file:") else Path(address).as_uri())


def results(sections: Sequence[Section]) -> RenderableType:
    """A search's answer for a terminal."""
    from headrace.show import terminal
    from headrace.show.parts import Gap, Part, Sentence, Span

    parts: list[Part] = []
    for section in sections:
        title = "" if section.title == section.page else f" > {section.title}"
        parts += [
            Sentence([Span(f"{section.page}{title}", "strong")]),
            Sentence(section.excerpt, "aside"),
            Sentence(["headrace docs ", Span(_name(section.address), "code")]),
            Gap(),
        ]
    return terminal.show(parts[:-1])


def _name(address: str) -> str:
    """What opens an address: a rule by its code, a page by its path."""
    page, _, section = address.partition("#")
    if page.startswith("reference/rules/") and re.fullmatch(r"[a-z]+\d+", section):
        return section.upper()
    return page.removesuffix(".html").removesuffix("/index")


def _page(name: str) -> str | None:
    """A page as it is written, by its path or its last part; None if no page has that name."""
    wanted = (
        name.removesuffix(".html").removesuffix(".md").removeprefix("docs/").strip("/").lower() or "index"
    )
    pages = {
        each.relative_to(WRITTEN).with_suffix("").as_posix(): each for each in sorted(WRITTEN.rglob("*.md"))
    }
    found = pages.get(wanted) or next((path for path in pages.values() if path.stem == wanted), None)
    return str(found) if found else None


def find(site: Path, name: str) -> str | None:
    """The page's path, or the URL of its section if ``name`` is a rule code; None if no page has that name.

    Raises NotReady if the site is not built.
    """
    if not (site / "index.html").exists():
        raise NotReady(
            "the documentation is not built here",
            place=str(site),
            hint="in a source tree run `make docs`, or read docs/index.md there; wheels contain the site",
        )
    if not name:
        return str(site / "index.html")
    pages = sorted(each.relative_to(site).with_suffix("").as_posix() for each in site.rglob("*.html"))
    wanted = name.removesuffix(".html").removesuffix(".md").removeprefix("docs/").strip("/").lower()
    # The whole path, its last part, or a prefix of that: `tune` is howto/tune, `sweep` is explanation/sweeps.
    for fits in (
        lambda each: wanted in (each, each.rpartition("/")[2]),
        lambda each: each.endswith(f"{wanted}/index"),
        lambda each: each.rpartition("/")[2].startswith(wanted),
    ):
        if found := [each for each in pages if fits(each)]:
            return str(site / f"{found[0]}.html")
    for each in sorted((site / "reference" / "rules").glob("*.html")):
        if f'id="{wanted}"' in each.read_text(encoding="utf-8"):
            return f"{each.as_uri()}#{wanted}"
    return None
