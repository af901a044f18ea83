"""Stored data and a run's state as plain data, for the JSON routes of `/admin` and for the page."""
