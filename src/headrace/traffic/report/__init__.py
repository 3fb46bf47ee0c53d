"""A digest of traffic: one, two compared, and a history of them."""
