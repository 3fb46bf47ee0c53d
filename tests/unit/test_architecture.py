"""The structure that ARCHITECTURE.md promises: import directions, sizes, nothing printed below the top."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.folders import ROOT

SOURCE = ROOT / "src" / "headrace"

#: Top to bottom. A module imports only what stands below its line; siblings never import each other.
LAYERS = [
    {"__main__"},
    {"cli", "web"},
    {"report"},
    {"tune"},
    {"hunt", "live", "prove", "rollout"},
    {"persist"},
    {"rules"},
    {"experiment"},
    {"analysis"},
    {"workloads", "knobs", "volumes", "server"},
    {"snapshot", "digests"},
    {"store", "foreign"},
    {"design"},
    {"plan"},
    {"facts", "inventory"},
    {"agent"},
    {"vm"},
    {"target", "controller"},
    {"model", "extras"},
    {"errors"},
]
LEVEL = {name: depth for depth, names in enumerate(LAYERS) for name in names}
FILES = sorted(SOURCE.rglob("*.py"))
FORBIDDEN_NAMES = ("utils", "common", "manager", "helpers", "misc")


def part_of(path: Path) -> str:
    """The layer member a file belongs to: its top-level module or package."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """The layer members that a file imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "headrace" and len(parts) > 1 and parts[1] in LEVEL:
                found.add(parts[1])
    return found


def test_imports_point_downward() -> None:
    wrong = []
    for path in FILES:
        own = part_of(path)
        imported = imports_of(path) - {own}
        upward = imported if own == "__init__" else {name for name in imported if LEVEL[name] <= LEVEL[own]}
        wrong += [f"{path.relative_to(SOURCE)} imports {name}" for name in sorted(upward)]
    assert wrong == []


def test_an_upward_import_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from headrace import report\n    import headrace.cli\n")
    assert imports_of(file) == {"report", "cli"}


def test_files_and_functions_stay_small() -> None:
    long = []
    for path in FILES:
        text = path.read_text()
        name = path.relative_to(SOURCE)
        if (lines := len(text.splitlines())) > 650:
            long.append(f"{name} has {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno
                if length > 75:
                    long.append(f"{node.name} in {name} has {length} lines")
    assert long == []


def test_no_module_has_a_name_that_means_nothing() -> None:
    for path in [*FILES, *(ROOT / "crates").glob("*/src/**/*.rs")]:
        assert path.stem not in FORBIDDEN_NAMES
        assert not path.stem.startswith("base_")


def test_rust_files_stay_small() -> None:
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        # A module's own tests stand in its file and do not count.
        code = path.read_text().split("#[cfg(test)]")[0]
        assert len(code.splitlines()) <= 650, path


def test_nothing_below_the_top_prints_or_exits() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno} calls {ast.unparse(node.func)}"
        for path in FILES
        if part_of(path) != "cli"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "exit", "sys.exit", "os._exit", "quit")
    ]
    assert found == []


def test_the_exit_codes_in_the_docs_are_those_of_the_code() -> None:
    from headrace.errors import EXIT_CODES

    rows = [
        line.strip("| ").split(" | ", 1)
        for line in (ROOT / "docs" / "reference" / "exit-codes.md").read_text().splitlines()
        if line.startswith("| ") and line[2].isdigit()
    ]
    assert {int(code): meaning.strip() for code, meaning in rows} == EXIT_CODES
