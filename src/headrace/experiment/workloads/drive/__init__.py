"""headrace's load driver, ``headrace-agent drive``: common code of its workloads.

``options``: a plan's options for connections, pacing and keys. ``workload``: the stages of a trial. ``check``: the
checks before the first. ``clients``: one driver or several, which start at one instant. ``lines``: from their
output to the tables.
"""
