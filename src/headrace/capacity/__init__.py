"""How much hosts can carry: demand, capacity, when they are full, what to buy, which databases to merge.

In: a history or samples (``history``, ``used``: the one place with the formulas of use), demands as people
write them (``table``), a ``catalogue`` of hosts, recordings to prove a merge with.
Out: peaks and dates (``full``, ``outlook``, ``buy``), costs of calls (``demand``, ``measure``), merges
(``plan``: ``placement``, ``merge``, ``squeeze``, ``exact``, ``cost``), and proofs (``foresee``, ``prove``,
``predictions``).
Entry: ``full.outlook``, ``plan.plan``, ``prove.prove``.
Holds: a capacity says whether it was measured or taken from facts. Peaks are those of the sum, not sums of
peaks. A prediction is written down before it is tried, and later data tells what came of it (``foretold``).
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
