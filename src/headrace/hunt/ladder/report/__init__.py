"""The latency table and the limits of its packet path, as pages."""
