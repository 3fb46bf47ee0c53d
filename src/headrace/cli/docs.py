"""The documentation on this machine: a site of plain files that travels in the wheel."""

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
        str, typer.Argument(metavar="[PAGE]", help="A page by name, such as plans or POOL01.")
    ] = "",
    path: Annotated[bool, typer.Option("--path", help="Print the file's path and open nothing.")] = False,
) -> None:
    """Open the documentation in a browser. It needs no network."""
    address = find(SITE, page)
    typer.echo(address)
    if not path:
        webbrowser.open(address if address.startswith("file:") else Path(address).as_uri())


def find(site: Path, name: str) -> str:
    """The page's path; the URL of its section where ``name`` is the code of a rule.

    Raises NotReady where the site is not built, HeadraceError where no page has that name.
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
    # The whole path, its last part, or how that begins: `tune` is howto/tune, `sweep` is explanation/sweeps.
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
    raise HeadraceError(
        "no such page", place=name, hint="`headrace docs` opens the list; its search finds words"
    )
