"""The commands that test settings."""
