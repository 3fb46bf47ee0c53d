"""One change over a fleet, in stages: planned, approved, tried in blocks on each host, judged, kept or taken back.

    rules    what a stages file may say: stages, timing, questions, limits, when nothing may be changed
    plan     the hosts and their stages; its id is a hash of all of it
    book     a rollout on disk: the plan, and a log from which its state follows
    watch    what a server does in a stretch, from its counters
    hands    one host: apply, put off the deadline, undo, keep
    service  the same of a change that takes a restart: out of service, restart, back, warm
    carrier  the stages one after the other, as the judge (``analysis.judge``) decides
    pairs    the same of a change that takes a restart, by pairs of equal hosts (``analysis.paired``)

The judge knows no host and the hands know no statistics.
"""
