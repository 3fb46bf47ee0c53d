"""Writes ``src/headrace/knobs/servers/VENDOR-SERIES.json``: what real servers say of their own variables.

    PYTHONPATH=. .venv/bin/python scripts/knobs_of_servers.py [KIND...]

A kind is one of ``tests.servers.KINDS``. A private server is started and asked for its tables of variables
(information_schema.SYSTEM_VARIABLES, performance_schema.variables_info and variables_metadata), each variable is
set to what it is, and ``--verbose --help`` shows what the program makes of values beyond every range. One line per
variable, so that the next version's file shows in a diff what has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
from tests.servers import KINDS, Server, _as_mysql, find_server
from tests.servers import server as started

from headrace.knobs.values import is_own, means_the_same
from headrace.lab.server.program import parse_defaults

PLACE = Path(__file__).parents[1] / "src" / "headrace" / "knobs" / "servers"
#: A name of a choice, as the program prints it.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(,[A-Za-z][A-Za-z0-9_+-]*)*")
#: Positions of a choice's names that are tried, and of the bits of a set.
MOST_NAMES = 16
BITS = [1 << bit for bit in range(33)]
BEYOND = {"low": ("-9223372036854775808", "-1e30"), "high": ("18446744073709551615", "1e30")}
#: What MariaDB says of an option that is there for old files only; and words of the program that may be options.
IGNORED = re.compile(r"'([\w-]+)' (?:was removed|is MySQL [\w./ ]+compatible option)")
WORD = re.compile(rb"(?<=\0)[a-z][a-z0-9]+(?:[-_][a-z0-9]+)+(?=\0)")
#: Options without a default, so that a list of defaults has none of them, and some that no list names. Each
#: program is asked which of them it knows.
WITHOUT_DEFAULT = (
    "ansi", "aria_recover_options", "binlog_do_db", "binlog_ignore_db", "binlog_row_value_options",
    "bootstrap", "core_file", "debug_exit_info", "default_regex_flags", "disabled_storage_engines",
    "early_plugin_load", "exit_info", "external_locking", "feedback_user_info", "gtid_pos_auto_engines",
    "ignore_db_dirs", "init_connect", "init_file", "init_replica", "init_slave", "innodb",
    "keyring_migration_password", "language", "log_error", "log_error_suppression_list", "log_isam",
    "log_slow_verbosity", "mandatory_roles", "ndb_recv_thread_cpu_mask", "new_mode", "optimizer_trace",
    "performance_schema_instrument", "performance_schema_logger", "performance_schema_meter",
    "persist_only_admin_x509_subject", "plugin_load", "plugin_load_add", "proxy_protocol_networks",
    "redirect_url", "replica_type_conversions", "replicate_do_db", "replicate_do_table",
    "replicate_ignore_db", "replicate_ignore_table", "replicate_rewrite_db", "replicate_wild_do_table",
    "replicate_wild_ignore_table", "safe_mode", "skip_host_cache", "skip_new", "skip_stack_trace",
    "slave_type_conversions", "symbolic_links", "user", "version", "version_with_update",
    "wsrep_allowlist", "wsrep_cluster_address", "wsrep_dbug_option", "wsrep_mode", "wsrep_node_address",
    "wsrep_notify_cmd", "wsrep_provider_options", "wsrep_sst_donor", "wsrep_status_file",
)  # fmt: skip
#: What a start makes of its default depends on the machine, or on other options.
DEPENDS = re.compile(
    r"performance_schema_.*|.*ssl_.*|innodb_(buffer_pool_size_auto_min|doublewrite_.*|flush_method"
    r"|log_file_mmap|log_write_ahead_size|page_cleaners|purge_threads)|ft_stopword_file|report_port"
)
#: Also where the private server happens to run with what is printed.
OF_POOL = frozenset({"innodb_adaptive_hash_index_cells", "innodb_buffer_pool_chunk_size"})
#: Computed from another option, and a switch whose option says the opposite.
NO_PLACEHOLDERS = frozenset({"innodb_io_capacity_max", "skip_external_locking"})
#: Blocks that a number may have to be a multiple of, and a number of whole blocks of each.
STEPS = (1, 8, 10, 100, 512, 1024, 2048, 4096, 8192, 16384, 65536, 1 << 20)
WHOLE = (1 << 20) * 25
#: Arguments of one start.
MOST_ARGUMENTS = 200
READ_ONLY, ONLY_SESSION = 1238, 1228
DEPRECATED = 1287
#: The option of a variable that has another name; each is proved by a start with it, see ``_renamed``.
RENAMED = {
    "character_set_client": ("character-set-client-handshake", ""),
    "default_storage_engine": ("default-storage-engine", "MEMORY"),
    "default_tmp_storage_engine": ("default-tmp-storage-engine", "MEMORY"),
    "character_set_server": ("character-set-server", "latin1"),
    "collation_server": ("collation-server", "utf8mb4_bin"),
    "character_set_filesystem": ("character-set-filesystem", "latin1"),
    "lc_messages": ("lc-messages", "de_DE"),
    "lc_time_names": ("lc-time-names", "de_DE"),
    "autocommit": ("autocommit", "OFF"),
    "log_bin": ("log-bin", "here"),
    "skip_external_locking": ("external-locking", "TRUE"),
    "slave_parallel_mode": ("slave-parallel-mode", "minimal"),
    "storage_engine": ("default-storage-engine", "MEMORY"),
    "enforce_storage_engine": ("enforce-storage-engine", "InnoDB"),
    "gtid_pos_auto_engines": ("gtid-pos-auto-engines", "InnoDB"),
    "time_zone": ("default-time-zone", "+03:00"),
    "transaction_isolation": ("transaction-isolation", "READ-COMMITTED"),
    "transaction_read_only": ("transaction-read-only", "ON"),
    "tx_isolation": ("transaction-isolation", "READ-COMMITTED"),
    "tx_read_only": ("transaction-read-only", "ON"),
    "replicate_do_db": ("replicate-do-db", "here"),
    "replicate_ignore_db": ("replicate-ignore-db", "here"),
    "replicate_do_table": ("replicate-do-table", "here.one"),
    "replicate_ignore_table": ("replicate-ignore-table", "here.one"),
    "replicate_wild_do_table": ("replicate-wild-do-table", "here.one"),
    "replicate_wild_ignore_table": ("replicate-wild-ignore-table", "here.one"),
    "replicate_rewrite_db": ("replicate-rewrite-db", "one->two"),
    "binlog_do_db": ("binlog-do-db", "here"),
    "binlog_ignore_db": ("binlog-ignore-db", "here"),
    "log_bin_index": ("log-bin-index", "here.index"),
    "relay_log_index": ("relay-log-index", "here.index"),
    "locked_in_memory": ("memlock", "TRUE"),
}


@dataclass
class Program:
    """One server's program. ``ask`` is what it prints of its options when it is started with some."""

    kind: str
    path: Path
    argv: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        base = self.path.parent.parent
        self.argv = [*_as_mysql(), str(self.path), "--no-defaults"]
        self.argv += [f"--basedir={base}"] if self.kind != "mariadb-10.11" else []
        # What the private server has loaded, too: without the plugin its options would seem to be none.
        self.argv += [
            f"--plugin-load-add={each.name}" for each in sorted(base.glob("lib/mysql/plugin/semisync_*.so"))
        ]

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        env = dict(os.environ)
        if self.kind.startswith("mysql"):
            env["LD_LIBRARY_PATH"] = str(self.path.parent.parent / "lib")
        return subprocess.run(
            [*self.argv, *options],
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            cwd="/var/tmp",
            check=False,
        )

    def help(self, *options: str) -> tuple[str, str] | None:
        """Standard output and error of ``--verbose --help``; None where it refuses the options."""
        done = self.run(*options, "--verbose", "--help")
        return (
            None if done.returncode or "variable" not in done.stdout.lower() else (done.stdout, done.stderr)
        )

    def ignored(self, names: Sequence[str]) -> set[str]:
        """Those that MariaDB takes and does nothing with, as it says: of older releases, and of MySQL."""
        words = (f"--loose-{name.replace('_', '-')}=1" for name in names)
        done = self.run(*words, "--verbose", "--help")
        if done.returncode and len(names) > 1:
            half = len(names) // 2
            return self.ignored(names[:half]) | self.ignored(names[half:])
        return {name.replace("-", "_") for name in IGNORED.findall(done.stderr)}

    def knows(self, option: str) -> bool:
        """Whether it has this option, with a value or without. MySQL tells only when it checks a configuration."""
        how = (
            ["--secure-file-priv=", "--validate-config"]
            if self.kind.startswith("mysql")
            else ["--verbose", "--help"]
        )
        said = (self.run(f"--{option}{value}", *how).stderr for value in ("", "=1"))
        return any(not re.search(r"unknown (option|variable)", words) for words in said)

    def ask(self, values: Mapping[str, str]) -> dict[str, str]:
        """Variable -> what the program makes of this value; without those that it refuses to start with."""
        if not values:
            return {}
        said = self.help(*(f"--{name.replace('_', '-')}={value}" for name, value in values.items()))
        if said:
            shown = parse_defaults(said[0])
            return {name: shown[name] for name in values if name in shown}
        if len(values) == 1:
            return {}
        names = list(values)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        return {n: v for half in halves for n, v in self.ask({name: values[name] for name in half}).items()}


def main(kinds: Sequence[str]) -> None:
    for kind in kinds or KINDS:
        path = find_server(kind)
        if isinstance(path, str):
            _tell(f"{kind}: {path}")
            continue
        write(kind, Program(kind, path))


def write(kind: str, program: Program) -> None:
    said = program.help()
    assert said, kind
    options = parse_defaults(said[0])
    texts = _texts(said[0])
    with _private(kind, program) as server:
        version = str(server.sql("SELECT VERSION()")[0][0])
        rows = _of_mariadb(server) if kind.startswith("mariadb") else _of_mysql(server)
        trials = _trials(server, rows)
        running, shown = _running(server)
    for name, row in rows.items():
        row["option"] = name.replace("_", "-") if name in options else None
        if name in options:
            row["default"] = options[name]
        row |= trials.get(name, {})
        if "deprecated" not in row and (words := _deprecation(texts.get(name, ""))):
            row["deprecated"] = words
    if not kind.startswith("mariadb"):
        _kinds(program, rows, options)
    _ends(program, rows)
    for name, row in rows.items():
        _with_its_own_value(name, row)
        row.pop("now", None)
    for name in sorted(set(options) - set(rows)):
        rows[name] = {"kind": _plain_kind(options[name]), "default": options[name], "variable": False}
        rows[name] |= {"option": name.replace("_", "-"), "dynamic": False}
    _ends(program, {n: r for n, r in rows.items() if r.get("variable") is False and r["kind"] == "integer"})
    _renamed(kind, program, rows)
    _starts(rows, running, shown)
    _steps(program, rows)
    head = {"vendor": kind.partition("-")[0], "version": version.split("-")[0], "build": version}
    known = {row["option"].replace("-", "_") for row in rows.values() if row.get("option")}
    own = {"server": head, "ignored": _ignored(program, known), "unlisted": _unlisted(program, known)}
    _save(kind, own, [f"{json.dumps(n)}: {json.dumps(_short(rows[n]))}" for n in sorted(rows)])
    _tell(f"{kind}: {version}: {len(rows)} variables and options")


def _save(kind: str, own: Mapping[str, Any], lines: Sequence[str]) -> None:
    heads = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in own.items())
    text = "{" + heads + ',\n"variables": {\n' + ",\n".join(lines) + "\n}}\n"
    (PLACE / f"{kind}.json").write_text(text, encoding="utf-8")


def _ignored(program: Program, known: set[str]) -> list[str]:
    """MySQL has none: what it does not know, it does not start with."""
    if not program.kind.startswith("mariadb"):
        return []
    words = set[str]()
    for word in WORD.findall(program.path.read_bytes()):
        # A linker keeps a word that is the end of another one only there.
        parts = word.decode().replace("-", "_").split("_")
        words |= {"_".join(parts[start:]) for start in range(len(parts))}
    asked = sorted(word for word in words if word and not any(each.startswith(word) for each in known))
    found: set[str] = set()
    for start in range(0, len(asked), MOST_ARGUMENTS):
        found |= program.ignored(asked[start : start + MOST_ARGUMENTS])
    return sorted(found)


def _unlisted(program: Program, known: set[str]) -> list[str]:
    asked = (name for name in WITHOUT_DEFAULT if name not in known)
    return [name for name in asked if program.knows(name.replace("_", "-"))]


@contextlib.contextmanager
def _private(kind: str, program: Program, *options: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="hr-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        with started(kind, program.path, Path(folder) / "server", *options) as server:
            if not options and kind.startswith("mysql"):
                for side in ("source", "replica"):
                    with contextlib.suppress(pymysql.Error):  # not every package has them
                        server.sql(f"INSTALL PLUGIN rpl_semi_sync_{side} SONAME 'semisync_{side}.so'")
            yield server


def _of_mariadb(server: Server) -> dict[str, dict[str, Any]]:
    kinds = {"BOOLEAN": "switch", "ENUM": "choice", "SET": "set", "FLAGSET": "set", "VARCHAR": "text"}
    rows: dict[str, dict[str, Any]] = {}
    columns = (
        "LOWER(VARIABLE_NAME), VARIABLE_TYPE, NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE, ENUM_VALUE_LIST, READ_ONLY, "
        "VARIABLE_SCOPE, DEFAULT_VALUE, GLOBAL_VALUE, VARIABLE_COMMENT"
    )
    for name, kind, low, high, names, read_only, scope, default, now, comment in server.sql(
        f"SELECT {columns} FROM information_schema.SYSTEM_VARIABLES"
    ):
        row: dict[str, Any] = {"kind": kinds.get(str(kind), "number" if kind == "DOUBLE" else "integer")}
        row |= {"dynamic": read_only == "NO" and scope != "SESSION ONLY", "default": default, "now": now}
        row["session"] = str(scope).startswith("SESSION")
        if low is not None:
            row |= {"low": _number(low), "high": _number(high)}
        if names:
            row["allowed"] = str(names).split(",")
        if words := _deprecation(str(comment)):
            row["deprecated"] = words
        rows[str(name)] = row
    return rows


def _of_mysql(server: Server) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    now = {str(n): v for n, v in server.sql("SELECT * FROM performance_schema.global_variables")}
    session = {str(n) for n, _ in server.sql("SHOW SESSION VARIABLES")} - set(now)
    for name, low, high in server.sql(
        "SELECT VARIABLE_NAME, MIN_VALUE, MAX_VALUE FROM performance_schema.variables_info"
    ):
        if name in session:
            continue
        row: dict[str, Any] = {"kind": "text", "dynamic": False, "default": now.get(str(name))}
        row["now"] = now.get(str(name))
        if (str(low), str(high)) != ("0", "0"):
            is_whole = re.fullmatch(r"-?\d+", str(row["now"] or "0"))
            row |= {"kind": "integer" if is_whole else "number", "low": _number(low), "high": _number(high)}
        rows[str(name)] = row
    with contextlib.suppress(pymysql.Error):  # since 9.0
        for name, scope, documentation in server.sql(
            "SELECT VARIABLE_NAME, VARIABLE_SCOPE, DOCUMENTATION FROM performance_schema.variables_metadata"
        ):
            if name in rows:
                rows[str(name)]["session"] = str(scope).startswith("SESSION")
                if words := _deprecation(str(documentation)):
                    rows[str(name)]["deprecated"] = words
    return rows


def _trials(server: Server, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each variable set to what it is: whether the server takes it, and what it says of it."""
    found: dict[str, dict[str, Any]] = {}
    with (
        contextlib.closing(
            pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True, autocommit=True)
        ) as connection,
        connection.cursor() as cursor,
    ):
        for name in rows:
            one: dict[str, Any] = {}
            try:
                cursor.execute(f"SET GLOBAL {name} = @@GLOBAL.{name}")
                one["dynamic"] = True
                cursor.execute("SHOW WARNINGS")
                for _, code, text in cursor.fetchall():
                    # The list is that of the last statement that had any.
                    if code == DEPRECATED and re.search(rf"\b{name}\b", str(text), re.IGNORECASE):
                        one["deprecated"] = _sentence(str(text))
            except pymysql.Error as error:
                if error.args[0] in (READ_ONLY, ONLY_SESSION):
                    one["dynamic"] = False
                elif rows[name].get("dynamic", True):
                    one |= {"dynamic": True, "refuses": _sentence(str(error.args[1]))}
            try:
                cursor.execute(f"SET SESSION {name} = @@SESSION.{name}")
                one["session"] = True
            except pymysql.Error as error:
                one["session"] = error.args[0] not in (READ_ONLY, 1229) and rows[name].get("session", False)
            found[name] = one
    return found


def _kinds(program: Program, rows: dict[str, dict[str, Any]], options: Mapping[str, str]) -> None:
    """MySQL's tables do not list the names of a choice; the program shows them for numbers."""
    wanted = {
        name
        for name, row in rows.items()
        if row["kind"] == "text" and row["option"] and NAME.fullmatch(options[name] or "x")
    }
    shown: dict[str, list[str]] = {name: [] for name in wanted}
    for number in range(MOST_NAMES):
        said = program.ask(dict.fromkeys(wanted, str(number)))
        for name in list(wanted):
            value = said.get(name, "")
            if not NAME.fullmatch(value) or (value in shown[name] and "," not in value):
                wanted.discard(name)  # no such name, or no choice
            else:
                shown[name].append(value)
    for name, names in shown.items():
        if set(names) <= {"ON", "OFF"} and options[name] in ("ON", "OFF"):
            rows[name]["kind"] = "switch"
        elif any("," in each for each in names):
            rows[name]["kind"] = "set"
            single = [program.ask({name: str(bit)}).get(name, "") for bit in BITS[:12]]
            rows[name]["allowed"] = [n for n in dict.fromkeys(single) if NAME.fullmatch(n) and "," not in n]
        elif len(names) > 1:
            rows[name] |= {"kind": "choice", "allowed": names}
    for name, row in rows.items():
        if row["kind"] == "text" and options.get(name) in ("ON", "OFF"):
            row["kind"] = "switch"


def _ends(program: Program, rows: dict[str, dict[str, Any]]) -> None:
    """What the program itself makes of values beyond every range. Its word counts where a table cuts fractions, or
    has none."""
    numeric = {n: r for n, r in rows.items() if r["kind"] in ("integer", "number") and r.get("option")}
    for end, (whole, fraction) in BEYOND.items():
        values = {n: fraction if r["kind"] == "number" else whole for n, r in numeric.items()}
        for name, value in program.ask(values).items():
            row = numeric[name]
            if not re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", value):
                continue
            own = _number(value)
            if row["kind"] == "number" or end not in row:
                row[end] = own


def _with_its_own_value(name: str, row: dict[str, Any]) -> None:
    """A range that excludes what the server itself has is none."""
    now = str(row.get("now") or "")
    if "low" in row and re.fullmatch(r"-?\d+(\.\d+)?", now):
        row["low"], row["high"] = min(row["low"], _number(now)), max(row["high"], _number(now))


def _renamed(kind: str, program: Program, rows: dict[str, dict[str, Any]]) -> None:
    """Options of another name than their variable, each proved by a start with it."""
    options = {row["option"] for row in rows.values() if row.get("option")}
    wanted = {
        name: (option, value)
        for name, (option, value) in RENAMED.items()
        if name in rows and not rows[name].get("option") and option in options and value
    }
    before: dict[str, Any] = {}
    with _private(kind, program) as server:
        before = {name: server.sql(f"SELECT @@GLOBAL.{name}")[0][0] for name in wanted}
    for name, (option, value) in wanted.items():
        try:
            with _private(kind, program, f"--{option}={value}") as server:
                now = server.sql(f"SELECT @@GLOBAL.{name}")[0][0]
        except RuntimeError as error:
            _tell(f"{kind}: {name}: --{option}={value}: {str(error)[-200:]}")
            continue
        if now != before[name]:
            rows[name]["option"] = option
        else:
            _tell(f"{kind}: {name} is not set by --{option}")


def _running(server: Server) -> tuple[dict[str, str], dict[str, str]]:
    """What it runs with, and what its program says before a start that it would run with."""
    running = {str(name): str(value) for name, value in server.sql("SHOW GLOBAL VARIABLES")}
    said = subprocess.run(
        [*_as_mysql(), *server.argv, "--verbose", "--help"],
        env=server.env,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return running, parse_defaults(said.stdout)


def _starts(rows: Mapping[str, dict[str, Any]], running: Mapping[str, str], shown: Mapping[str, str]) -> None:
    """Options whose default stands for another value, which only a start shows."""
    for name, row in rows.items():
        printed = shown.get((row.get("option") or "").replace("-", "_"))
        has = running.get(name)
        if printed is None or has is None or name in NO_PLACEHOLDERS:
            continue
        if name in OF_POOL or not means_the_same(name, has, printed, running):
            is_fixed = not (name in OF_POOL or is_own(name) or DEPENDS.fullmatch(name))
            row["starts"] = has if is_fixed else ""


def _steps(program: Program, rows: Mapping[str, dict[str, Any]]) -> None:
    """The blocks in which the program counts, found by what it makes of one more of each of them."""
    left = {
        n: r for n, r in rows.items() if r["kind"] == "integer" and r.get("option") == n.replace("_", "-")
    }
    if program.kind.startswith("mysql"):
        left.pop("innodb_buffer_pool_size")  # in chunks, whose size is another variable's
    for step in STEPS:
        # What is a block of one size is one of each larger size as well.
        asked = {n: _amid(r) + step for n, r in left.items() if _amid(r) + step <= r.get("high", 0)}
        said = program.ask({name: str(number) for name, number in asked.items()})
        for name, number in asked.items():
            if said.get(name) == str(number):
                if step > 1:
                    rows[name]["step"] = step
                del left[name]


def _amid(row: Mapping[str, Any]) -> int:
    """A number of whole blocks within the range."""
    return -(-max(int(row.get("low", 0)), 0) // WHOLE) * WHOLE


def _texts(listing: str) -> dict[str, str]:
    """Option -> what ``--help`` says of it."""
    found: dict[str, str] = {}
    name = ""
    for line in listing.splitlines():
        if match := re.match(r"\s{2,}(?:-\w, )?--([a-z][a-z0-9-]*)", line):
            name = match[1].replace("-", "_")
        if name and line.startswith(" "):
            found[name] = f"{found.get(name, '')} {line.strip()}"
        elif not line.startswith(" "):
            name = ""
    return found


def _deprecation(text: str) -> str:
    """The sentence that says so; empty if none does."""
    text = " ".join(text.split())
    for sentence in re.split(r"(?<=[.!])\s", text):
        if re.search(r"deprecated|has no effect|unused\b|no longer", sentence, re.IGNORECASE):
            return _sentence(re.sub(r"^--\S+\s", "", sentence))
    return ""


def _sentence(text: str) -> str:
    return " ".join(text.split())[:200]


def _plain_kind(value: str) -> str:
    if value in ("ON", "OFF"):
        return "switch"
    return "integer" if re.fullmatch(r"-?\d+", value) else "text"


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _number(text: object) -> int | float:
    value = str(text)
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without what goes without saying: dynamic, for sessions, no option."""
    keys = ("kind", "low", "high", "step", "allowed", "default", "dynamic", "session", "option", "variable")
    found = {key: row[key] for key in (*keys, "refuses", "deprecated") if row.get(key) not in (None, "")}
    if "starts" in row:
        found["starts"] = row["starts"]
    if found.get("session") is False:
        del found["session"]
    if found.get("default") is not None and len(str(found["default"])) > 200:
        del found["default"]
    return found


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if word in KINDS])
