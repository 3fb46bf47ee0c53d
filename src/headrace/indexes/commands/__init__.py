"""The command ``indexes``."""
