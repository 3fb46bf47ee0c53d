"""The replay of a boot against systemd's own programs, in a mount namespace with their own order of folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.boot_replay import PRESENT, THP, VM, Kernel, replay
from tests.folders import ROOT
from tests.unit.test_boot import CELLS, OF_FILES
from tests.unit.test_persist import HEADER

PROGRAMS = Path("/usr/lib/systemd/systemd-sysctl"), Path("/usr/bin/systemd-tmpfiles")
pytestmark = [
    pytest.mark.needs("root"),
    pytest.mark.skipif(not all(map(Path.exists, PROGRAMS)), reason="systemd's programs are not here"),
]
FOLDERS = tuple(
    f"{root}/{kind}"
    for kind in ("sysctl.d", "tmpfiles.d")
    for root in ("/etc", "/run", "/usr/local/lib", "/usr/lib")
)
#: /proc/sys and one folder of /sys are plain files here; the log says in which order the sysctls were written.
SCRIPT = r"""
set -e
work=$1; shift
for folder in "$@"; do mkdir -p "$folder"; mount -t tmpfs none "$folder"; done
cp -r "$work/root/." /
mount --bind "$work/sys" /sys/kernel/mm
mount --bind "$work/proc" /proc/sys
export SYSTEMD_LOG_LEVEL=debug SYSTEMD_LOG_TARGET=console
/usr/lib/systemd/systemd-sysctl 2>&1 | sed -n "s/.*Setting '\\(.*\\)' to '\\(.*\\)'.*/\\1 \\2/p"
export SYSTEMD_LOG_LEVEL=crit
systemd-tmpfiles --create --boot --prefix=/proc/sys --prefix=/sys || true
printf '%s ' tmpfiles; cat /sys/kernel/mm/transparent_hugepage/enabled
"""
OURS = {
    "/etc/sysctl.d/99-zz-headrace.conf": f"{HEADER}vm.swappiness = 7\nvm.dirty_ratio = 22\n"
    "vm.dirty_background_bytes = 67108864\nvm.overcommit_ratio = 80\n",
    "/etc/tmpfiles.d/headrace.conf": f"{HEADER}w {THP} - - - - never\n",
}
OF_SYSTEMD = [
    cell
    for cell, (name, there, _) in enumerate(CELLS)
    if name in ("swappiness", "ratio", "bytes", "overcommit", "thp")
    and all(path.rpartition("/")[0] in FOLDERS or "credentials" in path for path in there)
    # It is given as a credential of the unit, which nobody starts here.
    and not any("credentials" in path for path in there)
]


@pytest.mark.parametrize("cell", OF_SYSTEMD)
def test_systemd_writes_what_the_replay_says(cell: int, tmp_path: Path) -> None:
    _, there, _ = CELLS[cell]
    for path in PRESENT:
        if path.startswith(VM) or path == THP:
            root = tmp_path / ("proc" if path.startswith(VM) else "sys")
            place = root / path.removeprefix("/proc/sys/").removeprefix("/sys/kernel/mm/")
            place.parent.mkdir(parents=True, exist_ok=True)
            # Written over, as the file of a plain folder is: a longer word before would leave its end.
            place.write_text("")
    for path, text in {**there, **OURS}.items():
        place = tmp_path / "root" / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")
    done = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", SCRIPT, "sh", str(tmp_path), *FOLDERS],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    *sysctls, thp = [line.split() for line in done.stdout.splitlines()]
    kernel = Kernel(dict.fromkeys(PRESENT, "?"))
    for path, value in sysctls:
        kernel.write(path, value)
    expected = replay({path: text for path, text in {**there, **OURS}.items() if "tmpfiles" not in path})
    assert {path: kernel[path] for path in PRESENT if path.startswith(VM)} == {
        path: expected[path] for path in PRESENT if path.startswith(VM)
    }
    last = replay({**there, **OURS})[THP]
    assert thp[1][: len(last)] == last, thp


#: It reads such files for the services of a user.
GENERATOR = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")


@pytest.mark.skipif(not GENERATOR.exists(), reason="systemd's program is not here")
def test_systemd_reads_the_variables_of_a_file_as_we_do(tmp_path: Path) -> None:
    place = tmp_path / "environment.d" / "a.conf"
    place.parent.mkdir()
    for content, value in OF_FILES:
        place.write_bytes(content)
        env = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/nonexistent"}
        printed = subprocess.run([GENERATOR], env=env, capture_output=True, text=True, check=False).stdout
        ask = ["sh", "-c", f'unset A; {printed} printf %s "${{A-none}}"']
        found = subprocess.run(ask, capture_output=True, text=True, check=True, env={}).stdout
        # It escapes what a shell would not take; that is left out on both sides.
        wanted = (value or "none").replace("\n", "n")
        assert found.replace("\\", "").strip() == wanted.replace("\\", ""), content


#: Folders of a host that are empty but for what a case puts there; then a dry run, and what wins over a drop-in.
DRY_RUN = r"""
for folder in /etc/sysctl.d /etc/systemd/system /usr/local/lib; do
  mkdir -p "$folder"; mount -t tmpfs none "$folder"
done
eval "$1"
exec "$2" -m headrace apply host.vm.swappiness=7 --persist files --dry-run
"""
WITH_ALIAS = """
mkdir -p /etc/systemd/system/other.service.d
echo '[Service]' >/etc/systemd/system/headrace-test.service
ln -s headrace-test.service /etc/systemd/system/other.service
printf '[Service]\\nLimitNOFILE=5\\n' >/etc/systemd/system/other.service.d/zzz.conf
"""


def in_a_host(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", *words]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("", "writes /etc/sysctl.d/99-zz-headrace.conf"),
        (
            "echo vm.swappiness=33 >/etc/sysctl.d/99-zzz.conf",
            "/etc/sysctl.d/99-zzz.conf:1 decides it at boot",
        ),
        ("echo -vm.swappiness >/etc/sysctl.d/99-zzz.conf", "/etc/sysctl.d/99-zzz.conf:1 decides it at boot"),
        (
            "mkdir /usr/local/lib/sysctl.d; echo vm.swappiness=33 >/usr/local/lib/sysctl.d/99-zzz.conf;"
            "ln -s /dev/null /etc/sysctl.d/99-zzz.conf",
            "writes /etc/sysctl.d/99-zz-headrace.conf",
        ),
        (
            "echo 'ExecStart=/bin/sh -c \"sysctl -w vm.swappiness=50\"' >/etc/systemd/system/tune.service",
            "/etc/systemd/system/tune.service:1 decides it at boot",
        ),
        (
            "mkdir /usr/local/lib/systemd /usr/local/lib/systemd/system /etc/systemd/system/x.service.d;"
            "echo 'ExecStartPre=-/etc/systemd/system/tune -x' >/etc/systemd/system/x.service.d/a.conf;"
            "printf '#!/bin/sh\\nsysctl vm.swappiness=50\\n' >/etc/systemd/system/tune",
            "/etc/systemd/system/tune:2 decides it at boot",
        ),
    ],
)
def test_the_files_of_a_host_are_found(made: str, says: str) -> None:
    done = in_a_host(DRY_RUN, made, sys.executable)
    assert says in " ".join(done.stderr.split()), done.stderr


def test_a_drop_in_of_another_name_of_the_unit_is_found() -> None:
    code = (
        "import asyncio\nfrom headrace.change.persist import units\n"
        "from headrace.host.target.local import LocalTarget\n"
        "async def ask():\n    words = ['sh', '-c', units._COLLECT, 'sh', 'headrace-test.service',"
        " 'headrace-test.service service', *units.FOLDERS]\n"
        "    return (await LocalTarget().run(words)).text\n"
        "print(asyncio.run(ask()))"
    )
    script = (
        'mkdir -p /etc/systemd/system; mount -t tmpfs none /etc/systemd/system; eval "$1"; exec "$2" -c "$3"'
    )
    done = in_a_host(script, WITH_ALIAS, sys.executable, code)
    assert "alias:other.service" in done.stdout, done.stderr
    assert "/etc/systemd/system/other.service.d/zzz.conf" in done.stdout
