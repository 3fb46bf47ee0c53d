"""Reach and read a host: run commands on it, ask its agent, and know its facts, counters and changes.

In: an address, a directory with a saved host, or this machine (``target``); the agent's answers (``agent``).
Out: ``facts``; ``samples`` and ``window`` (raw counters, and their rates); ``cores``, ``devices``, ``paths``
(of one resource); ``activity`` (what a server executed), ``stacks``, ``snapshot`` (all of it in one file),
``moved`` (what changed since), ``arrow`` (tables), ``shape`` (facts of strangers), ``ranges`` (names of many
hosts on one line).
Entry: ``target.open_target``, ``agent.Agent``, ``agent.Journal``, ``snapshot.load``.
Holds: a host is reached through ``target`` only, and the agent through ``agent.door`` only. Counters become
rates in ``window`` and nowhere else. A missing fact is None, never a default; ``moved`` says nothing of what it
did not see.
Imports: base.
"""
