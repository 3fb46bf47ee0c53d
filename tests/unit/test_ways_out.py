"""What others wrote leaves by doors that clean it, and by no other: terminal, log, HTML, MCP, chats, tables.

Each rule is a function of a source, and is shown to find what it forbids.
"""

from __future__ import annotations

import ast
import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.cli.log import CleanLines, log_cleanly
from headrace.cli.screen import Screen
from headrace.show.notice import Conclusion, Notice
from headrace.show.text import clean
from headrace.tell import words
from headrace.web.listing import Column, Listing
from tests.folders import ROOT

SOURCE = ROOT / "src" / "headrace"
HOSTILE = "a\x1b]0;owned\x07\x9b2J\u202eb\r\x08[link=https://evil][red]c\x7f"

#: File: function that writes text by itself -> why it may.
WRITERS = {
    "cli/__init__.py: main": "the version",
    "change/commands/changes.py: _asks_and_counts_down": "a literal and a number",
    "hunt/commands/collect.py: collect": "a script of ours",
    "cli/docs.py: docs": "a path of ours",
    "fleet/command.py: _print_json": "JSON, in which control characters are escaped",
    "change/commands/forms.py: print_form": "a patch, to be applied as it is",
    "experiment/commands/experiments.py: plan_list": "examples of ours",
    "experiment/commands/experiments.py: plan_print": "a plan, to be edited as it is",
    "cli/shell.py: _version": "the version",
    "experiment/foreign/cells.py: main": "JSON for the program that started it, which bounds it",
    "cli/shell.py: print_json": "JSON, in which control characters are escaped",
    "host/memcached/ask.py: main": "JSON of another host, which the reader bounds",
    "host/memcached/probe.py: main": "an error's name for the program that started it",
    "host/memcached/probe.py: line": "JSON for the program that started it, which bounds it",
    "tell/markdown.py: _print": "escaped by `content`",
}
#: File: function that makes a page or an answer of a string itself -> why it may.
ANSWERS = {
    "mcp/server.py: checked": "`untrusted`, as JSON",
}
#: ``Markup`` of something that is not a literal: file: function -> why it is ours.
MARKUP = {
    "traffic/report/charts.py: distribution": "numbers, and names of ours",
    "traffic/report/charts.py: sparkline": "numbers",
    "show/html.py: render": "our style sheet and script",
    "show/html.py: _breakable": "escaped in the line before",
    "show/html.py: _packed": "the library, as base64",
    "show/html.py: place": "`dump` escapes",
}


Calls = Iterable[tuple[str, ast.Call]]


def functions(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Each call, with the innermost function that it is in."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else name
            if isinstance(child, ast.Call):
                yield name, child
            yield from walk(child, inner)

    yield from walk(tree, "")


def writers(made: Calls) -> Iterator[str]:
    """Text that is written past the screen."""
    for name, call in made:
        called = ast.unparse(call.func)
        if re.fullmatch(
            r"print|.*\.?(echo|secho)|sys\.(__)?std(out|err)(__)?(\.buffer)?\.write(lines)?", called
        ):
            yield name
        if called == "os.write" and isinstance(call.args[0], ast.Constant):
            yield name


def consoles(made: Calls) -> Iterator[str]:
    """A terminal of rich's that does not clean, and texts that are read as its mark-up."""
    for name, call in made:
        called = ast.unparse(call.func)
        if called.rpartition(".")[2] in ("Console", "from_markup", "from_ansi", "render_markup"):
            yield name
        if any(
            key.arg == "markup" and getattr(key.value, "value", True) is not False for key in call.keywords
        ):
            yield name


def markups(made: Calls) -> Iterator[str]:
    """HTML that is not escaped."""
    for name, call in made:
        if ast.unparse(call.func).rpartition(".")[2] != "Markup" or not call.args:
            continue
        if not (isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)):
            yield name


def environments(made: Calls) -> Iterator[str]:
    """Templates other than those of ``html.environment``."""
    for name, call in made:
        called = ast.unparse(call.func)
        if called.rpartition(".")[2] in ("Environment", "Template", "from_string"):
            yield name
        if called.endswith("HTMLResponse") and call.args and isinstance(call.args[0], ast.JoinedStr):
            yield name


def tables(made: Calls) -> Iterator[str]:
    """CSV other than a listing's."""
    for name, call in made:
        if re.fullmatch(r"csv\.(writer|DictWriter)|.*\.(to_csv|write_csv)", ast.unparse(call.func)):
            yield name


def handlers(made: Calls) -> Iterator[str]:
    """A log that does not clean."""
    for name, call in made:
        if re.fullmatch(
            r"(logging\.)?(basicConfig|StreamHandler|FileHandler|Formatter|dictConfig)|.*\.(addHandler|dictConfig)",
            ast.unparse(call.func),
        ):
            yield name


def answers(made: Calls) -> Iterator[str]:
    """What an assistant gets of strings: only ``sealed`` answers and marked errors."""
    for name, call in made:
        if ast.unparse(call.func).rpartition(".")[2] in ("ToolError", "TextContent", "add_tool"):
            yield name


#: Rule -> where it holds, and what is allowed of it.
RULES: dict[str, tuple[Callable[[Calls], Iterator[str]], str, set[str]]] = {
    "text goes to the terminal by Screen": (writers, "", set(WRITERS)),
    "a terminal is a Screen, and no string is mark-up": (consoles, "", set()),
    "only literals are Markup": (markups, "", set(MARKUP)),
    "templates are escaped": (environments, "", {"show/html.py: environment"}),
    "tables are cleaned": (
        tables,
        "",
        {"web/listing.py: to_csv", "web/api.py: as_csv", "experiment/foreign/sheets.py: text_of"},
    ),
    "the log is cleaned": (handlers, "", set()),
    "assistants get marked text": (answers, "mcp", {"mcp/server.py: checked", "mcp/server.py: build"}),
}
PLANTED = {
    "text goes to the terminal by Screen": [
        "print(host)", "typer.echo(host)", "click.secho(host)", "sys.stdout.write(host)", "sys.stderr.write(host)",
        "sys.stdout.buffer.write(host)", "sys.__stdout__.write(host)", "sys.stdout.writelines(host)", "echo(host)",
        "os.write(1, host)",
    ],
    "a terminal is a Screen, and no string is mark-up": [
        "Console()", "rich.console.Console(stderr=True)", "Text.from_markup(host)", "Text.from_ansi(host)",
        "stdout().print(host, markup=True)", "console.print(host, markup=how)",
    ],
    "only literals are Markup": [
        "Markup(host)", "Markup(f'<b>{host}</b>')", "markupsafe.Markup('<b>' + host)", "Markup('%s' % host)",
        "Markup('<b>{}'.format(host))",
    ],
    "templates are escaped": [
        "jinja2.Environment()", "Environment(loader=x)", "jinja2.Template(host)", "env.from_string(host)",
        "HTMLResponse(f'<p>{host}')",
    ],
    "tables are cleaned": ["csv.writer(out)", "csv.DictWriter(out, names)", "frame.to_csv(path)"],
    "the log is cleaned": [
        "logging.basicConfig()", "log.addHandler(handler)", "logging.StreamHandler()", "logging.FileHandler('x')",
        "logging.config.dictConfig({})",
    ],
    "assistants get marked text": ["ToolError(host)", "TextContent(type='text', text=host)", "server.add_tool(f)"],
}  # fmt: skip


@cache
def calls() -> dict[str, list[tuple[str, ast.Call]]]:
    """Read once: parsing all takes seconds."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {str(path.relative_to(SOURCE)): list(functions(ast.parse(path.read_text()))) for path in paths}


def found(rule: str) -> set[str]:
    look, folder, _ = RULES[rule]
    return {
        f"{path}: {name}" for path, made in calls().items() if path.startswith(folder) for name in look(made)
    }


@pytest.mark.parametrize("rule", RULES)
def test_what_goes_out_goes_by_its_door(rule: str) -> None:
    allowed = RULES[rule][2]
    assert found(rule) - allowed == set(), rule
    assert allowed - found(rule) == set(), "gone: take it off the list"


@pytest.mark.parametrize(("rule", "source"), [(rule, each) for rule in PLANTED for each in PLANTED[rule]])
def test_what_is_planted_is_found(rule: str, source: str) -> None:
    look = RULES[rule][0]
    assert list(look(functions(ast.parse(f"async def planted():\n    {source}")))) == ["planted"]
    right = "def f():\n    stdout().print(clean(host))\n    Markup('<b>{}</b>').format(x)"
    assert not list(look(functions(ast.parse(right))))


def test_no_template_passes_text_unescaped() -> None:
    for path in SOURCE.rglob("*.html"):
        assert not re.search(r"(?<![\"'])\|\s*safe\b|autoescape\s+false|Markup", path.read_text()), path
    for path in [*SOURCE.rglob("*.js"), *SOURCE.rglob("*.html")]:
        if "vendored" not in path.parts and "docs_site" not in path.parts:
            wrong = re.search(
                r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(", path.read_text()
            )
            assert not wrong, f"{path}: {wrong}"


def is_clean(shown: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in shown)


@pytest.mark.parametrize(
    "what",
    [
        HOSTILE,
        Text(HOSTILE),
        Panel(HOSTILE, title=HOSTILE),
        f"one\n{HOSTILE}\ttwo",
        {"a": HOSTILE},
        [HOSTILE],
        ValueError(HOSTILE),
    ],
    ids=["string", "text", "panel", "lines", "dict", "list", "error"],
)
def test_whatever_is_printed_reaches_the_terminal_clean(what: object) -> None:
    for options in ({}, {"style": "yellow"}, {"soft_wrap": True}, {"highlight": False}):
        out = io.StringIO()
        Screen(file=out, width=200).print(what, **options)
        assert is_clean(out.getvalue()), out.getvalue()
        if not isinstance(what, Text):
            assert "[red]" in out.getvalue(), "it is shown, not read"


def test_a_table_is_clean_and_keeps_its_colours() -> None:
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE, style="red")
    out = io.StringIO()
    Screen(file=out, width=200, force_terminal=True, color_system="standard").print(table)
    shown = out.getvalue()
    assert "\x1b[31m" in shown
    assert is_clean(re.sub(r"\x1b\[[\d;]*m", "", shown))
    assert "]8;" not in shown


def test_a_status_is_clean() -> None:
    out = io.StringIO()
    with Screen(file=out, width=80, force_terminal=True, color_system=None).status("reading") as status:
        status.update(HOSTILE)
    assert "\x1b]" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


def test_a_log_has_no_control_characters(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither in its messages nor in the tracebacks, which quote what was sent."""
    before = logging.lastResort.formatter if logging.lastResort else None
    log_cleanly()
    try:
        log = logging.getLogger("headrace.test")
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "host %s", (HOSTILE,), None)
        assert is_clean(CleanLines().format(record))
        handler = logging.lastResort
        assert handler is not None
        try:
            raise ValueError(HOSTILE)
        except ValueError as error:
            raised = (ValueError, error, error.__traceback__)
            handler.handle(log.makeRecord("x", logging.ERROR, "f", 1, "%s", (HOSTILE,), raised))
        said = capfd.readouterr().err
        assert "ValueError" in said
        assert is_clean(said), said
    finally:
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(before)


@pytest.mark.parametrize(
    "formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\u200b=1", "＝1", "＋1", "－1", "＠x"]
)
def test_a_cell_is_no_formula(formula: str) -> None:
    listing = Listing(
        [Column("name", "name"), Column(formula, "name")], [{"name": formula, formula: HOSTILE}]
    )
    for cell in re.split(r"[,\r\n]+", listing.to_csv().replace('"', "")):
        assert cell.lstrip()[:1] not in tuple("=+-@＝＋－＠")
        assert is_clean(cell)


@pytest.mark.parametrize("value", ["x;=cmd|' /C calc'!A0", 'x;"=1', "x; +1", "x;\t@x", "x;y;-1", ";＝1"])
def test_no_cell_begins_a_formula_where_semicolons_separate(value: str) -> None:
    listing = Listing([Column("a", "a"), Column("name", "name")], [{"a": 1, "name": value}])
    _, row, *_ = listing.to_csv().splitlines()
    for cell in row.split(";"):
        assert cell.lstrip("\"' \t")[:1] not in tuple("=+-@＝＋－＠") or cell.startswith("'")


@pytest.mark.parametrize(
    "hidden", ["\u00ad", "\u2060", "\u180e", "\U000e0041", "\ufe01", "\U000e0100", "\u3164", "\u2800"]
)
def test_no_name_looks_like_another_by_what_is_not_seen(hidden: str) -> None:
    assert clean(f"db{hidden}1") == "db" + hidden.encode("unicode_escape").decode() + "1"
    kept = "नमस्\u200dते 👩\u200d👧 ✔\ufe0f"
    assert clean(kept) == kept


def test_the_path_of_a_report_calls_nobody() -> None:
    link = "/srv/<!here> @channel/report.html"
    notice = Notice("experiment", "db", Conclusion.BETTER, "headline", link=link, id="x")
    assert not re.search(r"<!|@channel", words.plain(notice))


def test_the_pages_that_others_write_are_listed(tmp_path: Path) -> None:
    """A door that is named here is there."""
    for name in {**WRITERS, **ANSWERS, **MARKUP}:
        assert (SOURCE / name.partition(":")[0]).is_file(), name
