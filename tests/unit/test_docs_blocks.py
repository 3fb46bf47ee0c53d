"""What a reader pastes from the documentation is taken by the commands.

Each command of a block is read by the real command line, and each option of the agent's is in its help. Each file
that a command reads is made above it, named by the page as the reader's own, or listed here.
``tests/real/server/test_tutorials.py`` runs the tutorials.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace import cli
from headrace.cli.shell import app
from tests import programs
from tests.doc_blocks import Block, Line, blocks, fault, pages, prose
from tests.folders import ROOT

#: The reader's own files that need no word on each page, by the page that says how one is written or what it is.
YOURS = {
    "slow.log": "docs/howto/record.md",
    "/var/log/mysql/slow.log": "docs/howto/record.md",
    "capture.pcap": "docs/howto/record.md",
    "fleet.toml": "docs/howto/fleet.md",
    "inventory.json": "docs/howto/fleet.md",
    "stages.toml": "docs/howto/rollout.md",
    "chats.conf": "docs/howto/tell.md",
    "hook.toml": "docs/howto/tell.md",
    "grafana.toml": "docs/howto/tell.md",
    "my-*.toml": "docs/reference/plans.md",
    "ticket.txt": "docs/howto/changed-logs.md",
    "history.csv": "docs/howto/ci.md",
    "db*.parquet": "docs/howto/digest.md",
    "before.parquet": "docs/howto/digest.md",
    "after.parquet": "docs/howto/digest.md",
    "app1.pcap": "docs/howto/digest.md",
    "sosreport-*.tar.xz": "docs/howto/dumps.md",
    "status-and-variables.txt": "docs/howto/dumps.md",
    "table.csv": "docs/howto/import.md",
    "fio-{*}.json": "docs/howto/import.md",
    "out/*.json": "docs/howto/import.md",
    "runs.csv": "docs/howto/import.md",
    "reads.csv": "docs/howto/import.md",
    "writes.csv": "docs/howto/import.md",
    "hosts.csv": "docs/howto/merge.md",
    "demands.*": "docs/howto/merge.md",
    "db1.rec": "docs/howto/anonymise.md",
    "shop.rec": "docs/howto/record.md",
    "blog.rec": "docs/howto/record.md",
    "pool-*.jsonl.zst": "docs/howto/size.md",
    "mon.parquet": "docs/howto/verify.md",
    "tue.parquet": "docs/howto/verify.md",
    "latencies.csv": "docs/howto/verify.md",
    "db2.histograms": "docs/howto/verify.md",
    "my.toml": "docs/reference/plans.md",
    "study.toml": "docs/reference/plans.md",
    "nightly.toml": "docs/reference/plans.md",
}
PAGES = {path.relative_to(ROOT).as_posix(): path for path in pages()}
PAGES = {page: path for page, path in PAGES.items() if blocks(path)}


def lines(page: str) -> list[tuple[Block, Line]]:
    return [(block, line) for block in blocks(PAGES[page]) for line in block.lines]


@pytest.fixture(scope="module")
def root() -> Any:
    cli.load()
    return typer.main.get_command(app)


def test_the_command_line_takes_every_command_as_it_is_pasted(root: Any) -> None:
    wrong, seen = [], 0
    for page in PAGES:
        for _, line in lines(page):
            for words in line.own:
                seen += 1
                if Path(words[0]).name == "headrace" and (said := fault(root, words)):
                    wrong.append(f"{page}: {line.text!r}: {said}")
            if re.search(r"\S {4,}[A-Za-z]", line.text.partition(" #")[0]):
                wrong.append(f"{page}: {line.text!r}: a remark without # is pasted, too")
    assert seen > 200
    assert not wrong, "\n".join(wrong)


def test_the_agent_has_every_option_that_a_block_gives_it() -> None:
    helped: dict[tuple[str, ...], str] = {}
    wrong = []
    for page in PAGES:
        for _, line in lines(page):
            for words in line.own:
                if Path(words[0]).name != "headrace-agent":
                    continue
                names = tuple(word for word in words[1:3] if re.fullmatch("[a-z]+(-[a-z]+)*", word))
                command = names if names[:1] in (("drive",), ("journal",)) else names[:1]
                if command not in helped:
                    argv = [programs.agent_path(), *command, "--help"]
                    helped[command] = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
                for option in (word for word in words if re.match("--?[a-z]", word)):
                    if not re.search(rf"(?<![\w-]){option}(?![\w-])", helped[command]):
                        wrong.append(f"{page}: {line.text!r}: no option {option}")
    assert len(helped) > 8
    assert not wrong, "\n".join(wrong)


def test_each_file_that_a_block_reads_is_made_above_it_or_said_to_be_yours() -> None:
    wrong, used = [], set()
    for page, path in PAGES.items():
        text, there = prose(path), set[str]()
        for block, line in lines(page):
            there |= set(block.saved)
            for name in sorted(line.needed()):
                if any(fnmatch.fnmatch(each, name) for each in there) or f"`{name}`" in text:
                    continue
                patterns = [each for each in YOURS if fnmatch.fnmatch(name, each)]
                used |= set(patterns)
                if not patterns:
                    wrong.append(f"{page}: {line.text!r}: where does {name} come from?")
            there |= line.made()
    assert not wrong, "\n".join(wrong)
    assert used == set(YOURS)
    for pattern, page in YOURS.items():
        assert (ROOT / page).is_file(), pattern


def test_a_wrong_option_and_a_command_that_is_gone_are_seen(root: Any) -> None:
    assert "--no-such" in fault(root, ("headrace", "hunt", "--no-such"))
    assert "sweep" in fault(root, ("headrace", "sweep", "PLAN"))
    assert fault(root, ("headrace", "hunt", "--duration", "5s")) == ""
