"""Judging: what a turn was worth, read from what happened next."""
