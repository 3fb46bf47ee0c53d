"""The agent's table of a digest and `headrace digest` refer to the same time."""

from __future__ import annotations

import random
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.traffic.digests.classes import open_digest
from headrace.traffic.digests.lines import read_lines
from tests.programs import agent_path
from tests.replays import BEGIN, Said, slow_log

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def digest(*words: str) -> str:
    return subprocess.run([agent_path(), "digest", *words], check=True, capture_output=True, text=True).stdout


def said(seed: int) -> list[Said]:
    """Several classes over some seconds or minutes; a slow call may be the first to start and the last to end."""
    found = random.Random(seed)
    length_s = found.choice([0.5, 20.0, 1_500.0])
    classes = [f"SELECT {name} FROM t" for name in "abc"]
    return [
        Said(n % 5, found.uniform(0, length_s), found.choice([1e-4, 0.3, length_s]), found.choice(classes))
        for n in range(found.choice([1, 2, 40]))
    ]


@pytest.mark.parametrize("options", [[], ["--no-samples"], ["--classes", "1"]])
@pytest.mark.parametrize("seed", range(8))
def test_both_have_the_same_span(tmp_path: Path, seed: int, options: list[str]) -> None:
    log = str(slow_log(tmp_path / "slow.log", said(seed)))
    since = [f"--since={BEGIN.timestamp():.0f}", f"--until={(BEGIN + timedelta(hours=1)).timestamp():.0f}"]
    for window in ([], since):
        whole = open_digest(read_lines(digest(log, *options, *window).splitlines(), "test"))
        [line] = [
            line
            for line in digest(log, *options, *window, "--format", "table").splitlines()
            if line.startswith("Counted")
        ]
        number, unit = line.split(" over ")[1].split(",")[0].split()
        assert float(number) * UNITS[unit] == pytest.approx(whole.span_s, rel=0.006)
