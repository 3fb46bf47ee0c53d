"""A rollout as people see it."""
