"""The group ``size``."""
