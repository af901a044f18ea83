"""Checks that every client of the server must pass."""
