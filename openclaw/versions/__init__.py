"""Weight versions for people: what became of each, and orders to go back to one, to pin one, to go on."""
