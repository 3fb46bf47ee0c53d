"""Many hosts: where their names come from, how all are asked, and what differs between them."""
