"""Which indexes traffic lacks, and which ones a schema has too many of: advised, tried on a copy, applied.

In: statements with their cost (``statement.Statement``, of a digest with examples) and the tables of a server
(``schema.Schema``).
Out: candidates with reasons, indexes that another one replaces (``existing``), predicates that no index can
serve (``statement.Hindrance``), proofs of a set on a copy, an index on a live server (``applied``, with its own
journal).
Entry: ``candidates.candidates``, ``screening``, ``proving.prove``, ``applied.make``.
Holds: only a proof claims a gain. A copy's indexes are written down before they are built, so the next run
drops what a killed one left.
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
