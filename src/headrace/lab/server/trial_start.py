"""What a server makes of its options, from a start on an empty folder that nobody else sees.

``--verbose --help`` and ``--validate-config`` open no engine and answer no statement: a value that only InnoDB
refuses kept servers from starting, and one that leaves no room for a temporary table from answering. So the
server's own binary makes a new, small data directory with the options of the next start that decide this, says
which values it has, and answers a few statements.

It runs beside a server in production, on its host and under its account, so it gets none of its paths, plugins,
ports, sockets, logs, environment or temporary folder, no network where we are root, and bounds of time, memory,
room and priority. A guard ends it and removes the folder if whoever started it is killed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.base.model import Vendor
from headrace.lab.server.next_start import NextStart
from headrace.lab.server.option_files import Word, quoted

#: Sizes that would take time and memory, what is of one data directory, and what needs a plugin or a server.
_LEFT_OUT = frozenset(
    {
        "aria_block_size",
        "aria_log_dir_path",
        "aria_pagecache_buffer_size",
        "innodb_buffer_pool_chunk_size",
        "innodb_buffer_pool_filename",
        "innodb_buffer_pool_instances",
        "innodb_buffer_pool_size",
        "innodb_buffer_pool_size_auto_min",
        "innodb_buffer_pool_size_max",
        "innodb_data_file_path",
        "innodb_data_home_dir",
        "innodb_dedicated_server",
        "innodb_directories",
        "innodb_doublewrite_dir",
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
        "innodb_tmpdir",
        "innodb_undo_directory",
        "innodb_undo_tablespaces",
    }
)
_NEEDS_KEYS = re.compile(r"innodb_(default_)?(encrypt|redo_log_encrypt|undo_log_encrypt)|aria_encrypt")
#: Where the binary finds its own files. Not its plugins: one could reach out, and none is needed.
_PLACES = frozenset({"basedir", "character_sets_dir", "lc_messages_dir"})
#: A pool is tried where it is smaller than the trial's own: one may be too small for its pages.
_POOL = "innodb_buffer_pool_size"
_LEAST_POOL = 16 << 20
_SMALL = {
    Vendor.MARIADB: (
        "innodb_buffer_pool_size=16M",
        "innodb_buffer_pool_size_max=32M",
        "innodb_log_file_size=8M",
    ),
    Vendor.MYSQL: ("innodb_buffer_pool_size=16M",),
}
#: MySQL compares the size of its redo log with the number of threads, and does not start where it is too small.
REDO = frozenset({"innodb_log_file_size", "innodb_redo_log_capacity", "innodb_thread_concurrency"})
_MOST_REDO = {"innodb_redo_log_capacity": 1 << 30, "innodb_log_file_size": 256 << 20}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
#: A file of such a size in a value, as in ``ibtmp1:64G``, would be made.
_LARGE = re.compile(r":\s*\d+\s*[gt]\b|:\s*\d{4,}\s*m\b|:\s*\d{10,}\b", re.IGNORECASE)
#: Off by name as well, though neither way of starting gets so far.
_APART = (
    "--skip-networking",
    "--skip-log-bin",
    "--secure-file-priv=",
    *(
        f"--loose-{each}"
        for each in (
            "wsrep-on=OFF",
            "feedback=OFF",
            "mysqlx=OFF",
            "performance-schema=OFF",
            "skip-slave-start",
            "skip-replica-start",
            "auto-generate-certs=OFF",
            "sha256-password-auto-generate-rsa-keys=OFF",
            "caching-sha2-password-auto-generate-rsa-keys=OFF",
        )
    ),
)
#: What any application does: rows written, grouped, sorted, joined and kept in temporary tables of both kinds.
_STATEMENTS = (
    "CREATE DATABASE headrace_trial",
    "CREATE TABLE headrace_trial.t (id INT PRIMARY KEY, g INT, s VARCHAR(200), l LONGTEXT)",
    "INSERT INTO headrace_trial.t VALUES (1, 1, REPEAT('a', 100), REPEAT('b', 1000)),"
    " (2, 2, REPEAT('c', 100), REPEAT('d', 1000))",
    "SELECT COUNT(*) INTO @n FROM information_schema.COLLATIONS",
    "SELECT COUNT(*) INTO @n FROM (SELECT g, s, COUNT(DISTINCT s) AS c FROM headrace_trial.t GROUP BY g, s"
    " ORDER BY c, s) AS x",
    "SELECT COUNT(*) INTO @n FROM (SELECT l FROM headrace_trial.t UNION SELECT s FROM headrace_trial.t) AS x",
    "SELECT COUNT(*) INTO @n FROM headrace_trial.t AS a JOIN headrace_trial.t AS b ON a.s > b.s",
)
_TIMEOUT_S = 60
_LEAST_ROOM_KB = 2 << 20
_LEAST_MEMORY_KB = 1 << 20
_MOST_MEMORY_KB = 2 << 20
#: Of a file, in blocks of 512 bytes as sh has it.
_MOST_FILE = (1280 << 20) // 512
_MOST_ANSWER = 200_000
#: Root alone can give it a network without anything in it.
_ALONE = 'if unshare --net true 2>/dev/null; then exec unshare --net -- "$@"; else exec "$@"; fi'
#: Ends the server and removes the folder once time is over or our shell is gone, however that came.
_GUARD = """
n=0
while kill -0 "$1" 2>/dev/null && [ $n -lt "$3" ]; do sleep 1; n=$((n + 1)); done
child=$(cat "$2/child" 2>/dev/null)
[ "$child" ] && grep -qF -- "$2/my.cnf" "/proc/$child/cmdline" 2>/dev/null && kill -9 "$child"
kill -0 "$1" 2>/dev/null || rm -rf "$2"
"""
_RUN = f"""
cd /; umask 077
[ "$(id -u)" != 0 ] || exit 94
files=$1 sql=$2 mode=$3 libraries=$4 guard=$5; shift 5
memory=$(sed -n 's/^MemAvailable: *\\([0-9]*\\).*/\\1/p' /proc/meminfo)
[ "${{memory:-0}}" -ge {_LEAST_MEMORY_KB} ] || exit 93
for place in /var/tmp /tmp none; do
  [ -d $place ] && [ -w $place ] || continue
  find $place -maxdepth 1 -type d -name 'headrace-start-??????' -user "$(id -u)" -mmin +10 -exec rm -rf {{}} + 2>/dev/null
  room=$(df -Pk $place 2>/dev/null | tail -n 1 | {{ read -r _ _ _ left _; echo "${{left:-0}}"; }})
  [ "$room" -ge {_LEAST_ROOM_KB} ] 2>/dev/null && break
done
[ $place != none ] || exit 92
dir=$(mktemp -d $place/headrace-start-XXXXXX) || exit 90
alone=; command -v setsid >/dev/null && alone=setsid
$alone sh -c "$guard" sh $$ "$dir" {_TIMEOUT_S} </dev/null >/dev/null 2>&1 &
guard=$!
child=
trap '[ -z "$child" ] || kill -9 "$child" 2>/dev/null; rm -rf "$dir"; kill "$guard" 2>/dev/null' EXIT
trap 'exit 91' HUP INT TERM
cat >"$dir/my.cnf"
mkdir "$dir/data" "$dir/tmp" "$dir/plugins"
printf '%s' "$sql" | sed "s|@DIR@|$dir|g" >"$dir/ask.sql"
input=/dev/null; [ "$mode" = --bootstrap ] && input="$dir/ask.sql" || mode="$mode --init-file=$dir/ask.sql"
[ "$files" ] && ulimit -n "$files" 2>/dev/null
ulimit -c 0; ulimit -f {_MOST_FILE}; ulimit -d {_MOST_MEMORY_KB} 2>/dev/null; ulimit -t {4 * _TIMEOUT_S}
echo 1000 2>/dev/null >/proc/self/oom_score_adj
program=$1; shift
set -- "$program" --defaults-file="$dir/my.cnf" --datadir="$dir/data" --tmpdir="$dir/tmp" \\
  --plugin-dir="$dir/plugins" --socket="$dir/socket" --pid-file="$dir/pid" "$@" $mode
set -- nice -n 19 env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$dir" TMPDIR="$dir/tmp" \\
  ${{libraries:+"LD_LIBRARY_PATH=$libraries"}} "$@"
command -v ionice >/dev/null && set -- ionice -c 3 "$@"
setpriv --pdeathsig KILL true 2>/dev/null && set -- setpriv --pdeathsig KILL "$@"
"$@" <"$input" >"$dir/log" 2>&1 &
child=$!
echo $child >"$dir/child"
wait $child
code=$?
child=
tail -c {_MOST_ANSWER} "$dir/log"
printf '\\nexit=%s\\n' "$code"
head -c {_MOST_ANSWER} "$dir/data/values" 2>/dev/null
exit 0
"""  # noqa: E501
#: Our own exit codes, and what in a log is of the bounds that the trial has, not of the options.
_REASONS = {
    90: "its user can make no folder in /var/tmp or /tmp",
    91: "it was stopped",
    92: f"neither /var/tmp nor /tmp has {_LEAST_ROOM_KB >> 20} GiB free that its user may write",
    93: f"the host has less than {_LEAST_MEMORY_KB >> 20} GiB of memory available",
    94: "its user is root, under which nothing is tried",
}
_BOUNDS = re.compile(
    r"cannot allocate memory|out of memory|no space left|file too large|disk quota|errno: ?(12|27|28)\b",
    re.IGNORECASE,
)
#: By a signal of the bounds: KILL, XCPU, XFSZ.
_ENDED = {
    "137": f"it was ended from outside, or not done within {_TIMEOUT_S} s",
    "152": "it took too much of the CPU",
    "153": "it would write too large a file",
}
_NOBODY = 65534


@dataclass(frozen=True)
class Trial:
    """``problems`` are the binary's words if it did not start, or started and did not answer (``is_up``);
    ``values`` those that it had, by variable. ``untried`` says why nothing follows."""

    problems: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    is_up: bool = False
    untried: str = ""


def is_of_engine(option: str, value: str | None) -> bool:
    """Whether an engine decides this option, and a small new data directory shows how.

    Never one that names a place: the running server's own files may be there.
    """
    is_engine = option.startswith(("innodb_", "aria_")) and _is_plain(value or "")
    return is_engine and not _is_left_out(option, value) and _NEEDS_KEYS.match(option) is None


def _is_left_out(option: str, value: str | None) -> bool:
    if option == _POOL and (found := re.fullmatch(r"(\d+)([kmgt]?)", (value or "").strip().lower())):
        return int(found[1]) * _UNITS[found[2]] >= _LEAST_POOL
    return option in _LEFT_OUT


def _is_plain(value: str) -> bool:
    return "/" not in value and ".." not in value and _LARGE.search(value) is None


async def try_start(
    start: NextStart,
    words: Sequence[Word],
    variables: Sequence[str],
    is_tried: Callable[[str, str | None], bool],
) -> Trial:
    """Start once with those of these words that are tried, and ask for these variables."""
    trial = await _tried(start, words, variables, is_tried)
    if trial.problems:
        now = await _tried(start, start.reading.words, (), is_tried)
        if now.untried or now.problems:
            return Trial(untried=now.untried or f"not even those of now start there: {now.problems[0]}")
    return trial


async def _tried(
    start: NextStart,
    words: Sequence[Word],
    variables: Sequence[str],
    is_tried: Callable[[str, str | None], bool],
) -> Trial:
    is_mariadb = start.start.vendor is Vendor.MARIADB
    process = start.process
    command = [
        *(("sh", "-c", _ALONE, "sh") if start.target.is_root else ()),
        *process.as_server(is_root=start.target.is_root, instead_of_root=_NOBODY),
        *("sh", "-c", _RUN, "sh", process.started_with[1], _statements(variables)),
        "--bootstrap" if is_mariadb else "--initialize-insecure",
        *(process.environment.get("LD_LIBRARY_PATH", ""), _GUARD, process.program, *_APART),
    ]
    content = ("\n".join(_lines(start, words, is_tried)) + "\n").encode("utf-8", "surrogateescape")
    answer = await start.target.run(command, stdin=content, check=False, timeout_s=2 * _TIMEOUT_S)
    return _read(answer.text, answer.exit_code)


def _lines(start: NextStart, words: Sequence[Word], is_tried: Callable[[str, str | None], bool]) -> list[str]:
    is_mariadb = start.start.vendor is Vendor.MARIADB
    small = _SMALL[Vendor.MARIADB if is_mariadb else Vendor.MYSQL]
    lines = ["[mysqld]", *(f"loose-{each}" for each in small)]
    for word in words:
        option, value = start.option(word)
        if option in _MOST_REDO and not is_mariadb:
            lines += _capped(option, value or "")
        elif option in _PLACES or (
            not _is_left_out(option, value) and _is_plain(value or "") and is_tried(option, value)
        ):
            lines.append(word.text if word.line else f"{word.option} = {quoted(value or '')}")
    return lines


def _statements(variables: Sequence[str]) -> str:
    """The values first: they are there even if the rest is not answered."""
    asked = " UNION ALL ".join(f"SELECT '{each}', @@GLOBAL.{each}" for each in variables)
    first = ["SET SESSION sql_select_limit = 18446744073709551615"]
    first += [f"{asked} INTO OUTFILE '@DIR@/data/values'"] if asked else []
    return "".join(f"{each};\n" for each in (*first, *_STATEMENTS))


def _read(text: str, code: int) -> Trial:
    log, separator, rest = text.rpartition("\nexit=")
    if not separator:
        return Trial(untried=_REASONS.get(code, f"the trial itself failed (exit code {code})"))
    ended, _, rows = rest.partition("\n")
    values = {name: value for name, tab, value in (row.partition("\t") for row in rows.splitlines()) if tab}
    if ended == "0":
        return Trial(values=values, is_up=True)
    if ended in _ENDED:
        return Trial(untried=_ENDED[ended])
    if bound := _BOUNDS.search(log):
        return Trial(untried=f"it met the bounds of the trial ({bound[0]})")
    refused = re.findall(r"^ERROR: \d+ +(.*)$", log, re.MULTILINE)
    errors = re.findall(r"\[ERROR\](?: \[MY-\d+\] \[\w+\])? *(.*)$", log, re.MULTILINE)
    problems = [line for line in dict.fromkeys([*refused, *errors]) if line != "Aborting"]
    crashed = f"it ended by signal {int(ended) - 128}" if ended.isdigit() and int(ended) > 128 else ""
    return Trial(tuple(problems or [crashed or "it ended without a word"]), values, bool(refused))


def _capped(option: str, value: str) -> list[str]:
    """A size as it is, up to one that takes neither time nor room."""
    found = re.fullmatch(r"(\d+)([kmgt]?)", value.strip().lower())
    if found is None:
        return []
    return [f"{option} = {min(int(found[1]) * _UNITS[found[2]], _MOST_REDO[option])}"]
