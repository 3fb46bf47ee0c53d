"""Which factors matter in a table of results, and which configuration to choose: for imported tables and
experiments.
"""
