"""The shell code that runs a command on a host.

The login shell must understand POSIX quoting (sh, bash, dash, ksh, zsh).
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Environment variable that identifies a command's processes over another connection.
COMMAND_VARIABLE = "HEADRACE_COMMAND"
#: Where the agent's copy is, and the exit codes that are kept while the connection may be down.
CACHE_FOLDER = "${XDG_CACHE_HOME:-$HOME/.cache}/headrace"
ENDED_FOLDER = f"{CACHE_FOLDER}/ended"
#: A shell's function. ``safe FOLDER``: only root and this account may put names into it, or change what a folder
#: above it is; else it prints why not. ``safe FOLDER in``: others may, as in /tmp, but not replace ours.
SAFE = """
safe() {
  [ -d "$1" ] || { echo "$1: not a directory"; return 1; }
  shared=${2-} most=40
  set -- "$1"
  # The folder, then where each link on its way leads: each folder on those ways, as it is behind its links.
  while [ $# -gt 0 ]; do
    at=$1
    shift
    case $at in /*) ;; *) echo "$at: not an absolute path"; return 1;; esac
    while :; do
      if [ -L "$at" ]; then
        to=$(readlink -- "$at") most=$((most - 1))
        case $to in /*) ;; *) to=$(dirname -- "$at")/$to;; esac
        [ $most -gt 0 ] || { echo "$at: too many links"; return 1; }
        set -- "$@" "$to"
      fi
      read -r user group mode <<EOF
$(stat -L -c '%u %g %a' -- "$at" 2>/dev/null)
EOF
      bad=
      case $mode in
        *[2367]) bad="others may write to it";;
        *[2367]?) [ "$group" = 0 ] || { [ "$group" = "$(id -g)" ] && [ "$(id -u)" != 0 ]; } ||
          bad="its group may write to it";;
      esac
      # With an access control list, the group's digit is the most that anybody who is named there may do.
      case $mode in
        *[2367]?) case $(ls -lLd -- "$at" 2>/dev/null) in
          ??????????+*) bad="its access control list lets others write to it";; esac;;
      esac
      case $shared$mode in in[1357]???) bad=;; esac
      case $user in 0|"$(id -u)") ;; *) bad="belongs to user ${user:-unknown}";; esac
      [ -z "$bad" ] || { echo "$at: $bad"; return 1; }
      shared=in
      [ "$at" = / ] && break
      at=$(dirname -- "$at")
    done
  done
}
"""
#: Of what start files print before the marker, so much is kept: enough to find it, and a channel's largest packet.
MOST_PREFACE = 1 << 20
#: The exit code of ``ATTACH`` for a command whose exit code is unknown.
UNKNOWN_END = 45

#: Wait for the end of a kept command; prints its exit code. Arguments: marker, pid of its keeper.
ATTACH = f"""
file={ENDED_FOLDER}/$0
while [ ! -s "$file" ]; do
  if ! grep -q "$0" "/proc/$1/cmdline" 2>/dev/null; then
    [ -s "$file" ] && break
    exit {UNKNOWN_END}
  fi
  sleep 1
done
cat "$file"
"""

#: Kill every process of these commands, given by their markers: after a second to clean up, and repeatedly,
#: because they may start others until they are gone.
END_ALL = f"""
for name in TERM KILL KILL KILL KILL; do
  found=
  for marker; do
    for place in $(grep -l "{COMMAND_VARIABLE}=$marker" /proc/[0-9]*/environ 2>/dev/null); do
      pid=${{place#/proc/}}
      kill -s $name "${{pid%/environ}}" 2>/dev/null && found=1
    done
  done
  [ "$found" ] || exit 0
  [ $name = TERM ] && sleep 1
done
exit 0
"""


@dataclass(frozen=True)
class Shell:
    """How commands run on a host: as which user, and with or without the forwarded ssh-agent. ``own_session``:
    nothing else makes a process group for the program."""

    sudo: bool = False
    forward_agent: bool = False
    own_session: bool = False

    def line(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        marker: str,
        *,
        stdout_path: str | None = None,
        stderr_path: str | None = None,
        kept: bool = False,
    ) -> str:
        """One line for the login shell: prepare, print the pid, exec the program.

        ``marker`` comes first on standard error, and before the pid on standard output, because a login shell's
        start files and sudo may print something themselves. ``exec`` all the way makes the program the leader of
        the process group that sshd made for the login shell. A ``kept`` command has a parent shell, the keeper,
        that outlives the connection and records the exit code.
        """
        steps = [
            f"echo {marker} >&2",
            "exec 3>&1",
            "LC_ALL=C PATH=$PATH:/usr/sbin:/sbin",
            "export LC_ALL PATH",
        ]
        for name, value in {**(env or {}), COMMAND_VARIABLE: marker}.items():
            if not name.isidentifier() or not name.isascii():
                raise ValueError(f"invalid name for an environment variable: {name!r}")
            steps.append(f"export {name}={shlex.quote(value)}")
        steps.append(
            'command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || { echo "$1: not found" >&2; exit 127; }'
        )
        for number, path in ((1, stdout_path), (2, stderr_path)):
            if path:
                steps.append(_new_file(number, path))
        begin = f'echo "{marker} $$ $PPID" >&3; exec 3>&-; exec "$@"'
        # Under sudo, nothing else creates a process group for the program.
        steps += _keeping(marker, begin, kept) if kept or self.sudo or self.own_session else [begin]
        line = f"exec {self._as_root()}sh -c {shlex.quote('; '.join(steps))} sh {shlex.join(argv)}"
        if "\0" in line:
            raise ValueError("an argument, path or variable contains a NUL byte")
        return line

    def _as_root(self) -> str:
        if not self.sudo:
            return ""
        agent = 'env SSH_AUTH_SOCK="$SSH_AUTH_SOCK" ' if self.forward_agent else ""
        return f"sudo -n -H -- {agent}"


def _new_file(number: int, path: str) -> str:
    """The step that sends an output to a file of its own, whatever link lies under its name: root may be here."""
    place = shlex.quote(path)
    if path == "/dev/null":
        return f"exec {number}>{place}"
    # Under -C a shell makes the file anew, or opens a device, which a link may have led to.
    opened = f"exec {number}>{place} && [ -f /proc/self/fd/{number} ] || exit 126"
    return f"rm -f -- {place}; set -C; {opened}; set +C"


def _keeping(marker: str, begin: str, kept: bool) -> list[str]:
    """The steps of a shell that starts the program as a session leader and waits for its end."""
    steps = [
        # This shell's message about a killed program must not appear in the output, and on a connection that broke
        # it would end this shell. dash redirects before it forks: only in a subshell is our own output untouched.
        "exec 4>&2 2>/dev/null",
        "session=$(command -v setsid || :)",
        f'(exec $session sh -c {shlex.quote(begin)} sh "$@" 2>&4 4>&-)',
        "code=$?",
    ]
    if kept:
        folder = f'"{ENDED_FOLDER}"'
        steps += [f"mkdir -p -m 0700 -- {folder}", f"echo $code >{folder}/{marker}"]
    # Pass a signal on, or sshd would report an exit code instead.
    return [*steps, "ulimit -c 0", "[ $code -gt 128 ] && kill -$((code - 128)) $$", "exit $code"]


def exit_code_of(kept: str) -> int:
    """The exit code recorded by a keeper: a shell's, in which N + 128 is signal N."""
    code = int(kept)
    return 128 - code if code > 128 and code - 128 in signal.valid_signals() else code
