"""A series of results over time, and an audit of headrace's own verdicts."""
