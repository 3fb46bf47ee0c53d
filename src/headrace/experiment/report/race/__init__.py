"""A race's report."""
