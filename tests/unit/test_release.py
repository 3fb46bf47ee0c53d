"""What `make release` says of a release, and that it finds a release that was changed."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.folders import ROOT


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["release"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def release(made: ModuleType, tmp_path: Path) -> Path:
    """One of files that were never built."""
    for name in ("headrace-0.1.0-py3-none-any.whl", "headrace-0.1.0.tar.gz"):
        (tmp_path / name).write_text(name)
    files = sorted(tmp_path.iterdir())
    files.append(made.written(tmp_path / "headrace-0.1.0.cdx.json", made.sbom(0)))
    files.append(made.written(tmp_path / "headrace-0.1.0.intoto.json", made.provenance(files, "c" * 40, 0)))
    sums = "".join(f"{made.digest(path)}  {path.name}\n" for path in files)
    (tmp_path / "SHA256SUMS").write_text(sums)
    return tmp_path


def test_the_sbom_names_what_both_languages_bring_with_their_hashes(made: ModuleType) -> None:
    bom = made.sbom(0)
    assert bom == made.sbom(0), "two of them are the same"
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bom["serialNumber"])
    parts = {part["purl"].partition("@")[0]: part for part in bom["components"]}
    assert parts["pkg:cargo/rustix"]["scope"] == parts["pkg:pypi/asyncssh"]["scope"] == "required"
    assert parts["pkg:pypi/pytest"]["scope"] == "excluded"
    assert "pkg:cargo/proptest" not in parts, "only tests need it"
    for part in parts.values():
        hashes = part.get("hashes") or part["externalReferences"][0]["hashes"]
        assert all(re.fullmatch(r"[0-9a-f]{64}", each["content"]) for each in hashes)
    locked = len(re.findall(r"^[\w.-]+==", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    assert sum(name.startswith("pkg:pypi/") for name in parts) == locked
    refs = [part["bom-ref"] for part in bom["components"]]
    assert sorted(refs) == bom["dependencies"][0]["dependsOn"]


def test_a_release_is_what_its_sums_and_its_provenance_say(made: ModuleType, release: Path) -> None:
    said = list(made.checked(release))
    assert said[0] == "4 files are what SHA256SUMS says"
    assert said[1] == f"all of commit {'c' * 40}"


@pytest.mark.parametrize("what", ["wheel", "sums and wheel", "added", "missing", "provenance"])
def test_a_release_that_was_changed_is_not_one(made: ModuleType, release: Path, what: str) -> None:
    wheel, sums = release / "headrace-0.1.0-py3-none-any.whl", release / "SHA256SUMS"
    before = made.digest(wheel)
    if what in ("wheel", "sums and wheel"):
        wheel.write_text("another")
    if what == "sums and wheel":
        sums.write_text(sums.read_text().replace(before, made.digest(wheel)))
    elif what == "added":
        (release / "headrace-0.1.1-py3-none-any.whl").write_text("another")
    elif what == "missing":
        wheel.unlink()
    elif what == "provenance":
        path = release / "headrace-0.1.0.intoto.json"
        statement = json.loads(path.read_text())
        statement["predicateType"] = "https://example.com/other"
        old = made.digest(path)
        made.written(path, statement)
        sums.write_text(sums.read_text().replace(old, made.digest(path)))
    with pytest.raises(made.Wrong):
        list(made.checked(release))


def test_a_build_depends_on_neither_place_nor_time(made: ModuleType, tmp_path: Path) -> None:
    found = made.environment(tmp_path, 7)
    assert found["SOURCE_DATE_EPOCH"] == "7"
    flags = found["CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS"]
    assert f"--remap-path-prefix={tmp_path}=" in flags
    # Cargo would take these instead of those in .cargo/config.toml, and link the agent to a C library.
    assert not {"RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"} & set(found)
    for name, content in (("a", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same").write_text("same")
        (tmp_path / name / "other").write_text(content)
        (tmp_path / name / f"only-{name}").write_text("")
    pair = [sorted((tmp_path / name).iterdir()) for name in ("a", "b")]
    assert made.differences(*pair) == ["only-a", "only-b", "other"]


def test_nothing_is_signed_without_a_key(
    made: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with one its program is called once, for the sums that stand for all files."""
    for variable in ("MINISIGN_KEY", "COSIGN_KEY"):
        monkeypatch.delenv(variable, raising=False)
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("")
    assert made.sign(sums) == []
    program = tmp_path / "minisign"
    program.write_text('#!/bin/sh\necho "$@" >"$5.minisig"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("MINISIGN_KEY", "/secret/key")
    assert made.sign(sums) == [tmp_path / "SHA256SUMS.minisig"]
    assert (tmp_path / "SHA256SUMS.minisig").read_text() == f"-S -s /secret/key -m {sums}\n"
