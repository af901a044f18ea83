"""The real loop with real processes: start it, talk to it, measure it."""
