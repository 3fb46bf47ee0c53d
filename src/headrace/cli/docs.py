"""The command ``docs``: opens the documentation site packed into the wheel."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

import headrace
from headrace.cli.shell import app
from headrace.errors import HeadraceError, NotReady

#: Built by `make docs` (mkdocs.yml names the same directory) and packed into the wheel.
SITE = Path(headrace.__file__).parent / "docs_site"


@app.command(epilog="Example: headrace docs plans")
def docs(
    page: Annotated[
        str, typer.Argument(metavar="[PAGE]", help="Name of a page or rule, such as plans or POOL01.")
    ] = "",
    path: Annotated[
        bool, typer.Option("--path", help="Print the file's path instead of opening it.")
    ] = False,
) -> None:
    """Open the documentation in a browser. Works offline."""
    address = find(SITE, page)
    typer.echo(address)
    if not path:
        webbrowser.open(address if address.startswith("file:") else Path(address).as_uri())


def find(site: Path, name: str) -> str:
    """The page's path, or the URL of its section if ``name`` is a rule code.

    Raises NotReady if the site is not built, HeadraceError if no page has that name.
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
    raise HeadraceError("no such page", place=name, hint="`headrace docs` opens the site, which has a search")
