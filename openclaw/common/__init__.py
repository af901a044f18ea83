"""Helpers for every part of the runtime: addresses, the text of a message, themes of wishes, open files."""
