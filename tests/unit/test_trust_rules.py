"""Files of others are opened by one door, deletion rests on no wall clock, and every program has a lease.

Each rule is a function of a source, and is shown to find what it forbids.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pytest

from tests.folders import ROOT

SOURCE = ROOT / "src" / "headrace"
KERNEL, OWN, BOOT = "files of the kernel", "a folder of ours that nobody else may enter", "root's own, /boot"
STATE, HISTORY = "the user's own state directory", "the history's directory, which is the user's own"
WHEEL, DRAFT = "files that come with the wheel", "a trial's draft, held open"
SERVERS = "as the server's account, or by what was checked"

#: A target's ``read`` and ``get`` open by name, as root perhaps. File: function -> whose files they are.
#: Everything below a folder that others may write is read by ``Agent.read`` and ``Agent.look``.
BY_NAME = {
    "host/agent/journal.py: _end_orphan": f"{OWN}, {KERNEL}",
    "host/agent/journal.py: _take": OWN,
    "host/agent/journal.py: _take_back": OWN,
    "host/agent/journal.py: holder": f"{OWN}, {KERNEL}",
    "hunt/dumps/kinds/sadf.py: _about": "a saved host in memory",
    "change/commands/whose.py: now": KERNEL,
    "experiment/boot.py: boot_id": KERNEL,
    "experiment/boot.py: check_arguments_of": KERNEL,
    "experiment/cores.py: usable": KERNEL,
    "experiment/loaders.py: _copy": BOOT,
    "experiment/loaders.py: _efi_text": KERNEL,
    "experiment/loaders.py: _entry": BOOT,
    "experiment/loaders.py: set_next": BOOT,
    "experiment/reboot.py: _digest": BOOT,
    "experiment/reboot.py: read": OWN,
    "experiment/trial.py: _sampled": OWN,
    "hunt/hunt.py: watch": OWN,
    "knobs/report/knobs.py: _read": KERNEL,
    "change/apply.py: _step": KERNEL,
    "change/persist/starts.py: at_its_limits": KERNEL,
    "lab/server/dataset.py: _read_manifest": (
        "a data set's folder, of which the server's account owns the data only"
    ),
    "lab/server/process.py: _refuse_taken_port": KERNEL,
    "lab/server/process.py: _verify_allocator": KERNEL,
    "traffic/traffic.py: _bring": OWN,
    "traffic/traffic.py: record": OWN,
    "web/tables.py: hosts": "a table in memory",
    "experiment/workloads/drive/clients.py: fetch": OWN,
    "experiment/workloads/memcached.py: _listening": KERNEL,
    "experiment/workloads/power_cut.py: _server": KERNEL,
    "experiment/workloads/power_cut.py: _watched": OWN,
    "experiment/workloads/memcached.py: _subject": "the trial's folder, which is root's",
    "experiment/workloads/observe.py: run": OWN,
    "experiment/workloads/replay.py: run": OWN,
    "experiment/workloads/tool.py: run_measured": OWN,
}
#: A program of a host that opens a file by a name there, in a list of words: the same.
PROGRAMS = {
    "change/persist/starts.py: _listening": KERNEL,
    "indexes/demo.py: shop": "the demo's own folder",
    "hunt/rules/neighbours.py: caches_are_dropped": "words of a finding",
    "lab/server/dataset.py: restore_dataset": "a data set, whose links are copied and not followed",
    "lab/vm/image.py: _build": "an image of ours",
    "lab/volumes/loop.py: _attach": KERNEL,
    "lab/volumes/md.py: _chunk": KERNEL,
    "lab/volumes/zram.py: _add": KERNEL,
    "lab/volumes/zram.py: _must_fit": KERNEL,
}
#: A wall clock and a removal in one function -> why the one does not decide about the other.
CLOCKS = {
    "lab/vm/image.py: _build": "it stamps the image, and removes its draft",
    "history/collect/collector.py: _trim": "its time is that of `elapsed`, or of the newest data",
}
#: Commands of a host without a limit of time -> what ends them once nobody waits.
ENDLESS = {
    "lab/server/dataset.py": "the hold of its host, or it ends by itself",
    "lab/server/process.py": "the hold of its host",
    "host/target/files.py": "the end of its output",
    "host/target/ssh.py": "the command that it waits for",
    "traffic/traffic.py": "the length of the file",
    "experiment/workloads/tool.py": "the hold of its host",
    "capacity/prove.py": "the user's own script",
}

#: Calls that take a name for what it was when it was looked at. File of ours -> whose folder it is in.
NAMED = {
    "__main__.py": KERNEL,
    "capacity/predictions.py": STATE,
    "change/commands/attempts.py": STATE,
    "change/production/histograms.py": "opened by ``opened_to_write``",
    "cli/docs.py": WHEEL,
    "cli/docs_search.py": WHEEL,
    "cli/shell.py": KERNEL,
    "experiment/block.py": KERNEL,
    "experiment/cluster.py": OWN,
    "experiment/store.py": "beneath ``held``, or in a draft",
    "experiment/trial.py": DRAFT,
    "experiment/workloads/drive/clients.py": DRAFT,
    "experiment/workloads/drive/lines.py": DRAFT,
    "experiment/workloads/apply.py": DRAFT,
    "experiment/workloads/fio.py": DRAFT,
    "experiment/workloads/memcached.py": DRAFT,
    "experiment/workloads/observe.py": DRAFT,
    "experiment/workloads/power_cut.py": DRAFT,
    "experiment/workloads/precondition.py": DRAFT,
    "experiment/workloads/probe.py": DRAFT,
    "experiment/workloads/sysbench_fileio.py": DRAFT,
    "experiment/workloads/sysbench_oltp.py": DRAFT,
    "experiment/workloads/tool.py": DRAFT,
    "fleet/command.py": OWN,
    "fleet/runs.py": STATE,
    "history/archive/elapsed.py": HISTORY,
    "history/archive/files.py": HISTORY,
    "history/archive/mirror.py": HISTORY,
    "history/archive/rollup.py": HISTORY,
    "history/archive/sums.py": HISTORY,
    "host/agent/program.py": "checked up to the root before root runs it",
    "host/controller.py": KERNEL,
    "host/memcached/ask.py": KERNEL,
    "host/memcached/probe.py": KERNEL,
    "host/memcached/watching.py": WHEEL,
    "host/samples.py": DRAFT,
    "host/target/files.py": "a draft with a new name",
    "host/target/local.py": "the target's own door",
    "hunt/commands/collect.py": WHEEL,
    "hunt/dumps/archives.py": OWN,
    "hunt/dumps/files.py": OWN,
    "hunt/dumps/hosts.py": "where what is open is, is looked at",
    "hunt/dumps/load.py": OWN,
    "hunt/ladder/ladder.py": STATE,
    "indexes/copies.py": STATE,
    "indexes/journal.py": STATE,
    "knobs/servers/__init__.py": WHEEL,
    "mcp/library.py": "each part beneath the one before",
    "rollout/book.py": STATE,
    "show/html.py": WHEEL,
    "traffic/traffic.py": OWN,
    "web/alerts.py": HISTORY,
    "web/app.py": WHEEL,
    "web/reviews.py": HISTORY,
    "web/sessions.py": HISTORY,
    "web/users.py": HISTORY,
}

Calls = Iterable[tuple[str, ast.AST]]


def nodes(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each node, with the innermost function that it is in."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else name
            yield name, child
            yield from walk(child, inner)

    yield from walk(tree, "")


def by_name(made: Calls) -> Iterator[str]:
    """A file of a host that is opened by its name."""
    for name, node in made:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("read", "get")
            and re.search(r"(^|[._])(target|host|guest|machine)$", ast.unparse(node.func.value))
            and not any(
                isinstance(arg, ast.Constant) and not str(arg.value).startswith("/") for arg in node.args[:1]
            )
        ):
            yield name


def programs(made: Calls) -> Iterator[str]:
    """``cat``, ``cp`` and the like, as a word of a command or in a shell's words for a folder of others."""
    for name, node in made:
        if isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant):
            if node.elts[0].value in (
                "cat",
                "head",
                "tail",
                "cp",
                "dd",
                "tar",
                "sed",
                "awk",
                "grep",
                "install",
            ):
                yield name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n\n" not in node.value:
            opens = r"\b(cat|head|tail|cp|dd|sed|awk|grep|source)\b[^|;\n]* "
            if re.search(opens + r"[\"']?/(etc|var/lib|home|root|tmp|var/tmp)/", node.value):
                yield name


def clocks(made: Calls) -> Iterator[str]:
    """A deletion by a wall clock: removing and asking it in one function."""
    wall, removing = set(), set()
    for name, node in made:
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"):
                wall.add(name)
            if called.rpartition(".")[2] in ("unlink", "rmtree", "remove_all", "delete", "trim", "rmdir"):
                removing.add(name)
    yield from sorted(wall & removing - {""})


def endless(made: Calls) -> Iterator[str]:
    """A command without a limit of time, on a host that may lose us."""
    for name, node in made:
        if not isinstance(node, ast.Call):
            continue
        is_run = ast.unparse(node.func).rpartition(".")[2] in ("run", "_run_once")
        if is_run and any(
            key.arg == "timeout_s" and getattr(key.value, "value", 0) is None for key in node.keywords
        ):
            yield name


def shells(made: Calls) -> Iterator[str]:
    """A program that is let go: no end of a pipe reaches it."""
    for name, node in made:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n\n" not in node.value:
            if re.search(r"(^|\s)(setsid|nohup|systemd-run|disown|at now)(\s|$)", node.value):
                yield name
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "os.fork",
            "os.daemon",
            "os.spawnv",
            "os.system",
        ):
            yield name


def named(made: Calls) -> Iterator[str]:
    """A file or a folder of this machine that is opened, made or removed by its name."""
    changing = {
        "mkdir",
        "makedirs",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "rmtree",
        "unlink",
    }
    for name, node in made:
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        first = getattr(node.args[0], "value", None) if node.args else None
        is_mode = isinstance(first, str) and re.fullmatch(r"[rwax][bt+]*", first) is not None
        is_mode = is_mode or any(key.arg in ("encoding", "mode") for key in node.keywords)
        is_named = called in ("open", "os.open", "os.rename", "os.replace")
        if is_named or called.rpartition(".")[2] in changing or (called.endswith(".open") and is_mode):
            yield name


@cache
def source() -> dict[str, list[tuple[str, ast.AST]]]:
    """Read once: parsing all takes seconds."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {str(path.relative_to(SOURCE)): list(nodes(ast.parse(path.read_text()))) for path in paths}


def found(look: Callable[[Calls], Iterator[str]]) -> set[str]:
    return {f"{path}: {name}" for path, made in source().items() for name in look(made)}


def test_a_file_of_a_host_is_opened_by_name_only_where_nobody_else_may_write() -> None:
    assert found(by_name) - set(BY_NAME) == set(), "read it with Agent.read, or say whose folder it is in"
    assert set(BY_NAME) - found(by_name) == set(), "gone: take it off the list"


def test_no_program_opens_a_file_of_others_for_us() -> None:
    assert found(programs) - set(PROGRAMS) == set(), "read it with Agent.read, or say whose folder it is in"
    assert set(PROGRAMS) - found(programs) == set(), "gone: take it off the list"


def test_a_name_of_this_machine_is_opened_by_the_door() -> None:
    """``base`` is the door; ``lab`` works in ``~/.cache/headrace``, which is 0700."""
    there = {each.partition(":")[0] for each in found(named)}
    there = {each for each in there if not each.startswith(("base/", "lab/"))}
    assert there - set(NAMED) == set(), "use base.whole, or say whose folder it is in"
    assert set(NAMED) - there == set(), "gone: take it off the list"


def test_nothing_is_removed_by_a_wall_clock() -> None:
    assert found(clocks) == set(CLOCKS)


def test_a_command_without_a_limit_of_time_ends_without_us() -> None:
    assert {each.partition(":")[0] for each in found(endless)} == set(ENDLESS)


def test_no_program_is_let_go_but_what_watches() -> None:
    # Of a trial start it is the guard that ends it after its time; of a machine what powers it off.
    assert {each.partition(":")[0] for each in found(shells)} == {
        "lab/server/trial_start.py",
        "host/target/leased.py", "host/target/shell.py", "lab/vm/machine.py",
    }  # fmt: skip


PLANTED: list[tuple[Callable[[Calls], Iterator[str]], str]] = [
    (by_name, "await self._target.read(place)"),
    (by_name, "await target.get('/etc/my.cnf', here)"),
    (by_name, "await lab.target.read(f'{datadir}/auto.cnf')"),
    (by_name, "(await agent.target.read(path)).decode()"),
    (named, "path.read_text()"),
    (named, "path.parent.mkdir(parents=True)"),
    (named, "path.open('rb')"),
    (named, "open(path)"),
    (named, "shutil.rmtree(path)"),
    (programs, "await target.run(['cat', path])"),
    (programs, "await target.run(['cp', '-a', path, other])"),
    (programs, "SCRIPT = 'cat /etc/mysql/my.cnf'"),
    (programs, "SCRIPT = 'for f in x; do sed -n 1p /var/lib/mysql/auto.cnf; done'"),
    (programs, "SCRIPT = 'x=$(grep -h bind /etc/mysql/conf.d/x.cnf)'"),
    (clocks, "os.unlink(path) if time.time() > age else None"),
    (clocks, "[path.unlink() for path in paths if path.stat().st_mtime < time.time() - 60]"),
    (clocks, "shutil.rmtree(path) if datetime.now() > end else None"),
    (clocks, "archive.trim(time.time() - keep)"),
    (endless, "await target.run(argv, timeout_s=None)"),
    (endless, "await self.target.run(['rsync', a, b], check=False, timeout_s=None)"),
    (shells, "SCRIPT = 'setsid sh -c x &'"),
    (shells, "argv = ['nohup', 'x']"),
    (shells, "argv = ['systemd-run', '--unit=x', 'y']"),
    (shells, "os.fork()"),
]


@pytest.mark.parametrize(("look", "planted"), PLANTED, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_planted_is_found(look: Callable[[Calls], Iterator[str]], planted: str) -> None:
    assert "planted" in set(look(list(nodes(ast.parse(f"async def planted():\n    {planted}")))))


@pytest.mark.parametrize(
    ("look", "right"),
    [
        (by_name, "await agent.read(path)"),
        (by_name, "(await agent.look([path]))[path]"),
        (programs, "await agent.leased('tail', '-F', path)"),
        (named, "book.open(identity)"),
        (named, "read_plain(path)"),
        (programs, "text = 'try: cat /proc/mdstat'"),
        (clocks, "os.unlink(path) if elapsed.now() > age else None"),
        (endless, "await target.run(argv, timeout_s=60)"),
        (shells, "SCRIPT = 'sh -c x'"),
    ],
)
def test_what_is_right_is_none(look: Callable[[Calls], Iterator[str]], right: str) -> None:
    assert not list(look(list(nodes(ast.parse(f"async def f():\n    {right}")))))
