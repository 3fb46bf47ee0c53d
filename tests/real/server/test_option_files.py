"""Option files as real servers read them: generated sets of files, and the answer of each server's own binary."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.base.model import Vendor
from headrace.fleet.files import settled
from headrace.fleet.option_lines import options_of
from headrace.knobs import servers
from headrace.lab.server.next_start import option_names
from headrace.lab.server.option_files import Copies, Start, Word, meaning, reading
from headrace.lab.server.program import parse_defaults
from headrace.lab.server.sources import EMIT, FOLLOW, copies
from tests.servers import KINDS, find_server, open_folder

SETS = 8
GROUPS = (
    "mysqld", "mysqld", "server", "mariadb", "mariadbd", "client", "mysqld-8.0", "mysqld-9.7", "mysqld-5.7",
    "mysqld-10.11", "mysqld-11.8", "mariadb-10.11", "mariadb-11.8", "mariadb-11", "mariadb-10", "mariadbd-11",
    "client-server", "galera", "mysqldfoo", "mariadb-10.11foo", "MySQLd", "mysqld ", " mysqld", "mysql_cluster",
)  # fmt: skip
#: As an administrator writes them, and a few that nobody would.
LINES = (
    "max_connections = {n}", "max-connections={n}", "loose_max-connections={n} # c", "max_connections='{n}'",
    'max_connections = "{n}"  # "x"', "maximum-max-connections={n}", "loose-loose_max_connections = {n}",
    "skip-slow-query-log", "slow_query_log", "disable_slow_query_log=0", "enable-slow-query-log",
    "slow-query-log=0", "init_connect='SET @a={n}' # c", "init_connect=a#b",
    'init_connect="a\\n\\"b#{n}\\" \\x\\\\"', "init_connect =",
    "# max_connections={n}", "; max_connections={n}", "", "   max_connections   =   {n}   ", "loose-no-such={n}",
    "sql_mode=''", "init_connect='it''s", "loose_a=b=c;{n}", "skip_loose-slow-query-log",
    "enable_skip_slow-query-log", "!include ~/.my.cnf", "!includedir {here}/dir # c",
    "maximum-innodb_io_capacity={n}00", "maximum-loose-max_connections={n}", "slow_query_log=2",
)  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def program(request: pytest.FixtureRequest) -> tuple[str, Path]:
    found = find_server(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    return request.param, found


@pytest.fixture
def place() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def asked(program: Path, place: Path, environment: dict[str, str], *words: str) -> str:
    return answered(program, place, environment, *words).stdout


def answered(
    program: Path, place: Path, environment: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    base = program.parent.parent
    as_mysql = (
        ["setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups", "--"] if os.geteuid() == 0 else []
    )
    share = [f"--lc-messages-dir={base}/share"] if (base / "share/english/errmsg.sys").exists() else []
    how = ["--secure-file-priv="] if "--validate-config" in words else ["--verbose", "--help"]
    more = [f"--basedir={base}", *share, *how] if "--print-defaults" not in words else []
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{base}/lib", **environment}
    return subprocess.run(
        [*as_mysql, str(program), *words, *more],
        env=env,
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )


def generate(dice: random.Random, place: Path) -> None:
    """my.cnf, extra.cnf and folders of them; some of what is there is not read."""
    (place / "dir").mkdir()
    (place / "even").mkdir()
    names = ["a.cnf", "B.cnf", "a.b.cnf", ".h.cnf", "10.cnf", "9.cnf", "x.ini", "y.cnf.bak", "zz.cnf"]
    files = [place / "my.cnf", place / "extra.cnf", place / "home" / ".my.cnf", place / "home" / "my.cnf"]
    files += [place / dice.choice(("dir", "even")) / name for name in dice.sample(names, 6)]
    (place / "home").mkdir()
    for path in files:
        lines = ["[mysqld]"]
        for _ in range(dice.randint(2, 9)):
            lines.append(dice.choice(LINES).format(n=dice.randint(20, 90), here=place))
            if dice.random() < 0.3:
                lines.append(f"[{dice.choice(GROUPS)}]")
        if path.name in ("my.cnf", "extra.cnf"):
            for _ in range(2):
                what = dice.choice(
                    (f"!includedir {place}/dir", f"!includedir {place}/even/", f"!include {place}/dir/zz.cnf")
                )
                lines.insert(dice.randint(0, len(lines)), dice.choice(("", "  ")) + what)
        path.write_text("\n".join(lines) + dice.choice(("", "\n")))
        path.chmod(0o646 if dice.random() < 0.1 else 0o644)


def shown(words: Sequence[Word]) -> str:
    return " ".join(
        f"--{word.text.partition('=')[0].strip().partition(' ')[0]}"
        + ("" if word.value is None else f"={word.value}")
        for word in words
    )


@pytest.mark.parametrize("seed", range(SETS))
def test_the_words_of_generated_files_are_those_that_the_binary_reads(
    program: tuple[str, Path], place: Path, seed: int
) -> None:
    kind, binary = program
    vendor = Vendor.MARIADB if kind.startswith("mariadb") else Vendor.MYSQL
    dice = random.Random(f"{kind} {seed}")
    generate(dice, place)
    environment = dice.choice(({}, {"HOME": f"{place}/home"}, {"MYSQL_HOME": f"{place}/home"}))
    environment = {**environment, **dice.choice(({}, {"MYSQL_GROUP_SUFFIX": "foo"}))}
    arguments = dice.choice(
        (
            [f"--defaults-file={place}/my.cnf"],
            [f"--defaults-extra-file={place}/my.cnf", "--defaults-group-suffix=foo"],
            [f"--defaults-file={place}/my.cnf", "--defaults-group-suffix=foo"],
        )
    )
    start = Start(vendor, f"{kind.partition('-')[2]}.1", tuple(arguments), environment)
    if not any(word.startswith("--defaults-file") for word in arguments):
        # What this binary was built with beside the packages' files, and this machine's own.
        listing = asked(binary, place, environment, *arguments)
        built_in = re.search(r"read from the following files .*:\n(.*)$", listing, re.MULTILINE)
        if built_in is None:
            return  # it does not start with these options, and says nothing but that
        start = Start(
            vendor, start.version, tuple(arguments), environment, built_in=tuple(built_in[1].split())
        )
    script = f"home={environment.get('HOME', '')}\n{EMIT}{FOLLOW}"
    collected = subprocess.run(
        ["sh", "-c", script, "sh", *start.files()], capture_output=True, check=True
    ).stdout
    found = reading(copies(collected, "here")[0], start)
    words = found.words
    printed = asked(binary, place, environment, *arguments, "--print-defaults")
    theirs = printed.partition("following arguments:\n")[2].removesuffix("\n").strip()
    if any("no start gets past it" in where for where in found.broken):
        assert not theirs, found.broken
        return
    assert " ".join(shown(words).split()) == " ".join(theirs.split())

    table = parse_defaults(asked(binary, place, environment, *arguments))
    if not table:
        return
    options, _ = settled(words, start, {})
    for option, default in (("max_connections", "151"), ("slow_query_log", "OFF")):
        expected = options.get(option, (default, ""))[0]
        assert table[option] == {"0": "OFF", "1": "ON"}.get(expected, expected)


@pytest.mark.parametrize(
    ("line", "mariadb", "mysql"),
    [
        ("max_connect_err=55", ("max_connect_errors", "55"), ("max_connect_err", "55")),
        ("loose-skip_slow-query-log", ("slow_query_log", "OFF"), ("slow_query_log", "OFF")),
        ("skip_slow_query_log=0", ("slow_query_log", "ON"), ("slow_query_log", "ON")),
        ("skip-name-resolve", ("skip_name_resolve", "ON"), ("skip_name_resolve", "ON")),
        ("maximum-sort_buffer_size=1M", ("sort_buffer_size", None), ("sort_buffer_size", None)),
    ],
)
def test_the_spellings_of_an_option(
    program: tuple[str, Path], place: Path, line: str, mariadb: tuple[str, str], mysql: tuple[str, str]
) -> None:
    kind, binary = program
    table = parse_defaults(asked(binary, place, {}, "--no-defaults"))
    name, equals, value = line.partition("=")
    word = Word("f", 1, name.replace("-", "_"), value if equals else None, line)
    is_mariadb = kind.startswith("mariadb")
    expected = mariadb if is_mariadb else mysql
    assert meaning(word, table, by_start=is_mariadb) == expected
    (place / "my.cnf").write_text(f"[mysqld]\n{line}\n")
    after = parse_defaults(asked(binary, place, {}, f"--defaults-file={place}/my.cnf"))
    if expected[0] in table and expected[1] is not None:
        assert after[expected[0]] == expected[1]


#: What ends a start, and what does not though it looks so: each asked from the binary.
FATAL = (
    ("maximum-max_connections=40", True, True),
    ("loose-maximum-max_connections=40", False, True),
    ("maximum-innodb_io_capacity=400", False, False),
    ("max_connections=1.5M", True, True),
    ("max_connections", True, True),
    ("max_connections=", False, True),
    ("max_connections=-1", True, False),
    ("loose-no-such", False, False),
    ("no-such", True, True),
    ("skip-ansi", True, True),
    ("transaction-isolation=READ_COMMITTED", True, True),
    ("max_conn=40", False, True),
)


@pytest.mark.parametrize(("line", "mariadb", "mysql"), FATAL)
def test_a_line_that_ends_a_start_is_named(
    program: tuple[str, Path], place: Path, line: str, mariadb: bool, mysql: bool
) -> None:
    kind, binary = program
    vendor = Vendor.MARIADB if kind.startswith("mariadb") else Vendor.MYSQL
    ends = mariadb if vendor is Vendor.MARIADB else mysql
    (place / "my.cnf").write_text(f"[mysqld]\n{line}\n")
    # MySQL's help goes on after an option that it does not know.
    check = [] if vendor is Vendor.MARIADB else ["--validate-config"]
    done = answered(binary, place, {}, f"--defaults-file={place}/my.cnf", *check)
    assert (done.returncode != 0) is ends, done.stderr[-500:]
    start = Start(vendor, f"{kind.partition('-')[2]}.1", (f"--defaults-file={place}/my.cnf",))
    words = reading(Copies({f"{place}/my.cnf": f"[mysqld]\n{line}\n".encode()}), start).words
    assert bool(settled(words, start, {})[1]) is ends


def test_every_option_that_the_binary_lists_is_a_known_one(program: tuple[str, Path], place: Path) -> None:
    kind, binary = program
    vendor = Vendor.MARIADB if kind.startswith("mariadb") else Vendor.MYSQL
    own = servers.of(vendor, f"{kind.partition('-')[2]}.1")
    assert own is not None
    assert not option_names(asked(binary, place, {}, "--no-defaults")) - options_of(own)
