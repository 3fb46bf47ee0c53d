"""Listings that a client writes as a document: JSON of mysqlsh, DBeaver, Workbench or phpMyAdmin; XML and HTML of
``mysql``."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.base.received import BadContent, Bound, parsed

MOST = Bound(64 << 20, 4_000_000)
#: Levels of a document above its rows.
MOST_DEPTH = 6
#: Names in an object that is a listing itself, name to value.
LEAST_NAMES = 30
_XML_ROW = re.compile(r"<row>(.*?)</row>", re.DOTALL)
_XML_FIELD = re.compile(r'<field name="([^"]*)"([^>]*?)(?:/>|>(.*?)</field>)', re.DOTALL)
_HTML_ROW = re.compile(r"<TR>(.*?)</TR>", re.DOTALL | re.IGNORECASE)
_HTML_CELL = re.compile(r"<T[HD][^>]*>(.*?)</T[HD]>", re.DOTALL | re.IGNORECASE)

#: What a client prints below a document.
_SAID_AFTER = re.compile(r"\s*\d+ rows? in set[^\n{}\[\]]*\Z")

#: Rows of one listing: cells by column in lower case.
Rows = list[Mapping[str, str]]


def listings(text: str) -> list[Rows]:
    """Every listing of a document; none if the text is no document."""
    head = text[:4096].lstrip()
    if head.startswith(("[", "{")):
        return [rows for rows in _of_json(_json(text), 0) if rows]
    if head.startswith("<?xml") or "<resultset" in head:
        return _of_xml(text)
    return _of_html(text) if re.match(r"<TABLE\b", head, re.IGNORECASE) else []


def _json(text: str) -> Any:
    """One value, or several one below the other. A document that is cut off has nothing."""
    whole = _SAID_AFTER.sub("", text.strip())
    several = re.sub(r"}\s*{", "},{", whole)
    for content in (whole, f"[{several}]"):
        try:
            return parsed(content, MOST)
        except BadContent:
            continue
    return None


def _of_json(value: Any, depth: int) -> Iterator[Rows]:
    if depth > MOST_DEPTH:
        return
    if isinstance(value, list):
        rows: Rows = [_row(each) for each in value if isinstance(each, dict) and _is_flat(each)]
        # A list of listings, too.
        wide = [row for row in rows if len(row) >= LEAST_NAMES and "variable_name" not in row]
        yield [row for row in rows if row not in wide] if wide else rows
        for row in wide:
            yield _pairs(row)
        for each in value:
            if not (isinstance(each, dict) and _is_flat(each)):
                yield from _of_json(each, depth + 1)
    elif isinstance(value, dict):
        if _is_flat(value):
            yield _pairs(_row(value)) if len(value) >= LEAST_NAMES else [_row(value)]
        else:
            for each in value.values():
                yield from _of_json(each, depth + 1)


def _is_flat(value: Mapping[str, Any]) -> bool:
    return bool(value) and not any(isinstance(each, dict | list) for each in value.values())


def _row(value: Mapping[str, Any]) -> Mapping[str, str]:
    return {str(name).lower(): _cell(cell) for name, cell in value.items()}


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return str(value)


def _pairs(row: Mapping[str, str]) -> Rows:
    return [{"variable_name": name, "value": value} for name, value in row.items()]


def _of_xml(text: str) -> list[Rows]:
    return [
        [
            {
                name.lower(): "NULL" if "xsi:nil" in attributes else html.unescape(cell)
                for name, attributes, cell in _XML_FIELD.findall(match[1])
            }
            for match in _XML_ROW.finditer(part)
        ]
        for part in text.split("<resultset")
        if "<row>" in part
    ]


def _of_html(text: str) -> list[Rows]:
    found: list[Rows] = []
    for part in re.split(r"<TABLE\b[^>]*>", text, flags=re.IGNORECASE):
        rows = [_HTML_CELL.findall(match[1]) for match in _HTML_ROW.finditer(part)]
        columns = [html.unescape(name).lower() for name in rows[0]] if rows else []
        found.append(
            [
                dict(zip(columns, map(html.unescape, row), strict=True))
                for row in rows[1:]
                if len(row) == len(columns)
            ]
        )
    return [rows for rows in found if rows]
