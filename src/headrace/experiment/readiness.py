"""Is this host ready? Reports what is missing, and the command that installs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.base.errors import HeadraceError, NotReady
from headrace.base.model import Tool, Vendor
from headrace.experiment import workloads
from headrace.host.agent import Agent, Journal, belongs_to
from headrace.host.target import Target
from headrace.lab import server, volumes


@dataclass(frozen=True)
class Check:
    """One check. ``remedy`` is a command or a sentence, empty if the check passed."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


async def find_tool(target: Target, tool: Tool) -> str | None:
    """The path of a program on the target, including Debian's sbin directories."""
    found = await target.run(
        ["sh", "-c", 'PATH="$PATH:/usr/sbin:/sbin" command -v "$0"', tool.program], check=False
    )
    return found.text.strip() or None


async def missing_tools(target: Target, tools: Iterable[Tool]) -> list[Tool]:
    """Check all with one command: on an emulated machine each command takes a good part of a second."""
    asked = {tool.program: tool for tool in tools}
    script = 'PATH="$PATH:/usr/sbin:/sbin"; for p; do command -v "$p" >/dev/null || echo "$p"; done'
    answer = await target.run(["sh", "-c", script, "sh", *asked])
    return [asked[name] for name in answer.text.split()]


def install_command(tools: Iterable[Tool]) -> str:
    return "apt-get install -y " + " ".join(sorted({tool.package for tool in tools}))


async def require(
    target: Target,
    workload: workloads.Workload,
    specs: Iterable[volumes.VolumeSpec],
    vendor: Vendor | None,
) -> Mapping[str, str]:
    """Raise NotReady unless every program is installed; returns the versions of those that measure."""
    tools = [*workload.tools]
    for spec in specs:
        tools += volumes.required_tools(spec)
    if vendor is not None:
        tools += server.required_tools(vendor)
    missing = await missing_tools(target, dict.fromkeys(tools))
    if missing:
        raise NotReady(
            "missing: " + ", ".join(tool.program for tool in missing),
            place=target.name,
            hint=install_command(missing),
        )
    return {workload.kind: await workload.version(target)}


async def examine(target: Target, scratch: str) -> list[Check]:
    """Everything ``headrace doctor`` checks, most important first."""
    checks = [await _agent(target)]
    checks += [await _tool(target, tool) for tool in all_tools()]
    checks += [await _root(target), await _room(target, scratch), await _journal(target)]
    return checks


def all_tools() -> list[Tool]:
    """Each program that some workload, volume or server needs."""
    tools: list[Tool] = []
    for kind in workloads.KINDS:
        tools += workloads.tools(kind)
    tools += server.required_tools(Vendor.MARIADB)
    for filesystem in volumes.FILESYSTEMS:
        device = volumes.DeviceSpec(kind="loop", size_bytes=0, id="")
        tools += volumes.required_tools(volumes.VolumeSpec(device, filesystem, (), (), {}))
    return list(dict.fromkeys(tools))


async def _agent(target: Target) -> Check:
    try:
        agent = await Agent.install(target)
        version = await target.run([agent.path, "--version"])
    except HeadraceError as error:
        return Check("headrace-agent", False, error.message, error.hint or "")
    return Check("headrace-agent", True, version.text.strip())


async def _tool(target: Target, tool: Tool) -> Check:
    path = await find_tool(target, tool)
    if path is None:
        return Check(tool.program, False, "not found", install_command([tool]))
    if not tool.version_options:
        return Check(tool.program, True, path)
    answer = await target.run([path, *tool.version_options], check=False)
    # MariaDB's client prints its own version before the distribution's, which is the well-known one.
    text = (answer.text + answer.error_text).rpartition("Distrib ")[2]
    version = re.search(r"(\d+\.\d+(\.\d+)*)", text)
    return Check(tool.program, True, version.group(1) if version else path)


async def _root(target: Target) -> Check:
    if target.is_root:
        return Check("root", True, "loop devices, mounts and kernel settings can be factors")
    detail = "not root: volumes and kernel settings are skipped, the rest works"
    return Check("root", False, detail, "run as root for volumes and kernel settings")


async def _room(target: Target, scratch: str) -> Check:
    script = 'p="$0"; while [ ! -d "$p" ]; do p=$(dirname "$p"); done; df -B1 --output=avail "$p" | tail -1'
    answer = await target.run(["sh", "-c", script, scratch], check=False)
    free = int(answer.text.strip() or 0)
    text = f"{free / 2**30:.1f} GiB free for {scratch}"
    remedy = (
        "" if free > 8 * 2**30 else 'the demo needs 8 GiB: free some space, or set [target] scratch = "..."'
    )
    return Check("scratch", not remedy, text, remedy)


async def _journal(target: Target) -> Check:
    try:
        journal = Journal(await Agent.install(target), "doctor")
        entries, holder = await journal.entries(), await journal.holder()
    except HeadraceError as error:
        return Check("journal", False, error.message, error.hint or "")
    left = [entry for entry in entries if not (holder and belongs_to(entry["owner"], holder))]
    if unfinished := [entry for entry in left if not entry.get("deadline")]:
        remedy = "`headrace run` of that experiment, or `headrace rollback`, restores the host"
        return Check("journal", False, f"changes of an unfinished run: {len(unfinished)}", remedy)
    if left:
        remedy = (
            "`headrace apply --confirm` keeps them, `headrace rollback` undoes them; at its deadline the host "
            "undoes them"
        )
        return Check("journal", False, f"changes that await confirmation: {len(left)}", remedy)
    if holder:
        return Check("journal", True, f"{holder} is running; nothing else to restore")
    return Check("journal", True, "nothing to restore")
