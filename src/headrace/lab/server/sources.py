"""A server's process and its option files, brought from a host with few commands, as the server sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.base.errors import CommandFailed, NotReady
from headrace.host.agent import Agent
from headrace.host.target import Target
from headrace.lab.server.option_files import ENVIRONMENT, Copies, directive

#: No file of settings is larger, nor has a host more of them.
MOST_BYTES, MOST_FILES = 262_144, 300
#: Marks a file that is there and was not read.
UNREADABLE = "unreadable:"
#: Marks a folder, or a file of the arguments, that is named and not there.
ABSENT = "absent:"
#: Marks a file or folder that the server's own user may not read.
BARRED = "barred:"

#: Prints size, mode, path and content of a file; ``mask`` one that hides those of its name in lower folders.
EMIT = f"""
count=0 most={MOST_FILES}
emit() {{
  [ -f "$1" ] || return 1
  [ -r "$1" ] && [ $count -lt $most ] || {{ printf '0 0 {UNREADABLE}%s\\n' "$1"; return 1; }}
  size=$(wc -c <"$1"); [ "$size" -le {MOST_BYTES} ] || {{ printf '0 0 {UNREADABLE}%s\\n' "$1"; return 1; }}
  count=$((count + 1)); printf '%s %s %s\\n' "$size" "$(stat -Lc %a "$1" || echo 0)" "$1"; head -c "$size" -- "$1"
}}
mask() {{ [ -L "$1" ] && [ "$(readlink -f "$1")" = /dev/null ] && printf '0 644 %s\n' "$1"; }}
"""
#: The option files that the arguments name, and those that they name: also without the last letter, where a last
#: line has no end, because most servers take that letter for it. ``t cut`` forgets that cut: it is no directive.
#: Files of the kernel look like others, and some wait for whoever writes to them: they are not opened.
#: ``as_user`` runs a command as the server's user and ``home`` is its folder, where a caller has set them.
FOLLOW = """
IFS='
'
named() { follow "$1" "$2" ""; echo; [ "$(tail -c 1 "$2")" ] && follow "$1" "$2" '$s/.$//
t cut
: cut
'; :; }
follow() { cut=$3
sed -n "${cut}s/^[[:space:]]*![[:space:]]*$1[[:space:]]\\{1,\\}//; t named
d
: named
s/[[:space:]]*\\$//p" "$2"; }
both() { while IFS= read -r line || [ "$line" ]; do
  printf '%s\n' "$line"
  case "$line" in *"#"*) line=${line%%#*}; printf '%s\n' "${line%"${line##*[![:space:]]}"}";; esac
done; }
is_of_kernel() {
  [ -f "$1" ] || return 1
  case "$(readlink -f "$1")" in /proc/*|/sys/*) printf '0 0 unreadable:%s\n' "$1";; *) return 1;; esac
}
barred() { [ -z "$uid" ] || as_user test -r "$1" -a "$2" "$1" || printf '0 0 barred:%s\n' "$1"; }
for file in "$@"; do [ -f "$file" ] || printf '0 0 absent:%s\n' "$file"; done
todo="$*"; seen=
while [ "$todo" ]; do
  next=
  set -f; set -- $todo; set +f
  for file in "$@"; do
    case "$home$file" in /*"~/"*) file=$home${file#"~"};; esac
    case "$IFS$seen$IFS" in *"$IFS$file$IFS"*) continue;; esac
    seen="$seen$IFS$file"; is_of_kernel "$file" && continue
    emit "$file" || continue
    barred "$file" -r
    next="$next$IFS$(named include "$file" | both)"
    set -f; folders=$(named includedir "$file" | both)
    for folder in $folders; do
      set +f
      if [ -d "$folder" ]; then barred "$folder" -x; else printf '0 0 absent:%s\n' "$folder"; fi
      for each in "${folder%/}"/*.cnf "${folder%/}"/.*.cnf "${folder%/}"/.cnf; do next="$next$IFS$each"; done
    done
    set +f
  done
  todo=$next
  case "$todo" in *[!"$IFS"]*) ;; *) todo=;; esac
done
exit 0
"""
#: A process: whether it sees other files than we do, its program, its user, its limits, and of its environment
#: what option files and libraries depend on. Then its command line.
_PROCESS = f"""
p=/proc/$1
[ -r $p/environ ] && [ -r $p/cmdline ] || exit 3
here=yes
[ "$(readlink $p/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ] && [ "$(readlink $p/root)" = / ] || here=no
printf 'here=%s\\nexe=%s\\n' "$here" "$(readlink $p/exe)"
sed -n 's/^Uid:[[:space:]]*[0-9]*[[:space:]]*\\([0-9]*\\).*/uid=\\1/p; s/^Gid:[[:space:]]*[0-9]*[[:space:]]*\\([0-9]*\\).*/gid=\\1/p' $p/status
limits='s/^Max open files *\\([0-9a-z]*\\) *\\([0-9a-z]*\\).*/files=\\1 \\2/p'
sed -n "$limits" $p/limits
parent=$(sed -n 's/^PPid:[[:space:]]*//p' $p/status)
[ "$parent" -gt 1 ] && sed -n "$limits" /proc/$parent/limits 2>/dev/null | sed 's/^/parent./'
printf 'parent=%s\\n' "$(tr '\\0' ' ' </proc/$parent/cmdline 2>/dev/null | head -c 4096 | tr '\\n' ' ')"
tr '\\0' '\\n' <$p/environ | grep -E '^({"|".join((*ENVIRONMENT, "LD_LIBRARY_PATH"))})=' | sed 's/^/env./'
printf '\\0'
exec cat $p/cmdline
"""  # noqa: E501


@dataclass(frozen=True)
class Process:
    """A running server. ``is_here`` is false where it has its own view of the files, as in a container.

    ``files`` are its limits of open files, soft and hard, and ``started_with`` those that it began with, if its
    parent tells them: a server raises its own. Empty if unknown. ``arguments`` come without the program.
    ``parent`` is the command that started it and waits, as mysqld_safe does.
    """

    pid: int
    is_here: bool
    program: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    user_id: int
    group_id: int
    files: tuple[str, str] = ("", "")
    started_with: tuple[str, str] = ("", "")
    parent: str = ""

    @property
    def root(self) -> str:
        """Where its paths begin."""
        return "/" if self.is_here else f"/proc/{self.pid}/root"

    @property
    def enter(self) -> list[str]:
        """What a command begins with to see the files that the server sees."""
        return [] if self.is_here else ["nsenter", f"--target={self.pid}", "--mount", "--root"]

    def as_server(self, *, is_root: bool, instead_of_root: int = 0) -> list[str]:
        """The same under the server's user, which is ours where we are not root."""
        user, group = (each or instead_of_root for each in (self.user_id, self.group_id))
        if self.is_here:
            return (
                ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--"] if is_root else []
            )
        return [*self.enter, f"--setuid={user}", f"--setgid={group}", "--"]


async def process_of(target: Target, pid: int) -> Process:
    """Raises NotReady where the process cannot be looked at."""
    answer = await target.run(["sh", "-c", _PROCESS, "sh", str(pid)], check=False, repeatable=True)
    head, separator, tail = answer.stdout.partition(b"\0")
    fields = dict(line.partition("=")[::2] for line in head.decode("utf-8", "replace").splitlines())
    if answer.exit_code != 0 or not separator or not fields.get("exe"):
        raise NotReady(
            f"what the server (process {pid}) was started with cannot be read, so its option files are unknown",
            place=target.name,
            hint="as root, or as the server's user",
        )
    words = tail.decode("utf-8", "replace").split("\0")
    environment = {name[4:]: value for name, value in fields.items() if name.startswith("env.")}
    files, parents = _limits(fields.get("files", "")), _limits(fields.get("parent.files", ""))
    return Process(
        pid,
        fields["here"] == "yes",
        # An upgrade replaced it: the next start is the new one.
        fields["exe"].removesuffix(" (deleted)"),
        tuple(words[1:-1]),
        environment,
        int(fields["uid"]),
        int(fields["gid"]),
        files,
        parents if _may_have_raised(parents, files) else files,
        fields.get("parent", ""),
    )


def _limits(text: str) -> tuple[str, str]:
    soft, _, hard = text.partition(" ")
    return (soft, hard) if soft.isdigit() and hard.isdigit() else ("", "")


def _may_have_raised(began: tuple[str, str], has: tuple[str, str]) -> bool:
    """Whether a server that began with limits made these of them: it sets both to what it needs."""
    if not began[0] or has[0] != has[1] or not has[0]:
        return False
    return int(began[0]) <= int(has[0]) <= int(began[1])


async def files_of(agent: Agent, process: Process, paths: Sequence[str]) -> tuple[Copies, list[str]]:
    """The option files that these paths name, in the server's own view; and those that could not be read.

    Their folders may belong to the server's account, so the agent opens them by what they are.
    """
    files: dict[str, bytes] = {}
    ignored: set[str] = set()
    unreadable: list[str] = []
    asked: set[str] = set()
    todo = list(paths)
    home = process.environment.get("HOME", "")
    while todo and len(asked) < MOST_FILES:
        asked |= set(todo)
        found: list[str] = []
        for path, seen in (await agent.look(todo, root=process.root)).items():
            if seen.names is not None:
                found += [f"{path.rstrip('/')}/{name}" for name in seen.names if name.endswith(".cnf")]
            elif seen.content is not None:
                files[path] = seen.content
                ignored |= {path} if seen.mode & 0o002 else set()
                found += [_below(home, each) for each in included(seen.content)]
            elif seen.refused:
                unreadable.append(f"{path} ({seen.refused})")
        todo = [path for path in dict.fromkeys(found) if path not in asked]
    return Copies(files, frozenset(ignored)), unreadable


def _below(home: str, path: str) -> str:
    return f"{home.rstrip('/')}/{path[2:]}" if home and path.startswith("~/") else path


def included(content: bytes) -> list[str]:
    """What an option file includes: files and folders, as absolute paths or below ``~/``."""
    lines = content.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    # Some servers take what follows a # for a comment, or all letters of a last line: both names are brought.
    both = [each for line in lines for each in _ways(line) if line.lstrip().startswith("!")]
    found = [directive(line) for line in both]
    named = [path for is_folder, path in found if path.startswith("/" if is_folder else ("/", "~/"))]
    return list(dict.fromkeys(named))


def _ways(line: str) -> Iterator[str]:
    yield line
    if not line.endswith("\n"):
        yield f"{line}\n"
    if "#" in line:
        yield f"{line.partition('#')[0]}\n"


def copies(output: bytes, place: str) -> tuple[Copies, list[str]]:
    """What ``EMIT`` printed; and the files that are there and were not read. Raises CommandFailed."""
    files: dict[str, bytes] = {}
    ignored: set[str] = set()
    absent: set[str] = set()
    barred: set[str] = set()
    unreadable: list[str] = []
    for mode, path, content in _parsed(output, place):
        if path.startswith(UNREADABLE):
            unreadable.append(path.removeprefix(UNREADABLE))
        elif path.startswith(ABSENT):
            absent.add(path.removeprefix(ABSENT).rstrip("/") or "/")
        elif path.startswith(BARRED):
            barred.add(path.removeprefix(BARRED).rstrip("/") or "/")
        else:
            files[path] = content
            ignored |= {path} if int(mode, 8) & 0o002 else set()
    return Copies(files, frozenset(ignored), frozenset(absent), frozenset(barred)), unreadable


def _parsed(output: bytes, place: str) -> Iterator[tuple[str, str, bytes]]:
    at = 0
    while at < len(output):
        head, separator, _ = output[at : at + 8192].partition(b"\n")
        found = re.fullmatch(rb"(\d+) ([0-7]+) (.*)", head, re.DOTALL)
        start = at + len(head) + 1
        if not separator or found is None or start + int(found[1]) > len(output):
            raise CommandFailed("its files changed while they were read", place=place)
        at = start + int(found[1])
        yield found[2].decode(), found[3].decode("utf-8", "surrogateescape"), output[start:at]
