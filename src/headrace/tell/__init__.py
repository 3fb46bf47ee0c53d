"""Send a verdict to chats, mail, dashboards and pipelines: one file per kind of place, one line in ``places``.

What is told is a report's ``Notice``. A place is read and checked before any work starts; telling it never raises
and never waits longer than its limit, so that no run fails or hangs because a chat is down.
"""
