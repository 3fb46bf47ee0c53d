"""Folders on a host that it removes by itself when nothing is heard of the controller any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from headrace.base.errors import HeadraceError, TargetError
from headrace.host.target.interface import Process, Target, to_the_end
from headrace.host.target.local import LocalTarget

#: A host removes a leased folder when nothing was heard of the controller for this long, in whole seconds: longer
#: than a lost connection is retried. How often the controller is heard, and how often the host looks.
LEASE_S, RENEW_S, LOOK_S = 900, 60.0, 10
#: The same once the connection was closed, as that of a controller that was killed is: it may be made again.
CUT_S = 30
#: Environment variable of processes that must not outlive the folder they write to.
FOLDER_VARIABLE = "HEADRACE_FOLDER"

#: Its input ends with the controller, or with the connection to it. That makes the folder new, so the time counts
#: from there.
_LISTEN = 'rm -f -- "$0/.cut"; cat >/dev/null; : >"$0/.cut"'
#: Runs on the host while the folder exists. Arguments: folder, lease, seconds between two looks, lease once the
#: controller's side was closed. The times are counted, because a clock may be set. Processes that write to the
#: folder end first.
_WATCH = f"""
seen= silent=0
while [ -d "$0" ]; do
  lease=$1
  [ -e "$0/.cut" ] && lease=$3
  [ "$silent" -lt "$lease" ] || break
  sleep "$2"
  now=$(stat -c %Y "$0" 2>/dev/null)
  if [ "$now" = "$seen" ]; then silent=$((silent + $2)); else seen=$now silent=0; fi
done
for name in TERM KILL KILL KILL; do
  found=
  for place in $(grep -l "{FOLDER_VARIABLE}=$0" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${{place#/proc/}}
    kill -s $name "${{pid%/environ}}" 2>/dev/null && found=1
  done
  [ "$found" ] || break
  sleep 2
done
rm -rf -- "$0"
"""
#: Makes the folder and prints it and its watcher's process. Arguments: parent or nothing, those of the watcher,
#: the watcher. It is none of the processes that end with this command.
_MAKE_LEASED = """
if [ "$0" ]; then
  mkdir -p -- "$0" && folder=$(mktemp -d -p "$0" headrace-XXXXXXXX) || exit 1
else
  folder=$(mktemp -d -t headrace-XXXXXXXX) || exit 1
fi
unset HEADRACE_COMMAND
setsid sh -c "$4" "$folder" "$1" "$2" "$3" </dev/null >/dev/null 2>&1 &
echo "$folder"
echo $!
"""
#: Arguments: folder, the watcher's process. Its number may be another's by now.
_END_LEASED = """
grep -qF -- "$0" "/proc/$1/cmdline" 2>/dev/null && kill -s KILL -- "-$1"
rm -rf -- "$0"
"""


@contextlib.asynccontextmanager
async def leased_folder(target: Target, parent: str = "") -> AsyncIterator[str]:
    """A scratch folder that no journal knows of: if this process dies, the host removes it within a minute, and
    within ``LEASE_S`` if it only falls silent.

    Before that the host ends what has ``FOLDER_VARIABLE`` set to the folder.
    """
    cut_s = 0 if isinstance(target, LocalTarget) else CUT_S
    make = ["sh", "-c", _MAKE_LEASED, parent, str(LEASE_S), str(LOOK_S), str(cut_s), _WATCH]
    folder, watcher = (await target.run(make)).text.split("\n")[:2]
    renewal = asyncio.create_task(_renew(target, folder))
    ears: list[Process] = []

    async def listen() -> None:
        ears.append(await target.spawn(["sh", "-c", _LISTEN, folder]))

    forget = target.on_return(listen)
    try:
        await listen()
        yield folder
    finally:
        forget()
        renewal.cancel()
        for ear in ears[-1:]:
            with contextlib.suppress(HeadraceError):
                await to_the_end(ear.signal("KILL"))
        with contextlib.suppress(TargetError):
            await to_the_end(target.run(["sh", "-c", _END_LEASED, folder, watcher], check=False))


async def _renew(target: Target, folder: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        with contextlib.suppress(HeadraceError):
            await target.run(["touch", "-c", "--", folder], check=False, repeatable=True)
