"""Checks that every client of the server passes, the same for all."""
