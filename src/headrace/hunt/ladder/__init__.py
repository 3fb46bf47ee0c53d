"""The latencies of a machine, from CPU cache to commit: measured, compared with published ones, remembered."""
