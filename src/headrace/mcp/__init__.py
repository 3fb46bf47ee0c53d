"""Evidence for assistants, by the Model Context Protocol on standard input and output.

In: one directory of experiments, saved hosts and digests (``library``).
Out: tools that return evidence with ids, effects and intervals (``tools``, offered by ``server``).
Entry: ``server.build``.
Holds: all tools only read, and nothing outside the directory can be named. Text that others wrote is marked,
cleaned and cut (``untrusted``). A tool that starts work would take the id of a plan that a person approved, and
nothing else.
Imports: every room but ``web``, ``tell`` and ``cli``.
"""
