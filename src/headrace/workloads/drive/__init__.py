"""Our own load driver, ``headrace-agent drive``: what the workloads have in common that it drives.

``options``: what a plan may say of connections, pacing and keys. ``workload``: the stages of a trial. ``check``:
what is asked before the first. ``clients``: one driver or several, which start at one instant. ``lines``: from
what they wrote to the tables.
"""
