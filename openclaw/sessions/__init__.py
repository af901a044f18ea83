"""Which conversation a request belongs to, and which turn it answers."""
