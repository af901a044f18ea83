"""Serving: from a checked request to an exchange that is stored before it counts as finished."""
