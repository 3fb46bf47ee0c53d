"""What became of our option files when the server started: a value that the start changed is news.

Some values are decided only while the server starts, after its binary can be asked: InnoDB's own, and those that
depend on limits. So the file is compared with what runs, once the server has been started since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.base.errors import NotReady
from headrace.change.persist.options import FILE, OPTION_OF, UNPRINTED, persisted_by, sealed_note
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.knobs import servers
from headrace.knobs.values import means_the_same
from headrace.lab.server.next_start import next_start
from headrace.lab.server.option_files import Copies, Start, meaning, reading

_VARIABLE = {option: variable for variable, option in OPTION_OF.items()}
_NO_NUMBER, LEAST_MAX = 2**32 - 1, 2000
_TIMES = 'stat -c %Y "$0" && date +%s && ps -o etimes= -p "$1"'


@dataclass(frozen=True)
class News:
    """A line of a file that is not what the server runs with; ``waits``: it was not started since."""

    file: str
    option: str
    asked: str
    running: str
    waits: bool

    @property
    def sentence(self) -> str:
        what = f"{self.option} = {self.asked} in {self.file}"
        if self.waits:
            return f"{what} waits for a restart of the server, which has {self.running}"
        why = "its start changed it, or another word won"
        return f"{what}, but the server, started since, has {self.running}: {why}"


def files_in(entries: Iterable[Mapping[str, object]]) -> list[str]:
    """Our option files that these entries of a journal are about."""
    found = [str(each.get("path")) for each in entries if each.get("kind") == "file"]
    return [path for path in dict.fromkeys(found) if path.endswith(f"/{FILE}")]


async def news(agent: Agent, files: Iterable[str], facts: HostFacts) -> list[News]:
    """What in these files the queried server does not run with; nothing where its process is not known."""
    found: list[News] = []
    for path in files:
        if facts.server_pid is None or not facts.variables:
            break
        seen = (await agent.look([path]))[path]
        if seen.content is None:
            continue
        waits = await _waits(agent, path, facts.server_pid)
        found += _unlike(path, seen.content, facts, waits=waits)
    return found


async def _waits(agent: Agent, path: str, pid: int) -> bool:
    answer = await agent.target.run(["sh", "-c", _TIMES, path, str(pid)], check=False, repeatable=True)
    numbers = [int(word) for word in answer.text.split() if word.isdigit()]
    if len(numbers) != 3:
        return True
    written, now, age = numbers
    return now - age <= written


def _unlike(path: str, content: bytes, facts: HostFacts, *, waits: bool) -> Iterator[News]:
    start = Start(facts.vendor, facts.server_version or "", (f"--defaults-file={path}",))
    known = facts.variables
    last: dict[str, str] = {}
    for word in reading(Copies({path: content}), start).words:
        option, value = meaning(word, known, by_start=False)
        if value is not None:
            last[option] = value
    for option, value in last.items():
        variable = option if option in known else _VARIABLE.get(option, option)
        running = facts.variable(variable)
        if running is not None and not means_the_same(variable, running, value, known):
            yield News(path, option, value, running, waits)


@dataclass(frozen=True)
class Ahead:
    """A variable of a running server, and what its next start will make of it; ``next`` is None where that is not
    known. ``by`` is the word that decides."""

    variable: str
    running: str
    next: str | None
    by: str


async def ahead(
    agent: Agent, variables: Iterable[str], facts: HostFacts
) -> tuple[dict[str, Ahead], list[str]]:
    """By variable, and what cannot be known of all of them. Raises NotReady where nothing can be known."""
    if facts.vendor is None or facts.server_pid is None:
        raise NotReady("the server's process is not known here", place=agent.target.name)
    start = await next_start(agent, facts.server_pid, facts.vendor, facts.server_version or "")
    kept = await persisted_by(start, agent, facts)
    found = {}
    for variable in dict.fromkeys(variables):
        option = OPTION_OF.get(variable, variable) if variable not in start.options else variable
        running, next_ = facts.variable(variable), kept.get(variable, start.now.values.get(option))
        if running is None:
            continue
        words = [word for word in start.reading.words if start.option(word)[0] == option]
        if not words and variable not in kept:
            next_ = _by_default(variable, next_, start.now.values, facts)
        elif option in UNPRINTED:
            next_ = start.option(words[-1])[1]
        elif next_ is not None and variable == "log_bin" and variable not in kept:
            next_ = "ON" if next_ not in ("", "0") else "OFF"  # the option is the name of the files
        if start.now.problems:
            next_ = None
        by = "SET PERSIST" if variable in kept else words[-1].place if words else "the server's default"
        found[variable] = Ahead(variable, running, next_, by)
    told = [f"the next start of the server would fail: {start.now.problems[0]}"] if start.now.problems else []
    sealed = await sealed_note(start, agent, facts)
    return found, [*told, sealed] if sealed else told


def _by_default(
    variable: str, printed: str | None, values: Mapping[str, str], facts: HostFacts
) -> str | None:
    """What a start makes of a default; None where that is not what its program prints, and nobody knows it."""
    vendor, version = facts.vendor, facts.server_version or ""
    own = servers.of(vendor, version)
    listed = own.variables.get(variable) if own else None
    if listed is not None and listed.starts is not None:
        return listed.starts or None
    if listed is None and any(each.starts is not None for each in servers.in_any(variable, vendor)):
        return None
    return _computed(variable, printed, values)


def _computed(variable: str, value: str | None, values: Mapping[str, str]) -> str | None:
    """What a start makes of a default that stands for no number: ha_innodb.cc, innodb_init_params."""
    if variable != "innodb_io_capacity_max" or value != str(_NO_NUMBER):
        return value
    capacity = values.get("innodb_io_capacity", "")
    return str(min(max(2 * int(capacity), LEAST_MAX), _NO_NUMBER)) if capacity.isdigit() else None


def variables_in(path: str, content: str, facts: HostFacts) -> list[str]:
    """The server's variables that an option file sets."""
    start = Start(facts.vendor, facts.server_version or "", (f"--defaults-file={path}",))
    known = facts.variables
    options = [
        meaning(word, known, by_start=False)[0]
        for word in reading(Copies({path: content.encode()}), start).words
    ]
    return [name if name in known else _VARIABLE.get(name, name) for name in dict.fromkeys(options)]
