"""What ``headrace serve`` keeps: hosts watched each minute, in Parquet by day and host, and the questions to it.

In: the stream of every host (``collect``: ``collector``, ``watched``, ``minute``, ``slow_log``, ``plans``), and
what ``clients`` timed.
Out: ``archive``: ``tables`` (what is kept, how rows add up), ``files``, ``rollup`` (hours, days, weeks; age and
size), ``mirror`` (a copy in an object store), ``sums``, ``reader`` (DuckDB); ``questions``: what pages ask of
it.
Entry: ``collect.collector.Collector``, ``archive.reader.Reader``, ``questions``.
Holds: a kill at any moment leaves readable files. Time that is deleted by is the history's own
(``archive.elapsed``), never this machine's clock. A host has a bound on what one minute may hold
(``collect.bounds``).
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
