"""Recordings of programs at a terminal: how the picture of the chat in the README is made."""
