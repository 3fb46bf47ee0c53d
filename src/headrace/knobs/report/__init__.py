"""The catalogue for people."""
