"""Checks a candidate before it goes live, and returns the trainer to its last live state if it failed."""
