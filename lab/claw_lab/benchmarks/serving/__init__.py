"""Measures gateway, store and engines: speed, exactness, start-up and weight transfer."""
