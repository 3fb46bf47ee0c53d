"""The commands about traffic."""
