"""The trainer framework: trains on samples, and updates the engines with the new weights."""

__version__ = "0.2.0"
