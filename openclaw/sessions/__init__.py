"""Finds the conversation of a request, and the turn that it continues."""
