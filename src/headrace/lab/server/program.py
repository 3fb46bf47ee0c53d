"""The server programs of a target: where they are, what they are, and what their defaults are."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.base.errors import NotReady, PlanError
from headrace.base.model import Tool, Vendor
from headrace.host.target import Target
from headrace.lab.server.spec import ServerSpec
from headrace.lab.server.vendors import FAMILIES, Family

#: The account a server runs under when we are root, as the distributions' services do.
SERVER_ACCOUNT = "mysql"


@dataclass(frozen=True)
class Program:
    """A server as it is installed on one target. Paths are the target's.

    ``account`` is the server's user and group as numbers, None when it runs under ours; ``prefix`` is what
    its commands start with to get there. ``defaults`` maps variables to the values compiled in.
    """

    family: Family
    vendor: Vendor
    version: str
    server: str
    client: str
    installer: str | None
    account: str | None
    prefix: tuple[str, ...]
    own_options: Mapping[str, str]
    defaults: Mapping[str, str]

    @property
    def version_numbers(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.version.split("-")[0].split("."))


# Asking a server for its defaults takes 0.1 s and more; programs do not change while an experiment runs.
_located: dict[tuple[str, bool, Vendor, str | None], Program] = {}


async def locate(target: Target, spec: ServerSpec) -> Program:
    """Find what a server needs on the target, once. Raises NotReady; PlanError for another vendor's binary."""
    key = (target.name, target.is_root, spec.vendor, spec.binary)
    if key not in _located:
        _located[key] = await _locate(target, spec)
    return _located[key]


def required_tools(vendor: Vendor) -> list[Tool]:
    """The programs that an installed server of this vendor needs."""
    family = FAMILIES[vendor]
    return [family.server, family.client, *([family.installer] if family.installer else [])]


async def _locate(target: Target, spec: ServerSpec) -> Program:
    family = FAMILIES[spec.vendor]
    server = await _find(target, [spec.binary or family.server.program], family.server)
    account = await server_account(target)
    prefix = await _prefix(target, account, server)
    version = await _version(target, [*prefix, server], spec)
    own = dict(family.own_options())
    folders: list[str] = []
    if spec.binary:
        home = posixpath.dirname(posixpath.dirname(server))
        folders = [f"{home}/{name}/" for name in ("bin", "scripts")]
        own |= await _unpacked_options(target, home)
    client = await _find(target, _beside(folders, family.clients), family.client)
    installer = None
    if family.installer:
        installer = await _find(target, _beside(folders, [family.installer.program]), family.installer)
    arguments = [f"--{name}={value}" for name, value in own.items()]
    listing = await target.run([*prefix, server, "--no-defaults", *arguments, "--verbose", "--help"])
    defaults = parse_defaults(listing.text)
    return Program(family, spec.vendor, version, server, client, installer, account, prefix, own, defaults)


def _beside(folders: Sequence[str], names: Sequence[str]) -> list[str]:
    return [folder + name for folder in folders for name in names] + list(names)


async def _find(target: Target, candidates: Sequence[str], tool: Tool) -> str:
    script = 'for p; do command -v "$p" && exit 0; done; exit 1'
    found = await target.run(["sh", "-c", script, "sh", *candidates], check=False)
    if found.exit_code != 0:
        raise NotReady(
            f"no program {' or '.join(candidates)}",
            place=target.name,
            hint=f"apt-get install -y {tool.package}",
        )
    return found.text.strip()


async def server_account(target: Target) -> str | None:
    """The server's user and group as ``uid:gid``; None where it runs under our own. Raises NotReady."""
    if not target.is_root:
        return None
    ids = await target.run(["sh", "-c", 'id -u "$0" && id -g "$0"', SERVER_ACCOUNT], check=False)
    if ids.exit_code != 0:
        raise NotReady(
            f"no account {SERVER_ACCOUNT}, and a server must not run as root",
            place=target.name,
            hint=f"useradd --system --shell /usr/sbin/nologin {SERVER_ACCOUNT}",
        )
    return ":".join(ids.text.split())


async def _prefix(target: Target, account: str | None, server: str) -> tuple[str, ...]:
    """What a command starts with to run under the server's account."""
    if account is None:
        return ()
    uid, gid = account.split(":")
    prefix = ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--")
    if (await target.run([*prefix, "test", "-x", server], check=False)).exit_code != 0:
        raise NotReady(
            f"{SERVER_ACCOUNT}, the server's account, may not execute it",
            place=f"{target.name}:{server}",
            hint="move it to a directory that every user may enter",
        )
    return prefix


async def _version(target: Target, command: Sequence[str], spec: ServerSpec) -> str:
    answer = await target.run([*command, "--no-defaults", "--version"], check=False)
    match = re.search(r"\bVer (\d+\.\d+\.\d+(?:-\d+)?)", answer.text)
    if answer.exit_code != 0 or not match:
        raise NotReady(
            f"does not report its version: {(answer.error_text or answer.text).strip()[-500:]}",
            place=f"{target.name}:{command[-1]}",
        )
    names = {"mariadb": Vendor.MARIADB, "percona": Vendor.PERCONA}
    vendor = next((v for name, v in names.items() if name in answer.text.lower()), Vendor.MYSQL)
    if vendor is not spec.vendor:
        raise PlanError(
            f"server.vendor = {spec.vendor.value!r}, but {command[-1]} is {vendor.value} {match[1]}",
            hint=f'server.vendor = "{vendor.value}", or server.binary = the path of the one you mean',
        )
    return match[1]


async def _unpacked_options(target: Target, home: str) -> dict[str, str]:
    """Where a server that was unpacked somewhere finds its own files: compiled in are other folders."""
    options = {"basedir": home}
    if await target.exists(f"{home}/share/english/errmsg.sys"):
        options["lc_messages_dir"] = f"{home}/share"
    if await target.exists(f"{home}/share/charsets/Index.xml"):
        options["character_sets_dir"] = f"{home}/share/charsets"
    return options


def parse_defaults(listing: str) -> dict[str, str]:
    """Variable -> default, from what ``mariadbd --no-defaults --verbose --help`` prints."""
    # A ruler of dashes stands before the table, a blank line after it.
    table = re.split(r"^-{10,} -+$", listing, maxsplit=1, flags=re.MULTILINE)[-1]
    defaults: dict[str, str] = {}
    for line in table.splitlines():
        if match := re.fullmatch(r"([a-z][a-z0-9-]*)(?: +(\S.*))?", line):
            value = (match[2] or "").strip()
            words = {"TRUE": "ON", "FALSE": "OFF", "(No default value)": ""}
            defaults[match[1].replace("-", "_")] = words.get(value, value)
        elif defaults and not line.strip():
            break
    return defaults
