"""What the next start of a server will do, asked from its own binary: nothing is written or started for that.

``--print-defaults`` says which options its files give it, ``--verbose --help`` what it makes of them, and
``--validate-config`` (MySQL) whether it would start. They run with the server's own arguments, user, environment
and limit of open files, in its own view of the files. Option files that are not there yet come over a pipe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.base.errors import NotReady
from headrace.base.model import Vendor
from headrace.host.agent import Agent
from headrace.host.target import Completed, Target
from headrace.lab.server.error_log import excerpt
from headrace.lab.server.option_files import (
    ENVIRONMENT,
    Copies,
    Reading,
    Start,
    Word,
    meaning,
    plain,
    reading,
)
from headrace.lab.server.program import parse_defaults
from headrace.lab.server.sources import Process, files_of, process_of

#: Where it would log, and that it would leave us: neither is for a question.
_LEFT_OUT = frozenset({"log_error", "daemonize", "log_syslog", "syslog"})
_PIPE = "--defaults-file=/proc/self/fd/0"
#: The pipe is made here, because the server's user may not open one of ours.
_ASK = 'cd /; [ "$0" ] && { ulimit -Sn "$0"; ulimit -Hn "$1"; } 2>/dev/null; shift; cat | "$@"'
_TIMEOUT_S = 60.0
_PLUGINS = "mysql.plugin table"
_HEAD = re.compile(r"^.*\[(?:Warning|ERROR|Note|System)\](?: \[MY-\d+\] \[\w+\])? *")
_NO_PROBLEM = re.compile(r"error-message file|\bmysql[./]plugin\b")


@dataclass(frozen=True)
class Answer:
    """What a binary says of a set of options: ``values`` that it would run with, by name; ``problems`` if it would
    not start, in its own words; ``remarks`` are its warnings."""

    values: Mapping[str, str]
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def lacks_plugins(self) -> bool:
        """Whether options of installed plugins are missing: those of INSTALL SONAME are in a table, which the
        binary finds open in the running server from that statement until the table is flushed."""
        return any(_PLUGINS in remark for remark in self.remarks)


@dataclass(frozen=True)
class NextStart:
    """A server's own view of its options. ``now`` is what the next start would run with if nothing changed."""

    target: Target
    process: Process
    start: Start
    copies: Copies
    reading: Reading
    now: Answer
    options: frozenset[str]

    @property
    def place(self) -> str:
        return self.target.name

    def limited(self, files: int) -> NextStart:
        """The same, started with this limit of open files."""
        return replace(self, process=replace(self.process, started_with=(str(files), str(files))))

    def with_file(self, path: str, content: str) -> Reading:
        """What it would come across if this file were there."""
        return reading(self.copies.replaced(path, content), self.start)

    async def ask(self, words: Sequence[Word]) -> Answer:
        """What the binary makes of these words of files, and of its own command line."""
        return await _asked(self.target, self.process, self.start, words, self.options)

    def option(self, word: Word) -> tuple[str, str | None]:
        written = replace(word, option=self.start.option(word.option))
        return meaning(written, self.options, by_start=self.start.takes_starts)


async def next_start(agent: Agent, pid: int, vendor: Vendor, version: str) -> NextStart:
    """Raises NotReady where the process or its binary cannot be asked, or where the binary reads other options
    than its files say by our reading: then nothing is known about the next start."""
    target = agent.target
    process = await process_of(target, pid)
    start = Start(vendor, version, process.arguments, process.environment)
    # Before the binary opens them: it would wait for whoever writes to a pipe, or read a device for good.
    await _plain_files(agent, process, start)
    listing, _ = await _run(target, process, b"", [*start.defaults, *_kept(start.own), "--verbose", "--help"])
    built_in, groups = _files_and_groups(listing)
    if not groups:
        why = next(iter(_errors(listing)), "")
        raise NotReady(
            f"its binary {process.program} does not say which option files it reads"
            + (f": {why}" if why else ""),
            place=target.name,
            hint=" / ".join(excerpt(listing)[:2]) or None,
        )
    start = replace(start, built_in=built_in, groups=groups)
    copies = await _plain_files(agent, process, start)
    found = reading(copies, start)
    await _must_agree(target, process, start, found)
    options = frozenset(option_names(listing))
    words = [word for word in found.words if word.line]
    now = await _asked(target, process, start, words, options)
    if process.started_with != process.files and now.values.get("open_files_limit") != process.files[0]:
        # Something between its parent and it has set them.
        process = replace(process, started_with=process.files)
        now = await _asked(target, process, start, words, options)
    return NextStart(target, process, start, copies, found, now, options)


async def _plain_files(agent: Agent, process: Process, start: Start) -> Copies:
    """Raises NotReady for a pipe, a device, a link of another account or another's file by such a name."""
    copies, unreadable = await files_of(agent, process, start.files())
    if unreadable:
        raise NotReady(f"cannot be read: {', '.join(unreadable)}", place=agent.target.name)
    return copies


async def _must_agree(target: Target, process: Process, start: Start, found: Reading) -> None:
    """The binary's own list of the options in its files against ours."""
    if start.has_no_files:
        return
    theirs = await _printed(target, process, b"", start.defaults)
    ours = await _printed(target, process, _file([word for word in found.words if word.line]), [_PIPE])
    if theirs != ours:
        raise NotReady(
            "the server's own binary reads other options than its files say: a file that its user may not read, "
            "or a form that headrace does not know",
            place=f"{target.name}:{', '.join(found.read) or 'no option file'}",
            hint=f"compare: {process.program} {' '.join(start.defaults)} --print-defaults",
        )


async def _printed(target: Target, process: Process, content: bytes, arguments: Sequence[str]) -> str:
    """What it says of its options; not what it warns of, such as a file that every user may write."""
    answer = await _answer(target, process, content, [*arguments, "--print-defaults"])
    return answer.text.partition("following arguments:")[2].strip()


async def _asked(
    target: Target, process: Process, start: Start, words: Sequence[Word], options: frozenset[str]
) -> Answer:
    asked = [word for word in words if meaning(word, options)[0] not in _LEFT_OUT]
    content, own = _file(asked), _kept(start.own)
    listing, code = await _run(target, process, content, [_PIPE, *own, "--verbose", "--help"])
    problems = _errors(listing)
    if start.vendor is not Vendor.MARIADB:
        checked, code = await _run(target, process, content, [_PIPE, *own, "--validate-config"])
        problems = _errors(checked)
        listing += f"\n{checked}"
    if code and not problems and (start.vendor is not Vendor.MARIADB or not parse_defaults(listing)):
        # Some options end it without a word of an error.
        problems = [_last_words(listing)]
    remarks = re.findall(r"^.*\[Warning\](?: \[MY-\d+\] \[\w+\])? *(.*)$", listing, re.MULTILINE)
    return Answer(parse_defaults(listing), tuple(problems), tuple(dict.fromkeys(remarks)))


def _errors(listing: str) -> list[str]:
    """Why it would not start. A share of messages that is missing is not of the options, nor is the table of
    plugins, which MariaDB cannot read where the running server has it open.
    """
    found = re.findall(r"\[ERROR\](?: \[MY-\d+\] \[\w+\])? *(.*)$", listing, re.MULTILINE)
    return [line for line in dict.fromkeys(found) if line != "Aborting" and not _NO_PROBLEM.search(line)]


def _kept(arguments: Sequence[str]) -> list[str]:
    return [word for word in arguments if plain(word.lstrip("-").partition("=")[0]) not in _LEFT_OUT]


def _file(words: Sequence[Word]) -> bytes:
    lines = ["[mysqld]", *(word.text for word in words)]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def _last_words(listing: str) -> str:
    """What it says last of itself, without its time and kind."""
    lines = [_HEAD.sub("", line).strip() for line in listing.splitlines()]
    said = [line for line in lines if line and line != "Aborting" and "Shutdown complete" not in line]
    return said[-1][:300] if said else "its binary ends without a word"


async def _run(target: Target, process: Process, content: bytes, arguments: Sequence[str]) -> tuple[str, int]:
    """Both outputs of the binary, and its exit code."""
    answer = await _answer(target, process, content, arguments)
    return f"{answer.text}\n{answer.error_text}", answer.exit_code


async def _answer(target: Target, process: Process, content: bytes, arguments: Sequence[str]) -> Completed:
    clean = [part for name in ENVIRONMENT for part in ("-u", name)]
    given = [f"{name}={value}" for name, value in process.environment.items()]
    command = [
        *process.as_server(is_root=target.is_root),
        *("env", *clean, *given),
        *("sh", "-c", _ASK, *process.started_with, process.program, *arguments),
    ]
    answer = await target.run(command, stdin=content, check=False, timeout_s=_TIMEOUT_S, repeatable=True)
    if answer.exit_code in (126, 127):
        raise NotReady(
            f"its binary cannot be asked: {answer.error_text.strip()[-300:]}",
            place=f"{target.name}:{process.program}",
            hint="as root, or as the server's user",
        )
    return answer


def _files_and_groups(listing: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    files = re.search(
        r"^Default options are read from the following files in the given order:\n(.*)$", listing, re.M
    )
    groups = re.search(r"^The following groups are read: (.*)$", listing, re.M)
    return tuple(files[1].split() if files else ()), tuple(groups[1].split() if groups else ())


def option_names(listing: str) -> set[str]:
    """Of the table of values, and of the list of options."""
    listed = re.findall(r"^  (?:-\w, +)?--([a-z][a-z0-9-]*)(?:[\[= ]|$)", listing, re.MULTILINE)
    return {plain(name) for name in listed if not name.startswith(("skip-getopt", "no-defaults"))} | set(
        parse_defaults(listing)
    )
