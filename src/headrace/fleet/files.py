"""Values that last: what a host's files set at its next boot, and a server's at its next start.

All files come with one command, because a host far away costs a round trip for each. Values that may be passwords
are dropped as they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.model import Facts
from headrace.base.secret_names import announces_secret
from headrace.change.persist.last_word import SYSCTL_CONF, SYSCTL_FOLDERS, sysctls
from headrace.change.persist.options import OPTION_OF
from headrace.fleet.option_lines import charset_trouble, lowered, made_of, options_of
from headrace.host.facts import HostFacts
from headrace.host.target import Target
from headrace.knobs import servers
from headrace.knobs.values import plain_value
from headrace.lab.server.option_files import (
    COMMAND_LINE,
    ENVIRONMENT,
    Start,
    Word,
    meaning,
    reading,
    spelled_out,
)
from headrace.lab.server.sources import EMIT, FOLLOW, MOST_BYTES, copies

__all__ = ["COMMAND_LINE", "MOST_BYTES", "SCRIPT", "Lasting", "lasting", "sysctls"]

#: Prints the environment that a server's option files depend on, then size, mode, path and content of each file.
SCRIPT = f"""{EMIT}
pid=$1; shift
case "$pid" in
  [1-9]*) tr '\\0' '\\n' </proc/$pid/environ 2>/dev/null | grep -E '^({"|".join(ENVIRONMENT)})=';;
esac
printf '\\0'
uid= gid= home=
case "$pid" in
  [1-9]*)
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null &&
    ids='[[:space:]]*[0-9]*[[:space:]]*\\([0-9]*\\).*' &&
    uid=$(sed -n "s/^Uid:$ids/\\1/p" /proc/$pid/status) gid=$(sed -n "s/^Gid:$ids/\\1/p" /proc/$pid/status)
    [ "$uid" = 0 ] && uid=;;
esac
as_user() {{ setpriv --reuid="$uid" --regid="$gid" --init-groups -- "$@"; }}
for folder in {" ".join(SYSCTL_FOLDERS)}; do
  for file in "$folder"/*.conf; do emit "$file" || mask "$file"; done
done
emit {SYSCTL_CONF}
for name in MARIADB_HOME MYSQL_HOME HOME; do
  [ -r /proc/$pid/environ ] || break
  folder=$(tr '\\0' '\\n' </proc/$pid/environ | sed -n "s/^$name=//p")
  folder=${{folder%"${{folder##*[!/]}}"}}
  case "$name" in HOME) home=$folder; set -- "$@" "$folder/.my.cnf";; *) set -- "$@" "$folder/my.cnf";; esac
done
# A start's relative includes begin where its unit starts it.
begins=/
case "$pid" in
  [1-9]*)
    unit=$(sed -n 's|.*/\\([^/]*\\.service\\)\\(/.*\\)*$|\\1|p' /proc/$pid/cgroup 2>/dev/null | head -n 1)
    [ "$unit" ] && named=$(systemctl show -p WorkingDirectory --value "$unit" 2>/dev/null)
    case "$named" in /*) begins=$named;; esac;;
esac
cd "$begins" 2>/dev/null || cd /
{FOLLOW}"""

_NO_SETTING = ("defaults_", "no_defaults", "wsrep_new_cluster")
#: Statements, which may hold what is secret.
_STATEMENTS = ("init_connect", "init_file")


@dataclass(frozen=True)
class Lasting:
    """Name -> (value, the file that decides it). ``options`` is None if the server is not known.

    ``unreadable``: files that exist and were not read, or that no start gets past; what they set is not known.
    """

    sysctls: Mapping[str, tuple[str, str]]
    options: Mapping[str, tuple[str, str]] | None
    unreadable: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "sysctls": dict(self.sysctls),
            "options": None if self.options is None else dict(self.options),
            "unreadable": list(self.unreadable),
        }


async def lasting(target: Target, facts: Mapping[str, Any]) -> Lasting:
    """What the files of a host set; of the server that ``facts`` are about, if they are about one."""
    start, pid = _start(facts)
    paths = start.files() if start else []
    answer = await target.run(["sh", "-c", SCRIPT, "sh", str(pid or "-"), *paths], repeatable=True)
    environment, _, output = answer.stdout.partition(b"\0")
    found, unreadable = copies(output, target.name)
    if start is None:
        return Lasting(sysctls(found.files), None, tuple(unreadable))
    lines = environment.decode("utf-8", "replace").splitlines()
    given = dict(line.partition("=")[::2] for line in lines)
    start = Start(start.vendor, start.version, start.arguments, given)
    variables = HostFacts(Facts("", facts)).variables
    read = reading(found, start)
    broken = list(read.broken)
    if not _has_unit(facts):
        broken += [
            f"{path} (relative: it begins where the server was started, and / was taken for that)"
            for path in (*read.folders, *read.read)
            if not path.startswith("/")
        ]
    options, troubles = settled(read.words, start, variables)
    kept = {
        name: value for name, value in options.items() if not (announces_secret(name) or name in _STATEMENTS)
    }
    return Lasting(sysctls(found.files), kept, (*unreadable, *dict.fromkeys((*broken, *troubles))))


def settled(
    words: Sequence[Word], start: Start, variables: Mapping[str, str]
) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Name -> (value, file) of what a start makes of these words, the last of an option decides; and the places
    that it does not get past, or may not, each with the reason. ``variables`` are the running server's."""
    options: dict[str, tuple[str, str]] = {}
    broken: list[str] = []
    own = servers.of(start.vendor, start.version)
    # An option that no variable has, and the start of a variable's name: it is not userstat.
    known: Collection[str] = {*variables, "user"}
    if own is not None:
        # A plugin brings options that no list has, and the server its variables; that others are none is known.
        known = options_of(own) | {name for name in variables if name not in own.variables}
    for word in (each for whole in words for each in spelled_out(whole)):
        if own is None:
            options.update(_named(word, known, by_start=start.takes_starts))
            continue
        made = made_of(word, known, own, by_start=start.takes_starts)
        broken += [f"{word.place} ({made.trouble})"] if made.trouble else []
        value = made.value
        if made.most is not None:
            listed = own.variables.get(made.option)
            now = options[made.option][0] if made.option in options else (listed and listed.usual) or ""
            value = made.most if lowered(now, made.most) else None
        if value is not None and not made.option.startswith(_NO_SETTING):
            options[made.option] = (value, word.file)
    # The variable that such an option sets has another name.
    for variable, option in OPTION_OF.items():
        if option in options and option not in variables and variable in variables:
            options[variable] = options[option]
    if own is not None and plain_value(options.get("super_read_only", ("", ""))[0]) == "1":
        options["read_only"] = options["super_read_only"]  # the one brings the other
    if own is not None and (why := _mixed(options, own)):
        broken.append(why)
    return options, broken


def _start(facts: Mapping[str, Any]) -> tuple[Start | None, int | None]:
    """How the server was started that was asked; None if its process is not known."""
    found = HostFacts(Facts("", facts))
    for server in found.servers:
        if server["pid"] == found.server_pid:
            arguments = tuple(str(word) for word in server.get("command_line") or ())[1:]
            return Start(found.vendor, found.server_version or "", arguments), found.server_pid
    return None, None


def _mixed(options: Mapping[str, tuple[str, str]], own: servers.ServerList) -> str:
    """Where the last words about character set and collation do not fit, and so no start gets past them."""
    said = options.get("collation_server")
    usual = own.variables.get("character_set_server")
    charset = options.get("character_set_server", ((usual and usual.default) or "", ""))
    why = charset_trouble(charset[0], said[0]) if said else ""
    return f"{said[1]} ({why})" if said and why else ""


def _has_unit(facts: Mapping[str, Any]) -> bool:
    """Whether a unit of systemd started the server."""
    process = HostFacts(Facts("", facts)).server_process or {}
    folders = (process.get("cgroup") or {}).get("folders") or {}
    return any(".service" in str(folder) for folder in folders.values())


def _named(word: Word, known: Collection[str], *, by_start: bool) -> Iterable[tuple[str, tuple[str, str]]]:
    """``skip-name-resolve`` is a variable itself; ``skip-log-bin`` is log_bin, off. Without ``known`` it may be
    either."""
    option, value = meaning(word, known, by_start=by_start)
    if option == "skip_name_resolve" and value == "0" and not by_start:
        value = "ON"  # MySQL takes this word alone, whatever the number
    if option.startswith(_NO_SETTING):
        return
    if value is not None:
        yield option, (value, word.file)
    written = word.option.removeprefix("loose_")
    if option not in known and written != option:
        yield written, ("ON" if word.value is None else word.value, word.file)
