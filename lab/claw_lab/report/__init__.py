"""Measured numbers as data: JSON files of runs, and the pages that are written from them."""
