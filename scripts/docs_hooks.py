"""Hooks of mkdocs: pages of the project that stay at the root of the repository are shown in the site, too."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
#: The page of the site: the file at the root.
PAGES = {
    "project/architecture.md": "ARCHITECTURE.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=_rewritten((ROOT / source).read_text())))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """A page for a web server's errors: on a disk nothing serves it, and its links would lead to the root."""
    (Path(config.site_dir) / "404.html").unlink(missing_ok=True)
    for source_map in Path(config.site_dir).rglob("*.map"):
        source_map.unlink()


def _rewritten(text: str) -> str:
    """Links of a file at the root, as seen from the folder ``project``. Files outside of the site become names."""
    text = re.sub(r"\]\(docs/", "](../", text)
    for page, source in PAGES.items():
        text = text.replace(f"]({source}", f"]({page.removeprefix('project/')}")
    return re.sub(r"\[([^\]]+)\]\((?!\.\./|https?:|#|[a-z]+\.md)[^)]+\)", r"\1", text)
