"""The group ``size`` with all its commands."""

from headrace.cli import size_full, size_merge, size_prove
from headrace.cli.size_app import size_app

__all__ = ["size_app", "size_full", "size_merge", "size_prove"]
