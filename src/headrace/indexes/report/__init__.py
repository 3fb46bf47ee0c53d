"""The pages of ``headrace indexes``."""
