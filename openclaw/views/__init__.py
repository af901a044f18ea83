"""Stored data and the state of a run as plain data, for the JSON routes under `/admin` and for the page."""
