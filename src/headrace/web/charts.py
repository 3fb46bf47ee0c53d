"""The charts of a host, as its page and ``/api`` have them."""

from __future__ import annotations

from collections.abc import Mapping

#: The chart whose lines are percentiles, made from buckets.
CLIENTS = "clients"
#: The charts of a host: metric -> title and kind of number.
CHARTS: Mapping[str, tuple[str, str]] = {
    CLIENTS: ("Response times as clients measured them", "s"),
    "cpu": ("CPU", "share"),
    "pressure": ("Time in which some task waited", "share"),
    "memory": ("Memory in use", "share"),
    "device operations": ("Device operations", "rate"),
    "device wait": ("Device time per request", "s"),
    "device bytes": ("Device throughput", "bytes"),
    "network bytes": ("Network", "bytes"),
    "cores": ("Each core", "share"),
    "server rates": ("Server: events", "rate"),
    "server threads_running": ("Server: threads running", "n"),
    "server threads_connected": ("Server: connections", "n"),
    "server innodb_history_list_length": ("InnoDB: history list", "n"),
    "memcached gets": ("memcached: gets", "rate"),
    "memcached hits": ("memcached: hit rate", "share"),
    "memcached evictions": ("memcached: evictions", "rate"),
    "memcached connections": ("memcached: connections", "n"),
    "memcached answer": ("memcached: time to answer its own host", "s"),
}
#: The heat maps of a host: metric -> title, kind of number, the value of the darkest cell [the highest].
HEATS: Mapping[str, tuple[str, str, float | None]] = {
    "cores": ("Cores: time busy", "share", 1.0),
    "device queue": ("Devices: requests in flight", "n", None),
    "device wait": ("Devices: time per request", "s", None),
}
