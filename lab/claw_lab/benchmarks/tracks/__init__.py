"""Measures the tracks: episodes per hour, and what they leave behind."""
