"""Traffic of servers: digested by query class, recorded, copied here, and replayed.

In: logs, captures and recordings on hosts, read by the agent; digests that were kept.
Out: a table of classes (``digests``), its ``figures`` (shares, percentiles, rankings, comparisons), recordings,
and what a replay measured (``replayed``).
Entry: ``traffic.digest_hosts``, ``traffic.record``, ``traffic.play``; ``digests.files`` opens what was kept.
Holds: every byte belongs to an event or is counted as skipped, and reports begin with these counts. Digests
merge exactly, in any order and number of parts.
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
