"""A tuning's report."""
