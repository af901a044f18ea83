"""Helpers for all parts of the runtime: addresses, message texts, topics of preferences, open files."""
