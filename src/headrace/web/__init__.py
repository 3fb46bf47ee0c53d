"""``headrace serve``: the history as pages, tables and live figures for a team.

In: requests, and what ``history`` keeps.
Out: pages (``pages``, ``templates``), the same tables as JSON and CSV (``api``, ``tables``), live events
(``live``).
Entry: ``app.application``, ``app.serve``.
Holds: ``guard`` stands before every route, and a route says which role it needs. A table exists once, for pages
and ``/api``. Captured text is escaped by the templates. Strangers have a budget of connections (``room``). Who
may log in: ``users``, ``sessions``, ``doors``, ``auth`` (``proxied``, ``provider``). What changes a host goes
through ``rollouts``.
Imports: every room but ``mcp``, ``tell`` and ``cli``.
"""
