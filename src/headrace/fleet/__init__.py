"""Many hosts: where their names come from, how all are asked at once, and what differs between them.

In: a TOML file, Ansible's or Prometheus's lists, a range of names (``inventory``, ``sources``), replication
(``topology``).
Out: one of four states and an answer for each host (``runner``, on disk in ``runs``), equal answers once
(``folded``), ``drift`` and what experiments know of it (``evidence``), ``findings`` and their common
``causes``.
Entry: ``inventory.load``, ``runner.ask``.
Holds: so many hosts at a time and no more. A host that did not answer is named with its reason, and its last
known answer with its age. A run that was killed continues where it stopped.
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
