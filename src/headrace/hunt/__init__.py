"""Find what limits a host and its server, live or from what was saved, and which settings could help.

In: a host that is watched (``hunt``, ``live``), a snapshot, or what people have of a host (``dumps``).
Out: the saturated resource (``resources``, with ``users``, ``sessions``, ``hot_cores``, ``io_waits``,
``reclaim``, ``waits``, ``lock_tree``), findings of ``rules``, the lines of ``top``, and the latency table
(``ladder``).
Entry: ``hunt.watch``, ``hunt.examine``, ``live.Feed``, ``rules.judge``; pages in ``report`` and ``top``.
Holds: looking changes nothing. A rule is one function that sees only its ``Evidence``; where a number is
missing it names it and does not fire. What a server would pay much for is not asked, and that is said.
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
