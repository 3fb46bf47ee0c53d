"""The text of a statement as a tree.

SQLGlot parses: it knows MySQL's dialect, has no dependencies, and resolves the scopes of subqueries and derived
tables. Words of MySQL that it does not know are taken out before, if they say nothing of which rows are wanted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

# It prints a line for each statement that it knows by its first word alone; here that is a reason of Unread.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

#: A longer text is not read.
MOST_BYTES = 200_000
#: What may stand before the first word: blanks, comments that are no hints of the server, parentheses.
_START = r"\A(?P<start>(?:[\s(]|/\*(?![!+]).*?\*/|(?:--\s|\#)[^\n]*(?:\n|\Z))*)"
#: Words that change when and how loudly a statement works, and not which rows it looks for.
_CHANGE = re.compile(
    _START
    + r"(?P<verb>replace|insert|update|delete)\b(?:\s+(?:low_priority|high_priority|delayed|quick|ignore)\b)*",
    re.IGNORECASE | re.DOTALL,
)
_SELECT = re.compile(
    r"\bselect\s+(?:(?:all|sql_small_result)\s+)*(?P<distinct>distinctrow\b)?", re.IGNORECASE
)
#: `DELETE t.*, u.* FROM`: all rows of the tables, as without the stars.
_STARS = re.compile(r"(?<=[\w$`])\.\*(?=\s*(?:,|from\b|using\b))", re.IGNORECASE)
#: Where the result goes, at the end: variables, or a file.
_INTO = re.compile(
    r"\s+into\s+(?:@[\w$.`]+(?:\s*,\s*@[\w$.`]+)*|(?:outfile|dumpfile)\s+(?:'[^']*'|\"[^\"]*\"))\s*;?\s*\Z",
    re.IGNORECASE,
)
#: Also behind a hint, which a server passes over here.
_CREATE = re.compile(_START.replace("(?![!+])", "(?!!)") + r"create\b", re.IGNORECASE | re.DOTALL)
_READS = (exp.Select, exp.SetOperation, exp.Update, exp.Delete, exp.Insert, exp.Subquery)


class Unread(Exception):
    """A statement that cannot be read, with the reason."""


def parse_one(text: str) -> exp.Expr:
    """The tree of one statement that reads or changes rows. Raises Unread."""
    if len(text) > MOST_BYTES:
        raise Unread(f"longer than {MOST_BYTES:,} characters")
    try:
        trees = [tree for tree in sqlglot.parse(_plain(text), dialect="mysql") if tree is not None]
    except SqlglotError as error:
        raise Unread(str(error).partition("\n")[0].partition(". Line")[0][:120]) from error
    except RecursionError as error:
        raise Unread("nested too deeply") from error
    if len(trees) != 1:
        raise Unread(f"{len(trees)} statements in one" if trees else "no statement")
    tree = trees[0]
    if isinstance(tree, exp.Create) and isinstance(tree.expression, exp.Query):
        tree = tree.expression
    if not isinstance(tree, _READS):
        raise Unread(f"{tree.key.upper()} reads no table by a condition")
    return tree


def makes_table(text: str) -> bool:
    """Whether it keeps what it reads in a table of its own."""
    return _CREATE.match(text) is not None


def _plain(text: str) -> str:
    """Without words that the parser does not know, and that say nothing of which rows are looked for."""
    if found := _CHANGE.match(text):
        verb = found["verb"].upper()
        rest = text[found.end() :]
        if verb == "DELETE":
            rest = _STARS.sub("", rest)
        return f"{found['start']}{'INSERT' if verb == 'REPLACE' else verb}{rest}"
    text = _INTO.sub("", text)
    return _SELECT.sub(lambda each: "SELECT DISTINCT" if each["distinct"] else "SELECT ", text)


def of_digest(text: str) -> str:
    """A text without values, as performance_schema keeps it, in a form that can be read."""
    return re.sub(r"\(\s*\.\.\.\s*\)(?:\s*/\*\s*,\s*\.\.\.\s*\*/)?", "(?, ?)", text)


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        for each in condition.flatten():
            yield from conjuncts(each)
    else:
        yield condition


def counted_columns(value: exp.Expr) -> list[exp.Expr]:
    """The columns of COUNT(DISTINCT a, b)."""
    is_distinct = isinstance(value, exp.Count) and isinstance(value.this, exp.Distinct)
    return list(value.this.expressions) if is_distinct else []


def index_hint(node: exp.Table) -> str:
    """What allows only the indexes that it names to find rows; empty if there is no such hint."""
    for each in node.args.get("hints") or ():
        is_index = isinstance(each, exp.IndexTableHint) and str(each.this).upper() in ("FORCE", "USE")
        if is_index and str(each.args.get("target") or "JOIN").upper() == "JOIN":
            return str(each.sql(dialect="mysql"))
    return ""
