"""What `benches/clients.py` records its clients by, and what it compares. Their drivers: `benches/clients`."""
