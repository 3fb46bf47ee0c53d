"""One command of the user's on a host: drain, return or restart, never two at once.

The command of a controller that was killed goes on where it runs. What the next controller did meanwhile would be
undone by its end: a server that was restored would be restarted with the change.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.errors import CommandFailed
from headrace.host.target import Target

#: Runs command $0 without HEADRACE_COMMAND and HEADRACE_OWNER, which its children would inherit; prints its last
#: output if it fails. Lock $1 is held meanwhile, but not by programs that the command leaves running, such as the
#: server; a later command waits for it for $2 seconds at most.
SCRIPT = """
mkdir -p -m 700 "$(dirname "$1")" && said=$(mktemp) && exec 9>>"$1" || exit 1
if ! flock -w "$2" 9; then
  echo "an earlier command still runs after $2 s, or there is no flock" >&2
  rm -f "$said"
  exit 1
fi
env -u HEADRACE_COMMAND -u HEADRACE_OWNER sh -c "$0" >"$said" 2>&1 </dev/null 9>&-
code=$?
tail -c 1000 "$said" >&2
rm -f "$said"
exit $code
"""


async def run_alone(
    target: Target, command: str, *, verb: str, lock: str, env: Mapping[str, str], within_s: float, place: str
) -> None:
    """Run a shell command on ``target`` once nobody holds the file ``lock`` there. ``within_s``: for that wait,
    and again for the command. Raises CommandFailed with what it said, TargetError.
    """
    argv = ["sh", "-c", SCRIPT, command, lock, f"{within_s:.0f}"]
    done = await target.run(argv, env=env, timeout_s=2 * within_s, check=False)
    if done.exit_code:
        said = " ".join(done.error_text.split())[-300:] or "no output"
        raise CommandFailed(f"the {verb} command failed with exit code {done.exit_code}: {said}", place=place)
