"""Send a verdict to chats, mail, dashboards and pipelines: one file per kind of place.

In: a report's ``Notice``, and places as ``KIND:PLACE``.
Out: messages (``chats``, ``webhook``, ``grafana``), files (``junit``, ``markdown``, ``metrics``), each by its
time limit.
Entry: ``places.places_of``, ``places.tell``.
Holds: a place is read and checked before any work starts; telling never raises and never waits longer than its
limit, so no run fails or hangs because a chat is down. A secret is never shown.
Imports: every room but ``web``, ``mcp`` and ``cli``.
"""
