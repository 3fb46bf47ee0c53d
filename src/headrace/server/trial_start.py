"""What the storage engines make of their options, from a start on an empty folder that nobody else sees.

``--verbose --help`` and ``--validate-config`` open no engine: a value that only InnoDB refuses kept servers from
starting. So the server's own binary makes a new, small data directory with the engines' options of the next start,
as the server's user, and says which values it has. The folder is gone afterwards; no port or socket is opened.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.model import Vendor
from headrace.server.next_start import NextStart
from headrace.server.option_files import Word, quoted

#: Sizes that would take time and memory, what is of one data directory, and what needs a plugin or a server.
_LEFT_OUT = frozenset(
    {
        "aria_block_size",
        "aria_log_dir_path",
        "aria_pagecache_buffer_size",
        "innodb_buffer_pool_chunk_size",
        "innodb_buffer_pool_instances",
        "innodb_buffer_pool_size",
        "innodb_data_file_path",
        "innodb_data_home_dir",
        "innodb_dedicated_server",
        "innodb_directories",
        "innodb_fast_shutdown",
        "innodb_force_recovery",
        "innodb_log_buffer_size",
        "innodb_log_file_size",
        "innodb_log_files_in_group",
        "innodb_log_group_home_dir",
        "innodb_page_cleaners",
        "innodb_page_size",
        "innodb_read_only",
        "innodb_redo_log_archive_dirs",
        "innodb_redo_log_capacity",
        "innodb_temp_tablespaces_dir",
        "innodb_undo_directory",
        "innodb_undo_tablespaces",
    }
)
_NEEDS_KEYS = re.compile(r"innodb_(default_)?(encrypt|redo_log_encrypt|undo_log_encrypt)|aria_encrypt")
#: Where the binary finds its own files.
_PLACES = frozenset({"basedir", "character_sets_dir", "lc_messages_dir", "plugin_dir"})
_SMALL = {
    Vendor.MARIADB: ("innodb_buffer_pool_size=16M", "innodb_log_file_size=8M"),
    Vendor.MYSQL: ("innodb_buffer_pool_size=16M",),
}
#: MySQL compares the size of its redo log with the number of threads, and does not start where it is too small.
REDO = frozenset({"innodb_log_file_size", "innodb_redo_log_capacity", "innodb_thread_concurrency"})
_MOST_REDO = {"innodb_redo_log_capacity": 1 << 30, "innodb_log_file_size": 256 << 20}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMEOUT_S = 60
_RUN = f"""
cd /; umask 077
dir=$(mktemp -d /tmp/headrace-start-XXXXXX) || exit 90
trap 'rm -rf "$dir"' EXIT
trap 'exit 91' HUP INT TERM
files=$1 sql=$2; shift 2
[ "$files" ] && ulimit -n "$files" 2>/dev/null
cat >"$dir/my.cnf"
mkdir "$dir/data"
printf '%s' "$sql" | sed "s|@DIR@|$dir|g" >"$dir/ask.sql"
case $1 in bootstrap) mode=--bootstrap input="$dir/ask.sql";; *) mode="--initialize-insecure --init-file=$dir/ask.sql" input=/dev/null;; esac
shift
timeout {_TIMEOUT_S} "$1" --defaults-file="$dir/my.cnf" --datadir="$dir/data" --secure-file-priv= $mode <"$input" 2>&1
code=$?
printf '\\nexit=%s\\n' "$code"
cat "$dir/values" 2>/dev/null
exit 0
"""  # noqa: E501


@dataclass(frozen=True)
class Trial:
    """``problems`` are the binary's words if it did not start; ``values`` those that it had, by option."""

    problems: tuple[str, ...]
    values: Mapping[str, str]


def is_tried(option: str, value: str | None) -> bool:
    """Whether an engine decides this option, and a small new data directory shows how.

    Never one that names a place: the running server's own files may be there.
    """
    is_engine = option.startswith(("innodb_", "aria_")) and "/" not in (value or "")
    return is_engine and option not in _LEFT_OUT and _NEEDS_KEYS.match(option) is None


async def try_start(start: NextStart, words: Sequence[Word], options: Collection[str]) -> Trial | None:
    """Start once with the engines' options among these words. None where even those of now do not start there, so
    nothing follows."""
    trial = await _tried(start, words, options)
    if trial.problems:
        now = await _tried(start, start.reading.words, ())
        if now.problems:
            return None
    return trial


async def _tried(start: NextStart, words: Sequence[Word], options: Collection[str]) -> Trial:
    is_mariadb = start.start.vendor is Vendor.MARIADB
    small = _SMALL[Vendor.MARIADB if is_mariadb else Vendor.MYSQL]
    lines = ["[mysqld]", *(f"loose-{each}" for each in small)]
    for word in words:
        option, value = start.option(word)
        if option in _MOST_REDO and not is_mariadb:
            lines += _capped(option, value or "")
        elif is_tried(option, value) or option in _PLACES:
            lines.append(word.text if word.line else f"{word.option} = {quoted(value or '')}")
    asked = [f"SELECT '{each}', @@global.{each}" for each in options]
    sql = f"{' UNION ALL '.join(asked)} INTO OUTFILE '@DIR@/values';\n" if asked else ""
    mode = "bootstrap" if is_mariadb else "initialize"
    process = start.process
    libraries = process.environment.get("LD_LIBRARY_PATH")
    command = [
        *process.as_server(is_root=start.target.is_root),
        *(("env", f"LD_LIBRARY_PATH={libraries}") if libraries else ()),
        *("sh", "-c", _RUN, "sh", process.most_files, sql, mode, process.program),
    ]
    content = ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
    answer = await start.target.run(command, stdin=content, check=False, timeout_s=2 * _TIMEOUT_S)
    log, _, rest = answer.text.partition("\nexit=")
    code, _, values = rest.partition("\n")
    found = re.findall(r"\[ERROR\](?: \[MY-\d+\] \[\w+\])? *(.*)$", log, re.MULTILINE)
    problems = [line for line in dict.fromkeys(found) if line != "Aborting"] or ["it ended without a word"]
    rows = (line.partition("\t") for line in values.splitlines())
    return Trial(tuple(problems) if code != "0" else (), {name: value for name, _, value in rows})


def _capped(option: str, value: str) -> list[str]:
    """A size as it is, up to one that takes neither time nor room."""
    found = re.fullmatch(r"(\d+)([kmgt]?)", value.strip().lower())
    if found is None:
        return []
    return [f"{option} = {min(int(found[1]) * _UNITS[found[2]], _MOST_REDO[option])}"]
