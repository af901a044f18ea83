"""Arithmetic for a tiny model: what it is asked, how it was taught the format, and the run on a laptop."""
