"""A server's variables in an option file of ours: only if the next start will do what the file says.

The server's own binary is asked with the new file in its place before anything is written. Refused is what another
word overrides, what would keep the server from starting, and what the start would turn into another value.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping, Sequence

from headrace.base.errors import HeadraceError, NotReady, Refused
from headrace.base.model import Vendor
from headrace.base.received import BadContent
from headrace.change.persist.derived import derived
from headrace.change.persist.line import Line
from headrace.change.persist.starts import at_its_limits, must_start
from headrace.change.persist.units import next_options
from headrace.change.persist.wrapper import added
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.knobs import servers
from headrace.knobs.knob import size_bytes
from headrace.knobs.values import ALIASES, means_the_same, plain_value
from headrace.lab.server.next_start import Answer, NextStart, next_start
from headrace.lab.server.option_files import (
    COMMAND_LINE,
    ENVIRONMENT,
    MAIN_FILES,
    Start,
    Word,
    after_start,
    has_sealed,
    persisted,
    quoted,
    reading,
)
from headrace.lab.server.sources import files_of, process_of

HEADER = "# Written by headrace; `headrace rollback` takes it away.\n"
FILE = "zz-headrace.cnf"
#: Where the agent writes option files: a folder of the administrator's.
_FOLDERS = re.compile(r"/etc/mysql/[A-Za-z0-9_.@-]+\.d|/etc/my\.cnf\.d")
#: Variable -> the option that sets it at a start, where that has another name.
OPTION_OF = {
    "tx_isolation": "transaction_isolation",
    "tx_read_only": "transaction_read_only",
    "time_zone": "default_time_zone",
    "character_set_client": "default_character_set",
}
#: The program prints the same whatever its options say: Aria's end sets it. Only a start has it.
UNPRINTED = frozenset({"aria_checkpoint_interval"})
_OPEN_TABLE = "the server has its table of plugins open, so its binary cannot say which options they have"
_FLUSH = "run `FLUSH TABLES mysql.plugin` on the server, then this again"
#: With these a server's program does a piece of work, and ends.
_OTHER_WORK = frozenset(
    {"bootstrap", "help", "initialize", "initialize_insecure", "print_defaults", "validate_config"}
)
_OFF = frozenset({"off", "0", "false"})
_SWITCH = frozenset({"on", "1", "true", *_OFF})
#: Names of files that may be relative, without which a server does not start or a replica does not.
_RELATIVE = frozenset(
    {
        "general_log_file", "log_basename", "log_bin", "log_bin_index", "log_error", "log_slow_query_file",
        "log_tc", "master_info_file", "pid_file", "relay_log", "relay_log_index", "relay_log_info_file",
        "slow_query_log_file", "socket",
    }
)  # fmt: skip
#: Files that a start reads, and without which one does not start or does something else.
_READ = frozenset({"des_key_file", "ft_stopword_file", "init_file"})
#: Options that name a folder.
_IS_FOLDER = re.compile(r".*dir|secure_file_priv|.*(_dir|ca|crl)_?path|.*_directory")
#: Options that SET PERSIST may keep encrypted.
_SECRET = re.compile(r"pass|pwd|secret|token|key|credential|auth")
#: What says which files a start reads, in which groups.
_WHICH_FILES = frozenset(
    {"defaults_file", "defaults_extra_file", "defaults_group_suffix", "no_defaults", *ENVIRONMENT}
)


async def option_file(
    agent: Agent, settings: Mapping[str, str], facts: HostFacts
) -> tuple[str, str, list[str]]:
    """Path and content of the file that makes these ``server.*`` settings last; and what else the next start then
    has otherwise, a sentence each.

    Raises Refused or PlanError where the next start would not have them, NotReady where that cannot be known.
    """
    first = next(iter(settings))
    vendor, pid = facts.vendor, facts.server_pid
    if vendor is None:
        raise NotReady("without a server login its option files are unknown", place=first)
    if pid is None:
        raise NotReady(
            "the server's process is not on this host, or not known, so its option files are unknown",
            place=first,
            hint="--target the host that it runs on, or set it there by hand",
        )
    start = await next_start(agent, pid, vendor, facts.server_version or "")
    if start.now.problems and start.now.lacks_plugins:
        raise NotReady(_OPEN_TABLE, place=first, hint=_FLUSH)
    if start.now.problems:
        raise Refused(
            f"the server would not even start with the options that it has: {start.now.problems[0]}",
            place=first,
            hint="mend that first: until then no file can be promised to hold",
        )
    if word := next((each for each in start.reading.words if _is_no_server(start, each)), None):
        raise Refused(
            f"the next start would do something else and end: {word.place} says {word.text.strip()}",
            place=first,
            hint="remove that first: until then no file can be promised to hold",
        )
    lines = [_line(start, name, value, facts) for name, value in settings.items()]
    start = await at_its_limits(start, lines, facts)
    folder = _folder(start, first)
    await _must_be_ours(start, folder, first)
    path = f"{folder}/{FILE}"
    before = await _own(agent, path)
    if before.strip() and not before.startswith(HEADER):
        raise Refused("has our name, but headrace did not write it", place=path, hint="move it away")
    content = edited(start, before, lines)
    held = await persisted_by(start, agent, facts)
    answer = await _must_hold(start, path, content, lines, facts, held)
    secret = next((line for line in lines if _SECRET.search(line.variable)), None)
    if secret and (sealed := await sealed_note(start, agent, facts)):
        raise NotReady(sealed, place=secret.name, hint="if it is not among them, write the file by hand")
    edited_since = await next_options(agent.target, facts)
    must_not_be_overridden(start, path, lines, [*edited_since, *await added(start)])
    return path, content, [*_also(start, answer, lines), *await _other_readers(start, agent, path, facts)]


def _is_no_server(start: NextStart, word: Word) -> bool:
    option, value = start.option(word)
    return option in _OTHER_WORK and plain_value(value or "0") != "0"


async def _other_readers(start: NextStart, agent: Agent, path: str, facts: HostFacts) -> list[str]:
    """Other servers of this host that read the same directory: their next start has the lines as well."""
    found = []
    for row in facts.servers:
        pid, program = row.get("pid"), row.get("program")
        if program not in ("mysqld", "mariadbd") or not isinstance(pid, int) or pid == start.process.pid:
            continue
        vendor = Vendor.MARIADB if program == "mariadbd" else Vendor.MYSQL
        try:
            process = await process_of(start.target, pid)
            theirs = Start(vendor, "", process.arguments, process.environment)
            copies, _ = await files_of(agent, process, theirs.files())
        except HeadraceError:
            if (await start.target.run(["test", "-d", f"/proc/{pid}"], check=False)).exit_code:
                continue  # it has ended meanwhile
            found.append(f"whether process {pid}, another server of this host, reads {path} is not known")
            continue
        folders = [posixpath.normpath(each) for each in reading(copies, theirs).folders]
        if process.is_here == start.process.is_here and posixpath.dirname(path) in folders:
            found.append(f"process {pid}, another server of this host, reads {path} at its next start, too")
    return found


def _also(start: NextStart, answer: Answer, lines: Sequence[Line]) -> list[str]:
    """What the server takes from others for these: tables from its open files for connections."""
    own = {line.option for line in lines}
    return [
        f"the next start also makes {option} {then}, which is {now} without this"
        for option, now in start.now.values.items()
        if option not in own
        and not option.startswith("performance_schema_")
        and (then := answer.values.get(option, now)) != now
    ]


def must_not_be_overridden(start: NextStart, path: str, lines: Sequence[Line], unit: Sequence[Word]) -> None:
    """Raises Refused for an option that the unit names since the server was started, or other option files."""
    for word in unit:
        if word.option.removeprefix("$") in _WHICH_FILES and not _is_of_process(start, word):
            raise Refused(
                f"{word.place} starts the server with {word.text} from now on, so it will read other option files",
                place=lines[0].name,
                hint="restart the server first, then run this again",
            )
        name, value = start.option(word)
        for line in lines:
            is_other = value is not None and plain_value(value) != plain_value(line.wanted)
            if name == line.option and is_other and word.text not in start.process.arguments:
                raise Refused(
                    f"{word.place} starts the server with {word.text} from now on, which counts after {path}",
                    place=line.name,
                    hint=f"change or remove it in line {word.line} of {word.file}, then run this again",
                )


def _is_of_process(start: NextStart, word: Word) -> bool:
    process = start.process
    if word.option.startswith("$"):
        return process.environment.get(word.option[1:]) == word.value
    return word.text in process.arguments or (word.value or "") in process.arguments


async def _own(agent: Agent, path: str) -> str:
    try:
        return (await agent.read(path)).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def _folder(start: NextStart, name: str) -> str:
    """The folder that it reads last of those in which we may write."""
    if start.start.has_no_files:
        raise NotReady(
            "the server was started with --no-defaults: it reads no option file",
            place=name,
            hint="set it on its command line",
        )
    found = [folder for folder in start.reading.folders if _FOLDERS.fullmatch(posixpath.normpath(folder))]
    if not found:
        main = (start.reading.read or (MAIN_FILES[0],))[0]
        raise NotReady(
            "the server's option files include none of /etc/mysql/*.d, /etc/my.cnf.d",
            place=name,
            hint=f"add `!includedir FOLDER` to {main}, or set it there by hand",
        )
    return posixpath.normpath(found[-1])


async def _must_be_ours(start: NextStart, folder: str, name: str) -> None:
    """Raises Refused unless the folder that the server reads is this host's.

    A unit with ProtectSystem= or PrivateTmp= has its own mounts and the host's /etc; a container has both.
    """
    if start.process.is_here:
        return
    ask = ["stat", "-Lc", "%d:%i", folder, posixpath.join(start.process.root, folder.lstrip("/"))]
    seen = (await start.target.run(ask, check=False, repeatable=True)).text.split()
    if len(seen) == 2 and seen[0] == seen[1]:
        return
    raise Refused(
        f"the server sees other files than this host, as in a container: it reads its own {folder}, "
        "and a file in this host's would never be read",
        place=name,
        hint="run headrace there, or put the line into the container's image or volume",
    )


def _line(start: NextStart, name: str, value: str, facts: HostFacts) -> Line:
    variable = name.removeprefix("server.")
    option = variable
    inverted = False
    if variable not in start.options:
        option = OPTION_OF.get(variable, ALIASES.get(variable, ""))
        if variable.startswith("skip_") and variable.removeprefix("skip_") in start.options:
            option, inverted = variable.removeprefix("skip_"), True
        if option not in start.options:
            _must_be_listed(start, name, variable, value, facts)
            raise Refused(
                f"{variable} is a variable, but no option: a server with it in a file does not start",
                place=name,
                hint="apply it without --persist, or after each start",
            )
    word = value.lower()
    if inverted:
        value = "ON" if word in _OFF else "OFF"
    has_name = (facts.variable(variable) or "").upper() in ("ON", "OFF") and _is_name(start, option)
    if has_name and word in _SWITCH:
        # The option is the name of the files: log_bin=OFF would be a log in files named OFF.
        text = f"skip_{option}" if word in _OFF else option
        return Line(name, variable, option, text, "OFF" if word in _OFF else "ON")
    return Line(name, variable, option, f"{option} = {quoted(value)}", value)


def _must_be_listed(start: NextStart, name: str, variable: str, value: str, facts: HostFacts) -> None:
    """Raises NotReady for a variable of a plugin: whether its option is missing only because the plugin is, nobody
    but a start can say."""
    listed = servers.listed(facts.vendor, facts.server_version or "", variable)
    if listed is not None and not listed.option:
        return
    if start.now.lacks_plugins:
        raise NotReady(_OPEN_TABLE, place=name, hint=_FLUSH)
    raise NotReady(
        f"the server's binary knows no option {variable} with the files that it has: what a plugin or component "
        "brings that no option file loads, only a start shows",
        place=name,
        hint=_instead(start, variable, value),
    )


def _instead(start: NextStart, variable: str, value: str) -> str:
    """What makes a plugin's or component's variable last; no option loads a component, which has a dot."""
    if start.start.vendor is not Vendor.MARIADB and start.now.values.get("persisted_globals_load") != "OFF":
        text = value if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?|ON|OFF", value) else f"'{value}'"
        return (
            f"on the server: `SET PERSIST {variable} = {text}`, which holds whenever what brings it is loaded"
        )
    by_hand = f"write `loose_{variable} = {value}` there by hand: with loose_ the server starts in any case"
    if "." in variable:
        return by_hand.replace("there", "into an option file", 1)
    return f"load the plugin in an option file (plugin_load_add) and restart the server; or {by_hand}"


def _is_name(start: NextStart, option: str) -> bool:
    """Whether a switch's option takes a name."""
    return option == "log_bin" or (
        plain_value(start.now.values.get(option, "0")) not in ("0", "1")
        and option.startswith("log_")
        and not option.startswith("log_output")
    )


def edited(start: NextStart, before: str, lines: Sequence[Line]) -> str:
    """The file with these lines as the last of its last [mysqld] section; all other bytes stay."""
    about = {line.option for line in lines}
    kept: list[str] = []
    group, last = "", -1
    for text in before.splitlines(keepends=True):
        bare = text.strip()
        if bare.startswith("["):
            # Of a group's name case does not count.
            group = bare[1:].partition("]")[0].rstrip().lower()
        elif bare and group == "mysqld" and not bare.startswith(("#", ";", "!")):
            name = bare.partition("=")[0].strip().replace("-", "_")
            if start.option(Word("", 0, name, ""))[0] in about:
                continue
        kept.append(text)
        if group == "mysqld" and bare:
            last = len(kept)
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += "\n"
    new = [f"{line.text}\n" for line in lines]
    if last < 0:
        return "".join([*(kept or [HEADER]), "[mysqld]\n", *new])
    return "".join([*kept[:last], *new, *kept[last:]])


async def _must_hold(
    start: NextStart,
    path: str,
    content: str,
    lines: Sequence[Line],
    facts: HostFacts,
    kept: Mapping[str, str],
) -> Answer:
    after = start.with_file(path, content)
    words = after.words
    answer = await start.ask([word for word in words if word.line])
    for line in lines:
        mine = max(
            (
                at
                for at, word in enumerate(words)
                if word.file == path and start.option(word)[0] == line.option
            ),
            default=-1,
        )
        if mine < 0:
            raise Refused(
                f"the server would not read {path}", place=line.name, hint="write it elsewhere by hand"
            )
        if later := next((w for w in words[mine + 1 :] if start.option(w)[0] == line.option), None):
            raise _overridden(line, later, path)
        if held := next((name for name in _names(line) if name in kept), None):
            raise Refused(
                f"SET PERSIST holds it as {kept[held]}: the server reads {_auto(facts)} after every option file",
                place=line.name,
                hint=f"RESET PERSIST {held}",
            )
    # The binary reads what SET PERSIST holds by itself; rules and a trial must be told.
    whole = [*words, *(_as_word(_auto(facts), name, value) for name, value in kept.items())]
    for line in lines:
        await _must_be(start, answer, words, path, line, facts)
        if became := _became(line, answer, whole, facts):
            raise Refused(became, place=line.name, hint="a file cannot hold what the start changes")
        if problem := await _place_problem(start, line):
            raise Refused(problem, place=line.name)
    if answer.problems:
        raise Refused(
            f"with {', '.join(line.text for line in lines)} in {path} the server would not start: "
            f"{'; '.join(answer.problems[:2])}",
            place=lines[0].name,
            hint="nothing was written",
        )

    def is_so(line: Line, got: str) -> bool:
        return _is_so(line, Answer({line.option: got}), facts)

    await must_start(start, path, whole, lines, facts, is_so)
    return answer


def _as_word(file: str, name: str, value: str) -> Word:
    return Word(file, 1, name, value, f"{name} = {quoted(value)}")


def _became(line: Line, answer: Answer, words: Sequence[Word], facts: HostFacts) -> str:
    """What the start would make of it, by the rules of ``derived``; empty if that is what it says."""
    is_there = plain_value(facts.variable(line.variable) or "") == plain_value(line.wanted)
    if answer.problems or is_there:
        return ""  # it runs with that already
    return derived(line.variable, line.wanted, answer.values, facts.vendor, words)


async def _must_be(
    start: NextStart, answer: Answer, words: Sequence[Word], path: str, line: Line, facts: HostFacts
) -> None:
    """Raises Refused unless the binary would run with what the line says."""
    if answer.problems or line.option in UNPRINTED:
        return
    if not _is_so(line, answer, facts):
        await _say_who_wins(start, answer, words, path, line, facts)


def _is_so(line: Line, answer: Answer, facts: HostFacts) -> bool:
    if (got := answer.values.get(line.option)) is None:
        return True  # it prints no value of this option: nothing to compare
    if line.option == "log_bin" or line.text in (line.option, f"skip_{line.option}"):
        return (got in ("", "0")) == (line.wanted.lower() in _OFF)
    if got in ("ON", "OFF") and line.wanted.strip().lower() in ("", "yes", "no"):
        return False  # no words for a switch: it turns it off, whatever was meant
    if _is_counted(got) and _is_counted(line.wanted):
        # What a file says is taken to the byte, or rounded down to a block.
        asked, has = _count(line.wanted), _count(got)
        return has == asked or (math.isclose(has, asked, abs_tol=4096) and asked > 65536)
    return means_the_same(line.variable, got, line.wanted, facts.variables)


def _is_counted(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?|[0-9]+[KMGTPEkmgtpe]", text) is not None


def _count(text: str) -> float:
    return float(size_bytes(text)) if text[-1].isalpha() else float(text)


async def _say_who_wins(
    start: NextStart, answer: Answer, words: Sequence[Word], path: str, line: Line, facts: HostFacts
) -> None:
    """Raises Refused with the first word after ours that makes the difference, by asking again with fewer."""
    mine = max(at for at, word in enumerate(words) if word.file == path)
    from_files = [word for word in words if word.line]
    low, high = mine + 1, len(from_files)
    if low < high and _is_so(line, await start.ask(from_files[:low]), facts):
        while low < high:
            middle = (low + high) // 2
            if _is_so(line, await start.ask(from_files[: middle + 1]), facts):
                low = middle + 1
            else:
                high = middle
        if low < len(from_files):
            raise _overridden(line, from_files[low], path)
    got = answer.values.get(line.option, "")
    dashed = line.option.replace("_", "-")
    why = next((each for each in answer.remarks if dashed in each or line.option in each), "")
    if line.option == "open_files_limit":
        raise _limited(start, line, got)
    raise Refused(
        f"asked for {line.wanted}, but the next start makes it {got or 'nothing'}, by the server's own binary"
        + (f": {why}" if why else ""),
        place=line.name,
        hint=f"ask for {got}, if that is what you want" if got else None,
    )


def _limited(start: NextStart, line: Line, got: str) -> Refused:
    """A server asks for what its connections and tables need, and what starts it gives it a limit."""
    soft, hard = start.process.started_with
    need = "it needs more for its connections and tables" if _count(got) > _count(line.wanted) else ""
    limit = f"its limit of open files is {soft}" + (f", at most {hard}" if hard != soft else "")
    return Refused(
        f"asked for {line.wanted}, but the next start makes it {got}: {need or limit}",
        place=line.name,
        hint="lower max_connections or table_open_cache"
        if need
        else "raise it in what starts the server (`ulimit -n`, limits.conf, a container's nofile), start it with "
        "that, then run this again",
    )


def _overridden(line: Line, later: Word, path: str) -> Refused:
    return Refused(
        f"{later.place} decides it ({later.text.strip()}), which the server reads after {path}",
        place=line.name,
        hint=(
            "take it out of the server's command line or its unit"
            if later.file == COMMAND_LINE
            else f"change or remove line {later.line} of {later.file}, then run this again"
        ),
    )


def _names(line: Line) -> list[str]:
    """The names under which SET PERSIST may hold it."""
    pairs = (("slave", "replica"), ("replica", "slave"), ("master", "source"), ("source", "master"))
    found = [line.variable, line.option]
    return [*found, *(name.replace(a, b) for name in found for a, b in pairs if a in name)]


def _auto(facts: HostFacts) -> str:
    return f"{(facts.variable('datadir') or '').rstrip('/')}/mysqld-auto.cnf"


async def persisted_by(start: NextStart, agent: Agent, facts: HostFacts) -> dict[str, str]:
    """What SET PERSIST holds, if the server will read it. Raises Refused for a file that cannot be its own."""
    content = await _auto_content(start, agent, facts)
    try:
        return persisted(content) if content is not None else {}
    except BadContent as error:
        hint = "is it the server's own?"
        raise Refused(f"cannot be read: {error}", place=_auto(facts), hint=hint) from error


async def _auto_content(start: NextStart, agent: Agent, facts: HostFacts) -> bytes | None:
    """mysqld-auto.cnf as the next start reads it; None if it reads none."""
    if start.start.vendor is Vendor.MARIADB or start.now.values.get("persisted_globals_load") == "OFF":
        return None
    path = _auto(facts)
    seen = await agent.look([path, f"{path}.backup"], root=start.process.root)
    try:
        content = seen[path].plain(agent.target.name)
    except FileNotFoundError:
        return None  # a backup alone is not read
    # What every user may write a server skips, with a warning.
    return None if seen[path].mode & 0o002 else after_start(content, seen[f"{path}.backup"].content)


async def sealed_note(start: NextStart, agent: Agent, facts: HostFacts) -> str:
    """That SET PERSIST holds variables whose names nobody but the server can read; empty if it holds none."""
    content = await _auto_content(start, agent, facts)
    if content is None or not has_sealed(content):
        return ""
    return (
        f"{_auto(facts)} also holds sensitive variables, encrypted: which ones only the server knows (SELECT "
        "VARIABLE_NAME FROM performance_schema.persisted_variables)"
    )


async def _place_problem(start: NextStart, line: Line) -> str:
    """Why a start could not use the path that a line names; empty if it can, or names none."""
    place = line.wanted
    if line.option == "secure_file_priv" and place not in ("", "NULL") and not place.startswith("/"):
        return "a server does not start with a relative path that is not in the folder where it is started"
    is_folder = _IS_FOLDER.fullmatch(line.option) is not None
    if place and ((is_folder and place != "NULL") or (line.option in _RELATIVE and "/" in place)):
        # A relative one begins in the data directory.
        place = posixpath.join(start.now.values.get("datadir", "/"), place)
    if place and line.option in _READ:
        place = posixpath.join(start.now.values.get("datadir", "/"), place)
        is_there = await _as_server(start, '[ -f "$0" ] && [ -r "$0" ]', place)
        return "" if is_there else f"the server's user cannot read {place}, or it is not there"
    if not place.startswith("/"):
        return ""
    folder = place if is_folder else posixpath.dirname(place)
    if await _as_server(start, '[ -d "$0" ] && [ -w "$0" ]', folder):
        return ""
    return f"the server's user cannot write in {folder}, or it is not there"


async def _as_server(start: NextStart, test: str, place: str) -> bool:
    """Whether a test of sh holds for a path, as the server's user sees it."""
    ask = [*start.process.as_server(is_root=start.target.is_root), "sh", "-c", test, place]
    return (await start.target.run(ask, check=False, repeatable=True)).exit_code == 0
