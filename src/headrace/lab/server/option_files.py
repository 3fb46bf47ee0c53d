"""Which option files a server reads, in which order, and which word about an option is the last, and so decides.

The rules are those of mysys/my_default.cc and my_getopt.cc of both families; ``tests/real/server`` compares them
with what real servers print for ``--print-defaults``. Nothing here opens a file: ``sources`` brings them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from headrace.base.model import Vendor
from headrace.base.received import BadContent, parsed

#: Built into the packages of all vendors, in this order.
MAIN_FILES = ("/etc/my.cnf", "/etc/mysql/my.cnf")
COMMAND_LINE = "the command line"
#: my_default.cc, max_recursion_level.
MOST_DEPTH = 10
#: my_getopt.cc, special_opt_prefix: each may stand before any option, also several of them.
#: The last one is MariaDB's only.
PREFIXES = ("skip_", "disable_", "enable_", "maximum_", "loose_", "autoset_")
_OFF, _ON = ("skip_", "disable_"), ("enable_",)
#: What a server's environment says about its option files.
ENVIRONMENT = ("HOME", "MARIADB_HOME", "MYSQL_HOME", "MARIADB_GROUP_SUFFIX", "MYSQL_GROUP_SUFFIX")
_FIRST = ("defaults-file", "defaults-extra-file", "defaults-group-suffix")
#: Short options: with a value, with one that is written at once or not at all, and without.
_SHORT = {"P": "port", "h": "datadir", "b": "basedir", "t": "tmpdir", "u": "user",
    "C": "character_set_server", "L": "lc_messages_dir", "r": "chroot"}  # fmt: skip
_SHORT_AT_ONCE = {"W": "log_warnings", "T": "debug_exit_info", "#": "debug"}
_SHORT_ALONE = {"a": "ansi", "s": "symbolic_links", "n": "new"}
#: sys_vars and mysqld.cc of both families: ``ansi`` stands for these two.
_ANSI = (("sql_mode", "ANSI"), ("transaction_isolation", "SERIALIZABLE"))
#: my_isspace of latin1, byte by byte, which also takes the end off a letter such as "à"; Python has other ones.
_SPACES = b" \t\n\v\f\r\xa0"
#: MariaDB reads a longer line as several, each of at most so many bytes.
_MOST_LINE = 4094
#: It names nothing, and its line has an end.
_EMPTY_INCLUDE = re.compile(r"\s*!\s*(includedir|include)\s+$")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " ", '"': '"', "'": "'", "\\": "\\"}


@dataclass(frozen=True)
class Word:
    """One option as a server comes across it. ``option`` has underscores, ``value`` is None without one.

    ``line`` is the number of its line in ``file``, ``text`` the line; 0 on the command line.
    """

    file: str
    line: int
    option: str
    value: str | None
    text: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Copies:
    """Files of a host, by path. ``ignored`` ones are there, but every user may write them: a server skips them.

    ``absent`` are folders that files include, and files of the start, that are not there; ``barred`` are files and
    folders that the server's user may not read, if that was asked.
    """

    files: Mapping[str, bytes]
    ignored: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    barred: frozenset[str] = frozenset()

    def text(self, path: str) -> str | None:
        if path in self.ignored or path not in self.files:
            return None
        return self.files[path].decode("utf-8", "surrogateescape")

    def inside(self, folder: str) -> list[str]:
        """The option files of a folder, in the order of a server: by bytes, hidden ones too."""
        place = PurePosixPath(folder)
        found = [path for path in self.files if PurePosixPath(path).parent == place]
        return sorted((path for path in found if path.endswith(".cnf")), key=lambda path: path.encode())

    def replaced(self, path: str, content: str) -> Copies:
        """The same with one file written anew."""
        return dataclasses.replace(
            self, files={**self.files, path: content.encode()}, ignored=self.ignored - {path}
        )


@dataclass(frozen=True)
class Start:
    """What decides, when a server starts, which options it reads. ``arguments`` come without the program.

    ``built_in`` are the files and ``groups`` the groups that its binary names; empty where it was not asked.
    """

    vendor: Vendor | None
    version: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    built_in: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def defaults(self) -> tuple[str, ...]:
        """The arguments about option files, which a server takes only before all others."""
        found: dict[str, str] = {}
        for word in self.arguments:
            # With underscores it is an option like another, and nothing comes of it.
            name = word.removeprefix("--").partition("=")[0]
            if not word.startswith("--") or name not in (*_FIRST, "no-defaults") or name in found:
                break
            # MySQL takes others after it.
            if self.vendor is Vendor.MARIADB and found and "no-defaults" in (name, *found):
                break
            found[name] = word
        return tuple(found.values())

    @property
    def own(self) -> tuple[str, ...]:
        """The other arguments: what they say counts after every file."""
        return self.arguments[len(self.defaults) :]

    @property
    def is_by_root(self) -> bool:
        """Whether root starts it, so that it reads its files before it becomes its own user."""
        return any(word.option == "user" for word in of_arguments(self.own))

    @property
    def has_no_files(self) -> bool:
        return "--no-defaults" in self.defaults

    @property
    def takes_starts(self) -> bool:
        """Whether the start of an option's name will do; MySQL ended that with 8.0."""
        return self.vendor is Vendor.MARIADB or self.version.startswith("5.")

    @property
    def is_later_mysql(self) -> bool:
        """MySQL after 8.0: it reads some lines in another way, and only 9.7 could be asked how."""
        return self.vendor is not Vendor.MARIADB and not self.version.startswith(("5.", "8.0."))

    def option(self, name: str) -> str:
        """A name as it is written, with underscores; to MariaDB capitals are the same letters."""
        return plain(name).lower() if self.vendor is Vendor.MARIADB else plain(name)

    def named(self, argument: str) -> str:
        found = [word for word in self.defaults if word.startswith(f"--{argument}=")]
        return found[-1].partition("=")[2] if found else ""

    def files(self) -> list[str]:
        """The files that it opens, whether they exist or not."""
        if self.has_no_files:
            return []
        if path := self.named("defaults-file"):
            return [path]
        if self.built_in:
            # Without HOME it has no home folder to look in.
            found = [self.expanded(path) for path in self.built_in]
            return [path for path in found if not path.startswith("~")]
        names = ("MARIADB_HOME", "MYSQL_HOME") if self.vendor is Vendor.MARIADB else ("MYSQL_HOME",)
        homes = [self.environment[name] for name in names if self.environment.get(name)][:1]
        extra = [path for path in (self.named("defaults-extra-file"),) if path]
        own = [f"{self.environment['HOME'].rstrip('/')}/.my.cnf"] if self.environment.get("HOME") else []
        return [*MAIN_FILES, *(f"{home.rstrip('/')}/my.cnf" for home in homes), *extra, *own]

    def expanded(self, path: str) -> str:
        """A file below the home folder that is written as ``~/``; a folder is never."""
        home = self.environment.get("HOME", "")
        return f"{home.rstrip('/')}/{path[2:]}" if path.startswith("~/") and home else path

    def reads(self, group: str) -> bool:
        """Whether it reads a group of this name; case does not count."""
        return group.lower() in {name.lower() for name in self.groups or self._known_groups()}

    def _known_groups(self) -> list[str]:
        major, _, rest = self.version.partition(".")
        series = f"{major}.{rest.partition('.')[0]}"
        if self.vendor is Vendor.MARIADB:
            # [mariadb-11] is a group since the eleventh: 10.11 has none for its first number.
            numbers = [series, major] if major.isdigit() and int(major) >= 11 else [series]
            names = ["mysqld", "server", f"mysqld-{series}", "client-server", "galera"]
            names += [
                f"{name}{n}" for name in ("mariadb", "mariadbd") for n in ("", *(f"-{n}" for n in numbers))
            ]
        else:
            names = ["mysqld", "server", f"mysqld-{series}", "mysql_cluster"]
        variables = ["MARIADB_GROUP_SUFFIX"] if self.vendor is Vendor.MARIADB else []
        given = [self.environment.get(name, "") for name in (*variables, "MYSQL_GROUP_SUFFIX")]
        suffix = self.named("defaults-group-suffix") or next((each for each in given if each), "")
        return [*names, *(f"{name}{suffix}" for name in names if suffix)]


@dataclass(frozen=True)
class Reading:
    """All words of a start, the last of an option decides, and the folders whose files it reads, in order.

    ``broken`` are the places at which a server stops reading a file, each with the reason. In a file that another
    one includes that is all; in one of its own it does not start.
    """

    words: tuple[Word, ...]
    folders: tuple[str, ...]
    read: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def reading(copies: Copies, start: Start) -> Reading:
    """What a server comes across when it starts: its files in order, then its command line."""
    words: list[Word] = []
    folders: list[str] = []
    read: list[str] = []
    broken: list[str] = []
    if start.is_by_root:
        copies = dataclasses.replace(copies, barred=frozenset())
    for path in start.files():
        broken += _missing(copies, start, path)
        for each in _of_file(copies, start, path, 0, read, broken):
            if isinstance(each, Word):
                words.append(each)
            else:
                folders.append(each)
    own = [dataclasses.replace(word, option=start.option(word.option)) for word in of_arguments(start.own)]
    return Reading((*words, *own), tuple(folders), tuple(read), tuple(dict.fromkeys(broken)))


def _missing(copies: Copies, start: Start, path: str) -> list[str]:
    """Why a start ends because its arguments name this file."""
    is_named = path in (start.named("defaults-file"), start.named("defaults-extra-file"))
    if is_named and path in copies.absent:
        return [f"{path} (its arguments name it, and it is not there: no start gets past it)"]
    if path in copies.barred:
        then = "no start gets past it" if is_named else "a start skips it"
        return [f"{path} (the server's user may not read it: {then})"]
    return []


def _of_file(
    copies: Copies, start: Start, path: str, depth: int, read: list[str], broken: list[str]
) -> Iterator[Word | str]:
    """The words of a file, and the folders that it includes, as text."""
    text = copies.text(path)
    if text is None or depth > MOST_DEPTH or path in copies.barred:
        return
    read.append(path)
    then = "a start reads no further in this file" if depth else "no start gets past it"
    group: str | None = None
    for number, raw in _lines(text, start):
        broken += [f"{path}:{number} ({why})" for why in _unknown(raw, start)]
        whole = raw.partition("\0")[0]
        line = stripped(whole)
        why = ""
        if line.startswith("!"):
            is_folder, named = directive(_without_remark(whole, start))
            named = named if is_folder else start.expanded(named)
            if is_folder:
                yield named
            why = _why_not(whole, named, copies, is_folder=is_folder)
            for each in [] if why else copies.inside(named) if is_folder else [named] if named else []:
                yield from _of_file(copies, start, each, depth + 1, read, broken)
        elif line.startswith("["):
            group, bracket, _ = line[1:].partition("]")
            group = group.rstrip()
            why = "" if bracket else "a group without its closing bracket"
        elif line and not line.startswith(("#", ";")):
            if group is None:
                mark = " after a byte order mark" if line.startswith("\ufeff") else ""
                why = f"a line before the first group{mark}"
            elif start.reads(group):
                name, equals, value = without_comment(line).partition("=")
                yield Word(
                    path, number, start.option(stripped(name)), _value(value) if equals else None, line
                )
        if why:
            broken.append(f"{path}:{number} ({why}: {then})")
            return


def _unknown(line: str, start: Start) -> Iterator[str]:
    """What only the release itself knows of a line."""
    if re.match(r"\s*!\s*include(dir)?\s+~[^/\s]", line):
        yield "the home folder of another user: what a start reads there is not known"
    if not start.is_later_mysql:
        return
    if "\0" in line:
        yield "a zero byte: what a start reads of it is not known"
    if line.lstrip().startswith("!") and not start.version.startswith("9.7."):
        if "#" in line:
            yield "whether this release takes the rest of an include for a comment is not known"
        if not line.endswith("\n"):
            yield "whether this release reads the last letter of a line without an end is not known"


def _without_remark(line: str, start: Start) -> str:
    """An include as later releases of MySQL take it: without the comment after it, and to its last letter."""
    return f"{without_comment(line.rstrip(chr(10)))}\n" if start.is_later_mysql else line


def _why_not(line: str, named: str, copies: Copies, *, is_folder: bool) -> str:
    """Why a server stops at an include; empty where it does not."""
    if match := _EMPTY_INCLUDE.match(line):
        return f"!{match[1]} of nothing"
    if is_folder and named in copies.absent:
        return f"it includes {named}, which is not there"
    is_barred = is_folder and named in copies.barred
    return f"it includes {named}, which the server's user may not read" if is_barred else ""


def _lines(text: str, start: Start) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, as a server takes them."""
    whole = text.split("\n")
    for number, line in enumerate(whole, 1):
        # Only the last one has no end.
        line += "\n" if number < len(whole) else ""
        if start.vendor is not Vendor.MARIADB or len(line) * 4 <= _MOST_LINE:
            yield number, line
            continue
        content = line.encode("utf-8", "surrogateescape")
        for at in range(0, len(content), _MOST_LINE):
            part = content[at : at + _MOST_LINE].decode("utf-8", "surrogateescape")
            yield number, part


def stripped(text: str) -> str:
    """Without what a server takes for space."""
    if text.isascii():
        return text.strip(" \t\n\v\f\r")
    return text.encode("utf-8", "surrogateescape").strip(_SPACES).decode("utf-8", "surrogateescape")


def directive(line: str) -> tuple[bool, str]:
    """Whether a line that begins with ``!`` names a folder, and what it names; empty if it is no include.

    ``line`` comes with its end: without one the last letter is taken for it (my_default.cc, get_argument).
    """
    match = re.match(r"\s*!\s*(includedir|include)\s+(\S.*)", line, re.DOTALL)
    if match is None:
        return False, ""
    named = stripped(match[2][:-1])
    return match[1] == "includedir", (named.rstrip("/") or "/") if match[1] == "includedir" else named


def without_comment(line: str) -> str:
    """A line up to a ``#`` that is not in quotes."""
    quote, escaped = "", False
    for at, letter in enumerate(line):
        if letter in "'\"" and not escaped:
            quote = "" if quote == letter else quote or letter
        if not quote and letter == "#":
            return line[:at].rstrip()
        escaped = bool(quote) and letter == "\\" and not escaped
    return line


def _value(text: str) -> str:
    text = stripped(text)
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)


def quoted(value: str) -> str:
    """A value as a line of an option file holds it."""
    # Of other letters the last byte may count as a space.
    is_plain = value.isascii() and value.isprintable()
    if value and is_plain and re.fullmatch(r"[^\s'\"#\\](?:[^'\"#\\]*[^\s'\"#\\])?", value):
        return value
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{text}"'


def of_arguments(arguments: Sequence[str]) -> Iterator[Word]:
    """The options of a command line, ``--name value`` and ``-P 3306`` too."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            taken = not equals and rest and not rest[0].startswith("-")
            yield Word(
                COMMAND_LINE, 0, plain(name), value if equals else rest.pop(0) if taken else None, word
            )
        elif word.startswith("-"):
            yield from _of_letters(word, rest)


def _of_letters(word: str, rest: list[str]) -> Iterator[Word]:
    """The options of ``-aP 3306``; a value that stands by itself is taken from ``rest``."""
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter in _SHORT:
            yield Word(COMMAND_LINE, 0, _SHORT[letter], letters or (rest.pop(0) if rest else ""), word)
            return
        if letter in _SHORT_AT_ONCE:
            yield Word(COMMAND_LINE, 0, _SHORT_AT_ONCE[letter], letters or None, word)
            return
        if letter in _SHORT_ALONE:
            yield Word(COMMAND_LINE, 0, _SHORT_ALONE[letter], None, word)


def spelled_out(word: Word) -> list[Word]:
    """The options that a word stands for: ``ansi`` sets two others, and so does ``loose-ansi``."""
    if word.option.removeprefix("loose_").removeprefix("enable_") != "ansi":
        return [word]
    return [dataclasses.replace(word, option=option, value=value) for option, value in _ANSI]


def plain(option: str) -> str:
    """``innodb-io-capacity`` -> ``innodb_io_capacity``."""
    return option.replace("-", "_")


def meaning(word: Word, known: Collection[str], *, by_start: bool = True) -> tuple[str, str | None]:
    """The option that a word is about, in its full name, and the value that it gives; None for a limit only.

    ``known`` are the names of the server's options, of which the start is enough with ``by_start``. A word that
    fits none of them keeps its name.
    """
    name, _, prefixes = unwrapped(word, known, by_start=by_start)
    value = word.value
    last = prefixes[-1] if prefixes else ""
    if last == "maximum_":
        return name, None
    if last in _OFF:
        return name, "ON" if value == "0" else "OFF"
    if last in _ON:
        return name, "OFF" if value == "0" else "ON"
    return name, "ON" if value is None else value


def unwrapped(
    word: Word, known: Collection[str], *, by_start: bool, vendor: Vendor | None = None
) -> tuple[str, bool, tuple[str, ...]]:
    """The option that a word is about, whether it is a known one, and the prefixes before it.

    Of several prefixes the one next to the name counts: skip-loose-x leaves x on.
    """
    name = word.option
    prefixes: list[str] = []
    while not (found := _full(name, known, by_start=by_start)):
        taken = PREFIXES if vendor is not Vendor.MYSQL else PREFIXES[:-1]
        if not (prefix := next((each for each in taken if name.startswith(each)), "")):
            break
        prefixes.append(prefix)
        name = name.removeprefix(prefix)
    return found or name, bool(found), tuple(prefixes)


#: Options that no variable has, and that begin others' names: `mysqld --verbose --help`.
_NO_VARIABLE = frozenset(
    {
        "admin_ssl", "binlog_do_db", "binlog_ignore_db", "binlog_row_event_max_size", "core_file", "debug_gdb",
        "early_plugin_load", "exit_info", "external_locking", "log_basename", "log_isam", "log_raw",
        "log_short_format", "log_tc", "master_info_file", "master_retry_count", "max_binlog_dump_events",
        "old_style_user_limits", "plugin_load", "plugin_load_add", "rpl_semi_sync_master", "rpl_semi_sync_replica",
        "rpl_semi_sync_slave", "rpl_semi_sync_source", "safe_user_create", "server_audit", "symbolic_links",
        "sysdate_is_now", "tc_heuristic_recover", "temp_pool", "user", "validate_password",
    }
)  # fmt: skip


def is_ambiguous(word: Word, known: Collection[str]) -> bool:
    """Whether several options begin as this word does, and none is it: a server does not start with that.

    One with ``loose_`` before it is only skipped.
    """
    name = word.option
    if "loose_" in name:
        return False
    while not (found := [each for each in known if each.startswith(name)]):
        if not (prefix := next((p for p in PREFIXES if name.startswith(p)), "")):
            return False
        name = name.removeprefix(prefix)
    # Engines and plugins have an option of their own name: innodb, ssl, feedback.
    is_own = "_" not in name and all(each.startswith(f"{name}_") for each in found)
    return len(found) > 1 and name not in known and name not in _NO_VARIABLE and not is_own


def _full(name: str, known: Collection[str], *, by_start: bool) -> str:
    """The option of this name, or the only one that begins so; empty if there is none."""
    if name in known:
        return name
    found = [each for each in known if each.startswith(name)] if name and by_start else []
    return found[0] if len(found) == 1 else ""


def persisted(content: bytes) -> dict[str, str]:
    """Variable -> value of a mysqld-auto.cnf (SET PERSIST), which MySQL reads after files and command line.

    Without the sensitive ones, whose names are encrypted, too: ``has_sealed`` says whether there are any. Raises
    BadContent: it is the account's file.
    """
    found: dict[str, str] = {}

    def collect(node: object) -> None:
        if not isinstance(node, dict):
            return
        for key, value in node.items():
            if key == "mysql_sensitive_variables":
                continue
            # Who edits it may write capitals: to the server they are the same letters.
            name = key.lower()
            if isinstance(value, dict) and "Value" in value:
                found[name] = str(value["Value"])
            elif isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_.]*", name):
                found[name] = value
            else:
                collect(value)

    whole = parsed(content)
    if not isinstance(whole, dict):
        raise BadContent("it is not an object, as a server writes one")
    collect(whole)
    return found


def has_sealed(content: bytes) -> bool:
    """Whether a mysqld-auto.cnf also holds sensitive variables, which only the server with its keyring can read.

    Raises BadContent.
    """
    whole = parsed(content)
    sealed = whole.get("mysql_sensitive_variables") if isinstance(whole, dict) else None
    return isinstance(sealed, dict) and bool(sealed.get("mysql_sensitive_variables_blob"))


def after_start(content: bytes, backup: bytes | None) -> bytes:
    """What a start makes of mysqld-auto.cnf: a backup that is whole takes its place (read_persist_file)."""
    if not backup:
        return content
    try:
        parsed(backup)
    except BadContent:
        return content
    return backup
