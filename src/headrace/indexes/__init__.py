"""Indexes: which ones traffic lacks, and which ones a schema has too many of.

In: statements with their cost (`statement.Statement`, of a digest with examples) and the tables of a server
(`schema.Schema`, of `headrace-agent tables`). Out: candidates with their reasons (`candidates.candidates`),
indexes that another one replaces (`existing.redundant`), and predicates that no index can serve
(`statement.Hindrance`).
What a candidate brings is known when it was tried: `screening` and `proving` do so on a copy (`copies`), with
statements that `trials` runs over a `session`. Only a proof claims a gain.
"""
