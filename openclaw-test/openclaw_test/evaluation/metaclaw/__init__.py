"""Reads a folder in the format of MetaClaw-Bench and plays its days through the real loop."""
