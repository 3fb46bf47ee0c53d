"""Before and after a change in production."""
