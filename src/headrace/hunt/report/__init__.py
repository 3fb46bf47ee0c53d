"""A hunt's report."""
