"""Prepare a host for trials: private servers, volumes, virtual machines and their kernels.

In: the part of a plan that says what to build, and a target.
Out: a running ``server`` with its data set, a mounted ``volumes`` stack, a machine of ``vm``; and how a server
reads its option files (``server.option_files``, ``server.next_start``), which ``change`` asks before it writes
one.
Entry: ``server.PrivateServer``, ``volumes`` (a kind of device is one file), ``vm.up``.
Holds: what is built is journaled on the host before it is built, and taking it down is the journal's rollback.
A device is used only if it is free and named. The system's own server is never touched. A machine outlives the
command that started it until ``down``.
Imports: base, host.
"""
