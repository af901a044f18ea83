"""Weight versions for people: their states, and orders to roll back to one, to pin one, to continue."""
