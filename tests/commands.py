"""The command line: in this process, because to start another one takes longer than most commands; and as one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

from headrace.cli import main
from tests.folders import ROOT


def headrace(
    *arguments: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``headrace ARGUMENTS`` in this process, not on a terminal. Returns its exit code and its output.
    ``env``: variables in addition to our own.
    """
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["headrace", *arguments]),
        mock.patch.dict(os.environ, env or {}),
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


def started(*arguments: str, env: Mapping[str, str], prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
    """``headrace ARGUMENTS`` as a process, in a session of its own; ``prefix`` goes before its command."""
    argv = [*prefix, sys.executable, "-m", "headrace", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
