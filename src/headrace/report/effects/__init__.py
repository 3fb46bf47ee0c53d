"""What matters in a table of results, and which to choose: for imported tables and for experiments."""
