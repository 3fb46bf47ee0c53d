"""memcached servers of a host: found, and asked for their statistics at the start and at the end of a window.

In: an agent on the host. Out: lines as the agent's sampler writes them (sampler ``memcached`` by server, and
``memcached_slabs`` by server and slab class), and what ``facts`` call ``memcached``: settings, connections, and
why a server was not read. ``begin`` is the entry; for a host that is followed it is ``Rounds``. Each server has a
time limit of its own, so a slow one delays nobody; nothing but ``stats`` is ever sent, and no key is read. ``ask``
runs on the host, by its Python.
"""

from headrace.host.memcached.watching import ANSWER, NOTHING, Rounds, Seen, Watch, begin, once, seen

__all__ = ["ANSWER", "NOTHING", "Rounds", "Seen", "Watch", "begin", "once", "seen"]
