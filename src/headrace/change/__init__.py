"""Change one live host reversibly, make it last, and verify in production whether it held.

In: settings by name, and a host.
Out: a change in the host's journal (``apply``), files that last (``persist``), the same as a patch for whoever
owns the files (``printed``), and what production says of it (``production``, ``panel``, ``contrast``,
``verify``).
Entry: ``apply.prepare``, ``apply.carry_out``, ``persist``, ``verify.verify``.
Holds: originals are journaled before a write, and rollback restores them. What cannot be undone or had
(``lost``, ``beyond``) is refused first, with the sum that shows it. A file is written only if it has the last
word at the next boot or start. Production is compared by buckets with the mix of statements held fixed, never
by percentiles.
Imports: base, host, lab, show; of other capabilities what ``BETWEEN`` in the test of the structure names.
"""
