"""The commands about virtual machines: lab up, ssh, reboot, status, down, images."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.encode import plain
from headrace.base.errors import NotReady, PlanError, TargetError
from headrace.cli.shell import Json, app, print_json, run_until_signal, stderr, stdout

if TYPE_CHECKING:
    from headrace.lab import vm

NAME = "lab"
#: Printed with every number from an emulated CPU.
EMULATED = "the CPU is emulated: trust only the direction of a result, not its size"

lab = typer.Typer(
    no_args_is_help=True,
    help="Virtual machines with a chosen kernel, disks and network queues.",
    epilog="Example: headrace lab up --kernel 6.1 --disks 4; headrace lab ssh -- lsblk; headrace lab down",
)
app.add_typer(lab, name="lab")

Name = Annotated[str, typer.Argument(help="The machine's name.", metavar="NAME")]
Kernel = Annotated[
    str,
    typer.Option(
        "--kernel", metavar="KERNEL", help="A version of Debian's cloud kernels, or VMLINUZ[:MODULES]."
    ),
]


@lab.command(
    short_help="Boot a machine, or reuse a running one.",
    epilog="Example: headrace lab up --kernel 6.1 --disks 4 --disk-size 2G --disk-iops 3000, "
    "or with your own kernel: headrace lab up mine --kernel /boot/vmlinuz-6.9.1",
)
def up(
    name: Name = NAME,
    kernel: Kernel = "6.12",
    cpus: Annotated[int, typer.Option("--cpus", help="CPUs.")] = 2,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory.")] = "2G",
    disks: Annotated[
        int, typer.Option("--disks", help="Data disks: /dev/disk/by-id/virtio-data0 and so on.")
    ] = 0,
    disk_size: Annotated[
        str, typer.Option("--disk-size", metavar="SIZE", help="Size of each data disk.")
    ] = "1G",
    disk_queues: Annotated[int, typer.Option("--disk-queues", help="Queues per disk; 0: one per CPU.")] = 0,
    disk_iops: Annotated[
        int, typer.Option("--disk-iops", help="Maximum operations per second per disk; 0: no limit.")
    ] = 0,
    disk_rate: Annotated[
        str,
        typer.Option("--disk-rate", metavar="SIZE", help="Maximum bytes per second per disk; 0: no limit."),
    ] = "0",
    nic_queues: Annotated[
        int,
        typer.Option(
            "--nic-queues",
            help="Above 1: add a second network card with this many queues, in a namespace; needs root.",
        ),
    ] = 1,
    accel: Annotated[
        str, typer.Option("--accel", help="kvm or tcg (emulation); default: kvm if available.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Boot a machine and wait until it answers over ssh. It runs until `headrace lab down`.

    The first time, its root is built with mmdebstrap and its kernel fetched with apt; both are cached under
    ~/.cache/headrace/vm.
    """
    from headrace.lab import vm
    from headrace.lab.vm.spec import size_of

    if accel not in ("", "kvm", "tcg"):
        raise PlanError(f"--accel {accel}: must be kvm or tcg")
    disk = vm.DiskSpec(
        size_of(disk_size, "--disk-size"), disk_queues, disk_iops, size_of(disk_rate, "--disk-rate")
    )
    spec = vm.VmSpec(name, kernel, cpus, size_of(memory, "--memory"), (disk,) * disks, nic_queues)
    chosen: Any = accel or None
    machine = _with_progress(lambda tell: vm.up(spec, tell, accel=chosen))
    _show(machine, as_json)


@lab.command(
    short_help="Reboot a machine into another kernel.",
    epilog="Example: headrace lab reboot --kernel 6.1",
)
def reboot(name: Name = NAME, kernel: Kernel = "", as_json: Json = False) -> None:
    """Halt a machine and boot it with this kernel, or its own. Its root and disks are kept."""
    machine = _machine(name)
    _with_progress(lambda tell: machine.reboot(kernel or machine.spec.kernel, tell))
    _show(machine, as_json)


@lab.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    short_help="Open a shell or run a command on a machine.",
    epilog="Example: headrace lab ssh; headrace lab ssh -- uname -r; headrace lab ssh --name mine -- lsblk",
)
def ssh(
    command: Annotated[
        list[str] | None, typer.Argument(help="A command, after --.", metavar="-- COMMAND")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The machine's name.")] = NAME,
) -> None:
    """Open a shell on a machine, or run one command and return its exit code."""
    argv = ssh_command(_machine(name).target)
    # The guest's default shell is a plain one, for speed.
    argv = [*argv, "--", *command] if command else ["ssh", "-t", *argv[1:], "bash", "-l"]
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        raise NotReady("missing: ssh", hint="apt-get install -y openssh-client") from None


@lab.command(epilog="Example: headrace lab status --json | jq '.[].state'")
def status(as_json: Json = False) -> None:
    """List running machines and the remains of those that died."""
    from headrace.lab import vm

    found = vm.statuses()
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    if not found:
        stderr().print("no machines: `headrace lab up` starts one")
        return
    _print_table(
        [_row(one) for one in found], "name", "state", "kernel", "CPU", "has", "owner", "on disk", "port"
    )
    dead = [one.name for one in found if one.state not in ("running", "booting")]
    if dead:
        stderr().print(
            f"`headrace lab down {' '.join(dead)}` removes what is left", highlight=False, markup=False
        )


@lab.command(
    short_help="Stop machines and remove everything they left.",
    epilog="Example: headrace lab down; headrace lab down mine; headrace lab down --all",
)
def down(
    names: Annotated[list[str] | None, typer.Argument(help="Their names.", metavar="NAME...")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All machines, including those of experiments.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Stop machines and remove their disks and namespaces, including those of machines that died."""
    from headrace.lab import vm

    wanted = [one.name for one in vm.statuses()] if every else names or [NAME]

    async def work(tell: vm.Tell) -> list[str]:
        return [name for name in wanted if await vm.down(name, tell)]

    ended = _with_progress(work)
    if as_json:
        print_json(ended)
    for name in wanted:
        stderr().print(
            f"{name}: {'removed' if name in ended else 'not found'}", markup=False, highlight=False
        )


@lab.command(
    short_help="List cached root images and kernels.",
    epilog="Example: headrace lab images --json; headrace lab images --remove-unused",
)
def images(
    remove_unused: Annotated[
        bool,
        typer.Option(
            "--remove-unused", help="Remove images that no machine uses; they are rebuilt when needed."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the cached root images and kernels, their sizes, and the machines that use them."""
    from headrace.lab.vm import stock

    if remove_unused:
        import asyncio

        removed = asyncio.run(stock.remove_unused())
        stderr().print(f"removed: {', '.join(item.name for item in removed) or 'nothing'}", markup=False)
    found = stock.items()
    if as_json:
        print_json([{**vars(item), "path": str(item.path)} for item in found])
    else:
        rows = [
            (item.kind, item.name, item.made_of, _size(item.disk_bytes), ", ".join(item.used_by))
            for item in found
        ]
        _print_table(rows, "kind", "name", "of", "on disk", "used by")


def ssh_command(target: Any) -> list[str]:
    """The local ssh, with only the lab's key and host key and no user configuration."""
    return [
        "ssh",
        *("-F", "/dev/null", "-p", str(target.port), "-i", target.identity_file),
        *("-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={target.known_hosts}"),
        *("-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR"),
        f"{target.user}@{target.host}",
    ]


def _machine(name: str) -> vm.Vm:
    from headrace.lab import vm

    found = vm.find(name)
    if found is None:
        there = ", ".join(machine.name for machine in vm.running())
        raise TargetError(
            f"no machine {name!r} runs",
            hint=f"running: {there}" if there else "`headrace lab up` starts one",
        )
    return found


def _with_progress(work: Any) -> Any:
    """Run the work; each step prints a line on standard error."""
    start = time.monotonic()

    def tell(text: str) -> None:
        from headrace.show.text import clean

        line = f"{time.monotonic() - start:6.1f} s  {clean(text)}"
        stderr().print(line, markup=False, highlight=False, soft_wrap=True)

    return run_until_signal(
        lambda: work(tell),
        stopping="stopping: removing the machine ...",
        stopped="stopped and removed",
    )


def _show(machine: vm.Vm, as_json: bool) -> None:
    from headrace.lab import vm

    one = next((one for one in vm.statuses() if one.name == machine.name), None)
    if as_json:
        print_json(_as_json(one) if one else None)
        return
    console = stdout()
    console.print(f"{machine.name}: kernel {machine.release}, {machine.accel}", markup=False, highlight=False)
    if machine.accel == "tcg":
        console.print(f"note: {EMULATED}", markup=False, highlight=False)
    extra = "" if machine.name == NAME else f" --name {machine.name}"
    console.print(f"a shell: headrace lab ssh{extra}", markup=False, highlight=False)


def _as_json(one: vm.Status) -> dict[str, Any]:
    content: dict[str, Any] = {"name": one.name, "state": one.state, "disk_bytes": one.disk_bytes}
    if one.record is None:
        return content
    from headrace.lab import vm

    record = one.record
    machine = vm.Vm(record)
    content |= {
        "kernel": record.release,
        "accel": record.accel,
        "note": EMULATED if record.accel == "tcg" else "",
        "owner": record.owner,
        "pid": record.pid,
        "started_at": record.started_at,
        "image": record.image,
        "namespace": record.namespace,
        "spec": plain(record.spec.as_json()),
        "steps": [{"step": what, "took_s": took_s} for what, took_s in record.steps],
    }
    if one.state == "running":
        target = machine.target
        content["ssh"] = {
            "host": target.host,
            "port": target.port,
            "user": target.user,
            "identity_file": target.identity_file,
            "known_hosts": target.known_hosts,
            "command": ssh_command(target),
        }
    return content


def _row(one: vm.Status) -> tuple[str, ...]:
    record = one.record
    if record is None:
        return (one.name, one.state, "", "", "", "", _size(one.disk_bytes), "")
    spec = record.spec
    what = f"{spec.cpus} CPUs, {_size(spec.memory_bytes)}"
    if spec.disks:
        what += f", {len(spec.disks)} x {_size(spec.disks[0].size_bytes)}"
    if spec.nic_queues > 1:
        what += f", {spec.nic_queues} net queues"
    owner = Path(record.owner).name if record.owner else "you"
    port = str(record.port) if one.state == "running" else ""
    kernel = record.release.removesuffix("-cloud-amd64")
    return (one.name, one.state, kernel, record.accel, what, owner, _size(one.disk_bytes), port)


def _print_table(rows: Sequence[tuple[str, ...]], *columns: str) -> None:
    from rich.table import Table

    from headrace.show.text import clean

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(clean(cell).replace("[", "\\[") for cell in row))
    stdout().print(table)


def _size(size_bytes: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes / 1024:.3g} KiB"
