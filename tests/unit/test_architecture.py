"""The structure that ARCHITECTURE.md promises: import directions, sizes, nothing printed below the top."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.folders import ROOT

SOURCE = ROOT / "src" / "headrace"

#: Top to bottom. A module imports only what is below its line; those of one line never import each other.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"tell", "mcp"},
    {"web"},
    {"report"},
    {"staged"},
    {"size", "printed"},
    {"tune", "hunt", "live", "prove", "rollout", "traffic", "replayed", "ladder"},
    {"fleet"},
    {"dumps"},
    {"persist", "rules", "beyond", "lost", "indexes"},
    {"experiment"},
    {"analysis"},
    {"workloads", "knobs", "volumes", "server"},
    {"production", "memcached"},
    {"snapshot", "digests"},
    {"store", "foreign", "archive"},
    {"design"},
    {"plan"},
    {"facts", "shape"},
    {"agent"},
    {"vm"},
    {"target", "controller"},
    {"trial_tables"},
    {"arrow", "parquet"},
    {"samples", "buckets", "activity"},
    {"moved"},
    {"model", "encode", "extras", "whole", "temporary", "toml", "meant", "received", "counted"},
    {"errors"},
]
LEVEL = {name: depth for depth, names in enumerate(LAYERS) for name in names}
#: Imports within a line, each until it is gone: this list only gets shorter.
WITHIN_A_LINE = {("tune", "prove")}
#: Circles that are left, each until it is gone: this list only gets shorter.
CIRCLES: set[tuple[str, str]] = set()

FILES = sorted(SOURCE.rglob("*.py"))
FORBIDDEN_NAMES = ("utils", "common", "manager", "helpers", "misc")

Graph = Mapping[str, Mapping[str, int]]


def module_of(path: Path, source: Path = SOURCE) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    """Read once: parsing all of them takes seconds."""
    return ast.parse(path.read_text())


def imports_of(path: Path, modules: set[str], own: str) -> dict[str, int]:
    """The modules that a file imports -> the line: also for types, and within functions."""
    found: dict[str, int] = {}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            # `from headrace import report` is an import of headrace.report.
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in full]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name in modules and name != own:
                found.setdefault(name, node.lineno)
    return found


@cache
def graph_of(source: Path = SOURCE) -> Graph:
    paths = {module_of(path, source): path for path in sorted(source.rglob("*.py"))}
    return {module: imports_of(path, set(paths), module) for module, path in paths.items()}


def circles_of(graph: Graph) -> Iterator[tuple[str, ...]]:
    """Sets of modules each of which imports every other one, over however many: Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[tuple[str, ...]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                yield from visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(circle) > 1:
                yield tuple(sorted(circle))

    for module in graph:
        if module not in index:
            yield from visit(module)


def shown(graph: Graph, circle: tuple[str, ...]) -> str:
    """The circle, with the line of each import in it."""
    edges = [
        f"{module}:{line} imports {other}"
        for module in circle
        for other, line in graph[module].items()
        if other in circle
    ]
    return "\n".join(["a circle:", *edges])


def part_of(module: str) -> str:
    """The layer's member: its top-level module or package; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def upward(graph: Graph) -> Iterator[str]:
    for module, imports in graph.items():
        own = part_of(module)
        for other, line in imports.items():
            part = part_of(other)
            # The package itself holds nothing but the version.
            if part in ("", own) or (own, part) in WITHIN_A_LINE:
                continue
            if not own or LEVEL[part] <= LEVEL[own]:
                yield f"{module}:{line} must not import {other}"


def test_every_module_has_its_layer() -> None:
    assert {part_of(module) for module in graph_of()} - {""} == set(LEVEL)


def test_imports_point_downward() -> None:
    assert not list(upward(graph_of()))


def test_the_exceptions_are_still_needed() -> None:
    used = {(part_of(module), part_of(other)) for module, found in graph_of().items() for other in found}
    assert not WITHIN_A_LINE - used, "gone: take it off the list"
    assert not CIRCLES - set(circles_of(graph_of())), "gone: take it off the list"


def test_no_import_goes_in_a_circle() -> None:
    graph = graph_of()
    assert not [shown(graph, circle) for circle in circles_of(graph) if circle not in CIRCLES]


def test_a_wrong_import_would_be_found(tmp_path: Path) -> None:
    """Upward, within a line, within a function and for types only."""
    package = tmp_path / "headrace"
    for name in ("report", "rules", "hunt", "prove", "store", "foreign"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "rules" / "a.py").write_text(
        "def f():\n    from headrace import report\n    import headrace.hunt\n"
    )
    (package / "hunt" / "a.py").write_text("from headrace.prove import x\n")
    (package / "store" / "a.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from headrace.store.b import B\n"
    )
    (package / "store" / "b.py").write_text("def f():\n    from headrace.store.c import C\n")
    (package / "store" / "c.py").write_text("from headrace.store import a\n")
    graph = graph_of(package)
    assert list(upward(graph)) == [
        "headrace.hunt.a:1 must not import headrace.prove",
        "headrace.rules.a:2 must not import headrace.report",
        "headrace.rules.a:3 must not import headrace.hunt",
    ]
    [circle] = circles_of(graph)
    assert circle == ("headrace.store.a", "headrace.store.b", "headrace.store.c")
    assert "headrace.store.b:2 imports headrace.store.c" in shown(graph, circle)


def test_files_and_functions_stay_small() -> None:
    large = []
    for path in FILES:
        text = path.read_text()
        if len(text.splitlines()) > 650:
            large.append(f"{path}: {len(text.splitlines())} lines")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno
                if length > 75:
                    large.append(f"{path}:{node.lineno}: {node.name} has {length} lines")
    assert not large


def test_no_module_has_a_name_that_means_nothing() -> None:
    for path in [*FILES, *(ROOT / "crates").glob("*/src/**/*.rs")]:
        assert path.stem not in FORBIDDEN_NAMES
        assert not path.stem.startswith("base_")


def test_nothing_below_the_top_prints_or_exits() -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for path in FILES
        if part_of(module_of(path)) != "cli"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "exit", "sys.exit", "os._exit", "quit")
    ]
    assert not wrong


def test_the_exit_codes_in_the_docs_are_those_of_the_code() -> None:
    from headrace.errors import EXIT_CODES

    rows = [
        line.strip("| ").split(" | ", 1)
        for line in (ROOT / "docs" / "reference" / "exit-codes.md").read_text().splitlines()
        if line.startswith("| ") and line[2].isdigit()
    ]
    assert {int(code): meaning.strip() for code, meaning in rows} == EXIT_CODES


def test_toml_is_read_in_one_place() -> None:
    readers = {
        str(path.relative_to(SOURCE))
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "tomllib" in [getattr(node, "module", None), *(alias.name for alias in node.names)]
    }
    assert readers == {"toml.py"}


#: The process that holds a host ends what has its owner's mark, as soon as the controller is gone.
HELD = "the hold of its host"
#: Where a program is started on a host, file: function -> what ends it if this process is killed.
SPAWNS = {
    "agent/door.py: lines": "its lease, or the end of its input",
    "agent/door.py: leased": "its lease",
    "agent/door.py: spawn": "its callers are in this list",
    "agent/door.py: start_sampler": HELD,
    "agent/journal.py: _take": "the end of its input",
    "hunt.py: _sample": "its --duration, and the lease of its folder",
    "server/process.py: start": HELD,
    "target/clock.py: read_clock": "the end of its input",
    "target/leased.py: leased_folder": "the end of its input",
    "target/leased.py: listen": "the end of its input",
    "traffic.py: record": "the lease of its folder",
    "vm/image.py: _bootstrap": "the folder's mark, found by the next command",
    "vm/machine.py: _start_qemu": "the machine's state, found by the next command",
    "workloads/drive/clients.py: begun": f"{HELD}; on another machine the length of the load",
    "workloads/memcached.py: _start": HELD,
    "workloads/observe.py: run": HELD,
    "workloads/tool.py: run_measured": HELD,
}


def test_every_program_that_is_started_on_a_host_ends_without_us() -> None:
    """A new place where one is started says here what ends it: ``Agent.leased`` does, for whatever program."""
    found = {
        f"{path.relative_to(SOURCE)}: {function.name}"
        for path in FILES
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "spawn"
    }
    assert found == set(SPAWNS)


def test_a_shell_lets_nothing_go_but_what_watches_a_folder_or_keeps_an_exit_code() -> None:
    """``setsid`` and ``nohup`` start what no pipe's end reaches."""
    found = {
        str(path.relative_to(SOURCE))
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        and re.search(r"(^|\s)(setsid|nohup|systemd-run)\s", node.value + " ") and "\n\n" not in node.value
    }  # fmt: skip
    # Of the machine's end: it powers off. A trial start's guard ends within its time, and removes its folder.
    assert found == {"server/trial_start.py", "target/leased.py", "target/shell.py", "vm/machine.py"}


#: Where JSON is read that this program, or a user's own tool, wrote here. What a host, a client or another person
#: wrote is read by ``received``: this list only gets shorter.
OWN_JSON = {
    "agent/journal.py", "archive/elapsed.py", "archive/mirror.py", "cli/docs_search.py", "design.py",
    "digests/classes.py",
    "digests/lines.py", "encode.py", "experiment/preflight.py",
    "experiment/reboot.py", "digests/binary_log.py", "fleet/runs.py", "fleet/sources.py",
    "foreign/run.py",
    "hunt.py", "knobs/servers/__init__.py", "ladder.py",
    # It runs on another host, by itself, and reads what watching.py wrote.
    "memcached/ask.py",
    "production/histograms.py", "production/prometheus.py", "received.py", "samples.py", "server/dataset.py",
    "size/catalogue.py", "size/predictions.py", "staged/book.py", "tell/saved.py",
    "traffic.py", "vm/kernels.py", "vm/state.py", "vm/stock.py", "volumes/block.py", "web/reviews.py",
    "web/site.py", "workloads/drive/check.py", "workloads/drive/lines.py", "workloads/fio.py",
    "workloads/observe.py", "workloads/sysbench_oltp.py", "workloads/tpcc.py",
}  # fmt: skip


def test_json_of_others_is_read_in_one_place() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute | ast.Name)
        and ast.unparse(node) in ("json.loads", "json.load", "from_json")
    }
    assert found - OWN_JSON == set(), "read it with headrace.received"
    assert OWN_JSON - found - {"encode.py", "design.py"} == set(), "gone: take it off the list"


def test_option_files_are_read_through_the_agent() -> None:
    """Their folders may belong to a server's account: a name may be a link, a pipe, another's file."""
    for name in ("persist/options.py", "server/option_files.py", "server/sources.py", "server/next_start.py"):
        for node in ast.walk(tree_of(SOURCE / name)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                assert called not in ("open", "target.get", "target.read", "Path.read_text"), (
                    f"{name}:{node.lineno}: read it with the agent"
                )


def test_no_wall_clock_decides_what_is_deleted() -> None:
    calls = [
        f"{path.name}:{node.lineno}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("trim")
        and "time.time" in ast.unparse(node)
    ]
    assert not calls
    in_rollup = [
        node for node in ast.walk(tree_of(SOURCE / "archive" / "rollup.py")) if isinstance(node, ast.Call)
    ]
    assert "time.time" not in {ast.unparse(node.func) for node in in_rollup}
