"""Change a fleet in stages that are planned, approved, judged, and kept or taken back.

In: a stages file (``rules``), hosts (``look`` says what must be known of them), the settings.
Out: a ``plan`` whose id is a hash of all of it, a ``book`` (the plan and a log from which its state follows),
verdicts.
Entry: ``plan.make``, ``pairs.carrier_of`` (``carrier``: stage by stage; ``pairs``: equal hosts, where it takes
a restart), ``dry`` (nothing is changed). ``hands`` and ``service`` change one host; ``watch`` reads its
counters.
Holds: ``judge`` (``guards``, ``paired``) knows no host, and ``hands`` no statistics. A change stays on trial
only while its deadline is put off, so a silent controller leaves nothing changed. Missing data never passes.
``expected`` and ``prediction`` compare with an experiment; ``fleets`` and ``paired_fleets`` simulate how often
the judge is wrong.
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
