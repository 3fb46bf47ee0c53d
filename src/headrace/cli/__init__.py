"""The command line. Data on standard output, everything else on standard error; heavy imports are lazy."""

from headrace.cli import (
    changes,
    digest,
    docs,
    experiments,
    hosts,
    hunt,
    imports,
    lab,
    ladder,
    prove,
    recording,
    replay,
    top,
    tune,
    watch,
)  # importing a module adds its commands
from headrace.cli.shell import main

__all__ = [
    "changes",
    "digest",
    "docs",
    "experiments",
    "hosts",
    "hunt",
    "imports",
    "lab",
    "ladder",
    "main",
    "prove",
    "recording",
    "replay",
    "top",
    "tune",
    "watch",
]
