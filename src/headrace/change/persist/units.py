"""A drop-in of the server's systemd unit, named so that it is read last; what would win over it is named instead.

systemd.unit(5): drop-ins of all folders are read by the order of their names. systemd.exec(5): what an
EnvironmentFile= sets is stronger than Environment=, UnsetEnvironment= than both.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from headrace.base.errors import NotReady, Refused
from headrace.change.persist.boot import HEADER, own_text
from headrace.change.persist.environment import of_file, split, words_of
from headrace.change.persist.last_word import in_order, lines_of
from headrace.change.persist.wrapper import is_safe
from headrace.host.facts import HostFacts
from headrace.host.target import Target
from headrace.lab.server.option_files import ENVIRONMENT, Copies, Word, of_arguments, spelled_out
from headrace.lab.server.sources import EMIT, copies

FOLDERS = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
DROP_IN = "zz-headrace.conf"
#: Units and drop-ins, then the files that they take variables from. The manager knows more of them, if one runs.
#: First the unit's other names: links to it.
_COLLECT = (
    EMIT
    + """
unit=$1 names=$2; shift 2
for folder in "$@"; do
  for link in "$folder"/*.service; do
    [ -L "$link" ] || continue
    other=$(basename "$link") real=$(basename "$(readlink -f "$link")")
    case $real:$other in
      "$unit:$unit") ;;
      "$unit:"*) names="$names $other"; printf '0 0 alias:%s\n' "$other";;
      *":$unit") names="$names $real"; printf '0 0 alias:%s\n' "$real";;
    esac
  done
done
known=
[ -d /run/systemd/system ] && known=$(systemctl show -p FragmentPath -p DropInPaths --value "$unit" 2>/dev/null)
for file in $known; do emit "$file"; done
for folder in "$@"; do
  for name in $names; do
    for file in "$folder/$name" "$folder/$name.d"/*.conf; do emit "$file" || mask "$file"; done
  done
done
exit 0
"""
)
#: What sets it in the command itself.
_IN_A_COMMAND = {
    # Also what takes it away, and what mysqld_safe puts there.
    "LD_PRELOAD": re.compile(
        r"LD_PRELOAD=|--(malloc-lib|ld-preload)\b|\benv\s+(\S+\s+)*?(-i?\s|--ignore-environment\b)"
        r"|\benv\s+(\S+\s+)*?(-u\s*|--unset[= ])LD_PRELOAD\b"
    ),
    "LimitNOFILE": re.compile(r"\bulimit\s+-\w*n|\bprlimit\b|--open[-_]files[-_]limit\b"),
}
_FILES = f'{EMIT}\nfor file in $1; do emit "$file"; done\nexit 0\n'
_ALIAS = "alias:"


#: Where the manager's own variables are from.
_MANAGER = "systemctl show-environment"
_OF_A_USER = re.compile(r"/user@\d+\.service(/|$)")
_SERVER = re.compile(r"(^|/)(mysqld|mariadbd)(_safe|-safe)?$")


def names_of(unit: str) -> list[str]:
    """The names whose folders of drop-ins count for a unit, by itself: its own, its template's, those of each of
    its beginnings that end in a dash, and its kind's."""
    name, _, kind = unit.rpartition(".")
    template = f"{name.partition('@')[0]}@.{kind}" if "@" in name else ""
    parts = name.split("-")
    starts = [f"{'-'.join(parts[:count])}-.{kind}" for count in range(len(parts) - 1, 0, -1)]
    return [each for each in (unit, template, *starts, kind) if each]


def unit_of(facts: HostFacts) -> str | None:
    """The unit that started the server: its control group says it. None where there is none, also where a package
    has brought one that no systemd starts."""
    folders = ((facts.server_process or {}).get("cgroup") or {}).get("folders") or {}
    for folder in map(str, folders.values()):
        # The manager of a user has its own folders of drop-ins.
        if _OF_A_USER.search(folder):
            continue
        if match := re.search(r"/([A-Za-z0-9_.@:\\-]+\.service)(/|$)", folder):
            return match[1]
    return None


async def drop_in(target: Target, facts: HostFacts, lines: Mapping[str, str]) -> tuple[str, str] | None:
    """Path and content of our drop-in with these lines: ``LimitNOFILE`` or ``LD_PRELOAD`` -> the whole line.

    None where no unit starts the server, and the option alone holds. Raises Refused where another file wins.
    """
    if facts.vendor is None:
        raise NotReady("without a server login its unit is unknown", place="systemd")
    unit = unit_of(facts)
    if unit is None:
        if "LD_PRELOAD" in lines:
            raise NotReady("systemd has no unit of this server", place=target.name)
        return None
    found, others = await _collected(target, unit)
    if other := starter(found, unit, others):
        raise NotReady(
            f"{unit} starts {other}, which starts the server: what it gives the server is not the unit's to say",
            place=target.name,
            hint=f"set {' and '.join(lines)} where {other} starts the server",
        )
    if "LD_PRELOAD" in lines and is_safe(starter(found, unit, others, any_program=True)):
        raise NotReady(
            f"{unit} starts mysqld_safe, which preloads what malloc-lib in its own groups says",
            place=target.name,
            hint="set malloc-lib in a [mysqld_safe] group",
        )
    return unit_file(found, unit, lines, others)


def starter(found: Copies, unit: str, others: Sequence[str] = (), *, any_program: bool = False) -> str:
    """The program that a unit starts, where that is none of the server's but, say, a supervisor."""
    programs: list[str] = []
    for file in _in_turn(found, unit, others):
        for _, key, value in _of_service(found, file):
            if key == "ExecStart":
                programs.append(value) if value else programs.clear()
    is_servers = any(re.search(r"mysql|maria", each, re.IGNORECASE) for each in programs)
    if not programs or (is_servers and not any_program):
        return ""
    return programs[0].split()[0].lstrip("-@:+!")


async def _collected(target: Target, unit: str) -> tuple[Copies, list[str]]:
    """The files of a unit and those that it takes variables from; and its other names. Raises NotReady."""
    words = ["sh", "-c", _COLLECT, "sh", unit, " ".join(names_of(unit)), *FOLDERS]
    answer = await target.run(words, repeatable=True)
    found, unreadable = copies(answer.stdout, target.name)
    others = [path.removeprefix(_ALIAS) for path in found.files if path.startswith(_ALIAS)]
    # A shell would take these names apart where they hold patterns, and nothing else does.
    named = " ".join(
        value for _, value in environment_files(Copies(found.files), unit, list(found.files), all_named=True)
    )
    more, unread = copies(
        (await target.run(["sh", "-c", _FILES, "sh", named], repeatable=True)).stdout, target.name
    )
    if unreadable or unread:
        raise NotReady(
            f"cannot be read: {', '.join([*unreadable, *unread])}", place=target.name, hint="as root"
        )
    return Copies({**found.files, **more.files}), others


async def next_options(target: Target, facts: HostFacts) -> list[Word]:
    """The options of the command line that the server's unit starts it with next; empty without a unit.

    They are not those of the running server once its unit was edited. Raises NotReady.
    """
    unit = unit_of(facts)
    if unit is None:
        return []
    found, others = await _collected(target, unit)
    return options_of(found, unit, others, await _of_manager(target))


async def _of_manager(target: Target) -> dict[str, tuple[str, int, str]]:
    """The variables that ``systemctl set-environment`` gave every unit, such as MYSQLD_OPTS."""
    ask = ["sh", "-c", "systemctl show-environment 2>/dev/null; exit 0"]
    lines = (await target.run(ask, check=False, repeatable=True)).text.splitlines()
    return {
        name: (_MANAGER, number, value[2:-1] if value.startswith("$'") else value)
        for number, line in enumerate(lines, 1)
        for name, equals, value in [line.partition("=")]
        if equals
    }


def options_of(
    found: Copies,
    unit: str,
    others: Sequence[str] = (),
    environment: Mapping[str, tuple[str, int, str]] = MappingProxyType({}),
) -> list[Word]:
    """As ``next_options``, over files that were read: those of ExecStart= and of the variables that it names.

    ``environment`` is the manager's own: of a variable the unit's word counts. Those that say which option files
    are read are words of their own, ``$MYSQL_HOME``.
    """
    files = _in_turn(found, unit, others)
    commands: list[tuple[str, int, str]] = []
    # Variable -> where it was last set, and to what.
    variables = dict(environment)
    own: dict[str, tuple[str, int, str]] = {}
    for file in files:
        for number, key, value in _of_service(found, file):
            # An empty one forgets those before.
            if key == "ExecStart":
                commands.append((file, number, value)) if value else commands.clear()
            elif key == "Environment" and value:
                own |= _assigned(file, number, value)
            elif key == "Environment":
                own.clear()
    variables |= own
    known = _specifiers(unit)

    def resolved(text: str) -> str:
        return re.sub("%.", lambda match: known.get(match[0], match[0]), text)

    variables = {name: (file, number, resolved(text)) for name, (file, number, text) in variables.items()}
    commands = [(file, number, resolved(text)) for file, number, text in commands]
    for _, pattern in environment_files(found, unit, files):
        for file in sorted(each for each in found.files if fnmatch.fnmatchcase(each, pattern)):
            variables |= {name: (file, number, text) for number, name, text in of_file(found.files[file])}
    named = {name for _, _, text in commands for name in re.findall(r"\$\{?(\w+)", text)}
    words = [word for file, number, text in commands for word in _words(file, number, text, has_program=True)]
    words += [word for name, at in variables.items() if name in named for word in _words(*at)]
    return words + [
        Word(file, number, f"${name}", text, f"{name}={text}")
        for name, (file, number, text) in variables.items()
        if name in ENVIRONMENT
    ]


def _of_service(found: Copies, file: str) -> Iterator[tuple[int, str, str]]:
    """Number, key and value of the lines that count: what stands in another section does not."""
    section = "[Service]"
    for number, line in lines_of(found, file):
        if line.startswith("["):
            section = line
        key, equals, value = line.partition("=")
        if equals and section == "[Service]":
            yield number, key.strip(), value.strip()


def _assigned(file: str, number: int, text: str) -> dict[str, tuple[str, int, str]]:
    """The variables of an Environment=."""
    parts = [part.partition("=") for part in split(text)]
    return {name: (file, number, value) for name, equals, value in parts if equals}


def _words(file: str, number: int, text: str, *, has_program: bool = False) -> Iterator[Word]:
    """The options in a command, long ones wherever they stand, and short ones behind the server's program."""
    # Variables are looked at by themselves, and behind `--` of another program stands the server's.
    words = [each for each in words_of(text) if each != "--" and not each.startswith("$")]
    program = next((at for at, word in enumerate(words) if _SERVER.search(word)), len(words))
    own = words[program + 1 :] if has_program else words
    given = [word for word in of_arguments(words) if word.text.startswith("--")]
    given += [word for word in of_arguments(own) if not word.text.startswith("--")]
    for word in given:
        yield from spelled_out(replace(word, file=file, line=number))


def _in_turn(found: Copies, unit: str, others: Sequence[str]) -> list[str]:
    """The unit, then its drop-ins."""
    own = [f"{place}/{name}" for name in (unit, *others, *names_of(unit)[1:2]) for place in FOLDERS]
    names = dict.fromkeys(each for name in (unit, *others) for each in names_of(name))
    folders = [f"{place}/{name}.d" for name in names for place in FOLDERS]
    return [*[path for path in own if path in found.files][:1], *in_order(found, folders, ".conf")]


def unit_file(
    found: Copies, unit: str, lines: Mapping[str, str], others: Sequence[str] = ()
) -> tuple[str, str]:
    """As ``drop_in``, over files that were read; ``others`` are the unit's other names."""
    path = f"/etc/systemd/system/{unit}.d/{DROP_IN}"
    for key in lines:
        if winner := next(_winners(found, unit, others, path, key), None):
            raise Refused(
                f"{winner} decides {key} at the next start, not {path}",
                place=unit,
                hint=f"change or remove that line of {winner.rpartition(':')[0]}, then run this again",
            )
    kept = {_about(line): line for line in own_text(found, path).splitlines() if _about(line)}
    body = [*(line for key, line in kept.items() if key not in lines), *lines.values()]
    return path, HEADER + "[Service]\n" + "\n".join(body) + "\n"


def _winners(found: Copies, unit: str, others: Sequence[str], path: str, key: str) -> Iterator[str]:
    """File and line of what is stronger than our drop-in."""
    names = dict.fromkeys(each for name in (unit, *others) for each in names_of(name))
    folders = [f"{place}/{name}.d" for name in names for place in FOLDERS]
    order = in_order(found.replaced(path, ""), folders, ".conf")
    if path not in order:
        hides = next(each for each in order if each.endswith(f"/{DROP_IN}"))
        yield f"{hides}:1"
        return
    for other in order[order.index(path) + 1 :]:
        for number, line in lines_of(found, other):
            # An empty Environment= forgets all that was set before.
            if _about(line) == key or (key == "LD_PRELOAD" and _is_reset(line)):
                yield f"{other}:{number}"
    units = [each for each in found.files if each.rpartition("/")[2] in (unit, *others)]
    yield from _anywhere(found, [*order, *units], key)
    if key == "LD_PRELOAD":
        yield from _by_file(found, unit, _in_turn(found.replaced(path, ""), unit, others), key)


def _anywhere(found: Copies, files: Sequence[str], key: str) -> Iterator[str]:
    """What is stronger wherever it stands."""
    for other in files:
        for number, line in lines_of(found, other):
            name, _, value = (part.strip() for part in line.partition("="))
            takes_away = name == "UnsetEnvironment" and key in value
            if takes_away or (name.startswith("ExecStart") and _IN_A_COMMAND[key].search(value)):
                yield f"{other}:{number}"


def _by_file(found: Copies, unit: str, files: Sequence[str], key: str) -> Iterator[str]:
    for place, pattern in environment_files(found, unit, files):
        if "%" in pattern:
            yield place
        for each in sorted(found.files):
            if fnmatch.fnmatchcase(each, pattern):
                yield from _in_file(found, each, key)


def environment_files(
    found: Copies, unit: str, files: Sequence[str], *, all_named: bool = False
) -> list[tuple[str, str]]:
    """Line and pattern of each EnvironmentFile; what is left with a ``%`` only the manager knows.

    ``files`` in turn: an empty assignment forgets those before, unless ``all_named``.
    """
    named: list[tuple[str, str]] = []
    known = _specifiers(unit)
    for file in files:
        for number, key, value in _of_service(found, file):
            if key != "EnvironmentFile":
                continue
            if not value and not all_named:
                named.clear()
            elif value:
                pattern = value.lstrip("-").strip("\"'")
                resolved = re.sub("%.", lambda match: known.get(match[0], match[0]), pattern)
                named.append((f"{file}:{number}", resolved))
    return named


def _specifiers(unit: str) -> dict[str, str]:
    """What systemd.unit(5) puts in their place, as far as the name tells it."""
    name = unit.rpartition(".")[0]
    prefix, _, instance = name.partition("@")
    return {
        "%n": unit, "%N": name, "%p": prefix, "%i": instance, "%I": instance, "%%": "%",
        "%E": "/etc", "%t": "/run", "%S": "/var/lib",
    }  # fmt: skip


def _in_file(found: Copies, path: str, key: str) -> Iterator[str]:
    for number, name, _ in of_file(found.files[path]):
        if name == key:
            yield f"{path}:{number}"


def _is_reset(line: str) -> bool:
    name, equals, value = (part.strip() for part in line.partition("="))
    return name == "Environment" and equals == "=" and not value


def _about(line: str) -> str:
    if line.startswith(("#", "[")) or "=" not in line:
        return ""
    name = line.partition("=")[0].strip()
    if name == "Environment" and re.search(r"(?<!\w)LD_PRELOAD=", line):
        return "LD_PRELOAD"
    return name
