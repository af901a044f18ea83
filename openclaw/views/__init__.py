"""Stored data and a run's state, as plain data: read by the JSON routes of `/admin` and by the page."""
