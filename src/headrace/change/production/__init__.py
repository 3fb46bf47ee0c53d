"""What production has recorded: one interface, one file per kind of source.

A source yields ``Series``: events by latency bucket, host, query class and time. Never percentiles, because the
percentiles of minutes or hosts do not add up to that of an hour or a fleet.
"""

from headrace.change.production.series import ALL, OTHERS, Gets, Observed, Series

__all__ = ["ALL", "OTHERS", "Gets", "Observed", "Series"]
