"""The commands that change a host, undo it and verify it."""
