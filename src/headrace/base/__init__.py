"""What every room uses and what knows no host: errors, values, files, JSON, numbers with their intervals.

In: values, texts and files of this machine.
Out: the same, checked: ``model`` (frozen nouns), ``errors`` (one tree, with exit codes), ``encode`` (the one
way to JSON), ``received`` (what others sent, parsed within bounds), ``toml``, ``parquet`` (the readers, with
their limits), ``whole`` (files that are complete or absent), ``temporary`` (folders that a killed command does
not leave), ``extras`` (optional packages), ``meant`` (what a mistyped word was meant to be), ``counted``
(numbers with nouns), ``buckets`` and ``percentiles`` (latencies), ``intervals``, ``looks`` and ``effect`` (what
a ratio proves).
Entry: each module by its name; there is no more to it.
Holds: nothing here prints, starts a program or keeps state. Percentiles are merged from buckets, never
averaged.
Imports: no other room.
"""
