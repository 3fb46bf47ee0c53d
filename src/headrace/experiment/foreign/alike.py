"""Which levels are the same, however they are written, and which settings of the runs are not."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence

from headrace.base.errors import PlanError
from headrace.experiment.foreign import names
from headrace.experiment.foreign.shapes import SETTINGS
from headrace.experiment.foreign.units import in_seconds, parts, scale, without_groups

#: A line of a table: its place for errors, and its cells by column.
Line = tuple[str, dict[str, str]]

_SWITCH = {
    **dict.fromkeys(("on", "true", "yes", "enabled", "enable", "y", "t"), True),
    **dict.fromkeys(("off", "false", "no", "disabled", "disable", "n", "f"), False),
    **dict.fromkeys(
        ("ja", "oui", "sí", "sì", "sim", "tak", "да", "ano", "kyllä", "evet", "はい", "是"), True
    ),
    **dict.fromkeys(("nein", "non", "não", "nie", "нет", "nee", "nej", "ei", "hayır", "いいえ", "否"), False),
}
#: Words of a factor whose levels are versions, which only look like numbers: also the names of what has versions.
_VERSIONS = frozenset({
    "version", "versions", "ver", "vers", "release", "kernel", "build", "tag", "versión", "versão", "versione",
    "versie", "wersja", "verze", "sürüm", "версия", "版本", "バージョン", "버전", "mysql", "mariadb",
    "percona", "server", "mysqld", "mariadbd", "ps", "pxc", "postgres", "postgresql", "redis", "rocksdb",
    "myrocks", "tidb", "linux", "os", "ubuntu", "debian", "rhel", "glibc", "libc", "jemalloc", "gcc", "clang",
    "compiler", "java", "jdk", "php", "python", "go", "rust", "node", "driver", "connector", "firmware",
    "sysbench", "fio", "zfs", "openzfs", "docker", "haproxy", "proxysql", "galera",
})  # fmt: skip
#: Of more levels none is looked for that may be a slip: they are numbers of blocks, or names of runs.
MOST_LEVELS = 200
#: Words of so many letters are seldom different by design where they differ in one.
LONG = 5
#: Lengths of runs, which were measured: those that differ by no more than this share are alike.
MEASURED = frozenset({"elapsed", "walltime"})
DURATIONS, ALIKE = frozenset({"duration", "runtime"}) | MEASURED, 0.10


def unified(lines: Sequence[Line], factors: Sequence[str]) -> list[str]:
    """Writes levels that are the same in the same way, in place; a note on each, and on what may be a slip."""
    notes = []
    for name in factors:
        counts = Counter(cells[name].strip() for _, cells in lines)
        spellings: dict[object, list[str]] = {}
        is_version = bool(_VERSIONS & set(names.words(name).split("_"))) or any(
            re.fullmatch(r"v?\d+\.\d+\.\d+", plain(text), re.IGNORECASE) for text in counts
        )
        for text, own in _meanings(list(counts), is_version=is_version).items():
            spellings.setdefault(own, []).append(text)
        rewritten: dict[str, str] = {}
        for written in spellings.values():
            if len(written) > 1:
                rewritten |= dict.fromkeys(written, written[0])
                notes.append(f"{name}: {' and '.join(written)} are counted as one level, {written[0]}")
        if rewritten:
            for _, cells in lines:
                text = cells[name].strip()
                cells[name] = rewritten.get(text, text)
        left = Counter(cells[name].strip() for _, cells in lines)
        told = _slips(name, left) + _bare(name, left) + _doubtful(name, left) + _dated(name, left)
        notes += dict.fromkeys(told)
    return notes


#: Letters of Greek and Cyrillic that look like Latin ones, for words that mix alphabets.
_LOOK_ALIKE = str.maketrans("асеорхуіѕјһԁӏкмтвнαορνυικ", "aceopxyisjhdlkmtbhaopvuik")


def plain(text: str) -> str:
    """A level without what cannot be seen: its forms of width, kinds of dashes, characters of no width."""
    bare = "".join(each for each in unicodedata.normalize("NFKC", text) if unicodedata.category(each) != "Cf")
    bare = re.sub("[\u2010-\u2015\u2212]", "-", bare).strip()
    folded = bare.casefold()
    if bare.isascii() or not re.search(r"[a-z]", folded):
        return bare
    latin = folded.translate(_LOOK_ALIKE)
    return latin if latin.isascii() else bare


def meaning(text: str) -> object:
    """What a level means: a number, a size, a switch, or a word whatever its case and what joins its parts."""
    bare = plain(text)
    if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+", bare):
        bare = bare.replace(",", "")
    bare = without_groups(bare)
    if bare.casefold() in _SWITCH:
        return _SWITCH[bare.casefold()]
    if re.fullmatch(r"0x[0-9a-f]{1,16}", bare, re.IGNORECASE):
        return "", float(int(bare, 16))
    found = parts(bare)
    if found is None:
        joined = re.sub(r"(?<=[^\W\d_])[-_\s]+(?=[^\W\d_])", "", bare.casefold())
        # A word and its number: EXT-4 is ext4. A letter alone may stand for a variable, and a-1 be a difference.
        joined = re.sub(r"(?<=[^\W\d_]{2})[-_\s]+(?=\d)", "", joined)
        return re.sub(r"[-_\s]+", "-", joined)
    value, unit = found
    # Sizes of servers and kernels are binary, with and without the B.
    if size := re.fullmatch(r"([kmgt])(i?b)?", unit, re.IGNORECASE):
        return "bytes", value * 1024 ** ("kmgt".index(size[1].lower()) + 1)
    known = scale(unit)
    return (known[0], value * known[1]) if known else (unit.casefold(), value)


def _meanings(levels: Sequence[str], *, is_version: bool) -> dict[str, object]:
    """The meaning of each level beside the others: 1 beside ON is a switch, 16384 beside 16k a size, 0.5 beside
    50% a share; of versions 10.10 is not 10.1.
    """
    if is_version:
        return {text: _version(text) for text in levels}
    found = {text: meaning(text) for text in levels}
    numbers = {own[1] for own in found.values() if isinstance(own, tuple) and own[0] == ""}
    sizes = {own[1] for own in found.values() if isinstance(own, tuple) and own[0] == "bytes"}
    found |= _minutes(found)
    is_switch = any(isinstance(own, bool) for own in found.values()) and numbers <= {0.0, 1.0}
    # Numbers up to 1 beside percentages are shares of 1; above, they lack their sign.
    whole = 100.0 if numbers and max(numbers) <= 1 else 1.0
    for text, own in found.items():
        if isinstance(own, tuple) and own[0] == "%" and numbers:
            found[text] = ("", own[1] / whole)
        if isinstance(own, tuple) and own[0] == "":
            if is_switch:
                found[text] = own[1] == 1.0
            elif own[1] in sizes:
                found[text] = ("bytes", own[1])
    return found


def _minutes(found: dict[str, object]) -> dict[str, object]:
    """``1m`` and ``1m30s`` beside times, as times: alone, or beside 16k, an m is a size's."""
    kinds = {
        own[0] for text, own in found.items() if isinstance(own, tuple) and not re.fullmatch(r"\d+m", text)
    }
    if "s" not in kinds or "bytes" in kinds:
        return {}
    times = {text: parts(in_seconds(text)) for text in found if re.fullmatch(r"(\d+h)?\d+m(\d+s)?", text)}
    return {text: ("s", told[0]) for text, told in times.items() if told}


def _version(text: str) -> object:
    told = re.fullmatch(r"v?(\d+)(?:\.(\d+))?", plain(text), re.IGNORECASE)
    return ("version", int(told[1]), int(told[2] or 0)) if told else meaning(text)


def _slips(name: str, counts: Counter[str]) -> list[str]:
    """Rare levels that are one letter away from a frequent one."""
    notes: list[str] = []
    if len(counts) > MOST_LEVELS:
        return notes
    for rare, few in counts.items():
        for usual, many in counts.items():
            if 2 * few <= many and min(len(rare), len(usual)) >= LONG and _is_one_letter_away(rare, usual):
                notes.append(
                    f"{name}: {rare!r} ({few} line{'s' * (few > 1)}) is one letter away from {usual!r} ({many}): "
                    "write them alike if they are one level"
                )
    return notes


#: Levels that say in a word that there is nothing.
_NOTHING = frozenset({"", "none", "no", "nothing", "null", "unset", "kein", "keine"})


def _bare(name: str, counts: Counter[str]) -> list[str]:
    """Levels with one number of which only some say of what: ``8`` beside ``8 threads``, ``0`` beside ``none``."""
    if len(counts) > MOST_LEVELS:
        return []
    by_number: dict[object, list[str]] = {}
    for text in counts:
        bare = plain(text).casefold()
        told = re.fullmatch(r"[a-z]?(\d+(?:\.\d+)?)\s*(?:[^\W\d_]*|%)", bare)
        share = re.fullmatch(r"(\d+)[/\u2044](\d*[1-9]\d*)", bare)
        if told:
            by_number.setdefault(float(told[1]), []).append(text)
        elif share:
            by_number.setdefault(int(share[1]) / int(share[2]), []).append(text)
        elif bare in _NOTHING:
            by_number.setdefault(0.0, []).append(text)
    return [
        f"{name}: {' and '.join(map(repr, same))} are counted as {len(same)} levels: write them alike if they "
        "are one"
        for same in by_number.values()
        if 0 < sum(bool(re.fullmatch(r"\d+(\.\d+)?", plain(text))) for text in same) < len(same)
    ]


def _doubtful(name: str, counts: Counter[str]) -> list[str]:
    """Levels that may be one, and only their author knows: a day in two forms, a point that parts thousands."""
    if len(counts) > MOST_LEVELS:
        return []
    texts = list(counts)
    days = {text: _days(plain(text)) for text in texts}
    bare = {
        text: re.sub(r"[.,]", "", text) for text in texts if re.fullmatch(r"[1-9]\d{0,2}([.,]\d{3})+", text)
    }
    marks = {text: _without_marks(text) for text in texts}
    same = [
        (one, other)
        for at, one in enumerate(texts)
        for other in texts[at + 1 :]
        if days[one] & days[other]
        or ((one in bare or other in bare) and bare.get(one, one) == bare.get(other, other))
        or marks[one] == marks[other] != ""
        or _abbreviates(one, other)
    ]
    return [
        f"{name}: {one!r} and {other!r} are counted as 2 levels: write them alike if they are one"
        for one, other in same
    ]


def _abbreviates(one: str, other: str) -> bool:
    """``8t`` and ``8 threads``."""
    told = [re.fullmatch(r"(\d+)\s*([^\W\d_]+)", plain(text).casefold()) for text in (one, other)]
    if None in told:
        return False
    (number, unit), (same, longer) = sorted(
        (each.groups() for each in told if each), key=lambda each: len(each[1])
    )
    return number == same and unit != longer and longer.startswith(unit)


_THOUSANDS = {"k": 1e3, "m": 1e6, "g": 1e9}


def _without_marks(text: str) -> object:
    """A level without its marks, its plural, and the switches within it: ``(none)``, ``8-cores``, ``wal=on``.

    10k is a size, as which it is 10240, or a number, as which it is 10000.
    """
    bare = plain(text).casefold()
    # ``xfs (default)``, ``v8.0.36``, ``zstd-03``.
    bare = re.sub(r"(?<=\S)\s*\([^()]*\)$", "", bare)
    bare = re.sub(r"(?<![\d.,:])0+(?=\d)(?!\d+:)|^v(?=\d)", "", bare)
    if told := re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)([kmg])", bare):
        return float(told[1] or told[2]) * _THOUSANDS.get(told[3], 1.0)
    if told := re.fullmatch(r"(?:(\d+):)?(\d{1,2}):(\d{2})", bare):
        return "s", 3600.0 * int(told[1] or 0) + 60 * int(told[2]) + int(told[3])
    own = meaning(text)
    if isinstance(own, tuple) and own[0] == "s":
        return own
    # Of 8.0 and 80, and of a-1 and a1, the marks are a part.
    if re.search(r"\d[.,]\d|(?<![^\W\d_])[^\W\d_]-?\d", bare):
        return re.sub(r"(?<=\d),(?=\d)", ".", bare)
    words = [re.sub(r"(?<=[^\W\d_]{3})s$", "", word) for word in re.split(r"[\W_]+", bare) if word]
    if len(words) > 1:
        words = [
            {True: "1", False: "0"}.get(switch, "") if (switch := _SWITCH.get(word)) is not None else word
            for word in words
        ]
    return "".join(words)


def _days(text: str) -> set[tuple[int, int, int]]:
    """The days that a date may mean: 01/02/2025 is in January or in February."""
    if told := re.fullmatch(r"(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})", text):
        year, month, day = map(int, told.groups())
        return {(year, month, day)} if 1 <= month <= 12 and 1 <= day <= 31 else set()
    if told := re.fullmatch(r"(\d{1,2})[./-](\d{1,2})[./-](\d{2}|\d{4})", text):
        one, two, year = map(int, told.groups())
        year += 2000 if year < 100 else 0
        either = {(year, two, one), (year, one, two)}
        return {each for each in either if 1 <= each[1] <= 12 and 1 <= each[2] <= 31}
    return set()


#: ``Jan 16``, ``02. Mai``, ``16-Feb``: what spreadsheets show of 1/16, 2.5 and 16-2.
_MONTH = re.compile(
    r"(\d{1,2}[.\s/-]*)?(jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zé]*\.?([\s/-]*\d{1,4})?",
    re.IGNORECASE,
)


def _dated(name: str, counts: Counter[str]) -> list[str]:
    """Days beside levels of two numbers, which spreadsheets take for days where they can be some."""
    spelt = {text for text in counts if _MONTH.fullmatch(text) and re.search(r"\d", text)}
    days = [text for text in counts if text in spelt or (_days(text[:10]) and text[:4].isdigit())]
    pairs = [text for text in counts if text not in days and re.fullmatch(r"\d+[/.:-]\d+", text)]
    if not days or not (pairs or spelt.issuperset(days)):
        return []
    beside = f" beside {pairs[0]!r}" if pairs else ""
    return [
        f"{name}: {days[0]!r}{beside} may be what a spreadsheet made of a level such as 1/2 or 1-2: write it as "
        "text unless it is a day"
    ]


def _is_one_letter_away(one: str, other: str) -> bool:
    """By a letter more, less, other, or two exchanged; digits make another level."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    a, b = one[start : len(one) - end], other[start : len(other) - end]
    is_swap = len(a) == len(b) == 2 and a == b[::-1]
    return (is_swap or max(len(a), len(b)) == 1) and not any(c.isdigit() for c in a + b)


def _have_most_one(lengths: Sequence[float]) -> bool:
    """Whether most runs lasted as long as the usual one, and some did not."""
    usual = sorted(lengths)[len(lengths) // 2]
    near = sum(usual / (1 + ALIKE) <= each <= (1 + ALIKE) * usual for each in lengths)
    return len(lengths) >= 5 and near >= 0.75 * len(lengths)


#: Most lines named in a note.
MOST_LINES = 5


def lines_named(numbers: Sequence[str]) -> str:
    """``lines 3, 7 and 5 more``."""
    more = f" and {len(numbers) - MOST_LINES} more" if len(numbers) > MOST_LINES else ""
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:MOST_LINES])}{more}"


def labels(lines: Sequence[Line]) -> dict[str, str]:
    """Place -> its line; with the file's name where there are several."""
    files = {place.rpartition(":")[0] for place, _ in lines}
    return {
        place: place.rpartition("/")[2] if len(files) > 1 else place.rpartition(":")[2] for place, _ in lines
    }


def differences(
    lines: Sequence[Line], allowed: Collection[str], columns: Collection[str] | None = None
) -> PlanError | None:
    """The first setting that differs between runs: one of ``columns``, if given, and none of ``allowed``."""
    label = labels(lines)
    for name in columns if columns is not None else lines[0][1] if lines else ():
        if name in allowed or names.setting(name) not in SETTINGS:
            continue
        values: dict[object, list[str]] = {}
        for place, cells in lines:
            values.setdefault(meaning(cells[name]), []).append(label[place])
        told = [own[1] for own in values if isinstance(own, tuple)]
        is_duration = names.setting(name) in DURATIONS and len(told) == len(values) and min(told) > 0
        if len(values) < 2 or (is_duration and max(told) <= (1 + ALIKE) * min(told)):
            continue
        # Values that hardly repeat were measured, not set; also a time, unless most runs have the same.
        if names.setting(name) in MEASURED:
            if not is_duration or not _have_most_one(
                [own[1] for _, cells in lines if isinstance(own := meaning(cells[name]), tuple)]
            ):
                continue
        elif 2 * len(values) > len(lines):
            continue
        text = {label[place]: cells[name].strip() for place, cells in lines}
        shown = "; ".join(
            f"{text[own[0]] or 'nothing'} in line{'s' * (len(own) > 1)} {', '.join(own[:3])}"
            + (f" and {len(own) - 3} more" if len(own) > 3 else "")
            for own in list(values.values())[:3]
        )
        return PlanError(
            f"the runs differ in {name}: {shown}",
            hint=f"--factor {name} makes it a factor, --condition {name} keeps them apart, --mixed {name} "
            "compares them all the same",
        )
    return None
