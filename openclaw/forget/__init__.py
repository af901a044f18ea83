"""Forgets a person, or one of a person's wishes, at the command line."""
