"""The group ``size`` with all its commands."""

from headrace.capacity.commands import size_full, size_merge, size_prove, size_replica
from headrace.capacity.commands.size_app import size_app

__all__ = ["size_app", "size_full", "size_merge", "size_prove", "size_replica"]
