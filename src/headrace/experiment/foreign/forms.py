"""Which form a table's text has: JSON, a drawing, or lines of cells."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.experiment.foreign.drawn import of_drawing
from headrace.experiment.foreign.grid import Grid, of_lines
from headrace.experiment.foreign.nested import of_json

_TOML = re.compile(r"\[\[?[\w .-]+\]\]?\s*\n")
#: Forms that are not read -> how to get one that is.
NOT_READ = (
    (
        r"<\?xml|<\w+>\s*<\w+",
        "XML",
        "xmlstarlet sel -T -t -m '//run' -v fs -o , -v tps -n FILE, with your names",
    ),
    (r"\s*INSERT\s+INTO\s", "SQL", "load it and write a table: mysql --batch -e 'SELECT ...' > table.tsv"),
    (r"\s*@relation\s", "ARFF", "save the lines below @data as CSV, below a line with the names"),
    (
        r"(#[^\n]*\n)*\w+\{[^}\n]*\} [\d.eE+-]+",
        "metrics of Prometheus",
        "promtool query, or a CSV from the graph, a line per run",
    ),
    (
        r"\s*\{\s*\"(cells|metadata|nbformat)\"\s*:",
        "a Jupyter notebook",
        "DATAFRAME.to_csv('table.csv', index=False) in it",
    ),
    (
        r"(diff --git |--- \S[^\n]*\n\+\+\+ )",
        "a diff",
        "git show COMMIT:FILE writes the file as it was, before or after",
    ),
    (r"[\w.]+,\w+=\S+ \w+=\S+", "line protocol of InfluxDB", "influx query --raw, which writes CSV"),
)


def unread(text: str) -> tuple[str, str] | None:
    """The form of a text that is no table we read, and a hint; None for an unknown one."""
    if not text.lstrip().startswith("{") and re.search(r"<table\b", text, re.IGNORECASE):
        return None
    return next(((what, hint) for begins, what, hint in NOT_READ if re.match(begins, text)), None)


#: Below the header a tibble of R has the types of its columns.
_TYPES = re.compile(
    r"^ *(?:<(?:chr|dbl|int|lgl|fct|ord|dttm|date|drtn|time|num|cplx|list)> *){2,}$", re.MULTILINE
)
#: What colours a terminal, and what moves its cursor.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: How mails and answers quote; fewer lines may be cells that begin so.
_QUOTED = re.compile(r"(?:> ?)+")
LEAST_QUOTED = 3


def grid_of(text: str, needed: Sequence[str]) -> Grid:
    """The table of a file. ``needed`` names columns by which its header is known. Raises csv.Error."""
    text = _TYPES.sub("", _unquoted(_ESCAPES.sub("", text)))
    stripped = re.sub(r"^(//[^\n]*\n\s*|/\*.*?\*/\s*)+", "", text.lstrip(), flags=re.DOTALL)
    if _TOML.match(stripped) and (found := of_drawing(text, needed)):
        return found
    if stripped.startswith(("{", "[")) and (found := of_json(stripped, needed)):
        return found
    lines = text.splitlines()
    if lines and (told := re.fullmatch(r"sep=(.)", lines[0].strip())):
        return of_lines(lines, needed, told[1], skipped=1)
    return of_drawing(text, needed) or of_lines(lines, needed, "", skipped=0)


def _unquoted(text: str) -> str:
    """The text without the marks of a quotation, if most of its lines have them; the lines stay where they are."""
    lines = text.split("\n")
    filled = [line for line in lines if line.strip()]
    quoted = [line for line in filled if line.startswith(">")]
    if len(quoted) < LEAST_QUOTED or 2 * len(quoted) < len(filled):
        return text
    return "\n".join(_QUOTED.sub("", line, count=1) if line.startswith(">") else line for line in lines)
