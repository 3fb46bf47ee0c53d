"""Builds a release that others can check: `make release`.

    scripts/release.py                  # dist/: wheels, source distribution, SBOM, provenance, sums, signatures
    scripts/release.py --check DIR      # what a user does: sums, SBOM, provenance, signatures of a release
    scripts/release.py --twice          # also builds in a second directory, and compares bit for bit

The commit is built in a directory of its own, at the commit's time, so what it gives depends on nothing else here.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUILDER = "headrace:scripts/release.py"
STATEMENT, PROVENANCE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
#: What the two builds of a commit must have in common besides it.
LOCKS = ("Cargo.lock", "requirements.txt", "requirements-uv.txt")
#: Programs that sign, and the variable that names the key's file: the first with both is used.
SIGNERS = {
    "minisign": ("MINISIGN_KEY", "{file}.minisig", ["minisign", "-S", "-s", "{key}", "-m", "{file}"]),
    "cosign": (
        "COSIGN_KEY",
        "{file}.sigstore.json",
        ["cosign", "sign-blob", "--yes", "--key", "{key}", "--bundle", "{file}.sigstore.json", "{file}"],
    ),
}

Json = dict[str, Any]


class Wrong(Exception):
    """The message says what a release, or the tree that it is made of, lacks."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Builds a release that others can check.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--twice", action="store_true", help="build in two directories and compare")
    parser.add_argument(
        "--check", type=Path, metavar="DIR", help="check the release in DIR, and build nothing"
    )
    options = parser.parse_args(argv)
    try:
        if options.check:
            for line in checked(options.check):
                sys.stdout.write(f"{line}\n")
        else:
            release(options.out, is_twice=options.twice)
    except Wrong as wrong:
        sys.stderr.write(f"release: {wrong}\n")
        return 1
    return 0


def release(out: Path, *, is_twice: bool) -> None:
    """Raises Wrong for a tree with changes, or two builds that differ."""
    if dirty := git("status", "--porcelain", "--untracked-files=no"):
        raise Wrong(f"the tree has changes that no commit has:\n{dirty}")
    commit, time_s = git("rev-parse", "HEAD"), int(git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="headrace-release-") as folder:
        made = built(Path(folder) / "one", commit, time_s)
        if is_twice:
            # The name has another length: nothing may depend on where it is.
            again = built(Path(folder) / "the-other", commit, time_s)
            if found := differences(made, again):
                raise Wrong(f"two builds of {commit[:12]} differ: {', '.join(found)}")
            sys.stdout.write(f"two builds in two directories are the same: {len(made)} files\n")
        out.mkdir(parents=True, exist_ok=True)
        for old in [*out.glob("headrace-*"), *out.glob("SHA256SUMS*")]:
            old.unlink()
        files = [Path(shutil.copy(path, out)) for path in made]
    stem = out / f"headrace-{version()}"
    files.append(written(stem.with_name(f"{stem.name}.cdx.json"), sbom(time_s)))
    files.append(written(stem.with_name(f"{stem.name}.intoto.json"), provenance(files, commit, time_s)))
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{digest(path)}  {path.name}\n" for path in sorted(files)))
    signed = sign(sums)
    for path in [*sorted(files), sums, *signed]:
        sys.stdout.write(f"{path}\n")
    if not signed:
        keys = " or ".join(f"{program} and {key}" for program, (key, *_) in SIGNERS.items())
        sys.stdout.write(f"not signed: needs {keys} (CONTRIBUTING.md)\n")


def built(folder: Path, commit: str, time_s: int) -> list[Path]:
    """The wheels and the source distribution of a commit, made below this directory alone."""
    tree = folder / "headrace"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(tree, filter="data")
    # Git ignores the pages, and they are in the wheel: `make release` builds them first.
    pages = ROOT / "src" / "headrace" / "docs_site"
    if pages.is_dir():
        shutil.copytree(pages, tree / "src" / "headrace" / "docs_site")
    for path in [tree, *tree.rglob("*")]:
        os.utime(path, (time_s, time_s), follow_symlinks=False)
    out = folder / "dist"
    argv = [sys.executable, str(tree / "scripts" / "wheels.py"), "--out", str(out)]
    subprocess.run(argv, cwd=tree, check=True, env={**os.environ, **environment(tree, time_s)})
    return sorted(out.iterdir())


def environment(tree: Path, time_s: int) -> dict[str, str]:
    """What makes a build independent of where, when and in which language it is made."""
    home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    remapped = f"--remap-path-prefix={tree}=/headrace --remap-path-prefix={home}=/cargo"
    flags = f"-ffile-prefix-map={tree}=/headrace -ffile-prefix-map={home}=/cargo"
    own = {
        "SOURCE_DATE_EPOCH": str(time_s), "LC_ALL": "C", "TZ": "UTC", "CARGO_INCREMENTAL": "0",
        "CARGO_TARGET_DIR": str(tree / "target"), "PYTHONHASHSEED": "0", "CFLAGS": flags,
    }  # fmt: skip
    # Those of .cargo/config.toml are joined with these, not replaced by them.
    for processor in ("X86_64", "AARCH64"):
        own[f"CARGO_TARGET_{processor}_UNKNOWN_LINUX_GNU_RUSTFLAGS"] = remapped
    return own


def differences(one: Iterable[Path], other: Iterable[Path]) -> list[str]:
    """The names of files that are not the same in both."""
    first, second = ({path.name: digest(path) for path in paths} for paths in (one, other))
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


# -- what it is made of -----------------------------------------------------------------------------------------


def sbom(time_s: int) -> Json:
    """CycloneDX 1.5 of both languages: what is in the agent, what the package needs, each with its hash."""
    rust, python = list(crates()), list(packages())
    parts = sorted([*rust, *python], key=lambda part: str(part["bom-ref"]))
    content = json.dumps(parts, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # Of what is in it, so that two builds have the same.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "timestamp": stamp(time_s),
            "tools": {"components": [{"type": "application", "name": "release.py", "group": "headrace"}]},
            "component": {
                "type": "application", "bom-ref": "headrace", "name": "headrace", "version": version(),
                "purl": f"pkg:pypi/headrace@{version()}", "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": parts,
        "dependencies": [{"ref": "headrace", "dependsOn": sorted(str(part["bom-ref"]) for part in parts)}],
    }  # fmt: skip


def crates() -> Iterator[Json]:
    """Those that are linked into the agent, from the lock."""
    tree = ["cargo", "tree", "--locked", "--package", "headrace-agent", "--edges", "normal"]
    said = subprocess.run(
        [*tree, "--prefix", "none", "--format", "{p}"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    linked = set(re.findall(r"^(\S+) v(\S+)", said.stdout, re.MULTILINE))
    for each in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]:
        if (each["name"], each["version"]) in linked and "checksum" in each:
            yield component("cargo", each["name"], each["version"], [each["checksum"]], is_needed=True)


def packages() -> Iterator[Json]:
    """Those of the lock; what only development needs is marked as left out."""
    needed = closure("headrace")
    locked = re.findall(r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:\w+.*\n)+)", lock(), re.MULTILINE)
    for name, number, hashes in locked:
        yield component("pypi", name, number, re.findall(r"sha256:(\w+)", hashes), is_needed=name in needed)


def lock() -> str:
    return (ROOT / "requirements.txt").read_text()


def closure(name: str) -> set[str]:
    """The packages that a plain installation brings, by what those that are installed here say."""
    found: set[str] = set()
    left = (
        [re.split(r"[^\w.-]", each)[0] for each in project()["dependencies"]]
        if name == "headrace"
        else [name]
    )
    while left:
        each = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if each in found:
            continue
        found.add(each)
        try:
            requires = importlib.metadata.requires(each) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        left += [re.split(r"[^\w.-]", one)[0] for one in requires if "extra ==" not in one]
    return found


def component(kind: str, name: str, number: str, hashes: Sequence[str], *, is_needed: bool) -> Json:
    purl = f"pkg:{kind}/{name}@{number}"
    # A package of Python has a hash for each of its files, of which one is installed; those are its references.
    found: Json = {"type": "library", "bom-ref": purl, "name": name, "version": number, "purl": purl}
    found["scope"] = "required" if is_needed else "excluded"
    if len(hashes) == 1:
        found["hashes"] = [{"alg": "SHA-256", "content": hashes[0]}]
    else:
        found["externalReferences"] = [
            {"type": "distribution", "url": f"https://pypi.org/project/{name}/{number}/",
             "hashes": [{"alg": "SHA-256", "content": each} for each in hashes]}
        ]  # fmt: skip
    return found


def provenance(files: Sequence[Path], commit: str, time_s: int) -> Json:
    """An in-toto statement with SLSA's predicate: of what, from which commit and locks, by which programs."""
    locks = [{"uri": f"file:{name}", "digest": {"sha256": digest(ROOT / name)}} for name in LOCKS]
    maturin = [sys.executable, "-m", "maturin"]
    programs = {argv[-1]: words([*argv, "--version"]) for argv in (["rustc"], ["cargo"], maturin)}
    programs["python"] = sys.version.split()[0]
    return {
        "_type": STATEMENT,
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in sorted(files)],
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILDER,
                "externalParameters": {"commit": commit, "version": version()},
                "internalParameters": {"SOURCE_DATE_EPOCH": time_s, "programs": programs},
                "resolvedDependencies": [{"uri": "git+headrace", "digest": {"gitCommit": commit}}, *locks],
            },
            "runDetails": {
                "builder": {"id": BUILDER},
                "metadata": {"invocationId": commit, "startedOn": stamp(time_s)},
            },
        },
    }


# -- signing and checking ---------------------------------------------------------------------------------------


def sign(sums: Path) -> list[Path]:
    """Sign the file of sums, which stands for all others. Empty where there is no key, or no program for it."""
    for program, (variable, signature, words_) in SIGNERS.items():
        key = os.environ.get(variable)
        if key and shutil.which(program):
            subprocess.run([word.format(key=key, file=sums) for word in words_], check=True)
            return [Path(signature.format(file=sums))]
    return []


def checked(folder: Path) -> Iterator[str]:
    """What was checked, line by line. Raises Wrong."""
    sums = dict(reversed(line.split("  ", 1)) for line in (folder / "SHA256SUMS").read_text().splitlines())
    for name, sum_ in sums.items():
        if "/" in name or not (folder / name).is_file():
            raise Wrong(f"{name}: missing")
        if digest(folder / name) != sum_:
            raise Wrong(f"{name}: not what SHA256SUMS says")
    strange = {path.name for path in folder.glob("headrace-*")} - set(sums)
    if strange:
        raise Wrong(f"not in SHA256SUMS: {', '.join(sorted(strange))}")
    yield f"{len(sums)} files are what SHA256SUMS says"
    (statement,) = (json.loads(path.read_text()) for path in folder.glob("*.intoto.json"))
    if (statement["_type"], statement["predicateType"]) != (STATEMENT, PROVENANCE):
        raise Wrong("the provenance is of another form")
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    said = {name: sum_ for name, sum_ in sums.items() if not name.endswith(".intoto.json")}
    if subjects != said:
        raise Wrong("the provenance is of other files")
    commit = statement["predicate"]["buildDefinition"]["externalParameters"]["commit"]
    yield f"all of commit {commit}"
    (bom,) = (json.loads(path.read_text()) for path in folder.glob("*.cdx.json"))
    kinds = [part["purl"].partition("/")[0] for part in bom["components"]]
    yield f"made of {kinds.count('pkg:cargo')} crates and {kinds.count('pkg:pypi')} packages of Python"
    signatures = sorted(path.name for path in folder.glob("SHA256SUMS.*"))
    yield f"signatures, to be checked with your copy of the key: {', '.join(signatures) or 'none'}"


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def written(path: Path, content: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    return path


def project() -> Json:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def version() -> str:
    return str(project()["version"])


def stamp(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def words(argv: Sequence[str]) -> str:
    return subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def git(*arguments: str) -> str:
    return words(["git", *arguments])


if __name__ == "__main__":
    sys.exit(main())
