"""Checks a candidate before it goes live; restores the trainer's last live state if it is rejected."""
