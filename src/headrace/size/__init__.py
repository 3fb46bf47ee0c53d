"""How much the hosts of a fleet can carry: demand, capacity, when they are full, what to buy, what to merge."""
