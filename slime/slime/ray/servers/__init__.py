"""The servers of a run: their specs, clients of its engines, and the actors that watch servers and send weights."""
