"""The Rust workspace: which crate may use which, and no circles between the modules of one."""

from __future__ import annotations

import re
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.folders import ROOT

#: What each crate may use of ours. Cargo forbids circles; this also forbids a new arrow that nobody decided on.
ARROWS = {
    "base": set(),
    "sql": set(),
    "mysql": {"base"},
    "host": {"base", "mysql", "sql"},
    "settings": {"base", "mysql", "host"},
    "engine": {"base", "mysql"},
    "drive": {"base", "mysql", "engine"},
    "traffic": {"base", "mysql", "sql", "engine"},
    "agent": {"base", "sql", "mysql", "host", "settings", "drive", "traffic"},
}
#: An item that only tests have, as rustfmt lays it out: one statement, or lines down to a brace of its depth.
OF_TESTS = re.compile(
    r"^( *)#\[cfg\(test\)\]\n(?:\1#\[.*\n)*(?:\1\S.*;\n|\1\S.*\n(?:.*\n)*?\1\}.*\n)", re.MULTILINE
)

#: A function, as rustfmt lays it out: down to the brace at its own depth, unless it ends on its first line.
FUNCTION = re.compile(
    r"^( *)(?:pub(?:\([^)]*\))? )?(?:const )?(?:unsafe )?fn (\w+)[^\n]*(?<![;}])\n(?:.*\n)*?\1\}$",
    re.MULTILINE,
)
MOST_LINES = 650
MOST_LINES_OF_A_FUNCTION = 75

Module = tuple[str, ...]


def modules_of(source: Path) -> dict[Module, Path]:
    """The files of a crate by the path of their module; ``()`` is the root."""
    found = {}
    for path in source.rglob("*.rs"):
        parts = path.relative_to(source).with_suffix("").parts
        found[parts[:-1] if parts[-1] in ("lib", "main", "mod") else parts] = path
    return found


def flattened(use: str) -> list[str]:
    """The single paths of ``a::{b, c::{d}}``."""
    head, brace, rest = use.partition("{")
    if not brace:
        return [use.split(" as ")[0].strip()]
    paths, depth, part = [], 0, ""
    for character in rest[: rest.rindex("}")] + ",":
        if character == "," and depth == 0:
            paths += [head.strip() + path for path in flattened(part)] if part.strip() else []
            part = ""
            continue
        depth += (character == "{") - (character == "}")
        part += character
    return paths


def imports_of(module: Module, text: str, modules: dict[Module, Path]) -> set[Module]:
    """The modules of the same crate that a file names in its code (its own tests do not count)."""
    code = re.sub(r"//[^\n]*", "", OF_TESTS.sub("", text))
    uses = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
    paths = [path for use in uses.findall(code) for path in flattened(use)]
    paths += re.findall(r"(?<![:\w])[a-z_]\w*(?:::\w+)+", uses.sub("", code))
    imported = set()
    for path in paths:
        parts = tuple(path.split("::"))
        if parts[0] == "crate":
            target = parts[1:]
        elif parts[0] in ("self", "super"):
            ups = sum(part == "super" for part in parts)
            target = module[: len(module) - ups] + parts[max(ups, 1) :]
        elif (*module, parts[0]) in modules:
            target = module + parts
        else:
            continue
        while target not in modules:
            target = target[:-1]
        imported.add(target)
    return imported - {module}


def circle_in(source: Path) -> list[Module]:
    """Modules that import each other in a circle; empty without one."""
    modules = modules_of(source)
    graph = {module: imports_of(module, path.read_text(), modules) for module, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def too_large(sources: Path) -> list[str]:
    """The files and functions below a folder that are too long to be read."""
    large = []
    for path in sorted(sources.rglob("*.rs")):
        text = path.read_text()
        lines = text.count("\n")
        if lines > MOST_LINES:
            large.append(f"{path.name}: {lines} lines")
        for function in FUNCTION.finditer(text):
            lines = function[0].count("\n") + 1
            if lines > MOST_LINES_OF_A_FUNCTION:
                large.append(f"{path.name}: {function[2]} has {lines} lines")
    return large


def test_crates_use_only_what_they_may() -> None:
    assert set(ARROWS) == {path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml")}
    for crate, allowed in ARROWS.items():
        manifest = tomllib.loads((ROOT / "crates" / crate / "Cargo.toml").read_text())
        assert set(manifest["dependencies"]) & set(ARROWS) == allowed, crate


@pytest.mark.parametrize("crate", ARROWS)
def test_modules_do_not_import_each_other_in_circles(crate: str) -> None:
    assert circle_in(ROOT / "crates" / crate / "src") == []


def test_a_circle_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\n")
    (tmp_path / "a.rs").write_text("use crate::{b::B, c};\n")
    (tmp_path / "b.rs").write_text("fn f() {\n    super::a::g();\n}\n")
    assert set(circle_in(tmp_path)) == {("a",), ("b",)}
    (tmp_path / "b.rs").write_text("#[cfg(test)]\nmod tests {\n    use super::super::a;\n}\n")
    assert circle_in(tmp_path) == []


def test_what_only_tests_have_hides_nothing_below_it(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\n")
    (tmp_path / "a.rs").write_text("use super::b;\n")
    for of_tests in ("mod tests;\n", "use super::x;\n", "fn f() {\n    g();\n}\n"):
        (tmp_path / "b.rs").write_text(f"#[cfg(test)]\n{of_tests}\nuse super::a;\n")
        assert set(circle_in(tmp_path)) == {("a",), ("b",)}


def test_files_and_functions_stay_small() -> None:
    assert too_large(ROOT / "crates") == []


def test_what_is_too_large_would_be_found(tmp_path: Path) -> None:
    body = "        work();\n" * (MOST_LINES_OF_A_FUNCTION - 2)
    (tmp_path / "a.rs").write_text(f"trait T {{\n    fn f();\n    pub fn g(\n    ) {{\n{body}    }}\n}}\n")
    assert too_large(tmp_path) == ["a.rs: g has 76 lines"]
    (tmp_path / "a.rs").write_text(f"impl T {{\n    fn f() {{}}\n    pub fn g() {{\n{body}    }}\n}}\n")
    assert too_large(tmp_path) == []
    (tmp_path / "b.rs").write_text("mod a;\n" * (MOST_LINES + 1))
    assert too_large(tmp_path) == ["b.rs: 651 lines"]
