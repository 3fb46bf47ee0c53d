"""What `doctor` runs on a host."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headrace.base.model import Tool
from headrace.experiment import readiness
from headrace.host.command import _print_checks
from headrace.host.target.local import LocalTarget


@pytest.mark.parametrize("tool", readiness.all_tools(), ids=lambda tool: tool.program)
def test_a_program_is_only_ever_asked_for_its_version(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """memcached without arguments serves until it is killed; as root it refuses, which hid that."""
    program = tmp_path / tool.program
    program.write_text(
        "#!/bin/sh\n"
        "case $* in --version|--no-defaults\\ --version|-V) echo own 12.34.5;; *) echo served $*;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    check = asyncio.run(readiness._tool(LocalTarget(), tool))
    assert check.ok
    assert check.detail == ("12.34.5" if tool.version_options else str(program))


def test_memcached_is_asked_too() -> None:
    assert any(tool.program == "memcached" for tool in readiness.all_tools())


def test_what_a_program_says_of_itself_is_text_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _print_checks([readiness.Check("mysqld", True, "8.0 \x1b]0;owned\x07 [red]x[/red]")])
    shown = " ".join(capsys.readouterr().out.split())
    assert "\x1b" not in shown
    assert "8.0 \\x1b]0;owned\\x07 [red]x[/red]" in shown
