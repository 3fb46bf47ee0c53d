"""What people already have of a host and its server, as a snapshot that rules evaluate like a hunt's.

A file, a directory or a tar archive; what is in it is found out by content (``kinds``). Nothing is filled in that
is not there: what is missing is named.
"""

from headrace.hunt.dumps.load import load

__all__ = ["load"]
