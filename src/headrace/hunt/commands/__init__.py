"""The commands that look at a host."""
