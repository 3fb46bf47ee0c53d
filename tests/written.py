"""Generated experiments with their reports written, and how a page and a terminal show them."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.experiment import report
from headrace.experiment.report.page import page_of
from headrace.experiment.report.view import View
from headrace.experiment.stats.study import analyse_experiment
from headrace.show import terminal
from tests import synthetic

LADDER = synthetic.Shape(
    invalid={9: "an array was resyncing"},
    failed={14: "the server did not start: unknown variable"},
    warnings={3: "no steady state", 4: "no steady state"},
    gap_trial=2,
    reset_trial=1,
)
HOSTILE = synthetic.Shape(
    effects={synthetic.HOSTILE: 1.0, f"{synthetic.HOSTILE}2": 1.3},
    blocks=3,
    seconds=8,
    invalid={2: synthetic.HOSTILE},
    failed={4: synthetic.HOSTILE},
    warnings={1: synthetic.HOSTILE},
    description=synthetic.HOSTILE,
    hostname=synthetic.HOSTILE,
)


class Written:
    """An experiment with its report written."""

    def __init__(self, path: Path, shape: synthetic.Shape) -> None:
        self.folder = synthetic.make(path, shape)
        self.analysis = analyse_experiment(self.folder)
        self.report = page_of(View(self.folder, self.analysis))
        self.page = report.write(self.report, self.folder)
        self.html = self.page.read_text(encoding="utf-8")
        self.json = json.loads((path / "report.json").read_text())


class Outline(HTMLParser):
    """A page's elements, its text, and the content of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.in_script = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.in_script = True
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.in_script = self.in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self.in_script:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def figures(self) -> dict[str, Any]:
        return {
            str(a["id"]): json.loads(content)
            for a, content in self.scripts
            if a.get("type") == "application/json"
        }

    def code(self) -> list[str]:
        """What runs: the chart library, which the page has compressed, and the script that unpacks and uses it."""
        packed = [base64.b64decode(content) for a, content in self.scripts if a.get("id") == "library"]
        return [gzip.decompress(each).decode() for each in packed] + [
            content for a, content in self.scripts if not a.get("type")
        ]


def shown(written: Written, width: int, *, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, no_color=not colour)
    console.print(terminal.render(written.report))
    return out.getvalue()


def printed(*parts: Any, width: int = 300) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, no_color=True)
    for part in parts:
        console.print(part)
    # What rich itself sends (bold, dim) is none of ours.
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


def assert_harmless(out: str) -> None:
    assert "[bold red]x[/]" in out
    assert "\\x1b[31mred\\x07" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
