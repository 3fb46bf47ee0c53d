"""The command line, run in this process: to start another one takes longer than what most commands do."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from unittest import mock

from headrace.cli import main
from tests.folders import ROOT


def headrace(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """What ``headrace ARGUMENTS`` answers: its exit code, and what it wrote, to no terminal."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["headrace", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
