"""Measured numbers as data: JSON files of runs, and the pages generated from them."""
