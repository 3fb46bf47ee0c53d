"""What hosts carry, what calls cost, and when a host is full."""
