"""Sections of the documentation that answer a few words, best first."""

from __future__ import annotations

import contextlib
import html
import json
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

#: So many words of a section stand around the match.
SHOWN = 24
#: A match in a title counts as many times one in the text.
TITLE = 8.0
PAGE_TITLE = 4.0
#: A symptom is where one begins: its score counts as many times.
SYMPTOM = 1.5
#: Words that nearly every section has.
EMPTY = frozenset(
    re.findall(
        r"\w+",
        "a an and are at by do for from how i in is it its my of on or the this to was what when why with",
    )
)
#: A heading of a page as it is written.
HEAD = re.compile(r"^#{1,3} +(.+?) *(?:\{[^}\n]*\} *)?$", re.MULTILINE)
MARKUP = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Section:
    """One section of a page; ``address`` is what `headrace docs` opens."""

    address: str
    page: str
    title: str
    excerpt: str


def search(site: Path, words: str, limit: int = 8) -> list[Section]:
    """The sections with the most of ``words``, at most ``limit``; one with all of them comes before any other.

    Raises FileNotFoundError if the site was built without its index.
    """
    wanted = [word for word in re.findall(r"\w+", words.lower()) if word not in EMPTY]
    if not wanted:
        return []
    quoted = [f'"{word}"*' if len(word) > 2 else f'"{word}"' for word in wanted]
    with contextlib.closing(_table(site)) as table:
        sections: dict[str, Section] = {}
        for query in (" AND ".join(quoted), " OR ".join(quoted)):
            for row in table.execute(
                "SELECT address, page, title, snippet(sections, 3, '', '', ' ... ', ?) FROM sections"
                " WHERE sections MATCH ? ORDER BY bm25(sections, 0, ?, ?, 1) * iif(address LIKE ?, ?, 1) LIMIT ?",
                (SHOWN, query, PAGE_TITLE, TITLE, "howto/symptoms%", SYMPTOM, limit),
            ):
                sections.setdefault(row[0], Section(*row))
    return list(sections.values())[:limit]


def _table(site: Path) -> sqlite3.Connection:
    """The site's own index, or without one the pages as they are written, in SQLite's full-text search: word
    stems, ranked by BM25."""
    index = site / "search" / "search_index.json"
    entries = json.loads(index.read_text(encoding="utf-8"))["docs"] if index.exists() else _written(site)
    pages = {entry["location"]: _plain(entry["title"]) for entry in entries if "#" not in entry["location"]}
    table = sqlite3.connect(":memory:")
    table.execute(
        "CREATE VIRTUAL TABLE sections"
        " USING fts5(address UNINDEXED, page, title, text, tokenize = 'porter unicode61')"
    )
    table.executemany(
        "INSERT INTO sections VALUES (?, ?, ?, ?)",
        (
            (
                entry["location"],
                pages.get(entry["location"].partition("#")[0], ""),
                _plain(entry["title"]),
                _plain(entry["text"]),
            )
            for entry in entries
            # It names everything once, and answers nothing.
            if not entry["location"].startswith("project/changelog")
        ),
    )
    return table


def _written(folder: Path) -> list[dict[str, str]]:
    """What the index of a site has, from the pages as they are written."""
    entries: list[dict[str, str]] = []
    for path in sorted(folder.rglob("*.md")):
        page = path.relative_to(folder).with_suffix("").as_posix()
        parts = HEAD.split(path.read_text(encoding="utf-8"))
        for title, text in zip(parts[1::2], parts[2::2], strict=True):
            words = re.sub(r"[^\w\s-]", "", title.lower()).split()
            location = (
                f"{page}.html#{'-'.join(words)}"
                if entries and entries[-1]["page"] == page
                else f"{page}.html"
            )
            entries.append({"location": location, "title": title, "text": text, "page": page})
    return entries


def _plain(text: str) -> str:
    return " ".join(html.unescape(MARKUP.sub(" ", text)).split())
