//! SQL as far as traffic needs it: literals, fingerprints, tables, what writes, passwords.
