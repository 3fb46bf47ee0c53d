"""Making settings last: which files of the host hold them after the next boot or restart, and what stands in them.

Every file is headrace's own, so nothing of an administrator is ever rewritten. What an earlier rollout put there
stays, unless it is set anew. Folders of option files may belong to a server's account: our own file in one is
read only through the agent, and only one that begins with our ``HEADER`` adds lines to a new one. A
file is written only if it has the last word; whatever wins over it is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from headrace.base.errors import Refused
from headrace.change.persist.boot import SYSCTL, TMPFILES, TUNED, UDEV, Lasting, boot_files, collect
from headrace.change.persist.options import HEADER, option_file
from headrace.change.persist.units import drop_in
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.target import Target
from headrace.lab.server.allocator import find_allocator

__all__ = ["HEADER", "SYSCTL", "TMPFILES", "TUNED", "UDEV", "Lasting", "files", "must_be_writable"]

#: A file and its draft.
_ROOM_KB = 64
_WRITABLE = """
count=$1; shift
for folder in "$@"; do
  if [ "$count" -le 0 ]; then
    kind=free
    [ ! -e "$folder" ] || [ -w "$folder" ] || kind=kept
    [ ! -d "$folder" ] || kind=folder
    cut -d' ' -f5 /proc/self/mountinfo | grep -qxF "$folder" && kind=mount
    echo $kind
    continue
  fi
  count=$((count - 1))
  while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
  [ -w "$folder" ] && may=yes || may=no
  room=$(df -Pk "$folder" 2>/dev/null | tail -n 1 | awk '{print $4}')
  printf '%s %s %s\\n' "$may" "$room" "$(readlink -f "$folder")"
done
"""


async def files(
    agent: Agent, settings: Sequence[Lasting], facts: HostFacts, *, tuned: bool = False
) -> tuple[dict[str, str], list[str]]:
    """Path -> content of the files that make these settings last; and what else the next start then has otherwise.

    Raises Refused for what no such file can hold, or what another file decides; NotReady where the host lacks the
    place, or what decides cannot be known.
    """
    target = agent.target
    host = [setting for setting in settings if setting.instance is not None]
    found = boot_files(await collect(target), host, facts, tuned=tuned) if host else {}
    variables = {s.name: s.value for s in settings if s.instance is None and s.name != "server.allocator"}
    also: list[str] = []
    if variables:
        path, content, also = await option_file(agent, variables, facts)
        found[path] = content
    if lines := await _unit_lines(target, settings):
        found.update([made] if (made := await drop_in(target, facts, lines)) else [])
    return found, also


async def _unit_lines(target: Target, settings: Iterable[Lasting]) -> dict[str, str]:
    lines: dict[str, str] = {}
    for setting in settings:
        if setting.name == "server.allocator":
            preload = "" if setting.value == "system" else (await find_allocator(target, setting.value)).path
            lines["LD_PRELOAD"] = f'Environment="LD_PRELOAD={preload}"'
        elif setting.name == "server.open_files_limit":
            # systemd's own limit stands above the server's option.
            lines["LimitNOFILE"] = f"LimitNOFILE={setting.value}"
    return lines


async def must_be_writable(target: Target, paths: Iterable[str]) -> None:
    """Raises Refused for a file that could not be written.

    Its folder is read-only, full or a link; or a folder or an immutable file has its name.
    """
    paths = sorted(set(paths))
    folders = sorted({str(PurePosixPath(path).parent) for path in paths})
    if not folders:
        return
    answer = await target.run(
        ["sh", "-c", _WRITABLE, "sh", str(len(folders)), *folders, *paths], repeatable=True
    )
    lines = answer.text.splitlines()
    for path, kind in zip(paths, lines[len(folders) :], strict=True):
        if kind == "folder":
            raise Refused("is a folder", place=path, hint="move it away")
        if kind == "mount":
            raise Refused(
                "is mounted by itself, as into a container, so no new file can take its place",
                place=path,
                hint="set it in what is mounted there, or --as compose",
            )
        if kind == "kept":
            raise Refused(
                "cannot be written: it is immutable, or read-only", place=path, hint=f"lsattr {path}"
            )
    for folder, line in zip(folders, lines[: len(folders)], strict=True):
        may, room, real = (*line.split(" ", 2), "", "")[:3]
        if real and not f"{folder}/".startswith(f"{real.rstrip('/')}/"):
            raise Refused(f"is a link to {real}, where headrace writes nothing", place=folder)
        if may != "yes":
            raise Refused(
                "cannot be written: it is read-only here, or another user's",
                place=folder,
                hint="as root, or mount it writable; without --persist the running value alone is changed",
            )
        if room.isdigit() and int(room) < _ROOM_KB:
            raise Refused(f"has only {room} KiB left", place=folder, hint="free some space first")
