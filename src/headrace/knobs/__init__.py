"""The catalogue of settings: one record per knob, and what a host or a server makes of its name.

In: names such as ``host.vm.swappiness``, and what servers say of their variables (``servers``, a file a
series).
Out: records with kind, bounds, cost, durability and source (``catalogue``; by area in ``host``, ``server``,
...), the instances that a host has (``instance``), and what the agent is to write (``change``).
Entry: ``catalogue.find``, ``catalogue.check``, ``change``.
Holds: a knob is one record. What weakens durability (``knob``) or cannot be brought back (``losses``) is
allowed by name only. Two texts of one value are compared by ``values``, never as text.
Imports: base, host, show.
"""
