"""The report of a saturation sweep."""
