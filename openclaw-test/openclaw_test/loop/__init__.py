"""Starts the real loop with real processes, talks to it, and measures it."""
