"""A plan that is not TOML: what its writer probably meant, in own words and with the line as it should be."""

from __future__ import annotations

import re

from headrace.base import toml
from headrace.base.errors import PlanError
from headrace.experiment.plan import where

_AT = re.compile(r" \(at line (\d+), column (\d+)\)$|\s*\(at end of document\)$")

#: A word that is no value without quotes.
_BARE = re.compile(
    r"""(?P<kept>"(?:[^"\\]|\\.)*"|'[^']*')"""
    r"""|(?P<word>[A-Za-z_/.~*][^\s,\[\]{}="'#]*|\d[\w.+-]*[A-Za-z%][\w.%-]*)"""
)

#: Lines of a table in braces that was written as in other languages.
MOST_JOINED = 20
#: How the parser begins its message about a key or a table that was already written.
_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot mutate")

_MESSAGES = (
    ("Expected '=' after a key", "a line has the form key = value"),
    ("Invalid statement", "a line has the form key = value, or [table]"),
    ("Unclosed array", "a list ends with ], and has commas between its values"),
    ("Unclosed inline table", "a table in braces ends with }, and has commas between its keys"),
    ("Unterminated string", "text ends with a quote"),
    ("Illegal character", "text ends with a quote, on its line"),
    ("Invalid value", "no value: text needs quotes"),
    ("Invalid initial character for a key part", "a key is letters, digits, _ and -; any other needs quotes"),
    ("Expected newline or end of document", "a line ends after its value"),
)


def error_of(text: str, error: ValueError, place: str) -> PlanError:
    """The error of a text that ``toml.parse`` rejects."""
    message = str(error)
    found = _AT.search(message)
    reason = _AT.sub("", message)
    if found is None:  # a limit, or a number of thousands of digits
        return PlanError(f"not valid TOML: {message}", place=place)
    rows = text.splitlines()
    number = int(found[1]) if found[1] else len(rows)
    if text.lstrip().startswith("{"):
        return PlanError(
            "this is JSON, and a plan is TOML",
            place=f"{place}:1",
            hint="`headrace plan print duet` shows a whole plan",
        )
    if reason.startswith(_TWICE):
        return _second(text, number, place)
    # A text in single quotes reaches to the next one, however far below.
    odd = [n for n, row in enumerate(rows, 1) if row.partition("=")[2].count("'") % 2]
    braces = _joined(rows, number)
    if braces:
        at, row, line = braces
        return PlanError(f"{row}: a table in braces stands on one line", place=f"{place}:{at}", hint=line)
    for candidate in (number, number - 1, *odd[:1]):
        if not 1 <= candidate <= len(rows):
            continue
        row = rows[candidate - 1]
        for what, mended in _mended(row):
            trial = "\n".join([*rows[: candidate - 1], mended, *rows[candidate:]])
            # The line above an error is whole, unless what is changed there takes the error away.
            if mended != row and _gets_further(
                trial, max(number, candidate) if candidate not in odd else number - 1
            ):
                return PlanError(f"{row.strip()}: {what}", place=f"{place}:{candidate}", hint=mended.strip())
    own = next((words for start, words in _MESSAGES if reason.startswith(start)), f"not valid TOML: {reason}")
    row = rows[number - 1].strip() if 1 <= number <= len(rows) else ""
    hint = "`headrace docs plans` shows the form of a plan"
    return PlanError(f"{row}: {own}" if row else own, place=f"{place}:{number}", hint=hint)


def _joined(rows: list[str], number: int) -> tuple[int, str, str] | None:
    """A table in braces over several lines: its first line's number, that line, and all of it on one."""
    bare = [row.partition(" #")[0].strip() for row in rows]
    begin = next(
        (n for n in range(min(number, len(rows)) - 1, -1, -1) if re.search(r"=\s*\{$", bare[n])), None
    )
    if begin is None:
        return None
    end = next(
        (n for n in range(begin + 1, min(begin + MOST_JOINED, len(rows))) if bare[n].endswith("}")), None
    )
    if end is None:
        return None
    inner = [row.rstrip(",") for row in [*bare[begin + 1 : end], bare[end].rstrip("}").strip()] if row]
    line = f"{bare[begin]} {', '.join(inner)} }}"
    trial = "\n".join([*rows[:begin], line, *[""] * (end - begin), *rows[end + 1 :]])
    return (begin + 1, bare[begin], line) if _gets_further(trial, end + 1) else None


def _second(text: str, number: int, place: str) -> PlanError:
    """A key or a table that is written twice: both lines."""
    rows = text.splitlines()
    found = where.lines("\n".join(rows[: number - 1]))
    # The parser may have read on to the end of the line.
    number = number if number <= len(rows) and rows[number - 1].strip() else number - 1
    row = rows[number - 1].strip()
    is_table = row.startswith("[")
    name = row.strip("[] ") if is_table else row.partition("=")[0].strip()
    first = max((n for key, n in found.items() if key in (name,) or key.endswith(f".{name}")), default=None)
    what = "this table begins a second time" if is_table else "this key is set a second time"
    hint = "put the keys of both together" if is_table else "keep one of them"
    there = f": the first is in line {first}" if first and first != number else ""
    return PlanError(f"{row}: {what}", place=f"{place}:{number}", hint=f"{hint}{there}")


def _with_too_much(row: str) -> list[tuple[str, str]]:
    """What stands behind a value as in other languages."""
    found = []
    key, equals, value = row.partition("=")
    if comment := re.match(r"(.*?)\s*(?://|;|--)\s*(.*)", row):
        found.append(("a comment begins with # in TOML", f"{comment[1]}  # {comment[2]}".strip()))
    if equals and value.rstrip().endswith((",", ";")):
        found.append(("nothing stands behind a value", row.rstrip().rstrip(",; ")))
    if sum_of := re.fullmatch(r"\s*(\d+)\s*([-+*])\s*(\d+)\s*", value):
        one, other = int(sum_of[1]), int(sum_of[3])
        total = {"+": one + other, "-": one - other, "*": one * other}[sum_of[2]]
        found.append(("TOML does no sums", f"{key}= {total}"))
    if thousands := re.fullmatch(r"\s*([1-9]\d{0,2}(?:,\d{3})+)\s*", value):
        found.append(("_ stands between thousands", f"{key}= {thousands[1].replace(',', '_')}"))
    if decimal := re.fullmatch(r"\s*(\d+),(\d+)\s*", value):
        found.append(("a point is the decimal mark", f"{key}= {decimal[1]}.{decimal[2]}"))
    if equals and re.fullmatch(r"[^\[\]{}]+,[^\[\]{}]+", value):
        found.append(("a list stands in brackets", f"{key}= [{_quoted(value).strip()}]"))
    if number := re.fullmatch(r"(\s*\d+)\s+[A-Za-z]\w*\s*", value):
        found.append(("a number has no word behind it", f"{key}={number[1]}"))
    return found


def _with_too_little(row: str) -> list[tuple[str, str]]:
    """A list without a comma, and a number that begins with 0."""
    key, _, value = row.partition("=")
    meant = []
    if "[" in value:
        commas = re.sub(r"""("[^"]*"|'[^']*'|[\w.+-]+)\s+(?=["'\w])""", r"\1, ", value)
        meant.append(("a comma is missing between two values", f"{key}={commas}"))
    if octal := re.fullmatch(r"\s*([+-]?)0+(\d[\d_]*(?:\.\d+)?)\s*", value):
        meant.append(("a number does not begin with 0", f"{key}= {octal[1]}{octal[2]}"))
    return meant


def _of_other_languages(row: str) -> list[tuple[str, str]]:
    """Names with blanks, a null, and quotes as other languages have them."""
    found = []
    key, _, value = row.partition("=")
    if header := re.fullmatch(r"\s*(\[\[?)\s*([^\[\]]+?)\s*(\]\]?)\s*[,;:]?\s*", row):
        name = re.sub(r"(?<=\w)\s+(?=\w)", "-", header[2])
        what = "a table's name has no blanks" if name != header[2] else "nothing stands behind a table's name"
        found.append((what, f"{header[1]}{name}{header[3]}"))
    if re.fullmatch(r"\s*(None|null|nil|NULL|~)\s*", value):
        found.append(("TOML has no null: a key that is left out has its default", f"# {row.strip()}"))
    if mixed := re.fullmatch(r"""\s*(?:'([^'"]*)"|"([^'"]*)')\s*""", value):
        found.append(("text ends with the quote that it begins with", f'{key}= "{mixed[1] or mixed[2]}"'))
    if re.fullmatch(r'\s*"[^"\']*\\[^"\']*"\s*', value):
        found.append(("a backslash needs single quotes", f"{key}= '{value.strip().strip(chr(34))}'"))
    return found


def _without_equals(row: str) -> list[tuple[str, str]]:
    """``design:``, ``threads: 4``, ``threads 4``."""
    if table := re.fullmatch(r"\s*([a-z_][\w.-]*)\s*:\s*", row):
        return [("a table's name stands in brackets", f"[{table[1]}]")]
    for what, pattern in (
        ("a colon where TOML has =", r"(\s*[\w.-]+)\s*:\s*(.+)"),
        ("an = stands between a key and its value", r"(\s*[a-z_][\w.-]*)\s+([^\s=:].*)"),
    ):
        if found := re.fullmatch(pattern, row):
            return [(what, f"{found[1]} = {value.strip()}") for value in (found[2], _quoted(found[2]))]
    return []


def _mended(row: str) -> list[tuple[str, str]]:
    """Each way in which the line may have been meant: (what is wrong, the line as it should be)."""
    found = []
    key, equals, value = row.partition("=")
    if not equals and (told := _without_equals(row)):
        return told
    if twice := re.fullmatch(r"(\s*[\w.\"-]+)\s*(?:==|:=|=>)\s*(.+)", row):
        mark = "one = stands between a key and its value"
        return [(mark, f"{twice[1]} = {v.strip()}") for v in (twice[2], _quoted(twice[2]))]
    found += _of_other_languages(row)
    found += _with_too_much(row)
    found += _with_too_little(row)
    if re.search(r"\b(True|False|yes|no)\b", value):
        plain = re.sub(r"\b(True|yes)\b", "true", re.sub(r"\b(False|no)\b", "false", value))
        found.append(("true and false are written in small letters", f"{key}={plain}"))
    found.append(("text needs quotes", f"{key}={_quoted(value)}"))
    for quote in ('"', "'"):
        if value.count(quote) % 2:
            found.append(("a quote is missing", f"{key}={value.rstrip()}{quote}"))
            found += [("a quote is missing", f"{key}={v}") for v in _closed(value, quote)]
    for closing, opening in (("]", "["), ("}", "{")):
        if value.count(opening) > value.count(closing):
            found.append((f"a {closing} is missing", f"{key}={value.rstrip()}{closing}"))
    if row.strip().startswith("[") and "]" not in row:
        found.append(("a ] is missing", f"{row.rstrip()}]"))
    if odd := re.findall(r"[^\S \t]", row.strip()):
        said = f"a blank here is not a plain one (U+{ord(odd[0]):04X})"
        found.append((said, re.sub(r"[^\S \t]", " ", row)))
    if "“" in row or "”" in row or "„" in row:
        found.append(("quotes are straight in TOML", re.sub("[“”„]", '"', row)))
    return found


def _quoted(value: str) -> str:
    def one(match: re.Match[str]) -> str:
        word = match["word"]
        if word is None or word in ("true", "false", "inf", "nan"):
            return match[0]
        return f'"{word}"'

    body, mark, comment = value.partition(" #")
    # In braces, what is before an = is a key.
    if "{" in body:
        return re.sub(r"(=\s*)([^,}]+)", lambda m: m[1] + _BARE.sub(one, m[2]), body) + mark + comment
    inner = body.strip()
    if not inner.startswith("[") and re.fullmatch(r"[A-Za-z][^\"'#]*", inner):
        return f' "{inner}"{mark}{comment}'
    return _BARE.sub(one, body) + mark + comment


def _closed(value: str, quote: str) -> list[str]:
    """The value with a quote before a comma or bracket: where one was forgotten inside of a list."""
    places = [m.start() for m in re.finditer(r"[,\]}]", value)]
    words = [m.start() for m in re.finditer(rf"(?<=[\[,=\s])[\w.]+(?={quote})", value)]
    # Before the blanks in front of a bracket, which are no part of the text.
    ends = [len(value[:at].rstrip()) for at in places]
    return [value[:at] + quote + value[at:] for at in (*ends, *words)]


def _gets_further(text: str, line: int) -> bool:
    """Whether the text is read beyond this line."""
    try:
        toml.parse(text)
    except ValueError as error:
        found = _AT.search(str(error))
        return found is None or (found[1] is not None and int(found[1]) > line)
    return True
