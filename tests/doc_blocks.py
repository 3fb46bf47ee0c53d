"""The command blocks of the documentation: what a reader pastes, page by page, in the order in which it stands."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.cli.groups import WithCommands
from tests.folders import ROOT

FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```\n?", re.MULTILINE | re.DOTALL)
#: An indented block: it follows an empty line.
INDENTED = re.compile(r"(?<=\n\n)((?:    [^\n]*\n)+(?:\n+(?:    [^\n]*\n)+)*)")
SHELL = ("sh", "bash", "console")
OURS = re.compile(r"(?:^|[|;&] )(?:sudo |\S+/)?headrace(?:-agent)? ")
#: Words that are names of files.
FILE = re.compile(
    r"[\w.~*$/{}-]+\.(?:toml|json|csv|parquet|log|rec|pcap|recording|html|xml|hunt|zst|histograms|txt|conf|xz|sh|png)"
)
#: Options whose value, or the file after ``>``, is made by the command.
MAKING = ("-o", "--out", "--output", "--save", "--html", "--append", "--history", ">", ">>")


@dataclass(frozen=True)
class Line:
    """One command line, as it is pasted."""

    text: str
    #: Its commands, each with the word it begins with: a pipe or a ``;`` has several.
    commands: tuple[tuple[str, ...], ...]
    redirected: str = ""

    @property
    def own(self) -> list[tuple[str, ...]]:
        """Those of headrace and its agent."""
        return [words for words in self.commands if Path(words[0]).name in ("headrace", "headrace-agent")]

    @property
    def command(self) -> str:
        """The line without its remark, in single spaces."""
        return " ".join(re.sub(r"(?:^|\s)# .*", "", self.text).split())

    def made(self) -> set[str]:
        """The files that it makes."""
        found = {self.redirected} if self.redirected else set()
        for words in self.commands:
            found |= {value for option, value in itertools.pairwise(words) if option in MAKING}
        return found

    def needed(self) -> set[str]:
        """The names of files that it reads, as far as their names have the endings of files."""
        named = {word for words in self.own for word in words if FILE.fullmatch(word)}
        named |= {word.partition(":")[2] for words in self.own for word in words
                  if re.match(r"(apprise|webhook|grafana):", word)}  # fmt: skip
        return {each for each in named if each} - self.made()


@dataclass(frozen=True)
class Block:
    """Lines that stand together, and the files that the page saved before them."""

    page: str
    lines: tuple[Line, ...]
    saved: dict[str, str] = field(default_factory=dict)


def pages() -> list[Path]:
    """Every page with commands for users, but the tutorials, which have a test of their own."""
    return sorted(
        path
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        if path.parent.name != "tutorials" and not {"rules", "knobs"} & set(path.parts)
    )


def blocks(path: Path) -> list[Block]:
    """The page's blocks that hold a command of headrace or its agent, in order."""
    text = path.read_text()
    found = [
        *((match.start(), match[1], match[2]) for match in FENCE.finditer(text)),
        *(
            (match.start(), "", re.sub(r"^    ", "", match[1], flags=re.MULTILINE))
            for match in INDENTED.finditer(FENCE.sub(lambda match: "\0" * len(match[0]), text))
        ),
    ]
    page = path.relative_to(ROOT).as_posix()
    made, saved = [], {}
    for _, language, block in sorted(found):
        if name := re.match(r"# ([\w.-]+\.toml)\b", block):
            saved[name[1]] = block
        elif language in (*SHELL, "") and any(OURS.search(line) for line in block.splitlines()):
            made.append(Block(page, tuple(_lines(block, language)), dict(saved)))
    return made


def prose(path: Path) -> str:
    """The page without its blocks."""
    return INDENTED.sub("", FENCE.sub("", path.read_text()))


def _lines(block: str, language: str) -> Iterator[Line]:
    begun = ""
    for part in re.sub(r"\\\n\s*", " ", block).splitlines():
        if language == "console" and not part.startswith("$ "):
            continue
        begun += ("\n" if begun else "") + part.removeprefix("$ ")
        if not begun.strip() or begun.lstrip().startswith("#"):
            begun = ""
            continue
        try:
            line = _line(begun.strip())
        except ValueError:  # a quotation that goes on in the next line
            continue
        begun = ""
        yield line
    assert not begun, f"no end of {begun!r}"


def _line(text: str) -> Line:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    commands: list[list[str]] = [[]]
    redirected = ""
    words = iter(lexer)
    for word in words:
        if word in (">", ">>"):
            redirected = next(words)
        elif word == "<":
            next(words)
        elif set(word) <= set("|;&"):
            commands.append([])
        else:
            commands[-1].append(word)
    return Line(text, tuple(tuple(each) for each in commands if each), redirected)


def fault(root: Any, words: tuple[str, ...]) -> str:
    """What the real command line says against a command before it does anything; empty if nothing."""
    command, name, rest = root, "headrace", list(words[1:])
    context: Any = None
    try:
        while True:
            # A group takes the name of its command as its first argument, and gives the rest back.
            context = command.make_context(name, rest, parent=context)
            if not hasattr(command, "resolve_command"):
                return ""
            left = [*getattr(context, "_protected_args", ()), *context.args]
            if isinstance(command, WithCommands):
                # It does something itself, unless its first word is a command of its own.
                if context.invoked_subcommand is None:
                    return ""
                left = [context.invoked_subcommand, *context.args]
            if not left:
                return "" if command.invoke_without_command else "no command"
            name, command, rest = command.resolve_command(context, left)
    except HeadraceError as error:
        return str(error)
    except Exception as error:  # typer has its own copies of click's classes
        message = getattr(error, "message", None) or str(error) or repr(error)
        return f"{type(error).__name__}: {message}"
