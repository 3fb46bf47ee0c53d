"""The structure that ARCHITECTURE.md promises: import directions, sizes, nothing printed below the top."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.folders import ROOT

SOURCE = ROOT / "src" / "headrace"

#: Bottom to top. A room imports what is below it, and of its own tier only what ``BESIDE`` and ``BETWEEN`` name.
#: ``command.py`` and ``commands/`` of a room belong to the last tier, like the command line that loads them.
TIERS = [
    {"base"},
    {"host", "lab", "show"},
    {
        "hunt", "experiment", "change", "rollout", "traffic", "history", "capacity", "fleet", "knobs",
        "indexes",
    },
    {"web", "mcp", "tell"},
    {"cli", "__main__"},
]  # fmt: skip
LEVEL = {name: depth for depth, names in enumerate(TIERS) for name in names}
#: Within a tier, whole rooms: a server, a volume and a virtual machine are prepared on a host.
BESIDE = {("lab", "host"), ("__main__", "cli")}
#: What a capability takes from another one, module by module: this table only gets shorter.
BETWEEN: Mapping[str, set[str]] = {
    "capacity": {
        "change.apply", "change.production.table", "experiment.foreign", "experiment.plan.tables",
        "experiment.stats.sweep", "experiment.stats.sweep_result", "experiment.store",
        "history.archive", "history.archive.files", "history.archive.reader", "history.archive.tables",
        "history.questions", "traffic.digests.classes", "traffic.digests.table", "traffic.replayed",
        "traffic.traffic",
    },
    "change": {
        "experiment.foreign", "experiment.stats.compare", "history.archive", "history.archive.files",
        "history.archive.reader", "history.archive.tables", "history.questions", "knobs.catalogue",
        "knobs.change", "knobs.instance", "knobs.knob", "knobs.losses", "knobs.servers", "knobs.values",
        "traffic.digests.classes", "traffic.digests.files", "traffic.digests.history",
    },
    "experiment": {
        "change.persist", "hunt.rules", "hunt.rules.rule", "knobs.catalogue", "knobs.change",
        "knobs.losses", "knobs.switching",
    },
    "fleet": {
        "change.persist.last_word", "change.persist.options", "experiment.frozen",
        "experiment.report.progress", "experiment.stats.study", "experiment.store", "hunt.ladder.published",
        "hunt.report.words", "hunt.resources", "hunt.rules.rule", "knobs.catalogue", "knobs.knob",
        "knobs.servers", "knobs.values",
    },
    "history": {
        "capacity.used", "change.apply", "change.production.prometheus", "change.production.series",
        "change.production.table", "fleet.host", "hunt.live", "hunt.report.words",
        "hunt.resources", "hunt.rules", "hunt.rules.cause", "hunt.rules.rule", "hunt.sessions",
        "hunt.top.plan", "knobs.catalogue",
    },
    "hunt": {
        "knobs.catalogue", "knobs.knob", "knobs.provider",
    },
    "indexes": {
        "traffic.digests.classes", "traffic.digests.table",
    },
    "rollout": {
        "change.apply", "change.contrast", "experiment.frozen", "experiment.kinds",
        "experiment.stats.audit", "experiment.stats.study", "experiment.stats.trials", "experiment.store",
        "fleet.evidence", "fleet.host", "fleet.runner", "fleet.topology", "knobs.catalogue",
        "knobs.change", "knobs.knob", "knobs.values",
    },
}  # fmt: skip
#: What computes only: these import nothing but ``base`` and each other.
PURE = {
    "experiment.stats.additive", "experiment.stats.aliasing", "experiment.stats.changes",
    "experiment.stats.choice", "experiment.stats.claims", "experiment.stats.effects",
    "experiment.stats.estimate", "experiment.stats.history", "experiment.stats.importance",
    "experiment.stats.levels", "experiment.stats.noises", "experiment.stats.outliers",
    "experiment.stats.power", "experiment.stats.race", "experiment.stats.steady", "experiment.stats.swept",
    "experiment.stats.unequal", "experiment.stats.untold", "experiment.stats.usl", "experiment.stats.ways",
    "experiment.stats.whole", "indexes.verdicts", "rollout.guards", "rollout.judge", "rollout.prediction",
}  # fmt: skip
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
            # `from headrace import show` is an import of headrace.show.
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
    """The room, or the module beside them; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def level_name(module: str) -> str:
    """The room by which a module's tier is known: a room's commands belong to the command line."""
    return "cli" if module.split(".")[2:3] in (["command"], ["commands"]) else part_of(module) or "base"


def below(module: str) -> str:
    return module.removeprefix("headrace.")


def wrong_imports(graph: Graph) -> Iterator[str]:
    for module, imports in graph.items():
        own, own_room = level_name(module), part_of(module)
        for other, line in imports.items():
            theirs, their_room = level_name(other), part_of(other)
            # The package itself holds nothing but the version.
            if not their_room or own == theirs == "cli" or (own_room == their_room and own == theirs):
                continue
            allowed = (
                LEVEL[theirs] < LEVEL[own]
                or (own, theirs) in BESIDE
                or (LEVEL[own] == LEVEL[theirs] and below(other) in BETWEEN.get(own, ()))
            )
            if not allowed:
                yield f"{module}:{line} must not import {other}"


def test_every_module_has_its_tier() -> None:
    assert {part_of(module) for module in graph_of()} - {""} == set(LEVEL)


def test_imports_point_downward() -> None:
    assert not list(wrong_imports(graph_of()))


def test_the_exceptions_are_still_needed() -> None:
    graph = graph_of()
    for room, names in BETWEEN.items():
        used = {
            below(other)
            for module, imports in graph.items()
            for other in imports
            if part_of(module) == level_name(module) == room
        }
        assert not names - used, f"{room} imports them no more: take them off the table"
    rooms = {(part_of(module), part_of(other)) for module, found in graph.items() for other in found}
    assert not BESIDE - rooms, "gone: take it off the list"
    assert not CIRCLES - set(circles_of(graph)), "gone: take it off the list"


def test_pure_parts_import_only_the_base() -> None:
    graph = {below(module): {below(other) for other in imports} for module, imports in graph_of().items()}
    assert not PURE - set(graph), "gone: take it off the list"
    wrong = {
        f"{module} imports {other}"
        for module in PURE
        for other in graph[module]
        if other not in PURE and part_of(f"headrace.{other}") != "base"
    }
    assert not wrong


def rooms() -> Iterator[tuple[str, str]]:
    """Each room with its docstring, in the order of the tiers."""
    for tier in TIERS:
        for name in sorted(tier - {"__main__"}):
            yield name, ast.get_docstring(tree_of(SOURCE / name / "__init__.py")) or ""


def test_a_room_says_what_it_is_for_and_imports_nothing() -> None:
    for name, text in rooms():
        if name == "cli":  # the entry point itself
            continue
        tree = tree_of(SOURCE / name / "__init__.py")
        assert all(isinstance(node, ast.Expr) for node in tree.body), f"{name}: only a docstring"
        for word in ("In:", "Out:", "Entry:", "Holds:", "Imports:"):
            assert word in text, f"headrace.{name}: its docstring has no {word!r}"


def test_the_map_is_that_of_the_rooms() -> None:
    """ARCHITECTURE.md's rows are the first lines of the rooms' docstrings. A failure prints the map."""
    first = {name: text.partition("\n")[0].rstrip(".").replace("``", "`") for name, text in rooms()}
    made = [f"| `{name}/` | {first[name]} |" for name in first]
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert "\n".join(made) in text, "\n".join(["the map is:", *made])


def test_the_architecture_is_read_in_a_minute() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 160


def test_no_import_goes_in_a_circle() -> None:
    graph = graph_of()
    assert not [shown(graph, circle) for circle in circles_of(graph) if circle not in CIRCLES]


def test_a_wrong_import_would_be_found(tmp_path: Path) -> None:
    """Upward, between capabilities, of a command, within a function and for types only."""
    package = tmp_path / "headrace"
    for name in ("web", "hunt", "hunt/rules", "traffic", "experiment", "show"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "hunt" / "rules" / "a.py").write_text(
        "def f():\n    from headrace import web\n    import headrace.hunt.command\n    import headrace.show\n"
    )
    (package / "hunt" / "command.py").write_text(
        "import headrace.traffic.a, headrace.web, headrace.hunt.rules\n"
    )
    (package / "traffic" / "a.py").write_text("from headrace.hunt import rules\n")
    (package / "show" / "a.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from headrace.hunt import rules\n"
    )
    (package / "experiment" / "a.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from headrace.experiment.b import B\n"
    )
    (package / "experiment" / "b.py").write_text("def f():\n    from headrace.experiment.c import C\n")
    (package / "experiment" / "c.py").write_text("from headrace.experiment import a\n")
    graph = graph_of(package)
    assert list(wrong_imports(graph)) == [
        "headrace.hunt.rules.a:2 must not import headrace.web",
        "headrace.hunt.rules.a:3 must not import headrace.hunt.command",
        "headrace.show.a:3 must not import headrace.hunt.rules",
        "headrace.traffic.a:1 must not import headrace.hunt.rules",
    ]
    [circle] = circles_of(graph)
    assert circle == ("headrace.experiment.a", "headrace.experiment.b", "headrace.experiment.c")
    assert "headrace.experiment.b:2 imports headrace.experiment.c" in shown(graph, circle)


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


def test_no_module_gives_one_name_to_two_values() -> None:
    """The second is what functions above it see, too: a limit of 20,000 was one of 200 so."""
    twice = []
    for path in FILES:
        names: set[str] = set()
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for name in [each for target in targets for each in getattr(target, "elts", [target])]:
                if isinstance(name, ast.Name) and not isinstance(node, ast.For | ast.AugAssign):
                    twice += [f"{path}: {name.id}"] * (name.id in names)
                    names.add(name.id)
    assert not twice


def test_nothing_below_the_top_prints_or_exits() -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for path in FILES
        if LEVEL[level_name(module_of(path))] < LEVEL["cli"]
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "exit", "sys.exit", "os._exit", "quit")
    ]
    assert not wrong


def test_the_exit_codes_in_the_docs_are_those_of_the_code() -> None:
    from headrace.base.errors import EXIT_CODES

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
    assert readers == {"base/toml.py"}


#: The process that holds a host ends what has its owner's mark, as soon as the controller is gone.
HELD = "the hold of its host"
#: Where a program is started on a host, file: function -> what ends it if this process is killed.
SPAWNS = {
    "host/agent/door.py: lines": "its lease, or the end of its input",
    "host/agent/door.py: leased": "its lease",
    "host/agent/door.py: spawn": "its callers are in this list",
    "host/agent/door.py: start_sampler": HELD,
    "host/agent/journal.py: _take": "the end of its input",
    "hunt/hunt.py: _sample": "its --duration, and the lease of its folder",
    "lab/server/process.py: start": HELD,
    "host/target/clock.py: read_clock": "the end of its input",
    "host/target/leased.py: leased_folder": "the end of its input",
    "host/target/leased.py: listen": "the end of its input",
    "traffic/traffic.py: record": "the lease of its folder",
    "lab/volumes/logged.py: _start": HELD,
    "lab/vm/image.py: _bootstrap": "the folder's mark, found by the next command",
    "lab/vm/machine.py: _start_qemu": "the machine's state, found by the next command",
    "experiment/workloads/drive/clients.py: begun": f"{HELD}; on another machine the length of the load",
    "experiment/workloads/memcached.py: _start": HELD,
    "experiment/workloads/observe.py: run": HELD,
    "experiment/workloads/power_cut.py: _watched": HELD,
    "experiment/workloads/probe.py: run": "its length",
    "experiment/workloads/tool.py: run_measured": HELD,
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
    assert found == {
        "lab/server/trial_start.py",
        "host/target/leased.py",
        "host/target/shell.py",
        "lab/vm/machine.py",
    }


#: Where JSON is read that this program, or a user's own tool, wrote here. What a host, a client or another person
#: wrote is read by ``received``: this list only gets shorter.
OWN_JSON = {
    "base/encode.py", "base/received.py", "capacity/catalogue.py", "capacity/predictions.py",
    "change/production/histograms.py", "cli/docs_search.py",
    "experiment/frozen.py", "experiment/preflight.py", "experiment/reboot.py",
    "experiment/workloads/drive/check.py", "experiment/workloads/drive/lines.py",
    "experiment/workloads/fio.py", "experiment/workloads/observe.py",
    "experiment/workloads/sysbench_oltp.py", "experiment/workloads/tpcc.py", "fleet/runs.py",
    "history/archive/elapsed.py", "history/archive/mirror.py", "host/agent/journal.py",
    "host/memcached/ask.py", "host/samples.py", "hunt/hunt.py", "hunt/ladder/ladder.py",
    "knobs/servers/__init__.py", "lab/server/dataset.py", "lab/vm/kernels.py", "lab/vm/state.py",
    "lab/vm/stock.py", "lab/volumes/block.py", "rollout/book.py",
    "traffic/digests/binary_log.py", "traffic/digests/classes.py", "traffic/digests/lines.py",
    "traffic/traffic.py", "web/reviews.py", "web/site.py",
}  # fmt: skip


def test_json_of_others_is_read_in_one_place() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute | ast.Name)
        and ast.unparse(node) in ("json.loads", "json.load", "from_json")
    }
    assert found - OWN_JSON == set(), "read it with headrace.base.received"
    assert OWN_JSON - found - {"base/encode.py", "experiment/frozen.py"} == set(), (
        "gone: take it off the list"
    )


def test_option_files_are_read_through_the_agent() -> None:
    """Their folders may belong to a server's account: a name may be a link, a pipe, another's file."""
    for name in (
        "change/persist/options.py",
        "lab/server/option_files.py",
        "lab/server/sources.py",
        "lab/server/next_start.py",
    ):
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
        node
        for node in ast.walk(tree_of(SOURCE / "history" / "archive" / "rollup.py"))
        if isinstance(node, ast.Call)
    ]
    assert "time.time" not in {ast.unparse(node.func) for node in in_rollup}
