"""Test settings: plans, trials in random blocks and their statistics, searches, proofs and reports.

In: a plan file (``plan``), a workload (``workloads``), results measured elsewhere (``foreign``), findings to
prove.
Out: an experiment directory (``store``): a frozen design, trials, tables; and what they prove (``stats``,
``report``).
Entry: ``run.run``, ``prove.prove_all``, ``tune.tune``, ``stats.study``, ``report.of``. A kind is a file of
``kinds``.
Steps: ``design`` (a plan's treatments, blocks and order; ``frozen`` is its file) -> ``runner`` (what is next,
measure) -> ``labs`` (the prepared host) -> ``trial`` (set, measure, restore) -> ``store`` -> ``stats`` ->
``report``.
Holds: the trial is the unit, and no function takes pooled seconds. The baseline runs twice in a block. A trial
is whole or absent; decisions follow from the trials on disk. A search claims nothing before it is confirmed.
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
