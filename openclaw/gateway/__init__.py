"""Serving: from a validated request to a stored exchange."""
